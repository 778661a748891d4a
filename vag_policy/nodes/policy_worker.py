"""What happens on the policy's own thread: observation message in, plan out, errors caught."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from vag_interfaces.msg import Observation as ObservationMsg

from vag_policy.nodes.messages import observation_from_msg
from vag_policy.observation.observation import Observation
from vag_policy.policy import Plan, Policy, PolicyError
from vag_policy.serving.session import PlanningSession, Ticket
from vag_policy.serving.statistics import ReplanTimes
from vag_policy.serving.worker import LatestWorker

PLANNER_THREAD = "policy"
"""Name of the inference thread."""


@dataclass(frozen=True)
class Outputs:
    """Where results go. Called on the policy's thread.

    Attributes:
        plan: publish a plan; called only while its episode is current.
        replanned: a plan went out, and took that many milliseconds.
        failed: a replan of that (still current) episode raised.
        imagined: publish the imagined frames (F, H, W, 3) uint8 of a plan.
        wants_imagined: whether anyone looks at them.
    """

    plan: Callable[[Plan, str], None]
    replanned: Callable[[Plan, float], None]
    failed: Callable[[Exception, int], None]
    imagined: Callable[[NDArray[np.uint8], Plan, str], None]
    wants_imagined: Callable[[], bool]


class Planner:
    """Holds the policy and the one thread that ever touches it.

    Attributes (read-only for users):
        times: of the replans that went out.
        failures: replans that raised, ever.
        failure: what the last replan raised; empty after one that did not.
        last: the last plan that went out.
    """

    def __init__(
        self, session: PlanningSession, now_ns: Callable[[], int], outputs: Outputs, imagined_every: int
    ) -> None:
        self._session = session
        self._now_ns = now_ns
        self._outputs = outputs
        self._imagined_every = imagined_every
        self._until_imagined = 0
        self._policy: Policy | None = None
        self._guidance: deque[Mapping[str, Any]] = deque()
        self.times = ReplanTimes()
        self.failures = 0
        self.failure = ""
        self.last: Plan | None = None
        self._worker: LatestWorker[ObservationMsg] = LatestWorker(self._replan, PLANNER_THREAD)

    def load(self, make: Callable[[], Policy]) -> None:
        """Make the policy on the thread; raises what ``make`` raises."""
        self._policy = self._worker.call(make)

    @property
    def loaded(self) -> bool:
        """Whether there is a policy yet."""
        return self._policy is not None

    def put(self, message: ObservationMsg) -> None:
        """Plan on this observation as soon as the thread is free, unless a newer one comes first."""
        self._worker.put(message)

    def clear(self) -> None:
        """Forget an observation that waits."""
        self._worker.clear()

    def set_guidance(self, changes: Mapping[str, Any]) -> None:
        """Change the policy's guidance before its next plan."""
        self._guidance.append(changes)

    def stop(self, timeout_s: float) -> bool:
        """End the thread; False where a replan keeps it busy for longer than that: it is left alone then."""
        stopped = self._worker.stop(timeout_s)
        if not stopped:
            # What the thread still holds must not keep the node, and with it the DDS participant, alive.
            self._now_ns, self._outputs = int, _NO_OUTPUTS
        return stopped

    def _replan(self, message: ObservationMsg) -> None:
        try:
            observation = observation_from_msg(message)
        except ValueError as error:
            self._session.refuse("malformed", str(error))
            return
        ticket = self._session.admit(observation, self._now_ns())
        if ticket is not None and self._policy is not None:
            self._plan(self._policy, observation, ticket, message.header.frame_id)

    def _plan(self, policy: Policy, observation: Observation, ticket: Ticket, frame_id: str) -> None:
        start = time.perf_counter_ns()
        try:
            self._apply_guidance(policy)
            plan = policy.plan(observation, ticket.instruction, ticket.episode)
            _check_finite(plan)
        except Exception as error:  # a policy may raise anything, out of memory included; the node goes on
            self._fail(ticket, error)
            return
        total_ms = (time.perf_counter_ns() - start) / 1e6
        if not self._session.commit(ticket, plan, self._now_ns(), lambda plan: self._outputs.plan(plan, frame_id)):
            return
        self.last, self.failure = plan, ""
        stages = plan.trace.stage_ms if plan.trace else {}
        self.times.add(total_ms, stages, plan.execute * plan.period_ns / 1e6)
        self._outputs.replanned(plan, total_ms)
        self._imagine(policy, observation, plan, frame_id)

    def _fail(self, ticket: Ticket, error: Exception) -> None:
        self.failures += 1
        self.failure = f"{type(error).__name__}: {error}"
        if self._session.fail(ticket):
            self._outputs.failed(error, ticket.episode)

    def _apply_guidance(self, policy: Any) -> None:
        while self._guidance:
            policy.set_guidance(self._guidance.popleft())

    def _imagine(self, policy: Any, observation: Observation, plan: Plan, frame_id: str) -> None:
        """Decode the future behind every n-th plan, after it went out."""
        self._until_imagined -= 1
        if self._until_imagined > 0 or not self._outputs.wants_imagined() or not hasattr(policy, "imagine"):
            return
        self._until_imagined = self._imagined_every
        try:
            frames = policy.imagine(observation, plan.instruction, plan.episode, plan.replan)
        except Exception as error:
            self.failure = f"imagined video: {type(error).__name__}: {error}"
            return
        self._outputs.imagined(frames, plan, frame_id)


_NO_OUTPUTS = Outputs(
    plan=lambda plan, frame_id: None,
    replanned=lambda plan, replan_ms: None,
    failed=lambda error, episode: None,
    imagined=lambda frames, plan, frame_id: None,
    wants_imagined=lambda: False,
)


def _check_finite(plan: Plan) -> None:
    bad = int(np.size(plan.actions) - np.isfinite(plan.actions).sum())
    if bad:
        raise PolicyError(f"{bad} of {plan.actions.size} numbers in the plan are not finite")
