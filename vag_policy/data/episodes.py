"""Where the episodes of a LeRobot dataset lie on disk, for layouts 3.0, 2.1 and 2.0."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from vag_policy.data import lerobot_format as layout
from vag_policy.data.names import DatasetError

_VERSIONS = {"v3.0": "3", "v2.1": "2", "v2.0": "2"}


@dataclass(frozen=True)
class Episode:
    """One episode.

    Attributes:
        index: its number.
        length: frames.
        tasks: its instructions.
        data: its Parquet file, which may hold others too.
        videos: for every video feature, the file and the number of the episode's first frame in it.
    """

    index: int
    length: int
    tasks: tuple[str, ...]
    data: Path
    videos: Mapping[str, tuple[Path, int]]


@dataclass(frozen=True)
class Catalogue:
    """What the metadata says. ``tasks``: instruction by index; ``info``: ``info.json``."""

    root: Path
    info: Mapping[str, Any]
    tasks: Mapping[int, str]
    episodes: tuple[Episode, ...]

    @property
    def features(self) -> Mapping[str, Mapping[str, Any]]:
        """Feature by name."""
        return self.info["features"]


def read_catalogue(root: Path) -> Catalogue:
    """Read a dataset's metadata.

    Raises:
        DatasetError: not a dataset, or one whose metadata is incomplete or of an unknown version.
    """
    info = read_json(root / layout.INFO)
    missing = [key for key in ("codebase_version", "fps", "features", "data_path") if key not in info]
    if missing:
        raise DatasetError(f"{root / layout.INFO} has no '{missing[0]}'")
    kind = _VERSIONS.get(info["codebase_version"])
    if kind is None:
        raise DatasetError(
            f"{root / layout.INFO}: version '{info['codebase_version']}' is not known; known: {', '.join(_VERSIONS)}"
        )
    try:
        tasks, episodes = (_read_v3 if kind == "3" else _read_v2)(root, info)
    except KeyError as error:
        raise DatasetError(f"{root}: the episode or task table has no {error}") from error
    if len(episodes) != info.get("total_episodes", len(episodes)):
        raise DatasetError(f"{root}: info.json counts {info['total_episodes']} episodes, the table has {len(episodes)}")
    if not episodes:
        raise DatasetError(f"{root} has no episodes")
    return Catalogue(root, info, tasks, episodes)


def _videos(info: Mapping[str, Any]) -> list[str]:
    return [name for name, feature in info["features"].items() if feature["dtype"] == "video"]


def _read_v3(root: Path, info: Mapping[str, Any]) -> tuple[dict[int, str], tuple[Episode, ...]]:
    table = read_table(root / layout.TASKS)
    text = "task" if "task" in table.column_names else "__index_level_0__"  # pandas' name for an unnamed index
    tasks = dict(zip(table["task_index"].to_pylist(), table[text].to_pylist(), strict=True))
    episodes = []
    for path in sorted((root / "meta/episodes").glob("*/*.parquet")):
        names = pq.read_schema(path).names
        rows = read_table(path, [name for name in names if not name.startswith("stats/")]).to_pylist()
        episodes += [_v3_episode(root, info, row) for row in rows]
    return tasks, tuple(sorted(episodes, key=lambda episode: episode.index))


def _v3_episode(root: Path, info: Mapping[str, Any], row: Mapping[str, Any]) -> Episode:
    videos = {}
    for name in _videos(info):
        place = {key: row[f"videos/{name}/{key}"] for key in ("chunk_index", "file_index")}
        first = round(row[f"videos/{name}/from_timestamp"] * info["fps"])
        videos[name] = (root / info["video_path"].format(video_key=name, **place), first)
    data = info["data_path"].format(chunk_index=row["data/chunk_index"], file_index=row["data/file_index"])
    return Episode(row["episode_index"], row["length"], tuple(row["tasks"]), root / data, videos)


def _read_v2(root: Path, info: Mapping[str, Any]) -> tuple[dict[int, str], tuple[Episode, ...]]:
    tasks = {row["task_index"]: row["task"] for row in _read_lines(root / layout.OLD_TASKS)}
    episodes = []
    for row in _read_lines(root / layout.OLD_EPISODES):
        index = row["episode_index"]
        place = {"episode_chunk": index // info.get("chunks_size", 1000), "episode_index": index}
        videos = {name: (root / info["video_path"].format(video_key=name, **place), 0) for name in _videos(info)}
        data = root / info["data_path"].format(**place)
        episodes.append(Episode(index, row["length"], tuple(row["tasks"]), data, videos))
    return tasks, tuple(episodes)


def read_json(path: Path) -> dict[str, Any]:
    """An object from a JSON file.

    Raises:
        DatasetError: there is none.
    """
    try:
        content = json.loads(path.read_text())
    except OSError as error:
        raise DatasetError(f"no LeRobot dataset here: cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise DatasetError(f"{path} is not JSON: {error}") from error
    if not isinstance(content, dict):
        raise DatasetError(f"{path} does not hold an object")
    return content


def _read_lines(path: Path) -> list[dict[str, Any]]:
    try:
        return [json.loads(line) for line in path.read_text().splitlines() if line.strip()]
    except OSError as error:
        raise DatasetError(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise DatasetError(f"{path} is not JSON by line: {error}") from error


def read_table(path: Path, columns: list[str] | None = None) -> Any:
    """A Parquet file as a pyarrow table.

    Raises:
        DatasetError: it is missing, damaged or has not those columns.
    """
    try:
        return pq.ParquetFile(path).read(columns)
    except FileNotFoundError as error:
        raise DatasetError(f"{path} is missing") from error
    except (OSError, ValueError) as error:  # pyarrow's ArrowInvalid is a ValueError
        raise DatasetError(f"{path} cannot be read: {error}") from error
