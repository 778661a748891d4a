"""Draws where the action tokens look: over the current frame, and in each imagined frame."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from vag_policy.monitoring.temporal_ratio import frame_shares

_WIDTH = 440  # narrower images are enlarged by a whole factor, so that the text fits
_BAR = 22
_GAP = 2
_FONT = cv2.FONT_HERSHEY_SIMPLEX
_WHITE, _GREY = (255, 255, 255), (24, 24, 24)
_PEAK_PERCENTILE = 99.5  # a few sink tokens must not make all others look dark ...
_PEAK_SHARE = 0.25  # ... nor may the scale end far below them
_LEAST_PEAK = 4.0  # nearly uniform attention must not look like a pattern

Image = NDArray[np.uint8]


def render(image: Image, grid: NDArray[np.floating], title: str, cameras: Sequence[str] = ()) -> Image:
    """Draw the attention of one replan.

    The current frame (V0) is at the top with the attention over it, at the image's own size or a whole multiple of
    it; below, two to a row at half the size, the imagined frames (V1 ...) over a dimmed copy. All share one colour
    scale, in multiples of uniform attention, shown at the bottom; it is a square-root scale, so that faint attention
    on imagined frames is not lost beside strong attention on the current one.

    Args:
        image: (H, W, 3) uint8 RGB, the stacked image the policy saw.
        grid: (T, rows, columns) attention mass by token; square cells over the image, which may end in padding.
        title: one line for the top.
        cameras: names of the stacked cameras, left to right, for labels.

    Returns:
        (H', W', 3) uint8 RGB.

    Raises:
        ValueError: the grid is not three-dimensional or not finite, or the image is not (H, W, 3).
    """
    if image.ndim != 3 or image.shape[2] != 3:
        raise ValueError(f"image must be (H, W, 3), got {image.shape}")
    if grid.ndim != 3 or not grid.size:
        raise ValueError(f"attention grid must be (T, rows, columns), got {grid.shape}")
    if not np.isfinite(grid).all() or grid.sum() <= 0:
        raise ValueError("attention grid must be finite and not all zero")
    scale = -(-_WIDTH // image.shape[1])
    height, width = image.shape[0] * scale // 2 * 2, image.shape[1] * scale // 2 * 2
    large = _bytes(cv2.resize(image, (width, height), interpolation=cv2.INTER_LINEAR))
    small = _bytes(cv2.resize(image, (width // 2, height // 2), interpolation=cv2.INTER_AREA))
    relative = grid.astype(np.float64) / grid.mean(dtype=np.float64)
    peak = max(float(np.percentile(relative, _PEAK_PERCENTILE)), _PEAK_SHARE * float(relative.max()), _LEAST_PEAK)
    shares = frame_shares(grid)

    now = _overlay(_fade(large, 0.5, 0.9), relative[0], peak)
    _camera_labels(now, cameras)
    _label(now, (4, 4), f"V0 now: {shares[0]:.0%} of the attention")
    rows = [_strip(width, title), now]
    dimmed = _fade(small, 1.0, 0.5)
    panels = [_overlay(dimmed, frame, peak) for frame in relative[1:]]
    for index, panel in enumerate(panels, start=1):
        _label(panel, (4, 4), f"V{index} imagined: {shares[index]:.0%}")
    panels += [np.zeros_like(small)] * (len(panels) % 2)
    rows += [np.hstack(panels[index : index + 2]) for index in range(0, len(panels), 2)]
    rows.append(_colour_bar(width, peak))
    return _stack(rows)


def _overlay(image: Image, relative: NDArray[np.float64], peak: float) -> Image:
    """Blend the heat over the image: the more attention, the less of the image shows through."""
    heat: NDArray[np.float64] = np.sqrt(np.clip(relative / peak, 0.0, 1.0))
    cell = max(image.shape[1] / heat.shape[1], image.shape[0] / heat.shape[0])
    heat = heat[: math.ceil(image.shape[0] / cell), : math.ceil(image.shape[1] / cell)]  # no more than is to be seen
    size = round(heat.shape[1] * cell), round(heat.shape[0] * cell)
    heat = np.asarray(cv2.resize(heat, size, interpolation=cv2.INTER_NEAREST), np.float64)
    heat = heat[: image.shape[0], : image.shape[1]]
    alpha = (0.15 + 0.5 * heat)[..., None]
    return _bytes(image * (1.0 - alpha) + _colours(heat) * alpha)


def _colours(heat: NDArray[np.float64]) -> Image:
    """(H, W) in 0..1 -> (H, W, 3) RGB."""
    return _bytes(cv2.applyColorMap(_bytes(heat * 255), cv2.COLORMAP_INFERNO)[..., ::-1])


def _bytes(values: NDArray[Any]) -> Image:
    return np.rint(values).astype(np.uint8)


def _fade(image: Image, colour_loss: float, brightness: float) -> Image:
    """Take colour and brightness out, so that the heat's own colours can be told apart."""
    grey = cv2.cvtColor(image, cv2.COLOR_RGB2GRAY)[..., None]
    return _bytes((image * (1.0 - colour_loss) + grey * colour_loss) * brightness)


def _label(image: Image, corner: tuple[int, int], text: str) -> None:
    """Write ``text`` on a dark plate whose top-left corner is ``corner``, in place."""
    (width, height), base = cv2.getTextSize(text, _FONT, 0.4, 1)
    x, y = corner
    plate = image[y : y + height + base + 4, x : x + width + 6]
    plate[:] = plate // 4
    cv2.putText(image, text, (x + 3, y + height + 2), _FONT, 0.4, _WHITE, 1, cv2.LINE_AA)


def _camera_labels(image: Image, cameras: Sequence[str]) -> None:
    for index, name in enumerate(cameras):
        x = index * image.shape[1] // len(cameras)
        _label(image, (x + 4, image.shape[0] - 20), name)
        if index:
            image[:, x] = _WHITE


def _strip(width: int, text: str) -> Image:
    strip = np.full((_BAR, width, 3), _GREY, np.uint8)
    cv2.putText(strip, text, (6, 15), _FONT, 0.4, _WHITE, 1, cv2.LINE_AA)
    return strip


def _colour_bar(width: int, peak: float) -> Image:
    strip = _strip(width, "per token")
    left, right = 90, width - 52
    strip[7:15, left:right] = _colours(np.linspace(0.0, 1.0, right - left)[None].repeat(8, axis=0))
    uniform = left + round((right - left - 1) * peak**-0.5)
    strip[4:18, uniform] = _WHITE
    cv2.putText(strip, "0", (left - 12, 15), _FONT, 0.4, _WHITE, 1, cv2.LINE_AA)
    cv2.putText(strip, f"{peak:.1f} x", (right + 6, 15), _FONT, 0.4, _WHITE, 1, cv2.LINE_AA)
    _label(strip, (min(uniform + 2, right - 58), 1), "uniform")
    return strip


def _stack(rows: Sequence[Image]) -> Image:
    gap = np.full((_GAP, rows[0].shape[1], 3), _GREY, np.uint8)
    return np.vstack([part for row in rows for part in (row, gap)][:-1])
