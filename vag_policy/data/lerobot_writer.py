"""Writing LeRobot v3.0 datasets, an episode at a time; what is on disk counts only once the metadata says so.

Every episode has its own data and video files (the format allows any number of episodes a file): nothing that was
written before is ever touched again, which makes a killed writer harmless.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from vag_policy.data import lerobot_format as layout
from vag_policy.data.statistics import Statistics, merge


@dataclass(frozen=True, eq=False)
class DatasetDescription:
    """What all episodes share.

    Attributes:
        fps: frames a second.
        robot_type: for ``info.json``.
        features: name -> feature as in ``info.json``, without the index columns.
    """

    fps: int
    robot_type: str
    features: Mapping[str, Mapping[str, Any]]

    @property
    def columns(self) -> dict[str, Mapping[str, Any]]:
        """The features that are columns of the data files, index columns last."""
        own = {name: feature for name, feature in self.features.items() if feature["dtype"] != "video"}
        return {**own, **layout.INDEX_FEATURES}

    @property
    def videos(self) -> tuple[str, ...]:
        """The names of the video features."""
        return tuple(name for name, feature in self.features.items() if feature["dtype"] == "video")


@dataclass(frozen=True, eq=False)
class EpisodeEntry:
    """One finished episode, as the metadata knows it.

    Attributes:
        task: the instruction.
        length: frames.
        statistics: by feature.
        extra: further columns for the episode table; one plain value each.
    """

    task: str
    length: int
    statistics: Mapping[str, Statistics]
    extra: Mapping[str, Any]

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        found = {
            feature: {name: value.tolist() for name, value in entry.items()}
            for feature, entry in self.statistics.items()
        }
        return {"task": self.task, "length": self.length, "statistics": found, "extra": dict(self.extra)}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> EpisodeEntry:
        """What ``to_json`` gave."""
        found = {
            feature: {name: np.array(numbers, np.float64) for name, numbers in entry.items()}
            for feature, entry in value["statistics"].items()
        }
        return cls(value["task"], value["length"], found, value["extra"])


def place_episode(
    root: Path,
    description: DatasetDescription,
    index: int,
    first_frame: int,
    task_index: int,
    columns: Mapping[str, NDArray],
    videos: Mapping[str, Path],
) -> None:
    """Put an episode's files where they belong: data as Parquet, finished videos by renaming them.

    Args:
        root: the dataset.
        description: what all episodes share.
        index: the episode's number.
        first_frame: its first frame's number in the whole dataset.
        task_index: its task's.
        columns: (N, ...) values of every feature that is not a video.
        videos: a finished file of N frames for every video feature.

    Raises:
        ValueError: a column has the wrong shape.
    """
    place = layout.file_place(index)
    path = root / layout.DATA.format(**place)
    with new_file(path) as temporary:
        pq.write_table(_table(description, index, first_frame, task_index, columns), temporary)
    for name in description.videos:
        path = root / layout.VIDEO.format(video_key=name, **place)
        path.parent.mkdir(parents=True, exist_ok=True)
        videos[name].replace(path)


def _table(
    description: DatasetDescription, index: int, first_frame: int, task_index: int, columns: Mapping[str, NDArray]
) -> pa.Table:
    length = len(next(iter(columns.values())))
    frames = np.arange(length)
    given = {
        **columns,
        "timestamp": (frames / description.fps).astype(np.float32),
        "frame_index": frames,
        "episode_index": np.full(length, index),
        "index": first_frame + frames,
        "task_index": np.full(length, task_index),
    }
    arrays = {}
    for name, feature in description.columns.items():
        size = feature["shape"][0]
        values = np.asarray(given[name])
        if values.shape != ((length,) if size == 1 else (length, size)):
            raise ValueError(f"column '{name}' must be ({length}, {size}), got {values.shape}")
        kind = pa.string() if feature["dtype"] == "string" else pa.from_numpy_dtype(np.dtype(feature["dtype"]))
        flat = pa.array(values.reshape(-1), kind)
        arrays[name] = flat if size == 1 else pa.FixedSizeListArray.from_arrays(flat, size)
    return pa.table(arrays)


def write_metadata(root: Path, description: DatasetDescription, episodes: Sequence[EpisodeEntry]) -> None:
    """Make the first ``len(episodes)`` episodes on disk the dataset. Every file is replaced whole, info.json last.

    Raises:
        ValueError: there is no episode.
    """
    tasks = task_numbers(episodes)
    _write_table(root / layout.TASKS, _task_table(tasks))
    _write_table(root / layout.EPISODES.format(chunk_index=0, file_index=0), _episode_table(description, episodes))
    features = episodes[0].statistics if episodes else {}
    merged = {name: merge([episode.statistics[name] for episode in episodes]) for name in features}
    if not merged:
        raise ValueError("a dataset needs at least one episode")
    _write_json(root / layout.STATS, {f: {n: v.tolist() for n, v in entry.items()} for f, entry in merged.items()})
    _write_json(
        root / layout.INFO,
        {
            "codebase_version": layout.VERSION,
            "robot_type": description.robot_type,
            "total_episodes": len(episodes),
            "total_frames": sum(episode.length for episode in episodes),
            "total_tasks": len(tasks),
            "chunks_size": layout.FILES_PER_CHUNK,
            "data_files_size_in_mb": 100,
            "video_files_size_in_mb": 200,
            "fps": description.fps,
            "splits": {"train": f"0:{len(episodes)}"},
            "data_path": layout.DATA,
            "video_path": layout.VIDEO,
            "features": {**description.features, **layout.INDEX_FEATURES},
        },
    )


def task_numbers(episodes: Sequence[EpisodeEntry]) -> dict[str, int]:
    """Task -> its index: the order of first appearance."""
    return {task: index for index, task in enumerate(dict.fromkeys(episode.task for episode in episodes))}


def _task_table(tasks: Mapping[str, int]) -> pa.Table:
    table = pa.table({"task_index": pa.array(tasks.values(), pa.int64()), "task": pa.array(tasks.keys(), pa.string())})
    # What pandas would write: LeRobot reads this file with pandas and wants the task as the index.
    columns = [
        {"name": name, "field_name": name, "pandas_type": kind, "numpy_type": numpy_type, "metadata": None}
        for name, kind, numpy_type in (("task_index", "int64", "int64"), ("task", "unicode", "object"))
    ]
    pandas = {"index_columns": ["task"], "column_indexes": [], "columns": columns, "pandas_version": "2.2.3"}
    return table.replace_schema_metadata({"pandas": json.dumps(pandas)})


def _episode_table(description: DatasetDescription, episodes: Sequence[EpisodeEntry]) -> pa.Table:
    rows: list[dict[str, Any]] = []
    first = 0
    for index, episode in enumerate(episodes):
        place = layout.file_place(index)
        row: dict[str, Any] = {"episode_index": index, "tasks": [episode.task], "length": episode.length}
        row |= {f"data/{name}": value for name, value in place.items()}
        row |= {"dataset_from_index": first, "dataset_to_index": first + episode.length}
        for video in description.videos:
            row |= {f"videos/{video}/{name}": value for name, value in place.items()}
            row |= {
                f"videos/{video}/from_timestamp": 0.0,
                f"videos/{video}/to_timestamp": episode.length / description.fps,
            }
        for feature, entry in episode.statistics.items():
            row |= {f"stats/{feature}/{name}": value.tolist() for name, value in entry.items()}
        row |= dict(episode.extra)
        row |= {"meta/episodes/chunk_index": 0, "meta/episodes/file_index": 0}
        rows.append(row)
        first += episode.length
    return pa.Table.from_pylist(rows)


class new_file:  # noqa: N801 - a context manager, used like a function
    """Gives a temporary path beside ``path``; left without an exception, it becomes ``path`` in one step, on disk."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")

    def __enter__(self) -> Path:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        return self._temporary

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            with self._temporary.open("rb") as file:
                os.fsync(file.fileno())
            self._temporary.replace(self._path)
        else:
            self._temporary.unlink(missing_ok=True)


def _write_table(path: Path, table: pa.Table) -> None:
    with new_file(path) as temporary:
        pq.write_table(table, temporary)


def _write_json(path: Path, content: Mapping[str, Any]) -> None:
    with new_file(path) as temporary:
        temporary.write_text(json.dumps(content, indent=4) + "\n")
