"""The Temporal Ratio: how much the action tokens attend to imagined frames rather than to the current one.

TR at a head layer is the attention mass of the action queries on the tokens of latent frames >= 1 over their mass on
those of frame 0, summed over queries and heads (paper, eq. of TR). Only the action rows of a measured layer are ever
written out, and the layer's output is made from those same rows.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

MIN_MASS = 1e-9
"""Floor of the mass on the current frame, so that a head that ignores it has a large ratio and not an infinite one."""


class AttentionTap:
    """Collects the attention mass of one head pass at chosen layers.

    Args:
        layers: measured layers, 1-indexed.
        grid_layer: the layer whose mass is kept token by token; one of ``layers``.
        frames: latent frames T in the video prefix.
        grid: (rows, columns) of tokens in a frame.
    """

    def __init__(self, layers: Sequence[int], grid_layer: int, frames: int, grid: tuple[int, int]) -> None:
        if grid_layer not in layers:
            raise ValueError(f"grid_layer {grid_layer} is not among the measured layers {tuple(layers)}")
        self.layers = tuple(layers)
        self.grid_layer = grid_layer
        self.frames = frames
        self.grid = grid
        self._mass: dict[int, Tensor] = {}
        self._tokens: Tensor | None = None

    def wants(self, layer: int) -> bool:
        """Whether ``layer`` (1-indexed) is measured."""
        return layer in self.layers

    def record(self, layer: int, probabilities: Tensor) -> None:
        """Add one layer's action rows.

        Args:
            layer: 1-indexed.
            probabilities: (B, rows, keys); rows are all queries of all heads, the first keys are the video tokens.
        """
        rows, columns = self.grid
        per_key = probabilities.sum(dim=1)[:, : self.frames * rows * columns]
        tokens = per_key.unflatten(1, (self.frames, rows, columns))
        self._mass[layer] = tokens.sum(dim=(2, 3))
        if layer == self.grid_layer:
            self._tokens = tokens

    @property
    def mass(self) -> Tensor:
        """(B, L, T) attention mass on each latent frame at each of ``layers``."""
        return torch.stack([self._mass[layer] for layer in self.layers], dim=1)

    @property
    def token_mass(self) -> Tensor:
        """(B, T, rows, columns) attention mass on each video token at ``grid_layer``."""
        if self._tokens is None:
            raise ValueError("no head pass has been recorded yet")
        return self._tokens


def attend_recording(query: Tensor, key: Tensor, value: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    """Dense attention that also returns its probabilities.

    Args:
        query: (B, rows, D).
        key: (B, keys, D).
        value: (B, keys, D).
        scale: factor of the scores.

    Returns:
        output (B, rows, D) and probabilities (B, rows, keys), the latter in float32 or better.
    """
    wide = torch.promote_types(query.dtype, torch.float32)
    probabilities = torch.softmax((query * scale) @ key.transpose(1, 2), dim=-1, dtype=wide)
    return probabilities.to(value.dtype) @ value, probabilities


def temporal_ratio(mass: Tensor) -> Tensor:
    """TR from the attention mass on each latent frame.

    Args:
        mass: (..., T), T >= 2.

    Returns:
        (...,) in float64.
    """
    if mass.shape[-1] < 2:
        raise ValueError(f"TR needs a current and at least one imagined frame, got {mass.shape[-1]}")
    mass = mass.double()
    return mass[..., 1:].sum(-1) / mass[..., 0].clamp_min(MIN_MASS)
