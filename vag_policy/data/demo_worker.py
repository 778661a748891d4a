"""One demonstration, from an attempt's number to finished files. Runs in processes of its own."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vag_policy.data import lerobot_format as layout
from vag_policy.data.lerobot_writer import DatasetDescription, EpisodeEntry
from vag_policy.data.statistics import describe, describe_pictures
from vag_policy.data.video import VideoWriter
from vag_policy.expert.demonstrator import GiveUpError
from vag_policy.expert.episode import FPS, VERSION, Frame, demonstrate
from vag_policy.expert.kinematics import Kinematics
from vag_policy.expert.style import Style, Variety
from vag_policy.parent import end_with
from vag_policy.robots.yam import JOINT_NAMES
from vag_policy.robots.yam_rig import CAMERA_NAMES
from vag_policy.robots.yam_sim import Sim, SimConfig

_STATISTICS_EVERY, _STATISTICS_STRIDE = 10, 4


@dataclass(frozen=True)
class DemoConfig:
    """What decides every demonstration's content, to the last bit.

    Attributes:
        seed: of the first attempt; attempt k takes scene seed + k.
        instructions: what is demonstrated, in turn.
        width, height: of each camera's pictures.
        variety: how demonstrations differ.
        picture_every: cameras see one in so many frames; those between repeat it, as a 10 Hz camera's do in a 30 Hz
            recording. Drawing is most of a demonstration's cost, and training on every third frame needs no others.
    """

    seed: int
    instructions: tuple[str, ...]
    width: int = 320
    height: int = 240
    variety: Variety = field(default_factory=Variety)
    picture_every: int = 1

    def __post_init__(self) -> None:
        if not self.instructions:
            raise ValueError("demonstrations need at least one instruction")
        if self.width % 2 or self.height % 2:
            raise ValueError(f"a video's width and height must be even, got {self.width}x{self.height}")
        if self.picture_every < 1:
            raise ValueError(f"picture_every must be 1 or more, got {self.picture_every}")

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        content = json.loads(json.dumps({"expert": VERSION, **asdict(self)}))
        if self.picture_every == 1:  # as datasets have it that were begun before there was a choice
            del content["picture_every"]
        return content

    def instruction(self, attempt: int) -> str:
        """What attempt ``attempt`` does: every instruction once in each round, in a new order each round."""
        turn, place = divmod(attempt, len(self.instructions))
        order = np.random.default_rng((self.seed, turn)).permutation(len(self.instructions))
        return self.instructions[order[place]]


@dataclass(frozen=True, eq=False)
class Attempt:
    """The outcome of one attempt. ``entry`` and ``folder`` (columns.npz and a video by camera) only of a success."""

    number: int
    instruction: str
    seconds: float
    reason: str = ""
    entry: EpisodeEntry | None = None
    folder: Path | None = None

    def columns(self) -> dict[str, NDArray]:
        """(N, ...) by feature."""
        assert self.folder is not None
        with np.load(self.folder / "columns.npz") as stored:
            return {name: stored[name] for name in stored.files}

    def videos(self) -> dict[str, Path]:
        """The finished file of every video feature."""
        assert self.folder is not None
        return {f"{layout.IMAGES}{camera}": self.folder / f"{camera}.mp4" for camera in CAMERA_NAMES}


def description(config: DemoConfig) -> DatasetDescription:
    """The dataset that demonstrations of ``config`` make."""
    features: dict[str, Mapping[str, Any]] = {
        layout.STATE: layout.vector_feature(JOINT_NAMES),
        layout.ACTION: layout.vector_feature(JOINT_NAMES),
        "phase": layout.scalar_feature("string"),
        "imitate": layout.scalar_feature("bool"),
    }
    picture = layout.video_feature(config.width, config.height, FPS)
    features |= {f"{layout.IMAGES}{camera}": picture for camera in CAMERA_NAMES}
    return DatasetDescription(FPS, "yam_bimanual", features)


class World:
    """A simulator and the expert's kinematics, made once a process."""

    def __init__(self, config: DemoConfig, work: Path) -> None:
        self.config, self._work = config, work
        self._sim = Sim(SimConfig(width=config.width, height=config.height))
        self._kinematics = Kinematics(self._sim.config.rig)
        self._sim.render(CAMERA_NAMES[0])

    def attempt(self, number: int) -> Attempt:
        """Demonstrate, record, and leave finished files in a folder of the attempt's own."""
        begin = time.perf_counter()
        instruction, seed = self.config.instruction(number), self.config.seed + number
        style = self.config.variety.draw(np.random.default_rng((seed, 2)))
        folder = self._work / f"attempt-{number:06d}"
        temporary = folder.with_name(f".{folder.name}.{os.getpid()}")
        temporary.mkdir(parents=True)
        try:
            entry = self._record(temporary, seed, instruction, style)
        except GiveUpError as error:
            shutil.rmtree(temporary)
            return Attempt(number, instruction, time.perf_counter() - begin, str(error))
        temporary.rename(folder)
        return Attempt(number, instruction, time.perf_counter() - begin, "", entry, folder)

    def _record(self, folder: Path, seed: int, instruction: str, style: Style) -> EpisodeEntry:
        """Perform once, with every frame's pictures and numbers written to ``folder``.

        Raises:
            GiveUpError: it did not succeed.
        """
        width, height = self.config.width, self.config.height
        frames: list[Frame] = []
        samples: dict[str, list[NDArray[np.uint8]]] = {camera: [] for camera in CAMERA_NAMES}
        pictures: dict[str, NDArray[np.uint8]] = {}
        with ExitStack() as stack:
            writers = {
                camera: stack.enter_context(VideoWriter(folder / f"{camera}.mp4", width, height, FPS))
                for camera in CAMERA_NAMES
            }
            for frame in demonstrate(self._sim, self._kinematics, seed, instruction, style):
                if len(frames) % self.config.picture_every == 0:
                    self._sim.capture(CAMERA_NAMES)
                    pictures = {camera: self._sim.draw(camera) for camera in CAMERA_NAMES}
                for camera, writer in writers.items():
                    picture = pictures[camera]
                    writer.write(picture)
                    if len(frames) % _STATISTICS_EVERY == 0:
                        samples[camera].append(picture[::_STATISTICS_STRIDE, ::_STATISTICS_STRIDE].reshape(-1, 3))
                frames.append(frame)
        columns = _columns(frames)
        np.savez(folder / "columns.npz", allow_pickle=False, **columns)
        statistics = {name: describe(columns[name]) for name in (layout.STATE, layout.ACTION)}
        for camera, pixels in samples.items():
            statistics[f"{layout.IMAGES}{camera}"] = describe_pictures(np.concatenate(pixels), len(pixels))
        extra = {"seed": seed, **{name: getattr(style, name) for name in ("noise", "mistake", "start", "pace")}}
        return EpisodeEntry(instruction, len(frames), statistics, {f"demonstration/{k}": v for k, v in extra.items()})


def _columns(frames: list[Frame]) -> dict[str, NDArray]:
    return {
        layout.STATE: np.stack([frame.state for frame in frames]),
        layout.ACTION: np.stack([frame.action for frame in frames]),
        "phase": np.array([frame.phase for frame in frames]),
        "imitate": np.array([frame.imitate for frame in frames]),
    }


_world: World | None = None
_barrier: Barrier | None = None


def start_process(config: DemoConfig, work: Path, barrier: Barrier, parent: int) -> None:
    """Make this process's world. It ends with the process that asked for it, however that ends."""
    global _world, _barrier
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches every process; the parent decides
    end_with(parent)
    _barrier = barrier
    _world = World(config, work)


def meet() -> None:
    """Wait until every process has its world."""
    assert _barrier is not None
    _barrier.wait(timeout=300)


def attempt(number: int) -> Attempt:
    """Attempt ``number`` in this process's world."""
    assert _world is not None
    return _world.attempt(number)
