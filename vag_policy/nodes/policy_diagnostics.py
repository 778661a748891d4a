"""What the policy node says of itself at 1 Hz."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from vag_policy.monitoring.temporal_ratio import summarise
from vag_policy.nodes.common import ERROR, OK, STALE, WARN, Check
from vag_policy.nodes.managed_node import ManagedNode
from vag_policy.nodes.policy_worker import Planner
from vag_policy.serving.session import PlanningSession
from vag_policy.shipped import checkpoint_folder

Status = tuple[bytes, str, Mapping[str, Any]]

_SILENT_S = 2.0


class PolicyChecks:
    """The checks of a policy node, for ``Diagnostics``.

    Attributes:
        planner: set while the node is configured.
        table: check by name.
    """

    def __init__(self, node: ManagedNode, session: PlanningSession, checkpoint: str) -> None:
        self._node = node
        self._weights = _weights(checkpoint)
        self._session = session
        self._stamp_ns = 0
        self._arrival_s: float | None = None
        self._observations = 0
        self.planner: Planner | None = None
        self.table: dict[str, Check] = {
            "state": self._state,
            "observations": self._observing,
            "replans": self._replanning,
        }

    def observed(self, stamp_ns: int) -> None:
        """An observation arrived."""
        self._stamp_ns, self._arrival_s = stamp_ns, time.monotonic()
        self._observations += 1

    def _state(self) -> Status:
        session, label = self._session, self._node.state_label
        values = {"lifecycle": label, "episode": session.episode, "instruction": session.instruction}
        values |= {
            "weights": self._weights,
            "replans": session.replans,
            "faults": session.faults,
            "backward_jumps": session.jumps,
        }
        if self._node.failure:
            return ERROR, f"{label}: {self._node.failure}", values
        if label != "active":
            return OK, label, values
        return OK, f"active: '{session.instruction}'" if session.instruction else "active: no instruction", values

    def _observing(self) -> Status:
        session = self._session
        values: dict[str, Any] = {"observations": self._observations}
        values |= {f"refused: {cause}": count for cause, count in sorted(session.refusals.items())}
        if self._arrival_s is not None:
            values["age_ms"] = (self._node.get_clock().now().nanoseconds - self._stamp_ns) / 1e6
        if self._node.state_label != "active":
            return OK, "not active", values
        silent_s = float("inf") if self._arrival_s is None else time.monotonic() - self._arrival_s
        if silent_s > _SILENT_S:
            return STALE, "no observation yet" if self._arrival_s is None else "observations have stopped", values
        if session.refusal:
            return WARN, f"refused: {session.refusal}", values
        return OK, "arriving", values

    def _replanning(self) -> Status:
        planner = self.planner
        if planner is None:
            return OK, "no policy", {}
        values: dict[str, Any] = {"replans": planner.times.count, "deadline_misses": planner.times.misses}
        values |= {"failures": planner.failures, "discarded": self._session.discarded}
        values |= {f"{stage}_ms": median for stage, median in planner.times.medians().items()}
        if planner.last is not None and planner.last.trace is not None:
            summary = summarise(planner.last.trace)
            values |= {"tr": summary.ratio, "tr_0": summary.baseline, "guidance_scale": summary.guidance_scale}
        if planner.failure:
            return ERROR, planner.failure, values
        total = values.get("total_ms")
        return OK, "none yet" if total is None else f"{total:.0f} ms", values


def _weights(checkpoint: str) -> str:
    try:
        return checkpoint_folder(checkpoint) or "random"
    except ValueError:  # configuring says what is wrong with it
        return checkpoint
