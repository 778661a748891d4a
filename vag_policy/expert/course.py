"""A smooth course of one arm and its gripper: strokes laid one over the other.

Each stroke is a displacement with a smooth velocity: ramp up, cruise, ramp down. A stroke may start while the one
before it ramps down, so that the arm passes a via point without stopping; because only ramps overlap, no joint is ever
faster than in the faster of the two strokes. (People's arm movements are described by such superposed strokes too:
Flash and Henis 1991.)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vag_policy.robots.yam import ARM_DOF

ARM_SPEED = np.array([1.2, 1.2, 1.2, 1.2, 0.72, 0.72])
"""(6,) fastest a joint moves, rad/s. Drives follow with kd / kp of lag (0.06 s, the small wrist drives 0.15 s), and an
executor lets a command lead the measured joint by 0.15 rad at most, braking distance included: this is what fits."""
GRIPPER_SPEED = 0.95
"""Strokes a second; a full stroke takes one second at least."""
ARM_ACCELERATION, GRIPPER_ACCELERATION = 5.5, 9.0
"""Of one stroke, rad/s2 and strokes/s2. Executors allow 10, and where strokes overlap theirs add up."""
_ARM_RAMP, _GRIPPER_RAMP = 0.35, 0.17
_PEAK = 1.5  # a ramp's peak acceleration over its mean
_SHORTEST_S = 0.1


def progress(fraction: float, ramp: float) -> float:
    """Share of a stroke done after ``fraction`` (any real) of its time; ``ramp`` (0, 0.5] of it is ramp at each end.

    The velocity's ramps are smoothsteps, so that velocity and acceleration are continuous; its peak is 1 / (1 - ramp).
    """
    x = min(max(fraction, 0.0), 1.0)
    if x > 0.5:
        return 1.0 - progress(1.0 - x, ramp)
    peak = 1.0 / (1.0 - ramp)
    if x >= ramp:
        return peak * (x - ramp / 2)
    u = x / ramp
    return peak * ramp * u**3 * (1.0 - u / 2)


def _duration(
    delta: NDArray[np.float64], speed: float | NDArray[np.float64], acceleration: float, ramp: float
) -> float:
    """The shortest time (s) of a stroke ``delta`` within ``speed`` and ``acceleration``."""
    distance = np.abs(delta)
    by_speed = distance / speed / (1.0 - ramp)
    by_acceleration = np.sqrt(_PEAK * distance / (acceleration * ramp * (1.0 - ramp)))
    return max(float(np.maximum(by_speed, by_acceleration).max()), _SHORTEST_S)


@dataclass(frozen=True, eq=False)
class Stroke:
    """A displacement ``delta`` (7,) from ``start`` on, lasting ``duration``; seconds, rad, gripper 0..1."""

    phase: str
    start: float
    duration: float
    delta: NDArray[np.float64]
    ramp: float

    @property
    def end(self) -> float:
        """Seconds."""
        return self.start + self.duration

    def at(self, time: float) -> NDArray[np.float64]:
        """(7,) displacement at ``time``."""
        return self.delta * progress((time - self.start) / self.duration, self.ramp)


class Course:
    """Where one arm is to be over time: six joints in rad and the gripper's opening, 0 (closed) .. 1 (open).

    Args:
        start: (7,) at time ``time``.
        time: seconds.
        pace: factor on the speed of the arm; the gripper has one speed.
    """

    def __init__(self, start: ArrayLike, time: float = 0.0, pace: float = 1.0) -> None:
        self._start = np.array(start, np.float64)
        self.goal = self._start.copy()
        self.end = time
        self._pace = pace
        self._strokes: list[Stroke] = []
        self._arm_stroke: Stroke | None = None

    def move(self, phase: str, joints: ArrayLike, blend: bool = True, slow: float = 1.0) -> Stroke:
        """Append a stroke to ``joints`` (6,); with ``blend`` it starts while the last arm stroke still ramps down."""
        delta = np.zeros(ARM_DOF + 1)
        delta[:ARM_DOF] = np.asarray(joints) - self.goal[:ARM_DOF]
        duration = _duration(delta[:ARM_DOF], ARM_SPEED, ARM_ACCELERATION, _ARM_RAMP) / (self._pace * slow)
        last, overlap = self._arm_stroke, 0.0
        if blend and last is not None and last.end == self.end:
            overlap = _ARM_RAMP * min(duration, last.duration)
        self._arm_stroke = self._append(Stroke(phase, self.end - overlap, duration, delta, _ARM_RAMP))
        return self._arm_stroke

    def grip(self, phase: str, opening: float, start: float | None = None, wait: float = 1.0) -> Stroke:
        """Append a stroke of the gripper from ``start`` on (default: now); the course goes on at ``wait`` of it."""
        delta = np.zeros(ARM_DOF + 1)
        delta[ARM_DOF] = opening - self.goal[ARM_DOF]
        duration = _duration(delta[ARM_DOF:], GRIPPER_SPEED, GRIPPER_ACCELERATION, _GRIPPER_RAMP)
        before = self.end
        stroke = self._append(Stroke(phase, self.end if start is None else start, duration, delta, _GRIPPER_RAMP))
        self.end = max(before, stroke.start + wait * duration)
        return stroke

    def rest(self, phase: str, seconds: float) -> None:
        """Append a pause."""
        self._append(Stroke(phase, self.end, seconds, np.zeros(ARM_DOF + 1), _GRIPPER_RAMP))

    def _append(self, stroke: Stroke) -> Stroke:
        self._strokes.append(stroke)
        self.goal = self.goal + stroke.delta
        self.end = stroke.end
        return stroke

    def at(self, time: float) -> NDArray[np.float64]:
        """(7,) at ``time``."""
        position = self._start.copy()
        for stroke in self._strokes:
            if stroke.start < time:
                position += stroke.at(time)
        return position

    def phase(self, time: float) -> str:
        """The phase of the latest stroke begun; before the first, that one's.

        Raises:
            ValueError: there is no stroke.
        """
        if not self._strokes:
            raise ValueError("a course without strokes has no phases")
        begun = [stroke for stroke in self._strokes if stroke.start <= time]
        return (begun[-1] if begun else self._strokes[0]).phase
