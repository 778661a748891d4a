"""Intervals, comparisons and correlations of success. Pure functions; every random draw is from a given seed."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

_DRAWS = 2000


@dataclass(frozen=True)
class Estimate:
    """A number with its 95 % interval; NaN where the data cannot tell."""

    value: float
    low: float
    high: float


def wilson(successes: int, trials: int, confidence: float = 0.95) -> Estimate:
    """A share with its Wilson score interval (Wilson 1927); 0 trials: anything between 0 and 1.

    Raises:
        ValueError: not 0 <= successes <= trials, or a confidence outside (0, 1).
    """
    if not 0 <= successes <= trials:
        raise ValueError(f"successes must be 0..trials, got {successes} of {trials}")
    if not 0.0 < confidence < 1.0:
        raise ValueError(f"confidence must be inside (0, 1), got {confidence}")
    if not trials:
        return Estimate(math.nan, 0.0, 1.0)
    share, z = successes / trials, NormalDist().inv_cdf((1.0 + confidence) / 2.0)
    spread = 1.0 + z * z / trials
    middle = (share + z * z / (2 * trials)) / spread
    half = z * math.sqrt(share * (1.0 - share) / trials + z * z / (4 * trials * trials)) / spread
    return Estimate(share, max(middle - half, 0.0), min(middle + half, 1.0))
