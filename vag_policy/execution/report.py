"""What the executor has to say about itself, once a second: a level, a sentence and numbers for every check."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from vag_policy.execution.arbiter import DISARMED, HOLD, Arbiter
from vag_policy.execution.motion import SECOND_NS
from vag_policy.observation.naming import some_joints

OK, WARN, ERROR, STALE = "ok", "warn", "error", "stale"
# Drivers and simulators take a while to start; until something was executed that is no fault.
_GRACE_NS = 10 * SECOND_NS
Report = tuple[str, str, dict[str, Any]]


class Pace:
    """Keeps the last command periods.

    Args:
        period_ns: the nominal period.
        kept: how many are kept.
    """

    def __init__(self, period_ns: int, kept: int = 1000) -> None:
        self.period_ns = period_ns
        self._periods = np.zeros(kept, np.int64)
        self._count = 0
        self._last_ns: int | None = None
        self._irregular = False

    def tick(self, now_ns: int) -> None:
        """A command went out."""
        if self._last_ns is not None:
            self._periods[self._count % len(self._periods)] = now_ns - self._last_ns
            self._count += 1
        self._last_ns = now_ns

    def jitter_ms(self) -> tuple[float, float]:
        """99th percentile and maximum of |period - nominal| over the kept periods, milliseconds."""
        periods = self._periods[: self._count]
        if not len(periods):
            return 0.0, 0.0
        jitter = np.abs(periods - self.period_ns) / 1e6
        return float(np.percentile(jitter, 99)), float(jitter.max())

    def report(self) -> Report:
        """How evenly commands go out."""
        p99, longest = self.jitter_ms()
        values = {"jitter p99 (ms)": p99, "jitter max (ms)": longest, "rate (Hz)": SECOND_NS / self.period_ns}
        # irregular from half a period on, regular again below a quarter: no flapping in between
        self._irregular = p99 > (0.25 if self._irregular else 0.5) * self.period_ns / 1e6
        if self._irregular:
            return WARN, f"commands are irregular: {p99:.1f} ms (p99) off their {self.period_ns / 1e6:g} ms", values
        return OK, f"jitter p99 {p99:.2f} ms", values


class ReportWriter:
    """Writes the reports of an arbiter; it remembers the counts of the last time, to tell what is new.

    Args:
        arbiter: whose reports.
        start_ns: when it began, on the steady clock.
    """

    def __init__(self, arbiter: Arbiter, start_ns: int = 0) -> None:
        self._arbiter = arbiter
        self._start_ns = start_ns
        self._refused: Counter[str] = Counter()
        self._states_refused = 0
        self._misses = 0

    def starting(self, now_ns: int) -> bool:
        """Whether silent joints are no fault yet: in the first seconds, before any chunk."""
        return not self._arbiter.tally.chunks and now_ns - self._start_ns < _GRACE_NS

    def execution(self, now_ns: int) -> Report:
        """Who moves the arms, or why they are held."""
        arbiter = self._arbiter
        values = {"mode": arbiter.mode, "armed": arbiter.armed, "emergency stop": arbiter.stop_reason or "released"}
        values["commands"] = arbiter.tally.commands
        text = f"{arbiter.mode}: {arbiter.reason}" if arbiter.reason else arbiter.mode
        if arbiter.tally.violations:
            values["failed the last check"] = arbiter.tally.violations
        if arbiter.fault and not (arbiter.silent and self.starting(now_ns)):
            return ERROR, text, values
        silent = arbiter.mode == HOLD and arbiter.policy.silent_ns(now_ns) > arbiter.config.policy.silence_ns
        return (STALE if silent else OK), text, values

    def feedback(self, now_ns: int) -> Report:
        """Whether every joint is heard of."""
        feedback, tally = self._arbiter.feedback, self._arbiter.tally
        fresh, self._states_refused = tally.states_refused - self._states_refused, tally.states_refused
        silent, joints = feedback.stale(now_ns), self._arbiter.limits.names
        values: dict[str, Any] = {"refused": tally.states_refused}
        if tally.states_refused:
            values["refused last"] = tally.states_fault
        if feedback.complete:
            values["oldest joint (ms)"] = feedback.age_ns(now_ns) / 1e6
        if silent and not fresh and self.starting(now_ns):
            return OK, f"waiting for joint_states of {some_joints(silent, joints)}", values
        if not feedback.complete:
            return STALE, f"joint_states never named {some_joints(feedback.unheard(), joints)}", values
        if silent:
            return STALE, f"no joint_states of {some_joints(silent, joints)}", values
        if fresh:
            return WARN, f"every joint heard; {fresh} joint_states refused: {tally.states_fault}", values
        return OK, "every joint heard", values

    def chunks(self, now_ns: int) -> Report:
        """What became of the chunks."""
        tally, policy = self._arbiter.tally, self._arbiter.policy
        fresh = tally.refused - self._refused
        missed = tally.misses - self._misses
        self._refused, self._misses = Counter(tally.refused), tally.misses
        values = {
            "episode": policy.episode,
            "queue depth": policy.depth(now_ns),
            "accepted": tally.chunks,
            "refused": sum(tally.refused.values()),
            "deadline misses (ticks)": tally.misses,
            **{f"refused: {cause}": count for cause, count in sorted(tally.refused.items())},
        }
        if fresh and self._arbiter.mode != DISARMED:
            causes = ", ".join(f"{cause} ({count})" for cause, count in sorted(fresh.items()))
            return WARN, f"chunks refused: {causes}", values
        if missed and policy.config.mode == "async":
            return WARN, f"the policy was late for {missed} ticks", values
        return OK, f"{tally.chunks} accepted", values

    def limits(self, _now_ns: int) -> Report:
        """Which joints which limit held back, how often. Information: a limit at work is no fault."""
        values: dict[str, Any] = {}
        for kind, joints in sorted(self._arbiter.tally.clamps.items()):
            values[kind] = ", ".join(f"{name} {count}" for name, count in sorted(joints.items()))
        return OK, f"{self._arbiter.tally.clamped} joint targets clamped", values
