"""Recorded bags become a LeRobot dataset: resampled to exact n / fps, gaps told, pixels decoded as live ones are."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import chain, pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vag_policy.data import lerobot_format as layout
from vag_policy.data.bag_streams import BagStreams, BagTopics, check_joints, read_frames_of, read_streams
from vag_policy.data.bag_writer import BagError
from vag_policy.data.lerobot_writer import (
    DatasetDescription,
    EpisodeEntry,
    place_episode,
    task_numbers,
    write_metadata,
)
from vag_policy.data.resample import SECOND_NS, Stamps, gaps, grid, interpolate, nearest
from vag_policy.data.statistics import describe, describe_pictures
from vag_policy.data.video import VideoWriter
from vag_policy.observation.image_codec import decode
from vag_policy.robots import yam

_SAMPLE_EVERY, _SAMPLE_STRIDE = 10, 4
_SHORTEST_FRAMES = 2


@dataclass(frozen=True)
class ConvertConfig:
    """How bags become episodes.

    Attributes:
        fps: frames a second of the dataset.
        task: the instruction where the bag records none; empty: the bag must.
        longest_gap_s: a stream may be silent for so long; longer, and the episode is left out.
        gripper_stroke: a gripper's position at 1 (open), in the bag's unit; 1: it is recorded as 0..1 already.
        cameras: names, in stacking order.
    """

    fps: int = 30
    task: str = ""
    longest_gap_s: float = 0.2
    gripper_stroke: float = yam.STROKE
    cameras: tuple[str, ...] = ("top", "left_wrist", "right_wrist")

    def __post_init__(self) -> None:
        if not 1 <= self.fps <= 240:
            raise ValueError(f"fps is {self.fps}; allowed: 1 to 240")
        if not self.longest_gap_s > 1.0 / self.fps:
            raise ValueError(f"the longest gap is {self.longest_gap_s} s, less than one frame at {self.fps} a second")
        if not self.gripper_stroke:
            raise ValueError("gripper_stroke must not be 0")


@dataclass(frozen=True)
class Silence:
    """Gaps of one stream: how many were longer than a frame and a half, and the longest, seconds."""

    count: int
    longest_s: float


@dataclass
class Conversion:
    """What came of it.

    Attributes:
        episodes: written.
        frames: in them.
        silences: by topic or joint, where there were gaps.
        left_out: which stretches became no episode, and why.
    """

    episodes: int = 0
    frames: int = 0
    silences: dict[str, Silence] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)


def convert(
    bags: Sequence[Path],
    out: Path,
    topics: BagTopics,
    config: ConvertConfig,
    progress: Callable[[str], None] | None = None,
) -> Conversion:
    """Write the episodes of ``bags`` as a LeRobot v3.0 dataset.

    Raises:
        BagError: ``out`` is in use, a bag cannot be read or lacks a topic or joint, a camera changes its size, or no
            episode is left.
        ImageError: a frame cannot be decoded.
    """
    if out.exists() and any(out.iterdir()):
        raise BagError(f"{out} is not empty and is not overwritten")
    writer = _Writer(out, config)
    for bag in bags:
        streams = read_streams(bag, topics, config.cameras)
        check_joints(streams)
        for start_ns, end_ns, task in _spans(streams, config.task):
            if progress is not None:
                progress(f"{bag}: '{task}'")
            writer.add(streams, start_ns, end_ns, task)
    if not writer.entries:
        raise BagError(f"no episode could be made: {'; '.join(writer.result.left_out) or 'the bags are empty'}")
    write_metadata(out, writer.description, writer.entries)
    return writer.result


def _spans(streams: BagStreams, task: str) -> list[tuple[int, int, str]]:
    """(start, end, instruction): from each non-empty instruction to the next; one for the whole bag if it has none."""
    start = max(int(stamps[0]) for stamps in streams.frames.values())
    end = min(int(stamps[-1]) for stamps in streams.frames.values())
    texts = [(stamp, text.strip()) for stamp, text in streams.instructions]
    texts = [entry for n, entry in enumerate(texts) if n == 0 or entry[1] != texts[n - 1][1]]
    if not any(text for _, text in texts):
        if not task:
            raise BagError(
                f"{streams.path}: no instruction on '{streams.topics.instruction}'; say what is done with a task"
            )
        return [(start, end, task)]
    ends = pairwise([*texts, (end, "")])
    return [(max(begin, start), min(until, end), text) for (begin, text), (until, _) in ends if text]


class _Writer:
    def __init__(self, out: Path, config: ConvertConfig) -> None:
        self.out, self.config = out, config
        self.entries: list[EpisodeEntry] = []
        self.result = Conversion()
        self._sizes: dict[str, tuple[int, int]] = {}

    @property
    def description(self) -> DatasetDescription:
        """What all episodes share; complete once there is one."""
        vectors = {name: layout.vector_feature(yam.JOINT_NAMES) for name in (layout.STATE, layout.ACTION)}
        fps = self.config.fps
        pictures = {f"{layout.IMAGES}{c}": layout.video_feature(*size, fps) for c, size in self._sizes.items()}
        return DatasetDescription(fps, "yam_bimanual", vectors | pictures)

    def add(self, streams: BagStreams, start_ns: int, end_ns: int, task: str) -> None:
        """Make one episode, or say why not."""
        where = f"{streams.path} at {start_ns / SECOND_NS:.3f} s ('{task}')"
        wanted = grid(start_ns, end_ns, self.config.fps)
        if len(wanted) < _SHORTEST_FRAMES:
            self.result.left_out.append(f"{where}: {len(wanted)} frames")
            return
        too_long = self._check_gaps(streams, start_ns, end_ns)
        if too_long:
            self.result.left_out.append(f"{where}: {too_long}")
            return
        state = self._vectors(streams, wanted, commanded=False)
        action = self._vectors(streams, wanted, commanded=True) if streams.topics.commands else _following(state)
        columns: dict[str, NDArray] = {layout.STATE: state, layout.ACTION: action}
        statistics = {name: describe(values) for name, values in columns.items()}
        work = self.out / ".work"
        work.mkdir(parents=True, exist_ok=True)
        videos = {}
        for camera in self.config.cameras:
            feature, path = f"{layout.IMAGES}{camera}", work / f"{camera}.mp4"
            statistics[feature] = self._video(streams, camera, wanted, path)
            videos[feature] = path
        entry = EpisodeEntry(task, len(wanted), statistics, {"recording/start_ns": int(start_ns)})
        number = task_numbers([*self.entries, entry])[task]
        place_episode(self.out, self.description, len(self.entries), self.result.frames, number, columns, videos)
        shutil.rmtree(work)
        self.entries.append(entry)
        self.result.episodes += 1
        self.result.frames += len(wanted)

    def _check_gaps(self, streams: BagStreams, start_ns: int, end_ns: int) -> str:
        """Count every gap; return the first that is too long, as text."""
        noted_ns, longest_ns = 3 * SECOND_NS // (2 * self.config.fps), round(self.config.longest_gap_s * SECOND_NS)
        too_long = ""
        for source, stamps in _sources(streams).items():
            inside = stamps[(stamps >= start_ns) & (stamps <= end_ns)]
            # The ends count too: a stream that starts late or stops early is silent there.
            found = gaps(np.concatenate([[start_ns], inside, [end_ns]]), noted_ns)
            if not found:
                continue
            longest = max(found, key=lambda gap: gap.length_ns)
            before = self.result.silences.get(source, Silence(0, 0.0))
            self.result.silences[source] = Silence(
                before.count + len(found), max(before.longest_s, longest.length_ns / SECOND_NS)
            )
            if longest.length_ns > longest_ns and not too_long:
                at = (longest.start_ns - start_ns) / SECOND_NS
                too_long = f"{source} is silent for {longest.length_ns / SECOND_NS:.3f} s from {at:.3f} s on"
        return too_long

    def _vectors(self, streams: BagStreams, wanted: Stamps, commanded: bool) -> NDArray[np.float32]:
        joints = streams.commands if commanded else streams.states
        columns = []
        for index, name in enumerate(yam.JOINT_NAMES):
            stamps, positions = joints.stream(streams.joint(name))
            column = interpolate(stamps, positions[:, None], wanted)[:, 0]
            if not np.isfinite(column).all():
                frame = int(np.argmin(np.isfinite(column)))
                raise BagError(f"{streams.path}: joint '{streams.joint(name)}' is {column[frame]} at frame {frame}")
            if index in yam.GRIPPER_INDICES:
                column = yam.gripper_from_metres(column, self.config.gripper_stroke)
            columns.append(column)
        return np.stack(columns, axis=1).astype(np.float32)

    def _video(self, streams: BagStreams, camera: str, wanted: Stamps, path: Path) -> dict[str, NDArray[np.float64]]:
        chosen = nearest(streams.frames[camera], wanted)
        pictures = (decode(frame) for frame in read_frames_of(streams, camera, chosen.tolist()))
        first = next(pictures)
        height, width = (side // 2 * 2 for side in first.shape[:2])  # H.264 wants even sides
        expected = self._sizes.setdefault(camera, (width, height))
        samples: list[NDArray[np.uint8]] = []
        with VideoWriter(path, width, height, self.config.fps) as writer:
            for picture in chain([first], pictures):
                if (picture.shape[1] // 2 * 2, picture.shape[0] // 2 * 2) != expected:
                    raise BagError(
                        f"{streams.path}: frame {writer.frames} of {streams.camera_topics[camera]} is "
                        f"{picture.shape[1]}x{picture.shape[0]}, it was {expected[0]}x{expected[1]} before"
                    )
                if writer.frames % _SAMPLE_EVERY == 0:
                    samples.append(picture[::_SAMPLE_STRIDE, ::_SAMPLE_STRIDE].reshape(-1, 3))
                writer.write(np.ascontiguousarray(picture[:height, :width]))
        return describe_pictures(np.concatenate(samples), len(samples))


def _sources(streams: BagStreams) -> dict[str, Stamps]:
    """The stamps of every camera's topic, and of the joints: one for each set of joints that come together."""
    sources = {streams.camera_topics[camera]: stamps for camera, stamps in streams.frames.items()}
    seen: set[bytes] = set()
    for name in yam.JOINT_NAMES:
        stamps, _ = streams.states.stream(streams.joint(name))
        if stamps.tobytes() not in seen:
            seen.add(stamps.tobytes())
            sources[f"joint '{streams.joint(name)}'"] = stamps
    return sources


def _following(state: NDArray[np.float32]) -> NDArray[np.float32]:
    """Where no command was recorded: the position one frame later, the last one repeated."""
    return np.concatenate([state[1:], state[-1:]])
