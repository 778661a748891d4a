"""Snapshots on disk: single frames of demonstrations, every one of another scene. Read as samples of one picture.

A folder holds shards, ``shard-00000`` and so on, each with ``frames.npy`` (N, H, W, 3) of stacked pictures and
``columns.npz``: ``state`` (N, D), ``actions`` (N, A_H, A), ``valid`` (N, A_H), ``keyframe`` (N, A), ``task`` (N,).
Shards appear whole.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vag_policy.data.names import DatasetError
from vag_policy.data.samples import Sample

SHARD = "shard-{:05d}"
_FRAMES, _COLUMNS = "frames.npy", "columns.npz"
_VECTORS = ("state", "actions", "valid", "keyframe", "task")


def write_shard(folder: Path, number: int, frames: NDArray[np.uint8], columns: Mapping[str, NDArray]) -> None:
    """Place a shard whole; what a killed writer left of it is overwritten."""
    unfinished = folder / f".{SHARD.format(number)}"
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    np.save(unfinished / _FRAMES, frames, allow_pickle=False)
    np.savez(unfinished / _COLUMNS, allow_pickle=False, **columns)
    unfinished.replace(folder / SHARD.format(number))


def shards(folder: Path) -> list[Path]:
    """The shards that are there, in order."""
    return sorted(path for path in Path(folder).glob("shard-*") if (path / _COLUMNS).is_file())


class SnapshotSamples:
    """Samples whose clip is one picture, repeated: for what reads the present frame alone.

    Args:
        folder: of shards.
        frames: pictures a sample's clip has.

    Raises:
        DatasetError: no shard, or a damaged one; the file is named.
    """

    def __init__(self, folder: Path | str, frames: int) -> None:
        self._frames = frames
        found = shards(Path(folder))
        if not found:
            raise DatasetError(f"no snapshots in {folder}; make some with: vag snapshots --count 40000 --out {folder}")
        self._pictures: list[NDArray[np.uint8]] = [_read(path / _FRAMES) for path in found]
        columns = [dict(_read(path / _COLUMNS)) for path in found]
        for path, pictures, vectors in zip(found, self._pictures, columns, strict=True):
            counts = {len(pictures), *(len(vectors[name]) for name in _VECTORS if name in vectors)}
            if len(counts) != 1 or any(name not in vectors for name in _VECTORS):
                raise DatasetError(f"{path} is damaged: it needs {', '.join(_VECTORS)} and frames, as many of each")
        self._columns = {name: np.concatenate([vectors[name] for vectors in columns]) for name in _VECTORS}
        self._starts = np.cumsum([0, *(len(pictures) for pictures in self._pictures)])

    def __len__(self) -> int:
        return int(self._starts[-1])

    def __getitem__(self, index: int) -> Sample:
        if not 0 <= index < len(self):
            raise IndexError(index)
        shard = int(np.searchsorted(self._starts, index, side="right")) - 1
        picture = np.asarray(self._pictures[shard][index - self._starts[shard]])
        columns = self._columns
        return Sample(
            clip=np.broadcast_to(picture, (self._frames, *picture.shape)),
            clip_valid=np.ones(self._frames, bool),
            state=columns["state"][index],
            actions=columns["actions"][index],
            actions_valid=columns["valid"][index],
            task=str(columns["task"][index]),
            frame=index,
            keyframe=columns["keyframe"][index],
        )


def _read(path: Path) -> Any:
    try:
        return np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError) as error:
        raise DatasetError(f"{path} is not readable: {error}") from error
