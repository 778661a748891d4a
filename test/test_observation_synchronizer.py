"""Matching by time, on hand-made messages and clocks."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vag_policy.observation.observation import JOINT_SOURCE
from vag_policy.observation.sync_config import SyncConfig
from vag_policy.observation.synchronizer import Jump, Synchronizer

MS = 1_000_000
T0 = 1_700_000_000_000_000_000
CAMERAS = ("top", "left", "right")
JOINTS = ("a", "b", "c")


class Rig:
    """A synchroniser and a clock: times are in ms after T0, and a message arrives at its stamp unless said."""

    def __init__(self, cameras=CAMERAS, reference="top", joints=JOINTS, **options):
        nanoseconds = {
            key: value * MS if key.endswith("_ns") and not isinstance(value, dict) else value
            for key, value in options.items()
        }
        self.sync = Synchronizer(SyncConfig(cameras, reference, joints, **nanoseconds))
        self.now = 0.0
        self.matches = []

    def _arrive(self, at):
        self.now = max(self.now, at)

    def frame(self, camera, ms, at=None, content=None, payload=None):
        self._arrive(ms if at is None else at)
        self.sync.offer(camera, T0 + round(ms * MS), payload or f"{camera}@{ms:g}", round(self.now * MS), content)
        return self.take()

    def joint(self, ms, names=JOINTS, positions=None, at=None):
        self._arrive(ms if at is None else at)
        values = [ms + index for index in range(len(names))] if positions is None else positions
        self.sync.offer_joints(tuple(names), T0 + round(ms * MS), np.array(values, float), round(self.now * MS))
        return self.take()

    def take(self, at=None, clock=None):
        """Every match that is out now."""
        if at is not None:
            self._arrive(at)
        clock = T0 + round(self.now * MS) if clock is None else clock
        new = []
        while (match := self.sync.match(round(self.now * MS), clock)) is not None:
            new.append(match)
        self.matches += new
        return new

    def run(self, until, cameras=CAMERAS, start=0.0, period=100 / 3, joint_period=5.0, phase=None):
        """Regular streams from ``start`` to ``until``."""
        events = [(start + k * joint_period, None) for k in range(int((until - start) / joint_period))]
        for index, camera in enumerate(cameras):
            offset = start + (phase or {}).get(camera, 0.1 * index)
            events += [(offset + k * period, camera) for k in range(int((until - start) / period))]
        for ms, camera in sorted(events, key=lambda event: event[0]):
            if camera is None:
                self.joint(ms)
            else:
                self.frame(camera, ms)
        return self.matches


def test_the_nearest_frames_come_out_with_every_source_stamp():
    rig = Rig()
    rig.joint(0)
    rig.frame("left", 1)
    rig.frame("right", 4)
    assert rig.frame("top", 10) == []  # no rhythm is known yet: something nearer may come
    rig.joint(12)
    rig.frame("left", 11)
    (match,) = rig.frame("right", 14)
    assert match.stamp_ns == T0 + 10 * MS
    assert match.frames == {"top": "top@10", "left": "left@11", "right": "right@14"}
    assert list(match.source_stamp_ns) == [*CAMERAS, JOINT_SOURCE]
    assert [stamp - T0 for stamp in match.source_stamp_ns.values()] == [10 * MS, 11 * MS, 14 * MS, 12 * MS]
    assert match.positions.tolist() == [12, 13, 14]


def test_of_two_equally_near_frames_the_newer_is_taken():
    rig = Rig(cameras=("top", "left"))
    rig.joint(10)
    rig.frame("left", 6)
    rig.frame("top", 10)
    (match,) = rig.frame("left", 14)
    assert match.frames["left"] == "left@14"


@pytest.mark.parametrize(("away", "matched"), [(50, True), (-50, True), (50.000001, False), (-50.000001, False)])
def test_the_slop_is_inclusive(away, matched):
    rig = Rig(cameras=("top", "left"), slop_ns=50, default_max_age_ns=1000)
    rig.joint(1000)
    rig.frame("left", 1000 + away)
    rig.frame("top", 1000, at=1060)
    rig.take(at=1100)
    assert len(rig.matches) == matched
    if not matched:
        assert "left: nearest frame is" in rig.sync.problem and "(slop 0.050 s)" in rig.sync.problem


@pytest.mark.parametrize(("away", "matched"), [(50, True), (-50, True), (50.000001, False), (-50.000001, False)])
def test_the_slop_holds_for_joints_too(away, matched):
    rig = Rig(cameras=("top",), slop_ns=50, default_max_age_ns=1000)
    rig.joint(1000 + away)
    rig.frame("top", 1000, at=1060)
    rig.take(at=1100)
    assert len(rig.matches) == matched


@pytest.mark.parametrize(("clock", "matched"), [(100, True), (100.000001, False)])
@pytest.mark.parametrize("source", ["left", JOINT_SOURCE])
def test_the_maximum_age_is_inclusive_and_each_stream_s_own(source, clock, matched):
    rig = Rig(cameras=("top", "left"), max_age_ns={source: 100 * MS}, default_max_age_ns=1000, slop_ns=1)
    rig.joint(0)
    rig.frame("left", 0)
    rig.frame("top", 0, at=0)
    rig.sync.reset()
    rig.sync.offer_joints(JOINTS, T0, np.zeros(3), 0)
    rig.sync.offer("left", T0, "l", 0)
    rig.sync.offer("top", T0, "t", 0)
    found = rig.sync.match(0, T0 + round(clock * MS))
    assert (found is not None) == matched
    if not matched:
        assert f"{source}: 0.100 s old by this node's clock (at most 0.100 s)" in rig.sync.problem


@pytest.mark.parametrize(("seconds", "hint"), [(2, False), (100, True)])
def test_an_old_frame_is_refused_with_a_hint_where_it_can_only_be_a_bag(seconds, hint):
    rig = Rig(cameras=("top",))
    rig.joint(0)
    assert rig.frame("top", 0, at=seconds * 1000) == []
    assert f"top: {seconds}.000 s old" in rig.sync.problem
    assert ("use_sim_time" in rig.sync.problem) == hint


def test_nothing_waits_longer_than_it_can_help():
    # right's next frame will be 23.3 ms after the reference, its newest is 10 ms before: no need to wait for it.
    phase = {"top": 10.0, "left": 10.1, "right": 0.0}
    rig = Rig()
    rig.run(500, phase=phase)
    start = 510.0
    rig.joint(509)
    rig.frame("right", 500)
    rig.frame("left", 510.1, at=510.1)
    rig.joint(511)
    matches = rig.frame("top", start, at=511.1)
    assert matches and matches[0].frames["right"] == "right@500"


def test_waits_for_a_frame_that_the_rhythm_says_is_nearer():
    phase = {"top": 25.0, "left": 25.1, "right": 0.0}
    rig = Rig()
    rig.run(500, phase=phase)
    done = len(rig.matches)
    rig.joint(526)
    rig.frame("right", 500)
    rig.frame("left", 525.1)
    assert rig.frame("top", 525, at=526) == []
    assert rig.sync.waiting == ("right",)
    assert rig.sync.deadline_ns == 546 * MS
    (match,) = rig.frame("right", 533.3)
    assert match.frames["right"] == "right@533.3" and len(rig.matches) == done + 1
    assert rig.sync.waiting == () and rig.sync.deadline_ns is None


def test_what_will_be_matched_for_sure_is_known_while_others_are_awaited():
    rig = Rig()
    rig.run(300)
    assert rig.sync.settled() == []
    rig.joint(305, at=300)
    assert rig.frame("top", 300) == []
    assert rig.sync.waiting == ("left", "right")
    assert rig.sync.settled() == [("top", T0 + 300 * MS, "top@300")]
    rig.frame("left", 301)
    assert rig.sync.waiting == ("right",)
    assert rig.sync.settled() == [("top", T0 + 300 * MS, "top@300"), ("left", T0 + 301 * MS, "left@301")]
    (match,) = rig.frame("right", 302)
    assert match.frames["left"] == "left@301" and rig.sync.settled() == []


def test_nothing_is_worth_preparing_while_matches_fail():
    rig = Rig()
    rig.run(1000, cameras=("top", "left"))
    rig.frame("top", 1000, at=1001)
    assert rig.sync.waiting and rig.sync.problem and rig.sync.settled() == []


def test_the_deadline_takes_what_is_there():
    rig = Rig(max_wait_ns=20)
    rig.joint(100)
    rig.frame("left", 80)
    rig.frame("right", 90)
    assert rig.frame("top", 100) == []
    assert rig.take(at=119.9) == []
    (match,) = rig.take(at=120)
    assert match.frames == {"top": "top@100", "left": "left@80", "right": "right@90"}


def test_max_wait_0_never_waits():
    rig = Rig(max_wait_ns=0)
    rig.joint(100)
    rig.frame("left", 80)
    rig.frame("right", 90)
    assert len(rig.frame("top", 100)) == 1


def test_a_slower_transport_is_waited_for_in_order():
    rig = Rig(cameras=("top", "late"), max_wait_ns=60)
    for k in range(10):
        rig.joint(k * 20, at=k * 20)
        if k >= 2:
            rig.frame("late", (k - 2) * 20, at=k * 20)
        rig.frame("top", k * 20, at=k * 20)
    assert [match.frames["late"] for match in rig.matches] == [f"late@{k * 20}" for k in range(8)]


@settings(max_examples=40, deadline=None)
@given(
    phases=st.lists(st.integers(0, 33), min_size=3, max_size=3),
    delays=st.lists(st.integers(0, 30), min_size=3, max_size=3),
)
def test_regular_streams_give_every_reference_frame_its_nearest_partners(phases, delays):
    """Whatever the phases and transport delays, given time to wait: the same as looking back at everything."""
    rig = Rig(max_wait_ns=100)
    stamps = {camera: [phase + 33 * k for k in range(20)] for camera, phase in zip(CAMERAS, phases, strict=True)}
    delay = dict(zip(CAMERAS, delays, strict=True))
    events = [(ms + delay[camera], ms, camera) for camera in CAMERAS for ms in stamps[camera]]
    events += [(ms, ms, "") for ms in range(0, 800, 5)]
    for at, ms, camera in sorted(events):
        if camera:
            rig.frame(camera, ms, at=at)
        else:
            rig.joint(ms, at=at)
    rig.take(at=2000, clock=T0 + 800 * MS)
    rows = {match.stamp_ns: match for match in rig.matches}
    for reference in stamps["top"][3:-3]:
        match = rows[T0 + reference * MS]
        for camera in CAMERAS:
            best = min(abs(ms - reference) for ms in stamps[camera])
            assert abs(match.source_stamp_ns[camera] - match.stamp_ns) == best * MS
        assert abs(match.source_stamp_ns[JOINT_SOURCE] - match.stamp_ns) <= 2 * MS


def test_every_reference_frame_of_a_steady_rig_is_matched():
    rig = Rig()
    rig.run(3000, phase={"top": 0.0, "left": 11.0, "right": 22.0})
    assert len(rig.matches) >= 88 and rig.sync.refused <= 1
    stamps = [match.stamp_ns for match in rig.matches]
    assert stamps == sorted(set(stamps))


@pytest.mark.parametrize("rate", [10, 15, 25, 30, 50])
def test_rate_takes_the_frames_nearest_to_its_period(rate):
    rig = Rig(period_ns=1000 / rate)
    rig.run(4000)
    steps = np.diff([match.stamp_ns for match in rig.matches[3:]]) / 1e9
    assert abs(1 / steps.mean() - min(rate, 30)) < 0.5
    assert steps.max() - steps.min() < 0.034


def test_between_two_observations_at_a_low_rate_nobody_needs_to_wake_up():
    rig = Rig(period_ns=100)
    rig.run(2000)
    last = rig.matches[-1].stamp_ns - T0
    idle = rig.sync.idle_until_ns
    # the next wanted frame comes 100 ms after the last; half a frame earlier is soon enough to listen
    assert last + 70 * MS < idle < last + 100 * MS
    rig.sync.reset()
    assert rig.sync.idle_until_ns == 0


def test_at_full_rate_somebody_always_listens():
    rig = Rig()
    rig.run(1000)
    assert rig.sync.idle_until_ns == 0


def test_a_silent_camera_is_named_and_nothing_comes_out():
    rig = Rig(default_max_age_ns=300)
    rig.run(1000)
    done = len(rig.matches)
    rig.run(2000, cameras=("top", "left"), start=1000)
    assert len(rig.matches) <= done + 2
    assert "right: nearest frame is" in rig.sync.problem
    states = {status.name: status for status in rig.sync.status(2000 * MS)}
    assert states["right"].state == "silent" and states["right"].silent_ns > 1000 * MS
    assert states["left"].state == states["top"].state == states[JOINT_SOURCE].state == "ok"


def test_a_camera_that_never_came_is_waiting():
    rig = Rig()
    rig.run(500, cameras=("top", "left"))
    rig.take(at=600)
    assert rig.matches == [] and rig.sync.problem == "right: no frame"
    status = rig.sync.status(600 * MS)[2]
    assert (status.state, status.silent_ns, status.last_stamp_ns, status.received) == ("waiting", -1, None, 0)


def test_a_camera_that_repeats_one_stamp_is_frozen():
    rig = Rig(default_max_age_ns=300)
    rig.run(1000)
    done = len(rig.matches)
    stuck = rig.sync.status(1000 * MS)[1].last_stamp_ns
    for k in range(30):
        ms = 1000 + k * 100 / 3
        rig.joint(ms)
        rig.frame("top", ms)
        rig.frame("right", ms)
        rig.sync.offer("left", stuck, "again", round(ms * MS))
    rig.take()
    assert len(rig.matches) <= done + 3
    status = rig.sync.status(2000 * MS)[1]
    assert status.state == "repeating" and status.repeats == 30 and status.last_stamp_ns == stuck


def test_a_camera_that_sends_the_same_picture_with_new_stamps_is_refused_where_asked():
    for frozen, refused in ((500, True), (0, False)):
        rig = Rig(cameras=("top",), frozen_ns=frozen)
        for k in range(40):
            rig.joint(k * 50)
            rig.frame("top", k * 50, content=min(k, 10))
        assert (len(rig.matches) == 20) == refused  # the picture of k = 10 is fresh until 500 ms later
        status = rig.sync.status(1950 * MS)[0]
        assert (status.state == "frozen") == refused
        if refused:
            assert "top: frozen, the same picture for 1.450 s" in rig.sync.problem


def test_lost_frames_are_counted():
    rig = Rig(cameras=("top",))
    for k in range(60):
        if k not in (20, 30, 31, 32):
            rig.frame("top", k * 100 / 3)
    status = rig.sync.status(2000 * MS)[0]
    assert status.gaps == 4 and status.received == 56
    assert abs(status.rate_hz - 28) < 2


@pytest.mark.parametrize("stream", ["right", "top", JOINT_SOURCE])
def test_a_bag_that_loops_clears_everything_and_goes_on(stream):
    rig = Rig()
    rig.run(1000, start=500)
    done = len(rig.matches)
    assert done > 10 and rig.sync.resets == 0
    if stream == JOINT_SOURCE:
        rig.joint(0)
    else:
        rig.frame(stream, 0)
    assert rig.sync.resets == 1
    jump = rig.sync.last_jump
    assert isinstance(jump, Jump) and jump.stream == stream and jump.to_ns == T0 < jump.from_ns
    # the other loop's frames are forgotten: nothing old can be matched
    rig.matches.clear()
    rig.now = 0
    rig.run(500, start=1.0)
    assert rig.sync.resets == 1
    assert len(rig.matches) > 10 and rig.matches[0].stamp_ns < T0 + 100 * MS


def test_repeated_loops_each_resume():
    rig = Rig()
    for loop in range(4):
        rig.matches.clear()
        rig.now = 0
        rig.run(500)
        assert len(rig.matches) > 10
        assert (rig.sync.resets > 0) == (loop > 0)


def test_a_late_message_is_no_jump():
    rig = Rig(cameras=("top", "left"))
    rig.run(300, cameras=("top", "left"))
    rig.joint(350)
    rig.joint(340, at=351)
    rig.frame("left", 350, at=352)
    rig.frame("left", 341, at=353)
    rig.frame("top", 341, at=354)
    assert rig.sync.resets == 0
    assert rig.matches[-1].frames["left"] == "left@341"
    assert rig.matches[-1].source_stamp_ns[JOINT_SOURCE] == T0 + 340 * MS


@pytest.mark.parametrize("stamp", [0, -5])
def test_unstamped_messages_are_dropped_and_counted(stamp):
    rig = Rig(cameras=("top",))
    rig.joint(0)
    for _ in range(3):
        rig.sync.offer("top", stamp, "x", 0)
        rig.sync.offer_joints(JOINTS, stamp, np.zeros(3), 0)
    assert rig.take(at=100) == [] and rig.sync.resets == 0
    top, joints = rig.sync.status(100 * MS)
    assert (top.dropped.unstamped, top.received, joints.dropped.unstamped, joints.received) == (3, 0, 3, 1)


def test_stamps_far_in_the_future_are_dropped_counted_and_spoil_nothing():
    rig = Rig(cameras=("top",))
    for k in range(4):
        now = k * 33 * MS
        clock = T0 + now
        late = clock + 3_600_000 * MS
        rig.joint(k * 33)
        rig.sync.offer("top", clock, f"top {k}", now, clock_ns=clock)
        rig.sync.offer("top", late, "another clock's", now, clock_ns=clock)
        rig.sync.offer_joints(JOINTS, late, np.zeros(3), now, clock)
        assert len(rig.take(at=k * 33)) == 1
    top, joints = rig.sync.status(100 * MS)
    assert (top.dropped.ahead, top.dropped.ahead_ns, top.gaps, top.received) == (4, 3_600_000 * MS, 0, 4)
    assert (joints.dropped.ahead, joints.gaps, joints.received, rig.sync.resets) == (4, 0, 4, 0)


def test_clocks_that_differ_a_little_and_a_clock_that_is_not_known_drop_nothing():
    rig = Rig(cameras=("top",))
    rig.sync.offer("top", T0 + 1_000 * MS, "x", 0, clock_ns=T0)  # the bound is inclusive
    rig.sync.offer("top", T0 + 3_600_000 * MS, "y", 0)
    (top, _) = rig.sync.status(0)
    assert (top.dropped.ahead, top.received) == (0, 2)


@pytest.mark.parametrize(
    ("names", "positions", "words"),
    [
        (JOINTS, [1.0, 2.0], "3 joints are named, 2 positions given"),
        (JOINTS, [1.0, 2.0, 3.0, 4.0], "3 joints are named, 4 positions given"),
        (JOINTS, [], "3 joints are named, 0 positions given"),
        ((*JOINTS, "b", "a"), [1.0] * 5, "joint a, b is named more than once"),
    ],
)
def test_joint_states_that_contradict_themselves_are_dropped_counted_and_named(names, positions, words):
    rig = Rig(cameras=("top",))
    rig.joint(0, names=names, positions=positions)
    rig.joint(1)
    joints = rig.sync.status(2 * MS)[-1]
    assert (joints.dropped.malformed, joints.dropped.fault, joints.received) == (1, words, 1)
    (match,) = rig.frame("top", 1)
    assert match.positions.tolist() == [1.0, 2.0, 3.0]


def test_joint_states_of_others_may_be_as_they_like():
    rig = Rig(cameras=("top",))
    rig.joint(0, names=("wheel", "wheel"), positions=[1.0])
    assert rig.sync.status(0)[-1].dropped.malformed == 0


def test_a_clock_at_zero_is_waited_for():
    rig = Rig(cameras=("top",))
    rig.sync.offer_joints(JOINTS, T0, np.zeros(3), 0)
    rig.sync.offer("top", T0, "x", 0)
    assert rig.take(clock=0) == [] and "/clock" in rig.sync.problem
    rig.joint(33)
    assert len(rig.frame("top", 33)) == 1 and rig.sync.problem == ""


def test_joints_come_by_name_in_any_order_and_from_several_publishers():
    rig = Rig(cameras=("top",))
    rig.joint(96, names=("c", "extra", "a"), positions=[3.0, 9.0, 1.0])
    rig.joint(98, names=("b",), positions=[2.0])
    rig.joint(101, names=("a", "extra", "c"), positions=[10.0, 9.0, 30.0])
    (match,) = rig.frame("top", 100, at=101) or rig.take(at=130)
    assert match.positions.tolist() == [10.0, 2.0, 30.0]
    assert [stamp - T0 for stamp in match.joint_stamp_ns] == [101 * MS, 98 * MS, 101 * MS]
    assert match.source_stamp_ns[JOINT_SOURCE] == T0 + 98 * MS


def test_partial_publishers_a_little_apart_are_each_matched_nearest():
    rig = Rig(cameras=("top",))
    for k in range(30):
        rig.joint(k * 10, names=("a", "b"), positions=[k, k])
        rig.joint(k * 10 - 3, names=("c",), positions=[k + 0.5], at=k * 10 + 1)  # stamps interleave backwards
        if k % 3 == 0:
            rig.frame("top", k * 10 - 1, at=k * 10 + 2)
    assert rig.sync.resets == 0
    assert len(rig.matches) >= 9
    for match in rig.matches[2:]:
        k = (match.stamp_ns - T0) // MS // 10 + 1
        assert match.positions.tolist() == [k, k, k + 0.5]


def test_a_missing_joint_is_named_with_what_there_is():
    rig = Rig(cameras=("top",))
    for k in range(5):
        rig.joint(k * 10, names=("a", "elbow", "c"), positions=[1, 2, 3])
    rig.frame("top", 40)
    assert rig.take(at=100) == []
    assert rig.sync.problem == "no position of joint b (joint_states has: elbow)"
    status = rig.sync.status(45 * MS)[-1]
    assert status.missing == ("b",) and status.state != "ok"


def test_a_joint_that_stops_is_named():
    rig = Rig(cameras=("top",), max_age_ns={JOINT_SOURCE: 200 * MS})
    for k in range(100):
        rig.joint(k * 10, names=("a", "c"), positions=[1, 3])
        if k < 10:
            rig.joint(k * 10, names=("b",), positions=[2])
    rig.frame("top", 990)
    assert rig.take(at=1100) == []
    assert "joint b is 0.900 s from the reference (slop 0.050 s)" in rig.sync.problem
    status = rig.sync.status(995 * MS)[-1]
    assert status.missing == ("b",) and status.state == "silent"


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_position_that_is_not_finite_is_refused_by_name(value):
    rig = Rig(cameras=("top",))
    rig.joint(10, positions=[0.0, value, 0.0])
    rig.frame("top", 10)
    assert rig.take(at=100) == []
    assert rig.sync.problem == f"position of joint b is {value}"


@pytest.mark.parametrize("first", [True, False])
def test_another_publisher_s_number_wins_over_a_broadcaster_s_nan(first):
    rig = Rig(cameras=("top",))
    whole = {"names": JOINTS, "positions": [1.0, np.nan, 3.0]}
    part = {"names": ("b",), "positions": [2.0]}
    for at, message in ((9, whole if first else part), (10, part if first else whole)):
        rig.joint(at, **message)
    rig.frame("top", 10)
    rig.take(at=40)
    assert rig.matches[0].positions.tolist() == [1.0, 2.0, 3.0]


def test_messages_without_positions_and_strangers_are_ignored():
    rig = Rig(cameras=("top",))
    rig.joint(10)
    rig.joint(11, positions=[])
    rig.joint(12, names=("wheel_left", "wheel_right"))
    rig.joint(10.5, positions=[1.0], at=13)
    (match,) = rig.frame("top", 10, at=13) or rig.take(at=40)
    assert match.positions.tolist() == [10, 11, 12]
    assert rig.sync.status(40 * MS)[-1].received == 1


def test_a_publisher_that_shuffles_its_names_is_still_one():
    rng = np.random.default_rng(0)
    rig = Rig(cameras=("top",), joints=tuple("abcdefgh"))
    for k in range(300):
        names = [str(name) for name in rng.permutation(list("abcdefgh"))]
        rig.joint(k * 5, names=names, positions=[ord(name) + k for name in names])
        if k % 7 == 6:
            rig.frame("top", k * 5)
    assert len(rig.matches) >= 42
    for match in rig.matches:
        k = (match.stamp_ns - T0) // MS // 5
        assert match.positions.tolist() == [ord(name) + k for name in "abcdefgh"]


def test_ever_new_sets_of_names_stay_bounded():
    rig = Rig(cameras=("top",), joints=tuple("abcdefgh"))
    for k in range(1, 256):
        names = tuple(name for bit, name in enumerate("abcdefgh") if k >> bit & 1)
        rig.joint(k, names=(*names, f"stranger{k}"))
    rig.frame("top", 255)
    rig.take(at=300)
    assert len(rig.matches) == 1
    assert len(rig.sync._joints._publishers) <= 16 and len(rig.sync._joints._orders) <= 64


def test_buffers_are_bounded_and_open_reference_frames_too():
    rig = Rig(max_wait_ns=100_000, joint_messages=50, frames=4)
    for k in range(500):
        rig.joint(k)
        rig.frame("top", k)
        rig.frame("left", k)
    assert rig.sync.refused == 496 and "wait already" in rig.sync.problem
    assert all(len(stream._payloads) <= 4 for stream in rig.sync._cameras.values())


def test_payloads_are_never_looked_at():
    class Sealed:
        def __getattr__(self, name):
            raise AssertionError("opened")

    rig = Rig(cameras=("top",))
    rig.joint(10)
    sealed = Sealed()
    (match,) = rig.frame("top", 10, payload=sealed) or rig.take(at=40)
    assert match.frames["top"] is sealed


def test_a_forward_jump_recovers_without_a_reset():
    rig = Rig()
    rig.run(500)
    rig.matches.clear()
    rig.run(101_000, start=100_500)
    assert len(rig.matches) > 10 and rig.sync.resets == 0


def test_one_wild_stamp_recovers():
    rig = Rig()
    rig.run(500)
    rig.frame("left", 1e9, at=500)
    rig.matches.clear()
    rig.now = 500
    rig.run(1500, start=510)
    assert rig.sync.resets == 1 and len(rig.matches) > 20


def test_an_unknown_camera_is_refused():
    with pytest.raises(ValueError, match="no camera 'rear'; cameras: top, left, right"):
        Rig().frame("rear", 0)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"cameras": ()}, "at least one camera"),
        ({"cameras": ("top", "")}, "none without a name"),
        ({"cameras": ("top", "left", "top")}, "camera top is named more than once in top, left, top"),
        ({"cameras": ("top", "joint_states")}, "no camera can be called 'joint_states'"),
        ({"reference": "rear"}, "reference 'rear' is not a camera; cameras: top, left, right"),
        ({"joints": ()}, "at least one joint"),
        ({"joints": ("a", "b", "a")}, "joint a is named more than once in a, b, a"),
        ({"max_age_ns": {"rear": 5}}, "max_age_ns names rear; sources: top, left, right, joint_states"),
        ({"max_age_ns": {"top": 0}}, "max_age_ns of top must be positive, got 0"),
        ({"slop_ns": -1}, "slop_ns must not be negative, got -1"),
        ({"frames": 0}, "frames must be positive, got 0"),
    ],
)
def test_bad_configurations(change, words):
    with pytest.raises(ValueError, match=words):
        SyncConfig(**{"cameras": CAMERAS, "reference": "top", "joints": JOINTS, **change})
