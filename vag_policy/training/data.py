"""A run's dataset: opened, checked against the preset, decoded once, and its normalisation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vag_policy.data.clips import ClipConfig
from vag_policy.data.frame_cache import build_cache
from vag_policy.data.lerobot_reader import DatasetSpec, LeRobotDataset
from vag_policy.data.mirror import Mirror, MirroredSamples
from vag_policy.data.names import NameMap
from vag_policy.data.samples import Samples
from vag_policy.data.snapshots import SnapshotSamples
from vag_policy.observation.stacking import StackConfig
from vag_policy.training.batches import SampleSource
from vag_policy.training.config import DataConfig
from vag_policy.vam.normalization import Normalization
from vag_policy.vam.presets import VamPreset
from vag_policy.video.presets import video_frames

MIN_STD = 0.02
"""Least standard deviation that is divided by, in robot units (rad, gripper opening): the noise of a joint that hardly
moves must not be blown up to unit variance."""

MIN_STEP_SCALE = 0.05
"""Least scale of a chunk's step: where nothing has moved yet there is only noise to resolve."""

_ENDS = 4096  # samples that statistics of relative actions are taken from


def open_samples(
    config: DataConfig, settings: VamPreset, cache: Path, progress: Callable[[int, int], None] | None = None
) -> SampleSource:
    """The dataset as samples of the preset's clips and chunks; the first call decodes it into ``cache``.

    Raises:
        DatasetError, VideoError: it does not fit the preset, or a file is damaged; file and frame are named.
    """
    if not config.dataset:
        raise ValueError("data.dataset is not set: a LeRobot dataset's folder is needed")
    video = settings.video
    spec = DatasetSpec(video.cameras, settings.state_names, settings.action_names, fps=None)
    names = NameMap.from_config(config.names) if config.names else None
    dataset = LeRobotDataset(config.dataset, spec, names)
    width, height = video.image_size
    stack = StackConfig(video.cameras, (width // len(video.cameras), height))
    frames = build_cache(dataset, stack, cache, config.every, config.workers, progress)
    clips = ClipConfig.for_rates(
        dataset.fps, video.video_fps, video_frames(video.latent_frames), settings.period_ns, settings.action_horizon
    )
    grippers = [column for column, name in enumerate(settings.action_names) if is_gripper(name)]
    samples = Samples(dataset, frames, clips, grippers)
    if not config.mirror:
        return samples
    return MirroredSamples(samples, Mirror(video.cameras, settings.state_names, settings.action_names))


def open_snapshots(config: DataConfig, settings: VamPreset) -> SampleSource | None:
    """The snapshots that ``image`` stages learn from; None where they learn from the dataset's frames.

    Raises:
        DatasetError: there is none, or one is damaged.
    """
    if not config.snapshots:
        return None
    samples = SnapshotSamples(config.snapshots, video_frames(settings.video.latent_frames))
    if not config.mirror:
        return samples
    return MirroredSamples(samples, Mirror(settings.video.cameras, settings.state_names, settings.action_names))


def fit_normalization(
    samples: SampleSource, settings: VamPreset, relative: bool, seed: int = 0, stepwise: bool = False
) -> Normalization:
    """Mean and standard deviation of state and valid actions over (at most 4096) samples.

    Args:
        samples: the dataset.
        settings: names.
        relative: whether actions with a state entry of the same name, grippers apart, are counted from it.
        seed: of the choice of samples.
        stepwise: measure the scale of relative actions at each step of the chunk, about 0, where they start.
    """
    flags = tuple(relative and name in settings.state_names and not is_gripper(name) for name in settings.action_names)
    unit = Normalization(
        (0.0,) * len(settings.state_names),
        (1.0,) * len(settings.state_names),
        (0.0,) * len(flags),
        (1.0,) * len(flags),
        flags,
    )
    horizon = settings.action_horizon
    chosen = np.random.default_rng(seed).permutation(len(samples))[:_ENDS]
    states, actions, steps = [], [], []
    for index in chosen:
        sample = samples[int(index)]
        states.append(sample.state)
        reference = unit.reference(sample.state, settings)
        actions.append((sample.actions - reference)[sample.actions_valid])
        steps.append(np.flatnonzero(sample.actions_valid))
    state, rows = _statistics(np.stack(states)), np.concatenate(actions)
    action = _statistics(rows)
    if not (stepwise and relative):
        return Normalization(*state, *action, flags)
    mean, std = (np.array(values) for values in action)
    std = np.where(flags, np.sqrt(np.square(rows.astype(np.float64)).mean(0)).clip(MIN_STD), std)
    moving = np.array(flags)
    units = np.square(rows[:, moving] / std[moving]).mean(1)
    step = np.concatenate(steps)
    scale = [np.sqrt(units[step == number].mean()) if (step == number).any() else 1.0 for number in range(horizon)]
    centre = np.where(flags, 0.0, mean)
    return Normalization(
        *state, tuple(centre.tolist()), tuple(std.tolist()), flags, tuple(np.clip(scale, MIN_STEP_SCALE, None).tolist())
    )


def is_gripper(name: str) -> bool:
    """Whether a joint is a gripper's: it opens and closes, and has no place to be counted from."""
    return "gripper" in name or name in ("left_joint7", "right_joint7")


def _statistics(rows: NDArray) -> tuple[tuple[float, ...], tuple[float, ...]]:
    rows = rows.astype(np.float64)
    return tuple(rows.mean(0).tolist()), tuple(rows.std(0).clip(MIN_STD).tolist())


def tokenizer_clips(samples: SampleSource, count: int, seed: int = 0) -> Iterator[NDArray[np.uint8]]:
    """``count`` clips, evenly spread in a random order."""
    for index in np.random.default_rng(seed).permutation(len(samples))[:count]:
        yield samples[int(index)].clip
