"""A client of ``run_episode`` for the command line: one episode on a graph that runs elsewhere."""

from __future__ import annotations

import math
import os
import signal
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any

import rclpy
from action_msgs.msg import GoalStatus
from diagnostic_msgs.msg import DiagnosticArray
from rclpy.action import ActionClient
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from rclpy.signals import SignalHandlerOptions
from vag_interfaces.action import RunEpisode

from vag_policy.entry import STOP_SIGNALS, on_stop
from vag_policy.nodes.common import subscribe
from vag_policy.nodes.messages import duration_from_ns, ns_from_stamp
from vag_policy.nodes.ros_arguments import explained

ANSWER_S = 5.0
"""How long a graph that is there may take to answer."""
LOADING_S = 120.0
"""How long a policy that is there may take to load."""
_START = "vag up yam_sim starts one"
_END_S = 10.0
"""How long after its time an episode may take to end; one whose policy was restarted meanwhile never does."""
_LEAVE_S = 1.0
"""How long a client that cannot stay waits for its episode to be cancelled."""


class RunError(ValueError):
    """No graph answers, or it does not take the episode."""


class RunClient:
    """Runs one episode, spinning in the calling thread. Use as a context manager; a stop signal inside it cancels.

    However the client ends, short of ``kill -9``, the episode is not left running: nobody would be there to end it.

    Args:
        namespace: of the graph.
        say: called with a line for every replan.
    """

    def __init__(self, namespace: str, say: Callable[[str], None]) -> None:
        self._say = say
        self._context = rclpy.Context()
        with explained():
            rclpy.init(args=[], context=self._context, signal_handler_options=SignalHandlerOptions.NO)
        self._node = Node("vag_run", namespace=namespace, context=self._context)
        self._executor = SingleThreadedExecutor(context=self._context)
        self._executor.add_node(self._node)
        self._client = ActionClient(self._node, RunEpisode, "run_episode")
        self._policy_state = ""
        subscribe(self._node, DiagnosticArray, "/diagnostics", self._on_diagnostics, 10)
        self.cancelled = False

    def __enter__(self) -> RunClient:
        self._before = [(number, signal.getsignal(number)) for number in STOP_SIGNALS]
        on_stop(self._cancel)
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        for number, handler in self._before:
            signal.signal(number, handler)
        self._client.destroy()
        self._executor.shutdown()
        self._node.destroy_node()
        self._context.try_shutdown()

    def run(self, instruction: str, seconds: float, max_replans: int) -> tuple[bool, str]:
        """Whether the episode ran to its end without a fault, and what the policy says of it.

        Args:
            instruction: the task.
            seconds: after which the policy stops; 0: when it is cancelled.
            max_replans: after which it stops; 0: no limit.

        Raises:
            RunError: no graph answers, it rejects the episode, or it goes away meanwhile.
            KeyboardInterrupt: Ctrl-C before the episode began, or a second one.
        """
        self._wait_for_policy()
        timeout = duration_from_ns(round(seconds * 1e9))
        goal = RunEpisode.Goal(instruction=instruction, timeout=timeout, max_replans=max_replans)
        accepted = self._client.send_goal_async(goal, feedback_callback=self._on_feedback)
        self._wait(accepted.done, f"the policy does not answer on {self._action()}", despite_cancel=True)
        handle = accepted.result()
        if not handle.accepted:
            raise RunError(f"the policy rejects the episode '{instruction}'; {self._why_rejected()}")
        try:
            return self._finish(handle, seconds)
        except BaseException:  # nowhere to print to, for one
            self._leave(handle)
            raise

    def _leave(self, handle: Any) -> None:
        self._say = lambda _: None
        cancelled, deadline = handle.cancel_goal_async(), time.monotonic() + _LEAVE_S
        while not cancelled.done() and time.monotonic() < deadline:
            self._executor.spin_once(timeout_sec=0.1)

    def _finish(self, handle: Any, seconds: float) -> tuple[bool, str]:
        ended, cancelling, seen = handle.get_result_async(), None, time.monotonic()
        give_up = seen + seconds + _END_S if seconds else math.inf
        while not ended.done():
            self._executor.spin_once(timeout_sec=0.1)
            if self.cancelled and cancelling is None:
                cancelling = handle.cancel_goal_async()
                give_up = min(give_up, time.monotonic() + _END_S)
            if time.monotonic() > give_up:
                raise RunError("the policy does not say that the episode has ended: it may have been started again")
            if self._client.server_is_ready():
                seen = time.monotonic()
            elif time.monotonic() - seen > ANSWER_S:
                raise RunError("the graph has gone away during the episode")
        wrapped = ended.result()
        result, good = wrapped.result, wrapped.status == GoalStatus.STATUS_SUCCEEDED and wrapped.result.success
        seconds = ns_from_stamp(result.duration) / 1e9
        return good, f"episode {result.episode}, {seconds:.1f} s: {result.message}"

    def _wait_for_policy(self) -> None:
        """A policy that is still loading is waited for; one that is not there is missed soon."""
        began, told = time.monotonic(), False
        policy = ("policy", self._node.get_namespace())
        while not self._client.server_is_ready():
            if self.cancelled:
                raise KeyboardInterrupt
            waited, there = time.monotonic() - began, policy in self._node.get_node_names_and_namespaces()
            if waited > (LOADING_S if there else ANSWER_S):
                what = "the policy is there, but does not answer" if there else "no graph answers"
                raise RunError(f"{what} on {self._action()}; " + ("its log says why" if there else _START))
            if there and not told and waited > 1.0:
                self._say("the policy is there, but does not answer yet: it may still be loading")
                told = True
            self._executor.spin_once(timeout_sec=0.1)

    def _wait(self, condition: Callable[[], Any], otherwise: str, despite_cancel: bool = False) -> None:
        deadline = time.monotonic() + ANSWER_S
        while not condition():
            if self.cancelled and not despite_cancel:
                raise KeyboardInterrupt
            if time.monotonic() > deadline:
                raise RunError(otherwise)
            self._executor.spin_once(timeout_sec=0.1)

    def _why_rejected(self) -> str:
        deadline = time.monotonic() + 2.0  # diagnostics come once a second
        while not self._policy_state and time.monotonic() < deadline:
            self._executor.spin_once(timeout_sec=0.1)
        return f"it is {self._policy_state}" if self._policy_state else "its log says why"

    def _action(self) -> str:
        domain = os.environ.get("ROS_DOMAIN_ID") or "0"
        return f"{self._node.get_namespace().rstrip('/')}/run_episode in ROS domain {domain}"

    def _on_feedback(self, message: Any) -> None:
        now = message.feedback
        self._say(
            f"replan {now.replans}: {now.replan_ms:.0f} ms, TR {now.ratio:.3f}, TR_0 {now.baseline:.3f}, "
            f"s {now.guidance_scale:.3f}"
        )

    def _on_diagnostics(self, message: DiagnosticArray) -> None:
        mine = f"{self._node.get_namespace().strip('/')}/policy: state".lstrip("/")
        for status in message.status:
            if status.name == mine:
                self._policy_state = status.message

    def _cancel(self, _number: int) -> None:
        if self.cancelled:  # and the policy does not answer: leave it
            raise KeyboardInterrupt
        self.cancelled = True
