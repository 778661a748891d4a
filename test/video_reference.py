"""What diffusers' own Predict2.5 pipeline does around its transformer and scheduler, in plain code.

Imports nothing of ours: tests compare our rollout against this. The pipeline object itself refuses LIBERO's 168 and 224
pixels, custom sigmas and a missing guardrail, so its parts are called as its ``__call__`` calls them.
"""

from __future__ import annotations

import types

import numpy as np
import torch
from diffusers import UniPCMultistepScheduler
from diffusers.models.transformers import transformer_cosmos

SMALL_BACKBONE = {
    "num_attention_heads": 2,
    "attention_head_dim": 32,
    "num_layers": 4,
    "text_embed_dim": 128,
    "adaln_lora_dim": 32,
    "rope_scale": (1.0, 1.0, 1.0),
    "crossattn_proj_in_channels": 256,
}
"""A Predict2.5 transformer with its 16 latent channels and small numbers."""


def install_resize(monkeypatch):
    """Stand in for torchvision, which ``forward`` needs with ``concat_padding_mask=True`` (nearest resize only)."""
    functional = types.SimpleNamespace(
        resize=lambda mask, size, interpolation: torch.nn.functional.interpolate(mask, size=size, mode=interpolation)
    )
    transforms = types.SimpleNamespace(
        functional=functional, InterpolationMode=types.SimpleNamespace(NEAREST="nearest")
    )
    monkeypatch.setattr(transformer_cosmos, "transforms", transforms, raising=False)


def published_transformer(ours):
    """The layout the weights are published in (17 channels, the library adds the padding mask), with our weights."""
    config = dict(ours.config)
    config.update(in_channels=17, concat_padding_mask=True)
    theirs = transformer_cosmos.CosmosTransformer3DModel.from_config(config)
    theirs.load_state_dict(ours.state_dict(), strict=True)
    return theirs.eval()


def library_transformer(ours):
    """The library's model as it comes, with its own attention processors, and our weights."""
    theirs = transformer_cosmos.CosmosTransformer3DModel.from_config(dict(ours.config))
    theirs.load_state_dict(ours.state_dict(), strict=True)
    return theirs.eval()


@torch.no_grad()
def reference_rollout(transformer, prompt_embeds, cond_latent, noise, conditional_frame_timestep=1e-4):
    """The pipeline's denoising loop on the six-point grid.

    Returns the scheduler's latents before every step and after the last (seven tensors), and the network's inputs.
    """
    batch, _, frames, height, width = noise.shape
    far = 5 * 0.001 / (1 + 4 * 0.001)
    scheduler = UniPCMultistepScheduler(use_flow_sigmas=True, prediction_type="flow_prediction", flow_shift=5.0)
    scheduler.set_timesteps(sigmas=np.linspace(1, far, 6))

    cond_indicator = torch.zeros(batch, 1, frames, 1, 1)
    cond_indicator[:, :, :1] = 1.0
    cond_mask = cond_indicator.expand(-1, -1, -1, height, width)
    cond = torch.zeros_like(noise)
    cond[:, :, :1] = cond_latent
    padding_mask = torch.zeros(1, 1, height * 8, width * 8)

    latents = noise
    gt_velocity = (latents - cond) * cond_mask
    states, inputs = [latents], []
    for i, t in enumerate(scheduler.timesteps):
        sigma_t = scheduler.sigmas[i].expand(batch)
        if conditional_frame_timestep >= 0:
            in_timestep = cond_indicator * conditional_frame_timestep + (1 - cond_indicator) * sigma_t.view(
                batch, 1, 1, 1, 1
            )
        else:
            in_timestep = sigma_t
        in_latents = cond_mask * cond + (1 - cond_mask) * latents
        inputs.append(in_latents)
        noise_pred = transformer(
            hidden_states=in_latents,
            condition_mask=cond_mask,
            timestep=in_timestep,
            encoder_hidden_states=prompt_embeds,
            padding_mask=padding_mask,
            return_dict=False,
        )[0]
        noise_pred = gt_velocity + noise_pred * (1 - cond_mask)
        latents = scheduler.step(noise_pred, t, latents, return_dict=False)[0]
        states.append(latents)
    return states, inputs
