"""Joint limits, and small pure functions that keep a target inside them. Each says which joints it changed.

Units throughout ``execution/``: rad for arm joints, 0 (closed) .. 1 (open) for grippers, seconds for rates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vag_policy.observation.naming import some_joints

Vector = NDArray[np.float64]
Mask = NDArray[np.bool_]

# Changes below this are rounding, not a limit at work.
TOLERANCE = 1e-9


@dataclass(frozen=True, eq=False)
class JointLimits:
    """What N joints may do. Scalars are taken for all joints.

    Attributes:
        names: N joint names.
        lower: (N,) lowest position, rad (grippers 0..1).
        upper: (N,) highest position.
        velocity: (N,) highest speed, rad/s (grippers: strokes/s).
        acceleration: (N,) highest change of speed, rad/s2.
        lead: (N,) how far a command may be from the measured position, rad.

    Raises:
        ValueError: a number is missing, not finite or not positive, or lower is not below upper; the joint is named.
    """

    names: tuple[str, ...]
    lower: Vector
    upper: Vector
    velocity: Vector
    acceleration: Vector
    lead: Vector

    def __post_init__(self) -> None:
        if len(set(self.names)) != len(self.names) or not self.names:
            raise ValueError(f"limits need different joint names, got {', '.join(self.names) or 'none'}")
        for field in ("lower", "upper", "velocity", "acceleration", "lead"):
            values = np.array(np.broadcast_to(np.asarray(getattr(self, field), np.float64), len(self.names)))
            values.setflags(write=False)
            object.__setattr__(self, field, values)
            bad = ~np.isfinite(values) if field in ("lower", "upper") else ~(np.isfinite(values) & (values > 0.0))
            if bad.any():
                raise ValueError(f"{field} limit of {self.named(bad)} must be finite and positive, got {values[bad]}")
        crossed = self.lower >= self.upper
        if crossed.any():
            raise ValueError(f"the lower limit of {self.named(crossed)} is not below its upper limit")

    def named(self, mask: ArrayLike) -> str:
        """The joints of a (N,) mask as text: ``left_joint2, left_joint3``, or ``all 14 joints``."""
        return some_joints(names_of(self.names, mask), self.names)


def names_of(names: Sequence[str], mask: ArrayLike) -> list[str]:
    """The names where a mask of the same length is set."""
    return [name for name, flag in zip(names, np.asarray(mask), strict=True) if flag]


def finite(target: Vector, fallback: Vector) -> tuple[Vector, Mask]:
    """Put ``fallback`` where ``target`` is NaN or infinite."""
    bad = ~np.isfinite(target)
    return (np.where(bad, fallback, target), bad) if bad.any() else (target, bad)


def within_position(target: Vector, limits: JointLimits) -> tuple[Vector, Mask]:
    """Clip ``target`` to the joint limits."""
    clipped = np.minimum(np.maximum(target, limits.lower), limits.upper)
    return clipped, np.abs(clipped - target) > TOLERANCE


def within_lead(target: Vector, measured: Vector, limits: JointLimits) -> tuple[Vector, Mask]:
    """Clip ``target`` to at most ``lead`` from ``measured``, but not beyond the joint limits.

    The speed seen from the measured pose is bounded with it: an arm that is let go starts at most ``lead`` away.
    """
    nearest = np.minimum(np.maximum(measured, limits.lower), limits.upper)
    clipped = np.minimum(np.maximum(target, nearest - limits.lead), nearest + limits.lead)
    return clipped, np.abs(clipped - target) > TOLERANCE


def braking_speed(distance: Vector, acceleration: Vector, dt: float) -> Vector:
    """The highest speed of the coming step of ``dt`` seconds that can still stop within ``distance`` (N,) >= 0.

    Solves v dt + v^2 / 2a = distance. Keeping every step below it keeps the next one solvable whatever its
    length: the speed it then needs is reached by braking at ``acceleration``.
    """
    brake = acceleration * dt
    return np.sqrt(brake * brake + 2.0 * acceleration * distance) - brake


def breaches(before: Vector, after: Vector, dt: float, limits: JointLimits) -> list[str]:
    """The joints on which the command ``after`` must not be sent ``dt`` seconds after ``before``.

    The last check before the publisher, independent of how the command was made: not finite, outside the limits and
    not on the way in, or faster than allowed.
    """
    outside = (after < limits.lower - TOLERANCE) & (after < before)
    outside |= (after > limits.upper + TOLERANCE) & (after > before)
    fast = np.abs(after - before) > limits.velocity * dt + TOLERANCE
    return names_of(limits.names, ~np.isfinite(after) | outside | fast)
