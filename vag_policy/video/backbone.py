"""Cosmos-Predict2.5's transformer, with an early exit: the library's modules, called block by block.

``CosmosTransformer3DModel.forward`` runs every block and projects the text anew on every call. Here the text is
projected once an instruction, and ``features`` stops after the block it is asked for. The numbers are those of
``forward`` (tests compare them exactly).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Self

import torch
from diffusers.models.transformers.transformer_cosmos import CosmosTransformer3DModel
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from vag_policy.video.anchor import ANCHOR_TIMESTEP, frame_timesteps, with_anchor, with_mask_channels
from vag_policy.video.attention import FrameAttention
from vag_policy.video.folders import check_config, load_weights, read_config
from vag_policy.video.presets import BackboneConfig


@dataclass(frozen=True)
class _Tokens:
    """Video tokens on their way through the blocks, and what every block is given."""

    sigma: Tensor  # (B,) float32
    hidden: Tensor  # (B, T, rows * columns, width)
    time: Tensor  # embedded timestep, (B, T or 1, 1, width)
    modulation: Tensor  # AdaLN-LoRA part of the timestep, 3 * width
    rotary: tuple[Tensor, Tensor]
    positions: Tensor | None  # learned, shaped like hidden, added before every block
    grid: tuple[int, int]  # (rows, columns)


def precondition(output: Tensor, latents: Tensor, sigma: Tensor) -> Tensor:
    """Velocity from the output of a network that need not carry noise.

    A velocity, noise - clean, holds all of the noise. A network narrower than a patch's values spends itself on passing
    it through. Here the best linear estimate comes from the noisy latents themselves, and what is left for the network
    has unit variance and is almost the clean video where noise is strong (Karras et al. 2022, for a straight flow)::

        velocity = (2 sigma - 1) / D * latents - output / sqrt(D),   D = (1 - sigma)^2 + sigma^2

    Args:
        output: (B, C, T, h, w) of the network.
        latents: (B, C, T, h, w) it was given, at level ``sigma`` (B,).
    """
    sigma = sigma.view(-1, 1, 1, 1, 1).to(latents.dtype)
    power = (1 - sigma) ** 2 + sigma**2
    return (2 * sigma - 1) / power * latents - output / power.sqrt()


class VideoBackbone(nn.Module):
    """A ``CosmosTransformer3DModel`` that denoises latents with a clean first frame.

    Latents are float32 (B, C, T, h, w), normalised; the module's dtype and device decide how blocks compute.
    ``h`` and ``w`` need not divide by the patch: padding is added and cropped inside.
    """

    def __init__(self, config: BackboneConfig) -> None:
        super().__init__()
        self.config = config
        self.gradient_checkpointing = False
        """Whether training recomputes a block's activations in the backward pass instead of keeping them."""
        self.transformer = CosmosTransformer3DModel(**config.kwargs())
        for block in self.transformer.transformer_blocks:
            block.attn1.set_processor(FrameAttention())
            block.attn2.set_processor(FrameAttention())

    @classmethod
    def from_pretrained(cls, folder: Path, config: BackboneConfig, dtype: torch.dtype = torch.float32) -> Self:
        """Load weights in diffusers layout (``config.json`` and safetensors) from a local folder.

        The published layout counts 17 input channels and adds the padding mask itself; it is the same state dict.

        Raises:
            ValueError: no model in the folder, or one of another size than ``config``.
        """
        found = read_config(folder)
        if found.get("concat_padding_mask", True):
            found |= {"in_channels": found.get("in_channels", 16) + 1, "concat_padding_mask": False}
        check_config(folder, CosmosTransformer3DModel, found, config.kwargs())
        with torch.device("meta"):
            backbone = cls(config)
        load_weights(backbone.transformer, folder, dtype)
        return backbone

    def text(self, embedding: Tensor) -> Tensor:
        """Project an instruction embedding, once; every other method takes the result.

        Args:
            embedding: (B, tokens, ``crossattn_proj_in_channels``), any float dtype. Zeros are the null text (their
                projection is GELU(bias), not zero).

        Returns:
            (B, tokens, ``text_embed_dim``) in the module's dtype.

        Raises:
            ValueError: another shape.
        """
        width = self.config.crossattn_proj_in_channels
        if embedding.ndim != 3 or embedding.shape[-1] != width:
            raise ValueError(f"instruction embedding must be (B, tokens, {width}), got {tuple(embedding.shape)}")
        weight = self.transformer.get_parameter("crossattn_proj.0.weight")
        return self.transformer.crossattn_proj(embedding.to(weight.device, weight.dtype))

    def velocity(
        self,
        latents: Tensor,
        anchor: Tensor,
        sigma: float | Tensor,
        text: Tensor,
        anchor_timestep: float | None = ANCHOR_TIMESTEP,
    ) -> Tensor:
        """Predict the flow ``noise - clean`` of every latent frame: all blocks.

        Frame 0 of the result is the network's own guess; the sampler overwrites it (``with_anchor_velocity``) and a
        training loss leaves it out.

        Args:
            latents: (B, C, T, h, w) at noise level ``sigma``; frame 0 is replaced by ``anchor``.
            anchor: (B, C, 1, h, w), the clean first frame.
            sigma: noise level in 0..1, one for all or (B,).
            text: what ``text()`` returned.
            anchor_timestep: timestep at the clean frame; None gives it the others' (``sigma``).

        Returns:
            (B, C, T, h, w), dtype of ``latents``.

        Raises:
            ValueError: shapes that do not belong together.
        """
        tokens = self._embed(latents, anchor, sigma, text, anchor_timestep)
        hidden = self._run_blocks(tokens, tokens.hidden, text, 0, self.config.num_layers)
        return self._velocity(tokens, hidden, latents)

    def velocity_and_features(
        self,
        latents: Tensor,
        anchor: Tensor,
        sigma: float | Tensor,
        text: Tensor,
        block: int,
        anchor_timestep: float | None = ANCHOR_TIMESTEP,
    ) -> tuple[Tensor, Tensor]:
        """What ``velocity`` and ``features`` return, from one pass (joint training)."""
        self._check_block(block)
        tokens = self._embed(latents, anchor, sigma, text, anchor_timestep)
        features = self._run_blocks(tokens, tokens.hidden, text, 0, block)
        hidden = self._run_blocks(tokens, features, text, block, self.config.num_layers)
        return self._velocity(tokens, hidden, latents), features.unflatten(2, tokens.grid)

    def features(
        self,
        latents: Tensor,
        anchor: Tensor,
        sigma: float | Tensor,
        text: Tensor,
        block: int,
        anchor_timestep: float | None = ANCHOR_TIMESTEP,
    ) -> Tensor:
        """Hidden states after ``block`` (1-indexed); later blocks are not run. Arguments as for ``velocity``.

        Returns:
            (B, T, rows, columns, width) in the module's dtype; rows and columns include patch padding.

        Raises:
            ValueError: no such block, or shapes that do not belong together.
        """
        self._check_block(block)
        tokens = self._embed(latents, anchor, sigma, text, anchor_timestep)
        return self._run_blocks(tokens, tokens.hidden, text, 0, block).unflatten(2, tokens.grid)

    def _embed(
        self, latents: Tensor, anchor: Tensor, sigma: float | Tensor, text: Tensor, anchor_timestep: float | None
    ) -> _Tokens:
        """Masks, padding, patches, rotary table and timestep embeddings, as ``forward`` makes them."""
        self._check(latents, anchor, text)
        transformer = self.transformer
        batch, _, frames, height, width = latents.shape
        _, patch_h, patch_w = self.config.patch_size
        # The timestep stays float32 whatever the module's dtype: bfloat16 cannot tell 0.9527 from 0.95.
        if isinstance(sigma, Tensor):
            levels = sigma.to(latents.device, torch.float32).expand(batch)
        else:
            levels = torch.full((batch,), sigma, dtype=torch.float32, device=latents.device)

        inputs = with_anchor(latents, anchor).to(transformer.patch_embed.proj.weight.dtype)
        inputs = with_mask_channels(inputs, pad_rows=-height % patch_h, pad_columns=-width % patch_w)
        patches = transformer.patch_embed(inputs)  # (B, T, rows, columns, width)
        hidden, grid = patches.flatten(2, 3), (patches.shape[2], patches.shape[3])
        # One modulation a latent frame, broadcast to its tokens; one a sample where the anchor has no level of its own.
        per_frame = levels[:, None] if anchor_timestep is None else frame_timesteps(levels, frames, anchor_timestep)
        modulation, time = (
            x.view(batch, -1, 1, x.shape[-1]) for x in transformer.time_embed(hidden, per_frame.flatten())
        )
        positions = None
        if self.config.learned_positions:
            positions = transformer.learnable_pos_embed(inputs).view(hidden.shape)
        return _Tokens(levels, hidden, time, modulation, transformer.rope(inputs), positions, grid)

    def _run_blocks(self, tokens: _Tokens, hidden: Tensor, text: Tensor, start: int, stop: int) -> Tensor:
        for block in self.transformer.transformer_blocks[start:stop]:
            arguments = (hidden, text, tokens.time, tokens.modulation, tokens.rotary, tokens.positions)
            if self.gradient_checkpointing and torch.is_grad_enabled():
                hidden = checkpoint(block, *arguments, use_reentrant=False)
            else:
                hidden = block(*arguments)
        return hidden

    def _velocity(self, tokens: _Tokens, hidden: Tensor, latents: Tensor) -> Tensor:
        """Output layers: (B, T, rows * columns, width) -> (B, C, T, h, w), cropped to ``latents``."""
        hidden = self.transformer.norm_out(hidden, tokens.time, tokens.modulation)
        patches = self.transformer.proj_out(hidden)
        height, width = latents.shape[-2:]
        velocity = self._unpatchify(patches, tokens.grid)[..., :height, :width].to(latents.dtype)
        return precondition(velocity, latents, tokens.sigma) if self.config.preconditioned else velocity

    def _unpatchify(self, patches: Tensor, grid: tuple[int, int]) -> Tensor:
        """(B, T, tokens, patch * C) -> (B, C, T, h, w). Within a patch the channels are rows, columns, time, C."""
        _, patch_h, patch_w = self.config.patch_size
        batch, frames = patches.shape[:2]
        patches = patches.unflatten(3, (patch_h, patch_w, self.config.out_channels)).unflatten(2, grid)
        return patches.permute(0, 6, 1, 2, 4, 3, 5).reshape(
            batch, self.config.out_channels, frames, grid[0] * patch_h, grid[1] * patch_w
        )

    def _check_block(self, block: int) -> None:
        if not 1 <= block <= self.config.num_layers:
            raise ValueError(f"block must be 1..{self.config.num_layers}, got {block}")

    def _check(self, latents: Tensor, anchor: Tensor, text: Tensor) -> None:
        channels = self.config.out_channels
        if latents.ndim != 5 or latents.shape[1] != channels:
            raise ValueError(f"latents must be (B, {channels}, T, h, w), got {tuple(latents.shape)}")
        batch, _, _, height, width = latents.shape
        if anchor.shape != (batch, channels, 1, height, width):
            raise ValueError(
                f"anchor must be {(batch, channels, 1, height, width)} for latents {tuple(latents.shape)}, "
                f"got {tuple(anchor.shape)}"
            )
        if text.ndim != 3 or text.shape[0] != batch or text.shape[-1] != self.config.text_embed_dim:
            raise ValueError(
                f"text must be ({batch}, tokens, {self.config.text_embed_dim}) as text() returns it, "
                f"got {tuple(text.shape)}"
            )
