"""Intervals, comparisons and correlations of success. Pure functions; what they draw at random is from a fixed seed."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike, NDArray

_DRAWS = 2000
Vector = NDArray[np.float64]


@dataclass(frozen=True)
class Estimate:
    """A number with its 95 % interval; NaN where the data cannot tell."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Comparison:
    """Two policies on the same episodes.

    Attributes:
        difference: of the first's success and the second's.
        only_first, only_second: episodes that one of them alone did.
        p: of the exact McNemar test: how likely so uneven a split is where both are equally good.
    """

    difference: Estimate
    only_first: int
    only_second: int
    p: float


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


def bootstrap(statistic: Callable[..., float], *columns: ArrayLike, draws: int = _DRAWS, seed: int = 0) -> Estimate:
    """``statistic(*columns)`` with its percentile bootstrap interval (Efron 1979), rows resampled together.

    Draws for which the statistic is not finite (all episodes alike) are left out.

    Args:
        statistic: of columns (N,).
        columns: of the same length; a row is what is independent of the others, here an episode.
        draws: resamples.
        seed: of the resampling.

    Raises:
        ValueError: no column, no row, or columns of different lengths.
    """
    arrays = [np.asarray(column, np.float64) for column in columns]
    if not arrays or not len(arrays[0]) or len({len(array) for array in arrays}) > 1:
        raise ValueError(f"bootstrap needs columns of one length above 0, got {[len(array) for array in arrays]}")
    rows = np.random.default_rng(seed).integers(len(arrays[0]), size=(draws, len(arrays[0])))
    found = np.array([statistic(*(array[row] for array in arrays)) for row in rows])
    found = found[np.isfinite(found)]
    low, high = np.percentile(found, (2.5, 97.5)) if len(found) else (math.nan, math.nan)
    return Estimate(float(statistic(*arrays)), float(low), float(high))


def pearson(x: ArrayLike, y: ArrayLike) -> float:
    """The correlation of x (N,) and y (N,); with a binary x the point-biserial one. NaN where one is constant."""
    a, b = (array - array.mean() for array in (np.asarray(x, np.float64), np.asarray(y, np.float64)))
    scale = math.sqrt(float(a @ a) * float(b @ b))
    return float(a @ b) / scale if scale > 1e-12 else math.nan


def ranks(values: ArrayLike) -> Vector:
    """(N,) ranks from 1 on; equal values share the mean of theirs."""
    v = np.asarray(values, np.float64)
    _, place, count = np.unique(v, return_inverse=True, return_counts=True)
    last = np.cumsum(count)
    return (last - (count - 1) / 2.0)[place]


def spearman(x: ArrayLike, y: ArrayLike) -> float:
    """The rank correlation of x (N,) and y (N,). NaN where one is constant."""
    return pearson(ranks(x), ranks(y))


def compare(first: ArrayLike, second: ArrayLike) -> Comparison:
    """Compare successes (N,) of two policies on the same N episodes.

    Raises:
        ValueError: different numbers of episodes, or none.
    """
    a, b = np.asarray(first, bool), np.asarray(second, bool)
    if a.shape != b.shape or not a.size:
        raise ValueError(f"a paired comparison needs the same episodes of both, got {a.size} and {b.size}")
    difference = bootstrap(lambda x, y: float(np.mean(x) - np.mean(y)), a, b)
    only_first, only_second = int(np.sum(a & ~b)), int(np.sum(b & ~a))
    return Comparison(difference, only_first, only_second, _mcnemar(only_first, only_second))


def _mcnemar(only_first: int, only_second: int) -> float:
    """Two-sided exact test: a fair coin, once for each episode that only one of the two did."""
    count, fewer = only_first + only_second, min(only_first, only_second)
    tail = sum(math.comb(count, k) for k in range(fewer + 1)) / 2**count
    return min(2.0 * tail, 1.0)
