"""Statistics of a dataset's features as LeRobot stores them: by episode, and merged over episodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from vag_policy.data.lerobot_format import QUANTILES

Statistics = dict[str, NDArray[np.float64]]


def describe(values: NDArray) -> Statistics:
    """Statistics over the first axis of (N, D) values: each (D,), ``count`` (1,)."""
    rows = np.asarray(values, np.float64).reshape(len(values), -1)
    quantiles = np.quantile(rows, list(QUANTILES.values()), axis=0)
    return {
        "min": rows.min(axis=0),
        "max": rows.max(axis=0),
        "mean": rows.mean(axis=0),
        "std": rows.std(axis=0),
        "count": np.array([len(rows)], np.float64),
        **dict(zip(QUANTILES, quantiles, strict=True)),
    }


def describe_pictures(pixels: NDArray[np.uint8], count: int) -> Statistics:
    """Statistics by colour of (N, 3) sampled ``pixels`` from ``count`` pictures: each (3, 1, 1) in 0..1."""
    found = describe(pixels.reshape(-1, 3).astype(np.float64) / 255.0)
    return {name: value.reshape(3, 1, 1) for name, value in found.items() if name != "count"} | {
        "count": np.array([count], np.float64)
    }


def merge(parts: Sequence[Mapping[str, NDArray[np.float64]]]) -> Statistics:
    """Statistics of several episodes together.

    Mean and standard deviation are exact. Quantiles cannot be merged exactly: the widest are kept, as LeRobot does
    (least of those up to the median, most of those above).

    Raises:
        ValueError: nothing to merge.
    """
    if not parts:
        raise ValueError("no episode to take statistics of")
    counts = np.array([float(part["count"][0]) for part in parts])
    shape = (-1, *([1] * parts[0]["mean"].ndim))
    weights = (counts / counts.sum()).reshape(shape)
    means = np.stack([part["mean"] for part in parts])
    mean = (weights * means).sum(axis=0)
    variances = np.stack([part["std"] for part in parts]) ** 2 + (means - mean) ** 2
    merged = {
        "min": np.min([part["min"] for part in parts], axis=0),
        "max": np.max([part["max"] for part in parts], axis=0),
        "mean": mean,
        "std": np.sqrt((weights * variances).sum(axis=0)),
        "count": np.array([counts.sum()]),
    }
    for name, quantile in QUANTILES.items():
        if all(name in part for part in parts):
            values = [part[name] for part in parts]
            merged[name] = np.min(values, axis=0) if quantile <= 0.5 else np.max(values, axis=0)
    return merged
