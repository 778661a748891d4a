"""Follows the traces of a running policy from replan to replan."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vag_policy.monitoring.phase import Phase, PhaseConfig, PhaseEstimator
from vag_policy.monitoring.temporal_ratio import RatioSummary, layer_ratios, summarise
from vag_policy.policy import Trace


@dataclass(frozen=True)
class Reading:
    """What one trace says, in the light of those before it.

    Attributes:
        summary: TR, TR_0 and s of the replan.
        layers: (L,) TR at every measured layer.
        phase: the phase estimate.
        relative: the smoothed TR / TR_0 - 1 behind ``phase``.
        restarted: why the history was dropped before this trace; empty where it was not.
    """

    summary: RatioSummary
    layers: NDArray[np.float64]
    phase: Phase
    relative: float
    restarted: str


class Monitor:
    """Keeps the history that a phase estimate needs, and drops it on a new episode or a backward time jump."""

    def __init__(self, config: PhaseConfig) -> None:
        self._estimator = PhaseEstimator(config)
        self._stamp_ns: int | None = None
        self._episode: int | None = None

    def update(self, stamp_ns: int, episode: int, trace: Trace) -> Reading:
        """Take in the trace of a replan made from the observation stamped ``stamp_ns``."""
        restarted = self._restart_reason(stamp_ns, episode)
        if restarted:
            self._estimator.reset()
        self._stamp_ns, self._episode = stamp_ns, episode
        summary = summarise(trace)
        phase = self._estimator.update(float("nan") if summary.fault() else summary.relative)
        return Reading(summary, layer_ratios(trace), phase, self._estimator.relative, restarted)

    def _restart_reason(self, stamp_ns: int, episode: int) -> str:
        if self._stamp_ns is None or self._episode is None:
            return ""
        if stamp_ns < self._stamp_ns:
            return f"time went back by {(self._stamp_ns - stamp_ns) / 1e9:.3f} s"
        return f"episode {episode}" if episode != self._episode else ""
