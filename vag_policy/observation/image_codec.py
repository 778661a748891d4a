"""Camera frames as they travel (raw or compressed) -> RGB.

Own code, because cv_bridge breaks on NumPy 2 in some releases and ignores ``step`` or lacks ``yuv422_yuy2`` in others.
A frame is kept encoded (``RawFrame``, ``CompressedFrame``) until somebody needs its pixels.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

Buffer = bytes | bytearray | memoryview | array | NDArray[np.uint8]
Pixels = NDArray[Any]
Resize = Callable[[Pixels], Pixels]


class ImageError(ValueError):
    """A frame that cannot become an RGB picture; the message says why and what would work."""


@dataclass(frozen=True, slots=True)
class RawFrame:
    """An uncompressed frame as in sensor_msgs/Image.

    Attributes:
        encoding: a name from ``KNOWN_ENCODINGS``.
        height: rows.
        width: columns.
        step: bytes from one row to the next, padding included.
        is_bigendian: byte order of 16-bit pixels.
        data: the pixels, at least ``step`` bytes a row (the last row may come without its padding).
    """

    encoding: str
    height: int
    width: int
    step: int
    is_bigendian: bool
    data: Buffer


@dataclass(frozen=True, slots=True)
class CompressedFrame:
    """A JPEG or PNG picture as in sensor_msgs/CompressedImage. ``format`` is only quoted in errors, never trusted."""

    format: str
    data: Buffer


def _same(pixels: Pixels) -> Pixels:
    return pixels


def _converted(code: int) -> Resize:
    return lambda pixels: cv2.cvtColor(pixels, code)


@dataclass(frozen=True)
class _Layout:
    """How an encoding lies in memory and becomes RGB.

    Attributes:
        channels: bytes (or 16-bit words) of one pixel.
        unpack: full-size memory view -> (H, W, C) or (H, W) uint8.
        to_rgb: applied to each pixel alone, so that it may follow the resize, where there are fewer of them.
        multiple: width must divide by this.
        wide: pixels are 16-bit words.
        planar: half as many chroma rows follow the luma rows.
    """

    channels: int
    unpack: Resize = _same
    to_rgb: Resize = _same
    multiple: int = 1
    wide: bool = False
    planar: bool = False


_GREY = _converted(cv2.COLOR_GRAY2RGB)
_UYVY = _Layout(2, unpack=_converted(cv2.COLOR_YUV2RGB_UYVY), multiple=2)
_YUYV = _Layout(2, unpack=_converted(cv2.COLOR_YUV2RGB_YUY2), multiple=2)


def _bayer(code: int) -> _Layout:
    return _Layout(1, unpack=_converted(code))


_LAYOUTS: dict[str, _Layout] = {
    "rgb8": _Layout(3),
    "bgr8": _Layout(3, to_rgb=_converted(cv2.COLOR_BGR2RGB)),
    "rgba8": _Layout(4, to_rgb=_converted(cv2.COLOR_RGBA2RGB)),
    "bgra8": _Layout(4, to_rgb=_converted(cv2.COLOR_BGRA2RGB)),
    "mono8": _Layout(1, to_rgb=_GREY),
    # the full 16-bit range onto 8 bits, as cv_bridge does
    "mono16": _Layout(1, unpack=lambda p: cv2.convertScaleAbs(p, alpha=255 / 65535), to_rgb=_GREY, wide=True),
    # YUV is BT.601, limited range: what UVC cameras send
    "yuv422": _UYVY,
    "uyvy": _UYVY,
    "yuv422_yuy2": _YUYV,
    "yuyv": _YUYV,
    "nv12": _Layout(1, unpack=_converted(cv2.COLOR_YUV2RGB_NV12), multiple=2, planar=True),
    "nv21": _Layout(1, unpack=_converted(cv2.COLOR_YUV2RGB_NV21), multiple=2, planar=True),
    # ROS names the first two pixels of the first two rows; OpenCV those one row and one column further on
    "bayer_rggb8": _bayer(cv2.COLOR_BayerBG2RGB),
    "bayer_bggr8": _bayer(cv2.COLOR_BayerRG2RGB),
    "bayer_gbrg8": _bayer(cv2.COLOR_BayerGR2RGB),
    "bayer_grbg8": _bayer(cv2.COLOR_BayerGB2RGB),
}
_DEPTH = ("16UC1", "16SC1", "32FC1")

KNOWN_ENCODINGS: tuple[str, ...] = tuple(_LAYOUTS)
"""Encodings of raw frames that ``decode`` takes; compressed ones may be JPEG or PNG."""


def decode(frame: RawFrame | CompressedFrame, resize: Resize = _same) -> NDArray[np.uint8]:
    """The frame as (H, W, 3) uint8 RGB.

    Args:
        frame: what a camera sent. A raw frame that holds a JPEG or PNG file is decoded as one.
        resize: applied to the full-size pixels, (H, W), (H, W, 3) or (H, W, 4), before channels are reordered.

    Returns:
        RGB; it may be a read-only view on the frame's data.

    Raises:
        ImageError: unknown encoding, depth instead of colour, zero size, a wrong ``step`` or truncated data.
    """
    if isinstance(frame, CompressedFrame):
        return _decode_file(frame.data, frame.format, resize)
    layout = _LAYOUTS.get(frame.encoding)
    if layout is None or _is_file(frame):
        if _kind(frame.data):
            return _decode_file(frame.data, frame.encoding, resize)
        raise ImageError(_refusal(frame.encoding))
    return layout.to_rgb(resize(layout.unpack(_view(frame, layout))))


def _is_file(frame: RawFrame) -> bool:
    # A whole JPEG or PNG labelled as pixels has far fewer bytes than the pixels would.
    return len(frame.data) < frame.height * frame.step and bool(_kind(frame.data))


def _refusal(encoding: str) -> str:
    known = ", ".join(KNOWN_ENCODINGS)
    if encoding in _DEPTH:
        return f"encoding '{encoding}' is depth, not colour: subscribe to the camera's colour topic; known: {known}"
    return f"unknown encoding '{encoding}'; known: {known}, and JPEG or PNG when compressed"


def _view(frame: RawFrame, layout: _Layout) -> Pixels:
    """The pixels in place, padding skipped: (H, W, C), or (3H/2, W) when planar."""
    height, width = frame.height, frame.width
    what = f"{frame.encoding} {width}x{height}"
    if height < 1 or width < 1:
        raise ImageError(f"{what} has no pixels")
    if width % layout.multiple or (layout.planar and height % 2):
        raise ImageError(f"{what}: this encoding needs an even width" + (" and height" if layout.planar else ""))
    if frame.encoding.startswith("bayer") and min(height, width) < 3:
        raise ImageError(f"{what} is too small to interpolate colours; it needs 3x3 pixels")
    row = width * layout.channels * (2 if layout.wide else 1)
    if frame.step < row:
        raise ImageError(f"{what}: step is {frame.step} bytes, a row needs {row}")
    rows = height * 3 // 2 if layout.planar else height
    needed = frame.step * (rows - 1) + row
    if len(frame.data) < needed:
        raise ImageError(f"{what} with step {frame.step} needs {needed} bytes, got {len(frame.data)} (truncated)")
    dtype = np.dtype((">u2" if frame.is_bigendian else "<u2") if layout.wide else np.uint8)
    shape: tuple[int, ...] = (rows, width)
    strides: tuple[int, ...] = (frame.step, layout.channels * dtype.itemsize)
    if layout.channels > 1:
        shape, strides = (*shape, layout.channels), (*strides, dtype.itemsize)
    pixels: Pixels = np.ndarray(shape, dtype, frame.data, strides=strides)
    return pixels.astype(np.uint16) if layout.wide else pixels


def _kind(data: Buffer) -> str:
    """``jpeg`` or ``png`` by the first bytes, else an empty string."""
    start = bytes(data[:8])
    if start.startswith(b"\xff\xd8\xff"):
        return "jpeg"
    return "png" if start == b"\x89PNG\r\n\x1a\n" else ""


def _decode_file(data: Buffer, label: str, resize: Resize) -> Pixels:
    # The label is often wrong (a driver that says "png" and sends JPEG): the bytes decide. JPEG's scaled decode
    # (1/2, 1/4 …) is not used: followed by the rest of the resize it differs by up to 15 grey levels from the
    # full decode that datasets are made with.
    kind = _kind(data)
    if not kind:
        depth = " (depth, not colour: subscribe to the camera's colour topic)" if "compressedDepth" in label else ""
        raise ImageError(f"compressed image '{label}' is neither JPEG nor PNG{depth}; known: jpeg, png")
    whole = bytes(data)
    # OpenCV fills what is missing with grey and says nothing: look for the end marker.
    if whole.find(b"\xff\xd9", whole.rfind(b"\xff\xda")) < 0 if kind == "jpeg" else b"IEND" not in whole[-64:]:
        raise ImageError(f"compressed image '{label}' of {len(whole)} bytes is truncated: the {kind} end is missing")
    if kind == "png" and whole[24:26] == b"\x10\x00":
        raise ImageError(f"compressed image '{label}' is a 16-bit grey PNG: depth, not colour; known: jpeg, png")
    # not IMREAD_UNCHANGED: grey and alpha become BGR; a camera's EXIF orientation is no reason to turn a picture
    try:
        pixels: Pixels | None = cv2.imdecode(
            np.frombuffer(whole, np.uint8), cv2.IMREAD_COLOR | cv2.IMREAD_IGNORE_ORIENTATION
        )
    except (cv2.error, MemoryError):  # a header that promises more pixels than OpenCV or the machine takes
        pixels = None
    if pixels is None:
        raise ImageError(f"compressed image '{label}' of {len(whole)} bytes is a damaged {kind}")
    return cv2.cvtColor(resize(pixels), cv2.COLOR_BGR2RGB)
