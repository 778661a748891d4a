"""The policy node as a process over real DDS, around a small policy whose behaviour is in the instruction."""

from __future__ import annotations

import contextlib
import signal
import time
from pathlib import Path

import numpy as np
import policy_under_test as small
import pytest
from action_msgs.msg import GoalStatus
from builtin_interfaces.msg import Duration
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus
from lifecycle_msgs.msg import State, Transition
from lifecycle_msgs.srv import ChangeState, GetState
from rcl_interfaces.msg import Parameter, ParameterType, ParameterValue
from rcl_interfaces.srv import SetParameters
from rclpy.action import ActionClient
from ros_process import NodeProcess, Probe, claim_domain, status_of, values_of
from rosgraph_msgs.msg import Clock
from sensor_msgs.msg import Image
from std_msgs.msg import String
from std_srvs.srv import Trigger
from vag_interfaces.action import RunEpisode
from vag_interfaces.msg import ActionChunk, JointCommandStatus, PolicyTrace
from vag_interfaces.msg import Observation as ObservationMsg

from vag_policy.nodes.common import LATCHED
from vag_policy.nodes.messages import ns_from_stamp, observation_to_msg, plan_from_msg, stamp_from_ns
from vag_policy.observation.observation import JOINT_SOURCE, Observation

SHARED_DOMAIN, DOMAIN = (
    claim_domain(),
    claim_domain(),
)  # one node lives through many tests, and others come and go beside it
SECOND = 1_000_000_000
SCRIPT = str(Path(small.__file__))


def observation(stamp_ns: int, brightness=(50, 200), cameras=small.CAMERAS, age_ns: int = 0) -> ObservationMsg:
    width, height = small.SIZE
    image = np.zeros((height, width, 3), np.uint8)
    image[:, : width // 2], image[:, width // 2 :] = brightness
    return observation_to_msg(
        Observation(
            stamp_ns=stamp_ns,
            image=image,
            camera_names=cameras,
            state=np.zeros(2, np.float32),
            state_names=small.NAMES,
            source_stamp_ns={**dict.fromkeys(cameras, stamp_ns), JOINT_SOURCE: stamp_ns - age_ns},
            age_ns={**dict.fromkeys(cameras, 0), JOINT_SOURCE: age_ns},
        ),
        "top_camera_optical_frame",
    )


class Rig(Probe):
    """A probe that plays camera_sync and the operator."""

    def __init__(self, domain: int) -> None:
        super().__init__(domain)
        self.chunks = self.collect(ActionChunk, "action_chunk")
        self.traces = self.collect(PolicyTrace, "policy_trace")
        self.diagnostics = self.collect(DiagnosticArray, "/diagnostics")
        self._observations = self.node.create_publisher(ObservationMsg, "observation", 1)
        self._instructions = self.node.create_publisher(String, "instruction", 1)
        self._clock = self.node.create_publisher(Clock, "/clock", 1)
        self.arms = self.node.create_publisher(JointCommandStatus, "joint_command/status", LATCHED)
        self._client = ActionClient(self.node, RunEpisode, "run_episode")
        self._feed = None
        self.feedback: list[RunEpisode.Feedback] = []

    def show(self, **how) -> int:
        """Publish one observation stamped now (or ``stamp_ns``)."""
        stamp_ns = how.pop("stamp_ns", None) or time.time_ns()
        self._observations.publish(observation(stamp_ns, **how))
        return stamp_ns

    def stream(self, **how) -> None:
        """Publish observations at 50 Hz until the next ``stream`` or ``still``."""
        self.still()
        self._feed = self.node.create_timer(0.02, lambda: self.show(**dict(how)))

    def still(self) -> None:
        if self._feed is not None:
            self.node.destroy_timer(self._feed)
            self._feed = None

    def clock(self, now_ns: int) -> None:
        self._clock.publish(Clock(clock=stamp_from_ns(now_ns)))

    def instruct(self, text: str) -> None:
        self._instructions.publish(String(data=text))

    def state(self) -> str:
        return self.call(GetState, "policy/get_state").current_state.label

    def change(self, transition: int) -> bool:
        return self.call(
            ChangeState, "policy/change_state", ChangeState.Request(transition=Transition(id=transition))
        ).success

    def ready(self) -> None:
        self.wait(lambda: self.state() == "active", "an active policy")
        for publisher in (self._observations, self._instructions):
            self.wait(publisher.get_subscription_count, publisher.topic_name)
        self.wait(lambda: self.node.count_publishers("action_chunk"), "action_chunk")

    def next_chunk(self, of=lambda chunk: True) -> ActionChunk:
        """The next chunk from now on that is as asked for."""
        start = len(self.chunks)
        self.wait(lambda: any(map(of, self.chunks[start:])), "a chunk")
        return next(chunk for chunk in self.chunks[start:] if of(chunk))

    def quiet(self, seconds: float = 0.3) -> bool:
        """Whether no chunk comes for that long."""
        count = len(self.chunks)
        time.sleep(seconds)
        return len(self.chunks) == count

    def status(self, name: str, of) -> DiagnosticStatus:
        """The first diagnostic status from now on that is as asked for."""
        start = len(self.diagnostics)

        def found():
            status = status_of(self.diagnostics[start:], f"policy: {name}")
            return status if status is not None and of(status) else None

        try:
            return self.wait(found, f"a status of '{name}'")
        except AssertionError as error:
            raise AssertionError(f"{error}; the last was {status_of(self.diagnostics, name)}") from None

    def goal(self, instruction: str, seconds: float = 0.0, max_replans: int = 0):
        """Send a goal; return its handle."""
        self.wait(self._client.server_is_ready, "run_episode")
        self.feedback = []
        goal = RunEpisode.Goal(instruction=instruction, max_replans=max_replans)
        goal.timeout = Duration(sec=int(seconds), nanosec=int(seconds % 1 * 1e9))
        # From the thread that spins: an answer that comes before rclpy has noted the request would be dropped.
        sent = self._executor.create_task(
            lambda: self._client.send_goal_async(goal, feedback_callback=lambda m: self.feedback.append(m.feedback))
        )
        return self.done(self.done(sent, "a goal on its way"), "an answer to the goal")

    def set_parameter(self, name: str, value) -> tuple[bool, str]:
        kind = {str: ParameterType.PARAMETER_STRING, float: ParameterType.PARAMETER_DOUBLE}[type(value)]
        wrapped = ParameterValue(type=kind)
        setattr(wrapped, {str: "string_value", float: "double_value"}[type(value)], value)
        request = SetParameters.Request(parameters=[Parameter(name=name, value=wrapped)])
        (result,) = self.call(SetParameters, "policy/set_parameters", request).results
        return result.successful, result.reason


@contextlib.contextmanager
def running(folder: Path, domain: int = DOMAIN, **parameters):
    """A policy process and a rig around it."""
    with NodeProcess([SCRIPT], folder, domain, parameters) as process, Rig(domain) as rig:
        try:
            yield process, rig
        except AssertionError as error:
            raise AssertionError(f"{error}\nlog of the node:\n{process.log()}") from error


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """One active node in async mode for the tests that leave it as they found it."""
    parameters = {"mode": "async", "min_replan_period": 0.02, "imagined_every": 2}
    with running(tmp_path_factory.mktemp("policy"), SHARED_DOMAIN, **parameters) as (node, rig):
        rig.ready()
        yield node, rig


@pytest.fixture
def rig(shared):
    """The shared node, idle again afterwards; its log is shown where a test fails."""
    node, rig = shared
    try:
        yield rig
    except AssertionError as error:
        raise AssertionError(f"{error}\nlog of the node:\n{node.log()}") from error
    finally:
        rig.still()
        rig.instruct("")
        rig.wait(lambda: rig.quiet(0.1), "an idle policy")


def test_observations_become_chunks_and_traces(rig):
    rig.stream()
    assert rig.quiet(), "planned without an instruction"
    rig.instruct("go")
    chunk = rig.next_chunk()
    plan = plan_from_msg(chunk)
    assert (plan.names, plan.execute, plan.period_ns) == (small.NAMES, small.EXECUTE, small.PERIOD_NS)
    assert chunk.header.frame_id == "top_camera_optical_frame"
    np.testing.assert_allclose(plan.actions[-1], [50 / 255, 200 / 255])
    trace = rig.wait(
        lambda: [t for t in rig.traces if t.replan == chunk.replan and t.episode == chunk.episode], "a trace"
    )
    assert trace[0].header.stamp == chunk.header.stamp
    following = rig.next_chunk()
    assert following.episode == chunk.episode
    assert following.replan > chunk.replan


def test_a_swapped_or_blank_image_changes_the_chunk(rig):
    rig.stream(brightness=(50, 200))
    rig.instruct("go")
    first = plan_from_msg(rig.next_chunk()).actions
    for brightness in ((200, 50), (0, 0)):
        rig.stream(brightness=brightness)
        expected = np.array(brightness) / 255
        chunk = rig.next_chunk(lambda c: np.allclose(plan_from_msg(c).actions[-1], expected))  # noqa: B023
        assert not np.allclose(plan_from_msg(chunk).actions, first)


def test_a_new_instruction_is_a_new_episode_and_an_empty_one_stops(rig):
    rig.stream()
    rig.instruct("go")
    first = rig.next_chunk()
    rig.instruct("go")
    assert rig.next_chunk().episode == first.episode
    rig.instruct("go on")
    second = rig.next_chunk(lambda c: c.instruction == "go on")
    assert (second.episode, second.replan) == (first.episode + 1, 0)
    rig.instruct("  ")
    rig.status("state", lambda s: s.message == "active: no instruction")
    assert rig.quiet()


def test_home_ends_the_episode_and_the_same_instruction_starts_another(rig):
    rig.stream()
    rig.wait(rig.arms.get_subscription_count, "a listener of the arms' status")
    rig.instruct("go")
    first = rig.next_chunk()
    rig.arms.publish(JointCommandStatus(mode="policy", episode=first.episode, chunks=1))
    rig.next_chunk()
    rig.arms.publish(JointCommandStatus(mode="home", chunks=1))
    rig.status("state", lambda s: s.message == "active: no instruction")
    assert rig.quiet()
    for _ in range(3):  # one whose sender repeats it does not send the arms off again
        rig.instruct("go")
        assert rig.quiet(0.5)
    time.sleep(2.1)
    rig.instruct("go")
    again = rig.next_chunk()
    assert (again.episode, again.replan) == (first.episode + 1, 0)
    rig.arms.publish(JointCommandStatus(mode="hold", chunks=1))
    rig.next_chunk()  # that it was sent home before ends nothing now
    rig.instruct("")
    handle = rig.goal("go")
    rig.next_chunk()
    rig.arms.publish(JointCommandStatus(mode="home", chunks=2))
    wrapped = rig.done(handle.get_result_async(), "the result")
    assert (wrapped.status, wrapped.result.message) == (GoalStatus.STATUS_ABORTED, "the arms were sent home")


@pytest.mark.parametrize("length", [2_001, 1_000_000])
def test_an_endless_instruction_is_refused(rig, length):
    before = int(values_of(rig.status("observations", bool)).get("refused: instruction", 0))
    rig.instruct("x" * length)
    counted = f"{before + 1}"
    rig.status("observations", lambda s: values_of(s).get("refused: instruction") == counted)
    assert not rig.goal("x" * length).accepted
    rig.status("state", lambda s: s.message == "active: no instruction")


def test_reset_service_starts_a_new_episode(rig):
    assert "nothing to reset" in rig.call(Trigger, "policy/reset").message
    rig.stream()
    rig.instruct("go")
    before = rig.next_chunk().episode
    response = rig.call(Trigger, "policy/reset")
    assert response.success
    after = rig.next_chunk(lambda c: c.episode == before + 1)
    assert response.message == f"episode {after.episode}"


def test_a_policy_that_raises_is_named_and_recovers(rig):
    rig.stream()
    for error in ("MemoryError", "ZeroDivisionError"):
        rig.instruct(f"raise {error}")
        status = rig.status("replans", lambda s: s.level == DiagnosticStatus.ERROR)
        assert status.message == f"{error}: as told"
        assert int(values_of(status)["failures"]) > 0
        rig.instruct("go")
        rig.next_chunk(lambda c: c.instruction == "go")
        rig.status("replans", lambda s: s.level == DiagnosticStatus.OK)


def test_a_plan_that_is_not_finite_does_not_go_out(rig):
    rig.stream()
    rig.instruct("nan")
    status = rig.status("replans", lambda s: s.level == DiagnosticStatus.ERROR)
    assert "1 of 16 numbers in the plan are not finite" in status.message
    assert not [c for c in rig.chunks if c.instruction == "nan"]


def test_refusals_are_named_and_counted(rig):
    rig.instruct("go")
    rig.stream(age_ns=SECOND)
    status = rig.status("observations", lambda s: s.level == DiagnosticStatus.WARN)
    assert "too old: joint_states is 1.0" in status.message
    assert int(values_of(status)["refused: too old"]) > 0
    assert rig.quiet()
    rig.stream()
    rig.status("observations", lambda s: s.level == DiagnosticStatus.OK)
    rig.still()
    status = rig.status("observations", lambda s: s.level == DiagnosticStatus.STALE)
    assert "stopped" in status.message


def test_a_malformed_observation_is_refused_and_does_not_hurt(rig):
    rig.instruct("go")
    bad = observation(time.time_ns())
    bad.image.encoding = "bgr8"
    rig._observations.publish(bad)
    status = rig.status("observations", lambda s: "malformed" in s.message)
    assert "bgr8" in status.message
    rig.show()
    rig.next_chunk()


def test_diagnostics_say_how_long_replans_take_by_stage(rig):
    rig.stream()
    rig.instruct("go")
    rig.next_chunk()
    values = values_of(rig.status("replans", lambda s: "total_ms" in values_of(s)))
    assert float(values["look_ms"]) == 1.0
    assert float(values["decide_ms"]) == 2.0
    assert float(values["tr"]) > 0.5
    assert {"deadline_misses", "discarded", "tr_0", "guidance_scale"} <= set(values)


def test_services_answer_while_the_policy_thinks(rig):
    rig.stream()
    rig.instruct("sleep 1.5")
    rig.status("state", lambda s: "sleep" in s.message)
    time.sleep(0.1)
    start = time.monotonic()
    assert rig.state() == "active"
    assert rig.set_parameter("w_lang", 0.1)[0]
    assert rig.call(Trigger, "policy/reset").success
    assert time.monotonic() - start < 1.4, "waited for the replan"
    misses = int(values_of(rig.status("replans", lambda s: True))["deadline_misses"])
    rig.wait(lambda: [c for c in rig.chunks if c.instruction == "sleep 1.5"], "the slow chunk")
    later = rig.status("replans", lambda s: int(values_of(s)["deadline_misses"]) > misses)
    assert float(values_of(later)["total_ms"]) > 0


def test_guidance_changes_at_run_time_and_is_validated(rig):
    rig.stream()
    rig.instruct("go")
    rig.next_chunk()
    try:
        assert rig.set_parameter("guidance", "adaptive") == (True, "")
        assert rig.set_parameter("w_lang", 0.75) == (True, "")
        rig.wait(lambda: rig.traces[-1].guidance == "adaptive", "adaptive traces")
        rig.wait(lambda: rig.traces[-1].guidance_scale[0] == 0.75, "the new weight")
        accepted, reason = rig.set_parameter("guidance", "strong")
        assert not accepted
        assert "none, flat, adaptive" in reason
        assert not rig.set_parameter("w_lang", -1.0)[0]
        assert not rig.set_parameter("mode", "blocking")[0], "structural parameters are read-only"
    finally:
        rig.set_parameter("guidance", "none")


def test_imagined_frames_come_when_somebody_looks(rig):
    rig.stream()
    rig.instruct("go")
    rig.next_chunk()
    images = rig.collect(Image, "imagined/image")
    first, second = rig.wait(lambda: images[:2] if len(images) > 1 else None, "imagined images")
    width, height = small.SIZE
    assert (first.width, first.height, first.encoding) == (width, 3 * height, "rgb8")
    rows = np.frombuffer(first.data, np.uint8).reshape(3, height, width, 3)
    assert [int(row.max()) for row in rows] == [0, 40, 80]  # the last video frame of each latent frame
    replans = {ns_from_stamp(t.header.stamp): t.replan for t in rig.traces}
    assert replans[ns_from_stamp(second.header.stamp)] - replans[ns_from_stamp(first.header.stamp)] >= 2


def test_run_episode_gives_feedback_and_ends_after_its_replans(rig):
    rig.stream()
    handle = rig.goal("go", max_replans=3)
    assert handle.accepted
    wrapped = rig.done(handle.get_result_async(), "the result")
    result = wrapped.result
    assert (wrapped.status, result.success, result.replans) == (GoalStatus.STATUS_SUCCEEDED, True, 3)
    last = rig.wait(lambda: rig.feedback[-1] if len(rig.feedback) == 3 else None, "three feedbacks")
    assert (last.episode, last.replans) == (result.episode, 3)
    assert last.ratio > 0.5
    assert last.replan_ms > 0.0
    chunks = [c for c in rig.chunks if c.episode == result.episode]
    assert len(chunks) == 3
    assert ns_from_stamp(result.duration) >= small.EXECUTE * small.PERIOD_NS  # the last chunk had time to run
    assert rig.quiet()


def test_run_episode_timeout_and_a_second_goal(rig):
    rig.stream()
    handle = rig.goal("go", seconds=0.8)
    assert not rig.goal("something else").accepted
    assert not rig.goal(" ").accepted
    rig.instruct("from the topic")  # the goal owns the instruction
    wrapped = rig.done(handle.get_result_async(), "the result")
    assert (wrapped.status, wrapped.result.success) == (GoalStatus.STATUS_SUCCEEDED, True)
    assert ns_from_stamp(wrapped.result.duration) >= 0.8 * SECOND
    assert wrapped.result.replans > 1
    assert not [c for c in rig.chunks if c.instruction == "from the topic"]
    following = rig.goal("again", max_replans=1)
    assert rig.done(following.get_result_async(), "the result of a goal that follows").result.success


def test_run_episode_is_cancelled_while_the_policy_thinks(rig):
    rig.stream()
    handle = rig.goal("sleep 1.5")
    time.sleep(0.2)
    start = time.monotonic()
    response = rig.done(handle.cancel_goal_async(), "an answer to the cancellation")
    assert len(response.goals_canceling) == 1
    wrapped = rig.done(handle.get_result_async(), "the result")
    assert time.monotonic() - start < 1.2, "waited for the replan"
    assert (wrapped.status, wrapped.result.success) == (GoalStatus.STATUS_CANCELED, False)
    assert "cancelled after 0 replans" in wrapped.result.message
    assert rig.quiet(1.6), "the plan under way still went out"


def test_run_episode_ends_when_its_client_has_gone(rig):
    rig.stream()
    rig.goal("go")
    rig.next_chunk()
    rig._client.destroy()
    try:
        rig.status("state", lambda s: s.message == "active: no instruction")
        assert rig.quiet()
    finally:
        rig._client = ActionClient(rig.node, RunEpisode, "run_episode")
    rig.stream()
    assert rig.done(rig.goal("go", max_replans=1).get_result_async(), "the next goal's result").result.success


def test_run_episode_says_why_it_made_no_plan(rig):
    rig.stream()
    refused = rig.done(rig.goal("refuse").get_result_async(), "the result")
    assert refused.status == GoalStatus.STATUS_ABORTED
    assert "no embedding of 'refuse'" in refused.result.message
    rig.stream(age_ns=SECOND)
    rig.status("observations", lambda s: s.level == DiagnosticStatus.WARN)
    starved = rig.done(rig.goal("go", seconds=0.5).get_result_async(), "the result")
    assert starved.status == GoalStatus.STATUS_ABORTED
    assert "too old" in starved.result.message
    rig.stream()
    failing = rig.done(rig.goal("raise OSError", seconds=0.5).get_result_async(), "the result")
    assert "OSError: as told" in failing.result.message


def test_lifecycle_by_service(tmp_path):
    with running(tmp_path, autostart=False, mode="async", checkpoint="slow") as (node, rig):
        assert rig.state() == "unconfigured"
        assert rig.change(Transition.TRANSITION_ACTIVATE) is False, "there is nothing to activate"
        request = ChangeState.Request(transition=Transition(id=Transition.TRANSITION_CONFIGURE))
        client = rig.node.create_client(ChangeState, "policy/change_state")
        rig.wait(client.service_is_ready, "change_state")
        configuring = client.call_async(request)
        rig.wait(lambda: rig.state() == "configuring", "a state while it loads")
        assert rig.change(Transition.TRANSITION_CONFIGURE) is False, "one transition at a time"
        assert rig.done(configuring, "configured").success
        rig.stream()
        rig.instruct("go")
        assert not rig.goal("go").accepted, "inactive"
        assert rig.change(Transition.TRANSITION_ACTIVATE)
        assert rig.change(Transition.TRANSITION_ACTIVATE) is False, "twice"
        assert rig.quiet(), "acted on an instruction from before activation"
        rig.instruct("go")
        first = rig.next_chunk()
        assert rig.change(Transition.TRANSITION_DEACTIVATE)
        assert rig.quiet(), "a chunk after deactivation"
        assert rig.change(Transition.TRANSITION_CLEANUP)
        assert rig.change(Transition.TRANSITION_CONFIGURE)
        assert rig.change(Transition.TRANSITION_ACTIVATE)
        rig.instruct("go")
        again = rig.next_chunk()
        assert again.episode > first.episode
        assert again.replan == 0
        handle = rig.goal("x")
        assert handle.accepted
        assert rig.change(Transition.TRANSITION_ACTIVE_SHUTDOWN)
        assert rig.done(handle.get_result_async(), "the result").status == GoalStatus.STATUS_ABORTED
        assert rig.call(GetState, "policy/get_state").current_state.id == State.PRIMARY_STATE_FINALIZED
        assert node.stop() == 0, node.log()


def test_deactivation_during_a_replan_lets_nothing_out(tmp_path):
    with running(tmp_path, mode="async") as (_node, rig):
        rig.ready()
        rig.stream()
        handle = rig.goal("sleep 0.8")
        time.sleep(0.2)
        assert rig.change(Transition.TRANSITION_DEACTIVATE)
        wrapped = rig.done(handle.get_result_async(), "the result")
        assert wrapped.status == GoalStatus.STATUS_ABORTED
        assert "deactivated" in wrapped.result.message
        assert rig.quiet(1.0)
        assert rig.change(Transition.TRANSITION_ACTIVATE)
        rig.instruct("go")
        assert rig.next_chunk().instruction == "go"


def test_blocking_mode_waits_for_the_chunk_to_run_out(tmp_path):
    with running(tmp_path, mode="blocking", min_replan_period=0.0) as (_node, rig):
        rig.ready()
        rig.stream()
        rig.instruct("go")
        rig.wait(lambda: len(rig.chunks) >= 5, "five chunks")
        stamps = np.array([ns_from_stamp(c.header.stamp) for c in rig.chunks])
        assert np.diff(stamps).min() >= small.EXECUTE * small.PERIOD_NS


def test_ctrl_c_ends_quickly_with_0_even_during_a_replan(tmp_path):
    with running(tmp_path, mode="async") as (node, rig):
        rig.ready()
        rig.stream()
        handle = rig.goal("sleep 60")
        result = handle.get_result_async()
        time.sleep(0.2)
        assert node.stop(signal.SIGINT, patience_s=8.0) == 0, node.log()
        assert "a replan is still running after 1 s" in node.log()
        wrapped = rig.done(result, "the result, before the process ended")
        assert "shutting down" in wrapped.result.message
        # Gone from the graph at once, not when its lease has run out: the participant was taken down properly.
        rig.wait(lambda: not rig.node.count_publishers("action_chunk"), "its publishers to go", seconds=8.0)


def test_stopping_while_the_policy_loads_is_no_error(tmp_path):
    with running(tmp_path, checkpoint="slow 30") as (node, rig):
        rig.wait(lambda: rig.state() == "configuring", "a policy that loads")
        assert node.stop(signal.SIGINT, patience_s=15.0) == 0, node.log()
        assert "stopped while the policy loaded" in node.log()
        assert "ERROR" not in node.log()


def test_sigterm_while_idle(tmp_path):
    with running(tmp_path) as (node, rig):
        rig.ready()
        assert node.stop(signal.SIGTERM, patience_s=8.0) == 0, node.log()


def test_simulated_time_waits_for_the_clock_and_survives_a_jump_back(tmp_path):
    start = 1_000 * SECOND
    with running(tmp_path, use_sim_time=True, mode="async", min_replan_period=0.0) as (_node, rig):
        rig.ready()
        rig.instruct("go")
        rig.status("state", lambda s: s.message == "active: 'go'")
        for step in range(5):
            rig.show(stamp_ns=start + step)
            time.sleep(0.02)
        status = rig.status("observations", lambda s: "no clock" in s.message)
        assert int(values_of(status)["refused: no clock"]) == 5
        assert rig.chunks == []
        rig.wait(lambda: rig._clock.get_subscription_count(), "a listener of /clock")
        now = start

        def play(to_ns: int, brightness=(50, 200)) -> list[ActionChunk]:
            """Simulated time from ``now`` to ``to_ns``, an observation every 0.1 s."""
            nonlocal now
            before = len(rig.chunks)
            while now < to_ns:
                now += SECOND // 10
                rig.clock(now)
                time.sleep(0.01)
                rig.show(stamp_ns=now, brightness=brightness)
                time.sleep(0.02)
            rig.wait(lambda: len(rig.chunks) > before, "a chunk")
            return rig.chunks[before:]

        first = play(start + SECOND)
        episode = first[-1].episode
        assert all(ns_from_stamp(c.header.stamp) > start for c in first)
        baseline = rig.wait(lambda: [t for t in rig.traces if t.episode == episode], "traces")[-1].baseline
        now = start - 500 * SECOND  # a bag that starts again
        again = play(now + SECOND, brightness=(250, 250))
        assert again[0].episode > episode
        assert again[0].replan == 0
        fresh = rig.wait(lambda: [t for t in rig.traces if t.episode == again[0].episode], "traces")[0]
        assert fresh.ratio[0] == fresh.baseline[0] > baseline[0], "TR_0 is that of before the jump"
        rig.show(stamp_ns=start + 900 * SECOND)  # a straggler from before
        status = rig.status("observations", lambda s: "from the future" in s.message)
        assert play(now + SECOND)[-1].episode == again[-1].episode, "a straggler is not a jump"


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"preset": "huge"}, ("preset", "libero, tiny, yam")),
        ({"min_replan_period": 1}, ("min_replan_period", "double", "1.0")),
        ({"presett": "tiny"}, ("presett", "preset")),
    ],
)
def test_a_bad_parameter_ends_the_process_with_2(tmp_path, parameters, words):
    with NodeProcess([SCRIPT], tmp_path, DOMAIN, parameters) as node:
        assert node.wait() == 2, node.log()
        assert "Traceback" not in node.log()
        for word in words:
            assert word in node.log()


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"cameras": ["left_wrist", "top"]}, ("top, left_wrist in this order", "'cameras' is left_wrist, top")),
        ({"checkpoint": "/nowhere"}, ("no checkpoint in /nowhere",)),
    ],
)
def test_what_does_not_fit_is_refused_by_name_before_activation(tmp_path, parameters, words):
    with running(tmp_path, **parameters) as (node, rig):
        status = rig.status("state", lambda s: s.level == DiagnosticStatus.ERROR)
        for word in words:
            assert word in status.message
            assert word in node.log()
        assert rig.state() == "unconfigured"
        assert node.stop() == 0, node.log()
