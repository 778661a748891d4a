"""Numbers of one trace: the Temporal Ratio, its baseline and the guidance scale, one number each."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vag_policy.policy import Trace


@dataclass(frozen=True)
class RatioSummary:
    """One replan's Temporal Ratio at the monitored layer; NaN or infinite where the trace is.

    Attributes:
        ratio: TR, mean over the Euler steps.
        baseline: TR_0, mean over the Euler steps.
        relative: ``ratio / baseline - 1``; 0 for an episode's first replan.
        guidance_scale: s, mean over the Euler steps.
        steps: Euler steps measured.
    """

    ratio: float
    baseline: float
    relative: float
    guidance_scale: float
    steps: int

    def fault(self) -> str:
        """Why the ratio cannot be trusted, or an empty string."""
        if not self.steps:
            return "the trace holds no TR"
        for name, value in (("TR", self.ratio), ("TR_0", self.baseline)):
            if not np.isfinite(value):
                return f"{name} is {value}"
        return "" if self.baseline > 0.0 else f"TR_0 is {self.baseline}"


def summarise(trace: Trace) -> RatioSummary:
    """Mean over the Euler steps; a single bad step makes the mean bad, so that it is seen.

    A trace without any step gives NaN throughout.
    """
    ratio, baseline, scale = (
        float(np.mean(values)) if values.size else float("nan")
        for values in (trace.ratio, trace.baseline, trace.guidance_scale)
    )
    relative = ratio / baseline - 1.0 if baseline else float("nan")
    return RatioSummary(ratio, baseline, relative, scale, trace.ratio.size)


def layer_ratios(trace: Trace) -> NDArray[np.float64]:
    """TR at every measured layer: attention on frames >= 1 over attention on frame 0, mean over the Euler steps.

    Returns:
        (L,) float64 in the order of ``trace.layers``; infinite where a layer never looks at frame 0.
    """
    attention = trace.attention.astype(np.float64)
    if not attention.size:
        return np.full(len(trace.layers), np.nan)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.mean(attention[:, :, 1:].sum(axis=2) / attention[:, :, 0], axis=0)


def frame_shares(grid: NDArray[np.floating]) -> NDArray[np.float64]:
    """Share of the attention on the video that each latent frame gets.

    Args:
        grid: (T, rows, columns) attention mass, not negative.

    Returns:
        (T,) float64 that sums to 1; NaN where there is no attention at all.
    """
    mass = grid.astype(np.float64).sum(axis=(1, 2))
    with np.errstate(invalid="ignore"):
        return mass / mass.sum()
