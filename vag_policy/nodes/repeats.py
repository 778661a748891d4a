"""How often a log says the same thing."""

from __future__ import annotations

import re

SECOND_NS = 1_000_000_000
PERIOD_NS = 30 * SECOND_NS
_NUMBERS = re.compile(r"\d+([.]\d+)?")
_KEPT = 100


class Repeats:
    """Lets a sentence through once in ``period_ns``; sentences that differ in numbers alone are the same."""

    def __init__(self, period_ns: int = PERIOD_NS) -> None:
        self._period_ns = period_ns
        self._said: dict[str, tuple[int, int]] = {}

    def filtered(self, text: str, now_ns: int) -> str:
        """``text``, with how often it was kept back meanwhile; empty where it is kept back now (a steady clock)."""
        key = _NUMBERS.sub("#", text)
        said_ns, kept_back = self._said.get(key, (now_ns - self._period_ns, 0))
        if now_ns - said_ns < self._period_ns:
            self._said[key] = said_ns, kept_back + 1
            return ""
        if len(self._said) >= _KEPT:
            self._said.clear()
        self._said[key] = now_ns, 0
        again = f" ({kept_back} more times in the last {(now_ns - said_ns) // SECOND_NS} s)" if kept_back else ""
        return text + again
