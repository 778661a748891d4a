"""Where in a fixed camera's picture a rig's hand will be: a place that a network can be taught to point at."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from vag_policy.robots import yam
from vag_policy.robots.yam_rig import RigGeometry

NOWHERE = (-1.0, -1.0)
"""Instead of a place, where there is none in the picture."""


class Pointer:
    """Projects the tip of the arm that has farther to go.

    Args:
        rig: geometry; its camera must stand on the table, not on an arm.
        camera: name of the camera.
        names: of the entries of states and actions, YAM joints.
        size: (width, height) of the camera's tile, pixels, to which its picture is stretched.
        aspect: width by height of the picture before that.

    Raises:
        ValueError: no such camera, one that moves, or an arm's joint is missing from ``names``.
    """

    def __init__(
        self, rig: RigGeometry, camera: str, names: Sequence[str], size: tuple[int, int], aspect: float = 4 / 3
    ) -> None:
        mount = rig.camera(camera)
        if mount.parent != "world":
            raise ValueError(f"camera '{camera}' moves with {mount.parent}: nothing can be pointed at in its picture")
        self._size = size
        self._columns: dict[str, list[int]] = {}
        for arm in yam.ARMS:
            joints = yam.arm_joint_names(arm)[: yam.ARM_DOF]
            missing = [name for name in joints if name not in names]
            if missing:
                raise ValueError(f"pointing needs joint '{missing[0]}'; there are: {', '.join(names)}")
            self._columns[arm] = [list(names).index(name) for name in joints]
        self._bases = {arm: np.array(rig.base_xyz(arm)) for arm in yam.ARMS}
        sine, cosine = math.sin(mount.pitch), math.cos(mount.pitch)
        # Rows: right, down and forward of the optical frame (REP-105) of a camera that looks down along +x.
        self._rotation = np.array([[0.0, -1.0, 0.0], [-sine, 0.0, -cosine], [cosine, 0.0, -sine]])
        self._place = np.array(mount.xyz)
        width, height = size
        focal = 0.5 / math.tan(mount.fovy / 2.0)  # in heights of the picture; pixels are square before it is stretched
        self._focal = (focal / aspect * width, focal * height)

    def pixel(self, state: NDArray[np.floating], goal: NDArray[np.floating]) -> tuple[float, float]:
        """(u, v) of the tip at ``goal``, pixels from the left and upper edge; ``NOWHERE`` outside of the picture.

        Args:
            state: (D,) measured joints, rad.
            goal: (D,) joints to come.
        """
        distances = {arm: float(np.abs(goal[c] - state[c]).sum()) for arm, c in self._columns.items()}
        arm = max(distances, key=lambda name: distances[name])
        tip = yam.forward_kinematics(goal[self._columns[arm]])[:3, 3] + self._bases[arm]
        right, down, forward = self._rotation @ (tip - self._place)
        width, height = self._size
        u = width / 2.0 + self._focal[0] * right / forward
        v = height / 2.0 + self._focal[1] * down / forward
        return (float(u), float(v)) if forward > 0 and 0 <= u < width and 0 <= v < height else NOWHERE
