"""Plays the current chunk of actions on the command's own clock, and hands over from one chunk to the next.

Where in a chunk we are is a real number: at 3.5 the target is halfway between actions 3 and 4. An action stands for
its whole period, so a chunk started at action 0 has been executed when ``execute`` periods have passed.

::

    old chunk   0 1 2 3 4 5 6 7 8 9        observed at its action 4, here   v
    new chunk           0 1 2 3 4 5 6 7 8 9                  arrives at action 7: 0 1 2 are past, 3 comes next
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np

from vag_policy.execution.limits import Vector

# Stretches of play that are remembered; an observation older than all of them is older than any chunk may be.
_REMEMBERED = 64


@dataclass(frozen=True, eq=False)
class Chunk:
    """Actions (A_H, N) float64 in joint order, one every ``period_ns``; ``execute`` of them before the next is due."""

    actions: Vector
    period_ns: int
    execute: int


@dataclass(frozen=True)
class _Playing:
    chunk: Chunk
    first: float  # position in the chunk where play began
    start_ns: int
    end_ns: int  # when it has been executed

    def position(self, now_ns: int) -> float:
        return self.first + (min(now_ns, self.end_ns) - self.start_ns) / self.chunk.period_ns


class ChunkQueue:
    """The chunk being played. All times are nanoseconds of one steady clock.

    ``blocking``: a chunk stops after ``execute`` actions and the arms hold until the next. ``async``: the next is
    thought out meanwhile, so it may run on for ``grace_ns`` where that comes late, to its last action and no further.
    """

    def __init__(self, grace_ns: int = 0) -> None:
        if grace_ns < 0:
            raise ValueError(f"grace must not be negative, got {grace_ns} ns")
        self._grace_ns = grace_ns
        self._playing: _Playing | None = None
        self._played: deque[tuple[int, int]] = deque(maxlen=_REMEMBERED)

    @property
    def empty(self) -> bool:
        """Whether there is no chunk at all, not even an executed one."""
        return self._playing is None

    def first_position(self, chunk: Chunk, observed_ns: int, now_ns: int) -> float:
        """Where in ``chunk``, made from an observation at ``observed_ns``, play has to begin now.

        As many actions are dropped as time has passed since the observation, but no more than were executed in that
        time: min(delay, consumed). An arm that held meanwhile has missed nothing.
        """
        return self.played_ns(observed_ns, now_ns) / chunk.period_ns

    def start(self, chunk: Chunk, first: float, now_ns: int) -> None:
        """Play ``chunk`` from position ``first``; what is left of the one before is never played.

        Raises:
            ValueError: ``first`` is beyond the last action, so that nothing is left to play.
        """
        if not 0.0 <= first < len(chunk.actions):
            raise ValueError(f"cannot start at action {first:.1f} of a chunk of {len(chunk.actions)}")
        self._close(now_ns)
        end_ns = now_ns + chunk.execute * chunk.period_ns + self._grace_ns
        self._playing = _Playing(chunk, first, now_ns, end_ns)

    def flush(self, now_ns: int) -> None:
        """Drop the chunk, and forget what was played: nothing made before now can be handed over to."""
        self._playing = None
        self._played.clear()

    def target(self, now_ns: int) -> Vector:
        """(N,) interpolated linearly; before the start the first action, after the end the last one executed.

        Raises:
            ValueError: there is no chunk.
        """
        if self._playing is None:
            raise ValueError("there is no chunk to play")
        playing, actions = self._playing, self._playing.chunk.actions
        # The last of the executed actions is held for its period; beyond the horizon it is the last there is.
        periods = (playing.end_ns - playing.start_ns) / playing.chunk.period_ns
        last = min(playing.first + periods - 1.0, len(actions) - 1.0)
        position = min(max(playing.position(now_ns), playing.first), max(last, playing.first))
        index = min(int(position), len(actions) - 1)
        following = min(index + 1, len(actions) - 1)
        fraction = position - index
        return actions[index] * (1.0 - fraction) + actions[following] * fraction

    def exhausted(self, now_ns: int) -> bool:
        """Whether all that may be executed has been; True without a chunk."""
        return self._playing is None or now_ns >= self._playing.end_ns

    def depth(self, now_ns: int) -> int:
        """Actions left of the chunk: those it holds, not what it is padded with."""
        if self._playing is None or now_ns >= self._playing.end_ns:
            return 0
        playing = self._playing
        periods = (playing.end_ns - playing.start_ns) / playing.chunk.period_ns
        last = min(playing.first + periods, float(len(playing.chunk.actions)))
        return max(int(np.ceil(last - playing.position(now_ns))), 0)

    def played_ns(self, since_ns: int, now_ns: int) -> int:
        """How long chunks have been playing in [since, now]: what the arms did since an observation."""
        stretches = list(self._played)
        if self._playing is not None:
            stretches.append((self._playing.start_ns, min(now_ns, self._playing.end_ns)))
        return sum(max(min(end, now_ns) - max(start, since_ns), 0) for start, end in stretches)

    def _close(self, now_ns: int) -> None:
        if self._playing is not None:
            self._played.append((self._playing.start_ns, min(now_ns, self._playing.end_ns)))
