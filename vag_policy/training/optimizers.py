"""Optimizers, the learning rate as a function of the step, and the average of the weights."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import AdamW, Muon, Optimizer

from vag_policy.training.config import OptimizerConfig, StageConfig
from vag_policy.training.distributed import like
from vag_policy.training.objective import hidden_matrices

FINAL_RATE = 0.01
"""What is left of the rate at the end of a cosine."""


def rate(stage: StageConfig, step: int) -> float:
    """Factor of the learning rate at ``step`` (0-based) of the stage: see ``StageConfig``."""
    warm = min(1.0, (step + 1) / stage.warmup) if stage.warmup else 1.0
    if stage.schedule == "constant":
        cool = min(1.0, (stage.steps - step) / stage.cooldown) if stage.cooldown else 1.0
        return warm * max(FINAL_RATE, cool)
    progress = min(1.0, max(0.0, (step - stage.warmup) / max(1, stage.steps - stage.warmup)))
    return warm * (FINAL_RATE + (1 - FINAL_RATE) * 0.5 * (1 + math.cos(math.pi * progress)))


def make_optimizers(named: Mapping[str, nn.Parameter], stage: StageConfig, config: OptimizerConfig) -> list[Optimizer]:
    """Optimizers of the learning parameters; every group keeps its full rate in ``base_lr``.

    Weight decay acts on matrices only: shrinking a bias or a norm's scale helps nothing.
    """
    matrices = set(hidden_matrices(dict(named))) if config.kind == "muon" else set()
    groups: dict[tuple[bool, bool, bool], list[nn.Parameter]] = {}
    for name, parameter in named.items():
        key = (name in matrices, name.startswith("backbone."), parameter.ndim > 1)
        groups.setdefault(key, []).append(parameter)
    plain: list[dict[str, Any]] = []
    muon: list[dict[str, Any]] = []
    for (by_muon, in_backbone, decays), parameters in groups.items():
        base = stage.lr if in_backbone else stage.head_lr or stage.lr
        base *= config.muon_lr if by_muon else 1.0
        decay = config.weight_decay if decays else 0.0
        group = {"params": parameters, "lr": base, "base_lr": base, "weight_decay": decay}
        (muon if by_muon else plain).append(group)
    optimizers: list[Optimizer] = []
    if plain:
        optimizers.append(AdamW(plain, betas=config.betas))
    if muon:
        optimizers.append(Muon(muon, adjust_lr_fn="match_rms_adamw"))
    return optimizers


def set_rate(optimizers: list[Optimizer], factor: float) -> None:
    """Give every group ``factor`` of its full rate."""
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = group["base_lr"] * factor


class WeightAverage:
    """Exponential moving average of parameters.

    The decay grows with the number of updates, (1 + n) / (10 + n) at most, so that the first weights fade soon.
    """

    def __init__(self, named: Mapping[str, Tensor], decay: float) -> None:
        self.decay, self.updates = decay, 0
        self.values = {name: parameter.detach().clone() for name, parameter in named.items()}

    @torch.no_grad()
    def update(self, named: Mapping[str, Tensor]) -> None:
        """Take in the parameters after a step."""
        self.updates += 1
        weight = 1 - min(self.decay, (1 + self.updates) / (10 + self.updates))
        for name, value in self.values.items():
            value.lerp_(named[name].detach(), weight)

    def load(self, values: Mapping[str, Tensor], updates: int) -> None:
        """Go on from stored values, whole tensors by name."""
        self.updates = updates
        with torch.no_grad():
            for name, value in self.values.items():
                value.copy_(like(values[name], value))
