"""Planning or precise: what a smoothed Temporal Ratio says a policy is doing."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import IntEnum


class Phase(IntEnum):
    """Values of ``TemporalRatioPhase.phase``."""

    UNKNOWN = 0
    PLANNING = 1
    PRECISE = 2


@dataclass(frozen=True)
class PhaseConfig:
    """How eager the estimate is.

    Attributes:
        threshold: the phase changes when the smoothed TR / TR_0 - 1 passes +threshold or -threshold; in between it
            stays what it was, so that a ratio near the baseline does not flicker.
        smoothing: weight of the newest replan in the moving average, in (0, 1]; 1 does not smooth.
    """

    threshold: float = 0.05
    smoothing: float = 0.5

    def __post_init__(self) -> None:
        if not 0.0 <= self.threshold < math.inf:
            raise ValueError(f"threshold must be finite and not negative, got {self.threshold}")
        if not 0.0 < self.smoothing <= 1.0:
            raise ValueError(f"smoothing must be in (0, 1], got {self.smoothing}")


class PhaseEstimator:
    """Follows one episode; ``reset`` between episodes."""

    def __init__(self, config: PhaseConfig) -> None:
        self._config = config
        self.reset()

    def reset(self) -> None:
        """Start anew: at the baseline, phase unknown."""
        self.phase = Phase.UNKNOWN
        self.relative = 0.0

    def update(self, relative: float) -> Phase:
        """Take in a replan's TR / TR_0 - 1. One that is not finite leaves the average alone and the phase unknown."""
        if not math.isfinite(relative):
            self.phase = Phase.UNKNOWN
            return self.phase
        self.relative += self._config.smoothing * (relative - self.relative)
        if self.relative > self._config.threshold:
            self.phase = Phase.PLANNING
        elif self.relative < -self._config.threshold:
            self.phase = Phase.PRECISE
        return self.phase
