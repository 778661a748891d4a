"""What camera_sync says about its streams on /diagnostics."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from vag_policy.nodes.common import ERROR, OK, STALE, WARN
from vag_policy.observation.naming import some_joints
from vag_policy.observation.stream import Dropped, StreamStatus
from vag_policy.observation.synchronizer import Synchronizer

Report = tuple[bytes, str, Mapping[str, Any]]

_TOLERATED = 0.05
"""Share of messages lost, or of reference frames refused, that is mentioned but no warning."""


class StreamCheck:
    """One stream's entry. Counters make a WARN in the second in which they grow."""

    def __init__(self, topic: str, publishers: Callable[[], int], joints: Sequence[str] = ()) -> None:
        self._topic = topic
        self._joints = joints
        self._publishers = publishers
        self._gaps = self._received = 0
        self._dropped = Dropped()

    def report(self, status: StreamStatus) -> Report:
        """Level, message and values of ``status``."""
        gaps, received = status.gaps - self._gaps, status.received - self._received
        self._gaps, self._received = status.gaps, status.received
        fault = self._fault(status.dropped)
        values = {
            "topic": self._topic,
            "rate (Hz)": status.rate_hz,
            "received": status.received,
            "lost": status.gaps,
            "repeated stamps": status.repeats,
            "without stamp": status.dropped.unstamped,
            "from the future": status.dropped.ahead,
            "malformed": status.dropped.malformed,
            "newest stamp (ns)": status.last_stamp_ns,
        }
        if fault:
            return WARN, fault, values
        if status.state != "ok":
            return STALE, self._stale(status), values
        level = WARN if gaps > _TOLERATED * (gaps + received) else OK
        lost = f", {gaps} of {gaps + received} messages lost or never sent" if gaps else ""
        return level, f"{status.rate_hz:.1f} Hz{lost}", values

    def _fault(self, dropped: Dropped) -> str:
        """Why messages were not used since the last time; the text alone, without what has gone on before."""
        last, self._dropped = self._dropped, dropped
        unstamped, ahead = dropped.unstamped - last.unstamped, dropped.ahead - last.ahead
        malformed = dropped.malformed - last.malformed
        faults = []
        if unstamped:
            faults.append(f"{unstamped} messages with stamp 0 dropped: the driver must stamp them")
        if ahead:
            seconds = dropped.ahead_ns / 1e9
            faults.append(f"{ahead} messages stamped {seconds:.3f} s ahead of this node's clock dropped: clocks differ")
        if malformed:
            faults.append(f"{malformed} malformed messages dropped: {dropped.fault}")
        return "; ".join(faults)

    def _stale(self, status: StreamStatus) -> str:
        missing = f"; without a position: {some_joints(status.missing, self._joints)}" if status.missing else ""
        silent = status.silent_ns / 1e9
        if status.state == "repeating":
            return f"frozen: {self._topic} repeats one stamp for {silent:.1f} s{missing}"
        if status.state == "frozen":
            return f"frozen: {self._topic} sends new stamps with the same picture"
        if status.missing and status.silent_ns >= 0 and status.rate_hz > 0:
            return f"{self._topic} arrives{missing}"
        since = f"silent for {silent:.1f} s" if status.silent_ns >= 0 else "nothing has arrived"
        return f"{self._topic}: {since}, publishers: {self._publishers()}{missing}"


class OutcomeCheck:
    """The node's own entry: how many Observations came out, and why not."""

    def __init__(self, synchronizer: Synchronizer) -> None:
        self._synchronizer = synchronizer
        self._published = self._refused = self._resets = 0

    def report(self, published: int, unreadable: int, problem: str) -> Report:
        """``published`` Observations and ``unreadable`` matches so far; ``problem`` of the last unreadable one."""
        refused = self._synchronizer.refused + unreadable
        fresh, lost = published - self._published, refused - self._refused
        jumps = self._synchronizer.resets - self._resets
        self._published, self._refused, self._resets = published, refused, self._synchronizer.resets
        values = {"published": published, "refused": refused, "backward jumps": self._synchronizer.resets}
        reason = problem or self._synchronizer.problem
        if jumps > 2 and not fresh and self._synchronizer.last_jump is not None:
            stream = self._synchronizer.last_jump.stream
            return ERROR, f"stamps of {stream} went back {jumps} times: do two publishers share its topic?", values
        if lost and not fresh:
            return ERROR, f"no Observation: {reason}", values
        if not fresh:
            return STALE, f"no Observation: no frame of {self._synchronizer.config.reference}, the reference", values
        level = WARN if lost > _TOLERATED * (lost + fresh) else OK
        refusals = f", {lost} reference frames refused{': ' if reason else ''}{reason}" if lost else ""
        return level, f"{fresh} Observations{refusals}", values
