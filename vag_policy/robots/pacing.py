"""Keeping simulated time beside real time. No clock is read here: the time comes in."""

from __future__ import annotations


class Pacer:
    """Says how many control periods are due, so that simulated time keeps up with the clock it is given.

    A lag above ``max_lag_ns`` is given up, and counted in ``slipped_ns``, instead of being worked off: on a machine
    that is too slow the simulation runs slower, and never further behind.

    Args:
        period_ns: one control period.
        now_ns: the clock now; the first period is due one period later.
        max_lag_ns: the most that is worked off.
    """

    def __init__(self, period_ns: int, now_ns: int, max_lag_ns: int) -> None:
        if period_ns <= 0 or max_lag_ns < period_ns:
            raise ValueError(f"a period of {period_ns} ns and a lag of {max_lag_ns} ns make no pace")
        self.period_ns = period_ns
        self.slipped_ns = 0
        self._max_lag_ns = max_lag_ns
        self._next_ns = now_ns + period_ns

    def lag_ns(self, now_ns: int) -> int:
        """How late the next period is; negative before its time."""
        return now_ns - self._next_ns

    def due(self, now_ns: int) -> tuple[int, ...]:
        """The clock times, oldest first, of the periods to simulate now; empty when it is too early."""
        lag = self.lag_ns(now_ns)
        if lag > self._max_lag_ns:
            slip = (lag - self._max_lag_ns) // self.period_ns * self.period_ns
            self.slipped_ns += slip
            self._next_ns += slip
        times = tuple(range(self._next_ns, now_ns + 1, self.period_ns))
        self._next_ns += len(times) * self.period_ns
        return times


class FrameSchedule:
    """When cameras look: every ``period_ns`` of simulated time, or not at all where the machine cannot keep up.

    Attributes:
        taken: frames taken.
        skipped: frames left out.
    """

    def __init__(self, period_ns: int) -> None:
        self.taken = self.skipped = 0
        self.period_ns = period_ns
        self._frame = -1

    def take(self, time_ns: int, busy: bool) -> bool:
        """Whether to look at simulated time ``time_ns``; ``busy``: the last frame is unfinished, or time is short."""
        frame = time_ns // self.period_ns
        if frame == self._frame:
            return False
        self.skipped += max(0, frame - self._frame - 1) if self._frame >= 0 else 0
        self._frame = frame
        self.skipped += busy
        self.taken += not busy
        return not busy
