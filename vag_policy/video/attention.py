"""Attention of the Cosmos blocks for tokens kept frame by frame.

The library's processor takes (B, N, C). With tokens as (B, T, N / T, C) a block's timestep modulation, which differs
between latent frames and not within one, can stay (B, T, 1, C) and broadcast; expanded to every token it costs more
memory and time than the block's own attention projections.
"""

from __future__ import annotations

from typing import Any

import torch
from diffusers.models.attention_processor import Attention
from diffusers.models.embeddings import apply_rotary_emb
from torch import Tensor
from torch.nn import functional


class FrameAttention:
    """Processor of a Cosmos block's ``Attention``: the library's arithmetic, frame by frame or flat tokens."""

    def __call__(
        self,
        attn: Attention,
        hidden_states: Tensor,
        encoder_hidden_states: Tensor | None = None,
        attention_mask: Tensor | None = None,
        image_rotary_emb: tuple[Tensor, Tensor] | None = None,
    ) -> Tensor:
        """Attend.

        Args:
            attn: the module with the projections; its names are the library's.
            hidden_states: (B, N, C) or (B, T, N / T, C) query tokens.
            encoder_hidden_states: (B, M, D) keys and values, or None for the query tokens themselves.
            attention_mask: must be None; text padding is attended to, as Predict2.5 was trained.
            image_rotary_emb: cosine and sine, (N, head_dim) each, of the query tokens.

        Returns:
            the shape of ``hidden_states``.

        Raises:
            ValueError: a mask was given.
        """
        if attention_mask is not None:
            raise ValueError("the backbone's attention takes no mask")
        shape = hidden_states.shape
        tokens = hidden_states.flatten(1, -2)
        context = tokens if encoder_hidden_states is None else encoder_hidden_states
        parts: Any = attn  # the library's types leave its submodules optional
        query, key, value = (
            project(rows).unflatten(2, (parts.heads, -1)).transpose(1, 2)
            for project, rows in ((parts.to_q, tokens), (parts.to_k, context), (parts.to_v, context))
        )
        query, key = parts.norm_q(query), parts.norm_k(key)
        if image_rotary_emb is not None:
            rotary: Any = image_rotary_emb
            query = apply_rotary_emb(query, rotary, use_real=True, use_real_unbind_dim=-2)
            key = apply_rotary_emb(key, rotary, use_real=True, use_real_unbind_dim=-2)
        out = attend(query, key, value).transpose(1, 2).flatten(2)
        return parts.to_out[0](out).view(shape)


def attend(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """(B, heads, N, D), (B, heads, M, D) x 2 -> (B, heads, N, D).

    On a CPU the fused kernel's backward is no faster in bfloat16 than in float32; plain matrix products are twice as
    fast (measured at 360 tokens), so low precision takes those.
    """
    if query.device.type == "cpu" and torch.is_autocast_enabled("cpu"):
        low = torch.get_autocast_dtype("cpu")
        scores = (query * query.shape[-1] ** -0.5).to(low) @ key.to(low).transpose(-1, -2)
        return torch.softmax(scores, dim=-1, dtype=low) @ value.to(low)
    value = value.to(query.dtype)
    return functional.scaled_dot_product_attention(query, key.to(query.dtype), value)
