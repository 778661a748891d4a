import math

import numpy as np
import pytest

from vag_policy.robots.pacing import FrameSchedule, Pacer
from vag_policy.robots.trajectory import TrajectoryFollower

MS = 1_000_000
NAMES = ("a", "b")


@pytest.fixture
def follower():
    return TrajectoryFollower(NAMES, [0.0, 1.0], 0)


def test_moves_in_a_straight_line_and_holds(follower):
    follower.command(NAMES, [[1.0, 3.0]], [100 * MS], now_ns=50 * MS)
    np.testing.assert_allclose(follower.desired(50 * MS), [0, 1])
    np.testing.assert_allclose(follower.desired(100 * MS), [0.5, 2])
    np.testing.assert_allclose(follower.desired(150 * MS), [1, 3])
    np.testing.assert_allclose(follower.desired(10_000 * MS), [1, 3])


def test_a_new_command_starts_from_what_is_desired_then(follower):
    follower.command(NAMES, [[1.0, 1.0]], [100 * MS], now_ns=0)
    follower.command(NAMES, [[0.0, 1.0]], [100 * MS], now_ns=50 * MS)
    np.testing.assert_allclose(follower.desired(50 * MS), [0.5, 1])
    np.testing.assert_allclose(follower.desired(100 * MS), [0.25, 1])


def test_joints_are_mapped_by_name(follower):
    follower.command(["b", "a"], [[3.0, 1.0]], [100 * MS], now_ns=0)
    np.testing.assert_allclose(follower.desired(100 * MS), [1, 3])


def test_several_points_are_reached_in_turn(follower):
    follower.command(NAMES, [[1.0, 1.0], [1.0, 5.0]], [100 * MS, 300 * MS], now_ns=0)
    np.testing.assert_allclose(follower.desired(100 * MS), [1, 1])
    np.testing.assert_allclose(follower.desired(200 * MS), [1, 3])


def test_a_stamped_trajectory_keeps_its_time(follower):
    follower.command(NAMES, [[1.0, 1.0], [2.0, 1.0]], [100 * MS, 200 * MS], now_ns=150 * MS, start_ns=10 * MS)
    np.testing.assert_allclose(follower.desired(210 * MS), [2, 1])
    np.testing.assert_allclose(follower.desired(180 * MS), [1, 1])


@pytest.mark.parametrize(
    "names,points,times,start,reason",
    [
        (("a", "c"), [[1, 1]], [100], 0, "no joint 'c' here; expected: a, b"),
        (("a",), [[1]], [100], 0, "joint 'b' is missing; expected: a, b"),
        (("a", "b", "a"), [[1, 1, 1]], [100], 0, "a joint is named twice"),
        (NAMES, [[1, math.nan]], [100], 0, "joint 'b' is told to go to nan"),
        (NAMES, [[math.inf, 1]], [100], 0, "joint 'a' is told to go to inf"),
        (NAMES, [[1, 1]], [0], 0, "time_from_start must be above 0"),
        (NAMES, [[1, 1], [2, 2]], [100, 100], 0, "time_from_start must be above 0 and grow"),
        (NAMES, [[1, 1, 1]], [100], 0, "do not fit"),
        (NAMES, [], [], 0, "do not fit"),
        (NAMES, [[1, 1]], [100], 1, "end is past; leave its header's stamp at 0"),
    ],
)
def test_nonsense_is_refused_and_the_old_target_held(follower, names, points, times, start, reason):
    follower.command(NAMES, [[0.5, 2.0]], [100 * MS], now_ns=0)
    with pytest.raises(ValueError, match=reason):
        follower.command(names, points, [t * MS for t in times], now_ns=500 * MS, start_ns=start * MS)
    np.testing.assert_allclose(follower.desired(600 * MS), [0.5, 2])
    assert follower.accepted == 1


def test_reset_forgets_what_was_commanded(follower):
    follower.command(NAMES, [[1.0, 1.0]], [100 * MS], now_ns=0)
    follower.reset([7.0, 8.0], 50 * MS)
    np.testing.assert_allclose(follower.desired(100 * MS), [7, 8])


def test_pacer_makes_up_for_a_late_call_and_gives_up_a_long_one():
    pacer = Pacer(10 * MS, now_ns=0, max_lag_ns=50 * MS)
    assert pacer.due(9 * MS) == ()
    assert pacer.due(10 * MS) == (10 * MS,)
    assert pacer.due(35 * MS) == (20 * MS, 30 * MS)
    assert pacer.lag_ns(45 * MS) == 5 * MS
    assert pacer.slipped_ns == 0
    late = pacer.due(1000 * MS)  # 96 periods behind: only the allowed lag is worked off
    assert late == tuple(range(950 * MS, 1001 * MS, 10 * MS))
    assert pacer.slipped_ns == 910 * MS
    assert pacer.due(1009 * MS) == ()
    with pytest.raises(ValueError, match="make no pace"):
        Pacer(10 * MS, 0, 5 * MS)


def test_frames_are_skipped_and_counted_when_busy():
    frames = FrameSchedule(33 * MS)
    taken = [frames.take(t * MS, busy=False) for t in range(0, 100, 10)]
    assert taken == [True, False, False, False, True, False, False, True, False, False]
    assert not frames.take(100 * MS, busy=True)
    assert not frames.take(110 * MS, busy=False), "a skipped frame is not taken late"
    assert (frames.taken, frames.skipped) == (3, 1)
    assert frames.take(240 * MS, busy=False)
    assert (frames.taken, frames.skipped) == (4, 4), "frames 4, 5 and 6 never came up"
