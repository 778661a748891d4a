"""An Observation as a policy needs it: its cameras and joints by name, checked."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from vag_policy.observation.observation import Observation
from vag_policy.policy import PolicyError


def stacked_image(observation: Observation, cameras: tuple[str, ...], size: tuple[int, int]) -> NDArray[np.uint8]:
    """The wanted cameras' tiles side by side, in the wanted order, whatever order they were stacked in.

    Args:
        observation: its cameras share the image's width equally.
        cameras: wanted, left to right.
        size: (width, height) in pixels of the wanted image.

    Returns:
        (height, width, 3) uint8 RGB.

    Raises:
        PolicyError: a camera is missing, or the tiles have another size.
    """
    names = observation.camera_names
    missing = [camera for camera in cameras if camera not in names]
    if missing:
        raise PolicyError(f"observation lacks camera {', '.join(missing)}; it has {', '.join(names) or 'none'}")
    width, height = size[0] // len(cameras), size[1]
    found_height, found_width = observation.image.shape[:2]
    if (found_width, found_height) != (width * len(names), height):
        raise PolicyError(
            f"observation image is {found_width}x{found_height} for {len(names)} cameras, "
            f"expected {width}x{height} each: {width * len(names)}x{height}"
        )
    if names == cameras:
        return observation.image
    tiles = [observation.image[:, names.index(camera) * width :][:, :width] for camera in cameras]
    return np.concatenate(tiles, axis=1)


def named_state(observation: Observation, names: tuple[str, ...]) -> NDArray[np.float32]:
    """The wanted state entries in the wanted order.

    Raises:
        PolicyError: an entry is missing, named twice or not finite; the message names it.
    """
    found = observation.state_names
    missing = [name for name in names if name not in found]
    if missing:
        raise PolicyError(f"observation lacks state {', '.join(missing)}; it has {', '.join(found) or 'none'}")
    twice = [name for name in names if found.count(name) > 1]
    if twice:
        raise PolicyError(f"observation names state {', '.join(twice)} twice")
    state = observation.state[[found.index(name) for name in names]].astype(np.float32)
    bad = [f"{name}={value}" for name, value in zip(names, state, strict=True) if not np.isfinite(value)]
    if bad:
        raise PolicyError(f"observation state is not finite: {', '.join(bad)}")
    return state
