"""Irregular streams onto an exact grid of n / fps. Pure: integer nanoseconds in, numbers out."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

SECOND_NS = 1_000_000_000
Stamps = NDArray[np.int64]


@dataclass(frozen=True)
class Gap:
    """A stream that was silent for longer than it may be: from ``start_ns``, for ``length_ns``."""

    start_ns: int
    length_ns: int


def grid(start_ns: int, end_ns: int, fps: int) -> Stamps:
    """(N,) stamps ``start_ns`` + n / fps up to ``end_ns``, each rounded by itself: errors do not add up."""
    count = max((end_ns - start_ns) * fps // SECOND_NS + 1, 0)
    steps = np.arange(count, dtype=np.int64)
    return start_ns + (steps * SECOND_NS + fps // 2) // fps


def gaps(stamps: Stamps, longest_ns: int) -> list[Gap]:
    """Where two stamps of a stream are more than ``longest_ns`` apart."""
    lengths = np.diff(stamps)
    return [Gap(int(stamps[index]), int(lengths[index])) for index in np.flatnonzero(lengths > longest_ns)]


def nearest(stamps: Stamps, wanted: Stamps) -> NDArray[np.int64]:
    """(N,) index of the stamp nearest to each wanted one; of two equally near, the earlier."""
    after = np.clip(np.searchsorted(stamps, wanted), 1, max(len(stamps) - 1, 1))
    if len(stamps) == 1:
        return np.zeros(len(wanted), np.int64)
    before = after - 1
    return np.where(wanted - stamps[before] <= stamps[after] - wanted, before, after)


def interpolate(stamps: Stamps, values: NDArray[np.float64], wanted: Stamps) -> NDArray[np.float64]:
    """(N, D) values between stamps, linearly; beyond the ends the first and the last."""
    origin = stamps[0]  # float64 holds nanoseconds of a recording exactly, but not of the epoch
    times, targets = (stamps - origin).astype(np.float64), (wanted - origin).astype(np.float64)
    return np.stack([np.interp(targets, times, column) for column in values.T], axis=1)


def in_order(stamps: Stamps) -> bool:
    """Whether a stream's stamps only grow."""
    return bool((np.diff(stamps) > 0).all())
