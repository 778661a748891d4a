"""Reading LeRobot datasets: vectors in memory, checked, in a policy's order; pictures on demand."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from vag_policy.data.episodes import Catalogue, Episode, read_catalogue, read_table
from vag_policy.data.names import DatasetError, NameMap, find_yam_names, order
from vag_policy.data.video import read_frames
from vag_policy.robots.yam import JOINT_NAMES
from vag_policy.robots.yam_rig import CAMERA_NAMES

TIME_TOLERANCE = 1e-3
"""Seconds a frame's timestamp may be off n / fps; stamps are float32."""


@dataclass(frozen=True)
class DatasetSpec:
    """What a policy needs of a dataset.

    Attributes:
        cameras: their names, in stacking order.
        state_names: entries of the state, in order.
        action_names: entries of an action, in order.
        fps: frames a second the dataset must have; None: any.
    """

    cameras: tuple[str, ...] = CAMERA_NAMES
    state_names: tuple[str, ...] = JOINT_NAMES
    action_names: tuple[str, ...] = JOINT_NAMES
    fps: int | None = 30


class LeRobotDataset:
    """A dataset on disk. States, actions and tasks are read and checked at once; pictures when they are asked for.

    Frames are numbered through all episodes; episode ``e`` is ``starts[e]`` to ``starts[e + 1]``.

    Args:
        root: its folder.
        spec: what is needed of it.
        names: from the policy's names to the dataset's; None: found among those that bimanual YAM datasets use.

    Attributes:
        starts: (E + 1,) first frame of every episode.
        state: (N, D) float32 in ``spec.state_names`` order.
        action: (N, A) float32 in ``spec.action_names`` order.
        task_index: (N,) of every frame.

    Raises:
        DatasetError: names, dimensions or fps do not fit, a value is not finite, frames are missing or out of step;
            file and frame are named.
    """

    def __init__(self, root: Path | str, spec: DatasetSpec | None = None, names: NameMap | None = None) -> None:
        self.root, self.spec = Path(root), spec or DatasetSpec()
        self.catalogue: Catalogue = read_catalogue(self.root)
        self.fps = int(self.catalogue.info["fps"])
        if self.spec.fps is not None and self.fps != self.spec.fps:
            raise DatasetError(f"{self.root} has {self.fps} frames a second, expected {self.spec.fps}")
        self.names = names or find_yam_names(self.catalogue.features)
        self._state_order = self._order(self.names.state_feature, self.spec.state_names, self.names.state)
        self._action_order = self._order(self.names.action_feature, self.spec.action_names, self.names.action)
        for camera in self.spec.cameras:
            self._check_camera(camera)
        lengths = [episode.length for episode in self.episodes]
        self.starts: NDArray[np.int64] = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        rows = EpisodeRows()
        columns = [self._vectors(episode, rows) for episode in self.episodes]
        self.state, self.action, self.task_index = (np.concatenate(part) for part in zip(*columns, strict=True))

    @property
    def episodes(self) -> tuple[Episode, ...]:
        """In order of their numbers."""
        return self.catalogue.episodes

    def __len__(self) -> int:
        return int(self.starts[-1])

    def task(self, frame: int) -> str:
        """The instruction at ``frame``."""
        return self.catalogue.tasks[int(self.task_index[frame])]

    def locate(self, frame: int) -> tuple[int, int]:
        """The episode's position in ``episodes`` and the frame's number in it.

        Raises:
            IndexError: no such frame.
        """
        if not 0 <= frame < len(self):
            raise IndexError(f"frame {frame} of {len(self)}")
        position = int(np.searchsorted(self.starts, frame, side="right")) - 1
        return position, frame - int(self.starts[position])

    def column(self, name: str) -> NDArray:
        """(N,) or (N, D) values of any other feature that is stored by frame, for analysis.

        Raises:
            DatasetError: no such column.
        """
        if name not in self.catalogue.features:
            raise DatasetError(f"no feature '{name}'; there are: {', '.join(self.catalogue.features)}")
        rows = EpisodeRows()
        return np.concatenate([numpy_column(rows.of(episode, [name])[name]) for episode in self.episodes])

    def pictures(self, position: int, camera: str, start: int = 0, count: int | None = None) -> Iterator[NDArray]:
        """Frames of one camera in the episode at ``position``, (H, W, 3) RGB, one after the other.

        Raises:
            DatasetError, VideoError: the pictures are missing, damaged or too few; file and frame are named.
        """
        episode = self.episodes[position]
        number = episode.length - start if count is None else count
        return read_pictures(self.catalogue, episode, self.names.camera(camera), start, number)

    # --- checks

    def _order(self, feature: str, wanted: Sequence[str], aliases: Any) -> list[int]:
        features = self.catalogue.features
        if feature not in features:
            raise DatasetError(f"{self.root} has no feature '{feature}'; it has: {', '.join(features)}")
        return order(f"{self.root}: {feature}", wanted, features[feature], aliases, self.names.positional)

    def _check_camera(self, camera: str) -> None:
        features, name = self.catalogue.features, self.names.camera(camera)
        pictures = [key for key, feature in features.items() if feature["dtype"] in ("video", "image")]
        if name not in pictures:
            raise DatasetError(
                f"{self.root} has no pictures '{name}' for camera '{camera}'; it has: {', '.join(pictures) or 'none'}"
            )

    def _vectors(self, episode: Episode, rows: EpisodeRows) -> tuple[NDArray, NDArray, NDArray]:
        keys = [self.names.state_feature, self.names.action_feature]
        table = rows.of(episode, [*keys, "timestamp", "frame_index", "task_index"])
        if len(table) != episode.length:
            raise DatasetError(
                f"{episode.data}: episode {episode.index} has {len(table)} frames, the episode table says "
                f"{episode.length}"
            )
        self._check_times(episode, numpy_column(table["timestamp"]), numpy_column(table["frame_index"]))
        vectors = []
        for key, places in zip(keys, (self._state_order, self._action_order), strict=True):
            values, size = numpy_column(table[key]), self.catalogue.features[key]["shape"][0]
            if values.ndim != 2 or values.shape[1] != size:
                raise DatasetError(f"{episode.data}: '{key}' has shape {values.shape}, info.json says {size} entries")
            bad = np.argwhere(~np.isfinite(values))
            if len(bad):
                frame, entry = (int(number) for number in bad[0])
                raise DatasetError(
                    f"{episode.data}: '{key}' of episode {episode.index}, frame {frame}, entry {entry} is "
                    f"{values[frame, entry]}"
                )
            vectors.append(values[:, places].astype(np.float32))
        tasks = numpy_column(table["task_index"])
        unknown = set(tasks.tolist()) - set(self.catalogue.tasks)
        if unknown:
            raise DatasetError(
                f"{episode.data}: task {min(unknown)} of episode {episode.index} is not in the task table"
            )
        return vectors[0], vectors[1], tasks

    def _check_times(self, episode: Episode, times: NDArray, numbers: NDArray) -> None:
        if not np.array_equal(numbers, np.arange(episode.length)):
            frame = int(np.argmax(numbers != np.arange(episode.length)))
            raise DatasetError(
                f"{episode.data}: frames of episode {episode.index} are not numbered in order at {frame} "
                f"(frame_index {int(numbers[frame])})"
            )
        off = np.abs(times - np.arange(episode.length) / self.fps)
        frame = int(off.argmax())
        if off[frame] > TIME_TOLERANCE:
            raise DatasetError(
                f"{episode.data}: frame {frame} of episode {episode.index} is at {times[frame]:.4f} s, expected "
                f"{frame / self.fps:.4f} s at {self.fps} frames a second"
            )


def read_pictures(
    catalogue: Catalogue, episode: Episode, feature: str, start: int, count: int
) -> Iterator[NDArray[np.uint8]]:
    """Frames ``start`` to ``start + count`` of an episode's video or images ``feature``, (H, W, 3) RGB.

    Raises:
        DatasetError, VideoError: the pictures are missing, damaged or too few; file and frame are named.
    """
    if feature in episode.videos:
        path, first = episode.videos[feature]
        yield from read_frames(path, first + start, count, int(catalogue.info["fps"]))
        return
    stored = EpisodeRows().of(episode, [feature])[feature].slice(start, count)
    for offset, entry in enumerate(stored.to_pylist()):
        yield _decode(entry, f"{episode.data}: '{feature}' of frame {start + offset}", catalogue.root)


class EpisodeRows:
    """Rows of episodes; a file that holds several is read once for all of them in a row."""

    def __init__(self) -> None:
        self._key: tuple[Path, tuple[str, ...]] | None = None
        self._table: Any = None

    def of(self, episode: Episode, columns: list[str]) -> Any:
        """The episode's rows of ``columns`` and ``episode_index``, as a pyarrow table.

        Raises:
            DatasetError: the file or a column is missing, or the rows are scattered.
        """
        key = (episode.data, tuple(columns))
        if key != self._key:
            self._table, self._key = read_table(episode.data, [*dict.fromkeys([*columns, "episode_index"])]), key
            missing = [name for name in columns if name not in self._table.column_names]
            if missing:
                raise DatasetError(f"{episode.data} has no column '{missing[0]}'")
        index = self._table["episode_index"].to_numpy()
        first = int(np.argmax(index == episode.index)) if len(index) else 0
        count = int((index == episode.index).sum())
        if not (index[first : first + count] == episode.index).all():
            raise DatasetError(f"{episode.data}: the frames of episode {episode.index} are not together")
        return self._table.slice(first, count)


def numpy_column(column: Any) -> NDArray:
    """(N,) or (N, D) from a pyarrow column; a ragged one becomes (N,) objects and fails the shape check."""
    column = column.combine_chunks()
    if isinstance(column, pa.ChunkedArray):
        column = column.chunk(0) if column.num_chunks else pa.array([], column.type)
    if pa.types.is_fixed_size_list(column.type):
        return column.flatten().to_numpy(zero_copy_only=False).reshape(len(column), -1)
    if pa.types.is_list(column.type) or pa.types.is_large_list(column.type):
        lengths = np.diff(column.offsets.to_numpy())
        if len(lengths) and (lengths == lengths[0]).all() and lengths[0]:
            return column.flatten().to_numpy(zero_copy_only=False).reshape(len(column), -1)
    return column.to_numpy(zero_copy_only=False)


def _decode(entry: Any, where: str, root: Path) -> NDArray[np.uint8]:
    """A picture stored as {bytes, path} in Parquet."""
    data = entry.get("bytes") if isinstance(entry, dict) else None
    if data is None and isinstance(entry, dict) and entry.get("path"):
        path = root / entry["path"]
        data = path.read_bytes() if path.is_file() else None
    picture = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR_RGB) if data else None
    if picture is None:
        raise DatasetError(f"{where} is missing or damaged")
    return picture.astype(np.uint8, copy=False)
