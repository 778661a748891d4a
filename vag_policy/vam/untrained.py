"""Policies before training: random weights, scaled so that every input is seen and every output is gentle."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from vag_policy.robots.yam import GRIPPER_INDICES, JOINT_NAMES, POSES
from vag_policy.vam.model import VamModel
from vag_policy.vam.normalization import Normalization
from vag_policy.vam.policy import VamPolicy
from vag_policy.vam.presets import VamPreset, override, preset
from vag_policy.video.backbone import VideoBackbone
from vag_policy.video.instruction import instruction_encoder
from vag_policy.video.tokenizer import Tokenizer, VideoTokenizer, frames_from_uint8
from vag_policy.video.tokenizers import make_tokenizer


def random_policy(
    preset_name: str,
    seed: int = 0,
    device: torch.device | str = "cpu",
    dtype: torch.dtype | None = None,
    overrides: Mapping[str, Any] | None = None,
    embeddings: Path | str | None = None,
    video_weights: Path | str | None = None,
) -> VamPolicy:
    """An untrained policy, the same for the same arguments.

    Args:
        preset_name: key in ``PRESETS``.
        seed: of the weights and of the policy's noise.
        device: where the networks go.
        dtype: what they compute in; float32 by default.
        overrides: settings to change, by dotted name (``{"guidance.mode": "adaptive"}``).
        embeddings: folder of instruction embeddings, for presets that read them.
        video_weights: a diffusers folder (``transformer/``, ``vae/``) to take the video model from.

    Raises:
        ValueError: an unknown preset or setting, or ``video_weights`` of another size.
    """
    settings = override(preset(preset_name), overrides or {})
    encoder = instruction_encoder(settings.video.text, Path(embeddings) if embeddings else None)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if video_weights is None:
            settings, tokenizer = _scaled_tokenizer(settings)
            model = VamModel(settings, tokenizer)
        else:
            folder = Path(video_weights)
            tokenizer = VideoTokenizer.from_pretrained(folder / "vae", settings.video.tokenizer)
            backbone = VideoBackbone.from_pretrained(folder / "transformer", settings.video.backbone)
            model = VamModel(settings, tokenizer, backbone)
        model.head.draw_modulation()
    return VamPolicy(model.to(device=device, dtype=dtype), encoder, untrained_normalization(settings), seed)


def untrained_normalization(settings: VamPreset) -> Normalization:
    """A unit normal becomes gentle motion about the home pose (YAM), or about zero."""
    if settings.action_names == settings.state_names == JOINT_NAMES:
        centre, spread = POSES["home"].copy(), np.full(len(JOINT_NAMES), 0.08)
        centre[list(GRIPPER_INDICES)], spread[list(GRIPPER_INDICES)] = 0.5, 0.1
        return Normalization(tuple(centre), tuple(6 * spread), tuple(centre), tuple(spread))
    states, actions = len(settings.state_names), len(settings.action_names)
    return Normalization((0.0,) * states, (1.0,) * states, (0.0,) * actions, (0.1,) * actions)


def _scaled_tokenizer(settings: VamPreset) -> tuple[VamPreset, Tokenizer]:
    """A random tokenizer and its own latent statistics, measured as those of a trained one are.

    Without them the latents of a random encoder are faint beside unit noise, and the policy would hardly see the image.
    (A patch codec has no random weights: it starts as a cosine transform with statistics of its own.)
    """
    tokenizer = make_tokenizer(settings.video.tokenizer)
    if settings.video.tokenizer.kind == "patch":
        return settings, tokenizer
    channels = tokenizer.config.z_dim
    tokenizer.config = replace(tokenizer.config, latents_mean=(0.0,) * channels, latents_std=(1.0,) * channels)
    width, height = settings.video.image_size
    with torch.no_grad():
        pictures = [tokenizer.encode(frames_from_uint8(_blocks(width, height, index))) for index in range(4)]
    latents = torch.cat(pictures).transpose(0, 1).flatten(1).double()
    mean, std = tuple(latents.mean(1).tolist()), tuple(latents.std(1).tolist())
    tokenizer.config = replace(tokenizer.config, latents_mean=mean, latents_std=std)
    return replace(settings, video=replace(settings.video, tokenizer=tokenizer.config)), tokenizer


def _blocks(width: int, height: int, seed: int) -> NDArray[np.uint8]:
    """A picture of coloured rectangles: structure like a scene's, where noise would average out."""
    rng = np.random.default_rng(seed)
    picture = np.full((height, width, 3), rng.integers(0, 256, 3), np.uint8)
    for _ in range(24):
        x, y = rng.integers(0, width), rng.integers(0, height)
        w, h = rng.integers(4, width // 4), rng.integers(4, height // 2)
        picture[y : y + h, x : x + w] = rng.integers(0, 256, 3)
    return picture
