"""A person's target over time: taken over gently, followed smoothly, let go when it falls silent."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from vag_policy.execution.joint_map import JointMap, listed
from vag_policy.execution.limits import JointLimits, Vector
from vag_policy.execution.motion import SECOND_NS
from vag_policy.execution.seam import Seam

# A stream of targets is followed one interval behind; the interval is measured, within these bounds.
_SHORTEST_NS, _LONGEST_NS = SECOND_NS // 250, SECOND_NS // 10


class TeleopSource:
    """Targets of a leader arm or any other operator's device. All times are one steady clock.

    Args:
        limits: of the rig's joints; a message may leave some out, they keep where they are.
        timeout_ns: silence after which the operator has let go.
        takeover_ns: length of the fade from the pose at takeover to the operator's target.
        range_tolerance: how far beyond its limits (rad; strokes for grippers) a target may be before it counts as
            garbage; anything less is clamped.
    """

    def __init__(self, limits: JointLimits, timeout_ns: int, takeover_ns: int, range_tolerance: float) -> None:
        self._map = JointMap(limits.names)
        self._lowest, self._highest = limits.lower - range_tolerance, limits.upper + range_tolerance
        self._timeout_ns = timeout_ns
        self._takeover_ns = takeover_ns
        self._seam: Seam | None = None
        self._from = self._to = np.zeros(len(self._map.names))
        self._heard_ns = self._interval_ns = 0

    @property
    def engaged(self) -> bool:
        """Whether an operator has taken over, and has not been let go of yet."""
        return self._seam is not None

    def silent(self, now_ns: int) -> bool:
        """Whether the last target is too old to follow."""
        return now_ns - self._heard_ns > self._timeout_ns

    def fault(self, names: Sequence[str], positions: Sequence[float]) -> str:
        """Why a target cannot be followed, or an empty string."""
        unknown = self._map.unknown(names)
        if unknown:
            return f"unknown joints {listed(unknown)}; the rig has: {', '.join(self._map.names)}"
        if not names or len(positions) != len(names):
            return f"{len(positions)} positions for {len(names)} joints"
        if len(set(names)) != len(names):
            return "a joint is named more than once"
        bad = [name for name, value in zip(names, positions, strict=True) if not np.isfinite(value)]
        if bad:
            return f"{', '.join(bad)} not finite"
        source, joint = self._map.find(names)
        values = np.asarray(positions, np.float64)[source]
        far = (values < self._lowest[joint]) | (values > self._highest[joint])
        named = [f"{name} at {value:g}" for name, value, out in zip(names, values, far, strict=True) if out]
        return f"{', '.join(named)} far outside the limits" if named else ""

    def update(self, names: Sequence[str], positions: Sequence[float], command: Vector, now_ns: int) -> None:
        """Follow a target without fault; the first one takes over from ``command`` (N,)."""
        source, joint = self._map.find(names)
        if self._seam is None:
            self._seam = Seam(np.stack([command, command]), now_ns, self._takeover_ns)
            self._from = self._to = command
            self._interval_ns = _LONGEST_NS
        else:
            self._from = self._followed(now_ns)
            self._interval_ns = min(max(now_ns - self._heard_ns, _SHORTEST_NS), _LONGEST_NS)
        self._to = self._to.copy()
        self._to[joint] = np.asarray(positions, np.float64)[source]
        self._heard_ns = now_ns

    def target(self, now_ns: int) -> Vector:
        """(N,) where the operator wants the arms.

        Raises:
            ValueError: nobody has taken over.
        """
        if self._seam is None:
            raise ValueError("nobody has taken over")
        return self._seam.blend(self._followed(now_ns), now_ns)

    def let_go(self) -> None:
        """The operator's targets count no more; the next one takes over anew."""
        self._seam = None

    def _followed(self, now_ns: int) -> Vector:
        fraction = min((now_ns - self._heard_ns) / self._interval_ns, 1.0)
        return self._from + (self._to - self._from) * fraction
