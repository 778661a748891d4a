"""The measured pose, an operator's targets, and the rig's names and units."""

from __future__ import annotations

import numpy as np
import pytest

from vag_policy.execution.feedback import Feedback
from vag_policy.execution.limits import JointLimits
from vag_policy.execution.rig import Rig
from vag_policy.execution.teleop_source import TeleopSource
from vag_policy.robots import yam

MS = 1_000_000
SECOND = 1_000_000_000
NAMES = ("l1", "l2", "r1", "r2")
LIMITS = JointLimits(NAMES, -3.0, 3.0, 1.0, 10.0, 0.1)
STAMP = 1_000 * SECOND


def heard(timeout_ns=200 * MS, jump=0.2, **options) -> Feedback:
    feedback = Feedback(NAMES, timeout_ns, jump, **options)
    feedback.update(NAMES, [0.1, 0.2, 0.3, 0.4], STAMP, 0)
    return feedback


def test_partial_messages_are_merged_by_name():
    feedback = Feedback(NAMES, 200 * MS)
    feedback.update(["r2", "r1"], [4.0, 3.0], STAMP, 0)
    assert not feedback.complete
    assert feedback.unheard() == ["l1", "l2"]
    feedback.update(["wheel", "l2", "l1"], [9.0, 2.0, 1.0], STAMP, 0)
    assert feedback.complete
    assert feedback.position.tolist() == [1.0, 2.0, 3.0, 4.0]


def test_a_silent_joint_is_stale_after_the_timeout_and_named():
    feedback = heard()
    assert feedback.stale(200 * MS) == []
    feedback.update(["l1", "l2"], [0.1, 0.2], STAMP + 150 * MS, 150 * MS)
    assert feedback.stale(201 * MS) == ["r1", "r2"]
    assert feedback.age_ns(201 * MS) == 201 * MS


def test_a_driver_that_repeats_its_last_message_is_silent():
    feedback = heard()
    for tick in range(1, 30):
        feedback.update(NAMES, [0.1, 0.2, 0.3, 0.4], STAMP, tick * 10 * MS)
    assert feedback.stale(290 * MS) == list(NAMES)


def test_nan_positions_are_not_taken_and_named():
    feedback = heard()
    news = feedback.update(NAMES, [0.1, np.nan, 0.3, np.inf], STAMP + 1, 250 * MS)
    assert "l2 at nan" in news.fault
    assert "r2 at inf" in news.fault
    assert feedback.position.tolist() == [0.1, 0.2, 0.3, 0.4]
    assert feedback.stale(251 * MS) == ["l2", "r2"]


@pytest.mark.parametrize(
    ("names", "positions", "words"),
    [(NAMES, [0.0], "name 4 joints but give 1 positions"), (("l1", "l1"), [0.0, 1.0], "l1 is named more than once")],
)
def test_malformed_joint_states_are_not_taken(names, positions, words):
    feedback = heard()
    assert words in feedback.update(names, positions, STAMP + 1, 1).fault
    assert feedback.position.tolist() == [0.1, 0.2, 0.3, 0.4]


def test_field_case_19_joint_states_stamped_0_are_not_taken():
    feedback = Feedback(NAMES, 200 * MS)
    assert "stamped 0" in feedback.update(NAMES, [0.0] * 4, 0, 5).fault
    assert not feedback.complete


def test_a_backward_jump_of_stamps_is_told_from_reordering():
    feedback = heard()
    reordered = feedback.update(NAMES, [9.0] * 4, STAMP - 20 * MS, 10 * MS)
    assert not reordered.went_back
    assert feedback.position.tolist() == [0.1, 0.2, 0.3, 0.4]
    looped = feedback.update(NAMES, [0.1, 0.2, 0.3, 0.5], STAMP - 60 * SECOND, 20 * MS)
    assert looped.went_back
    assert feedback.position.tolist() == [0.1, 0.2, 0.3, 0.5]
    assert not feedback.update(NAMES, [0.1, 0.2, 0.3, 0.6], STAMP - 60 * SECOND + 1, 30 * MS).went_back


def test_a_jump_that_no_arm_makes_is_named():
    feedback = heard(velocity=2.0)
    moved = feedback.update(NAMES, [0.1, 0.2, 0.3, 0.61], STAMP + 10 * MS, 10 * MS)
    assert moved.jumped == ()  # 0.21 rad, of which 0.02 by motion
    jumped = feedback.update(NAMES, [0.1, 0.5, 0.3, 0.61], STAMP + 20 * MS, 20 * MS)
    assert jumped.jumped == ("l2",)
    late = feedback.update(NAMES, [0.1, 1.0, 0.3, 0.61], STAMP + 220 * MS, 220 * MS)
    assert late.jumped == ()  # 0.5 rad in 0.2 s at up to 2 rad/s


def test_positions_are_converted_once_for_everyone():
    feedback = Feedback(NAMES, 200 * MS, convert=lambda raw: raw * 2.0)
    feedback.update(NAMES, [1.0, 2.0, 3.0, 4.0], STAMP, 0)
    assert feedback.position.tolist() == [2.0, 4.0, 6.0, 8.0]


# Teleop


def test_teleop_takes_over_gently_and_follows_smoothly():
    source = TeleopSource(LIMITS, 500 * MS, SECOND, 0.5)
    command = np.array([0.0, 0.5, 0.0, 0.0])
    for tick in range(0, 2001, 10):
        if tick % 30 == 0:
            source.update(["l1"], [1.0 + tick / 1000], command, tick * MS)
        if tick == 0:
            assert source.target(0).tolist() == command.tolist()
        if tick == 500:
            middle = source.target(tick * MS)
    assert 0.4 < middle[0] < 1.0
    # one interval behind the operator, and joints that are not named stay
    assert source.target(2000 * MS)[0] == pytest.approx(2.97, abs=0.011)
    assert source.target(2000 * MS)[1:].tolist() == [0.5, 0.0, 0.0]


def test_teleop_moves_between_its_targets_without_steps():
    source = TeleopSource(LIMITS, 500 * MS, 1, 0.5)
    command, course = np.zeros(4), []
    for tick in range(0, 1000, 5):
        if tick % 35 == 0:
            source.update(["l1"], [tick / 1000], command, tick * MS)
        course.append(source.target(tick * MS)[0])
    assert np.diff(course[60:]).max() < 0.0071  # a step would be 0.035


def test_teleop_that_falls_silent_is_let_go():
    source = TeleopSource(LIMITS, 500 * MS, SECOND, 0.5)
    assert not source.engaged
    source.update(NAMES, [0.0] * 4, np.zeros(4), 0)
    assert source.engaged
    assert not source.silent(500 * MS)
    assert source.silent(501 * MS)
    source.let_go()
    assert not source.engaged


@pytest.mark.parametrize(
    ("names", "positions", "words"),
    [
        (("l1", "elbow"), (0.0, 0.0), "unknown joints elbow; the rig has: l1"),
        (("l1",), (), "0 positions for 1 joints"),
        ((), (), "0 positions for 0 joints"),
        (("l1", "l1"), (0.0, 1.0), "more than once"),
        (("l1", "l2"), (0.0, float("nan")), "l2 not finite"),
        (("l1", "r2", "r1"), (0.0, 3.6, -1e300), "r2 at 3.6, r1 at -1e+300 far outside the limits"),
    ],
)
def test_bad_teleop_targets_are_named(names, positions, words):
    assert words in TeleopSource(LIMITS, 1, 1, 0.5).fault(names, positions)


def test_a_teleop_target_a_little_outside_the_limits_is_none_to_refuse():
    assert TeleopSource(LIMITS, 1, 1, 0.5).fault(["r1", "l2"], [3.49, -3.49]) == ""


# The rig


def test_the_rig_has_the_limits_of_its_arms_in_their_order():
    rig = Rig(velocity=0.7, lead=0.1)
    assert rig.names == yam.JOINT_NAMES
    assert rig.limits.lower.tolist() == yam.LOWER.tolist()
    assert rig.limits.velocity[[0, 6]].tolist() == [0.7, 1.0]
    assert rig.limits.lead[[0, 6]].tolist() == [0.1, 1.0]
    right = Rig(arms=("right",))
    assert right.names == yam.JOINT_NAMES[7:]
    assert right.places("right") == list(range(7))
    assert right.home_pose.tolist() == yam.HOME.tolist()
    assert np.flatnonzero(rig.grippers).tolist() == [6, 13]


def test_grippers_are_metres_at_the_driver_and_0_to_1_inside():
    rig = Rig(stroke=0.05)
    raw = np.linspace(-1.0, 1.0, 14)
    raw[[6, 13]] = [0.0125, 0.06]
    inside = rig.from_driver(raw)
    assert inside[[6, 13]] == pytest.approx([0.25, 1.0])
    assert rig.to_driver(inside)[[6, 13]] == pytest.approx([0.0125, 0.05])
    assert rig.to_driver(inside)[:6].tolist() == raw[:6].tolist()
    downwards = Rig(stroke=-0.0475)  # closed at 0, open at -0.0475
    raw[[6, 13]] = [-0.0475, 0.001]
    assert downwards.from_driver(raw)[[6, 13]] == pytest.approx([1.0, 0.0])
    assert downwards.to_driver(downwards.from_driver(raw))[[6, 13]] == pytest.approx([-0.0475, 0.0])
    normalised = Rig(command_units="normalised", state_units="normalised")
    raw[[6, 13]] = [0.25, 1.5]
    assert normalised.from_driver(raw)[[6, 13]].tolist() == [0.25, 1.0]
    assert normalised.to_driver(raw)[6] == 0.25


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"arms": ("left", "left")}, "each once"),
        ({"arms": ()}, "allowed: left, right"),
        ({"arms": ("middle",)}, "no arm 'middle'"),
        ({"home": (0.0,) * 6}, "7 numbers"),
        ({"home": (0.0,) * 14}, "7 numbers"),
        ({"home": (0.0, 0.0, float("nan"), 0.0, 0.0, 0.0, 1.0)}, "left_joint3 is nan; allowed: 0 to 3.14159"),
        ({"home": (0.0, -0.1, 0.0, 0.0, 0.0, 0.0, 1.0)}, "left_joint2 is -0.1; allowed: 0 to 3.66519"),
        ({"home": (0.0,) * 6 + (1.5,), "arms": ("right",)}, "right_joint7 is 1.5; allowed: 0 to 1"),
        ({"home": (float("inf"),) + (0.0,) * 6}, "left_joint1 is inf; allowed: -2.61799 to"),
        ({"stroke": 0.0}, "must not be 0"),
        ({"state_units": "inches"}, "allowed: metres, normalised"),
        ({"driver_names": ("a", "b")}, "14 different names"),
    ],
)
def test_a_rig_that_does_not_exist_is_named(change, words):
    with pytest.raises(ValueError, match=words):
        Rig(**change).limits  # noqa: B018
