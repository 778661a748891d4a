"""Cameras side by side: each frame is scaled to its tile by an area filter, tiles stand in configured order.

The paper's rigs: YAM, 3 x (224, 168) -> 672x168; LIBERO, 2 x (224, 224) -> 448x224.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from vag_policy.observation.image_codec import CompressedFrame, ImageError, Pixels, RawFrame, decode

FITS = ("stretch", "crop", "pad")


@dataclass(frozen=True)
class StackConfig:
    """How the stacked image is laid out.

    Attributes:
        cameras: names, left to right.
        tile: (width, height) of one camera in pixels.
        fit: what happens to a camera of another aspect ratio than its tile's. ``stretch`` keeps the whole field of
            view and distorts it, as datasets resized to a fixed size have it (default); ``crop`` cuts equal parts
            off both ends of the longer side; ``pad`` keeps everything, undistorted, between black bars.
    """

    cameras: tuple[str, ...]
    tile: tuple[int, int]
    fit: str = "stretch"

    def __post_init__(self) -> None:
        if not self.cameras:
            raise ValueError("a stacked image needs at least one camera")
        doubled = sorted({name for name in self.cameras if self.cameras.count(name) > 1})
        if doubled:
            raise ValueError(f"camera {', '.join(doubled)} is named more than once in {', '.join(self.cameras)}")
        if min(self.tile) < 1:
            raise ValueError(f"tile must be at least 1x1 pixels, got {self.tile[0]}x{self.tile[1]}")
        if self.fit not in FITS:
            raise ValueError(f"fit is '{self.fit}'; allowed: {', '.join(FITS)}")

    @property
    def size(self) -> tuple[int, int]:
        """(width, height) of the stacked image in pixels."""
        return self.tile[0] * len(self.cameras), self.tile[1]


def stack(
    frames: Mapping[str, RawFrame | CompressedFrame], config: StackConfig, out: NDArray[np.uint8] | None = None
) -> NDArray[np.uint8]:
    """Decode, scale and place one frame of each camera.

    Args:
        frames: one frame for each name in ``config.cameras``; others are ignored.
        config: the layout.
        out: (H, W, 3) uint8 to write into, or None for a new array.

    Returns:
        (H, W, 3) uint8 RGB of ``config.size``.

    Raises:
        ValueError: a camera has no frame, or ``out`` has the wrong shape.
        ImageError: a frame cannot be decoded; the message starts with the camera's name.
    """
    width, height = config.tile
    shape = (height, width * len(config.cameras), 3)
    if out is None:
        out = np.empty(shape, np.uint8)
    elif out.shape != shape or out.dtype != np.uint8:
        raise ValueError(f"out must be {shape} uint8, got {out.shape} {out.dtype}")
    missing = [name for name in config.cameras if name not in frames]
    if missing:
        raise ValueError(f"no frame of camera {', '.join(missing)}; there are: {', '.join(sorted(frames)) or 'none'}")
    for index, name in enumerate(config.cameras):
        out[:, index * width : (index + 1) * width] = decode_tile(name, frames[name], config)
    return out


def decode_tile(camera: str, frame: RawFrame | CompressedFrame, config: StackConfig) -> NDArray[np.uint8]:
    """One camera's frame on its tile: (tile height, tile width, 3) uint8 RGB.

    Raises:
        ImageError: the frame cannot be decoded; the message starts with the camera's name.
    """
    width, height = config.tile
    try:
        return decode(frame, lambda pixels: fit_tile(pixels, width, height, config.fit))
    except ImageError as error:
        raise ImageError(f"{camera}: {error}") from error


def fit_tile(pixels: Pixels, width: int, height: int, how: str) -> Pixels:
    """(H, W) or (H, W, C) pixels onto a tile of ``width`` x ``height`` by one of ``FITS``."""
    rows, columns = pixels.shape[:2]
    if how == "crop":
        # the largest centred window of the tile's aspect ratio
        keep_rows = min(rows, max(1, round(columns * height / width)))
        keep_columns = min(columns, max(1, round(rows * width / height)))
        top, left = (rows - keep_rows) // 2, (columns - keep_columns) // 2
        pixels = pixels[top : top + keep_rows, left : left + keep_columns]
    elif how == "pad":
        scale = min(width / columns, height / rows)
        inner = resize(pixels, max(1, round(columns * scale)), max(1, round(rows * scale)))
        tile = np.zeros((height, width, *pixels.shape[2:]), np.uint8)
        top, left = (height - inner.shape[0]) // 2, (width - inner.shape[1]) // 2
        tile[top : top + inner.shape[0], left : left + inner.shape[1]] = inner
        return tile
    return resize(pixels, width, height)


def resize(pixels: Pixels, width: int, height: int) -> Pixels:
    """Area filter where a side shrinks (each output pixel is the mean of what it covers), linear where it grows."""
    rows, columns = pixels.shape[:2]
    if (columns, rows) == (width, height):
        return pixels
    shrunk = (min(columns, width), min(rows, height))
    # OpenCV's area filter turns linear on both axes when one of them grows: shrink first.
    if shrunk != (columns, rows):
        pixels = cv2.resize(pixels, shrunk, interpolation=cv2.INTER_AREA)
    if shrunk != (width, height):
        pixels = cv2.resize(pixels, (width, height), interpolation=cv2.INTER_LINEAR)
    return pixels
