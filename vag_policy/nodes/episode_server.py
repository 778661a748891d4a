"""The run_episode action: one goal at a time, cancelled or timed out while the policy thinks."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from rclpy.action import ActionServer, CancelResponse, GoalResponse
from rclpy.action.server import ServerGoalHandle
from rclpy.node import Node
from vag_interfaces.action import RunEpisode

from vag_policy.monitoring.temporal_ratio import summarise
from vag_policy.nodes.messages import MAX_TEXT, duration_from_ns, ns_from_stamp
from vag_policy.nodes.side_executor import SideThreadExclusiveGroup
from vag_policy.policy import Plan, PolicyError
from vag_policy.serving.session import PlanningSession

_POLL_S = 0.02
_LOOK_EVERY_NS = 500_000_000
_ALONE_NS = 2_000_000_000
"""How long an episode goes on when its client has gone: nobody is left who could cancel it."""


class _Run:
    """One accepted goal. The first ``finish`` decides how it ends."""

    def __init__(self, handle: ServerGoalHandle, episode: int) -> None:
        self.handle = handle
        self.first_episode = episode
        self.start_ns = time.monotonic_ns()
        limit_ns = ns_from_stamp(handle.request.timeout)
        self.deadline_ns = self.start_ns + limit_ns if limit_ns else None
        self.looked_ns = 0
        self.client_ns: int | None = None  # when a client was last there; None until one was seen
        self.replans = self.faults = 0
        self.fault = ""
        self.success = False
        self.message = ""
        self.ended = threading.Event()
        self._lock = threading.Lock()

    def finish(self, success: bool, message: str) -> None:
        with self._lock:
            if not self.ended.is_set():
                self.success, self.message = success, message
                self.ended.set()


class EpisodeServer:
    """Serves ``run_episode`` on ``node``.

    The goal waits in a thread of its own (``SideThreadExecutor``); everything else is answered meanwhile.
    The timeout counts on the steady clock: it ends an episode even where ``/clock`` has stopped. So does the end of
    every client (one that is killed stays in the graph until the middleware misses it, 20 s with Fast DDS's defaults).
    Create it once and keep it: rclpy cannot take an action server down under a client that waits.

    Args:
        node: the policy node.
        session: begins and ends with the goal.
        why_not: why no goal can start now, or an empty string.
    """

    def __init__(self, node: Node, session: PlanningSession, why_not: Callable[[], str]) -> None:
        self._node = node
        self._session = session
        self._why_not = why_not
        self._run: _Run | None = None
        # Every client of an action subscribes to its feedback.
        self._feedback = node.resolve_topic_name("run_episode/_action/feedback")
        self._server = ActionServer(
            node,
            RunEpisode,
            "run_episode",
            self._execute,
            goal_callback=self._on_goal,
            handle_accepted_callback=self._on_accepted,
            cancel_callback=self._on_cancel,
            # Goals and cancellations one after the other; a goal's execution belongs to no group.
            callback_group=SideThreadExclusiveGroup(),
        )

    @property
    def running(self) -> bool:
        """Whether a goal owns the instruction."""
        return self._run is not None

    def abort(self, message: str) -> None:
        """End the running goal, if there is one, as a failure."""
        self._finish(False, message)

    def replanned(self, plan: Plan, replan_ms: float) -> None:
        """A plan of the running goal went out: tell the client; end the goal where that was the last one."""
        run = self._run_of(plan.episode)
        if run is None:
            return
        run.replans += 1
        run.handle.publish_feedback(_feedback(plan, run.replans, replan_ms))
        if run.replans == run.handle.request.max_replans:
            # No more plans; the goal ends when the last one's actions have run.
            self._session.end()
            done_ns = time.monotonic_ns() + plan.execute * plan.period_ns
            run.deadline_ns = min(done_ns, run.deadline_ns or done_ns)

    def failed(self, error: Exception, episode: int) -> None:
        """A replan of the running goal raised. One that the policy cannot begin with ends at once."""
        run = self._run_of(episode)
        if run is None:
            return
        run.faults += 1
        run.fault = f"{type(error).__name__}: {error}"
        if isinstance(error, PolicyError) and not run.replans:
            self._finish(False, run.fault)

    def _run_of(self, episode: int) -> _Run | None:
        """The running goal, unless ``episode`` is older than it: the policy may still report on the one before."""
        run = self._run
        return None if run is None or run.ended.is_set() or episode < run.first_episode else run

    def _finish(self, success: bool, message: str) -> None:
        run = self._run
        if run is not None:
            self._session.end()
            run.finish(success, message)

    def _on_goal(self, request: RunEpisode.Goal) -> GoalResponse:
        reason = self._why_not()
        if self._run is not None:
            reason = f"an episode is running on '{self._run.handle.request.instruction}'; cancel it first"
        elif not request.instruction.strip():
            reason = "the instruction is empty"
        elif len(request.instruction) > MAX_TEXT:
            reason = f"the instruction has {len(request.instruction)} characters, allowed: at most {MAX_TEXT}"
        elif ns_from_stamp(request.timeout) < 0:
            reason = "the timeout is negative"
        if reason:
            self._node.get_logger().warning(f"run_episode '{request.instruction[:100]}' rejected: {reason}")
        return GoalResponse.REJECT if reason else GoalResponse.ACCEPT

    def _on_accepted(self, handle: ServerGoalHandle) -> None:
        self._run = _Run(handle, self._session.begin(handle.request.instruction.strip()))
        reason = self._why_not()
        if reason:  # it changed between the goal and this
            self._finish(False, reason)
        handle.execute()

    def _on_cancel(self, _handle: ServerGoalHandle) -> CancelResponse:
        self._session.end()  # at once: the goal itself ends when its state says cancelling
        return CancelResponse.ACCEPT

    def _execute(self, handle: ServerGoalHandle) -> RunEpisode.Result:
        run = self._run
        assert run is not None
        self._wait(run)
        if handle.is_cancel_requested:
            handle.canceled()
        elif run.success:
            handle.succeed()
        else:
            handle.abort()
        self._run = None
        self._node.get_logger().info(f"episode {self._session.episode} ended: {run.message}")
        return self._result(run)

    def _wait(self, run: _Run) -> None:
        while not run.ended.wait(_POLL_S):
            if run.handle.is_cancel_requested:
                self._finish(False, f"cancelled after {run.replans} replans")
            elif run.deadline_ns is not None and time.monotonic_ns() >= run.deadline_ns:
                self._finish(*self._verdict(run))
            elif self._abandoned(run):
                self._finish(False, f"its client has gone, after {run.replans} replans")

    def _abandoned(self, run: _Run) -> bool:
        now_ns = time.monotonic_ns()
        if now_ns - run.looked_ns >= _LOOK_EVERY_NS:
            run.looked_ns = now_ns
            if self._node.count_subscribers(self._feedback):
                run.client_ns = now_ns
        return run.client_ns is not None and now_ns - run.client_ns > _ALONE_NS

    def _verdict(self, run: _Run) -> tuple[bool, str]:
        """How an episode ends whose time is up."""
        if not run.replans:
            return False, f"no plan was made: {run.fault or self._session.refusal or 'no observation came'}"
        if run.faults:
            return False, f"{run.replans} replans, and {run.faults} that failed, the last with {run.fault}"
        return True, f"{run.replans} replans"

    def _result(self, run: _Run) -> RunEpisode.Result:
        return RunEpisode.Result(
            success=run.success,
            message=run.message,
            episode=self._session.episode,
            replans=run.replans,
            duration=duration_from_ns(time.monotonic_ns() - run.start_ns),
        )


def _feedback(plan: Plan, replans: int, replan_ms: float) -> RunEpisode.Feedback:
    feedback: dict[str, Any] = {"episode": plan.episode, "replans": replans, "replan_ms": replan_ms}
    if plan.trace is not None:
        summary = summarise(plan.trace)
        feedback |= {"ratio": summary.ratio, "baseline": summary.baseline, "guidance_scale": summary.guidance_scale}
    return RunEpisode.Feedback(**feedback)
