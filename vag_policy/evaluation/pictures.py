"""What a person looks at after an episode: the TR plot and a contact sheet of what the policy saw."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

from vag_policy.evaluation.episode_log import SECOND_NS, EpisodeLog, FrameSample

_MODE_COLOURS = {"policy": "#d8ecd8", "ramp": "#fff2cc", "hold": "#eeeeee", "stopped": "#f8d7da", "home": "#dbe9f9"}


def plot_temporal_ratio(log: EpisodeLog, start_ns: int, end_ns: int, title: str, path: Path) -> None:
    """Write a PNG: TR of every replan with the range over its Euler steps, TR_0 and s, over joint_command's modes."""
    figure, (top, bottom) = plt.subplots(
        2, 1, figsize=(10, 5.5), sharex=True, height_ratios=(3, 1), layout="constrained"
    )
    seconds = np.array([(replan.stamp_ns - start_ns) / SECOND_NS for replan in log.replans])
    ratio = np.array([replan.trace.ratio for replan in log.replans])
    baseline = np.array([replan.trace.baseline.mean() for replan in log.replans])
    scale = np.array([replan.trace.guidance_scale.mean() for replan in log.replans])
    for axis in (top, bottom):
        _shade_modes(axis, log, start_ns, end_ns)
        axis.spines[["top", "right"]].set_visible(False)
    if len(seconds):
        top.fill_between(
            seconds, ratio.min(1), ratio.max(1), alpha=0.25, color="tab:blue", label="TR over Euler steps", lw=0
        )
        top.plot(seconds, ratio.mean(1), "o-", ms=3, color="tab:blue", label="TR")
        top.plot(seconds, baseline, "--", color="tab:gray", label="TR$_0$ (first replan)")
        bottom.plot(seconds, scale, "o-", ms=3, color="tab:orange")
    top.set_ylabel("Temporal Ratio")
    top.set_title(title, loc="left")
    handles, labels = top.get_legend_handles_labels()
    modes = [mode for mode in _MODE_COLOURS if any(seen == mode for _, seen in log.modes)]
    handles += [plt.Rectangle((0, 0), 1, 1, color=_MODE_COLOURS[mode]) for mode in modes]
    top.legend(handles, labels + modes, loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
    bottom.set_ylabel("guidance s")
    bottom.set_ylim(-0.05, max(0.5, 1.1 * scale.max(initial=0.0)))
    bottom.set_xlabel("seconds since the episode began")
    bottom.set_xlim(0, (end_ns - start_ns) / SECOND_NS)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _shade_modes(axis: plt.Axes, log: EpisodeLog, start_ns: int, end_ns: int) -> None:
    edges = [*log.modes, (end_ns, "")]
    for (begin, mode), (end, _) in zip(edges, edges[1:], strict=False):
        left, right = (max(begin, start_ns) - start_ns) / SECOND_NS, (end - start_ns) / SECOND_NS
        if right > left and mode in _MODE_COLOURS:
            axis.axvspan(left, right, color=_MODE_COLOURS[mode], lw=0)


def contact_sheet(
    log: EpisodeLog, start_ns: int, end_ns: int, cameras: Sequence[str], path: Path, columns: int = 3, rows: int = 6
) -> None:
    """Write a PNG of up to ``rows * columns`` stacked frames, spread over the episode, each with its time and TR.

    Raises:
        ValueError: no frame was seen in the episode.
    """
    frames = [frame for frame in log.frames if start_ns <= frame.stamp_ns <= end_ns]
    if not frames:
        raise ValueError("no stacked frame was seen during the episode")
    chosen = [frames[i] for i in np.unique(np.linspace(0, len(frames) - 1, rows * columns).round().astype(int))]
    height, width, _ = chosen[0].image.shape
    shown_rows = -(-len(chosen) // columns)
    figure, axes = plt.subplots(
        shown_rows,
        columns,
        figsize=(5.2 * columns, (5.2 * height / width + 0.3) * shown_rows + 0.4),
        squeeze=False,
        layout="constrained",
    )
    for axis in axes.flat:
        axis.axis("off")
    for axis, frame in zip(axes.flat, chosen, strict=False):
        axis.imshow(frame.image, interpolation="nearest")
        axis.set_title(_caption(log, frame, start_ns), fontsize=9, loc="left", pad=2)
    figure.suptitle("what the policy saw: " + " | ".join(cameras), fontsize=10)
    figure.savefig(path, dpi=80)
    plt.close(figure)


def _caption(log: EpisodeLog, frame: FrameSample, start_ns: int) -> str:
    text = f"{(frame.stamp_ns - start_ns) / SECOND_NS:5.1f} s"
    before = [replan for replan in log.replans if replan.stamp_ns <= frame.stamp_ns]
    if before:
        trace = before[-1].trace
        text += f"   TR {trace.ratio.mean():.2f}   s {trace.guidance_scale.mean():.2f}"
    return text
