"""One stream's recent messages and what is known of its rhythm: the part of the synchroniser that looks at one source.

All times are int nanoseconds. Two clocks occur: stamps (the sensor's) and arrivals (steady, the caller's).
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from dataclasses import dataclass, field
from statistics import median_low
from typing import Any

_RHYTHM = 31
_WINDOW_NS = 2_000_000_000


@dataclass
class Dropped:
    """Messages of a stream that were not used, by why.

    Attributes:
        unstamped: stamped 0.
        ahead: stamped in the future; the last of them by ``ahead_ns``.
        malformed: in contradiction with themselves; ``fault`` says how the last one was.
    """

    unstamped: int = 0
    ahead: int = 0
    ahead_ns: int = 0
    malformed: int = 0
    fault: str = ""


@dataclass(frozen=True)
class StreamStatus:
    """A stream's health at one moment.

    Attributes:
        name: camera name, or ``JOINT_SOURCE``.
        state: ``waiting`` (nothing yet), ``ok``, ``silent`` (no new stamp for longer than its maximum age),
            ``repeating`` (messages arrive, their stamp stands still) or ``frozen`` (new stamps, the same picture).
        received: messages with a new stamp.
        repeats: messages whose stamp had been seen.
        gaps: messages that the stamps say are missing.
        dropped: messages not used, by why; a copy.
        rate_hz: arrivals a second over the last two seconds; 0 when silent.
        silent_ns: since the last new stamp arrived, steady clock; -1 before the first.
        last_stamp_ns: newest stamp, or None.
        missing: joints without a recent position; empty for a camera.
    """

    name: str
    state: str
    received: int
    repeats: int
    gaps: int
    rate_hz: float
    silent_ns: int
    last_stamp_ns: int | None
    missing: tuple[str, ...] = ()
    dropped: Dropped = field(default_factory=Dropped)


class Stream:
    """A bounded, ordered buffer of (stamp, payload) with counters. Payloads are opaque."""

    def __init__(self, depth: int) -> None:
        self.received = self.repeats = self.gaps = 0
        self.newest: int | None = None
        self.last_arrival: int | None = None
        self.repeating = False
        self._depth = depth
        self._stamps: list[int] = []
        self._payloads: list[Any] = []
        self._intervals: deque[int] = deque(maxlen=_RHYTHM)
        self._arrivals: deque[int] = deque(maxlen=4096)
        self._content: tuple[int, int] | None = None

    def clear(self) -> None:
        """Forget messages and rhythm; keep the counters."""
        self.newest = None
        self.repeating = False
        self._stamps.clear()
        self._payloads.clear()
        self._intervals.clear()
        self._content = None

    def add(self, stamp: int, payload: Any, now: int, content: int | None = None) -> bool:
        """Insert by stamp; False if the stamp is already there or older than everything kept."""
        index = bisect_left(self._stamps, stamp)
        known = index < len(self._stamps) and self._stamps[index] == stamp
        if known or stamp == self.newest:
            self.repeats += 1
            self.repeating = True
            return False
        self.repeating = False
        self.received += 1
        self.last_arrival = now
        self._arrivals.append(now)
        while now - self._arrivals[0] > _WINDOW_NS:
            self._arrivals.popleft()
        if self.newest is None or stamp > self.newest:
            self._note_interval(stamp)
            self.newest = stamp
        if content is not None and (self._content is None or self._content[0] != content):
            self._content = (content, stamp)
        self._stamps.insert(index, stamp)
        self._payloads.insert(index, payload)
        if len(self._stamps) > self._depth:
            del self._stamps[0], self._payloads[0]
            return index > 0
        return True

    def _note_interval(self, stamp: int) -> None:
        if self.newest is None:
            return
        interval, period = stamp - self.newest, self.period
        if period is not None and 2 * interval > 3 * period:
            self.gaps += round(interval / period) - 1
        self._intervals.append(interval)

    @property
    def period(self) -> int | None:
        """Typical distance of two stamps: the median of the last few, so that one lost message changes nothing."""
        return median_low(self._intervals) if len(self._intervals) >= 2 else None

    def arrival_period(self, now: int) -> float | None:
        """Nanoseconds from one arrival to the next on the steady clock, or None when silent or new."""
        if len(self._arrivals) < 3 or now - self._arrivals[-1] > _WINDOW_NS:
            return None
        return (self._arrivals[-1] - self._arrivals[0]) / (len(self._arrivals) - 1)

    def nearest(self, stamp: int) -> tuple[int, Any] | None:
        """The (stamp, payload) nearest to ``stamp``; of two equally near, the newer."""
        if not self._stamps:
            return None
        after = bisect_left(self._stamps, stamp)
        if after == len(self._stamps) or (after and stamp - self._stamps[after - 1] < self._stamps[after] - stamp):
            after -= 1
        return self._stamps[after], self._payloads[after]

    def may_improve(self, stamp: int) -> bool:
        """Whether a message still to come could be nearer to ``stamp`` than any that is here.

        Not when one is at or after ``stamp``; and not when the next, by the stream's rhythm, will be further off.
        """
        if self.newest is None:
            return True
        if self.newest >= stamp:
            return False
        period = self.period
        return period is None or self.newest + period - stamp < stamp - self.newest

    def forget_before(self, stamp: int) -> None:
        """Drop messages older than ``stamp``."""
        count = bisect_left(self._stamps, stamp)
        del self._stamps[:count], self._payloads[:count]

    def same_content_ns(self, stamp: int) -> int:
        """For how long, up to ``stamp``, the content has not changed; 0 where nobody looks at the content."""
        return 0 if self._content is None else stamp - self._content[1]

    def status(self, name: str, now: int, max_age: int, frozen: int) -> StreamStatus:
        """The stream's health; ``max_age`` on the steady clock, ``frozen`` on the stamps, 0 not to look."""
        period = self.arrival_period(now)
        silent = -1 if self.last_arrival is None else now - self.last_arrival
        if silent < 0:
            state = "waiting"
        elif silent > max_age:
            state = "repeating" if self.repeating else "silent"
        elif frozen and self.newest is not None and self.same_content_ns(self.newest) >= frozen:
            state = "frozen"
        else:
            state = "ok"
        return StreamStatus(
            name=name,
            state=state,
            received=self.received,
            repeats=self.repeats,
            gaps=self.gaps,
            rate_hz=1e9 / period if period and state in ("ok", "frozen") else 0.0,
            silent_ns=silent,
            last_stamp_ns=self.newest,
        )
