"""Makes a folder of snapshots in parallel processes; killed at any moment, it goes on with the next shard."""

from __future__ import annotations

import fcntl
import json
import multiprocessing
import os
import signal
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from vag_policy.data.demo_worker import DemoConfig
from vag_policy.data.frame_cache import stack_pictures
from vag_policy.data.names import DatasetError
from vag_policy.data.snapshots import SHARD, shards, write_shard
from vag_policy.expert.demonstrator import GiveUpError
from vag_policy.expert.kinematics import Kinematics
from vag_policy.expert.snapshots import take_snapshot
from vag_policy.observation.stacking import StackConfig
from vag_policy.parent import end_with
from vag_policy.robots.yam_sim import Sim, SimConfig

_META, _LOCK = "snapshots.json", ".lock"
_VERSION = 1


@dataclass(frozen=True)
class SnapshotConfig:
    """What decides every snapshot's content.

    Attributes:
        demos: seed of the first scene, instructions, picture size and manner; mistakes and noise are not used.
        stack: how pictures are stacked.
        horizon: actions of a snapshot.
        shard: scenes of a shard; those that the expert cannot do are left out.
    """

    demos: DemoConfig
    stack: StackConfig
    horizon: int
    shard: int = 250


def make_snapshots(
    out: Path, config: SnapshotConfig, count: int, workers: int, progress: Callable[[int], None] | None = None
) -> int:
    """Bring ``out`` to at least ``count`` scenes; returns how many snapshots there are.

    Args:
        out: a new folder, or one that an earlier run with the same configuration began.
        config: their content.
        count: scenes wanted, rounded up to whole shards.
        workers: processes.
        progress: called with the scenes that are done.

    Raises:
        DatasetError: ``out`` holds something else or was begun with another configuration, another run is writing it,
            or a process died.
    """
    out.mkdir(parents=True, exist_ok=True)
    if not (out / _META).exists() and any(path.name != _LOCK for path in out.iterdir()):
        raise DatasetError(f"{out} is not empty and holds no snapshots to go on with")
    with (out / _LOCK).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise DatasetError(f"another run is writing {out}") from None
        return _make(out, config, count, workers, progress)


def _make(out: Path, config: SnapshotConfig, count: int, workers: int, progress: Callable[[int], None] | None) -> int:
    _check(out / _META, config)
    wanted = range(-(-count // config.shard))
    missing = [number for number in wanted if not (out / SHARD.format(number)).is_dir()]
    context = multiprocessing.get_context("spawn")  # a forked OpenGL context would not work
    done = len(wanted) - len(missing)
    with ProcessPoolExecutor(workers, context, _start, (out, config, os.getpid())) as pool:
        try:
            for future in as_completed([pool.submit(_make_shard, number) for number in missing]):
                future.result()
                done += 1
                if progress is not None:
                    progress(min(done * config.shard, count))
        except BrokenProcessPool as error:
            raise DatasetError(
                f"a process died (out of memory?); the same command goes on from here: {error}"
            ) from error
        finally:
            pool.shutdown(cancel_futures=True)
    return sum(len(np.load(path / "frames.npy", mmap_mode="r")) for path in shards(out))


def _check(path: Path, config: SnapshotConfig) -> None:
    content = json.loads(json.dumps({"version": _VERSION, **asdict(config)}))
    if not path.exists():
        unfinished = path.with_suffix(".part")
        unfinished.write_text(json.dumps(content) + "\n")
        unfinished.replace(path)
    elif json.loads(path.read_text()) != content:
        raise DatasetError(f"{path.parent} was begun with another configuration; choose another folder")


_world: tuple[Path, SnapshotConfig, Sim, Kinematics] | None = None


def _start(out: Path, config: SnapshotConfig, parent: int) -> None:
    global _world
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches every process; the parent decides
    end_with(parent)
    sim = Sim(SimConfig(width=config.demos.width, height=config.demos.height))
    _world = (out, config, sim, Kinematics(sim.config.rig))


def _make_shard(number: int) -> None:
    assert _world is not None
    out, config, sim, kinematics = _world
    demos, cameras = config.demos, config.stack.cameras
    taken, frames, tasks = [], [], []
    for scene in range(number * config.shard, (number + 1) * config.shard):
        seed, task = demos.seed + scene, demos.instruction(scene)
        style = demos.variety.draw(np.random.default_rng((seed, 2)))
        rng = np.random.default_rng((seed, 3))
        try:
            taken.append(take_snapshot(sim, kinematics, seed, task, style, rng, config.horizon))
        except GiveUpError:
            continue
        sim.capture(cameras)
        frames.append(stack_pictures([sim.draw(camera) for camera in cameras], config.stack))
        tasks.append(task)
    columns = {
        name: np.stack([getattr(one, name) for one in taken]) for name in ("state", "actions", "valid", "keyframe")
    }
    columns |= {"task": np.array(tasks), "phase": np.array([one.phase for one in taken])}
    write_shard(out, number, np.stack(frames), columns)
