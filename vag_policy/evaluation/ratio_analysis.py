"""What the Temporal Ratio does over the phases of episodes, and whether it goes with success."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from vag_policy.evaluation.referee import PHASES
from vag_policy.evaluation.statistics import Estimate, bootstrap, pearson, spearman

Record = Mapping[str, Any]


def by_phase(records: Sequence[Record]) -> dict[str, dict[str, Any]]:
    """By phase, of replans with a trace: how many, mean TR and mean TR / TR_0, guided share, each with an interval.

    Intervals are bootstrapped over episodes: replans of one episode are not independent. An episode counts with its
    mean over the phase. The first replan sets TR_0 and is left out of TR / TR_0.
    """
    out: dict[str, dict[str, Any]] = {}
    for phase in PHASES:
        of_phase = [[r for r in _traced(record) if r["phase"] == phase] for record in records]
        of_phase = [replans for replans in of_phase if replans]
        if not of_phase:
            continue
        later = [[r for r in replans if r["seconds"] > 0.0] for replans in of_phase]
        out[phase] = {
            "replans": sum(map(len, of_phase)),
            "episodes": len(of_phase),
            "ratio": _mean([np.mean([_ratio(r) for r in replans]) for replans in of_phase]),
            "relative": _mean([np.mean([_relative(r) for r in replans]) for replans in later if replans]),
            "guided": _mean([np.mean([max(r["scale"]) > 0.0 for r in replans]) for replans in later if replans]),
        }
    return out


def against_success(records: Sequence[Record]) -> dict[str, dict[str, Any]]:
    """How an episode's mean TR, as a whole (``all``) and by phase, goes with its success.

    ``point_biserial`` and ``spearman`` correlations, each with a bootstrap interval over ``episodes``.
    """
    out: dict[str, dict[str, Any]] = {}
    for phase in ("all", *PHASES):
        success, ratio = [], []
        for record in records:
            found = [_ratio(r) for r in _traced(record) if phase in ("all", r["phase"])]
            if found:
                success.append(float(record["success"]))
                ratio.append(float(np.mean(found)))
        if len(ratio) > 2:
            out[phase] = {
                "episodes": len(ratio),
                "point_biserial": bootstrap(pearson, success, ratio),
                "spearman": bootstrap(spearman, success, ratio),
            }
    return out


def _traced(record: Record) -> list[Mapping[str, Any]]:
    return [replan for replan in record["replans"] if "ratio" in replan]


def _ratio(replan: Mapping[str, Any]) -> float:
    return float(np.mean(replan["ratio"]))


def _relative(replan: Mapping[str, Any]) -> float:
    return float(np.mean(np.divide(replan["ratio"], replan["baseline"])))


def _mean(values: Sequence[Any]) -> Estimate | None:
    return bootstrap(lambda v: float(np.mean(v)), values) if len(values) else None
