"""What is added to the expert's commands when they are executed, never to its labels (DART, Laskey et al. 2017)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vag_policy.expert.course import progress
from vag_policy.robots.yam import ARM_DOF

_CORRELATION_S = 0.35
_FADE_S = 0.25


class SmoothNoise:
    """Slow joint noise: an Ornstein-Uhlenbeck process, smoothed once more so that its speed stays small.

    Args:
        std: rad.
        period: seconds between two ``step``.
        rng: where it comes from.
    """

    def __init__(self, std: float, period: float, rng: np.random.Generator) -> None:
        self._std, self._rng = std, rng
        self._keep, self._follow = math.exp(-period / _CORRELATION_S), 1.0 - math.exp(-period / (_CORRELATION_S / 2))
        self._fade = 1.0 - math.exp(-period / _FADE_S)
        self._raw = np.zeros(ARM_DOF)
        self._smooth = np.zeros(ARM_DOF)
        self._scale = 0.0

    def step(self, scale: float) -> NDArray[np.float64]:
        """(6,) rad, the next value; ``scale`` 0..1 is approached within a few tenths of a second."""
        shock = math.sqrt(1.0 - self._keep**2) * self._rng.standard_normal(ARM_DOF)
        self._raw = self._keep * self._raw + shock
        self._smooth += self._follow * (self._raw - self._smooth)
        self._scale += self._fade * (scale - self._scale)
        return self._std * self._scale * self._smooth


@dataclass(frozen=True, eq=False)
class Deviation:
    """A deliberate offset of the executed joints: ``delta`` (6,) rad, reached from ``start`` to ``end`` (s)."""

    delta: NDArray[np.float64]
    start: float
    end: float

    def at(self, time: float) -> NDArray[np.float64]:
        """(6,) rad at ``time``."""
        return self.delta * progress((time - self.start) / (self.end - self.start), 0.5)
