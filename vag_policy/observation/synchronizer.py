"""Which frames and joint positions belong together: matching by time, nearest to a reference camera's stamp.

Pure: messages are offered as (stream, stamp, opaque payload), matches come out. Frames stay encoded; only what is
matched ever needs decoding.

How long a match waits. A reference frame is matched as soon as no better partner can come from any stream: each
stream has a message at or after the reference stamp, or its rhythm says that its next one will be further away than
the newest one here. That costs at most half a period of the slowest stream, plus what that stream's transport is
slower than the reference's. ``max_wait_ns`` bounds it: then the nearest message that is here is taken if it is
within the slop, else the reference frame is refused. So make the slowest camera the reference: the others have
then arrived. ``max_wait_ns=0`` never waits (lowest latency, partners up to a period old).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vag_policy.observation.joint_streams import JointStreams
from vag_policy.observation.observation import JOINT_SOURCE
from vag_policy.observation.stream import Dropped, Stream, StreamStatus
from vag_policy.observation.sync_config import SyncConfig

_OTHER_CLOCK_NS = 60_000_000_000
"""An age that no lag explains: the stamps are another clock's."""


@dataclass(frozen=True)
class Match:
    """What belongs together.

    Attributes:
        stamp_ns: the reference frame's stamp.
        frames: payload by camera, in configured order.
        positions: (D,) float64, one for each configured joint, as published.
        joint_stamp_ns: D stamps: each joint's own.
        source_stamp_ns: stamp by camera, then ``JOINT_SOURCE``: that of the oldest joint.
    """

    stamp_ns: int
    frames: Mapping[str, Any]
    positions: NDArray[np.float64]
    joint_stamp_ns: tuple[int, ...]
    source_stamp_ns: Mapping[str, int]


@dataclass(frozen=True)
class Jump:
    """A stream's stamps went back: everything was forgotten."""

    stream: str
    from_ns: int
    to_ns: int


class Synchronizer:
    """Feed it with ``offer`` and ``offer_joints``, then take every ``match``.

    Attributes:
        matched: matches made.
        refused: reference frames without a match.
        problem: why the last reference frame was refused; empty after a match.
        resets: backward jumps seen; a caller with a memory of its own compares it and forgets, too.
        last_jump: the latest of them.
        waiting: streams that the oldest open reference frame waits for.
        idle_until_ns: no message that arrives before this moment (steady clock) completes a match.
    """

    def __init__(self, config: SyncConfig) -> None:
        self.config = config
        self.matched = self.refused = self.resets = 0
        self.problem = ""
        self.last_jump: Jump | None = None
        self.waiting: tuple[str, ...] = ()
        self.idle_until_ns = 0
        self._cameras = {name: Stream(config.frames) for name in config.cameras}
        self._reference = self._cameras[config.reference]
        self._joints = JointStreams(config.joints, config.joint_messages)
        self._dropped = {name: Dropped() for name in (*config.cameras, JOINT_SOURCE)}
        self._open: deque[tuple[int, Any, int]] = deque()  # reference frames: stamp, payload, deadline
        self._due: int | None = None

    def offer(
        self,
        camera: str,
        stamp_ns: int,
        payload: Any,
        now_ns: int,
        content: int | None = None,
        clock_ns: int = 0,
    ) -> None:
        """Take a camera's frame.

        Args:
            camera: one of the configured names.
            stamp_ns: the frame's stamp; 0 or less is dropped and counted.
            payload: the frame, opaque.
            now_ns: steady clock.
            content: a number that is equal for equal pictures (a hash of some of the bytes), where
                ``frozen_ns`` is on.
            clock_ns: the clock that stamps are compared with; 0 where it is not known.

        Raises:
            ValueError: an unknown camera.
        """
        stream = self._cameras.get(camera)
        if stream is None:
            raise ValueError(f"no camera '{camera}'; cameras: {', '.join(self._cameras)}")
        if not self._admit(camera, stream.newest, stamp_ns, clock_ns):
            return
        fresh = stream.add(stamp_ns, payload, now_ns, content)
        if fresh and stream is self._reference and stamp_ns == stream.newest:
            self._open_reference(stamp_ns, payload, now_ns)

    def offer_joints(
        self,
        names: tuple[str, ...],
        stamp_ns: int,
        positions: Sequence[float] | NDArray,
        now_ns: int,
        clock_ns: int = 0,
    ) -> None:
        """Take a joint-state message, whole or partial, in any order; ``clock_ns`` as for ``offer``.

        Messages with the same set of names are one publisher's: publishers with clocks slightly apart may share
        the topic. Joints that are not configured are ignored. A message that names a joint twice, or does not give one
        position a name, is dropped and counted.
        """
        fault = self._joints.fault(names, len(positions))
        found = None if fault else self._joints.find(names)
        if fault:
            self.refuse(JOINT_SOURCE, fault)
        if found is None:
            return
        publisher, columns = found
        if self._admit(JOINT_SOURCE, publisher.stream.newest, stamp_ns, clock_ns):
            publisher.stream.add(stamp_ns, np.asarray(positions, np.float64)[columns], now_ns)

    def refuse(self, stream: str, fault: str) -> None:
        """Count a message of ``stream`` that cannot be used."""
        dropped = self._dropped[stream]
        dropped.malformed, dropped.fault = dropped.malformed + 1, fault

    def _admit(self, name: str, newest: int | None, stamp: int, clock: int) -> bool:
        dropped = self._dropped[name]
        if stamp <= 0:
            dropped.unstamped += 1
            return False
        if clock > 0 and stamp - clock > self.config.max_ahead_ns:
            dropped.ahead, dropped.ahead_ns = dropped.ahead + 1, stamp - clock
            return False
        if newest is not None and newest - stamp >= self.config.jump_back_ns:
            self.resets += 1
            self.last_jump = Jump(name, newest, stamp)
            self.reset()
        return True

    def reset(self) -> None:
        """Forget every message; keep the counters."""
        for stream in self._cameras.values():
            stream.clear()
        self._joints.clear()
        self._open.clear()
        self.waiting = ()
        self.idle_until_ns = 0
        self._due = None

    def _open_reference(self, stamp: int, payload: Any, now: int) -> None:
        """Queue a reference frame if one is due. At a rate below the camera's, the frame nearest to due is taken."""
        period, rhythm = self.config.period_ns, self._reference.period
        if period:
            early = (rhythm or 0) // 2
            due = stamp if self._due is None else self._due
            if stamp < due - early:
                return
            self._due = due + period if due + period - early > stamp else stamp + period
            wall = self._reference.arrival_period(now)
            if rhythm and wall:
                frames = -(-(self._due - early - stamp) // rhythm)  # to the next one that is due, rounded up
                self.idle_until_ns = now + int((frames - 0.5) * wall)
        if len(self._open) == self.config.frames:
            self._refuse([f"{self.config.frames} frames of {self.config.reference} wait already"])
            self._open.popleft()
        self._open.append((stamp, payload, now + self.config.max_wait_ns))

    @property
    def deadline_ns(self) -> int | None:
        """When the oldest open reference frame stops waiting (steady clock), or None."""
        return self._open[0][2] if self._open else None

    def match(self, now_ns: int, clock_ns: int) -> Match | None:
        """The next match in stamp order, or None; call again until None.

        Args:
            now_ns: steady clock.
            clock_ns: the clock that stamps are compared with; 0 (simulated, not running yet) refuses.
        """
        while self._open:
            stamp, payload, deadline = self._open[0]
            self.waiting = self._unsettled(stamp)
            if self.waiting and now_ns < deadline:
                return None
            self.waiting = ()
            self._open.popleft()
            match = self._resolve(stamp, payload, clock_ns)
            if match is not None:
                return match
        return None

    def _unsettled(self, stamp: int) -> tuple[str, ...]:
        names = [
            name
            for name, stream in self._cameras.items()
            if stream is not self._reference and stream.may_improve(stamp)
        ]
        if self._joints.may_improve(stamp, self.config.slop_ns):
            names.append(JOINT_SOURCE)
        return tuple(names)

    def settled(self) -> list[tuple[str, int, Any]]:
        """(camera, stamp, payload) of the frames that the oldest open reference frame will be matched with for sure.

        Empty while matches fail: then nothing is worth preparing.
        """
        if not self._open or self.problem:
            return []
        stamp, payload, _ = self._open[0]
        frames = [(self.config.reference, stamp, payload)]
        for name, stream in self._cameras.items():
            near = stream.nearest(stamp)
            if near is not None and stream is not self._reference and name not in self.waiting:
                frames.append((name, *near))
        return frames

    def _resolve(self, stamp: int, payload: Any, clock: int) -> Match | None:
        if clock <= 0:
            self._refuse(["the clock stands at 0: use_sim_time is set and nothing publishes /clock yet"])
            return None
        slop = self.config.slop_ns
        problems: list[str] = []
        frames: dict[str, Any] = {}
        stamps: dict[str, int] = {}
        for name, stream in self._cameras.items():
            near = (stamp, payload) if stream is self._reference else stream.nearest(stamp)
            if near is None:
                problems.append(f"{name}: no frame")
                continue
            stamps[name], frames[name] = near
            if abs(near[0] - stamp) > slop:
                problems.append(f"{name}: nearest frame is {_s(near[0] - stamp)} from the reference (slop {_s(slop)})")
            elif self.config.frozen_ns and stream.same_content_ns(near[0]) >= self.config.frozen_ns:
                problems.append(f"{name}: frozen, the same picture for {_s(stream.same_content_ns(near[0]))}")
            stream.forget_before(near[0])
        joints = self._joints.nearest(stamp, slop)
        problems += joints.problems
        if not joints.problems:
            stamps[JOINT_SOURCE] = min(joints.stamps)
        problems += [
            self._too_old(name, clock - own)
            for name, own in stamps.items()
            if clock - own > self.config.age_limit(name)
        ]
        self._joints.forget_before(stamp - slop)
        if problems:
            self._refuse(problems)
            return None
        self.matched += 1
        self.problem = ""
        return Match(stamp, frames, joints.positions, joints.stamps, stamps)

    def _too_old(self, name: str, age: int) -> str:
        hint = "; for a bag, play it with --clock and set use_sim_time" if age > _OTHER_CLOCK_NS else ""
        return f"{name}: {_s(age)} old by this node's clock (at most {_s(self.config.age_limit(name))}){hint}"

    def _refuse(self, problems: list[str]) -> None:
        self.refused += 1
        self.problem = "; ".join(problems)

    def status(self, now_ns: int) -> tuple[StreamStatus, ...]:
        """Every stream's health: cameras in order, then ``JOINT_SOURCE``. ``now_ns`` is the steady clock."""
        config = self.config
        cameras = [
            stream.status(name, now_ns, config.age_limit(name), config.frozen_ns)
            for name, stream in self._cameras.items()
        ]
        joints = self._joints.status(now_ns, config.age_limit(JOINT_SOURCE))
        return tuple(replace(status, dropped=replace(self._dropped[status.name])) for status in (*cameras, joints))


def _s(nanoseconds: int) -> str:
    return f"{nanoseconds / 1e9:.3f} s"
