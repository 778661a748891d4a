"""Which chunks may be executed. Every rule has a name, so that refusals can be counted by cause."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vag_policy.execution.chunk_queue import Chunk
from vag_policy.execution.joint_map import JointMap, listed
from vag_policy.execution.limits import JointLimits, names_of
from vag_policy.execution.motion import SECOND_NS
from vag_policy.policy import Plan

# Clocks of two hosts differ a little; an observation from farther in the future is a clock that is wrong.
_SKEW_NS = SECOND_NS // 10
# Longer than this no chunk is executed blindly, whatever it says.
_LONGEST_RUN_NS = 10 * SECOND_NS


@dataclass(frozen=True)
class Refusal:
    """Why a chunk is not executed.

    Attributes:
        cause: a short key to count by.
        text: the reason, for people.
        broken: whether the chunk itself is wrong (an ERROR), rather than its time or the state of the arms.
    """

    cause: str
    text: str
    broken: bool = False


@dataclass(frozen=True)
class AdmissionConfig:
    """What a chunk must keep to.

    Attributes:
        max_age_ns: how old the observation may be when its chunk arrives, and when it is started after a ramp.
        range_tolerance: how far beyond its limits (rad; strokes for grippers) an action may ask a joint to go
            before the chunk counts as garbage; anything less is clamped.
    """

    max_age_ns: int = 3 * SECOND_NS
    range_tolerance: float = 10.0

    def __post_init__(self) -> None:
        if self.max_age_ns <= 0 or not self.range_tolerance >= 0.0:
            raise ValueError(
                f"max_age_ns must be positive and range_tolerance not negative, got {self.max_age_ns} and "
                f"{self.range_tolerance}"
            )


class Admission:
    """Remembers which chunk came last and judges the next. Times are the receiver's steady clock."""

    def __init__(self, limits: JointLimits, config: AdmissionConfig) -> None:
        self._limits = limits
        self._config = config
        self._map = JointMap(limits.names)
        self._ended: int | None = None
        self._not_before_ns: int | None = None
        self.forget()

    def forget(self) -> None:
        """Start afresh, as after a clock that went back: numbers and stamps seen before mean nothing now."""
        self.episode: int | None = None
        """The episode of the last chunk admitted."""
        self._replan = -1
        self._stamp_ns = 0
        self._ended = None
        self._not_before_ns = None

    def end_episode(self) -> None:
        """Refuse what is still to come of the episode."""
        self._ended = self.episode

    def require_after(self, time_ns: int) -> None:
        """Refuse chunks made from an observation before ``time_ns``: the arms were not where they are since."""
        self._not_before_ns = time_ns

    def judge(self, plan: Plan, age_ns: int, now_ns: int) -> Chunk | Refusal:
        """The chunk in joint order, or why not. ``age_ns``: the age of the plan's observation at ``now_ns``."""
        return self._content(plan) or self._sequence(plan) or self._time(plan, age_ns, now_ns) or self._chunk(plan)

    def admit(self, plan: Plan) -> None:
        """Remember ``plan`` as the last one taken."""
        if plan.episode != self.episode:
            self._ended = None
        self.episode, self._replan, self._stamp_ns = plan.episode, plan.replan, plan.observation_stamp_ns

    def _content(self, plan: Plan) -> Refusal | None:
        unknown, missing = self._map.unknown(plan.names), self._map.missing(plan.names)
        if unknown or missing:
            parts = [f"unknown joints {listed(unknown)}"] if unknown else []
            parts += [f"no actions for {', '.join(missing)}"] if missing else []
            text = f"{'; '.join(parts)}; the rig has: {', '.join(self._limits.names)}"
            return Refusal("unknown_joint" if unknown else "missing_joint", text, broken=True)
        if len(plan.names) != len(self._limits.names):
            return Refusal("duplicate_joint", "a joint is named more than once", broken=True)
        if plan.execute * plan.period_ns > _LONGEST_RUN_NS:
            seconds, allowed = plan.execute * plan.period_ns / SECOND_NS, _LONGEST_RUN_NS // SECOND_NS
            return Refusal("too_long", f"it would run for {seconds:g} s, allowed: {allowed} s", broken=True)
        bad = ~np.isfinite(plan.actions)
        if bad.any():
            row, column = np.argwhere(bad)[0]
            text = f"action {row} of {plan.names[column]} is {plan.actions[row, column]}"
            return Refusal("not_finite", text, broken=True)
        return self._range(plan)

    def _range(self, plan: Plan) -> Refusal | None:
        actions, limits, tolerance = self._ordered(plan), self._limits, self._config.range_tolerance
        far = ((actions < limits.lower - tolerance) | (actions > limits.upper + tolerance)).any(axis=0)
        if not far.any():
            return None
        return Refusal("out_of_range", f"actions far outside the limits of {limits.named(far)}", broken=True)

    def _sequence(self, plan: Plan) -> Refusal | None:
        if self.episode is not None and plan.episode < self.episode:
            text = f"of episode {plan.episode}, after episode {self.episode}; disarm and arm to begin the numbers anew"
            return Refusal("old_episode", text)
        if plan.episode == self._ended:
            return Refusal("ended_episode", f"of episode {plan.episode}, which was ended here: start a new one")
        if plan.episode == self.episode and (
            plan.replan <= self._replan or plan.observation_stamp_ns <= self._stamp_ns
        ):
            return Refusal("out_of_order", f"replan {plan.replan} of episode {plan.episode} after {self._replan}")
        return None

    def _time(self, plan: Plan, age_ns: int, now_ns: int) -> Refusal | None:
        age = f"{age_ns / SECOND_NS:.2f} s"
        if plan.observation_stamp_ns <= 0:
            return Refusal("no_stamp", "its observation is stamped 0")
        if age_ns < -_SKEW_NS:
            return Refusal("from_the_future", f"its observation is {age} old: the clocks differ", broken=True)
        too_old = self.too_old(age_ns)
        if too_old is not None:
            return too_old
        if self._not_before_ns is not None and now_ns - age_ns < self._not_before_ns:
            return Refusal("outdated", "its observation is from before the last hold or ramp")
        return None

    def too_old(self, age_ns: int) -> Refusal | None:
        """Why a chunk whose observation is ``age_ns`` old must not be started, or None."""
        if age_ns <= self._config.max_age_ns:
            return None
        allowed = f"{self._config.max_age_ns / SECOND_NS:g} s"
        return Refusal("too_old", f"its observation is {age_ns / SECOND_NS:.2f} s old, allowed: {allowed}")

    def _ordered(self, plan: Plan) -> np.ndarray:
        source, joint = self._map.find(plan.names)
        actions = np.empty((len(plan.actions), len(self._limits.names)))
        actions[:, joint] = plan.actions[:, source]
        return actions

    def _chunk(self, plan: Plan) -> Chunk:
        return Chunk(self._ordered(plan), plan.period_ns, plan.execute)


def far_joints(first: np.ndarray, measured: np.ndarray, threshold: np.ndarray, limits: JointLimits) -> list[str]:
    """The joints whose first action (N,) is farther than ``threshold`` (N,) from the measured pose (N,)."""
    return names_of(limits.names, np.abs(first - measured) > threshold)
