"""Training samples of a dataset: a stacked clip, the state, a chunk of actions and the instruction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vag_policy.data.clips import ClipConfig, until_first
from vag_policy.data.frame_cache import FrameCache
from vag_policy.data.keyframes import next_keyframes
from vag_policy.data.lerobot_reader import LeRobotDataset
from vag_policy.data.names import DatasetError

IMITATE = "imitate"


@dataclass(frozen=True, eq=False)
class Sample:
    """One training sample.

    Attributes:
        clip: (T, H, W, 3) uint8 RGB, the present frame first.
        clip_valid: (T,) False where the episode is over and its last frame is repeated.
        state: (D,) float32 at the present frame.
        actions: (A_H, A) float32, the first at the present frame.
        actions_valid: (A_H,) False where the episode is over (the last action is repeated), and from the first action
            on that is not worth learning.
        task: the instruction.
        frame: the present frame's number in the dataset.
        keyframe: (A,) float32, the actions at the next keyframe (``keyframes.next_keyframes``); None where the grippers
            are not known.
    """

    clip: NDArray[np.uint8]
    clip_valid: NDArray[np.bool_]
    state: NDArray[np.float32]
    actions: NDArray[np.float32]
    actions_valid: NDArray[np.bool_]
    task: str
    frame: int
    keyframe: NDArray[np.float32] | None = None


class Samples:
    """All samples of a dataset, by number: what a map-style loader needs. No state is kept between two samples.

    A dataset may mark frames on which the demonstrator errs (column ``imitate``): none of them starts a sample, and
    the actions of a sample count only up to the first of them.

    Args:
        dataset: the vectors.
        cache: the pictures; samples start at stored frames only.
        config: the windows.
        grippers: columns of the actions that open and close a gripper.

    Raises:
        DatasetError: the cache belongs to another dataset, or stores too few frames for the clip.
    """

    def __init__(
        self, dataset: LeRobotDataset, cache: FrameCache, config: ClipConfig, grippers: Sequence[int] = ()
    ) -> None:
        if len(cache.starts) != len(dataset.starts):
            raise DatasetError(f"the cache holds {len(cache.starts) - 1} episodes, the dataset {len(dataset.episodes)}")
        if config.skip % cache.every:
            raise DatasetError(f"clips take every {config.skip}th frame, the cache stores every {cache.every}th")
        self.dataset, self._cache, self._config = dataset, cache, config
        self._imitate = np.ones(len(dataset), bool)
        if IMITATE in dataset.catalogue.features:
            self._imitate = dataset.column(IMITATE).astype(bool)
        self._keyframes: NDArray[np.int64] | None = None
        if grippers:
            self._keyframes = next_keyframes(dataset.action[:, list(grippers)], dataset.starts, self._imitate)
        numbers = np.arange(len(dataset)) - np.repeat(dataset.starts[:-1], np.diff(dataset.starts))
        self.frames: NDArray[np.int64] = np.flatnonzero(self._imitate & (numbers % cache.every == 0))
        """(S,) the present frame of every sample, as its number in the dataset."""

    def __len__(self) -> int:
        return len(self.frames)

    def __getitem__(self, index: int) -> Sample:
        frame = int(self.frames[index])
        dataset, config = self.dataset, self._config
        position, number = dataset.locate(frame)
        start = int(dataset.starts[position])
        length = int(dataset.starts[position + 1]) - start
        pictures, clip_valid = config.clip(number, length)
        actions, valid = config.chunk(number, length)
        return Sample(
            clip=self._cache.frames(position, pictures),
            clip_valid=clip_valid,
            state=dataset.state[frame],
            actions=dataset.action[start + actions],
            actions_valid=until_first(valid, self._imitate[start + actions]),
            task=dataset.task(frame),
            frame=frame,
            keyframe=None if self._keyframes is None else dataset.action[self._keyframes[frame]],
        )
