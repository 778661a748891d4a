"""What the policy sees at one instant."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

JOINT_SOURCE = "joint_states"
"""The name under which the joint state appears among an Observation's sources."""


@dataclass(frozen=True)
class Observation:
    """Cameras stacked side by side and the joint state, at one stamp.

    Attributes:
        stamp_ns: the reference camera's stamp, nanoseconds.
        image: (H, W, 3) uint8 RGB; cameras left to right in ``camera_names`` order.
        camera_names: names of the stacked cameras.
        state: (D,) float32 in ``state_names`` order; radians for arm joints, 0 (closed) .. 1 (open) for grippers.
        state_names: one name for each entry of ``state``.
        source_stamp_ns: stamp of every source, keyed by camera name and ``JOINT_SOURCE``.
        age_ns: ``stamp_ns`` minus the source's stamp; negative where a source is newer than the reference.
    """

    stamp_ns: int
    image: NDArray[np.uint8]
    camera_names: tuple[str, ...]
    state: NDArray[np.float32]
    state_names: tuple[str, ...]
    source_stamp_ns: Mapping[str, int]
    age_ns: Mapping[str, int]

    def __post_init__(self) -> None:
        if self.image.ndim != 3 or self.image.shape[2] != 3 or self.image.dtype != np.uint8:
            raise ValueError(f"image must be (H, W, 3) uint8, got {self.image.shape} {self.image.dtype}")
        if self.state.shape != (len(self.state_names),):
            raise ValueError(f"state has shape {self.state.shape} for {len(self.state_names)} names")
