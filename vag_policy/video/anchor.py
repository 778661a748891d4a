"""The clean first frame ("anchor"): four operations that only work together.

A rollout starts from the current camera image. Around every network call, as in diffusers'
``Cosmos2_5_PredictBasePipeline``:

1. ``with_mask_channels`` tells the network which frame is clean;
2. ``with_anchor`` puts the clean latent there, whatever the solver holds;
3. ``with_anchor_velocity`` replaces the prediction there by the analytic velocity, so that the solver's own
   frame 0 travels exactly from its noise to the anchor;
4. ``frame_timesteps`` gives the clean frame the timestep of an (almost) clean frame.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

ANCHOR_TIMESTEP = 1e-4
"""Timestep the network sees at the clean frame (``conditional_frame_timestep`` of the pipeline)."""


def anchor_mask(latents: Tensor) -> Tensor:
    """(1, 1, T, 1, 1) like ``latents`` (B, C, T, h, w): 1 at latent frame 0, else 0."""
    mask = latents.new_zeros(1, 1, latents.shape[2], 1, 1)
    mask[:, :, 0] = 1
    return mask


def with_mask_channels(latents: Tensor, pad_rows: int = 0, pad_columns: int = 0) -> Tensor:
    """(B, C, T, h, w) -> (B, C + 2, T, h + pad_rows, w + pad_columns): condition mask, then padding mask.

    Cosmos was trained on edge- or reflection-padded images with a mask that is 1 on what was padded; padding is
    the same here: edge values below and to the right, marked by the last channel.
    """
    batch, _, frames, height, width = latents.shape
    padding = latents.new_zeros(1, 1, 1, height, width)
    if pad_rows or pad_columns:
        edges = (0, pad_columns, 0, pad_rows, 0, 0)
        latents = functional.pad(latents, edges, mode="replicate")
        padding = functional.pad(padding, edges, value=1.0)
    shape = (batch, 1, frames, height + pad_rows, width + pad_columns)
    return torch.cat([latents, anchor_mask(latents).expand(shape), padding.expand(shape)], dim=1)


def with_anchor(latents: Tensor, anchor: Tensor) -> Tensor:
    """M * anchor + (1 - M) * latents: (B, C, T, h, w) with frame 0 replaced by ``anchor`` (B, C, 1, h, w)."""
    return torch.cat([anchor, latents[:, :, 1:]], dim=2)


def with_anchor_velocity(velocity: Tensor, noise: Tensor, anchor: Tensor) -> Tensor:
    """Velocity (B, C, T, h, w) with frame 0 replaced by ``noise - anchor``, both (B, C, 1, h, w)."""
    return torch.cat([noise - anchor, velocity[:, :, 1:]], dim=2)


def frame_timesteps(sigma: Tensor, frames: int, anchor_timestep: float = ANCHOR_TIMESTEP) -> Tensor:
    """(B,) float32 noise levels -> (B, 1, T, 1, 1): ``anchor_timestep`` at frame 0, sigma elsewhere.

    The network's timestep is sigma itself, in 0..1; Predict2.5 does not scale it to 0..1000.
    """
    timesteps = sigma.view(-1, 1, 1, 1, 1).repeat(1, 1, frames, 1, 1)
    timesteps[:, :, 0] = anchor_timestep
    return timesteps
