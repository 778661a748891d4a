"""TR summaries, the phase estimate and the heat map, on hand-made traces."""

from __future__ import annotations

import math

import numpy as np
import pytest

from vag_policy.monitoring import heat_map
from vag_policy.monitoring.heat_map import render
from vag_policy.monitoring.monitor import Monitor
from vag_policy.monitoring.phase import Phase, PhaseConfig, PhaseEstimator
from vag_policy.monitoring.temporal_ratio import frame_shares, layer_ratios, summarise
from vag_policy.policy import Trace


def make_trace(ratio=(0.5, 1.5), baseline=(2.0, 2.0), scale=(0.0, 1.0), attention=None, grid=None) -> Trace:
    attention = np.ones((len(ratio), 2, 3), np.float32) if attention is None else np.float32(attention)
    grid = np.ones((3, 2, 6), np.float32) if grid is None else np.float32(grid)
    return Trace(
        layers=(1, 3),
        monitored_layer=3,
        attention=attention,
        attention_grid=grid,
        ratio=np.array(ratio, float),
        baseline=np.array(baseline, float),
        guidance_scale=np.array(scale, float),
        guidance="adaptive",
        branches=(),
        stage_ms={},
        solver_index=2,
        sigma=0.883,
    )


def test_summary_is_the_mean_over_euler_steps():
    summary = summarise(make_trace())
    assert (summary.ratio, summary.baseline, summary.relative, summary.guidance_scale) == (1.0, 2.0, -0.5, 0.5)
    assert summary.fault() == ""


@pytest.mark.parametrize(
    ("ratio", "baseline", "word"),
    [
        ((1.0, math.nan), (1.0, 1.0), "TR is nan"),
        ((1.0, math.inf), (1.0, 1.0), "TR is inf"),
        ((1.0, 1.0), (1.0, math.nan), "TR_0 is nan"),
        ((1.0, 1.0), (0.0, 0.0), "TR_0 is 0.0"),
        ((), (), "no TR"),
    ],
)
def test_one_bad_step_is_a_named_fault(ratio, baseline, word):
    assert word in summarise(make_trace(ratio, baseline, attention=np.ones((len(ratio), 2, 3)))).fault()


def test_layer_ratio_is_future_over_current_attention():
    attention = [[[2, 1, 3], [4, 1, 1]], [[2, 3, 3], [1, 1, 2]]]  # 2 steps, 2 layers, 3 frames
    assert layer_ratios(make_trace(attention=attention)).tolist() == [(2 + 3) / 2, (0.5 + 3) / 2]
    blind = layer_ratios(make_trace(attention=np.float32([[[0, 1, 1], [1, 1, 1]]] * 2)))
    assert math.isinf(blind[0])
    assert blind[1] == 2.0


def test_frame_shares_sum_to_one():
    grid = np.zeros((3, 2, 2))
    grid[0], grid[2] = 1.0, 3.0
    assert frame_shares(grid).tolist() == [0.25, 0.0, 0.75]


def test_phase_follows_the_smoothed_ratio_and_does_not_flicker():
    estimator = PhaseEstimator(PhaseConfig(threshold=0.1, smoothing=0.5))
    assert estimator.update(0.0) is Phase.UNKNOWN  # an episode's first replan: TR is its own baseline
    assert estimator.update(0.1) is Phase.UNKNOWN  # smoothed 0.05: inside the band
    assert estimator.update(0.4) is Phase.PLANNING
    assert estimator.update(-0.2) is Phase.PLANNING  # smoothed 0.0125: inside the band, stays
    assert estimator.update(-0.5) is Phase.PRECISE
    assert estimator.update(math.nan) is Phase.UNKNOWN
    assert estimator.update(-0.5) is Phase.PRECISE  # the bad value did not spoil the average
    estimator.reset()
    assert (estimator.phase, estimator.relative) == (Phase.UNKNOWN, 0.0)


@pytest.mark.parametrize("config", [{"threshold": -0.1}, {"threshold": math.nan}, {"smoothing": 0.0}, {"smoothing": 2}])
def test_phase_config_is_validated(config):
    with pytest.raises(ValueError, match=next(iter(config))):
        PhaseConfig(**config)


def test_monitor_forgets_on_a_new_episode_and_on_a_backward_jump():
    monitor = Monitor(PhaseConfig(smoothing=1.0))
    high = make_trace(ratio=(3.0, 3.0))
    assert monitor.update(1_000, 7, high).phase is Phase.PLANNING
    even = make_trace(ratio=(2.0, 2.0))
    assert monitor.update(2_000, 7, even).phase is Phase.PLANNING  # held
    fresh = monitor.update(3_000, 8, even)
    assert (fresh.phase, fresh.restarted) == (Phase.UNKNOWN, "episode 8")
    assert monitor.update(4_000, 8, high).phase is Phase.PLANNING
    back = monitor.update(500, 8, even)
    assert back.phase is Phase.UNKNOWN
    assert "went back" in back.restarted


def test_monitor_says_unknown_for_a_faulty_ratio():
    reading = Monitor(PhaseConfig()).update(1, 1, make_trace(ratio=(math.nan, 1.0)))
    assert reading.phase is Phase.UNKNOWN
    assert reading.relative == 0.0


def luminance(image):
    return image.astype(float).mean(axis=2)


def test_heat_is_drawn_where_the_attention_is_and_not_in_the_padding():
    image = np.zeros((168, 672, 3), np.uint8)
    grid = np.full((5, 11, 42), 1e-3)
    grid[0, 8, 30] = 1.0  # token row 8, column 30: pixels 128..143, 480..495
    grid[3, 6, 5] = 1.0
    out = render(image, grid, "", ())
    assert out.shape == (22 + 2 + 168 + 2 + 84 + 2 + 84 + 2 + 22, 672, 3)
    now = luminance(out[24 : 24 + 168])
    inside = now[130:142, 482:494].copy()
    assert inside.min() > 100
    now[128:144, 480:496] = 0
    assert now[30:].max() < inside.min() / 3  # above row 30 is the label
    third = luminance(out[24 + 168 + 2 + 84 + 2 :][:84, :336])  # V3: second row, left
    inside = third[48:56, 40:48].copy()  # half size: cells of 8 pixels
    third[48:56, 40:48] = 0
    assert inside.min() > 100
    assert third[25:].max() < inside.min() / 3


def test_heat_map_enlarges_a_small_image_and_keeps_a_large_one():
    assert render(np.zeros((72, 288, 3), np.uint8), np.ones((5, 5, 18)), "t", ("a", "b", "c")).shape[1] == 576
    assert render(np.zeros((224, 448, 3), np.uint8), np.ones((5, 7, 14)), "t", ("a", "b")).shape[1] == 448


@pytest.mark.parametrize("shape", [(2, 1024, 1), (2, 1, 1024), (2, 300, 2)])
def test_a_grid_that_does_not_fit_the_image_costs_no_more_than_one_that_does(shape, monkeypatch):
    sizes = []
    resize = heat_map.cv2.resize
    monkeypatch.setattr(
        heat_map.cv2, "resize", lambda image, size, **k: (sizes.append(size), resize(image, size, **k))[1]
    )
    out = render(np.zeros((72, 288, 3), np.uint8), np.random.default_rng(0).random(shape), "", ())
    assert out.shape[1] == 576
    assert max(width * height for width, height in sizes) <= (576 + 1) ** 2


@pytest.mark.parametrize("grid", [np.zeros((5, 2, 6)), np.full((5, 2, 6), np.nan), np.ones((2, 6))])
def test_heat_map_refuses_attention_it_cannot_scale(grid):
    with pytest.raises(ValueError, match="attention grid"):
        render(np.zeros((72, 288, 3), np.uint8), grid, "", ())
