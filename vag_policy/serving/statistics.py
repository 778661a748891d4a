"""How long replans take, stage by stage."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from statistics import median


class ReplanTimes:
    """The last ``window`` replans.

    Attributes:
        count: replans ever added.
        misses: how many of them took longer than the actions they were for last.
    """

    def __init__(self, window: int = 100) -> None:
        self._replans: deque[Mapping[str, float]] = deque(maxlen=window)
        self.count = 0
        self.misses = 0

    def add(self, total_ms: float, stage_ms: Mapping[str, float], lasts_ms: float) -> None:
        """Take in a replan of ``total_ms``, its stages, and how long its ``execute`` actions last."""
        self._replans.append({"total": total_ms, **stage_ms})
        self.count += 1
        self.misses += total_ms > lasts_ms

    def medians(self) -> dict[str, float]:
        """Median milliseconds of ``total`` and of every stage, over the replans that ran it, in the stages' order."""
        names = dict.fromkeys(name for replan in self._replans for name in replan)
        return {name: median(replan[name] for replan in self._replans if name in replan) for name in names}
