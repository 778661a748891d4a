"""What happened on a graph while episodes ran, collected as it happens, and the numbers drawn from it."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from vag_policy.policy import Trace

SECOND_NS = 1_000_000_000
# Velocity is judged over at least this long, so that the jitter of arrival times does not count as motion.
_VELOCITY_WINDOW_NS = SECOND_NS // 4


class Status(Protocol):
    """The part of joint_command's status that a log reads."""

    mode: str
    reason: str
    queue_depth: int
    commands: int
    misses: int
    clamps: int
    rejected: int
    limit_violations: int


@dataclass(frozen=True)
class FrameSample:
    """A stacked image as it was seen at a time, and the joints then: rad by name, grippers 0 (closed) .. 1 (open)."""

    stamp_ns: int
    image: NDArray[np.uint8]
    joints: Mapping[str, float]


@dataclass(frozen=True)
class TaskSample:
    """What the simulator said of the task at a time.

    Attributes:
        stamp_ns: when.
        success, reason, phase: see ``referee``.
        items: (7,) x y z metres and quaternion w x y z of every item, by name, in the world frame.
    """

    stamp_ns: int
    success: bool
    reason: str
    phase: str
    items: Mapping[str, Sequence[float]]


@dataclass(frozen=True)
class Replan:
    """A replan's trace, when it arrived, and when what it was made from was seen."""

    stamp_ns: int
    seen_ns: int
    trace: Trace


@dataclass(frozen=True)
class Attempt:
    """An episode that was run.

    Attributes:
        instruction: what the policy was told.
        split: ``id`` or ``ood``.
        seed: of the scene.
        start_ns, end_ns: from when to when it acted.
        success, reason: how it ended, and why not.
    """

    instruction: str
    split: str
    seed: int
    start_ns: int
    end_ns: int
    success: bool
    reason: str

    @property
    def seconds(self) -> float:
        """How long it took."""
        return (self.end_ns - self.start_ns) / SECOND_NS


@dataclass(frozen=True)
class Story:
    """An attempt, and the part of a log that belongs to it."""

    attempt: Attempt
    frames: Sequence[FrameSample]
    tasks: Sequence[TaskSample]
    replans: Sequence[Replan]

    def phases(self) -> list[tuple[str, int, int]]:
        """Every stretch of one phase: its name, and from when to when."""
        begun = [task for before, task in zip([None, *self.tasks], self.tasks, strict=False) if _differs(before, task)]
        ends = [*(task.stamp_ns for task in begun[1:]), self.attempt.end_ns]
        return [(task.phase, task.stamp_ns, end) for task, end in zip(begun, ends, strict=True)]


def _differs(before: TaskSample | None, task: TaskSample) -> bool:
    return before is None or before.phase != task.phase


@dataclass(frozen=True)
class JointBounds:
    """Limits that published commands are held against, per joint name.

    Attributes:
        lower: lowest position, rad (m for grippers).
        upper: highest position.
        velocity: highest speed, rad/s (m/s for grippers).
    """

    lower: Mapping[str, float]
    upper: Mapping[str, float]
    velocity: Mapping[str, float]


@dataclass
class EpisodeLog:
    """Filled by a listener on the graph; all stamps are one clock, in nanoseconds.

    ``commands`` counts what the whole rig was sent, as joint_command's status does: the messages to its arms and
    grippers that belong together are one command.
    """

    bounds: JointBounds
    observations: list[int] = field(default_factory=list)
    observation_age_ns: list[int] = field(default_factory=list)
    cameras: tuple[str, ...] = ()
    frames: list[FrameSample] = field(default_factory=list)
    tasks: list[TaskSample] = field(default_factory=list)
    replans: list[Replan] = field(default_factory=list)
    status: Any = None
    commands: int = 0
    commanded_ns: int = 0
    violations: list[str] = field(default_factory=list)
    _sent: dict[str, int] = field(default_factory=dict)
    _history: dict[str, list[tuple[int, float]]] = field(default_factory=dict)

    def add_observation(self, stamp_ns: int, age_ns: int) -> None:
        """An Observation arrived, ``age_ns`` after its reference stamp."""
        self.observations.append(stamp_ns)
        self.observation_age_ns.append(age_ns)

    def add_command(self, stamp_ns: int, names: Sequence[str], positions: Sequence[float]) -> None:
        """A message to a driver; it is checked here, independently of the node that sent it."""
        self.commanded_ns = stamp_ns
        for name, position in zip(names, positions, strict=True):
            self._sent[name] = self._sent.get(name, 0) + 1
            self.commands = max(self.commands, self._sent[name])
            self._check(stamp_ns, name, position)

    def arms_were_placed(self) -> None:
        """The arms were put elsewhere while nothing was sent to them: commands begin anew."""
        self._history.clear()

    def _check(self, stamp_ns: int, name: str, position: float) -> None:
        low, high = self.bounds.lower[name], self.bounds.upper[name]
        if not low - 1e-6 <= position <= high + 1e-6:
            self.violations.append(f"{name} at {position:.4f}, outside {low:.4f} .. {high:.4f}")
        history = self._history.setdefault(name, [])
        history.append((stamp_ns, position))
        while len(history) > 1 and stamp_ns - history[1][0] >= _VELOCITY_WINDOW_NS:
            history.pop(0)
        then, before = history[0]
        elapsed = (stamp_ns - then) / SECOND_NS
        # One command period of slack: the first and the last command of the window may have been late and early.
        if elapsed >= _VELOCITY_WINDOW_NS / SECOND_NS:
            speed = abs(position - before) / (elapsed + 0.05)
            if speed > self.bounds.velocity[name]:
                self.violations.append(f"{name} at {speed:.3f} per second, over {self.bounds.velocity[name]:.3f}")

    def story(self, attempt: Attempt) -> Story:
        """What belongs to ``attempt``."""

        def during(samples: Sequence[Any]) -> list[Any]:
            return [sample for sample in samples if attempt.start_ns <= sample.stamp_ns <= attempt.end_ns]

        return Story(attempt, during(self.frames), during(self.tasks), during(self.replans))

    def summary(self, attempts: Sequence[Attempt], nodes_died: Sequence[str]) -> dict[str, Any]:
        """The numbers of ``attempts``; what happened between them does not count for how often and how fast."""
        stories = [self.story(attempt) for attempt in attempts]
        seconds = sum(attempt.seconds for attempt in attempts)
        ages = [
            age / 1e6
            for stamp, age in zip(self.observations, self.observation_age_ns, strict=True)
            if any(attempt.start_ns <= stamp <= attempt.end_ns for attempt in attempts)
        ]
        traces = [replan.trace for story in stories for replan in story.replans]
        totals = [sum(trace.stage_ms.values()) for trace in traces]
        stages: dict[str, list[float]] = {}
        for trace in traces:
            for stage, milliseconds in trace.stage_ms.items():
                stages.setdefault(stage, []).append(milliseconds)
        violations = len(self.violations) + (self.status.limit_violations if self.status else 0)
        return {
            "success": round(sum(a.success for a in attempts) / len(attempts), 4) if attempts else None,
            "episodes": [_numbers(story) for story in stories],
            "seconds": round(seconds, 2),
            "observation_hz": round(len(ages) / seconds, 2) if seconds else 0.0,
            "observation_age_ms": _spread(ages),
            "replans": len(traces),
            "replan_ms": {
                "median": _median(totals),
                "p95": round(float(np.percentile(totals, 95)), 2) if totals else None,
                "stages": {stage: _median(times) for stage, times in stages.items()},
            },
            "tr": _spread([float(np.mean(trace.ratio)) for trace in traces]),
            "tr_finite": bool(traces) and bool(np.isfinite([t.ratio for t in traces]).all()),
            "guidance": traces[-1].guidance if traces else None,
            "guidance_scale": _spread([float(np.mean(trace.guidance_scale)) for trace in traces]),
            "branches": sorted({branch for trace in traces for branch in trace.branches}),
            "commands": self.commands,
            "limit_violations": violations,
            "first_violation": self.violations[0] if self.violations else None,
            "clamps": self.status.clamps if self.status else None,
            "chunks_rejected": self.status.rejected if self.status else None,
            "misses": self.status.misses if self.status else None,
            "nodes_died": len(nodes_died),
            "died": list(nodes_died),
        }


def _numbers(story: Story) -> dict[str, Any]:
    attempt = story.attempt
    return {
        "instruction": attempt.instruction,
        "split": attempt.split,
        "seed": attempt.seed,
        "success": attempt.success,
        "reason": attempt.reason,
        "seconds": round(attempt.seconds, 2),
        "replans": len(story.replans),
    }


def _median(values: Sequence[float]) -> float | None:
    return round(statistics.median(values), 2) if values else None


def _spread(values: Sequence[float]) -> dict[str, float | None]:
    if not values:
        return {"min": None, "median": None, "max": None}
    return {"min": round(min(values), 4), "median": round(statistics.median(values), 4), "max": round(max(values), 4)}


def failures(summary: Mapping[str, Any], least_observation_hz: float = 25.0) -> list[str]:
    """Why a run does not count as whole: one line for every stage that did not run, empty when all did.

    Whether the policy succeeded is not asked.
    """
    idle = [str(i + 1) for i, episode in enumerate(summary["episodes"]) if not episode["replans"]]
    checks = {
        f"observations at {summary['observation_hz']} Hz, below {least_observation_hz:g}": summary["observation_hz"]
        >= least_observation_hz,
        f"the policy never replanned in episode {', '.join(idle)}": not idle or not summary["replans"],
        "the policy never replanned": summary["replans"] > 0,
        "no command reached the arms": summary["commands"] > 0,
        f"{summary['limit_violations']} commands outside limits, first: {summary['first_violation']}": summary[
            "limit_violations"
        ]
        == 0,
        "the Temporal Ratio was not finite": summary["tr_finite"],
        f"nodes died: {', '.join(summary['died'])}": summary["nodes_died"] == 0,
    }
    return [reason for reason, passed in checks.items() if not passed]
