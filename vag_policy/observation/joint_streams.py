"""Joint positions by name from one or several publishers on one topic, each with all or some of the joints."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vag_policy.observation.naming import some_joints
from vag_policy.observation.observation import JOINT_SOURCE
from vag_policy.observation.stream import Stream, StreamStatus

# Bounds for a publisher that never sends the same names twice; real rigs have one to four.
_PUBLISHERS = 16
_ORDERS = 64
_SEEN = 64


@dataclass(frozen=True)
class JointMatch:
    """The configured joints nearest to a stamp.

    Attributes:
        positions: (D,) float64, NaN where a joint is missing.
        stamps: D stamps, each joint's own; 0 where a joint is missing.
        problems: what is missing, too far off or not finite, naming the joints.
    """

    positions: NDArray[np.float64]
    stamps: tuple[int, ...]
    problems: tuple[str, ...]


class _Publisher:
    """Messages with one set of names. ``slots`` are the configured joints among them, as indices."""

    def __init__(self, slots: NDArray[np.intp], depth: int) -> None:
        self.slots = slots
        self.stream = Stream(depth)


class JointStreams:
    """Merges publishers by joint name; each joint keeps its own stamp."""

    def __init__(self, joints: tuple[str, ...], depth: int) -> None:
        self.joints = joints
        self._depth = depth
        self._slot = {name: index for index, name in enumerate(joints)}
        self._publishers: dict[tuple[int, ...], _Publisher] = {}
        self._orders: dict[tuple[str, ...], tuple[_Publisher, NDArray[np.intp]] | None] = {}
        self._foreign: set[str] = set()

    def clear(self) -> None:
        """Forget every message; keep publishers and counters."""
        for publisher in self._publishers.values():
            publisher.stream.clear()

    def fault(self, names: tuple[str, ...], count: int) -> str:
        """How a message with some of the joints, ``names`` and ``count`` positions, contradicts itself, or nothing."""
        if count == len(names) and names in self._orders:  # looked at before, and sound: nearly every message
            return ""
        given = Counter(names)
        if count == len(names) == len(given) or self._slot.keys().isdisjoint(given):
            return ""
        if count != len(names):
            return f"{len(names)} joints are named, {count} positions given"
        return f"joint {', '.join(sorted(name for name, times in given.items() if times > 1))} is named more than once"

    def find(self, names: tuple[str, ...]) -> tuple[_Publisher, NDArray[np.intp]] | None:
        """Whose message carries ``names``, and which columns of it are wanted; None if none is."""
        if names not in self._orders:
            if len(self._orders) >= _ORDERS:
                self._orders.clear()
            self._orders[names] = self._new_order(names)
        return self._orders[names]

    def _new_order(self, names: tuple[str, ...]) -> tuple[_Publisher, NDArray[np.intp]] | None:
        column = {name: index for index, name in enumerate(names)}
        if len(self._foreign) < _SEEN:
            self._foreign |= set(names) - set(self._slot)
        slots = tuple(slot for name, slot in self._slot.items() if name in column)
        if not slots:
            return None
        if slots not in self._publishers:
            if len(self._publishers) >= _PUBLISHERS:
                oldest = min(self._publishers, key=lambda key: self._publishers[key].stream.last_arrival or 0)
                del self._publishers[oldest]
                self._orders.clear()
            self._publishers[slots] = _Publisher(np.array(slots, np.intp), self._depth)
        return self._publishers[slots], np.array([column[self.joints[slot]] for slot in slots], np.intp)

    def nearest(self, stamp: int, slop: int) -> JointMatch:
        """Each joint's position nearest to ``stamp``; those further away than ``slop`` (inclusive) are problems."""
        count = len(self.joints)
        positions = np.full(count, np.nan)
        stamps = np.zeros(count, np.int64)
        best = np.full(count, np.iinfo(np.int64).max)
        for publisher in self._publishers.values():
            near = publisher.stream.nearest(stamp)
            if near is None:
                continue
            own, values = near
            # A broadcaster fills joints it does not know with NaN: another publisher's number wins over that.
            wins = (abs(own - stamp) < best[publisher.slots]) & (
                np.isfinite(values) | np.isnan(positions[publisher.slots])
            )
            slots = publisher.slots[wins]
            positions[slots], stamps[slots] = values[wins], own
            best[slots] = np.where(np.isfinite(values[wins]), abs(own - stamp), best[slots])
        return JointMatch(positions, tuple(stamps.tolist()), tuple(self._problems(positions, stamps, stamp, slop)))

    def _problems(
        self, positions: NDArray[np.float64], stamps: NDArray[np.int64], stamp: int, slop: int
    ) -> Iterator[str]:
        absent = stamps == 0
        if absent.any():
            others = f" (joint_states has: {', '.join(sorted(self._foreign))})" if self._foreign else ""
            yield f"no position of {self._named(absent)}{others}"
        far = ~absent & (np.abs(stamps - stamp) > slop)
        if far.any():
            away = max(abs(int(own) - stamp) for own in stamps[far]) / 1e9
            slop_s = slop / 1e9
            yield f"nearest position of {self._named(far)} is {away:.3f} s from the reference (slop {slop_s:.3f} s)"
        for slot in np.flatnonzero(~absent & ~far & ~np.isfinite(positions)):
            yield f"position of joint {self.joints[slot]} is {positions[slot]}"

    def _named(self, mask: NDArray[np.bool_]) -> str:
        return some_joints([self.joints[slot] for slot in np.flatnonzero(mask)], self.joints, "joint ")

    def may_improve(self, stamp: int, slop: int) -> bool:
        """Whether to wait: a joint has no position within the slop yet, or a living publisher brings a nearer one."""
        covered: set[int] = set()
        for publisher in self._publishers.values():
            near = publisher.stream.nearest(stamp)
            if near is None or abs(near[0] - stamp) > slop:
                continue
            if publisher.stream.may_improve(stamp):
                return True
            covered.update(publisher.slots.tolist())
        return len(covered) < len(self.joints)

    def forget_before(self, stamp: int) -> None:
        """Drop messages older than ``stamp``."""
        for publisher in self._publishers.values():
            publisher.stream.forget_before(stamp)

    def status(self, now: int, max_age: int) -> StreamStatus:
        """The topic's health: counters over all publishers, and the joints that nobody keeps fresh."""
        publishers = list(self._publishers.values())
        parts = [p.stream.status(JOINT_SOURCE, now, max_age, 0) for p in publishers]
        fresh: set[int] = set()
        for publisher, part in zip(publishers, parts, strict=True):
            if part.state == "ok":
                fresh.update(publisher.slots.tolist())
        missing = tuple(name for slot, name in enumerate(self.joints) if slot not in fresh)
        alive = [part.silent_ns for part in parts if part.silent_ns >= 0]
        states = {part.state for part in parts}
        state = "ok" if not missing else "repeating" if "repeating" in states else "silent" if alive else "waiting"
        return StreamStatus(
            name=JOINT_SOURCE,
            state=state,
            received=sum(part.received for part in parts),
            repeats=sum(part.repeats for part in parts),
            gaps=sum(part.gaps for part in parts),
            rate_hz=sum(part.rate_hz for part in parts),
            silent_ns=min(alive, default=-1),
            last_stamp_ns=max((p.last_stamp_ns for p in parts if p.last_stamp_ns is not None), default=None),
            missing=missing,
        )
