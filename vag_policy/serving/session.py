"""When to plan, on which observation, for which episode, and whether a finished plan may still go out.

An observation arrives (``arrived``), is admitted or not (``admit``), is planned on for a while, and the plan is
committed (``commit``) unless the world has moved on. Arrival happens in one thread, planning in another: every method
may be called from any thread.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from vag_policy.observation.observation import Observation
from vag_policy.policy import Plan

MODES = ("blocking", "async")


@dataclass(frozen=True)
class SessionConfig:
    """Timing of the replans.

    Attributes:
        mode: ``blocking``: the next plan is made from the first observation stamped when the last chunk's ``execute``
            actions have run out, while the arms hold; ``async``: as soon as the last plan is done, while they move.
        max_age_ns: oldest an observation's parts may be, and furthest its stamp may be ahead of the clock; inclusive.
        min_period_ns: least time from the start of one replan to the start of the next.
    """

    mode: str
    max_age_ns: int
    min_period_ns: int = 0

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise ValueError(f"unknown mode {self.mode!r}; allowed: {', '.join(MODES)}")
        if self.max_age_ns <= 0 or self.min_period_ns < 0:
            raise ValueError(
                f"max_age_ns must be positive and min_period_ns not negative, got {self.max_age_ns}, "
                f"{self.min_period_ns}"
            )


@dataclass(frozen=True)
class Ticket:
    """Leave to plan on one observation."""

    episode: int
    instruction: str
    started_ns: int


class PlanningSession:
    """The state of planning between two observations.

    Attributes (read-only for users):
        instruction: what the policy acts on; empty while it is idle.
        episode: number of the current or last episode.
        replans, faults: of the current or last episode.
        refusals: how often an observation was refused, by cause.
        refusal: why the last observation was refused; empty where it was not.
        jumps: backward time jumps seen.
        discarded: plans that were finished too late to go out.
    """

    def __init__(self, config: SessionConfig, first_episode: int) -> None:
        self._config = config
        self._lock = threading.RLock()
        self.episode = first_episode - 1
        self.instruction = ""
        self.replans = 0
        self.faults = 0
        self.refusals: Counter[str] = Counter()
        self.refusal = ""
        self.jumps = 0
        self.discarded = 0
        self._arrived_ns: int | None = None
        self._not_before_ns: int | None = None
        self._started_ns: int | None = None
        self._planned_ns: int | None = None

    def begin(self, instruction: str) -> int:
        """Start an episode on ``instruction`` and return its number; a plan of the last one will not go out."""
        if not instruction:
            raise ValueError("an episode needs an instruction")
        with self._lock:
            self.episode += 1
            self.instruction = instruction
            self.replans = self.faults = 0
            self._forget()
            return self.episode

    def end(self) -> None:
        """Stop acting. When this returns, no plan goes out any more."""
        with self._lock:
            self.instruction = ""

    def restart(self) -> bool:
        """Start a new episode on the same instruction; False where there is none."""
        with self._lock:
            if self.instruction:
                self.begin(self.instruction)
            return bool(self.instruction)

    def clock_jumped_back(self) -> None:
        """Forget every stamp and restart the episode: older stamps are news now."""
        with self._lock:
            self.jumps += 1
            self._arrived_ns = None
            self._forget()
            self.restart()

    def arrived(self, stamp_ns: int, now_ns: int) -> bool:
        """Note an observation's stamp; True where time has gone back since the last one, which restarts the episode.

        A stamp ahead of the clock is no news of the present: after the clock itself went back, observations from
        before may still come in.
        """
        with self._lock:
            if not 0 < stamp_ns <= now_ns + self._config.max_age_ns:
                return False
            back = self._arrived_ns is not None and stamp_ns < self._arrived_ns
            if back:
                self.clock_jumped_back()
            self._arrived_ns = stamp_ns
            return back

    def refuse(self, cause: str, detail: str) -> None:
        """Count an observation that cannot be used."""
        with self._lock:
            self.refusals[cause] += 1
            self.refusal = f"{cause}: {detail}"

    def admit(self, observation: Observation, now_ns: int) -> Ticket | None:
        """Leave to plan on ``observation`` at ``now_ns``, or None: refused (and counted), idle, or not due yet."""
        with self._lock:
            refusal = self._refusal(observation, now_ns)
            if refusal:
                self.refuse(*refusal)
                return None
            self.refusal = ""
            if not self.instruction or not self.due(observation.stamp_ns, now_ns):
                return None
            self._started_ns, self._planned_ns = now_ns, observation.stamp_ns
            return Ticket(self.episode, self.instruction, now_ns)

    def due(self, stamp_ns: int, now_ns: int) -> bool:
        """Whether a plan may be made at ``now_ns`` from an observation stamped ``stamp_ns``, as far as timing goes."""
        with self._lock:
            if stamp_ns == self._planned_ns:
                return False  # nothing has been seen since
            if self._started_ns is not None and now_ns - self._started_ns < self._config.min_period_ns:
                return False
            if self._config.mode == "async" or self._not_before_ns is None:
                return True
            return stamp_ns >= self._not_before_ns

    def commit(self, ticket: Ticket, plan: Plan, now_ns: int, publish: Callable[[Plan], None]) -> bool:
        """Call ``publish`` with a finished plan, unless its episode is over (then False).

        ``end`` and ``begin`` wait for a publish that is under way.
        """
        with self._lock:
            if not self._current(ticket):
                self.discarded += 1
                return False
            publish(plan)
            self.replans += 1
            self._not_before_ns = now_ns + plan.execute * plan.period_ns
            return True

    def fail(self, ticket: Ticket) -> bool:
        """Count a replan that raised, unless its episode is over (then False)."""
        with self._lock:
            current = self._current(ticket)
            self.faults += current
            return current

    def _forget(self) -> None:
        self._not_before_ns = self._started_ns = self._planned_ns = None

    def _current(self, ticket: Ticket) -> bool:
        return bool(self.instruction) and ticket.episode == self.episode

    def _refusal(self, observation: Observation, now_ns: int) -> tuple[str, str] | None:
        if observation.stamp_ns <= 0:
            return "no stamp", "an observation is stamped 0"
        if now_ns <= 0:
            return "no clock", "use_sim_time is set and no /clock has come"
        limit = self._config.max_age_ns
        stamps = {"the observation": observation.stamp_ns, **observation.source_stamp_ns}
        oldest = min(stamps, key=lambda name: stamps[name])
        age = now_ns - stamps[oldest]
        if age > limit:
            return "too old", f"{oldest} is {age / 1e9:.3f} s old, allowed {limit / 1e9:.3f} s"
        ahead = observation.stamp_ns - now_ns
        if ahead > limit:
            return "from the future", f"stamped {ahead / 1e9:.3f} s ahead of the clock, allowed {limit / 1e9:.3f} s"
        return None
