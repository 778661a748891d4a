"""No target, timing or measured pose gets a command past its limits."""

from __future__ import annotations

from dataclasses import replace
from itertools import cycle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from vag_policy.execution.limits import JointLimits, braking_speed, breaches, finite, within_lead, within_position
from vag_policy.execution.motion import Motion, advance, at_rest, brake

MS = 1_000_000
TICK = 10 * MS
LONGEST = 40 * MS
LIMITS = JointLimits(
    names=("shoulder", "elbow", "gripper"),
    lower=[0.0, -1.7, 0.0],
    upper=[3.7, 1.6, 1.0],
    velocity=[1.0, 2.5, 1.0],
    acceleration=[10.0, 30.0, 5.0],
    lead=[0.15, 0.15, 1.0],
)
MIDDLE = (LIMITS.lower + LIMITS.upper) / 2

anything = st.floats(width=64)
sane = st.floats(-5.0, 5.0)
durations = st.one_of(
    st.sampled_from([0, 1, -1, TICK, LONGEST, 10**18, -(10**18)]),
    st.integers(1, 60 * MS),
    st.integers(-(10**10), 10**10),
)


def run(motion: Motion, steps):
    """Yield (before, after, dt_ns, step) over steps of (target or None to hold, measured, dt_ns)."""
    for target, measured, dt_ns in steps:
        if target is None:
            step = brake(motion, dt_ns, LIMITS, LONGEST)
        else:
            step = advance(motion, target, measured, dt_ns, LIMITS, LONGEST)
        yield motion, step.motion, dt_ns, step
        motion = step.motion


@st.composite
def histories(draw, outside=0.0):
    count = draw(st.integers(1, 12))
    fraction = draw(arrays(np.float64, 3, elements=st.floats(0.0, 1.0)))
    reach = draw(arrays(np.float64, 3, elements=st.floats(-outside, outside)))
    start = LIMITS.lower + fraction * (LIMITS.upper - LIMITS.lower)
    start = np.where(reach < 0, LIMITS.lower + reach, np.where(reach > 0, LIMITS.upper + reach, start))
    targets = draw(arrays(np.float64, (count, 3), elements=anything))
    measured = draw(arrays(np.float64, (count, 3), elements=sane))
    held = draw(arrays(np.bool_, count))
    times = draw(st.lists(durations, min_size=count, max_size=count))
    steps = [(None if hold else t, m, dt) for t, m, hold, dt in zip(targets, measured, held, times, strict=True)]
    return start, steps


def check_history(start, steps):
    velocity = np.zeros(3)
    for before, after, dt_ns, step in run(at_rest(start), steps):
        dt = min(max(dt_ns, 0), LONGEST) / 1e9
        assert np.isfinite(after.position).all()
        # inside the limits, or on the way in and never farther out
        assert (after.position >= np.minimum(LIMITS.lower, before.position)).all()
        assert (after.position <= np.maximum(LIMITS.upper, before.position)).all()
        moved = after.position - before.position
        assert (np.abs(moved) <= LIMITS.velocity * dt + 1e-12).all()
        if dt:
            # velocities come from the positions alone: what an arm would see
            reached = moved / dt
            allowed = LIMITS.acceleration * max(dt_ns, 0) / 1e9
            assert (np.abs(reached - velocity) <= allowed + 1e-6).all()
            velocity = reached
        else:
            assert (moved == 0).all()
        assert breaches(before.position, after.position, step.dt, LIMITS) == []


@settings(max_examples=1200, deadline=None)
@given(histories())
def test_any_target_and_timing_from_inside_the_limits(history):
    check_history(*history)


@settings(max_examples=800, deadline=None)
@given(histories(outside=0.5))
def test_from_outside_the_limits_it_moves_inward_only(history):
    check_history(*history)


@settings(max_examples=300, deadline=None)
@given(
    arrays(np.float64, 3, elements=st.floats(-1.0, 1.0)),
    arrays(np.float64, (15, 3), elements=anything),
    st.lists(durations, min_size=15, max_size=15),
)
def test_the_command_keeps_within_lead_of_an_arm_that_stands(offset, targets, times):
    measured = MIDDLE
    start = measured + offset * LIMITS.lead * [1.0, 1.0, 0.4]
    for _, after, _, _ in run(at_rest(start), [(t, measured, dt) for t, dt in zip(targets, times, strict=True)]):
        assert (np.abs(after.position - measured) <= LIMITS.lead + 1e-9).all()


@settings(max_examples=60, deadline=None)
@given(
    arrays(np.float64, (2, 3), elements=st.floats(0.0, 1.0)),
    st.lists(st.integers(5 * MS, 35 * MS), min_size=5, max_size=20),
)
def test_a_standing_target_is_reached_without_overshoot(fractions, times):
    start, target = LIMITS.lower + fractions * (LIMITS.upper - LIMITS.lower)
    unled = replace(LIMITS, lead=10.0)
    motion, elapsed = Motion(start, np.zeros(3), target), 0.0
    bound = np.max(np.abs(target - start) / LIMITS.velocity + 2 * LIMITS.velocity / LIMITS.acceleration) + 0.3
    for dt_ns in cycle(times):
        motion = advance(motion, target, start, dt_ns, unled, LONGEST).motion
        elapsed += dt_ns / 1e9
        assert ((motion.position - target) * (start - target) >= -1e-9).all()
        if elapsed > bound:
            break
    assert np.abs(motion.position - target).max() < 1e-3


def test_a_target_that_moves_within_the_limits_is_followed_without_lag():
    motion, position = at_rest(MIDDLE), MIDDLE.copy()
    errors = []
    for tick in range(150):
        target = position + LIMITS.velocity * 0.5 * min(tick, 60) * 0.01
        motion = advance(motion, target, motion.position, TICK, LIMITS, LONGEST).motion
        errors.append(np.abs(motion.position - target).max())
    assert max(errors[40:61]) < 1e-6  # on the slope
    assert max(errors[100:]) < 1e-6  # and after it stopped


def test_a_late_tick_does_not_make_up_for_the_time():
    start = MIDDLE
    step = advance(at_rest(start), LIMITS.upper, start, 5_000 * MS, LIMITS, LONGEST)
    assert (np.abs(step.motion.position - start) <= LIMITS.velocity * 0.04 + 1e-12).all()
    fast = Motion(start, LIMITS.velocity * 0.9, start)
    stood = advance(fast, start, start, 5_000 * MS, LIMITS, LONGEST)
    assert np.abs(stood.motion.velocity).max() < 0.2  # an arm that got no command for five seconds stands


def test_brake_slows_within_the_acceleration_and_then_stands():
    motion = Motion(MIDDLE, np.array([1.0, -2.5, 0.0]), MIDDLE)
    positions = []
    for _ in range(20):
        motion = brake(motion, TICK, LIMITS, LONGEST).motion
        positions.append(motion.position)
    assert motion.at_rest
    assert positions[-1] == pytest.approx(MIDDLE + [0.045, -(2.5**2) / 60 + 0.0125, 0.0], abs=2e-3)
    assert (positions[-1] == positions[-2]).all()


def test_each_limit_names_the_joints_it_changed():
    def names(kind, step):
        return [n for n, m in zip(LIMITS.names, step.clamped[kind], strict=True) if m]

    at = at_rest(MIDDLE)
    far = np.array([9.0, np.nan, 0.5])
    step = advance(at, far, MIDDLE, TICK, LIMITS, LONGEST)
    assert names("finite", step) == ["elbow"]
    assert names("position", step) == ["shoulder"]
    assert names("lead", step) == ["shoulder"]
    assert names("acceleration", step) == ["shoulder"]
    open_gripper = advance(at, MIDDLE + [0.0, 0.0, 0.5], MIDDLE, TICK, LIMITS, LONGEST)
    assert names("velocity", open_gripper) == ["gripper"]
    assert names("lead", open_gripper) == []


def test_a_gripper_takes_at_least_a_second_for_its_full_stroke():
    motion, seconds = at_rest(np.array([1.0, 0.0, 0.0])), 0.0
    while motion.position[2] < 1.0 - 1e-6:
        motion = advance(motion, np.array([1.0, 0.0, 1.0]), motion.position, TICK, LIMITS, LONGEST).motion
        seconds += 0.01
        assert seconds < 3.0
    assert seconds >= 1.0


def test_braking_speed_stops_exactly_within_the_distance():
    distance, acceleration, dt = np.array([0.3]), np.array([4.0]), 0.02
    speed = braking_speed(distance, acceleration, dt)
    assert speed * dt + speed**2 / (2 * acceleration) == pytest.approx(distance)


def test_small_functions():
    values, bad = finite(np.array([1.0, np.inf, np.nan]), np.array([7.0, 8.0, 9.0]))
    assert values.tolist() == [1.0, 8.0, 9.0]
    assert bad.tolist() == [False, True, True]
    values, changed = within_position(np.array([-1.0, 0.0, 2.0]), LIMITS)
    assert values.tolist() == [0.0, 0.0, 1.0]
    assert changed.tolist() == [True, False, True]
    values, changed = within_lead(np.array([1.0, 0.1, 1.0]), np.array([0.5, 0.0, 0.2]), LIMITS)
    assert values == pytest.approx([0.65, 0.1, 1.0])
    assert changed.tolist() == [True, False, False]
    # a folded arm measures a little below 0: its lead never leads out of the limits
    assert within_lead(np.array([0.0, 0.0, 0.0]), np.array([-0.4, 0.0, 0.0]), LIMITS)[0][0] == 0.0


def test_the_last_check_finds_what_must_not_be_sent():
    before = np.array([0.0, 0.0, 0.5])
    assert breaches(before, before, 0.01, LIMITS) == []
    assert breaches(before, before + [-1e-3, 0.0, np.nan], 0.01, LIMITS) == ["shoulder", "gripper"]
    assert breaches(before, before + [0.0, 0.03, 0.0], 0.01, LIMITS) == ["elbow"]
    outside = np.array([-0.1, 0.0, 1.1])
    assert breaches(outside, outside + [0.005, 0.0, -0.005], 0.01, LIMITS) == []
    assert breaches(outside, outside + [-0.005, 0.0, 0.005], 0.01, LIMITS) == ["shoulder", "gripper"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"lower": [0.0, 2.0, 0.0]}, "lower limit of elbow is not below"),
        ({"velocity": [1.0, 0.0, 1.0]}, "velocity limit of elbow"),
        ({"acceleration": [1.0, 1.0, np.nan]}, "acceleration limit of gripper"),
        ({"names": ("a", "a", "b")}, "different joint names"),
    ],
)
def test_bad_limits_are_named(change, words):
    fields = ("names", "lower", "upper", "velocity", "acceleration", "lead")
    given_fields = {field: getattr(LIMITS, field) for field in fields} | change
    with pytest.raises(ValueError, match=words):
        JointLimits(**given_fields)


def test_a_motion_cannot_start_at_nan():
    with pytest.raises(ValueError, match="cannot start"):
        at_rest(np.array([0.0, np.nan]))
