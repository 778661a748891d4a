"""The measured pose: merged from whole or partial joint states, and watched joint by joint.

Freshness is judged on the steady clock of whoever receives, so a stopped ``/clock`` cannot keep a pose alive; the
stamps only tell new data from old: a driver that repeats its last message is silent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from vag_policy.execution.joint_map import JointMap
from vag_policy.execution.limits import Vector, names_of
from vag_policy.execution.motion import SECOND_NS

# Best-effort messages may overtake one another by a few milliseconds; a larger step back is a clock that was reset.
_REORDERED_NS = SECOND_NS // 10
# Of no robot; a message with more would cost the time of several commands.
_MOST_NAMES = 1000


@dataclass(frozen=True)
class FeedbackNews:
    """What a joint state brought besides positions.

    Attributes:
        fault: why it, or a joint of it, was not used; empty otherwise.
        went_back: the stamps jumped backwards: a bag looped, a simulator was reset, a clock was set.
        jumped: joints that moved farther than an arm can between two messages.
    """

    fault: str = ""
    went_back: bool = False
    jumped: tuple[str, ...] = ()


class Feedback:
    """The measured pose of N joints.

    Args:
        names: the joints.
        timeout_ns: a joint not heard of for longer is stale.
        jump: a step between two messages that no arm makes, rad, on top of what it moves in the time between.
        velocity: (N,) the highest speed to allow for in that, rad/s.
        convert: turns raw (N,) positions into rad and 0..1 (metres of a finger into an opening).
    """

    def __init__(
        self,
        names: Sequence[str],
        timeout_ns: int,
        jump: float = np.inf,
        velocity: ArrayLike = 0.0,
        convert: Callable[[Vector], Vector] = lambda raw: raw,
    ) -> None:
        self._map = JointMap(names)
        self._timeout_ns = timeout_ns
        self._jump = jump
        self._velocity = np.broadcast_to(np.asarray(velocity, np.float64), len(self._map.names))
        self._convert = convert
        self._raw = np.full(len(self._map.names), np.nan)
        self._stamp_ns = np.zeros(len(self._map.names), np.int64)
        self._heard_ns = np.zeros(len(self._map.names), np.int64)
        self.position: Vector = self._raw.copy()
        """(N,) the measured pose; NaN where a joint was never heard of."""

    @property
    def complete(self) -> bool:
        """Whether every joint has been heard of."""
        return bool(np.isfinite(self._raw).all())

    def unheard(self) -> list[str]:
        """The joints never heard of."""
        return names_of(self._map.names, np.isnan(self._raw))

    def stale(self, now_ns: int) -> list[str]:
        """The joints not heard of for longer than the timeout; those never heard of too."""
        late = np.isnan(self._raw) | (now_ns - self._heard_ns > self._timeout_ns)
        return names_of(self._map.names, late) if late.any() else []

    @property
    def heard_ns(self) -> int:
        """When the joint was heard of that has been silent longest; 0 where one never was."""
        return int(self._heard_ns.min())

    def age_ns(self, now_ns: int) -> int:
        """How long ago the joint was heard of that has been silent longest."""
        return now_ns - self.heard_ns

    def update(self, names: Sequence[str], positions: Sequence[float], stamp_ns: int, now_ns: int) -> FeedbackNews:
        """Take in a joint state stamped ``stamp_ns`` and received at ``now_ns``; joints of others are skipped."""
        if stamp_ns <= 0:
            return FeedbackNews("joint_states are stamped 0: the driver has no clock yet")
        if len(names) > _MOST_NAMES:
            return FeedbackNews(f"joint_states name {len(names)} joints, allowed: at most {_MOST_NAMES}")
        if len(positions) != len(names):
            return FeedbackNews(f"joint_states name {len(names)} joints but give {len(positions)} positions")
        try:
            source, joint = self._map.find(names)
        except ValueError as error:
            return FeedbackNews(f"joint_states: {error}")
        values = np.asarray(positions, np.float64)[source]
        if not len(joint):
            return FeedbackNews()
        went_back = bool((stamp_ns < self._stamp_ns[joint] - _REORDERED_NS).any())
        if went_back:
            self._stamp_ns[:] = 0
        bad = ~np.isfinite(values)
        use = (stamp_ns > self._stamp_ns[joint]) & ~bad
        fault = ""
        if bad.any():
            named = ", ".join(f"{self._map.names[i]} at {v}" for i, v in zip(joint[bad], values[bad], strict=True))
            fault = f"joint_states report {named}"
        jumped = self._take(joint[use], values[use], stamp_ns, now_ns)
        return FeedbackNews(fault, went_back, jumped)

    def _take(self, joint: np.ndarray, values: Vector, stamp_ns: int, now_ns: int) -> tuple[str, ...]:
        before = self.position
        # Messages that waited arrive in one go, others late: the longer of the two times is how long the arm had.
        by_stamp_ns = np.where(self._stamp_ns > 0, stamp_ns - self._stamp_ns, 0)
        elapsed_ns = np.maximum(by_stamp_ns, now_ns - self._heard_ns)
        self._raw[joint] = values
        self._stamp_ns[joint] = stamp_ns
        self._heard_ns[joint] = now_ns
        self.position = np.array(self._convert(self._raw))
        far = np.abs(self.position - before) > self._jump + self._velocity * (elapsed_ns / SECOND_NS)
        return tuple(names_of(self._map.names, far)) if far.any() else ()
