"""Where a replan's time goes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class StageClock:
    """Milliseconds per named stage, in the order they began. A nested stage's time is not its parent's.

    Args:
        synchronize: waits for the device, so that a stage's work is done when its time is read.
    """

    def __init__(self, synchronize: Callable[[], None]) -> None:
        self._synchronize = synchronize
        self._nested_ns: list[int] = []
        self.stage_ms: dict[str, float] = {}

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Time the body as ``name``; times of the same name add up."""
        self.stage_ms.setdefault(name, 0.0)
        self._nested_ns.append(0)
        self._synchronize()
        begin = time.perf_counter_ns()
        try:
            yield
        finally:
            self._synchronize()
            elapsed = time.perf_counter_ns() - begin
            self.stage_ms[name] += (elapsed - self._nested_ns.pop()) / 1e6
            if self._nested_ns:
                self._nested_ns[-1] += elapsed
