"""Looks through a LeRobot dataset and reports everything that is wrong with it, not only the first thing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from vag_policy.data.episodes import Catalogue, Episode, read_catalogue
from vag_policy.data.lerobot_reader import (
    TIME_TOLERANCE,
    DatasetSpec,
    EpisodeRows,
    LeRobotDataset,
    numpy_column,
    read_pictures,
)
from vag_policy.data.names import DatasetError, NameMap, entry_names
from vag_policy.data.statistics import Statistics, describe
from vag_policy.data.video import VideoError, count_frames
from vag_policy.observation.stacking import resize

_FLOATS = ("float32", "float64", "float16")
_SHEET_EPISODES, _SHEET_FRAMES, _TILE = 6, 6, (160, 120)


@dataclass
class Report:
    """What was found.

    Attributes:
        catalogue: the metadata.
        problems: every fault, with its file and frame.
        gaps: (episode, frame, seconds) where a frame comes later than the one before it by more than 1 / fps.
        statistics: of every float feature over all frames.
        episodes_by_task: how many episodes each instruction has.
        yam: empty if it can be used as bimanual YAM data as it is, else why not.
    """

    catalogue: Catalogue
    problems: list[str] = field(default_factory=list)
    gaps: list[tuple[int, int, float]] = field(default_factory=list)
    statistics: dict[str, Statistics] = field(default_factory=dict)
    episodes_by_task: Counter[str] = field(default_factory=Counter)
    yam: str = ""

    @property
    def frames(self) -> int:
        """In all episodes."""
        return sum(episode.length for episode in self.catalogue.episodes)

    @property
    def names(self) -> dict[str, tuple[str, ...]]:
        """The names of every vector feature's entries; empty where it gives none."""
        vectors = {name: entry for name, entry in self.catalogue.features.items() if entry["dtype"] in _FLOATS}
        return {name: entry_names(entry) or () for name, entry in vectors.items()}


def inspect(root: Path, names: NameMap | None = None) -> Report:
    """Read every number and every video's header.

    Args:
        root: the dataset.
        names: how its names map to a bimanual YAM policy's; None: found, if they can be.

    Raises:
        DatasetError: there is no dataset.
    """
    report = Report(read_catalogue(root))
    columns: dict[str, list[NDArray]] = {}
    rows = EpisodeRows()
    for episode in report.catalogue.episodes:
        report.episodes_by_task.update(episode.tasks)
        try:
            values = _numbers(report.catalogue, episode, rows)
        except DatasetError as error:
            report.problems.append(str(error))
            continue
        report.problems += _check_numbers(report, episode, values)
        for name, column in values.items():
            columns.setdefault(name, []).append(column)
    report.problems += list(_check_videos(report.catalogue))
    report.statistics = {
        name: describe(np.concatenate(parts))
        for name, parts in columns.items()
        if name in report.names and len({part.shape[1:] for part in parts}) == 1
    }
    try:
        LeRobotDataset(root, DatasetSpec(), names)
    except DatasetError as error:
        report.yam = str(error)
    return report


def _numbers(catalogue: Catalogue, episode: Episode, rows: EpisodeRows) -> dict[str, NDArray]:
    wanted = [name for name, feature in catalogue.features.items() if feature["dtype"] in _FLOATS]
    table = rows.of(episode, [*dict.fromkeys([*wanted, "timestamp", "frame_index"])])
    return {name: numpy_column(table[name]) for name in table.column_names if name != "episode_index"}


def _check_numbers(report: Report, episode: Episode, values: Mapping[str, NDArray]) -> Iterator[str]:
    where, fps = f"{episode.data}: episode {episode.index}", report.catalogue.info["fps"]
    times, numbers = values["timestamp"], values["frame_index"]
    if len(times) != episode.length:
        yield f"{where} has {len(times)} frames, the episode table says {episode.length}"
    wrong = np.flatnonzero(numbers != np.arange(len(numbers)))
    if len(wrong):
        yield f"{where}: frames are not numbered in order at {wrong[0]} (frame_index {numbers[wrong[0]]})"
    late = np.flatnonzero(np.abs(np.diff(times) - 1.0 / fps) > TIME_TOLERANCE)
    report.gaps += [(episode.index, int(frame) + 1, float(times[frame + 1] - times[frame])) for frame in late]
    if len(late):
        frame = int(late[0]) + 1
        yield f"{where}: frame {frame} comes {times[frame] - times[frame - 1]:.4f} s after the last, not {1 / fps:.4f}"
    for name, feature in report.catalogue.features.items():
        if feature["dtype"] not in _FLOATS:
            continue
        size = feature["shape"][0]
        if values[name].shape[1:] != (() if size == 1 and values[name].ndim == 1 else (size,)):
            yield f"{where}: '{name}' has shape {values[name].shape[1:]}, info.json says {size} entries"
            continue
        bad = np.argwhere(~np.isfinite(values[name].reshape(len(values[name]), -1)))
        if len(bad):
            yield f"{where}: '{name}' of frame {bad[0][0]}, entry {bad[0][1]} is not finite ({len(bad)} such values)"


def _check_videos(catalogue: Catalogue) -> Iterator[str]:
    counts: dict[Path, int] = {}
    for episode in catalogue.episodes:
        for path, first in episode.videos.values():
            try:
                counts[path] = counts.get(path) or count_frames(path)
            except VideoError as error:
                yield str(error)
                continue
            if counts[path] < first + episode.length:
                yield (
                    f"{path}: episode {episode.index} needs frames {first} to {first + episode.length - 1}, "
                    f"the video has {counts[path]}"
                )


def contact_sheet(catalogue: Catalogue) -> NDArray[np.uint8]:
    """(H, W, 3) RGB: a few episodes from top to bottom, a few instants from left to right, all cameras of each.

    Raises:
        DatasetError, VideoError: a picture is missing or damaged.
    """
    episodes = [catalogue.episodes[i] for i in _spread(len(catalogue.episodes), _SHEET_EPISODES)]
    cameras = [name for name, feature in catalogue.features.items() if feature["dtype"] in ("video", "image")]
    if not cameras:
        raise DatasetError(f"{catalogue.root} has no pictures")
    rows = []
    for episode in episodes:
        cells = []
        for frame in _spread(episode.length, _SHEET_FRAMES):
            tiles = [
                resize(next(read_pictures(catalogue, episode, camera, frame, 1)), *_TILE).copy() for camera in cameras
            ]
            label = f"{episode.index}: {frame / catalogue.info['fps']:.1f} s"
            cv2.putText(tiles[0], label, (3, 12), cv2.FONT_HERSHEY_SIMPLEX, 0.35, (255, 0, 0), 1, cv2.LINE_AA)
            cells.append(np.hstack(tiles))
        rows.append(np.hstack([np.pad(cell, ((1, 1), (1, 1), (0, 0))) for cell in cells]))
    width = max(row.shape[1] for row in rows)
    return np.vstack([np.pad(row, ((0, 0), (0, width - row.shape[1]), (0, 0))) for row in rows])


def _spread(count: int, most: int) -> list[int]:
    """Up to ``most`` of ``count`` numbers, evenly, first and last among them."""
    return sorted(set(np.linspace(0, count - 1, min(count, most)).round().astype(int).tolist()))


def as_json(report: Report) -> dict[str, Any]:
    """The report as plain values."""
    info = report.catalogue.info
    return {
        "version": info["codebase_version"],
        "fps": info["fps"],
        "episodes": len(report.catalogue.episodes),
        "frames": report.frames,
        "tasks": dict(report.episodes_by_task),
        "features": {n: {"dtype": f["dtype"], "shape": f["shape"]} for n, f in report.catalogue.features.items()},
        "names": report.names,
        "gaps": report.gaps,
        "problems": report.problems,
        "yam": report.yam,
    }
