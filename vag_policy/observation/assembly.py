"""A match becomes an Observation: the one path for live topics, bags and simulators."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from vag_policy.observation.image_codec import CompressedFrame, RawFrame
from vag_policy.observation.observation import Observation
from vag_policy.observation.stacking import StackConfig, stack
from vag_policy.observation.synchronizer import Match


def assemble(
    match: Match,
    frames: Mapping[str, RawFrame | CompressedFrame],
    layout: StackConfig,
    state_names: tuple[str, ...],
    to_state: Callable[[NDArray[np.float64]], NDArray[np.float64]],
) -> Observation:
    """Decode and stack the match's frames, and pair them with the state.

    Args:
        match: from the synchroniser.
        frames: the match's payloads, readable: one for each camera of ``layout``.
        layout: how the cameras are stacked.
        state_names: the synchroniser's joints.
        to_state: (D,) positions as published -> (D,) state, radians and gripper openings 0..1.

    Raises:
        ImageError: a frame cannot be decoded; the message starts with the camera's name.
    """
    return Observation(
        stamp_ns=match.stamp_ns,
        image=stack(frames, layout),
        camera_names=layout.cameras,
        state=to_state(match.positions).astype(np.float32),
        state_names=state_names,
        source_stamp_ns=match.source_stamp_ns,
        age_ns={name: match.stamp_ns - stamp for name, stamp in match.source_stamp_ns.items()},
    )
