"""The episode log: what it counts, what it calls a violation, and when a run counts as whole."""

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest

from vag_policy.evaluation.episode_log import SECOND_NS, EpisodeLog, FrameSample, JointBounds, Replan, failures
from vag_policy.evaluation.pictures import contact_sheet, plot_temporal_ratio
from vag_policy.policy import Trace

BOUNDS = JointBounds({"a": -1.0, "g": 0.0}, {"a": 1.0, "g": 0.0475}, {"a": 1.5, "g": 0.05})
MS = SECOND_NS // 1000


def trace(ratio: float, scale: float = 0.0, head_ms: float = 20.0) -> Trace:
    return Trace(
        layers=(3,),
        monitored_layer=3,
        attention=np.ones((10, 1, 5), np.float32),
        attention_grid=np.ones((5, 2, 6), np.float32),
        ratio=np.full(10, ratio),
        baseline=np.full(10, 2.0),
        guidance_scale=np.full(10, scale),
        guidance="adaptive",
        branches=("null",) if scale else (),
        stage_ms={"encode": 1.0, "head": head_ms},
        solver_index=2,
        sigma=0.883,
    )


def log_of_a_good_episode() -> EpisodeLog:
    log = EpisodeLog(BOUNDS, cameras=("top", "left_wrist"))
    for i in range(300):
        log.add_observation(i * SECOND_NS // 30, 20 * MS)
    for i in range(10):
        log.replans.append(Replan(i * SECOND_NS, i, trace(2.0 + 0.1 * i, scale=0.1 * (i > 5), head_ms=20.0 + i)))
        log.frames.append(FrameSample(i * SECOND_NS, np.full((8, 24, 3), 25 * i, np.uint8)))
    status = SimpleNamespace(
        mode="policy", reason="", queue_depth=3, commands=9, misses=1, clamps=2, rejected=0, limit_violations=0
    )
    log.add_status(0, status)
    for i in range(1000):
        log.add_command(i * 10 * MS, ["a", "g"], [0.5 * np.sin(i / 100), 0.02])
    return log


def test_a_command_to_the_rig_is_one_however_many_messages_carry_it():
    log = EpisodeLog(BOUNDS)
    for i in range(5):
        log.add_command(i * 10 * MS, ["a"], [0.0])
        log.add_command(i * 10 * MS, ["g"], [0.01])
    log.add_command(50 * MS, ["a"], [0.0])
    assert log.commands == 6


def test_the_numbers_of_a_good_episode():
    summary = log_of_a_good_episode().summary(0, 10 * SECOND_NS, [])
    assert summary["observation_hz"] == pytest.approx(30.0)
    assert summary["observation_age_ms"]["median"] == 20.0
    assert summary["replans"] == 10 and summary["commands"] == 1000
    assert summary["replan_ms"]["median"] == pytest.approx(25.5)
    assert summary["replan_ms"]["p95"] == pytest.approx(np.percentile(np.arange(21.0, 31.0), 95), abs=0.01)
    assert summary["replan_ms"]["stages"] == {"encode": 1.0, "head": 24.5}
    assert summary["tr"] == {"min": 2.0, "median": 2.45, "max": 2.9}
    assert summary["branches"] == ["null"] and summary["guidance"] == "adaptive"
    assert summary["limit_violations"] == 0 and failures(summary) == []


@pytest.mark.parametrize(
    ("break_it", "reason"),
    [
        (lambda log: log.observations.__delitem__(slice(200, None)), "observations at 20.0 Hz, below 25"),
        (lambda log: log.replans.clear(), "never replanned"),
        (lambda log: setattr(log, "commands", 0), "no command reached the arms"),
        (lambda log: log.add_command(11 * SECOND_NS, ["a"], [1.2]), "a at 1.2000, outside -1.0000 .. 1.0000"),
        (lambda log: log.replans.append(Replan(0, 10, trace(np.nan))), "not finite"),
        (lambda log: setattr(log.status, "limit_violations", 1), "1 commands outside limits"),
    ],
)
def test_a_stage_that_did_not_run_is_named(break_it, reason):
    log = log_of_a_good_episode()
    break_it(log)
    assert any(reason in text for text in failures(log.summary(0, 10 * SECOND_NS, [])))


def test_a_dead_node_is_named():
    assert failures(log_of_a_good_episode().summary(0, 10 * SECOND_NS, ["policy (-9)"])) == ["nodes died: policy (-9)"]


def test_speed_is_judged_over_time_and_not_by_late_messages():
    log = EpisodeLog(BOUNDS)
    for i in range(100):  # 1.2 rad/s, every other message 8 ms late
        log.add_command(i * 10 * MS + 8 * MS * (i % 2), ["a"], [-0.9 + 0.012 * i])
    assert log.violations == []
    fast = EpisodeLog(BOUNDS)
    for i in range(60):  # 3 rad/s
        fast.add_command(i * 10 * MS, ["a"], [-0.9 + 0.03 * i])
    assert "a at" in fast.violations[0] and "over 1.500" in fast.violations[0]


def test_pictures_are_written_and_show_something(tmp_path):
    from matplotlib.image import imread

    log = log_of_a_good_episode()
    plot_temporal_ratio(log, 0, 10 * SECOND_NS, "a task", tmp_path / "tr.png")
    contact_sheet(log, 0, 10 * SECOND_NS, log.cameras, tmp_path / "sheet.png")
    for name in ("tr.png", "sheet.png"):
        pixels = imread(tmp_path / name)
        assert pixels.shape[0] > 200 and pixels[..., :3].std() > 0.05
    with pytest.raises(ValueError, match="no stacked frame"):
        contact_sheet(dataclasses.replace(log, frames=[]), 0, SECOND_NS, log.cameras, tmp_path / "none.png")
