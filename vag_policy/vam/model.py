"""The networks of a video-action policy and the passes through them. No robot units, no episodes."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from vag_policy.vam.action_head import ActionHead, Prefix
from vag_policy.vam.presets import VamPreset, preset
from vag_policy.video.backbone import VideoBackbone
from vag_policy.video.sampler import rollout, sigma_grid
from vag_policy.video.tokenizer import Tokenizer, frames_from_uint8, frames_to_uint8
from vag_policy.video.tokenizers import make_tokenizer


class VamModel(nn.Module):
    """Tokenizer, video backbone and action head of one preset.

    Args:
        preset: the sizes.
        tokenizer, backbone: ready-made ones (pretrained weights); None makes them new.
    """

    def __init__(
        self, preset: VamPreset, tokenizer: Tokenizer | None = None, backbone: VideoBackbone | None = None
    ) -> None:
        super().__init__()
        self.preset = preset
        self.tokenizer = tokenizer or make_tokenizer(preset.video.tokenizer)
        self.backbone = backbone or VideoBackbone(preset.video.backbone)
        self.head = ActionHead(preset.head)

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.head.action_out.weight.device

    @property
    def sigma(self) -> float:
        """Noise level that features are read at."""
        return float(sigma_grid()[self.preset.video.sigma_index])

    def noise_shape(self, frames: int) -> tuple[int, ...]:
        """(1, C, frames, h, w): the noise of a rollout of that many latent frames."""
        width, height = self.preset.video.latent_size
        return 1, self.preset.video.backbone.out_channels, frames, height, width

    def encode(self, image: NDArray[np.uint8]) -> Tensor:
        """(H, W, 3) RGB -> the rollout's anchor, (1, C, 1, h, w)."""
        return self.tokenizer.encode(frames_from_uint8(image, self.device))

    def rollout(self, anchor: Tensor, text: Tensor, noise: Tensor) -> Tensor:
        """Denoise to the level features are read at: (1, C, T, h, w)."""
        return rollout(self.backbone, anchor, text, noise, stop_index=self.preset.video.sigma_index)

    def features(self, latents: Tensor, anchor: Tensor, text: Tensor) -> Tensor:
        """Features of a rollout's first latent frames: (1, head.frames, rows, columns, width)."""
        video = self.preset.video
        features = self.backbone.features(latents, anchor, self.sigma, text, block=video.feature_block)
        return features[:, : self.preset.head.frames]

    def prefix(self, features: Tensor) -> Prefix:
        """The head's video prefix."""
        sigma = torch.full((len(features),), self.sigma, device=features.device)
        return self.head.prefix(features.to(self.head.video_proj.weight.dtype), sigma)

    def imagine(self, anchor: Tensor, text: Tensor, noise: Tensor) -> NDArray[np.uint8]:
        """A whole rollout, decoded: (1 + 4 (T - 1), H, W, 3) uint8 RGB; the first frame is the anchor's."""
        return frames_to_uint8(self.tokenizer.decode(rollout(self.backbone, anchor, text, noise)))[0]

    def synchronize(self) -> None:
        """Wait until the device has done what was asked of it."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def parameter_counts(self) -> dict[str, int]:
        """Parameters of ``tokenizer``, ``backbone`` and ``head``."""
        parts: dict[str, Any] = dict(self.named_children())
        return {name: sum(p.numel() for p in part.parameters()) for name, part in parts.items()}


def describe(name: str) -> dict[str, Any]:
    """The numbers of a preset, counted on modules without storage.

    Raises:
        ValueError: no such preset.
    """
    settings = preset(name)
    with torch.device("meta"):
        parameters = VamModel(settings).parameter_counts()
    return {
        "preset": settings.name,
        "cameras": list(settings.video.cameras),
        "image_size": list(settings.video.image_size),
        "latent_size": list(settings.video.latent_size),
        "sigma_grid": [round(float(sigma), 5) for sigma in sigma_grid()],
        "sigma_index": settings.video.sigma_index,
        "feature_block": settings.video.feature_block,
        "blocks": settings.video.backbone.num_layers,
        "tokens_per_frame": settings.tokens_per_frame,
        "video_tokens": settings.video_tokens,
        "tokenizer_parameters": parameters["tokenizer"],
        "backbone_parameters": parameters["backbone"],
        "head_parameters": parameters["head"],
        "head_layers": settings.head.layers,
        "tr_layer": settings.tr_layer,
        "prefix_mode": settings.head.prefix_mode,
        "euler_steps": settings.euler_steps,
        "action_horizon": settings.action_horizon,
        "execute": settings.execute,
        "period_ms": settings.period_ns / 1e6,
        "state_names": list(settings.state_names),
        "action_names": list(settings.action_names),
    }
