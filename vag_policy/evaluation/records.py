"""An episode as the line of a journal, and lines as the numbers that people compare."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from vag_policy.evaluation.journal import read_journal
from vag_policy.evaluation.rollout import SECOND_NS, Episode, Replanned
from vag_policy.evaluation.statistics import Comparison, compare, wilson

Record = Mapping[str, Any]


def record(episode: Episode) -> dict[str, Any]:
    """Everything about an episode that numbers are drawn from later, as plain values.

    Keys that depend on the machine are ``spent_s`` and every replan's ``plan_ms`` alone.
    """
    trial = episode.trial
    return {
        "index": trial.index,
        "instruction": trial.instruction,
        "seed": trial.seed,
        "success": episode.success,
        "reason": episode.reason,
        "lifted": episode.lifted,
        "seconds": episode.duration_ns / SECOND_NS,
        "steps": sum(episode.duration_ns // replanned.plan.period_ns for replanned in episode.replans[:1]),
        "replans": [_replan(replanned) for replanned in episode.replans],
        "refused": dict(episode.refused),
        "misses": episode.misses,
        "clamped": episode.clamped,
        "spent_s": {part: round(seconds, 4) for part, seconds in episode.spent_s.items()},
    }


def _replan(replanned: Replanned) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "seconds": replanned.time_ns / SECOND_NS,
        "phase": replanned.phase,
        "plan_ms": round(replanned.plan_ms, 2),
    }
    trace = replanned.plan.trace
    if trace is not None:
        entry |= {
            "ratio": _rounded(trace.ratio),
            "baseline": _rounded(trace.baseline),
            "scale": _rounded(trace.guidance_scale),
            "branches": list(trace.branches),
            "layers": list(trace.layers),
            "attention": _rounded(trace.attention.mean(axis=0)),
        }
    return entry


def _rounded(values: ArrayLike) -> Any:
    return np.round(np.asarray(values, np.float64), 6).tolist()


def summary(records: Sequence[Record]) -> dict[str, Any]:
    """The numbers of an evaluation: success with its Wilson 95 % interval, as a whole and by instruction, and why not.

    ``median_seconds`` and ``median_steps`` (periods of an action) are of successes; ``episode_s`` is how many real
    seconds a part took in an episode, on average.
    """
    replans = [replan["plan_ms"] for entry in records for replan in entry["replans"]]
    instructions = dict.fromkeys(entry["instruction"] for entry in sorted(records, key=lambda entry: entry["index"]))
    spent: Counter[str] = Counter()
    for entry in records:
        spent.update(entry["spent_s"])
    return {
        **_share(records),
        "replan_ms": _median(replans),
        "replans": _median([len(entry["replans"]) for entry in records]),
        "median_seconds": _median([entry["seconds"] for entry in records if entry["success"]]),
        "median_steps": _median([entry["steps"] for entry in records if entry["success"]]),
        "reasons": dict(Counter(entry["reason"] for entry in records if not entry["success"]).most_common()),
        "instructions": {
            text: _share([entry for entry in records if entry["instruction"] == text]) for text in instructions
        },
        "refused": dict(sum((Counter(entry["refused"]) for entry in records), Counter())),
        "episode_s": {part: round(seconds / max(len(records), 1), 3) for part, seconds in spent.items()},
    }


def compare_records(records: Sequence[Record], other: Path) -> Comparison:
    """Compare with the evaluation in the folder ``other``, on the episodes that both have.

    Raises:
        ValueError: no evaluation there, or no episode in common.
    """
    there = {(entry["instruction"], entry["seed"]): entry["success"] for entry in read_journal(other)[1]}
    pairs = [
        (entry["success"], there[key]) for entry in records if (key := (entry["instruction"], entry["seed"])) in there
    ]
    if not pairs:
        raise ValueError(f"the evaluation in {other} has no episode in common with this one")
    return compare(*zip(*pairs, strict=True))


def _share(records: Sequence[Record]) -> dict[str, Any]:
    estimate = wilson(sum(entry["success"] for entry in records), len(records))
    return {
        "success": round(estimate.value, 4),
        "low": round(estimate.low, 4),
        "high": round(estimate.high, 4),
        "episodes": len(records),
        "lifted": round(sum(entry["lifted"] for entry in records) / max(len(records), 1), 4),
    }


def _median(values: Sequence[float]) -> float | None:
    return round(statistics.median(values), 2) if values else None
