"""joint_command as a process over real DDS, between a policy made of messages and a small pair of fake arms."""

from __future__ import annotations

import array
import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from builtin_interfaces.msg import Duration, Time
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus
from ros_process import NodeProcess, Probe, claim_domain, status_of, values_of
from rosgraph_msgs.msg import Clock
from sensor_msgs.msg import JointState
from std_msgs.msg import Bool, Float64MultiArray
from std_srvs.srv import Trigger
from trajectory_msgs.msg import JointTrajectory, JointTrajectoryPoint
from vag_interfaces.msg import ActionChunk, JointCommandStatus

from vag_policy.nodes import joint_command_parameters as parameters
from vag_policy.nodes import scheduling
from vag_policy.nodes.common import LATCHED, SENSOR
from vag_policy.nodes.messages import plan_to_msg, stamp_from_ns
from vag_policy.policy import Plan
from vag_policy.robots import yam

SHARED_DOMAIN, DOMAIN = (
    claim_domain(),
    claim_domain(),
)  # one node lives through many tests, and others come and go beside it
SECOND = 1_000_000_000
PERIOD = SECOND // 30
NAMES = yam.JOINT_NAMES
GRIPPERS = list(yam.GRIPPER_INDICES)
HOME = yam.POSES["home"]
BOW = HOME + np.where(np.isin(np.arange(14), GRIPPERS), -0.4, 0.15)
TOPICS = [f"{arm}_{part}_controller/joint_trajectory" for arm in yam.ARMS for part in ("arm", "gripper")]
# A busy machine may starve the fake arms for 0.2 s, the real timeout: that one is tested on a clock made by hand.
QUICK = {"arm_on_start": True, "ramp_time": 0.3, "home_time": 0.5, "feedback_timeout": 0.6}
COMMAND = ["-m", "vag_policy.nodes.joint_command_node"]


class Arms(Probe):
    """Fake drivers of two arms (they follow their commands with a lag) and the rest of the graph."""

    def __init__(self, domain: int, names=NAMES, commands=True, stamp_ns=time.time_ns) -> None:
        super().__init__(domain)
        self.lock = threading.Lock()
        self.names = names
        self.silent: set[str] = set()
        self.stamp_ns = stamp_ns
        self.pose = HOME.copy()
        self.target = HOME.copy()
        # when it was written (time.time) and the whole target in rad and 0..1
        self.commands: list[tuple[float, np.ndarray]] = []
        self.messages: list[JointTrajectory] = []
        self.replan = 0
        self.episode = time.time_ns() // 1_000_000
        self.status = self.collect(JointCommandStatus, "joint_command/status", LATCHED)
        self.diagnostics = self.collect(DiagnosticArray, "/diagnostics")
        if commands:
            for topic in TOPICS:
                self.node.create_subscription(JointTrajectory, topic, self._on_command, 50)
        self._states = self.node.create_publisher(JointState, "joint_states", SENSOR)
        self._chunks = self.node.create_publisher(ActionChunk, "action_chunk", 1)
        self._teleop = self.node.create_publisher(JointTrajectory, "teleop/joint_command", 10)
        self._stop = self.node.create_publisher(Bool, "emergency_stop", 10)
        self._timer = self.node.create_timer(0.01, self._step)

    def _on_command(self, message: JointTrajectory, info: dict) -> None:
        with self.lock:
            self.messages.append(message)
            for name, position in zip(message.joint_names, message.points[0].positions, strict=True):
                index = NAMES.index(name)
                self.target[index] = position / yam.STROKE if index in GRIPPERS else position
            if "right_joint7" in message.joint_names:  # the last of the four of one command
                self.commands.append((info["source_timestamp"] / 1e9, self.target.copy()))

    def _step(self) -> None:
        with self.lock:
            self.pose += 0.2 * (self.target - self.pose)
            raw = self.pose.copy()
        raw[GRIPPERS] *= yam.STROKE
        spoken = [(n, float(p)) for n, p in zip(self.names, raw, strict=True) if n not in self.silent]
        message = JointState(name=[n for n, _ in spoken], position=[p for _, p in spoken])
        message.header.stamp = stamp_from_ns(self.stamp_ns())
        self._states.publish(message)

    def put(self, pose) -> None:
        """Carry the arms somewhere."""
        with self.lock:
            self.pose[:] = self.target[:] = pose

    def send(self, target, age_s=0.0, **changes) -> np.ndarray:
        """Publish a chunk: a straight line from the arms to ``target``, or the actions (A, 14) themselves."""
        target = np.asarray(target, float)
        actions = np.linspace(self.pose, target, 50) if target.ndim == 1 else target
        fields = {
            "observation_stamp_ns": self.stamp_ns() - int(age_s * 1e9),
            "episode": self.episode,
            "replan": self.replan,
            "instruction": "",
            "actions": actions,
            "names": NAMES,
            "period_ns": PERIOD,
            "execute": 30,
        }
        self.replan += 1
        self._chunks.publish(plan_to_msg(Plan(**(fields | changes))))
        return actions

    def stop_policy(self) -> None:
        self._chunks.publish(ActionChunk())

    def teleop(self, names, positions) -> None:
        points = [JointTrajectoryPoint(positions=[float(p) for p in positions])]
        self._teleop.publish(JointTrajectory(joint_names=list(names), points=points))

    def emergency_stop(self, pressed=True) -> None:
        self._stop.publish(Bool(data=pressed))

    def ask(self, what: str) -> tuple[bool, str]:
        response = self.call(Trigger, f"joint_command/{what}")
        return response.success, response.message

    def until(self, mode: str, reason: str = "", seconds: float = 20.0) -> JointCommandStatus:
        """The first status from now on with that mode, and those words in its reason."""
        start = max(len(self.status) - 1, 0)

        def found():
            return next((s for s in self.status[start:] if s.mode == mode and reason in s.reason), None)

        try:
            return self.wait(found, f"mode {mode} ({reason})", seconds)
        except AssertionError as error:
            seen = [f"{s.mode}: {s.reason}" for s in self.status[-5:]]
            raise AssertionError(f"{error}; the last were {seen}") from None

    def ready(self) -> None:
        for publisher in (self._states, self._chunks, self._teleop, self._stop):
            self.wait(publisher.get_subscription_count, publisher.topic_name)
        self.until("hold")

    def check(self, name: str, level: bytes, words: str = "") -> DiagnosticStatus:
        """The first diagnostic from now on of that level, with those words."""
        start = len(self.diagnostics)

        def found():
            status = status_of(self.diagnostics[start:], f"joint_command: {name}")
            return status if status and status.level == level and words in status.message else None

        return self.wait(found, f"a diagnostic '{name}' with '{words}'")

    def course(self, since: float) -> tuple[np.ndarray, np.ndarray]:
        """(T,) times and (T, 14) commands written since a time."""
        with self.lock:
            chosen = [(t, c) for t, c in self.commands if t >= since]
        return np.array([t for t, _ in chosen]), np.array([c for _, c in chosen])

    def held(self) -> bool:
        """Whether, once they have braked, the arms get the same command again and again."""
        time.sleep(0.15)
        since = time.time()
        self.wait(lambda: len(self.course(since)[0]) > 20, "commands")
        return np.ptp(self.course(since)[1], axis=0).max() == 0.0


def check_within_limits(times: np.ndarray, commands: np.ndarray) -> None:
    """Positions inside the limits, and speeds below 1 per second: over ten commands, by when they were written."""
    assert (commands >= yam.LOWER - 1e-9).all()
    assert (commands <= yam.UPPER + 1e-9).all()
    moved = np.abs(commands[10:] - commands[:-10]).max(axis=1)
    assert (moved <= 1.0 * (times[10:] - times[:-10]) + 0.04).all()  # a late tick may move for four periods


@contextlib.contextmanager
def running(folder: Path, domain: int = DOMAIN, arms: dict | None = None, command=COMMAND, **values):
    """A joint_command process and arms around it."""
    with NodeProcess(command, folder, domain, QUICK | values) as process, Arms(domain, **(arms or {})) as probe:
        try:
            yield process, probe
        except AssertionError as error:
            raise AssertionError(f"{error}\nlog of the node:\n{process.log()}") from error


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    with running(tmp_path_factory.mktemp("joint_command"), SHARED_DOMAIN) as (process, arms):
        arms.ready()
        yield process, arms


@pytest.fixture
def arms(shared):
    """The shared node: armed, holding, a new episode; its log is shown where a test fails."""
    process, arms = shared
    arms.silent = set()
    arms.episode += 1
    arms.replan = 0
    arms.ask("reset_stop")
    arms.wait(lambda: arms.ask("arm")[0], "armed arms")

    def idle():
        arms.stop_policy()
        time.sleep(0.05)
        return (arms.status[-1].mode, arms.status[-1].reason) == ("hold", "the policy was stopped")

    arms.wait(idle, "idle arms")
    time.sleep(0.05)  # what is observed from here on is from after the stop
    try:
        yield arms
    except AssertionError as error:
        raise AssertionError(f"{error}\nlog of the node:\n{process.log()}") from error


def test_a_chunk_reaches_the_arms_within_limits_and_the_arms_hold_when_it_is_executed(arms):
    start = time.time()
    actions = arms.send(BOW)
    arms.until("ramp")
    status = arms.until("policy")
    assert status.queue_depth > 20
    assert status.episode == arms.episode
    status = arms.until("hold", "chunk executed")
    times, commands = arms.course(start)
    assert commands[-1] == pytest.approx(actions[29], abs=2e-3)
    assert arms.pose == pytest.approx(actions[29], abs=0.05)
    check_within_limits(times, commands)
    assert len(times) <= 100 * (times[-1] - times[0]) + 5
    assert arms.held()
    status = arms.until("hold", "no new chunk for over 1 s")
    assert status.misses > 50
    assert (status.chunks, status.limit_violations) == (1, 0)
    assert arms.check("execution", DiagnosticStatus.STALE, "no new chunk")
    assert status.joint_names == list(NAMES)
    assert np.array(status.command) == pytest.approx(arms.course(start)[1][-1])  # the arms hold since
    assert np.array(status.measured) == pytest.approx(arms.pose, abs=0.02)


def test_field_case_23_points_are_stamped_0_and_lie_in_the_future(arms):
    start = len(arms.messages)
    arms.wait(lambda: len(arms.messages) > start + 4, "commands")
    for message in arms.messages[-4:]:
        assert message.header.stamp == Time()
        assert len(message.points) == 1
        assert message.points[0].time_from_start == Duration(sec=0, nanosec=30_000_000)


def test_grippers_are_commanded_in_metres_of_one_finger(arms):
    arms.put(HOME)
    arms.send(np.tile(np.where(np.isin(np.arange(14), GRIPPERS), 0.5, HOME), (50, 1)))
    arms.until("hold", "chunk executed")
    sent = {m.joint_names[0]: m.points[0].positions[0] for m in arms.messages[-4:] if len(m.joint_names) == 1}
    assert sent == pytest.approx({"left_joint7": 0.02375, "right_joint7": 0.02375}, abs=1e-5)


def test_field_case_11_a_nan_chunk_holds_the_arms_and_is_an_error(arms):
    arms.send(BOW)
    arms.until("policy")
    actions = np.tile(BOW, (50, 1))
    actions[7, 10] = np.nan
    arms.send(actions)
    status = arms.until("hold", "action 7 of right_joint4 is nan")
    assert status.rejected >= 1
    assert arms.check("execution", DiagnosticStatus.ERROR, "right_joint4 is nan")
    assert arms.held()
    assert values_of(arms.check("chunks", DiagnosticStatus.OK))["refused: not_finite"] == "1"


def test_wrong_joint_names_are_refused_by_name(arms):
    arms.send(BOW, names=("left_elbow", *NAMES[1:]))
    arms.until("hold", "unknown joints left_elbow; no actions for left_joint1")


def test_silent_joints_hold_the_arms_and_the_diagnostic_names_them(arms):
    arms.send(HOME)
    arms.until("policy")
    silent_from = time.monotonic()
    arms.silent = set(NAMES[7:])
    arms.until("hold", "no joint_states of right_joint1, right_joint2")
    assert 0.5 < time.monotonic() - silent_from < 1.5
    assert arms.check("joint_states", DiagnosticStatus.STALE, "right_joint7")
    assert arms.check("execution", DiagnosticStatus.ERROR, "no joint_states of right_joint1")
    arms.silent = set()
    arms.until("hold", "joint_states are back")
    time.sleep(0.05)
    arms.send(HOME)
    arms.until("policy")


def test_the_emergency_stop_is_latched(arms):
    arms.send(BOW)
    arms.until("policy")
    arms.emergency_stop()
    arms.emergency_stop(pressed=False)  # letting go of a button resets nothing, however short it was pressed
    status = arms.until("stopped", "called by topic")
    assert status.emergency_stop
    arms.send(BOW)
    assert arms.ask("home") == (False, "the emergency stop is latched (called by topic)")
    assert arms.ask("arm")[0] is False
    assert arms.held()
    assert arms.status[-1].mode == "stopped"
    assert arms.ask("reset_stop") == (True, "reset; the arms are disarmed")
    arms.until("disarmed", "arm to go on")
    assert arms.ask("reset_stop") == (False, "no emergency stop is latched: nothing to reset, the arms stay disarmed")
    assert arms.ask("arm") == (True, "armed")
    arms.until("hold")
    assert arms.ask("emergency_stop")[0]
    arms.until("stopped", "called by service")


def test_a_best_effort_button_stops_too(arms):
    arms.send(BOW)
    arms.until("policy")
    button = arms.node.create_publisher(Bool, "emergency_stop", SENSOR)
    try:
        arms.wait(button.get_subscription_count, "a subscription that takes best effort")
        # pressed until it is heard, as its sender should: one message that is sent as best effort may be lost
        arms.wait(lambda: button.publish(Bool(data=True)) or arms.status[-1].emergency_stop, "a stop")
        arms.until("stopped", "called by topic")
    finally:
        arms.node.destroy_publisher(button)


def test_disarmed_arms_get_no_commands(arms):
    assert arms.ask("disarm")[0]
    arms.until("disarmed")
    time.sleep(0.2)
    count = len(arms.messages)
    arms.send(BOW)
    time.sleep(0.3)
    assert len(arms.messages) == count
    assert not arms.status[-1].armed


def test_home_is_a_slow_move(arms):
    assert arms.ask("home") == (True, "on the way home")
    arms.until("home")
    arms.until("hold", "at home")
    assert arms.pose == pytest.approx(HOME, abs=0.05)


def test_teleop_takes_over_from_a_policy_and_hands_back(arms):
    arms.send(HOME)
    arms.until("policy")
    aside = HOME[0] + 0.2
    timer = arms.node.create_timer(0.03, lambda: arms.teleop([NAMES[0]], [aside]))
    arms.until("teleop")
    arms.wait(lambda: abs(arms.pose[0] - aside) < 0.01, "the operator's pose")
    arms.node.destroy_timer(timer)
    arms.until("hold", "teleop let go")


def test_field_case_18_an_empty_chunk_stops_what_is_executed(arms):
    arms.send(BOW)
    arms.until("policy")
    arms.stop_policy()
    arms.until("hold", "the policy was stopped")
    assert arms.held()


def test_a_malformed_chunk_is_refused(arms):
    message = ActionChunk(joint_names=list(NAMES), horizon=50, execute=30, actions=[0.0])
    message.header.stamp = stamp_from_ns(time.time_ns())
    arms._chunks.publish(message)
    arms.until("hold", "needs 700 numbers, got 1")


def test_absurd_messages_are_refused_by_name_and_the_node_goes_on(arms):
    crowd = JointState(name=[f"joint_{k}" for k in range(20_000)], position=array.array("d", bytes(8 * 20_000)))
    crowd.header.stamp = stamp_from_ns(time.time_ns())
    again = arms.node.create_timer(0.2, lambda: arms._states.publish(crowd))  # best effort: one may be lost
    assert arms.check("joint_states", DiagnosticStatus.WARN, "bytes on 'joint_states', allowed: 131072")
    arms.node.destroy_timer(again)
    for rows, words in ((15_000, "horizon is 15000, allowed: at most 10000"), (30_000, "bytes on 'action_chunk'")):
        arms.send(np.tile(HOME, (rows, 1)))
        arms.until("hold", words)
    arms.teleop([f"joint_{k}" for k in range(20_000)], np.zeros(20_000))
    arms.check("chunks", DiagnosticStatus.WARN, "teleop")
    arms.send(HOME)
    arms.until("policy")


def test_async_seams_are_smooth_far_starts_are_refused_and_resets_are_held(tmp_path):
    with running(tmp_path, mode="async", start_check="refuse", displaced="rehold") as (process, arms):
        arms.ready()
        assert "INFO" in process.log()  # a healthy start is calm
        assert "ERROR" not in process.log()
        assert "waiting for joint_states" in process.log()
        far = HOME.copy()
        far[8] += 0.5
        arms.send(np.tile(far, (50, 1)))
        arms.until("hold", "right_joint2")
        assert "over 0.2 rad" in arms.status[-1].reason
        # a policy that changes its mind every 0.3 s
        start = time.time()
        arms.send(HOME)
        arms.until("policy")
        for turn in range(6):
            arms.send(HOME + np.where(np.isin(np.arange(14), GRIPPERS), 0.0, 0.2 * (-1) ** turn))
            time.sleep(0.3)
        assert all(s.mode == "policy" for s in arms.status[-4:])
        times, commands = arms.course(start)
        check_within_limits(times, commands)
        assert np.ptp(commands[:, 0]) > 0.02
        # no new chunk: it runs on for its grace, then the arms hold
        arms.until("hold", "chunk executed")
        # a simulator puts the arms back to their start
        arms.put(yam.POSES["rest"])
        put = time.time()
        status = arms.until("hold", "silent until the arms stand")
        assert "jumped between two joint_states" in status.reason
        assert not len(status.command)
        arms.until("hold", "the arms stand where they were found")
        assert arms.held()
        times, commands = arms.course(put + 0.1)  # one on its way at that moment may still reach the arms
        assert times[0] > put + 0.3
        assert np.ptp(commands, axis=0).max() == 0.0
        assert arms.pose == pytest.approx(commands[-1], abs=0.01)


# So little that braking can be told from stopping dead, however busy the machine is.
GENTLE = 0.6


def set_in_motion(arms: Arms) -> None:
    """A chunk that lasts longer than it takes to interrupt it, until it is under way."""
    moved = HOME + np.where(np.isin(np.arange(14), GRIPPERS), 0.0, 1.5)
    arms.send(np.linspace(HOME, moved, 300), execute=290)

    def speed() -> float:
        times, commands = arms.course(0.0)
        return len(times) > 10 and np.abs(commands[-1] - commands[-11]).max() / (times[-1] - times[-11])

    arms.wait(lambda: speed() > 0.1, "arms in motion")


def check_braked(arms: Arms) -> None:
    """Whoever brakes at a is never farther from standing than a t^2 / 2; a tick may be some milliseconds off."""
    arms.until("disarmed", "shutting down")
    times, commands = arms.course(0.0)
    away = np.abs(commands - commands[-1]).max(axis=1)
    before_s = times[np.argmax(away < 1e-9)] - times  # the hold was sent
    assert (away <= 0.5 * GENTLE * (before_s + 0.03) ** 2)[(before_s >= 0.0) & (before_s < 0.2)].all()
    assert away[before_s > 0.0].max() > 0.02


def test_field_case_17_an_interrupted_node_brakes_and_sends_a_hold_last(tmp_path):
    with running(tmp_path, acceleration=GENTLE) as (process, arms):
        arms.ready()
        set_in_motion(arms)
        assert process.stop(signal.SIGINT) == 0
        check_braked(arms)
        said = [line for line in process.log().splitlines() if "pace" not in line]
        assert len(said) < 10
        assert "ERROR" not in process.log()


def test_a_node_that_fails_holds_the_arms_and_ends_loudly(tmp_path):
    script = (
        "from vag_policy.nodes import common, joint_command_node as node\n"
        "def fail(self, message): raise MemoryError('no room for a teleop target')\n"
        "node.JointCommand._on_teleop = fail\n"
        "common.main_of(node.JointCommand)()"
    )
    with running(tmp_path, command=["-c", script], acceleration=GENTLE) as (process, arms):
        arms.ready()
        set_in_motion(arms)
        arms.teleop([NAMES[0]], [0.0])
        assert process.wait() == 1
        assert "no room for a teleop target" in process.log()
        check_braked(arms)


def test_field_case_19_without_a_clock_nothing_is_executed_and_a_jump_back_flushes(tmp_path):
    now_ns = [0]
    with running(tmp_path, arms={"stamp_ns": lambda: now_ns[0]}, use_sim_time=True) as (process, arms):
        clock = arms.node.create_publisher(Clock, "/clock", 10)
        assert arms.check("joint_states", DiagnosticStatus.STALE, "never named all 14 joints")
        assert process.log().count("stamped 0") == 1  # once, not with every message
        assert arms.status[-1].mode == "disarmed"
        arms._chunks.publish(ActionChunk(joint_names=list(NAMES), horizon=1, execute=1, actions=[0.0] * 14))
        arms.wait(lambda: arms.status[-1].rejected == 1, "a refusal")
        began = time.monotonic_ns()
        offset = [1_000 * SECOND]

        def run_clock():
            now_ns[0] = time.monotonic_ns() - began + offset[0]
            clock.publish(Clock(clock=stamp_from_ns(now_ns[0])))

        timer = arms.node.create_timer(0.01, run_clock)
        arms.until("hold")
        time.sleep(0.3)
        arms.send(HOME)
        arms.until("policy")
        offset[0] = 10 * SECOND
        arms.until("hold", "time went back")
        time.sleep(0.3)
        arms.send(HOME, episode=1)
        arms.until("policy")
        # the watchdog does not need the clock
        arms.node.destroy_timer(timer)
        arms.until("hold", "no joint_states of all 14 joints")


def test_other_drivers_names_units_and_interface(tmp_path):
    driver_names = tuple(f"l{i}" for i in range(7)) + tuple(f"r{i}" for i in range(7))
    options = {
        "command_interface": "forward",
        "gripper_in_arm": True,
        "gripper_units": "normalised",
        "driver_joint_names": list(driver_names),
        "rate": 50.0,
    }
    with running(tmp_path, arms={"names": driver_names, "commands": False}, **options) as (_, arms):
        received = arms.collect(Float64MultiArray, "right_forward_controller/commands")
        arms.ready()
        arms.wait(lambda: len(received) > 3, "forward commands")
        assert list(received[-1].data) == pytest.approx(HOME[7:], abs=1e-9)  # the gripper is 1, not 0.0475
        assert received[-1].layout.dim[0].label == "r0,r1,r2,r3,r4,r5,r6"
        assert "right_gripper_controller" not in str(arms.node.get_topic_names_and_types())


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"mode": "fast"}, "allowed: blocking, async"),
        ({"velocity": 9.0}, "'velocity' is 9.0; allowed: 0.05 to 3.0"),
        ({"home_pose": [0.0, 9.0, 0.0, 0.0, 0.0, 0.0, 1.0]}, "left_joint2 is 9.0; allowed: 0 to 3.66519"),
        ({"home_pose": [0.0, 0.0, 0.0]}, "7 numbers (six joints, gripper), got 3"),
        ({"arms": ["left", "middle"]}, "no arm 'middle'; the rig has: left, right"),
    ],
)
def test_bad_parameters_end_the_node_with_a_clear_sentence(tmp_path, values, words):
    with NodeProcess(COMMAND, tmp_path, DOMAIN, values) as process:
        assert process.wait() == 2
        assert words in process.log()
        assert "Traceback" not in process.log()


def test_the_node_imports_no_torch_mujoco_or_opencv():
    script = (
        "import sys, vag_policy.nodes.joint_command_node; "
        "print(*{m.split('.')[0] for m in sys.modules} & {'torch', 'mujoco', 'cv2', 'diffusers', 'scipy'})"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def test_priorities_that_are_not_granted_are_no_failure(monkeypatch):
    def refuse(*_):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr("os.sched_setscheduler", refuse)
    assert scheduling.ask_for_priority(0, 0) == ""
    assert scheduling.ask_for_priority(0, 50) == "nice 0, SCHED_FIFO 50: Operation not permitted"


def test_short_slices_leave_policy_and_niceness_as_they_are():
    script = (
        "import os; from vag_policy.nodes.scheduling import ask_for_short_slices; os.nice(3); ask_for_short_slices(); "
        "print(os.sched_getscheduler(0) == os.SCHED_OTHER, os.getpriority(os.PRIO_PROCESS, 0))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    before = os.getpriority(os.PRIO_PROCESS, 0)
    assert done.stdout.split() == ["True", str(min(before + 3, 19))]


def test_every_parameter_says_what_it_is():
    for param in parameters.PARAMETERS:
        assert param.description, param.name
        assert param.check(param.default) == "", param.name
