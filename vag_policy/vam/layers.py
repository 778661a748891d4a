"""Pieces of the action head: embeddings, rotary positions, adaptive norms, one transformer layer.

Tensors are (B, N, C): batch, rows, channels. Rows come in the order video, state, actions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vag_policy.vam.presets import HeadConfig
from vag_policy.vam.temporal_ratio import attend_recording
from vag_policy.video.attention import attend

KeysValues = tuple[Tensor, Tensor]
"""Rotated keys and values of one layer, (B, N, head_dim) each."""

ROPE_THETA = 10_000.0
NORM_EPS = 1e-6
MIN_PERIOD, MAX_PERIOD = 4e-3, 4.0
"""Periods of the sin/cos embedding of a noise level in [0, 1] (openpi's, for the action timestep)."""


def sincos_embedding(level: Tensor, width: int) -> Tensor:
    """(B,) noise levels -> (B, width) sines, then cosines, of log-spaced periods; float32 or better."""
    level = level.to(torch.promote_types(level.dtype, torch.float32))
    fraction = torch.linspace(0, 1, width // 2, dtype=level.dtype, device=level.device)
    period = MIN_PERIOD * (MAX_PERIOD / MIN_PERIOD) ** fraction
    angle = level[:, None] / period * (2 * math.pi)
    return torch.cat([angle.sin(), angle.cos()], dim=-1)


@dataclass(frozen=True)
class Rope:
    """Rotary angles of a run of positions: cosine and sine, each (N, head_dim / 2)."""

    cos: Tensor
    sin: Tensor

    @classmethod
    def of(cls, start: int, stop: int, head_dim: int, like: Tensor) -> Rope:
        """Angles of positions ``start`` .. ``stop - 1`` on the device of ``like``, float32 or better."""
        dtype = torch.promote_types(like.dtype, torch.float32)
        position = torch.arange(start, stop, dtype=dtype, device=like.device)
        exponent = torch.arange(0, head_dim, 2, dtype=dtype, device=like.device) / head_dim
        angle = position[:, None] / ROPE_THETA**exponent
        return cls(angle.cos(), angle.sin())

    def then(self, other: Rope) -> Rope:
        """The positions of this run, then the other's."""
        return Rope(torch.cat([self.cos, other.cos]), torch.cat([self.sin, other.sin]))

    def rotate(self, x: Tensor) -> Tensor:
        """Rotate (B, N, heads, head_dim): the first half of the channels is paired with the second (Gemma)."""
        first, second = x.to(self.cos.dtype).chunk(2, dim=-1)
        cos, sin = self.cos[-x.shape[1] :, None], self.sin[-x.shape[1] :, None]
        return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1).to(x.dtype)


class AdaptiveRMSNorm(nn.Module):
    """RMSNorm modulated by a condition: norm(x) * (1 + scale) + shift, and a gate for the sublayer's output.

    The projection starts at zero, so that an untrained sublayer adds nothing. Rows without a condition (the video
    tokens of ``cached`` prefixes) use a learned scale of their own, as in plain Gemma, and have no gate.
    """

    def __init__(self, width: int, *, plain: bool) -> None:
        super().__init__()
        self.width = width
        self.modulation = nn.Linear(width, 3 * width)
        nn.init.zeros_(self.modulation.weight)
        nn.init.zeros_(self.modulation.bias)
        if plain:
            self.plain_scale = nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor, condition: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """(B, N, C) rows and a (B, C) condition -> normalised rows and a (B, 1, C) gate, or None without condition."""
        normed = F.rms_norm(x, (self.width,), eps=NORM_EPS)
        if condition is None:
            return normed * (1 + self.plain_scale), None
        scale, shift, gate = self.modulation(condition)[:, None].chunk(3, dim=-1)
        return normed * (1 + scale) + shift, gate


class NoiseLevelNorm(nn.Module):
    """LayerNorm whose shift and scale tell a video token its noise level (paper, appendix: architecture). No gate."""

    FEATURES = 256

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width
        self.hidden = nn.Linear(self.FEATURES, width)
        self.out = nn.Linear(width, 2 * width)
        nn.init.zeros_(self.out.weight)
        nn.init.zeros_(self.out.bias)

    def forward(self, tokens: Tensor, sigma: Tensor) -> Tensor:
        """(B, V, C) tokens at (B,) noise levels -> (B, V, C)."""
        fourier = sincos_embedding(sigma, self.FEATURES).to(tokens.dtype)
        shift, scale = self.out(F.silu(self.hidden(fourier)))[:, None].chunk(2, dim=-1)
        return F.layer_norm(tokens, (self.width,), eps=NORM_EPS) * (1 + scale) + shift


def _residual(x: Tensor, y: Tensor, gate: Tensor | None) -> Tensor:
    return x + y if gate is None else torch.addcmul(x, gate, y)


class Span(NamedTuple):
    """A run of query rows that all see the same first keys."""

    rows: int
    keys: int


class GemmaLayer(nn.Module):
    """Multi-query attention and a GeGLU, each behind an adaptive RMSNorm.

    The prefix-LM mask (video rows see video; the state row sees video and itself; action rows see everything) splits
    the rows into spans that each see a first part of the keys: dense attentions and no mask.
    """

    def __init__(self, config: HeadConfig, *, last: bool) -> None:
        super().__init__()
        width, inner = config.width, config.heads * config.head_dim
        cached = config.prefix_mode == "cached"
        self.heads, self.head_dim = config.heads, config.head_dim
        self.attention_norm = AdaptiveRMSNorm(width, plain=cached)
        self.q = nn.Linear(width, inner, bias=False)
        self.k = nn.Linear(width, config.head_dim, bias=False)
        self.v = nn.Linear(width, config.head_dim, bias=False)
        self.o = nn.Linear(inner, width, bias=False)
        self.mlp_norm = AdaptiveRMSNorm(width, plain=cached and not last)  # the last layer has no video output
        self.gate = nn.Linear(width, config.mlp, bias=False)
        self.up = nn.Linear(width, config.mlp, bias=False)
        self.down = nn.Linear(config.mlp, width, bias=False)
        for linear in (self.q, self.k, self.v, self.o, self.gate, self.up, self.down):
            nn.init.normal_(linear.weight, std=linear.in_features**-0.5)  # unit variance in, unit variance out

    def keys_values(self, normed: Tensor, rope: Rope) -> KeysValues:
        """Rotated keys and values, (B, N, head_dim) each, of normalised rows."""
        return rope.rotate(self.k(normed)[:, :, None])[:, :, 0], self.v(normed)

    def forward(
        self,
        x: Tensor,
        condition: Tensor | None,
        rope: Rope,
        spans: Sequence[Span],
        past: KeysValues | None = None,
        record: Callable[[Tensor], None] | None = None,
    ) -> tuple[Tensor, KeysValues]:
        """Run the layer.

        Args:
            x: (B, N, C) rows in order.
            condition: (B, C) for the adaptive norms, or None for rows without one.
            rope: angles of the rows' positions.
            spans: the rows whose output is wanted, which are the last ones of ``x``, and the keys each may see.
            past: keys and values of rows before ``x``.
            record: takes the attention probabilities (B, rows x heads, keys) of the last span.

        Returns:
            the wanted rows (B, sum of span rows, C), and the keys and values of all rows, past ones included.
        """
        normed, gate = self.attention_norm(x, condition)
        key, value = self.keys_values(normed, rope)
        if past is not None:
            key, value = torch.cat([past[0], key], dim=1), torch.cat([past[1], value], dim=1)
        first = x.shape[1] - sum(span.rows for span in spans)
        query = rope.rotate(self.q(normed[:, first:]).unflatten(-1, (self.heads, self.head_dim)))
        x = _residual(x[:, first:], self.o(self._attend(query, key, value, spans, record)), gate)
        normed, gate = self.mlp_norm(x, condition)
        mlp = self.down(F.gelu(self.gate(normed), approximate="tanh") * self.up(normed))
        return _residual(x, mlp, gate), (key, value)

    def _attend(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        spans: Sequence[Span],
        record: Callable[[Tensor], None] | None,
    ) -> Tensor:
        """(B, rows, heads, D) queries -> (B, rows, heads x D). One key head: the heads are just more query rows."""
        outputs = []
        groups = query.split([span.rows for span in spans], dim=1)
        for index, (span, group) in enumerate(zip(spans, groups, strict=True)):
            q, k, v = group.flatten(1, 2), key[:, : span.keys], value[:, : span.keys]
            if record is not None and index == len(spans) - 1:
                out, probabilities = attend_recording(q, k, v, self.head_dim**-0.5)
                record(probabilities)
            else:  # the singleton is the head dimension that the kernels expect
                out = attend(q[:, None], k[:, None], v[:, None])[:, 0]
            outputs.append(out.unflatten(1, (span.rows, self.heads)).flatten(2))
        return torch.cat(outputs, dim=1)
