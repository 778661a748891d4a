"""Where a demonstration is going: the targets in force when a gripper next closes or opens."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

CLOSED_BELOW = 0.5
"""Opening below which a gripper counts as closed."""


def next_keyframes(
    grippers: NDArray[np.floating], starts: NDArray[np.int64], good: NDArray[np.bool_]
) -> NDArray[np.int64]:
    """For every frame, the frame of its episode at which a gripper next changes between open and closed.

    Args:
        grippers: (N, G) commanded openings, 0 (closed) .. 1 (open), of all episodes' frames.
        starts: (E + 1,) first frame of each episode, and N.
        good: (N,) False where the demonstrator errs; what a gripper does there is nowhere to go to.

    Returns:
        (N,) later than the frame itself; the episode's last frame where nothing changes any more.
    """
    closed = grippers < CLOSED_BELOW
    result = np.empty(len(grippers), np.int64)
    for start, stop in zip(starts[:-1], starts[1:], strict=True):
        changes = (closed[start + 1 : stop] != closed[start : stop - 1]).any(axis=1) & good[start + 1 : stop]
        frames = np.append(np.flatnonzero(changes) + 1, stop - start - 1)
        numbers = np.arange(stop - start)
        later = np.searchsorted(frames, numbers, side="right").clip(max=len(frames) - 1)
        result[start:stop] = start + frames[later]
    return result
