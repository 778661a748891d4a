"""Stacked frames of a whole dataset, decoded once into one file that is mapped into memory.

Decoding video at random places costs a hundred times more than reading a frame from here. The file's name is a hash of
the dataset and the layout: another dataset, tile size or fit is another file.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vag_policy.data.lerobot_reader import DatasetSpec, LeRobotDataset
from vag_policy.data.names import NameMap
from vag_policy.observation.image_codec import RawFrame
from vag_policy.observation.stacking import StackConfig, stack

_FORMAT = 1


class FrameCache:
    """Stacked frames by episode and frame number. Safe to send to other processes: each maps the file itself.

    Args:
        path: the file.
        starts: (E + 1,) first stored frame of every episode.
        every: one in so many frames is stored.
        shape: (H, W, 3) of a frame.
    """

    def __init__(self, path: Path, starts: NDArray[np.int64], every: int, shape: tuple[int, int, int]) -> None:
        self.path, self.starts, self.every, self.shape = path, starts, every, shape
        self._frames: NDArray[np.uint8] | None = None

    def __getstate__(self) -> dict:
        return {**self.__dict__, "_frames": None}

    def frames(self, position: int, numbers: NDArray[np.int64]) -> NDArray[np.uint8]:
        """(T, H, W, 3) uint8 RGB of frames ``numbers`` of the episode at ``position``.

        A frame that is not stored is replaced by the stored one before it.

        Raises:
            IndexError: a number beyond the episode.
        """
        if self._frames is None:
            self._frames = np.memmap(self.path, np.uint8, "r", shape=(int(self.starts[-1]), *self.shape))
        first, end = int(self.starts[position]), int(self.starts[position + 1])
        stored = first + np.asarray(numbers) // self.every
        if len(stored) and not (first <= stored.min() and stored.max() < end):
            raise IndexError(f"frames {numbers} of the episode at {position}, which has {end - first} stored")
        return self._frames[stored]


def stack_pictures(pictures: Sequence[NDArray[np.uint8]], config: StackConfig) -> NDArray[np.uint8]:
    """(H, W, 3) stacked picture of one (h, w, 3) RGB frame of each camera, by the very code the live graph runs."""
    return stack({name: _raw(picture) for name, picture in zip(config.cameras, pictures, strict=True)}, config)


def _raw(picture: NDArray[np.uint8]) -> RawFrame:
    height, width, _ = picture.shape
    return RawFrame("rgb8", height, width, 3 * width, False, np.ascontiguousarray(picture).reshape(-1))


def build_cache(
    dataset: LeRobotDataset,
    config: StackConfig,
    folder: Path,
    every: int = 1,
    workers: int = 1,
    progress: Callable[[int, int], None] | None = None,
) -> FrameCache:
    """Decode and stack every frame, unless it has been done; a build that was killed goes on with the next episode.

    Args:
        dataset: where frames come from.
        config: cameras and tiles; the cameras must be the dataset's.
        folder: where cache files lie.
        every: store one in so many frames of each episode.
        workers: processes.
        progress: called with episodes done and their number.

    Raises:
        ValueError: cameras that the dataset was not opened with.
        DatasetError, VideoError: pictures are missing or damaged; file and frame are named.
        RuntimeError: several workers, for a script that does not guard its main part from them.
    """
    foreign = [name for name in config.cameras if name not in dataset.spec.cameras]
    if foreign:
        raise ValueError(f"camera '{foreign[0]}' is not among the dataset's: {', '.join(dataset.spec.cameras)}")
    counts = [-(-episode.length // every) for episode in dataset.episodes]
    starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    width, height = config.size
    shape = (height, width, 3)
    folder.mkdir(parents=True, exist_ok=True)
    if workers > 1 and getattr(multiprocessing.current_process(), "_inheriting", False):
        # A worker that runs its starter's script would wait for the lock that the starter holds.
        raise RuntimeError('a script that builds a cache with several workers needs `if __name__ == "__main__":`')
    path = folder / f"{_key(dataset, config, every)}.frames"
    cache = FrameCache(path, starts, every, shape)
    with path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # a second builder waits for the first, and finds its file
        if not path.exists():
            _build(dataset, config, cache, workers, progress)
    return cache


def _build(
    dataset: LeRobotDataset,
    config: StackConfig,
    cache: FrameCache,
    workers: int,
    progress: Callable[[int, int], None] | None,
) -> None:
    partial, flags = cache.path.with_suffix(".partial"), cache.path.with_suffix(".done")
    target = FrameCache(partial, cache.starts, cache.every, cache.shape)
    done = _map(flags, np.dtype(bool), (len(dataset.episodes),))
    _map(partial, np.dtype(np.uint8), (int(cache.starts[-1]), *cache.shape))
    waiting = np.flatnonzero(~done).tolist()
    for position in _decoded(waiting, dataset, config, target, workers):
        done[position] = True
        done.flush()
        if progress is not None:
            progress(int(done.sum()), len(done))
    partial.rename(cache.path)
    flags.unlink()


def _decoded(
    waiting: Sequence[int], dataset: LeRobotDataset, config: StackConfig, target: FrameCache, workers: int
) -> Iterator[int]:
    """Decode the episodes that wait, each given back when it is done."""
    if workers == 1:  # here: a process of its own would run a script that lacks a __main__ guard once more
        yield from (_decode(dataset, config, target, position) for position in waiting)
        return
    context = multiprocessing.get_context("spawn")
    arguments = (dataset.root, dataset.spec, dataset.names, config, target)
    with ProcessPoolExecutor(workers, context, _open_dataset, arguments) as pool:
        try:
            for future in as_completed([pool.submit(_decode_episode, position) for position in waiting]):
                yield future.result()
        finally:
            pool.shutdown(cancel_futures=True)


def _map(path: Path, dtype: np.dtype, shape: tuple[int, ...]) -> np.memmap:
    size = int(np.prod(shape)) * dtype.itemsize
    right = path.exists() and path.stat().st_size == size
    return np.memmap(path, dtype, "r+" if right else "w+", shape=shape)


def _key(dataset: LeRobotDataset, config: StackConfig, every: int) -> str:
    """A hash of everything that decides the file's content."""
    files = sorted({path for episode in dataset.episodes for path, _ in episode.videos.values()})
    files += sorted({episode.data for episode in dataset.episodes}) if not files else []
    content = {
        "format": _FORMAT,
        "info": dataset.catalogue.info,
        "episodes": [(episode.index, episode.length) for episode in dataset.episodes],
        "files": [(str(path.relative_to(dataset.root)), path.stat().st_size) for path in files if path.exists()],
        "cameras": [dataset.names.camera(camera) for camera in config.cameras],
        "stack": asdict(config),
        "every": every,
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:20]


_job: tuple[LeRobotDataset, StackConfig, FrameCache] | None = None


def _open_dataset(root: Path, spec: DatasetSpec, names: NameMap, config: StackConfig, target: FrameCache) -> None:
    global _job
    _job = (LeRobotDataset(root, spec, names), config, target)


def _decode_episode(position: int) -> int:
    assert _job is not None
    return _decode(*_job, position)


def _decode(dataset: LeRobotDataset, config: StackConfig, target: FrameCache, position: int) -> int:
    frames = np.memmap(target.path, np.uint8, "r+", shape=(int(target.starts[-1]), *target.shape))
    streams = [dataset.pictures(position, camera) for camera in config.cameras]
    first = int(target.starts[position])
    for number, pictures in enumerate(zip(*streams, strict=True)):
        if number % target.every == 0:
            frames[first + number // target.every] = stack_pictures(pictures, config)
    frames.flush()
    return position
