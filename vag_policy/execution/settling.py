"""Waits for arms that were found elsewhere to stand still, before anything may be sent to them again."""

from __future__ import annotations

import numpy as np

from vag_policy.execution.limits import Vector

# What a standing arm's encoders and a settling gripper make, rad and strokes.
_STILL = 0.02


class Settling:
    """Watches the measured pose. All times are one steady clock.

    Args:
        reason: why it has to be waited for.
        pose: (N,) the pose found.
        now_ns: when.
        still_ns: how long every joint has to be heard of at one place.
    """

    def __init__(self, reason: str, pose: Vector, now_ns: int, still_ns: int) -> None:
        self.reason = reason
        self._pose = pose
        self._since_ns = now_ns
        self._still_ns = still_ns

    def settled(self, pose: Vector, heard_ns: int, now_ns: int) -> bool:
        """Whether the arms stand.

        Args:
            pose: (N,) the measured pose.
            heard_ns: when the joint was heard of that has been silent longest.
            now_ns: now.
        """
        if (np.abs(pose - self._pose) > _STILL).any():
            self._pose, self._since_ns = pose, now_ns
        return heard_ns - self._since_ns >= self._still_ns
