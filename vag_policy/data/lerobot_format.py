"""LeRobot's dataset layout, version 3.0 (and what reading 2.1 needs): paths, features, column names.

Source: ``lerobot.datasets`` (utils, feature_utils, dataset_metadata, dataset_writer, io_utils), v0.6.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

VERSION, OLD_VERSION = "v3.0", "v2.1"
INFO, STATS, TASKS = "meta/info.json", "meta/stats.json", "meta/tasks.parquet"
EPISODES = "meta/episodes/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
DATA = "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
VIDEO = "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4"
FILES_PER_CHUNK = 1000

OLD_EPISODES, OLD_TASKS = "meta/episodes.jsonl", "meta/tasks.jsonl"

STATE, ACTION, IMAGES = "observation.state", "action", "observation.images."
QUANTILES = {"q01": 0.01, "q10": 0.10, "q50": 0.50, "q90": 0.90, "q99": 0.99}

INDEX_FEATURES: dict[str, dict[str, Any]] = {
    "timestamp": {"dtype": "float32", "shape": [1], "names": None},
    "frame_index": {"dtype": "int64", "shape": [1], "names": None},
    "episode_index": {"dtype": "int64", "shape": [1], "names": None},
    "index": {"dtype": "int64", "shape": [1], "names": None},
    "task_index": {"dtype": "int64", "shape": [1], "names": None},
}


def vector_feature(names: Sequence[str]) -> dict[str, Any]:
    """A float32 vector with one name for each entry."""
    return {"dtype": "float32", "shape": [len(names)], "names": list(names)}


def scalar_feature(dtype: str) -> dict[str, Any]:
    """One value a frame."""
    return {"dtype": dtype, "shape": [1], "names": None}


def video_feature(width: int, height: int, fps: int) -> dict[str, Any]:
    """An H.264 video, as ``info.json`` describes it."""
    return {
        "dtype": "video",
        "shape": [height, width, 3],
        "names": ["height", "width", "channels"],
        "info": {
            "video.height": height,
            "video.width": width,
            "video.codec": "h264",
            "video.pix_fmt": "yuv420p",
            "video.fps": fps,
            "video.channels": 3,
            "has_audio": False,
            "is_depth_map": False,
        },
    }


def file_place(index: int) -> dict[str, int]:
    """Chunk and file index of the ``index``-th file."""
    return {"chunk_index": index // FILES_PER_CHUNK, "file_index": index % FILES_PER_CHUNK}
