"""The action head: a Gemma expert that turns video features, proprioception and noisy actions into a flow velocity.

Tokens are the video features of T latent frames (the prefix), one state token, and A_H action tokens (paper, appendix:
architecture). The head sees no language: that reaches it through the video features.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vag_policy.vam.layers import (
    AdaptiveRMSNorm,
    GemmaLayer,
    KeysValues,
    NoiseLevelNorm,
    Rope,
    Span,
    sincos_embedding,
)
from vag_policy.vam.presets import HeadConfig
from vag_policy.vam.temporal_ratio import AttentionTap


@dataclass(frozen=True)
class Prefix:
    """The video side of the head's sequence, made once a replan and used by every Euler step.

    Attributes:
        tokens: (B, V, width) video tokens, frame by frame, row by row; V = frames * rows * columns.
        frames: latent frames.
        grid: (rows, columns) of tokens in a frame.
        keys_values: each layer's keys and values, where the action timestep does not touch the video rows.
        positions: places to keep for the prefix, where it has fewer tokens than state and actions expect before them.
    """

    tokens: Tensor
    frames: int
    grid: tuple[int, int]
    keys_values: tuple[KeysValues, ...] | None = None
    positions: int = 0


class ActionHead(nn.Module):
    """See the module. ``config.prefix_mode`` says whether the action timestep modulates the video tokens."""

    def __init__(self, config: HeadConfig) -> None:
        super().__init__()
        self.config = config
        width = config.width
        self.video_proj = nn.Linear(config.group**2 * config.video_width, width)
        self.noise_level = NoiseLevelNorm(width)
        self.state_proj = nn.Linear(config.pad, width)
        self.action_in = nn.Linear(config.pad, width)
        self.time_in = nn.Linear(width, width)
        self.time_out = nn.Linear(width, width)
        self.layers = nn.ModuleList(GemmaLayer(config, last=i == config.layers - 1) for i in range(config.layers))
        self.final_norm = AdaptiveRMSNorm(width, plain=False)
        self.action_out = nn.Linear(width, config.pad)

    def prefix(self, features: Tensor, sigma: Tensor) -> Prefix:
        """Project video features to tokens that know their noise level; in ``cached`` mode run them through the layers.

        Args:
            features: (B, T, rows, columns, video_width).
            sigma: (B,) noise level the features were read at.

        Raises:
            ValueError: a shape does not fit the configuration.
        """
        group = self.config.group
        if features.ndim != 5 or features.shape[-1] != self.config.video_width:
            raise ValueError(
                f"features must be (B, T, rows, columns, {self.config.video_width}), got {tuple(features.shape)}"
            )
        batch, frames, rows, columns, _ = features.shape
        if rows % group or columns % group:
            raise ValueError(f"{rows}x{columns} features cannot be grouped by {group}x{group}")
        if sigma.shape != (batch,):
            raise ValueError(f"sigma must be ({batch},), got {tuple(sigma.shape)}")
        grid = (rows // group, columns // group)
        # (B, T, r, group, c, group, D) -> (B, T, r, c, group, group, D): neighbours side by side, row by row.
        grouped = features.unflatten(3, (grid[1], group)).unflatten(2, (grid[0], group)).transpose(3, 4)
        tokens = self.video_proj(grouped.flatten(4).flatten(1, 3))
        tokens = self.noise_level(tokens, sigma)
        cached = self.config.prefix_mode == "cached"
        return Prefix(tokens, frames, grid, self._keys_values(tokens) if cached else None)

    def _keys_values(self, x: Tensor) -> tuple[KeysValues, ...]:
        """(B, V, width) video tokens that no timestep touches -> every layer's keys and values."""
        count = x.shape[1]
        rope = Rope.of(0, count, self.config.head_dim, x)
        pairs = []
        for layer in self.layers[:-1]:
            x, pair = layer(x, None, rope, (Span(count, count),))
            pairs.append(pair)
        last = cast(GemmaLayer, self.layers[-1])  # nothing reads its video rows' output
        normed, _ = last.attention_norm(x, None)
        return (*pairs, last.keys_values(normed, rope))

    def tap(self, prefix: Prefix, layers: Sequence[int], grid_layer: int) -> AttentionTap:
        """A fresh tap for one ``velocity`` call on ``prefix``."""
        return AttentionTap(layers, grid_layer, prefix.frames, prefix.grid)

    def velocity(
        self, actions: Tensor, time: Tensor, state: Tensor, prefix: Prefix, tap: AttentionTap | None = None
    ) -> Tensor:
        """Flow velocity (towards noise: eps - a0) of a noisy chunk.

        Args:
            actions: (B, A_H, pad) noisy actions.
            time: (B,) noise level of the actions, 1 is pure noise.
            state: (B, D <= pad) normalised proprioception.
            prefix: from ``prefix``.
            tap: collects the action rows' attention at the layers it wants.

        Returns:
            (B, A_H, pad)

        Raises:
            ValueError: a shape does not fit the configuration.
        """
        pad = self.config.pad
        batch, count = prefix.tokens.shape[:2]
        if actions.ndim != 3 or actions.shape[0] != batch or actions.shape[2] != pad:
            raise ValueError(f"actions must be ({batch}, A_H, {pad}), got {tuple(actions.shape)}")
        if time.shape != (batch,):
            raise ValueError(f"time must be ({batch},), got {tuple(time.shape)}")
        if state.ndim != 2 or state.shape[0] != batch or state.shape[1] > pad:
            raise ValueError(f"state must be ({batch}, at most {pad}), got {tuple(state.shape)}")
        condition = self._condition(time)
        state_token = self.state_proj(F.pad(state, (0, pad - state.shape[1])))[:, None]
        x = torch.cat([state_token, self.action_in(actions)], dim=1)
        horizon, total = actions.shape[1], count + x.shape[1]
        spans = [Span(1, count + 1), Span(horizon, total)]
        if prefix.keys_values is None:
            x = torch.cat([prefix.tokens, x], dim=1)
            spans = [Span(count, count), *spans]
        start = max(prefix.positions, count)
        rope = Rope.of(start, start + 1 + horizon, self.config.head_dim, x)
        if prefix.keys_values is None:
            rope = Rope.of(0, count, self.config.head_dim, x).then(rope)
        for number, layer in enumerate(self.layers, start=1):
            past = None if prefix.keys_values is None else prefix.keys_values[number - 1]
            record = partial(tap.record, number) if tap is not None and tap.wants(number) else None
            # After the last layer only the action rows are read.
            wanted = spans[-1:] if number == len(self.layers) else spans
            x, _ = layer(x, condition, rope, wanted, past, record)
        normed, _ = self.final_norm(x, condition)
        return self.action_out(normed)

    def draw_modulation(self) -> None:
        """Give the zero-initialised modulations random weights and open gates: an untrained head that uses its inputs.

        Training starts from zero (each sublayer the identity); a random policy would then ignore video and state.
        """
        for module in self.modules():
            if isinstance(module, AdaptiveRMSNorm):
                module.modulation.reset_parameters()
                nn.init.ones_(module.modulation.bias[2 * module.width :])
            elif isinstance(module, NoiseLevelNorm):
                module.out.reset_parameters()

    def _condition(self, time: Tensor) -> Tensor:
        """(B,) action timesteps -> (B, width) condition of the adaptive norms."""
        embedding = sincos_embedding(time, self.config.width).to(self.time_in.weight.dtype)
        return F.silu(self.time_out(F.silu(self.time_in(embedding))))
