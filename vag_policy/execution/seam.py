"""Fades: from one chunk to the next, and from where the arms stand to where a source wants them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from vag_policy.execution.limits import JointLimits, Mask, Vector
from vag_policy.execution.motion import SECOND_NS

# The steepest slope and the strongest curvature of ``smooth``.
_SLOPE, _CURVATURE = 1.5, 6.0


def smooth(fraction: float) -> float:
    """0 to 1 with zero slope at both ends (3x^2 - 2x^3); clipped outside."""
    x = min(max(fraction, 0.0), 1.0)
    return x * x * (3.0 - 2.0 * x)


def when_smooth(value: float) -> float:
    """The fraction at which ``smooth`` reaches ``value`` (0..1)."""
    return 0.5 - math.sin(math.asin(1.0 - 2.0 * min(max(value, 0.0), 1.0)) / 3.0)


@dataclass(frozen=True, eq=False)
class Seam:
    """A fade from an old course to a new one, in position and slope alike.

    The old course is sampled when the seam is made, so that a seam across a seam needs no memory of the first.

    Attributes:
        old: (M, N) the old course at even distances over the fade, M >= 2.
        start_ns: where the fade begins.
        duration_ns: how long it takes.
    """

    old: Vector
    start_ns: int
    duration_ns: int

    @classmethod
    def across(cls, course: Callable[[int], Vector], start_ns: int, duration_ns: int, samples: int = 12) -> Seam:
        """A seam that leaves ``course``, which gives a (N,) target for every time from ``start_ns`` on."""
        times = np.linspace(start_ns, start_ns + duration_ns, samples)
        return cls(np.stack([course(int(t)) for t in times]), start_ns, duration_ns)

    def over(self, now_ns: int) -> bool:
        """Whether only the new course is left."""
        return now_ns >= self.start_ns + self.duration_ns

    def blend(self, new: Vector, now_ns: int) -> Vector:
        """(N,) the target between the old course and ``new`` (N,)."""
        if self.over(now_ns):
            return new
        fraction = max((now_ns - self.start_ns) / self.duration_ns, 0.0)
        place = fraction * (len(self.old) - 1)
        index = min(int(place), len(self.old) - 2)
        old = self.old[index] + (self.old[index + 1] - self.old[index]) * (place - index)
        return old + (new - old) * smooth(fraction)


@dataclass(frozen=True, eq=False)
class Move:
    """A slow move on a straight line in joint space: the ramp to a first action, the way home.

    Attributes:
        start: (N,) where it begins.
        goal: (N,) where it ends.
        start_ns: when it begins.
        duration_ns: how long it takes.
    """

    start: Vector
    goal: Vector
    start_ns: int
    duration_ns: int

    def over(self, now_ns: int) -> bool:
        """Whether the goal is reached."""
        return now_ns >= self.start_ns + self.duration_ns

    def near_goal_ns(self, distance: float, joints: Mask) -> int:
        """From when on no joint of ``joints`` (N,) is farther than ``distance`` from its goal."""
        length = float(np.abs(self.goal - self.start)[joints].max(initial=0.0))
        fraction = when_smooth(1.0 - distance / length) if length > distance else 0.0
        return self.start_ns + int(fraction * self.duration_ns)

    def target(self, now_ns: int) -> Vector:
        """(N,) the target at a time."""
        fraction = (now_ns - self.start_ns) / self.duration_ns if self.duration_ns > 0 else 1.0
        return self.start + (self.goal - self.start) * smooth(fraction)


def move_duration_ns(distance: Vector, limits: JointLimits, shortest_ns: int, share: float = 0.8) -> int:
    """How long a Move over ``distance`` (N,) must take to need at most ``share`` of the velocity and acceleration."""
    length = np.abs(distance)
    by_velocity = float(np.max(_SLOPE * length / (share * limits.velocity)))
    by_acceleration = float(np.sqrt(np.max(_CURVATURE * length / (share * limits.acceleration))))
    return max(shortest_ns, int(max(by_velocity, by_acceleration) * SECOND_NS))
