"""The one place where a command moves: every source's target passes through ``advance``, every hold through ``brake``.

A command is a position with a velocity. Both functions change the velocity by at most acceleration x dt, so a change
of source, a jump of the target or a late tick shows in the target, never in the command.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from vag_policy.execution.limits import (
    TOLERANCE,
    JointLimits,
    Mask,
    Vector,
    braking_speed,
    finite,
    within_lead,
    within_position,
)

SECOND_NS = 1_000_000_000


@dataclass(frozen=True, eq=False)
class Motion:
    """Where the command is. ``position`` (N,), ``velocity`` (N,) per second, ``target`` (N,) of the last step."""

    position: Vector
    velocity: Vector
    target: Vector

    @property
    def at_rest(self) -> bool:
        """Whether the command stands still."""
        return not self.velocity.any()


@dataclass(frozen=True, eq=False)
class Step:
    """One step of the command: the new motion, the seconds it took and the joints each limit changed."""

    motion: Motion
    dt: float
    clamped: dict[str, Mask] = field(default_factory=dict)


def at_rest(position: Vector) -> Motion:
    """A command standing at ``position`` (N,), inside the limits or (by noise at a folded pose) outside them.

    Raises:
        ValueError: a position is not finite.
    """
    position = np.array(position, np.float64)
    if not np.isfinite(position).all():
        raise ValueError(f"a motion cannot start at {position}")
    return Motion(position, np.zeros_like(position), position)


def step_seconds(dt_ns: int, longest_ns: int) -> tuple[float, float]:
    """Split the time since the last step into (seconds to move, seconds stood still before it).

    A tick that comes late, by a stall or a suspended process, must not make up for the time with one long step; time
    that runs backwards moves nothing.
    """
    moving = min(max(dt_ns, 0), longest_ns)
    return moving / SECOND_NS, max(dt_ns - moving, 0) / SECOND_NS


def advance(motion: Motion, target: Vector, measured: Vector, dt_ns: int, limits: JointLimits, longest_ns: int) -> Step:
    """Move the command towards ``target`` (N,), which may be anything, including NaN.

    The command follows a moving target without lag as long as the limits allow and stops at a standing one without
    overshoot. It stays within the joint limits (from outside them it only moves inward) and below the velocity and
    acceleration limits for every dt; it keeps within ``lead`` of ``measured`` (N,) unless the arm itself moves away
    faster than the command can brake.
    """
    dt, stood = step_seconds(dt_ns, longest_ns)
    velocity = _slower(motion.velocity, limits.acceleration * stood)
    if dt == 0.0:
        return Step(Motion(motion.position, velocity, motion.target), 0.0)
    clamped: dict[str, Mask] = {}
    target, clamped["finite"] = finite(target, motion.position)
    target, clamped["position"] = within_position(target, limits)
    goal, clamped["lead"] = within_lead(target, measured, limits)

    position, acceleration = motion.position, limits.acceleration
    # A goal that a limit holds back stands still, however its source moves.
    drift = np.where(clamped["lead"] | clamped["finite"], 0.0, (goal - motion.target) / dt)
    drift = np.minimum(np.maximum(drift, -limits.velocity), limits.velocity)
    error = goal - drift * dt - position
    wanted = drift + np.copysign(braking_speed(np.abs(error), acceleration, dt), error)
    fast = np.minimum(np.maximum(wanted, -limits.velocity), limits.velocity)
    clamped["velocity"] = np.abs(fast - wanted) > TOLERANCE
    lower, upper = _walls(position, measured, limits)
    safe = np.minimum(
        np.maximum(fast, -braking_speed(position - lower, acceleration, dt)),
        braking_speed(upper - position, acceleration, dt),
    )
    # Last, so that it always holds; braking at full acceleration is enough to stay off the joint limits.
    change = acceleration * dt
    velocity = np.minimum(np.maximum(safe, velocity - change), velocity + change)
    clamped["acceleration"] = np.abs(velocity - fast) > TOLERANCE
    return Step(Motion(_moved(position, velocity, dt, limits), velocity, goal), dt, clamped)


def brake(motion: Motion, dt_ns: int, limits: JointLimits, longest_ns: int) -> Step:
    """Slow the command down at ``acceleration``, and stand still from then on: how every hold begins."""
    dt, stood = step_seconds(dt_ns, longest_ns)
    velocity = _slower(motion.velocity, limits.acceleration * (dt + stood))
    position = _moved(motion.position, velocity, dt, limits)
    return Step(Motion(position, velocity, position), dt)


def _slower(velocity: Vector, change: Vector) -> Vector:
    return np.copysign(np.maximum(np.abs(velocity) - change, 0.0), velocity)


def _walls(position: Vector, measured: Vector, limits: JointLimits) -> tuple[Vector, Vector]:
    """The nearest positions, below and above, that the command may move to: itself where it is outside already."""
    lower = np.maximum(limits.lower, measured - limits.lead)
    upper = np.minimum(limits.upper, measured + limits.lead)
    return np.minimum(lower, position), np.maximum(upper, position)


def _moved(position: Vector, velocity: Vector, dt: float, limits: JointLimits) -> Vector:
    """One step on; rounding must not carry the command over a limit, nor farther out than it was."""
    lower, upper = np.minimum(limits.lower, position), np.maximum(limits.upper, position)
    return np.minimum(np.maximum(position + velocity * dt, lower), upper)
