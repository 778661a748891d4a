"""How chunks are judged, played and handed over."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from vag_policy.execution.admission import Admission, AdmissionConfig, Refusal, far_joints
from vag_policy.execution.chunk_queue import Chunk, ChunkQueue
from vag_policy.execution.feedback import Feedback
from vag_policy.execution.joint_map import JointMap
from vag_policy.execution.limits import JointLimits
from vag_policy.execution.seam import Move, Seam, move_duration_ns, smooth
from vag_policy.execution.teleop_source import TeleopSource
from vag_policy.policy import Plan

PERIOD = 100_000_000
SECOND = 1_000_000_000
NAMES = ("a", "b")
LIMITS = JointLimits(NAMES, [-2.0, 0.0], [2.0, 1.0], 1.0, 10.0, 0.15)


def chunk(values, execute=None, period=PERIOD) -> Chunk:
    actions = np.stack([np.array(values, float), np.zeros(len(values))], axis=1)
    return Chunk(actions, period, execute or len(values))


def plan(**changes) -> Plan:
    fields = {
        "observation_stamp_ns": 100 * SECOND,
        "episode": 7,
        "replan": 0,
        "instruction": "",
        "actions": np.zeros((4, 2)),
        "names": NAMES,
        "period_ns": PERIOD,
        "execute": 2,
    }
    return Plan(**(fields | changes))


# Playing


def test_a_chunk_is_interpolated_linearly_and_its_last_executed_action_held_for_a_period():
    queue = ChunkQueue()
    queue.start(chunk([0.0, 1.0, 3.0, 9.0], execute=3), 0.0, 0)
    at = {0: 0.0, 50: 0.5, 100: 1.0, 150: 2.0, 200: 3.0, 250: 3.0, 299: 3.0}
    assert {ms: queue.target(ms * 1_000_000)[0] for ms in at} == pytest.approx(at)
    assert [queue.depth(ms * 1_000_000) for ms in (0, 99, 100, 299, 300)] == [3, 3, 2, 1, 0]
    assert not queue.exhausted(299_999_999)
    assert queue.exhausted(300_000_000)


def test_async_runs_on_into_its_grace_and_no_further():
    queue = ChunkQueue(grace_ns=2 * PERIOD)
    queue.start(chunk(range(10), execute=3), 0.0, 0)
    assert queue.target(4 * PERIOD)[0] == pytest.approx(4.0)
    assert queue.target(int(4.9 * PERIOD))[0] == pytest.approx(4.0)  # 3 + 2 actions: the last of them is 4
    assert not queue.exhausted(5 * PERIOD - 1)
    assert queue.exhausted(5 * PERIOD)


def test_field_case_12_a_late_chunk_drops_the_smaller_of_delay_and_consumed():
    queue, new = ChunkQueue(), chunk(range(100, 120), execute=10)
    queue.start(chunk(range(20), execute=10), 0.0, 0)
    # observed after two actions, arrives three actions later: delay 3, consumed 3
    assert queue.first_position(new, 2 * PERIOD, 5 * PERIOD) == pytest.approx(3.0)
    # the old chunk ended at action 10: observed at 8, arrives at 16: delay 8, consumed 2
    assert queue.first_position(new, 8 * PERIOD, 16 * PERIOD) == pytest.approx(2.0)
    # observed while the arms held: nothing was consumed, nothing is dropped
    assert queue.first_position(new, 12 * PERIOD, 38 * PERIOD) == 0.0


def test_field_case_12_what_was_consumed_counts_across_chunks():
    queue = ChunkQueue()
    queue.start(chunk(range(10), execute=5), 0.0, 0)
    queue.start(chunk(range(10), execute=5), 0.0, 3 * PERIOD)
    # two actions of the first and four of the second have been played since the observation
    assert queue.first_position(chunk(range(20)), 1 * PERIOD, 7 * PERIOD) == pytest.approx(6.0)


def test_field_case_12_a_chunk_that_runs_out_of_actions_is_padded_with_its_last():
    queue = ChunkQueue()
    queue.start(chunk([0.0, 1.0, 2.0, 3.0], execute=4), 2.5, 0)
    assert queue.target(0)[0] == pytest.approx(2.5)
    assert queue.depth(0) == 2
    assert queue.target(PERIOD)[0] == queue.target(3 * PERIOD)[0] == pytest.approx(3.0)
    assert queue.depth(2 * PERIOD) == 0  # padding is no action
    assert not queue.exhausted(3 * PERIOD)
    assert queue.exhausted(4 * PERIOD)


def test_field_case_15_late_actions_are_never_replayed():
    queue = ChunkQueue()
    queue.start(chunk(range(10), execute=4), 0.0, 0)
    queue.target(int(1.5 * PERIOD))
    # the process was paused for 26 s: the chunk is over, not resumed
    assert queue.exhausted(26 * SECOND)
    assert queue.target(26 * SECOND)[0] == pytest.approx(3.0)
    with pytest.raises(ValueError, match="cannot start at action 10"):
        queue.start(chunk(range(10)), 10.0, 26 * SECOND)


def test_flush_forgets_the_chunk_and_what_was_played():
    queue = ChunkQueue()
    queue.start(chunk(range(10)), 0.0, 0)
    queue.flush(3 * PERIOD)
    assert queue.empty
    assert queue.exhausted(3 * PERIOD)
    assert queue.depth(3 * PERIOD) == 0
    assert queue.first_position(chunk(range(10)), 0, 4 * PERIOD) == 0.0
    with pytest.raises(ValueError, match="no chunk"):
        queue.target(3 * PERIOD)


def test_a_negative_grace_is_refused():
    with pytest.raises(ValueError, match="grace"):
        ChunkQueue(-1)


# Fades


def test_a_seam_is_continuous_in_position_and_slope():
    def old(ns):
        return np.array([1.0 + 2.0 * ns / SECOND])

    def new(ns):
        return np.array([3.0 - 1.0 * ns / SECOND])

    seam = Seam.across(old, SECOND, SECOND // 5)
    step = SECOND // 1000
    course = np.array([seam.blend(new(t), t)[0] for t in range(SECOND, SECOND + SECOND // 5 + 2 * step, step)])
    assert course[0] == pytest.approx(old(SECOND)[0])
    slopes = np.diff(course) / 1e-3
    assert slopes[0] == pytest.approx(2.0, abs=0.1)
    assert slopes[-1] == pytest.approx(-1.0, abs=0.1)
    assert np.abs(np.diff(slopes)).max() < 1.0
    assert seam.over(SECOND + SECOND // 5)


def test_a_move_starts_and_ends_at_rest_below_the_limits():
    distance = np.array([1.0, -0.2])
    duration = move_duration_ns(distance, LIMITS, SECOND, share=0.8)
    move = Move(np.zeros(2), distance, 5 * SECOND, duration)
    times = np.linspace(5 * SECOND, 5 * SECOND + duration, 2000).astype(int)
    course = np.array([move.target(int(t)) for t in times])
    speed = np.diff(course, axis=0) / np.diff(times)[:, None] * SECOND
    assert course[0].tolist() == [0.0, 0.0]
    assert course[-1] == pytest.approx(distance)
    assert np.abs(speed).max() == pytest.approx(0.8, abs=1e-3)
    assert np.abs(speed[[0, -1]]).max() < 0.01
    assert np.abs(np.diff(speed, axis=0) / np.diff(times)[1:, None] * SECOND).max() < 8.1
    assert move.over(5 * SECOND + duration)
    assert move_duration_ns(np.array([0.01, 0.0]), LIMITS, SECOND) == SECOND
    assert move_duration_ns(np.zeros(2), LIMITS, 0) == 0
    assert Move(np.zeros(2), distance, 0, 0).target(0) == pytest.approx(distance)


def test_a_move_knows_when_it_is_near_its_goal():
    move = Move(np.zeros(2), np.array([0.5, 9.0]), 5 * SECOND, 2 * SECOND)
    first = np.array([True, False])
    near_ns = move.near_goal_ns(0.05, first)
    assert move.target(near_ns)[0] == pytest.approx(0.45, abs=1e-6)
    assert move.near_goal_ns(0.5, first) == 5 * SECOND  # from the start on
    assert move.near_goal_ns(0.0, first) == 7 * SECOND
    assert move.near_goal_ns(0.05, np.array([False, False])) == 5 * SECOND


def test_smooth_is_clipped():
    assert [smooth(x) for x in (-1.0, 0.0, 0.5, 1.0, 2.0)] == [0.0, 0.0, 0.5, 1.0, 1.0]


# Judging


def judge(given: Plan, age_ns: int = 0, admission: Admission | None = None, now_ns: int = 50 * SECOND):
    return (admission or Admission(LIMITS, AdmissionConfig())).judge(given, age_ns, now_ns)


def cause(given: Plan, *rest) -> str:
    refusal = judge(given, *rest)
    assert isinstance(refusal, Refusal)
    return refusal.cause


def test_actions_are_mapped_by_name():
    given = plan(names=("b", "a"), actions=np.array([[1.0, 2.0], [3.0, 4.0]]))
    admitted = judge(given)
    assert isinstance(admitted, Chunk)
    assert admitted.actions.tolist() == [[2.0, 1.0], [4.0, 3.0]]
    assert (admitted.period_ns, admitted.execute) == (PERIOD, 2)


def test_field_case_11_one_nan_or_infinity_refuses_the_whole_chunk():
    for value in (np.nan, np.inf, -np.inf):
        actions = np.zeros((4, 2))
        actions[3, 1] = value  # even one that would never be executed
        refusal = judge(plan(actions=actions))
        assert isinstance(refusal, Refusal)
        assert refusal.broken
        assert refusal.cause == "not_finite"
        assert f"action 3 of b is {value}" in refusal.text


def test_wrong_joint_names_are_named():
    refusal = judge(plan(names=("a", "wrist")))
    assert isinstance(refusal, Refusal)
    assert refusal.broken
    assert "unknown joints wrist; no actions for b; the rig has: a, b" in refusal.text
    missing = judge(plan(names=("a",), actions=np.zeros((2, 1))))
    assert isinstance(missing, Refusal)
    assert (missing.cause, missing.text[:18]) == ("missing_joint", "no actions for b; ")
    assert cause(plan(names=("a", "b", "b"), actions=np.zeros((2, 3)))) == "duplicate_joint"


def test_names_without_end_make_no_text_without_end():
    names = tuple(f"{'endless' * 1000}{number}" for number in range(1000))
    reasons = [
        judge(plan(names=names, actions=np.zeros((4, 1000)))).text,
        TeleopSource(LIMITS, SECOND, SECOND, 1.0).fault(names, np.zeros(1000)),
        Feedback(NAMES, SECOND).update(names * 2, [0.0] * 2000, SECOND, 0).fault,
    ]
    assert all(0 < len(reason) < 2000 for reason in reasons)
    assert "and 980 more" in reasons[0] and "and 980 more" in reasons[1]
    with pytest.raises(ValueError, match="and 980 more") as error:
        JointMap(NAMES).find(names * 2)
    assert len(str(error.value)) < 2000


def test_actions_far_beyond_the_limits_are_garbage():
    assert isinstance(judge(plan(actions=np.full((4, 2), 5.0))), Chunk)  # clamped later
    refusal = judge(plan(actions=np.full((4, 2), [1e6, 0.0])))
    assert isinstance(refusal, Refusal)
    assert (refusal.cause, refusal.broken) == ("out_of_range", True)
    assert "of a" in refusal.text


def test_old_and_repeated_chunks_are_refused():
    admission = Admission(LIMITS, AdmissionConfig())
    admission.admit(plan(replan=3))
    later = 101 * SECOND
    assert cause(plan(replan=3, observation_stamp_ns=later), 0, admission) == "out_of_order"
    assert cause(plan(replan=4), 0, admission) == "out_of_order"  # made from the same observation
    assert cause(plan(episode=6, observation_stamp_ns=later), 0, admission) == "old_episode"
    assert isinstance(judge(plan(replan=4, observation_stamp_ns=later), 0, admission), Chunk)
    assert isinstance(judge(plan(episode=8), 0, admission), Chunk)


def test_an_ended_episode_stays_ended_until_the_next():
    admission = Admission(LIMITS, AdmissionConfig())
    admission.admit(plan())
    admission.end_episode()
    assert cause(plan(replan=1, observation_stamp_ns=101 * SECOND), 0, admission) == "ended_episode"
    assert isinstance(judge(plan(episode=8), 0, admission), Chunk)


def test_stale_and_early_observations_are_refused():
    assert cause(plan(), 3 * SECOND + 1) == "too_old"
    assert cause(plan(), -SECOND) == "from_the_future"
    assert isinstance(judge(plan(), -SECOND // 20), Chunk)  # clocks of two hosts differ a little
    admission = Admission(LIMITS, AdmissionConfig())
    admission.require_after(49 * SECOND)
    assert cause(plan(), 2 * SECOND, admission) == "outdated"
    assert isinstance(judge(plan(), SECOND, admission), Chunk)


def test_field_case_19_a_chunk_stamped_0_is_dropped():
    refusal = judge(plan(observation_stamp_ns=0))
    assert isinstance(refusal, Refusal)
    assert (refusal.cause, refusal.broken) == ("no_stamp", False)


def test_a_clock_that_went_back_makes_old_numbers_meaningless():
    admission = Admission(LIMITS, AdmissionConfig())
    admission.admit(plan(episode=9))
    admission.forget()
    assert isinstance(judge(plan(episode=1, observation_stamp_ns=5), 0, admission), Chunk)


def test_a_chunk_that_would_run_for_long_is_refused():
    assert isinstance(judge(plan(period_ns=5 * SECOND)), Chunk)
    assert cause(plan(period_ns=5 * SECOND + 1)) == "too_long"


def test_far_joints_are_named():
    limit = np.array([0.2, np.inf])
    assert far_joints(np.array([0.21, 1.0]), np.zeros(2), limit, LIMITS) == ["a"]
    assert far_joints(np.array([0.2, 1.0]), np.zeros(2), limit, LIMITS) == []


def test_bad_admission_settings_are_named():
    with pytest.raises(ValueError, match="max_age_ns"):
        replace(AdmissionConfig(), max_age_ns=0)


def test_joint_maps_skip_others_and_refuse_doubles():
    joints = JointMap(("a", "b", "c"))
    source, joint = joints.find(["x", "c", "a"])
    assert (source.tolist(), joint.tolist()) == ([1, 2], [2, 0])
    assert joints.find(["x", "c", "a"])[0] is source  # looked up once
    assert joints.unknown(["x", "c"]) == ["x"]
    assert joints.missing(["x", "c"]) == ["a", "b"]
    with pytest.raises(ValueError, match="joint a is named more than once"):
        joints.find(["a", "a"])
