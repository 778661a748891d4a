"""A rig that is its own mirror image teaches twice: left for right, every demonstration is another one.

Pictures are flipped and the wrist cameras swapped, the arms' joints swapped and those that turn to a side negated. The
instruction stays as it is; data whose words say left or right must not be mirrored.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from vag_policy.data.samples import Sample, Samples
from vag_policy.data.snapshots import SnapshotSamples
from vag_policy.robots.yam import ARMS, JOINT_NAMES, SIDEWAYS_JOINTS

_SIDES = re.compile(r"\b(left|right)\b", re.IGNORECASE)


class Mirror:
    """The map of pictures and vectors onto their mirror image.

    Args:
        cameras: in stacking order; ``left_...`` and ``right_...`` are each other's image, others their own.
        state_names, action_names: of the vectors; YAM joints.

    Raises:
        ValueError: a name has no mirror image here.
    """

    def __init__(self, cameras: Sequence[str], state_names: Sequence[str], action_names: Sequence[str]) -> None:
        self._tiles = [_find(_other(name), cameras, "camera") for name in cameras]
        self._state = _vector_map(state_names)
        self._actions = _vector_map(action_names)

    def pictures(self, stacked: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """(..., H, W, 3), cameras side by side -> the same of the mirrored scene."""
        height, width = stacked.shape[-3:-1]
        tiles = stacked.reshape(*stacked.shape[:-3], height, len(self._tiles), width // len(self._tiles), 3)
        return np.ascontiguousarray(tiles[..., self._tiles, ::-1, :]).reshape(stacked.shape)

    def state(self, state: NDArray[np.float32]) -> NDArray[np.float32]:
        """(D,)"""
        order, sign = self._state
        return state[order] * sign

    def actions(self, actions: NDArray[np.float32]) -> NDArray[np.float32]:
        """(A_H, A)"""
        order, sign = self._actions
        return actions[:, order] * sign

    def sample(self, sample: Sample) -> Sample:
        """The mirror image of a sample.

        Raises:
            ValueError: its instruction names a side.
        """
        if _SIDES.search(sample.task):
            raise ValueError(f"a demonstration of '{sample.task}' cannot be mirrored: its words name a side")
        return replace(
            sample,
            clip=self.pictures(sample.clip),
            state=self.state(sample.state),
            actions=self.actions(sample.actions),
            keyframe=None if sample.keyframe is None else self.actions(sample.keyframe[None])[0],
        )


class MirroredSamples:
    """``samples``, then the mirror image of each."""

    def __init__(self, samples: Samples | SnapshotSamples, mirror: Mirror) -> None:
        self._samples, self._mirror = samples, mirror

    def __len__(self) -> int:
        return 2 * len(self._samples)

    def __getitem__(self, index: int) -> Sample:
        if not 0 <= index < len(self):
            raise IndexError(index)
        image, number = divmod(index, len(self._samples))
        sample = self._samples[number]
        return self._mirror.sample(sample) if image else sample


def _other(name: str) -> str:
    for side, other in (ARMS, ARMS[::-1]):
        if name.startswith(f"{side}_"):
            return f"{other}_{name.removeprefix(f'{side}_')}"
    return name


def _find(name: str, names: Sequence[str], kind: str) -> int:
    if name not in names:
        raise ValueError(f"the mirror needs {kind} '{name}'; there are: {', '.join(names)}")
    return list(names).index(name)


def _vector_map(names: Sequence[str]) -> tuple[NDArray[np.intp], NDArray[np.float32]]:
    strange = [name for name in names if name not in JOINT_NAMES]
    if strange:
        raise ValueError(f"only joints of the YAM rig can be mirrored, not {', '.join(strange)}")
    order = np.array([_find(_other(name), names, "joint") for name in names])
    sign = np.where([name.split("_")[1] in SIDEWAYS_JOINTS for name in names], -1, 1).astype(np.float32)
    return order, sign
