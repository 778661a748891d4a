"""A match becomes an Observation: the one path for live topics, bags and simulators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vag_policy.observation.image_codec import CompressedFrame, RawFrame
from vag_policy.observation.observation import Observation
from vag_policy.observation.stacking import StackConfig, decode_tile
from vag_policy.observation.synchronizer import Match


class Assembler:
    """Decodes and stacks a match's frames, and pairs them with the state.

    Args:
        layout: how the cameras are stacked.
        state_names: the synchroniser's joints.
        read: a frame's payload -> the frame.
        to_state: (D,) positions as published -> (D,) state, radians and gripper openings 0..1.
    """

    def __init__(
        self,
        layout: StackConfig,
        state_names: tuple[str, ...],
        read: Callable[[Any], RawFrame | CompressedFrame],
        to_state: Callable[[NDArray[np.float64]], NDArray[np.float64]],
    ) -> None:
        self._layout = layout
        self._state_names = state_names
        self._read = read
        self._to_state = to_state
        self._prepared: dict[str, tuple[int, NDArray[np.uint8]]] = {}

    def prepare(self, camera: str, stamp_ns: int, payload: Any) -> None:
        """Decode a frame while its partners are still on their way. A bad one fails later, in ``assemble``."""
        try:
            self._tile(camera, stamp_ns, payload)
        except ValueError:
            self._prepared.pop(camera, None)

    def assemble(self, match: Match) -> Observation:
        """The Observation of ``match``.

        Raises:
            ValueError: a payload cannot be read (whatever ``read`` raises).
            ImageError: a frame cannot be decoded; the message starts with the camera's name.
        """
        cameras = self._layout.cameras
        tiles = [self._tile(name, match.source_stamp_ns[name], match.frames[name]) for name in cameras]
        return Observation(
            stamp_ns=match.stamp_ns,
            image=np.hstack(tiles),
            camera_names=cameras,
            state=self._to_state(match.positions).astype(np.float32),
            state_names=self._state_names,
            source_stamp_ns=match.source_stamp_ns,
            age_ns={name: match.stamp_ns - stamp for name, stamp in match.source_stamp_ns.items()},
        )

    def _tile(self, camera: str, stamp_ns: int, payload: Any) -> NDArray[np.uint8]:
        prepared = self._prepared.get(camera)
        if prepared is None or prepared[0] != stamp_ns:
            prepared = stamp_ns, decode_tile(camera, self._read(payload), self._layout)
            self._prepared[camera] = prepared
        return prepared[1]
