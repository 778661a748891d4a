"""Small LeRobot datasets for tests: v3.0 by the project's writer, v2.1 and image datasets by hand."""

import json

import cv2
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from vag_policy.data import lerobot_format as layout
from vag_policy.data.lerobot_writer import (
    DatasetDescription,
    EpisodeEntry,
    place_episode,
    task_numbers,
    write_metadata,
)
from vag_policy.data.statistics import describe
from vag_policy.data.video import VideoWriter
from vag_policy.robots.yam import JOINT_NAMES

WIDTH, HEIGHT, FPS = 32, 24, 30
CAMERAS = ("top", "left_wrist", "right_wrist")
TASKS = ("put the red cube in the blue bowl", "put the blue cube in the wooden tray")


def picture(camera_index, episode, frame):
    """Flat colours that say which camera, episode and frame this is; H.264 keeps them within a few levels."""
    return np.full((HEIGHT, WIDTH, 3), (40 + 80 * camera_index, 30 + 60 * episode, min(250, 20 + 10 * frame)), np.uint8)


def vectors(episode, length):
    """State and action whose numbers say entry, frame and episode."""
    state = np.arange(length)[:, None] + np.arange(14) / 100 + 1000 * episode
    return {layout.STATE: state.astype(np.float32), layout.ACTION: (state + 0.5).astype(np.float32)}


def make_v3(root, lengths=(12, 15), names=JOINT_NAMES, cameras=CAMERAS, change=None, extra=None):
    """A dataset of as many episodes as ``lengths``; ``change(episode, columns)`` may spoil them, ``extra`` adds."""
    features = {layout.STATE: layout.vector_feature(names), layout.ACTION: layout.vector_feature(names)}
    features |= {name: layout.scalar_feature(str(kind)) for name, (kind, _) in (extra or {}).items()}
    features |= {f"{layout.IMAGES}{name}": layout.video_feature(WIDTH, HEIGHT, FPS) for name in cameras}
    description = DatasetDescription(FPS, "yam_bimanual", features)
    episodes, first = [], 0
    for index, length in enumerate(lengths):
        columns = vectors(index, length) | {name: values(index, length) for name, (_, values) in (extra or {}).items()}
        if change is not None:
            change(index, columns)
        videos = {}
        for number, camera in enumerate(cameras):
            path = root / f".making-{camera}.mp4"
            path.parent.mkdir(parents=True, exist_ok=True)
            with VideoWriter(path, WIDTH, HEIGHT, FPS) as writer:
                for frame in range(length):
                    writer.write(picture(number, index, frame))
            videos[f"{layout.IMAGES}{camera}"] = path
        statistics = {name: describe(columns[name]) for name in (layout.STATE, layout.ACTION)}
        episodes.append(EpisodeEntry(TASKS[index % 2], length, statistics, {"demonstration/seed": 7 + index}))
        task = task_numbers(episodes)[episodes[-1].task]
        place_episode(root, description, index, first, task, columns, videos)
        first += length
    write_metadata(root, description, episodes)
    return root


def make_v2(root, lengths=(12, 15), images=False):
    """LeRobot v2.1 as its own tools leave it on disk; with ``images`` the pictures are PNGs inside Parquet."""
    keys = [f"observation.images.{name}" for name in CAMERAS]
    picture_feature = {"dtype": "image" if images else "video", "shape": [HEIGHT, WIDTH, 3], "names": None}
    features = {
        "observation.state": {"dtype": "float32", "shape": [14], "names": {"motors": list(JOINT_NAMES)}},
        "action": {"dtype": "float32", "shape": [14], "names": {"motors": list(JOINT_NAMES)}},
        **dict.fromkeys(keys, picture_feature),
        "timestamp": {"dtype": "float32", "shape": [1], "names": None},
    }
    info = {
        "codebase_version": "v2.1", "robot_type": "yam", "total_episodes": len(lengths), "total_frames": sum(lengths),
        "total_tasks": 2, "total_videos": 6, "total_chunks": 1, "chunks_size": 1000, "fps": FPS,
        "splits": {"train": f"0:{len(lengths)}"},
        "data_path": "data/chunk-{episode_chunk:03d}/episode_{episode_index:06d}.parquet",
        "video_path": "videos/chunk-{episode_chunk:03d}/{video_key}/episode_{episode_index:06d}.mp4",
        "features": features,
    }  # fmt: skip
    (root / "meta").mkdir(parents=True)
    (root / "data/chunk-000").mkdir(parents=True)
    (root / "meta/info.json").write_text(json.dumps(info))
    rows = [{"task_index": i, "task": task} for i, task in enumerate(TASKS)]
    (root / "meta/tasks.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    rows = [{"episode_index": i, "tasks": [TASKS[i % 2]], "length": n} for i, n in enumerate(lengths)]
    (root / "meta/episodes.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    first = 0
    for index, length in enumerate(lengths):
        numbers = vectors(index, length)
        table = {
            "observation.state": pa.array(numbers["observation.state"].tolist(), pa.list_(pa.float32())),
            "action": pa.array(numbers["action"].tolist(), pa.list_(pa.float32())),
            "timestamp": pa.array(np.arange(length) / FPS, pa.float32()),
            "frame_index": np.arange(length),
            "episode_index": np.full(length, index),
            "index": first + np.arange(length),
            "task_index": np.full(length, index % 2),
        }
        for number, key in enumerate(keys):
            pictures = [picture(number, index, frame) for frame in range(length)]
            if images:
                table[key] = [
                    {"bytes": cv2.imencode(".png", p[..., ::-1])[1].tobytes(), "path": None} for p in pictures
                ]
            else:
                path = root / f"videos/chunk-000/{key}/episode_{index:06d}.mp4"
                path.parent.mkdir(parents=True, exist_ok=True)
                with VideoWriter(path, WIDTH, HEIGHT, FPS) as writer:
                    for frame in pictures:
                        writer.write(frame)
        pq.write_table(pa.table(table), root / f"data/chunk-000/episode_{index:06d}.parquet")
        first += length
    return root
