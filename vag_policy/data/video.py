"""Camera videos: H.264 in MP4, every frame at its exact time n / fps."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

import av
import numpy as np
from numpy.typing import NDArray

_OPTIONS = {"preset": "veryfast", "crf": "18", "g": "15", "bf": "0", "threads": "1"}
"""Close to lossless for the tiles a policy sees (42 dB at a 3.3x reduction). No B-frames, so that frames are stored in
the order they are shown; a key frame every half second keeps random access cheap for other readers."""


class VideoError(ValueError):
    """A video that cannot be read, or does not hold what it should; the message names file and frame."""


class VideoWriter:
    """Writes one video. A context manager: the file is complete when it is left without an exception."""

    def __init__(self, path: Path, width: int, height: int, fps: int) -> None:
        self._container = av.open(str(path), "w")
        self._stream = self._container.add_stream("libx264", rate=fps, options=_OPTIONS)
        self._stream.width, self._stream.height, self._stream.pix_fmt = width, height, "yuv420p"
        self.frames = 0

    def __enter__(self) -> VideoWriter:
        return self

    def write(self, picture: NDArray[np.uint8]) -> None:
        """Append a (H, W, 3) RGB picture."""
        frame = av.VideoFrame.from_ndarray(picture, "rgb24")
        frame.pts = self.frames
        self._container.mux(self._stream.encode(frame))
        self.frames += 1

    def __exit__(self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None) -> None:
        if kind is None:
            self._container.mux(self._stream.encode())
        self._container.close()


def read_frames(path: Path, start: int, count: int, fps: int) -> Iterator[NDArray[np.uint8]]:
    """Frames ``start`` to ``start + count`` as (H, W, 3) RGB, each checked to be the one of its time.

    Raises:
        VideoError: the file is missing or damaged, or ends before the last frame; file and frame are named.
    """
    wanted = start
    try:
        with av.open(str(path)) as container:
            stream = container.streams.video[0]
            stream.thread_type = "NONE"
            if start and stream.time_base is not None:
                container.seek(round(start / fps / stream.time_base), stream=stream)
            for frame in container.decode(stream):
                index = _index(frame, fps, path)
                if index < wanted:
                    continue
                if index != wanted:
                    raise VideoError(f"{path}: frame {wanted} is missing; the next one is frame {index}")
                yield frame.to_ndarray(format="rgb24").astype(np.uint8, copy=False)
                wanted += 1
                if wanted == start + count:
                    return
    except (av.FFmpegError, IndexError, OSError) as error:
        raise VideoError(f"{path}: cannot read frame {wanted} of {start + count}: {error}") from error
    if wanted < start + count:
        raise VideoError(f"{path}: truncated: it ends before frame {wanted} of {start + count}")


def count_frames(path: Path) -> int:
    """Frames in a video, from its header.

    Raises:
        VideoError: the file is missing or damaged.
    """
    try:
        with av.open(str(path)) as container:
            return container.streams.video[0].frames
    except (av.FFmpegError, IndexError, OSError) as error:
        raise VideoError(f"{path}: cannot be opened: {error}") from error


def _index(frame: av.VideoFrame, fps: int, path: Path) -> int:
    if frame.pts is None or frame.time_base is None:
        raise VideoError(f"{path}: a frame has no time")
    exact = float(frame.pts * frame.time_base) * fps
    index = round(exact)
    if abs(exact - index) > 0.1:
        raise VideoError(f"{path}: a frame at {exact / fps:.4f} s is off the grid of {fps} frames a second")
    return index
