"""The Temporal Ratio and the guidance scale of an episode over time, above the phases it went through."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.artist import Artist

from vag_policy.evaluation.episode_log import SECOND_NS, Story
from vag_policy.evaluation.referee import PHASES

PHASE_COLOURS = {
    "approach": "#e8ebef",
    "grasp": "#fbe3b5",
    "carry": "#cfe6f7",
    "place": "#d3ecd0",
    "retreat": "#eadcf2",
}
_RATIO, _BASELINE, _SCALE = "#1f5fa8", "#7d848c", "#d1603d"


def draw_ratio(upper: plt.Axes, lower: plt.Axes, story: Story) -> None:
    """TR of every replan with the range over its Euler steps and TR_0 into ``upper``, s into ``lower``.

    A replan stands at the time of what it was made from.
    """
    start_ns = story.attempt.start_ns
    for axis in (upper, lower):
        axis.spines[["top", "right"]].set_visible(False)
        axis.tick_params(labelsize=8)
        axis.set_xlim(0.0, max(story.attempt.seconds, 1e-3))
        for phase, begin, end in story.phases():
            axis.axvspan((begin - start_ns) / SECOND_NS, (end - start_ns) / SECOND_NS, color=PHASE_COLOURS[phase], lw=0)
    upper.tick_params(labelbottom=False)
    seconds = np.array([max(replan.seen_ns - start_ns, 0) / SECOND_NS for replan in story.replans])
    traces = [replan.trace for replan in story.replans]
    scale = np.array([trace.guidance_scale.mean() for trace in traces])
    if len(seconds):
        ratio = np.array([trace.ratio for trace in traces])
        upper.fill_between(seconds, ratio.min(1), ratio.max(1), alpha=0.22, color=_RATIO, lw=0)
        upper.plot(seconds, ratio.mean(1), "o-", ms=3, lw=1.4, color=_RATIO)
        upper.plot(seconds, [trace.baseline.mean() for trace in traces], "--", lw=1.1, color=_BASELINE)
        lower.plot(seconds, scale, "o-", ms=3, lw=1.4, color=_SCALE)
    upper.set_ylabel("TR", fontsize=9)
    lower.set_ylabel("s", fontsize=9)


def share_scales(uppers: Sequence[plt.Axes], lowers: Sequence[plt.Axes], stories: Sequence[Story]) -> None:
    """Give the episodes' axes one range of TR and one of s, so that they can be compared."""
    traces = [replan.trace for story in stories for replan in story.replans]
    ratios = np.concatenate([[0.0], *(np.append(trace.ratio, trace.baseline) for trace in traces)])
    scales = np.concatenate([[0.0], *(trace.guidance_scale for trace in traces)])
    lowest = ratios[1:].min(initial=ratios.max())
    room = 0.08 * max(float(ratios.max() - lowest), 0.1)
    most = max(float(scales.max()), 0.1)
    for axis in uppers:
        axis.set_ylim(lowest - room, ratios.max() + room)
    for axis in lowers:
        axis.set_ylim(-0.08 * most, 1.15 * most)


def legend_entries() -> tuple[list[Artist], list[str]]:
    """Handles and texts of what ``draw_ratio`` draws."""
    line = plt.Line2D
    handles: list[Artist] = [
        line([], [], color=_RATIO, marker="o", ms=3, lw=1.4),
        plt.Rectangle((0, 0), 1, 1, color=_RATIO, alpha=0.22, lw=0),
        line([], [], color=_BASELINE, ls="--", lw=1.1),
        line([], [], color=_SCALE, marker="o", ms=3, lw=1.4),
        *(plt.Rectangle((0, 0), 1, 1, color=PHASE_COLOURS[phase], lw=0) for phase in PHASES),
    ]
    return handles, ["Temporal Ratio", "over Euler steps", "TR$_0$", "guidance scale s", *PHASES]
