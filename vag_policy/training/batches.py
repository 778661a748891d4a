"""From samples to batches. What step s trains on follows from the seed and s alone, so that a run can stop anywhere.

Every random number of a step (which samples, noise, noise levels) comes from a generator of its own, keyed by
(seed, stage, step, micro-batch, process); nothing is carried from step to step, and nothing has to be restored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vag_policy.robots.yam_pointing import NOWHERE, Pointer
from vag_policy.robots.yam_rig import RigGeometry
from vag_policy.training.config import StageConfig
from vag_policy.training.losses import action_times, video_sigmas
from vag_policy.vam.normalization import Normalization
from vag_policy.vam.presets import VamPreset
from vag_policy.video.instruction import InstructionEncoder

_ORDER, _NOISE, _SHARD = range(3)  # streams of random numbers


class TrainingSample(Protocol):
    """What a dataset gives for one sample; ``vag_policy.data.samples.Sample`` is one."""

    @property
    def clip(self) -> NDArray[np.uint8]:
        """(F, H, W, 3) RGB, the present frame first."""

    @property
    def clip_valid(self) -> NDArray[np.bool_]:
        """(F,) False where the episode is over."""

    @property
    def state(self) -> NDArray[np.float32]:
        """(D,) at the present frame."""

    @property
    def actions(self) -> NDArray[np.float32]:
        """(A_H, A), the first at the present frame."""

    @property
    def actions_valid(self) -> NDArray[np.bool_]:
        """(A_H,) False where there is nothing to learn."""

    @property
    def keyframe(self) -> NDArray[np.float32] | None:
        """(A,) actions at the next keyframe, where it is known."""

    @property
    def task(self) -> str:
        """The instruction."""


class SampleSource(Protocol):
    """Samples by number; ``vag_policy.data.samples.Samples`` is one."""

    def __len__(self) -> int:
        """How many."""

    def __getitem__(self, index: int) -> TrainingSample:
        """One of them; called from another thread."""


@dataclass(frozen=True)
class Place:
    """Where in a run a micro-batch is: everything that its content depends on."""

    seed: int
    stage: int
    step: int
    micro: int = 0
    process: int = 0

    def generator(self, stream: int = _NOISE) -> torch.Generator:
        """A fresh generator on the CPU, another one for every place and stream."""
        key = (self.seed, self.stage, self.step, self.micro, self.process, stream)
        words = np.random.SeedSequence(key).generate_state(1, np.uint64)
        return torch.Generator().manual_seed(int(words[0]) >> 1)  # seeds are signed


@dataclass(frozen=True)
class Batch:
    """One micro-batch. B samples, U different instructions, T latent frames, K action draws.

    Attributes:
        frames: (B, F, H, W, 3) uint8, for stage ``image`` F = 1; None where features are cached.
        frames_valid: (B, T) bool, latent frames before the episode's end.
        state: (B, D) normalised.
        actions: (B, A_H, pad) normalised, padded with zeros.
        actions_valid: (B, A_H) bool.
        keyframe: (B, pad) normalised actions at the next keyframe; zeros where no stage asks for them.
        place: (B, 2) where the hand will be at the next keyframe: columns and rows of backbone tokens from the upper
            left of the stacked picture; -1 where it is not seen, or no stage asks.
        embeddings: (U, tokens, width) instruction embeddings.
        text_index: (B,) which of them is a sample's.
        sigma: (B,) video noise level.
        video_noise: (B, C, T, h, w).
        action_time: (B * K,) action noise level; the K draws of a sample are neighbours.
        action_noise: (B * K, A_H, pad).
    """

    frames: Tensor
    frames_valid: Tensor
    state: Tensor
    actions: Tensor
    actions_valid: Tensor
    keyframe: Tensor
    place: Tensor
    embeddings: Tensor
    text_index: Tensor
    sigma: Tensor
    video_noise: Tensor
    action_time: Tensor
    action_noise: Tensor

    def __len__(self) -> int:
        return len(self.state)

    def split(self, size: int) -> Iterator[Batch]:
        """Pieces of ``size`` samples, for batches of one action draw a sample."""
        for first in range(0, len(self), size):
            rows = {f.name: getattr(self, f.name)[first : first + size] for f in fields(self) if f.name != "embeddings"}
            yield replace(self, **rows)

    def to(self, device: torch.device) -> Batch:
        """The same on another device."""
        return replace(self, **{f.name: getattr(self, f.name).to(device, non_blocking=True) for f in fields(self)})


class BatchMaker:
    """Makes the micro-batch of a place.

    Args:
        samples: the dataset.
        settings: the preset: sizes and names.
        normalization: robot units <-> unit scale.
        encoder: of instructions.
        text_dropout: share of samples with the null text.
        processes: that share a step's batch.
    """

    def __init__(
        self,
        samples: SampleSource,
        settings: VamPreset,
        normalization: Normalization,
        encoder: InstructionEncoder,
        text_dropout: float = 0.0,
        processes: int = 1,
    ) -> None:
        if not len(samples):
            raise ValueError("the dataset has no sample to train on")
        self.samples, self.settings, self.normalization = samples, settings, normalization
        self.text_dropout, self.processes = text_dropout, processes
        self._encoder = encoder
        self._embedding = lru_cache(maxsize=256)(encoder.encode)
        self._pointer: Pointer | None = None

    def indices(self, place: Place, stage: StageConfig) -> NDArray[np.int64]:
        """Numbers of the samples at ``place``: each epoch is a permutation of the dataset, in the seed's order."""
        local = stage.batch // stage.accumulate // self.processes
        first = place.step * stage.batch + (place.micro * self.processes + place.process) * local
        epochs, positions = np.divmod(np.arange(first, first + local), len(self.samples))
        orders = {int(epoch): _permutation(place.seed, place.stage, int(epoch), len(self.samples)) for epoch in epochs}
        return np.array([orders[int(e)][p] for e, p in zip(epochs, positions, strict=True)], np.int64)

    def make(self, place: Place, stage: StageConfig) -> Batch:
        """The micro-batch at ``place``.

        Raises:
            ValueError: an instruction has no embedding, or a sample does not fit the preset.
        """
        return self.collate([self.samples[int(i)] for i in self.indices(place, stage)], place.generator(), stage)

    def shard(self, number: int, count: int, place: Place, stage: StageConfig) -> Batch:
        """``count`` samples of the feature cache's shard ``number``, drawn at random, with one action draw each."""
        generator = replace(place, step=number, micro=0).generator(_SHARD)
        rows = torch.randint(len(self.samples), (count,), generator=generator)
        return self.collate([self.samples[row] for row in rows.tolist()], generator, replace(stage, action_draws=1))

    def collate(self, samples: Sequence[TrainingSample], generator: torch.Generator, stage: StageConfig) -> Batch:
        """Samples as tensors, with noise from ``generator``."""
        settings, head = self.settings, self.settings.head
        count, draws = len(samples), stage.action_draws
        width, height = settings.video.latent_size
        frames, pictures = (1, 1) if stage.kind == "image" else (settings.video.latent_frames, None)
        latents = (count, settings.video.backbone.out_channels, frames, height, width)
        actions = torch.zeros(count, settings.action_horizon, head.pad)
        keyframe = torch.zeros(count, head.pad)
        place = torch.full((count, 2), -1.0)
        for row, sample in enumerate(samples):
            self._check(sample)
            reference = self.normalization.reference(sample.state, settings)
            normal = self.normalization.normalize_actions(sample.actions, reference)
            actions[row, :, : normal.shape[1]] = torch.from_numpy(normal)
            if stage.keyframe_weight or stage.point_weight:
                if sample.keyframe is None:
                    raise ValueError("a stage with probes needs data with grippers that open and close")
                if stage.point_weight:
                    place[row] = torch.tensor(self._point(sample.state, sample.keyframe))
                far = self.normalization.normalize_distant(sample.keyframe, reference)
                keyframe[row, : len(far)] = torch.from_numpy(far)
        dropped = torch.rand(count, generator=generator) < self.text_dropout
        texts = [None if drop else sample.task for sample, drop in zip(samples, dropped.tolist(), strict=True)]
        unique = list(dict.fromkeys(texts))
        embeddings = [self._encoder.null() if text is None else self._embedding(text) for text in unique]
        state = [self.normalization.normalize_state(sample.state) for sample in samples]
        return Batch(
            frames=torch.from_numpy(np.stack([sample.clip[:pictures] for sample in samples])),
            frames_valid=torch.from_numpy(np.stack([latent_validity(sample.clip_valid) for sample in samples])),
            state=torch.from_numpy(np.stack(state)),
            actions=actions,
            actions_valid=torch.from_numpy(np.stack([sample.actions_valid for sample in samples])),
            keyframe=keyframe,
            place=place,
            embeddings=torch.stack([embedding.float() for embedding in embeddings]),
            text_index=torch.tensor([unique.index(text) for text in texts]),
            sigma=video_sigmas(count, generator, stage.grid_share, stage.grid_weights),
            video_noise=torch.randn(latents, generator=generator),
            action_time=action_times(count * draws, generator),
            action_noise=torch.randn(count * draws, *actions.shape[1:], generator=generator),
        )

    def _point(self, state: NDArray[np.float32], keyframe: NDArray[np.float32]) -> tuple[float, float]:
        """Columns and rows of tokens; the first camera's tile begins at 0."""
        video = self.settings.video
        width, height = video.image_size
        if self._pointer is None:
            tile = (width // len(video.cameras), height)
            self._pointer = Pointer(RigGeometry(), video.cameras[0], self.settings.action_names, tile)
        u, v = self._pointer.pixel(state, keyframe)
        rows, columns = video.grid
        return (u / width * columns, v / height * rows) if (u, v) != NOWHERE else NOWHERE

    def _check(self, sample: TrainingSample) -> None:
        settings = self.settings
        width, height = settings.video.image_size
        frames = 1 + 4 * (settings.video.latent_frames - 1)
        expected = {
            "clip": (frames, height, width, 3),
            "state": (len(settings.state_names),),
            "actions": (settings.action_horizon, len(settings.action_names)),
        }
        for name, shape in expected.items():
            if getattr(sample, name).shape != shape:
                raise ValueError(f"a sample's {name} is {getattr(sample, name).shape}, preset needs {shape}")


def latent_validity(clip_valid: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """(1 + 4n,) validity of frames -> (1 + n,) of latent frames: all of a group of four must be real."""
    return np.concatenate([clip_valid[:1], clip_valid[1:].reshape(-1, 4).all(axis=1)])


@lru_cache(maxsize=4)
def _permutation(seed: int, stage: int, epoch: int, count: int) -> NDArray[np.int64]:
    return np.random.default_rng((seed, stage, epoch, _ORDER)).permutation(count)


class Prefetcher:
    """Makes the next items in a thread while the present one trains.

    Args:
        make: item of a number.
        start, stop: numbers.
        depth: items made ahead.
    """

    def __init__(self, make: Callable[[int], object], start: int, stop: int, depth: int = 2) -> None:
        self._make, self._stop, self._depth = make, stop, depth
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="batches")
        self._next = start
        self._waiting: list[Future] = []

    def __iter__(self) -> Iterator:
        try:
            while True:
                while self._next < self._stop and len(self._waiting) < self._depth:
                    self._waiting.append(self._pool.submit(self._make, self._next))
                    self._next += 1
                if not self._waiting:
                    return
                yield self._waiting.pop(0).result()
        finally:
            self._pool.shutdown(wait=False, cancel_futures=True)
