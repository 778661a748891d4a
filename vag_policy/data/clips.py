"""Which frames and actions make one training sample. Numbers only: no files, no pixels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

SECOND_NS = 1_000_000_000


@dataclass(frozen=True)
class ClipConfig:
    """A window of video and a chunk of actions, both starting at the sample's frame.

    Attributes:
        frames: pictures in the clip, the present one first.
        skip: dataset frames from one picture to the next.
        horizon: actions in the chunk.
        stride: dataset frames from one action to the next.

    At 30 frames a second, 17 pictures with skip 3 are 1.7 s at 10 Hz, and 50 actions 1.67 s at 30 Hz::

        frame      t   t+3  t+6  …  t+48
        action     t t+1 t+2 …         t+49
    """

    frames: int = 17
    skip: int = 3
    horizon: int = 50
    stride: int = 1

    def __post_init__(self) -> None:
        for name in ("frames", "skip", "horizon", "stride"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be positive, got {getattr(self, name)}")

    @classmethod
    def for_rates(cls, fps: int, video_fps: int, frames: int, period_ns: int, horizon: int) -> ClipConfig:
        """The configuration for a dataset at ``fps``.

        Args:
            fps: of the dataset.
            video_fps: of the video model.
            frames: pictures in a clip.
            period_ns: nanoseconds between two actions.
            horizon: actions in a chunk.

        Raises:
            ValueError: a rate is not a whole part of ``fps``.
        """
        stride = round(fps * period_ns / SECOND_NS)
        if fps % video_fps:
            raise ValueError(f"a video at {video_fps} frames a second cannot be taken from data at {fps}")
        if stride < 1 or abs(stride / fps - period_ns / SECOND_NS) > 1e-3 * period_ns / SECOND_NS:
            raise ValueError(f"actions every {period_ns} ns cannot be taken from data at {fps} frames a second")
        return cls(frames, fps // video_fps, horizon, stride)

    def clip(self, frame: int, length: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """(frames,) frame numbers and whether each is real, for a sample at ``frame`` of an episode of ``length``.

        Beyond the episode's end the last frame is repeated.
        """
        return _window(frame, length, self.frames, self.skip)

    def chunk(self, frame: int, length: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """(horizon,) frame numbers of the actions and whether each is real; beyond the end the last is repeated."""
        return _window(frame, length, self.horizon, self.stride)


def _window(frame: int, length: int, count: int, step: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    if not 0 <= frame < length:
        raise ValueError(f"frame {frame} of an episode of {length}")
    numbers = frame + step * np.arange(count)
    return np.minimum(numbers, length - 1), numbers < length


def until_first(valid: NDArray[np.bool_], good: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """``valid`` up to, not including, the first entry that is not ``good``: what follows a mistake depends on it."""
    return valid & np.logical_and.accumulate(good)
