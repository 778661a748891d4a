"""What a person looks at after episodes on a graph: what happened, what the policy saw, and its Temporal Ratio."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.layout_engine import ConstrainedLayoutEngine

from vag_policy.evaluation.episode_log import SECOND_NS, Attempt, FrameSample, Story
from vag_policy.evaluation.moments import Moment, moments
from vag_policy.evaluation.ratio_plot import draw_ratio, legend_entries, share_scales
from vag_policy.robots import yam
from vag_policy.robots.yam_sim import Sim, SimConfig
from vag_policy.robots.yam_world import OVERVIEW

_OUTSIDE = (1280, 960)
_WORKPLACE = np.s_[215:855, 235:1195]  # of the view from outside: the arms and what is within their reach
_MOST = 6
"""Episodes in a picture; more would be too small to see."""
_DONE, _FAILED = "#2c7a3f", "#b03a2e"
_SPLITS = {"id": "in distribution", "ood": "out of distribution"}


def demo_picture(stories: Sequence[Story], path: Path) -> None:
    """Write a PNG of up to six episodes: four instants from outside and as the policy saw them, and TR and s.

    Raises:
        ValueError: there is no episode, or nothing was seen of one.
    """
    shown = _some(stories)
    told = [moments(story) for story in shown]
    views = _from_outside([moment for of_one in told for moment in of_one])
    tight = ConstrainedLayoutEngine(h_pad=0.02, w_pad=0.03)
    figure = plt.figure(figsize=(15.0, 2.95 * len(shown) + 0.4), layout=tight)
    blocks = figure.subfigures(len(shown), 1, squeeze=False)
    axes = []
    for i, (block, story, of_one) in enumerate(zip(blocks.flat, shown, told, strict=True)):
        _title(block, story.attempt)
        left, right = block.subfigures(1, 2, width_ratios=(7, 3))
        cells = left.subplots(2, len(of_one), height_ratios=(3.0, 1.0))
        for column, moment in enumerate(of_one):
            _cell(cells[:, column], moment, story.attempt, views[i * len(of_one) + column])
        upper, lower = right.subplots(2, 1, height_ratios=(2.4, 1.0))
        draw_ratio(upper, lower, story)
        axes.append((upper, lower))
    axes[-1][1].set_xlabel("seconds", fontsize=9)
    share_scales([upper for upper, _ in axes], [lower for _, lower in axes], shown)
    figure.legend(*legend_entries(), loc="outside lower center", ncols=9, frameon=False, fontsize=9)
    figure.savefig(path, dpi=100)
    plt.close(figure)


def plot_temporal_ratio(stories: Sequence[Story], path: Path) -> None:
    """Write a PNG: TR and s of up to six episodes, one below the other.

    Raises:
        ValueError: there is no episode.
    """
    shown = _some(stories)
    figure = plt.figure(figsize=(10.0, 2.9 * len(shown) + 0.5), layout="constrained")
    axes = []
    for block, story in zip(figure.subfigures(len(shown), 1, squeeze=False).flat, shown, strict=True):
        _title(block, story.attempt)
        upper, lower = block.subplots(2, 1, height_ratios=(2.4, 1.0))
        draw_ratio(upper, lower, story)
        axes.append((upper, lower))
    share_scales([upper for upper, _ in axes], [lower for _, lower in axes], shown)
    axes[-1][1].set_xlabel("seconds since the episode began", fontsize=9)
    figure.legend(*legend_entries(), loc="outside lower center", ncols=5, frameon=False, fontsize=9)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def contact_sheet(stories: Sequence[Story], cameras: Sequence[str], path: Path, columns: int = 3) -> None:
    """Write a PNG of what the policy saw: stacked frames spread over up to six episodes, each with its time and TR.

    Raises:
        ValueError: no frame was seen.
    """
    shown = _some(stories)
    rows = max(1, 8 // len(shown) + 1)
    chosen = [(story, frame) for story in shown for frame in _spread(story.frames, rows * columns)]
    if not chosen:
        raise ValueError("no stacked frame was seen during the episodes")
    height, width, _ = chosen[0][1].image.shape
    lines = -(-len(chosen) // columns)
    size = (5.2 * columns, (5.2 * height / width + 0.3) * lines + 0.4)
    figure, axes = plt.subplots(lines, columns, figsize=size, squeeze=False, layout="constrained")
    for axis in axes.flat:
        axis.axis("off")
    for axis, (story, frame) in zip(axes.flat, chosen, strict=False):
        axis.imshow(frame.image, interpolation="nearest")
        axis.set_title(_caption(story, frame), fontsize=9, loc="left", pad=2)
    figure.suptitle("what the policy saw: " + " | ".join(cameras), fontsize=10)
    figure.savefig(path, dpi=80)
    plt.close(figure)


def _some(stories: Sequence[Story]) -> Sequence[Story]:
    if not stories:
        raise ValueError("no episode was run, so there is nothing to draw")
    return stories[:_MOST]


def _spread(frames: Sequence[FrameSample], count: int) -> list[FrameSample]:
    return [frames[i] for i in np.unique(np.linspace(0, len(frames) - 1, count).round().astype(int))] if frames else []


def _from_outside(shown: Sequence[Moment]) -> list[np.ndarray]:
    """(H, W, 3) of every moment: the simulator's outside camera, drawn from the state it was in."""
    sim = Sim(SimConfig(width=_OUTSIDE[0], height=_OUTSIDE[1]))
    try:
        pictures = []
        for moment in shown:
            sim.place([moment.frame.joints[name] for name in yam.JOINT_NAMES], moment.task.items)
            pictures.append(sim.render(OVERVIEW)[_WORKPLACE])
        return pictures
    finally:
        sim.close()


def _title(block: plt.Figure | plt.SubFigure, attempt: Attempt) -> None:
    outcome = f"done in {attempt.seconds:.1f} s" if attempt.success else f"not done: {attempt.reason}"
    colour = _DONE if attempt.success else _FAILED
    text = f"{attempt.instruction}  ·  {_SPLITS[attempt.split]}, scene {attempt.seed}  ·  {outcome}"
    block.suptitle(text, fontsize=12, x=0.008, ha="left", weight="bold", color=colour)


def _cell(axes: Sequence[plt.Axes], moment: Moment, attempt: Attempt, view: np.ndarray) -> None:
    for axis, picture, anchor in zip(axes, (view, moment.frame.image), "SN", strict=True):
        axis.imshow(picture, interpolation="antialiased")
        axis.set_anchor(anchor)
        axis.axis("off")
    seconds = max(moment.stamp_ns - attempt.start_ns, 0) / SECOND_NS
    axes[0].set_title(f"{moment.label}, {seconds:.1f} s", fontsize=9, loc="left", pad=2)


def _caption(story: Story, frame: FrameSample) -> str:
    text = f"{(frame.stamp_ns - story.attempt.start_ns) / SECOND_NS:5.1f} s"
    before = [replan.trace for replan in story.replans if replan.stamp_ns <= frame.stamp_ns]
    if not before:
        return text
    return f"{text}   TR {before[-1].ratio.mean():.2f}   s {before[-1].guidance_scale.mean():.2f}"
