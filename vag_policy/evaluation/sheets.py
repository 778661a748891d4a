"""A picture of a whole episode: what happened, seen from outside, and what the policy saw, replan by replan."""

from __future__ import annotations

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

from vag_policy.evaluation.rollout import SECOND_NS, Episode, Replanned

_COLUMNS = 5


def episode_sheet(episode: Episode, path: Path) -> None:
    """Write a PNG of an episode that was run with pictures.

    Raises:
        ValueError: it was run without.
    """
    if not episode.pictures:
        raise ValueError(f"episode {episode.trial.index} was run without pictures")
    rows = -(-len(episode.pictures) // _COLUMNS)
    figure, axes = plt.subplots(
        2 * rows, _COLUMNS, figsize=(3.2 * _COLUMNS, 3.3 * rows + 0.5), height_ratios=(3, 1) * rows, squeeze=False,
        layout="constrained",
    )  # fmt: skip
    for axis in axes.flat:
        axis.axis("off")
    for i, (replanned, (outside, seen)) in enumerate(zip(episode.replans, episode.pictures, strict=True)):
        row, column = divmod(i, _COLUMNS)
        axes[2 * row, column].imshow(outside)
        axes[2 * row, column].set_title(_caption(replanned), fontsize=9, loc="left", pad=2)
        axes[2 * row + 1, column].imshow(seen, interpolation="nearest")
    outcome = "success" if episode.success else episode.reason
    trial = episode.trial
    figure.suptitle(f"{trial.instruction}  (episode {trial.index}, scene {trial.seed}): {outcome}", fontsize=11)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=80)
    plt.close(figure)


def _caption(replanned: Replanned) -> str:
    text = f"{replanned.time_ns / SECOND_NS:.1f} s  {replanned.phase}"
    trace = replanned.plan.trace
    return text if trace is None else f"{text}  TR {np.mean(trace.ratio):.2f}  s {np.mean(trace.guidance_scale):.2f}"
