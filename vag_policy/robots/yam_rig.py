"""Where the arms and cameras of a bimanual YAM rig stand."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from vag_policy.robots.yam import ARMS

BASE_SPACINGS = (0.61, 0.62, 0.80)
"""Base distances of rigs in use, metres. Assuming the wrong one is an error of up to 19 cm: it is a parameter."""
_SPACING_RANGE = (0.3, 1.5)


@dataclass(frozen=True)
class Camera:
    """A camera mount: ``xyz`` (metres) in the frame ``parent``, looking ``pitch`` rad below the parent's x axis.

    ``fovy`` is the vertical field of view in rad; pixels are square.
    """

    name: str
    parent: str
    xyz: tuple[float, float, float]
    pitch: float
    fovy: float

    @property
    def link(self) -> str:
        """The mount's frame: x forward, y left, z up (REP-103)."""
        return f"{self.name}_camera_link"

    @property
    def optical_frame(self) -> str:
        """The frame images are stamped with: z forward, x right, y down (REP-105)."""
        return f"{self.name}_camera_optical_frame"

    def intrinsics(self, width: int, height: int) -> NDArray[np.float64]:
        """(3, 3) pinhole matrix in pixels; pixel centres are at integers, so the axis meets the image's middle."""
        focal = height / 2.0 / math.tan(self.fovy / 2.0)
        return np.array([[focal, 0.0, (width - 1) / 2.0], [0.0, focal, (height - 1) / 2.0], [0.0, 0.0, 1.0]])


@dataclass(frozen=True)
class RigGeometry:
    """Two arms side by side. The world frame is on the table, midway between the bases: x forward, y left, z up.

    Defaults are a common rig: a D435 (42 degrees high) above and behind, a D405 (58 degrees) on each gripper.

    Attributes:
        spacing: metres between the bases.
        top_xyz: the top camera's place in the world frame, metres.
        top_pitch: how far below the horizon it looks, rad.
        top_fovy: its vertical field of view, rad.
        wrist_xyz: a wrist camera's place in the flange (link 6) frame, metres.
        wrist_pitch: how far below the flange's x axis it looks, rad.
        wrist_fovy: its vertical field of view, rad.

    Raises:
        ValueError: a number outside what a rig can be.
    """

    spacing: float = BASE_SPACINGS[0]
    top_xyz: tuple[float, float, float] = (-0.166, 0.0, 0.954)
    top_pitch: float = math.radians(60.0)
    top_fovy: float = math.radians(42.0)
    wrist_xyz: tuple[float, float, float] = (0.077, 0.0, 0.070)
    wrist_pitch: float = math.radians(25.0)
    wrist_fovy: float = math.radians(58.0)
    cameras: tuple[Camera, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if not _SPACING_RANGE[0] <= self.spacing <= _SPACING_RANGE[1]:
            raise ValueError(
                f"base spacing is {self.spacing} m; allowed: {_SPACING_RANGE[0]} to {_SPACING_RANGE[1]} m "
                f"(rigs in use: {', '.join(f'{s:.2f}' for s in BASE_SPACINGS)})"
            )
        for name in ("top_fovy", "wrist_fovy"):
            if not math.radians(10.0) <= getattr(self, name) <= math.radians(150.0):
                raise ValueError(
                    f"{name} is {getattr(self, name)} rad; allowed: 0.175 to 2.617 rad (10 to 150 degrees)"
                )
        top = Camera("top", "world", self.top_xyz, self.top_pitch, self.top_fovy)
        wrists = (
            Camera(f"{arm}_wrist", f"{arm}_link6", self.wrist_xyz, self.wrist_pitch, self.wrist_fovy) for arm in ARMS
        )
        object.__setattr__(self, "cameras", (top, *wrists))

    def base_xyz(self, arm: str) -> tuple[float, float, float]:
        """Where ``arm``'s base frame is in the world frame, metres. Both bases face along x."""
        return (0.0, self.spacing / 2.0 * (1.0 if arm == "left" else -1.0), 0.0)

    def camera(self, name: str) -> Camera:
        """The camera called ``name``.

        Raises:
            ValueError: no such camera.
        """
        for camera in self.cameras:
            if camera.name == name:
                return camera
        raise ValueError(f"no camera '{name}'; the rig has: {', '.join(c.name for c in self.cameras)}")


CAMERA_NAMES = tuple(camera.name for camera in RigGeometry().cameras)
"""top, left_wrist, right_wrist: the order in which images are stacked."""
