"""Which frames and actions make a sample: against tables written by hand."""

import numpy as np
import pytest

from vag_policy.data.clips import ClipConfig, until_first

YAM = ClipConfig.for_rates(fps=30, video_fps=10, frames=17, period_ns=33_333_333, horizon=50)
LIBERO = ClipConfig.for_rates(fps=10, video_fps=10, frames=17, period_ns=100_000_000, horizon=17)


def test_rates_of_the_presets():
    assert (YAM.frames, YAM.skip, YAM.horizon, YAM.stride) == (17, 3, 50, 1)
    assert (LIBERO.frames, LIBERO.skip, LIBERO.horizon, LIBERO.stride) == (17, 1, 17, 1)


def test_yam_clip_in_the_middle_and_at_the_end():
    frames, valid = YAM.clip(10, 200)
    assert frames.tolist() == [10, 13, 16, 19, 22, 25, 28, 31, 34, 37, 40, 43, 46, 49, 52, 55, 58]
    assert valid.all()
    frames, valid = YAM.clip(190, 200)
    assert frames.tolist() == [190, 193, 196] + [199] * 14
    assert valid.tolist() == [True] * 4 + [False] * 13


def test_yam_chunk_at_the_end_repeats_the_last_action():
    actions, valid = YAM.chunk(100, 200)
    assert actions.tolist() == list(range(100, 150)) and valid.all()
    actions, valid = YAM.chunk(197, 200)
    assert actions.tolist() == [197, 198] + [199] * 48
    assert valid.tolist() == [True] * 3 + [False] * 47


def test_libero_windows():
    frames, valid = LIBERO.clip(3, 12)
    actions, same = LIBERO.chunk(3, 12)
    assert frames.tolist() == [3, 4, 5, 6, 7, 8, 9, 10] + [11] * 9
    assert actions.tolist() == frames.tolist()
    assert valid.tolist() == same.tolist() == [True] * 9 + [False] * 8


@pytest.mark.parametrize(
    ("rates", "word"),
    [
        ({"fps": 25, "video_fps": 10, "period_ns": 40_000_000}, "video at 10"),
        ({"fps": 30, "video_fps": 10, "period_ns": 50_000_000}, "every 50000000 ns"),
        ({"fps": 30, "video_fps": 10, "period_ns": 10_000_000}, "every 10000000 ns"),
    ],
)
def test_rates_that_do_not_divide_are_refused(rates, word):
    with pytest.raises(ValueError, match=word):
        ClipConfig.for_rates(frames=17, horizon=50, **rates)


def test_a_frame_outside_the_episode_is_refused():
    with pytest.raises(ValueError, match="frame 200 of an episode of 200"):
        YAM.clip(200, 200)
    with pytest.raises(ValueError, match="frames must be positive"):
        ClipConfig(frames=0)


def test_nothing_counts_after_the_first_mistake():
    valid = np.array([True, True, True, True, False])
    good = np.array([True, True, False, True, True])
    assert until_first(valid, good).tolist() == [True, True, False, False, False]
