"""Video features of a frozen backbone, kept for the head's training: bounded, in shards, always the newest ones.

A YAM sample's features are 9.5 MB, and every noise level gives others: those of a whole dataset are never kept. Shard n
holds samples drawn, and noised at random levels, with a generator keyed by n. At step s the newest ``shards``
of those begun by then exist; each step draws its batch from them. Both follow from the step alone: a resumed run
computes the shards it lacks again and goes on as if nothing had happened.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from vag_policy.training.batches import Batch, Place
from vag_policy.training.config import FeatureCacheConfig, StageConfig
from vag_policy.training.losses import action_times

MakeShard = Callable[[int], tuple[Batch, Tensor]]
"""Shard number -> its samples (B = shard_samples) and their features (B, T, rows, columns, width)."""

_KEPT = ("state", "actions", "actions_valid", "sigma")


class FeatureCache:
    """See the module.

    Args:
        config: bounds.
        folder: of this process of this run alone; what is not wanted there is deleted.
        make: computes a shard; called in order of need.
        local: samples that this process draws a step.
    """

    def __init__(self, config: FeatureCacheConfig, folder: Path, make: MakeShard, local: int) -> None:
        self.config, self.folder, self.local = config, folder, local
        self._make = make

    def wanted(self, step: int) -> range:
        """Numbers of the shards that exist at ``step`` of the stage."""
        drawn = step * self.local
        newest = self.config.shards + drawn // (self.config.reuse * self.config.shard_samples)
        return range(newest - self.config.shards, newest)

    def batch(self, place: Place, stage: StageConfig) -> tuple[Batch, Tensor]:
        """The micro-batch at ``place`` and its features, with fresh action noise."""
        shards = self._provide(place.step)
        generator = place.generator()
        rows = torch.randint(len(shards) * self.config.shard_samples, (self.local,), generator=generator)
        parts: dict[str, list[Tensor]] = {name: [] for name in (*_KEPT, "features")}
        for row in rows.tolist():
            number, index = shards[row // self.config.shard_samples], row % self.config.shard_samples
            with safe_open(self._path(number), framework="pt") as file:
                for name, values in parts.items():
                    values.append(file.get_slice(name)[index : index + 1])
        tensors = {name: torch.cat(values) for name, values in parts.items()}
        features = tensors.pop("features")
        count, draws = len(rows), stage.action_draws
        noise = torch.randn(count * draws, *tensors["actions"].shape[1:], generator=generator)
        tensors |= {"action_time": action_times(count * draws, generator), "action_noise": noise}
        absent = {field.name: torch.empty(0) for field in fields(Batch) if field.name not in tensors}
        batch = Batch(**tensors, **absent)
        return batch, features

    def _provide(self, step: int) -> range:
        """Make the shards that are wanted and missing; delete those that are not wanted any more, first."""
        self.folder.mkdir(parents=True, exist_ok=True)
        wanted = self.wanted(step)
        paths = {self._path(number): number for number in wanted}
        for path in self.folder.iterdir():
            if path not in paths:
                path.unlink()
        for path, number in paths.items():
            if not path.exists():
                self._write(path, *self._make(number))
        return wanted

    def _write(self, path: Path, batch: Batch, features: Tensor) -> None:
        tensors = {name: getattr(batch, name) for name in _KEPT} | {"features": features.to(torch.bfloat16)}
        unfinished = path.with_suffix(".part")
        save_file({name: tensor.cpu().contiguous() for name, tensor in tensors.items()}, unfinished)
        unfinished.rename(path)

    def _path(self, number: int) -> Path:
        return self.folder / f"shard_{number:06d}.safetensors"

    def clear(self) -> None:
        """Delete everything."""
        shutil.rmtree(self.folder, ignore_errors=True)
