"""Who moves the arms and when they are held: the arbiter against a simulated pair of arms and a clock made by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vag_policy.execution.admission import AdmissionConfig
from vag_policy.execution.arbiter import Arbiter
from vag_policy.execution.feedback import Feedback
from vag_policy.execution.policy_source import PolicyConfig
from vag_policy.execution.report import Pace, ReportWriter
from vag_policy.execution.rig import Rig
from vag_policy.execution.settings import ArbiterConfig
from vag_policy.policy import Plan

MS = 1_000_000
SECOND = 1_000_000_000
TICK = 10 * MS
PERIOD = SECOND // 30
STAMP_OFFSET = 1_700_000_000 * SECOND  # the ROS clock, ahead of the steady one
RIG = Rig(velocity=1.0, acceleration=10.0)
LIMITS = RIG.limits
HOME = RIG.home_pose
REST = np.where(RIG.grippers, 1.0, 0.0)
BOW = HOME + np.where(RIG.grippers, -0.5, 0.1)  # all joints a little off home


class Bench:
    """Arms that follow their commands with a lag, ticked at 100 Hz, and a record of every command."""

    def __init__(self, start=HOME, config: ArbiterConfig | None = None, arm=True, **policy) -> None:
        config = config or ArbiterConfig()
        config = replace(config, policy=replace(config.policy, **policy))
        feedback = Feedback(RIG.names, 200 * MS, config.displacement, 2.0 * LIMITS.velocity)
        self.arbiter = Arbiter(LIMITS, feedback, config, HOME, ~RIG.grippers)
        self.now_ns = 10 * SECOND
        self.arms = np.array(start, float)
        self.stiff = 0.2  # how much of the way to the command an arm makes in a tick
        self.talking = list(RIG.names)
        self.commands: list[np.ndarray | None] = []
        self.modes: list[str] = []
        self.replan = 0
        self.tick()
        if arm:
            assert self.arbiter.arm(self.now_ns) == ""
            self.tick(5)

    @property
    def command(self) -> np.ndarray:
        assert self.commands[-1] is not None
        return self.commands[-1]

    def tick(self, ticks=1, dt_ns=TICK) -> Bench:
        for _ in range(ticks):
            self.now_ns += dt_ns
            if self.talking:
                self.feed()
            command = self.arbiter.tick(self.now_ns)
            self.commands.append(None if command is None else command.copy())
            self.modes.append(self.arbiter.mode)
            if command is not None:
                self.arms = self.arms + self.stiff * (command - self.arms)
        return self

    def seconds(self, seconds) -> Bench:
        return self.tick(round(seconds * 100))

    def feed(self, stamp_ns=None, arms=None) -> str:
        pose = dict(zip(RIG.names, self.arms if arms is None else arms, strict=True))
        stamp_ns = stamp_ns or STAMP_OFFSET + self.now_ns
        return self.arbiter.joints(self.talking, [pose[n] for n in self.talking], stamp_ns, self.now_ns)

    def send(self, target, age_ns=20 * MS, horizon=50, execute=30, episode=1, **changes):
        """A chunk that goes on a straight line from the arms' pose to ``target``, or one given as (A, N)."""
        target = np.asarray(target, float)
        line = np.linspace(self.arms, target, horizon) if target.ndim == 1 else target
        fields = {
            "observation_stamp_ns": STAMP_OFFSET + self.now_ns - age_ns,
            "episode": episode,
            "replan": self.replan,
            "instruction": "",
            "actions": line,
            "names": RIG.names,
            "period_ns": PERIOD,
            "execute": execute,
        }
        self.replan += 1
        return self.arbiter.chunk(Plan(**(fields | changes)), age_ns, self.now_ns)

    def speeds(self) -> np.ndarray:
        """(T, N) per second, over all ticks with a command before and after."""
        pairs = zip(self.commands[:-1], self.commands[1:], strict=True)
        return np.array([(b - a) * 100 for a, b in pairs if a is not None and b is not None]).reshape(-1, 14)


def check_smooth(bench: Bench) -> None:
    """Within all limits as long as commands are sent; after a silence they may begin anew, at the measured pose."""
    assert (np.abs(bench.speeds()) <= LIMITS.velocity + 1e-6).all()
    nothing = np.full(14, np.nan)
    speeds = np.diff([nothing if c is None else c for c in bench.commands], axis=0) * 100
    changes = np.abs(np.diff(speeds, axis=0))
    assert (np.isnan(changes) | (changes <= LIMITS.acceleration * 0.01 + 1e-6)).all()
    sent = np.array([c for c in bench.commands if c is not None]).reshape(-1, 14)
    assert (sent >= LIMITS.lower - 1e-9).all()
    assert (sent <= LIMITS.upper + 1e-9).all()
    assert bench.arbiter.tally.violations == 0


# Arming


def test_nothing_is_sent_before_every_joint_was_heard():
    bench = Bench(arm=False)
    bench.arbiter.feedback = Feedback(RIG.names, 200 * MS)
    bench.talking = list(RIG.names[:13])
    bench.seconds(0.1)
    assert bench.arbiter.arm(bench.now_ns) == "no joint_states of right_joint7"
    assert bench.commands == [None] * 11
    bench.talking = list(RIG.names)
    bench.tick()
    assert bench.arbiter.arm(bench.now_ns) == ""
    bench.tick()
    assert bench.command.tolist() == HOME.tolist()


def test_disarmed_arms_get_nothing_and_chunks_are_refused():
    bench = Bench(arm=False)
    refusal = bench.send(BOW)
    assert refusal.cause == "disarmed"
    bench.seconds(0.5)
    assert set(bench.commands) == {None}
    assert bench.arbiter.mode == "disarmed"


def test_arms_that_measure_far_outside_their_limits_are_not_armed():
    start = HOME.copy()
    start[1] = -0.6
    bench = Bench(start, arm=False)
    assert "left_joint2 measured outside the limits at [-0.6]" in bench.arbiter.arm(bench.now_ns)


def test_folded_arms_that_measure_a_little_below_0_move_inward_only():
    start = REST - np.where(RIG.grippers, 0.0, 0.02)
    bench = Bench(start)
    bench.tick(5)
    assert bench.command.tolist() == start.tolist()  # a hold moves nothing
    bench.send(np.tile(REST, (50, 1)))
    bench.seconds(2.0)
    joint2 = np.array([c[1] for c in bench.commands if c is not None])
    assert (np.diff(joint2) >= -1e-15).all()
    assert joint2[-1] == pytest.approx(0.0)


def test_arming_again_goes_on_from_the_last_command_unless_the_arms_were_moved():
    bench = Bench()
    bench.send(BOW)
    bench.seconds(3.0)
    held = bench.command
    bench.arms = held - 0.05  # gravity
    bench.arbiter.disarm(bench.now_ns)
    bench.seconds(0.5)
    assert bench.commands[-1] is None
    bench.arbiter.arm(bench.now_ns)
    assert bench.tick().command.tolist() == held.tolist()
    bench.arbiter.disarm(bench.now_ns)
    bench.tick(30)
    bench.arms = bench.arms + np.where(np.arange(14) == 0, 0.5, 0.0)  # somebody moved the first joint
    moved = bench.arms[0]
    bench.tick(2)
    bench.arbiter.arm(bench.now_ns)
    command = bench.tick().command
    assert command[0] == pytest.approx(moved)
    assert command[1:].tolist() == held[1:].tolist()


def test_a_gripper_that_is_armed_again_stays_where_it_is():
    bench = Bench()
    bench.send(np.where(RIG.grippers, 0.0, HOME))
    bench.stiff = np.where(RIG.grippers, 0.0, 0.2)  # something is between its fingers
    bench.seconds(3.0)
    assert bench.command[RIG.grippers] == pytest.approx([0.4, 0.4], abs=0.02)  # the last of the chunk's actions
    bench.arbiter.disarm(bench.now_ns)
    bench.seconds(0.5)
    bench.arbiter.arm(bench.now_ns)
    bench.seconds(1.0)
    assert bench.command[RIG.grippers].tolist() == HOME[RIG.grippers].tolist()


# Chunks


def test_a_chunk_is_ramped_to_executed_and_held_at_its_end():
    bench = Bench()
    line = np.linspace(HOME, BOW, 50)
    assert bench.send(line) is None
    bench.seconds(4.0)
    changes = [mode for mode, before in zip(bench.modes[1:], bench.modes, strict=False) if mode != before]
    assert changes == ["hold", "ramp", "policy", "hold"]
    assert 0.99 <= bench.modes.count("ramp") / 100 <= 1.02
    assert bench.modes.count("policy") / 100 == pytest.approx(1.0, abs=0.011)
    assert bench.command == pytest.approx(line[29], abs=2e-3)
    assert bench.arbiter.reason == "no new chunk for over 1 s"
    check_smooth(bench)


def test_field_case_13_a_far_first_action_is_reached_by_a_ramp():
    bench = Bench(REST)
    bench.send(np.tile(BOW, (50, 1)))
    bench.seconds(1.0)
    assert bench.arbiter.mode == "ramp"
    assert np.abs(bench.speeds()).max() < 0.81
    bench.seconds(3.0)
    assert bench.command == pytest.approx(BOW, abs=0.02)
    check_smooth(bench)


def test_field_case_13_a_far_first_action_is_refused_where_asked():
    bench = Bench(start_check="refuse")
    target = HOME.copy()
    target[9] += 0.3
    refusal = bench.send(np.tile(target, (50, 1)))
    assert refusal.cause == "far_start"
    assert "right_joint3" in refusal.text
    bench.seconds(1.0)
    assert bench.command.tolist() == HOME.tolist()
    assert bench.arbiter.mode == "hold"
    assert bench.arbiter.fault
    assert "right_joint3" in bench.arbiter.reason
    target[9] = HOME[9] + 0.19
    assert bench.send(np.tile(target, (50, 1))) is None


def test_field_case_13_the_start_check_is_armed_anew_by_each_episode():
    bench = Bench(start_check="refuse")
    bench.send(HOME, episode=1)
    bench.seconds(1.5)
    far = np.tile(HOME + np.where(RIG.grippers, 0.0, 0.3), (50, 1))
    assert bench.send(far, episode=1) is None  # within an episode the limits are enough
    assert bench.send(far, episode=2).cause == "far_start"
    bench.seconds(0.5)
    check_smooth(bench)


def test_field_case_11_a_nan_chunk_stops_the_arms_at_once():
    bench = Bench(mode="async")
    bench.send(BOW)
    bench.seconds(1.5)
    assert bench.arbiter.mode == "policy"
    actions = np.tile(BOW, (50, 1))
    actions[40, 3] = np.nan
    assert bench.send(actions).cause == "not_finite"
    bench.tick()
    assert bench.arbiter.mode == "hold"
    assert "action 40 of left_joint4 is nan" in bench.arbiter.reason
    level, text, _ = ReportWriter(bench.arbiter).execution(bench.now_ns)
    assert level == "error"
    assert "left_joint4" in text
    bench.seconds(0.3)
    assert not bench.arbiter.moving
    check_smooth(bench)
    # the next good chunk of the episode is a new start
    bench.send(BOW, age_ns=5 * MS)
    assert bench.tick().arbiter.mode == "ramp"


def test_field_case_12_an_async_chunk_drops_what_the_arms_have_done():
    bench = Bench(mode="async")
    line = np.linspace(HOME, HOME + np.where(RIG.grippers, 0.0, 0.4), 100)
    bench.send(line[:50])
    bench.seconds(1.5)
    observed = 15  # the chunk began half a second ago
    bench.send(line[observed : observed + 50], age_ns=0)
    bench.seconds(0.5)
    # observed now, but it arrives ten actions later: the same line, so nothing may be seen of the seam
    bench.send(line[observed : observed + 50], age_ns=SECOND // 2)
    before = len(bench.commands)
    bench.seconds(0.4)
    speed = bench.speeds()[before - 20 :, 0]
    assert np.abs(speed - speed.mean()).max() < 0.02
    check_smooth(bench)


def test_an_async_seam_between_two_opinions_is_smooth():
    bench = Bench(mode="async")
    bench.send(np.linspace(HOME, HOME + np.where(RIG.grippers, 0.0, 0.4), 50))
    bench.seconds(1.8)
    bench.send(np.linspace(bench.arms, bench.arms - np.where(RIG.grippers, 0.0, 0.4), 50), age_ns=100 * MS)
    bench.seconds(1.0)
    assert bench.speeds()[-20, 0] < -0.2
    check_smooth(bench)


def test_field_case_14_every_chunk_counts_and_the_queue_can_be_watched():
    bench = Bench(mode="async")
    bench.send(HOME)
    bench.seconds(1.01)
    depths = []
    for _ in range(20):  # the same observation again and again, as a robot that stands still sees it
        assert bench.send(HOME, age_ns=10 * MS) is None
        bench.seconds(0.1)
        depths.append(bench.arbiter.policy.depth(bench.now_ns))
    assert bench.arbiter.tally.chunks == 21
    assert min(depths) > 20


def test_field_case_15_a_slow_policy_is_held_for_and_counted():
    bench = Bench()
    bench.send(BOW)
    bench.seconds(2.0)
    assert bench.modes[-5] == "policy"
    bench.seconds(0.5)
    assert bench.arbiter.tally.misses == pytest.approx(50, abs=2)
    bench.seconds(1.5)
    assert (bench.arbiter.mode, bench.arbiter.reason) == ("hold", "no new chunk for over 1 s")
    assert bench.arbiter.tally.misses == pytest.approx(100, abs=2)  # from then on it counts as gone, not as late
    held = bench.command
    # 2 s of inference; the arms held, so all of the chunk is still to be done
    assert bench.send(np.tile(held, (50, 1)), age_ns=2 * SECOND) is None
    assert bench.arbiter.policy.depth(bench.now_ns) == 30
    bench.seconds(0.5)
    assert bench.command == pytest.approx(held)
    # 26 s of inference are more than an observation may be old
    assert bench.send(BOW, age_ns=26 * SECOND, episode=2).cause == "too_old"


def test_field_case_15_a_policy_slower_than_its_chunk_in_async():
    bench = Bench(mode="async", grace_ns=SECOND // 2)
    bench.send(HOME, horizon=40, execute=30)
    bench.seconds(2.0)
    age_ns = SECOND
    bench.seconds(1.0)
    # 1 s of play since the observation drops 30 of 40 actions; the other ten are executed, then it is padded
    bench.send(HOME, age_ns=age_ns, horizon=40)
    assert bench.arbiter.policy.depth(bench.now_ns) == pytest.approx(25, abs=1)
    bench.seconds(0.8)
    assert bench.send(HOME, age_ns=700 * MS, horizon=20, execute=20).cause == "late"
    assert bench.arbiter.tally.refused["late"] == 1


def test_field_case_18_a_stopped_policy_leaves_no_chunk_behind():
    bench = Bench()
    bench.send(BOW)
    bench.seconds(1.3)
    bench.arbiter.flush("the policy was stopped", bench.now_ns)
    bench.tick()
    assert (bench.arbiter.mode, bench.arbiter.reason) == ("hold", "the policy was stopped")
    bench.seconds(0.2)
    held = bench.command
    bench.seconds(1.0)
    assert bench.command.tolist() == held.tolist()
    assert bench.arbiter.tally.misses == 0
    # one that was made before it stopped is not executed either
    assert bench.send(BOW, age_ns=2 * SECOND).cause == "outdated"
    check_smooth(bench)


def test_a_chunk_that_saw_the_arms_far_down_the_ramp_is_refused():
    bench = Bench(REST, mode="async")
    bench.send(np.tile(BOW, (50, 1)))
    bench.seconds(0.5)
    assert bench.send(BOW, age_ns=100 * MS).cause == "outdated"
    bench.seconds(3.0)
    assert bench.send(BOW, age_ns=100 * MS) is None


def test_a_chunk_that_saw_the_arms_near_the_end_of_the_ramp_is_as_good_as_any():
    bench = Bench()
    bench.send(np.tile(HOME + np.where(RIG.grippers, -0.3, 0.15), (50, 1)))
    bench.seconds(1.1)
    # as a blocking policy does it: observed a second after the chunk went out, when it should have been executed
    assert bench.send(BOW, age_ns=300 * MS) is None
    check_smooth(bench)


@pytest.mark.parametrize("beside", [0.0, 0.15])
@pytest.mark.parametrize("mode", ["blocking", "async"])
def test_of_chunks_that_come_while_the_ramp_runs_the_newest_is_played_and_no_older_one(mode, beside):
    """As a policy makes them that executes 15 actions: half a second, where the ramp takes a whole one."""
    bench, start = Bench(mode=mode), np.where(RIG.grippers, -0.3, 0.15) + HOME
    older = np.linspace(start, start + np.where(RIG.grippers, 0.0, 0.6), 50)
    newer = np.linspace(start, start - np.where(RIG.grippers, 0.0, 0.6), 50) - np.where(RIG.grippers, 0.0, beside)
    assert bench.send(older, execute=15) is None
    while bench.send(older, execute=15, age_ns=20 * MS) is not None:
        bench.tick()
    bench.tick(2)
    assert bench.arbiter.mode == "ramp"
    assert bench.send(newer, execute=15, age_ns=10 * MS) is None
    assert bench.arbiter.policy.depth(bench.now_ns) == 15
    bench.seconds(0.7)
    went = np.array([command for command in bench.commands if command is not None])[:, 0]
    assert "policy" in bench.modes and went.max() < start[0] + 0.01, "an older chunk was played"
    assert bench.command[0] == pytest.approx(newer[14 if mode == "blocking" else 17, 0], abs=0.1)
    check_smooth(bench)


def test_a_ramp_waits_for_arms_that_are_held_back():
    bench = Bench(REST)
    bench.stiff = 0.0
    bench.send(np.tile(BOW, (50, 1)))
    bench.seconds(2.8)
    assert bench.arbiter.mode == "ramp"
    assert np.abs(bench.command - REST)[~RIG.grippers].max() <= LIMITS.lead[0] + 1e-9
    assert bench.arbiter.tally.clamps["lead"]["left_joint2"] > 100
    bench.send(np.tile(BOW, (50, 1)), episode=2)
    bench.stiff = 0.2
    bench.seconds(4.0)
    assert bench.command == pytest.approx(BOW, abs=0.02)
    check_smooth(bench)


def test_a_chunk_that_has_waited_too_long_in_a_blocked_ramp_is_dropped():
    bench = Bench(REST, admission=AdmissionConfig(max_age_ns=4 * SECOND))
    bench.stiff = 0.0
    bench.seconds(0.5)
    assert bench.send(np.tile(BOW, (50, 1)), age_ns=500 * MS) is None
    bench.seconds(3.4)
    assert bench.arbiter.mode == "ramp"
    bench.stiff = 0.2  # released just before: the command does not arrive in time
    bench.seconds(0.2)
    assert bench.arbiter.mode == "hold"
    words = "chunk dropped at the end of its ramp: its observation is 4.01 s old, allowed: 4 s"
    assert (bench.arbiter.reason, bench.arbiter.fault) == (words, False)
    assert bench.arbiter.tally.refused["too_old"] == 1
    bench.seconds(2.0)
    assert "policy" not in bench.modes and not bench.arbiter.moving
    assert ReportWriter(bench.arbiter).execution(bench.now_ns)[0] == "stale"
    assert bench.send(BOW) is None  # a new start
    assert bench.tick().arbiter.mode == "ramp"
    check_smooth(bench)


def test_a_slow_policy_goes_on_at_the_end_of_a_ramp_that_has_outlived_its_chunk():
    """As one that takes 2.5 s a plan: with a ramp of a second, every chunk would be too old at its end."""
    bench, line = Bench().seconds(2.5), np.linspace(HOME, BOW, 50)
    assert bench.send(line, age_ns=2500 * MS) is None
    bench.seconds(1.1)
    assert "its observation is 3.50 s old" in bench.arbiter.reason and "policy" not in bench.modes
    bench.seconds(2.5)
    assert bench.send(line, age_ns=2500 * MS) is None
    assert bench.tick().arbiter.mode == "policy"  # without another ramp
    bench.seconds(1.5)
    assert bench.command == pytest.approx(line[29], abs=2e-3)
    check_smooth(bench)


def test_targets_beyond_limits_are_clamped_counted_and_named():
    bench = Bench(admission=AdmissionConfig(max_age_ns=10 * SECOND))  # a ramp of 5 s
    bench.send(np.tile(HOME + np.where(np.arange(14) == 1, 5.0, 0.0), (50, 1)))
    bench.seconds(7.0)
    assert bench.command[1] == pytest.approx(LIMITS.upper[1])
    assert set(bench.arbiter.tally.clamps["position"]) == {"left_joint2"}
    assert bench.arbiter.tally.clamped >= 100
    _, text, values = ReportWriter(bench.arbiter).limits(bench.now_ns)
    assert "clamped" in text
    assert values["position"].startswith("left_joint2 ")
    check_smooth(bench)


# Watchdogs


def test_silent_joints_hold_the_arms_and_are_named():
    bench = Bench()
    bench.send(BOW)
    bench.seconds(1.3)
    bench.talking = list(RIG.names[:7])
    silent_from = len(bench.modes)
    bench.seconds(0.5)
    held = bench.modes.index("hold", silent_from) - silent_from
    assert 19 <= held <= 21
    assert bench.arbiter.reason.startswith("no joint_states of right_joint1, right_joint2")
    level, text, _ = ReportWriter(bench.arbiter).feedback(bench.now_ns)
    assert level == "stale"
    assert "right_joint1" in text
    assert "left" not in text
    assert not bench.arbiter.moving
    assert bench.send(BOW).cause == "no_feedback"
    bench.talking = list(RIG.names)
    bench.seconds(0.2)
    assert "joint_states are back" in bench.arbiter.reason
    assert bench.send(BOW, age_ns=SECOND).cause == "outdated"
    assert bench.send(BOW) is None
    bench.seconds(3.0)
    check_smooth(bench)


@pytest.mark.parametrize("talking", [[], list(RIG.names[:7])])
@pytest.mark.parametrize("fallen", [0.0, 0.6])
def test_field_case_25_a_driver_that_starts_again_finds_no_command_of_before(talking, fallen):
    bench = Bench()
    bench.send(BOW)
    bench.seconds(1.5)
    bench.talking = talking
    bench.seconds(0.15)
    silent_from = len(bench.commands)
    bench.seconds(1.0)
    assert bench.commands[silent_from] is not None, "it brakes"
    assert bench.commands[-50:] == [None] * 50
    assert bench.arbiter.mode == "hold"
    bench.arms = bench.arms + np.where(np.arange(14) == 8, fallen, 0.0)
    bench.talking = list(RIG.names)
    bench.tick(3)
    if fallen:
        assert bench.commands[-3:] == [None] * 3
    else:
        assert bench.command == pytest.approx(bench.arms, abs=0.1)
    check_smooth(bench)


def test_field_case_25_an_arm_that_moved_unseen_is_not_swung_back():
    bench = Bench()
    bench.send(BOW)
    bench.seconds(3.0)
    bench.talking = []
    bench.seconds(1.0)
    bench.arms = bench.arms + np.where(np.arange(14) == 8, 0.6, 0.0)  # torque was lost: it dropped
    bench.talking = list(RIG.names)
    bench.tick(3)
    assert bench.arbiter.mode == "stopped"
    assert bench.arbiter.reason == "right_joint2 moved while joint_states were silent"
    assert bench.commands[-1] is None  # neither back to where it was, nor anywhere else
    assert "reset it first" in bench.arbiter.arm(bench.now_ns)
    assert bench.send(BOW).cause == "stopped"
    bench.arbiter.reset_stop(bench.now_ns)
    assert bench.tick().commands[-1] is None
    bench.arbiter.arm(bench.now_ns)
    assert bench.tick().command == pytest.approx(bench.arms, abs=0.01)


def test_field_case_25_a_jump_of_a_joint_latches_the_stop():
    bench = Bench()
    bench.send(BOW)
    bench.seconds(1.5)
    bench.arms[3] += 1.0
    bench.tick()
    assert bench.arbiter.stop_reason == "left_joint4 jumped between two joint_states"
    bench.arms[3] -= 1.0
    bench.seconds(0.3)
    assert bench.commands[-1] is None
    check_smooth(bench)


@pytest.mark.parametrize("displaced", ["stop", "rehold"])
@pytest.mark.parametrize("before", [None, "disarm", "stop"])
def test_a_displaced_arm_gets_nothing_not_even_the_end_of_its_motion(displaced, before):
    bench = Bench(config=ArbiterConfig(displaced=displaced))
    bench.send(BOW)
    bench.seconds(1.5)
    if before == "disarm":
        bench.arbiter.disarm(bench.now_ns)
    elif before == "stop":
        bench.arbiter.emergency_stop("button", bench.now_ns)
    assert bench.tick().arbiter.moving
    found = len(bench.commands)
    bench.arms[3] += 1.0
    bench.now_ns += MS
    bench.feed()
    assert not bench.arbiter.sending  # so that a node drops what it was about to send
    bench.seconds(0.2)
    assert bench.commands[found:] == [None] * 20


@pytest.mark.parametrize("source", ["hold", "policy", "teleop", "home", "stopped"])
def test_field_case_25_an_arm_that_falls_away_from_its_command_is_not_swung_back(source):
    bench = Bench()
    sources = {
        "hold": lambda: None,
        "policy": lambda: bench.send(BOW, execute=50),
        "teleop": lambda: bench.arbiter.teleop(RIG.names, BOW, bench.now_ns),
        "home": lambda: bench.arbiter.home(bench.now_ns),
        "stopped": lambda: bench.arbiter.emergency_stop("button", bench.now_ns),
    }
    sources[source]()
    start, fallen = bench.arms[1], []
    for _ in range(40):  # the motor has lost its torque, its encoder has not: 1.5 rad/s, which is no jump
        fallen.append(start - 0.015 * (len(fallen) + 1))
        bench.arms[1] = fallen[-1]
        bench.tick()
    assert bench.arbiter.mode == "stopped"
    assert bench.commands[-1] is None
    if source != "stopped":
        assert bench.arbiter.stop_reason == "left_joint2 does not follow: away from the command"
    told = [abs(c[1] - arm) for c, arm in zip(bench.commands[-40:], fallen, strict=True) if c is not None]
    assert max(told) <= LIMITS.lead[1] + 0.2 + 0.02


REHOLD = ArbiterConfig(displaced="rehold")


def displace(bench: Bench, pose, silent_s: float) -> None:
    """The simulated arms are put elsewhere at once, or their simulator dies and starts again."""
    if silent_s:
        bench.talking = []
        bench.seconds(silent_s)
    bench.talking = list(RIG.names)
    bench.arms = np.array(pose, float)


@pytest.mark.parametrize("silent_s", [0.0, 0.5])
@pytest.mark.parametrize("moving", [False, True])
def test_a_simulator_that_was_reset_gets_nothing_until_it_stands_and_is_then_held_there(silent_s, moving):
    bench = Bench(config=REHOLD)
    bench.send(BOW)
    bench.seconds(1.5 if moving else 3.0)
    displace(bench, REST, silent_s)
    found = len(bench.commands)
    bench.seconds(0.2)
    assert (bench.arbiter.mode, bench.arbiter.fault) == ("hold", True)
    assert "silent until the arms stand" in bench.arbiter.reason
    assert bench.arbiter.command is None
    refused = (
        bench.send(BOW, episode=2).text,
        bench.arbiter.home(bench.now_ns),
        bench.arbiter.teleop(RIG.names, BOW, bench.now_ns),
    )
    assert all("silent until the arms stand" in reason for reason in refused)
    bench.seconds(0.2)
    assert bench.commands[found : found + 29] == [None] * 29
    assert (bench.arbiter.mode, bench.arbiter.stop_reason, bench.arbiter.fault) == ("hold", "", False)
    assert bench.command.tolist() == REST.tolist()
    assert bench.send(BOW, episode=2) is None
    bench.seconds(4.0)
    check_smooth(bench)


def test_a_reset_arm_that_still_falls_gets_nothing_until_it_has_come_to_rest():
    bench = Bench(config=REHOLD)
    bench.arms = BOW.copy()
    bench.arms[1] = 2.0
    for _ in range(100):
        bench.arms[1] -= 0.015  # slower than anything that counts as a jump
        bench.tick()
        assert bench.commands[-1] is None
    rest = bench.arms.copy()
    bench.seconds(0.25)
    assert bench.commands[-1] is None
    bench.talking = list(RIG.names[:7])  # what is not heard of cannot be said to stand
    bench.seconds(1.0)
    assert bench.commands[-1] is None
    bench.talking = list(RIG.names)
    bench.tick(2)
    assert bench.command.tolist() == rest.tolist()
    assert bench.command[1] == pytest.approx(0.5)


@pytest.mark.parametrize("pose", [np.nan, 4.0, -0.5])
def test_a_pose_that_no_arm_can_have_is_never_taken_over(pose):
    bench = Bench(config=REHOLD)
    displace(bench, REST, 0.0)
    bench.tick(10)
    for _ in range(10):  # on its way there in steps that pass for motion
        bench.arms[1] += 0.1 * (pose - bench.arms[1])
        bench.tick(5)
    bench.arms[1] = pose
    bench.seconds(1.0)
    assert bench.commands[-1] is None
    assert bench.arbiter.mode in ("stopped", "hold")
    assert bench.arbiter.fault


@pytest.mark.parametrize("what", ["emergency_stop", "disarm", "arm"])
def test_whatever_operators_do_while_reset_arms_settle_no_command_steps(what):
    bench = Bench(config=REHOLD)
    bench.send(BOW)
    bench.seconds(3.0)
    displace(bench, REST, 0.0)
    bench.tick(5)
    operations = {
        "emergency_stop": lambda: bench.arbiter.emergency_stop("button", bench.now_ns),
        "disarm": lambda: bench.arbiter.disarm(bench.now_ns),
        "arm": lambda: bench.arbiter.arm(bench.now_ns),
    }
    assert operations[what]() == ""
    bench.seconds(1.0)
    assert (bench.commands[-1] is None) == (what != "arm")
    bench.arbiter.reset_stop(bench.now_ns)
    assert bench.arbiter.arm(bench.now_ns) == ""
    assert bench.tick().command.tolist() == REST.tolist()
    check_smooth(bench)


def test_stopped_or_disarmed_arms_that_are_displaced_are_not_re_held():
    for operate in (lambda a, now: a.emergency_stop("button", now), lambda a, now: a.disarm(now)):
        bench = Bench(config=REHOLD)
        bench.send(BOW)
        bench.seconds(1.5)  # in motion
        operate(bench.arbiter, bench.now_ns)
        bench.tick()
        assert bench.commands[-1] is not None
        displace(bench, REST, 0.0)
        bench.seconds(1.0)
        assert set(map(type, bench.commands[-100:])) == {type(None)}


def test_time_that_goes_back_flushes_the_chunk():
    bench = Bench()
    bench.send(BOW, episode=5)
    bench.seconds(1.3)
    bench.arbiter.feedback.update(RIG.names, bench.arms, STAMP_OFFSET, bench.now_ns)
    bench.now_ns += 1
    bench.arbiter.joints(RIG.names, bench.arms, STAMP_OFFSET - 3600 * SECOND, bench.now_ns)
    bench.tick()
    assert bench.arbiter.mode == "hold"
    assert "time went back" in bench.arbiter.reason
    # numbers and stamps start again, and so does the policy
    assert bench.send(BOW, age_ns=0, episode=1, observation_stamp_ns=77) is None
    bench.seconds(3.0)
    check_smooth(bench)


def test_a_paused_process_holds_instead_of_catching_up():
    bench = Bench()
    bench.send(BOW)
    bench.seconds(1.4)
    before = bench.command
    bench.tick(1, dt_ns=5 * SECOND)
    assert (np.abs(bench.command - before) <= LIMITS.velocity * 0.04 + 1e-9).all()
    assert bench.arbiter.mode == "hold"


# Operators


def test_the_emergency_stop_is_latched_and_leaves_the_arms_disarmed():
    bench = Bench()
    bench.send(BOW)
    bench.seconds(1.3)
    bench.arbiter.emergency_stop("button", bench.now_ns)
    bench.arbiter.emergency_stop("again", bench.now_ns)
    bench.seconds(0.5)
    assert (bench.arbiter.mode, bench.arbiter.reason) == ("stopped", "button")
    assert not bench.arbiter.moving
    held = bench.command
    for refused in (bench.send(BOW).cause, bench.arbiter.home(bench.now_ns)):
        assert "stop" in refused
    assert bench.arbiter.teleop(RIG.names, BOW, bench.now_ns) == "the arms are stopped: button"
    bench.seconds(1.0)
    assert bench.command.tolist() == held.tolist()  # held, powered
    bench.arbiter.reset_stop(bench.now_ns)
    bench.seconds(0.2)
    assert bench.arbiter.mode == "disarmed"
    assert bench.commands[-1] is None
    assert bench.send(BOW).cause == "disarmed"
    bench.arbiter.arm(bench.now_ns)
    assert bench.tick().command.tolist() == held.tolist()
    check_smooth(bench)


def test_a_reset_without_a_stop_changes_nothing_and_says_so():
    bench = Bench()
    answer = bench.arbiter.reset_stop(bench.now_ns)
    assert answer == "no emergency stop is latched: nothing to reset, the arms stay armed"
    assert bench.arbiter.armed
    bench.arbiter.disarm(bench.now_ns)
    assert "stay disarmed" in bench.arbiter.reset_stop(bench.now_ns)


@pytest.mark.parametrize("braked", range(8))
@pytest.mark.parametrize("by", ["disarm", "emergency_stop"])
def test_arming_while_the_command_still_brakes_goes_on_braking(by, braked):
    bench = Bench()
    bench.send(BOW + np.where(RIG.grippers, 0.0, 0.5))
    bench.seconds(1.6)
    assert np.abs(bench.speeds()[-1]).max() > 0.25
    if by == "disarm":
        bench.arbiter.disarm(bench.now_ns)
    else:
        bench.arbiter.emergency_stop("button", bench.now_ns)
        bench.tick()
        bench.arbiter.reset_stop(bench.now_ns)
    bench.tick(braked)
    assert bench.arbiter.arm(bench.now_ns) == ""
    bench.seconds(0.5)
    assert not bench.arbiter.moving
    check_smooth(bench)


def test_arms_that_were_carried_off_while_the_command_brakes_are_armed_when_it_stands():
    bench = Bench()
    bench.send(BOW + np.where(RIG.grippers, 0.0, 0.5))
    bench.seconds(1.6)
    bench.arbiter.disarm(bench.now_ns)
    bench.stiff = 0.0
    for _ in range(2):  # in steps that pass for motion
        bench.arms[0] += 0.15
        bench.tick()
    assert "still braking" in bench.arbiter.arm(bench.now_ns)
    bench.seconds(0.3)
    assert bench.arbiter.arm(bench.now_ns) == ""
    assert bench.tick().command[0] == bench.arms[0]
    check_smooth(bench)


def test_an_absurd_episode_number_locks_nobody_out_for_good():
    bench = Bench()
    assert bench.send(HOME, episode=2**64 - 1) is None
    bench.seconds(3.0)
    refusal = bench.send(HOME, episode=2)
    assert refusal.cause == "old_episode"
    assert "disarm and arm" in refusal.text
    bench.arbiter.disarm(bench.now_ns)
    bench.tick(5)
    bench.arbiter.arm(bench.now_ns)
    assert bench.send(HOME, episode=2, age_ns=SECOND).cause == "outdated"  # nor does anything old get in
    bench.tick(5)
    assert bench.send(HOME, episode=2) is None
    bench.seconds(1.5)
    assert bench.arbiter.policy.episode == 2


def test_home_is_slow_and_ends_the_episode():
    bench = Bench(REST)
    bench.send(np.tile(REST, (50, 1)))
    bench.seconds(1.5)
    assert bench.arbiter.home(bench.now_ns) == ""
    bench.tick()
    assert bench.arbiter.mode == "home"
    assert bench.send(REST).cause == "home"
    bench.seconds(2.0)
    assert bench.arbiter.mode == "home"
    bench.seconds(3.0)
    assert (bench.arbiter.mode, bench.arbiter.reason) == ("hold", "at home")
    assert bench.command == pytest.approx(HOME, abs=0.02)
    assert np.abs(bench.speeds()).max() <= 0.52
    assert bench.arbiter.policy.episode == 0  # so that the policy hears of it
    assert bench.send(REST).cause == "ended_episode"
    assert bench.send(HOME, episode=2) is None
    assert bench.arbiter.policy.episode == 2
    check_smooth(bench)


@pytest.mark.parametrize("begun_ms", [-10, 0, 10])
def test_whatever_was_seen_before_the_end_of_a_move_home_is_not_executed(begun_ms):
    """An episode that is begun within 10 ms of the call, by a policy that has not heard of it."""
    bench, causes = Bench(REST), set()
    for ms in range(-20, 10_000, 10):
        if ms == 0:
            assert bench.arbiter.home(bench.now_ns) == ""
        if ms >= begun_ms:
            refusal = bench.send(BOW, episode=2, age_ns=30 * MS)
            causes |= {refusal.cause} if ms >= 0 else set()
        bench.tick()
        if ms > 0 and bench.arbiter.mode == "hold":
            break
    assert (bench.arbiter.mode, bench.arbiter.reason) == ("hold", "at home")
    assert bench.command == pytest.approx(HOME, abs=0.02)
    assert bench.send(BOW, episode=2, age_ns=30 * MS).cause in ("outdated", "ended_episode")
    assert causes <= {"home", "ended_episode"}
    assert bench.send(BOW, episode=3, age_ns=0) is None
    check_smooth(bench)


def test_teleop_takes_over_from_the_policy_and_hands_back_without_its_chunk():
    bench = Bench(mode="async")
    bench.send(BOW)
    bench.seconds(1.3)
    aside = HOME + np.where(np.arange(14) == 0, 0.3, 0.0)
    for _ in range(60):
        assert bench.arbiter.teleop(RIG.names, aside, bench.now_ns) == ""
        bench.tick(3)
    assert bench.arbiter.mode == "teleop"
    assert bench.send(BOW).cause == "teleop"
    assert bench.command == pytest.approx(aside, abs=1e-3)
    bench.seconds(0.6)
    assert (bench.arbiter.mode, bench.arbiter.reason) == ("hold", "teleop let go")
    assert bench.send(BOW, age_ns=SECOND).cause == "outdated"
    assert bench.send(BOW) is None
    bench.seconds(1.5)
    assert bench.arbiter.mode == "policy"
    check_smooth(bench)


def test_broken_teleop_targets_are_refused_and_counted():
    bench = Bench()
    assert "unknown joints hand" in bench.arbiter.teleop(["hand"], [0.0], bench.now_ns)
    assert bench.arbiter.tally.refused["teleop"] == 1
    assert bench.arbiter.teleop(["left_joint2"], [85.0], bench.now_ns) == "left_joint2 at 85 far outside the limits"
    assert bench.arbiter.tally.refused["teleop"] == 2
    assert bench.tick().arbiter.mode == "hold"


# Everything at once


events = st.lists(
    st.tuples(
        st.sampled_from(
            [
                "chunk",
                "far",
                "nan",
                "teleop",
                "home",
                "stop",
                "reset",
                "arm",
                "disarm",
                "silent",
                "heard",
                "flush",
                "put",
            ]
        ),
        st.integers(0, 2**32 - 1),
        st.integers(1, 60),
    ),
    min_size=1,
    max_size=12,
)


@settings(max_examples=150, deadline=None)
@given(events, st.sampled_from(["blocking", "async"]), st.sampled_from(["stop", "rehold"]))
def test_the_command_is_continuous_across_every_change_of_source(happenings, mode, displaced):
    bench = Bench(mode=mode, config=ArbiterConfig(displaced=displaced))
    for name, seed, ticks in happenings:
        rng = np.random.default_rng(seed)
        somewhere = rng.uniform(LIMITS.lower - 0.3, LIMITS.upper + 0.3)
        arbiter = bench.arbiter
        actions = {
            "chunk": lambda now, p=somewhere, b=bench: b.send(np.clip(p, b.arms - 0.3, b.arms + 0.3)),
            "far": lambda now, p=somewhere, b=bench: b.send(np.tile(p, (50, 1)), age_ns=now % SECOND),
            "nan": lambda now, b=bench: b.send(np.full((50, 14), np.nan)),
            "teleop": lambda now, p=somewhere, a=arbiter: a.teleop(RIG.names, p, now),
            "home": arbiter.home,
            "stop": lambda now, a=arbiter: a.emergency_stop("test", now),
            "reset": arbiter.reset_stop,
            "arm": arbiter.arm,
            "disarm": arbiter.disarm,
            "silent": lambda now, b=bench: setattr(b, "talking", []),
            "heard": lambda now, b=bench: setattr(b, "talking", list(RIG.names)),
            "flush": lambda now, a=arbiter: a.flush("test", now),
            "put": lambda now, p=somewhere, b=bench: setattr(b, "arms", np.clip(p, LIMITS.lower, LIMITS.upper)),
        }
        actions[name](bench.now_ns)
        bench.tick(ticks)
    check_smooth(bench)


# Reports


def test_reports_name_causes_and_tell_what_is_new():
    bench = Bench(arm=False)
    reports = ReportWriter(bench.arbiter)
    assert reports.execution(bench.now_ns)[:2] == ("ok", "disarmed: not armed yet")
    bench.arbiter.arm(bench.now_ns)
    bench.tick(5)
    bench.send(BOW)
    bench.send(BOW, replan=0)
    level, text, values = reports.chunks(bench.now_ns)
    assert (level, text) == ("warn", "chunks refused: out_of_order (1)")
    assert values["accepted"] == 1
    assert values["queue depth"] == 30
    assert reports.chunks(bench.now_ns)[0] == "ok"  # said once
    bench.seconds(4.0)
    assert reports.execution(bench.now_ns)[:2] == ("stale", "hold: no new chunk for over 1 s")
    bench.arbiter.emergency_stop("button", bench.now_ns)
    bench.tick()
    assert reports.execution(bench.now_ns)[:2] == ("error", "stopped: button")


def test_a_slow_start_of_the_drivers_is_no_fault_until_it_lasts():
    bench = Bench(arm=False)
    bench.arbiter.feedback = Feedback(RIG.names, 200 * MS)
    bench.talking = []
    reports = ReportWriter(bench.arbiter, bench.now_ns)
    bench.seconds(1.0)
    assert reports.feedback(bench.now_ns)[0] == "ok"
    assert reports.feedback(bench.now_ns)[1].startswith("waiting for joint_states of all 14 joints")
    bench.talking = list(RIG.names)
    bench.tick()
    bench.arbiter.arm(bench.now_ns)
    bench.talking = []  # a simulator that has yet to draw its first picture
    bench.seconds(1.0)
    assert bench.arbiter.silent
    assert [reports.execution(bench.now_ns)[0], reports.feedback(bench.now_ns)[0]] == ["ok", "ok"]
    bench.talking = list(RIG.names)
    bench.seconds(0.1)
    assert (bench.arbiter.mode, bench.arbiter.reason) == ("hold", "no chunk yet")
    bench.talking = []
    bench.seconds(9.0)
    assert [reports.execution(bench.now_ns)[0], reports.feedback(bench.now_ns)[0]] == ["error", "stale"]


def test_silence_of_arms_that_were_moved_is_a_fault_from_the_start():
    bench = Bench()
    reports = ReportWriter(bench.arbiter, bench.now_ns)
    bench.send(BOW)
    bench.tick(10)
    bench.talking = []
    bench.seconds(0.3)
    assert [reports.execution(bench.now_ns)[0], reports.feedback(bench.now_ns)[0]] == ["error", "stale"]


@pytest.mark.parametrize(
    ("names", "positions", "words"),
    [
        ((*RIG.names, "left_joint1"), [0.0] * 15, "left_joint1 is named more than once"),
        (RIG.names, [0.0] * 13, "name 14 joints but give 13 positions"),
        ([f"joint{k}" for k in range(1001)], [0.0] * 1001, "name 1001 joints, allowed: at most 1000"),
        (RIG.names, [float("nan")] * 14, "left_joint1 at nan"),
    ],
)
def test_joint_states_that_cannot_be_used_are_counted_and_told(names, positions, words):
    bench = Bench()
    reports = ReportWriter(bench.arbiter)
    assert words in bench.arbiter.joints(names, positions, STAMP_OFFSET + bench.now_ns + 1, bench.now_ns)
    bench.tick()
    level, text, values = reports.feedback(bench.now_ns)
    assert level == "warn"
    assert words in text
    assert (values["refused"], words in values["refused last"]) == (1, True)
    assert reports.feedback(bench.now_ns)[0] == "ok"  # said once
    assert bench.arbiter.mode == "hold"


def test_an_async_policy_that_is_late_is_reported():
    bench = Bench(mode="async")
    reports = ReportWriter(bench.arbiter)
    bench.send(BOW)
    bench.seconds(4.0)
    level, text, _ = reports.chunks(bench.now_ns)
    assert level == "warn"
    assert "late for" in text


def test_pace_measures_the_distance_from_the_nominal_period():
    pace = Pace(10 * MS, kept=4)
    assert pace.report()[0] == "ok"
    for time in (0, 10, 21, 30, 40, 50):
        pace.tick(time * MS)
    assert pace.jitter_ms()[1] == pytest.approx(1.0)
    for time in (90, 100, 140):
        pace.tick(time * MS)
    level, text, _ = pace.report()
    assert level == "warn"
    assert "irregular" in text


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: PolicyConfig(mode="fast"), "allowed: blocking, async"),
        (lambda: PolicyConfig(start_check="jump"), "allowed: ramp, refuse"),
        (lambda: PolicyConfig(fade_ns=0), "fade_ns"),
        (lambda: PolicyConfig(start_threshold=0.0), "start_threshold"),
        (lambda: ArbiterConfig(displaced="ignore"), "allowed: stop, rehold"),
        (lambda: ArbiterConfig(teleop_timeout_ns=0), "teleop_timeout_ns"),
        (lambda: ArbiterConfig(displacement=0.0), "displacement"),
        (lambda: ArbiterConfig(settle_ns=0), "settle_ns"),
    ],
)
def test_bad_settings_are_named(make, words):
    with pytest.raises(ValueError, match=words):
        make()
