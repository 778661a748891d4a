"""`vag run` against a graph that has nothing but run_episode."""

import os
import signal
import subprocess
import sys
import threading
import time

import pytest
import rclpy
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus
from rclpy.action import ActionServer, CancelResponse, GoalResponse
from rclpy.callback_groups import ReentrantCallbackGroup
from rclpy.executors import MultiThreadedExecutor
from rclpy.signals import SignalHandlerOptions
from ros_process import PATIENCE_S, claim_domain
from vag_interfaces.action import RunEpisode

from vag_policy.nodes import run_client
from vag_policy.nodes.messages import duration_from_ns
from vag_policy.nodes.run_client import RunClient, RunError

DOMAIN = claim_domain()


class Graph:
    """Serves run_episode: replans until it is cancelled or has made as many as it was asked for."""

    def __init__(self) -> None:
        self.goals: list[RunEpisode.Goal] = []
        self.ends: list[str] = []
        self.state = "active"
        self.fault = ""
        self.deaf = threading.Event()
        self._context = rclpy.Context()
        rclpy.init(context=self._context, domain_id=DOMAIN, signal_handler_options=SignalHandlerOptions.NO)
        self._node = rclpy.create_node("policy", namespace="rig", context=self._context)
        self._server = ActionServer(
            self._node,
            RunEpisode,
            "run_episode",
            self._execute,
            goal_callback=self._on_goal,
            cancel_callback=lambda _: CancelResponse.ACCEPT,
            callback_group=ReentrantCallbackGroup(),
        )
        self._diagnostics = self._node.create_publisher(DiagnosticArray, "/diagnostics", 10)
        self._node.create_timer(0.2, self._diagnose)
        self._executor = MultiThreadedExecutor(2, context=self._context)
        self._executor.add_node(self._node)
        self._thread = threading.Thread(target=self._executor.spin)
        self._thread.start()

    def stop(self) -> None:
        self._executor.shutdown()
        self._thread.join()
        self._server.destroy()
        self._node.destroy_node()
        self._context.try_shutdown()

    def _diagnose(self) -> None:
        mine = DiagnosticStatus(name="rig/policy: state", message=self.state)
        other = DiagnosticStatus(name="other_rig/policy: state", message="somebody else's")
        self._diagnostics.publish(DiagnosticArray(status=[other, mine]))

    def _on_goal(self, goal: RunEpisode.Goal) -> GoalResponse:
        self.goals.append(goal)
        return GoalResponse.ACCEPT if self.state == "active" else GoalResponse.REJECT

    def _execute(self, handle) -> RunEpisode.Result:
        wanted, replans = handle.request.max_replans, 0
        result = RunEpisode.Result(episode=7, duration=duration_from_ns(2_500_000_000))
        while self.deaf.is_set() or not handle.is_cancel_requested and not (wanted and replans >= wanted):
            replans += 1
            numbers = {"replan_ms": 123.4, "ratio": 0.5, "baseline": 0.25, "guidance_scale": 1.0}
            handle.publish_feedback(RunEpisode.Feedback(episode=7, replans=replans, **numbers))
            time.sleep(0.05)
        if handle.is_cancel_requested:
            handle.canceled()
            result.message = "cancelled"
        elif self.fault:
            handle.abort()
            result.message = self.fault
        else:
            handle.succeed()
            result.success, result.message = True, f"{replans} replans"
        self.ends.append(result.message)
        return result


@pytest.fixture(scope="module")
def running():
    graph = Graph()
    yield graph
    graph.stop()


@pytest.fixture
def graph(running):
    running.goals.clear()
    running.ends.clear()
    running.state, running.fault = "active", ""
    return running


def start(*arguments: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "ROS_DOMAIN_ID": str(DOMAIN)}
    environment.pop("_ROS_WHEELS_BOOTSTRAP_COMPLETE", None)
    command = [sys.executable, "-m", "vag_policy.cli", "run", *arguments]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=environment, start_new_session=True)


def vag_run(*arguments: str) -> tuple[int, str, str]:
    with start(*arguments) as process:
        out, err = process.communicate(timeout=PATIENCE_S)
    return process.returncode, out, err


def test_an_episode_is_shown_as_it_runs_and_ends(graph):
    code, out, err = vag_run("fold the towel", "--namespace", "/rig", "--max-replans", "3", "--seconds", "1.5")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == "replan 1: 123 ms, TR 0.500, TR_0 0.250, s 1.000"
    assert len(lines) == 4 and lines[-1] == "episode 7, 2.5 s: 3 replans"
    (goal,) = graph.goals
    assert (goal.instruction, goal.timeout.sec, goal.timeout.nanosec) == ("fold the towel", 1, 500_000_000)


def test_a_fault_is_exit_code_1(graph):
    graph.fault = "1 replans, and 2 that failed"
    code, _, err = vag_run("fold the towel", "--namespace", "rig", "--max-replans", "1")
    assert code == 1 and err == "episode 7, 2.5 s: 1 replans, and 2 that failed\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_ctrl_c_and_the_end_of_the_terminal_cancel(graph, number):
    with start("fold the towel", "--namespace", "rig") as process:
        assert process.stdout.readline().startswith("replan 1")
        process.send_signal(number)
        _, err = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, err) == (130, "episode 7, 2.5 s: cancelled\n")


def test_an_episode_is_not_left_running_where_nobody_reads_on(graph):
    with start("fold the towel", "--namespace", "rig") as process:
        assert process.stdout.readline().startswith("replan 1")
        process.stdout.close()
        assert process.wait(PATIENCE_S) == 1
        assert process.stderr.read() == ""
    deadline = time.monotonic() + PATIENCE_S
    while not graph.ends and time.monotonic() < deadline:
        time.sleep(0.02)
    assert graph.ends == ["cancelled"]


@pytest.mark.parametrize("cancelled", [True, False])
def test_a_policy_that_never_ends_the_episode_is_given_up(graph, monkeypatch, cancelled):
    monkeypatch.setenv("ROS_DOMAIN_ID", str(DOMAIN))
    monkeypatch.setattr(run_client, "_END_S", 0.5)
    graph.deaf.set()
    try:
        with (
            RunClient("rig", lambda _: setattr(client, "cancelled", cancelled)) as client,
            pytest.raises(RunError, match="does not say that the episode has ended"),
        ):
            client.run("fold the towel", seconds=0.0 if cancelled else 0.1, max_replans=0)
    finally:
        graph.deaf.clear()


def test_a_rejection_says_what_the_policy_is(graph):
    graph.state = "inactive: no checkpoint"
    code, out, err = vag_run("fold the towel", "--namespace", "rig")
    assert (code, out) == (2, "")
    assert err == "vag: the policy rejects the episode 'fold the towel'; it is inactive: no checkpoint\n"


def test_a_policy_that_is_still_loading_is_waited_for(graph, monkeypatch):
    monkeypatch.setenv("ROS_DOMAIN_ID", str(DOMAIN))
    monkeypatch.setattr(run_client, "LOADING_S", 3.0)
    monkeypatch.setattr(run_client, "ANSWER_S", PATIENCE_S)  # discovery may be slow
    context, said = rclpy.Context(), []
    rclpy.init(args=[], context=context, domain_id=DOMAIN, signal_handler_options=SignalHandlerOptions.NO)
    loading = rclpy.create_node("policy", namespace="loading", context=context)
    try:
        with (
            run_client.RunClient("loading", said.append) as client,
            pytest.raises(RunError, match="does not answer on"),
        ):
            client.run("fold the towel", seconds=0.0, max_replans=0)
    finally:
        loading.destroy_node()
        context.try_shutdown()
    assert said == ["the policy is there, but does not answer yet: it may still be loading"]


def test_no_graph_is_one_sentence(graph):
    code, out, err = vag_run("fold the towel", "--namespace", "elsewhere")
    assert (code, out) == (2, "") and not graph.goals
    assert err == f"vag: no graph answers on /elsewhere/run_episode in ROS domain {DOMAIN}; vag up yam_sim starts one\n"
