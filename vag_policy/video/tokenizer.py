"""Frames to latents and back: the Wan 2.1 VAE, normalised per channel, and what every tokenizer has in common.

Latent frame 0 is video frame 0 alone and every later one stands for four frames; a pixel of a latent is 8x8 pixels.
The VAE is causal in time, so the first latent of a clip needs the first frame only.
"""

from __future__ import annotations

from pathlib import Path
from typing import Self

import numpy as np
import torch
from diffusers.models.autoencoders.autoencoder_kl_wan import AutoencoderKLWan
from numpy.typing import NDArray
from torch import Tensor, nn

from vag_policy.video.folders import check_config, load_weights, read_config
from vag_policy.video.presets import TokenizerConfig


class Tokenizer(nn.Module):
    """What is common to the kinds of tokenizer; ``config.z_dim`` is C."""

    def __init__(self, config: TokenizerConfig) -> None:
        super().__init__()
        self.config = config

    def encode(self, frames: Tensor) -> Tensor:
        """Frames to latents of zero mean and unit variance per channel.

        Args:
            frames: (B, 3, F, H, W) in [-1, 1]; F = 1 + 4n, H and W multiples of 8.

        Returns:
            (B, C, 1 + n, H / 8, W / 8) float32 (the pipeline normalises in float32 too).

        Raises:
            ValueError: another shape.
        """
        if frames.ndim != 5 or frames.shape[1] != 3:
            raise ValueError(f"frames must be (B, 3, F, H, W), got {tuple(frames.shape)}")
        count, height, width = frames.shape[2:]
        if count % 4 != 1 or height % 8 or width % 8:
            raise ValueError(
                f"frames must number 1 + 4n, their height and width divide by 8; got {count} of {width}x{height}"
            )
        return self._encode(frames)

    def encode_image(self, image: Tensor) -> Tensor:
        """The anchor: (B, 3, H, W) in [-1, 1] -> (B, C, 1, H / 8, W / 8), the first latent of any clip it starts."""
        if image.ndim != 4:
            raise ValueError(f"image must be (B, 3, H, W), got {tuple(image.shape)}")
        return self.encode(image.unsqueeze(2))

    def decode(self, latents: Tensor) -> Tensor:
        """Latents (B, C, T, h, w) -> frames (B, 3, 1 + 4(T - 1), 8h, 8w) float32 in [-1, 1].

        Raises:
            ValueError: another shape.
        """
        if latents.ndim != 5 or latents.shape[1] != self.config.z_dim:
            raise ValueError(f"latents must be (B, {self.config.z_dim}, T, h, w), got {tuple(latents.shape)}")
        return self._decode(latents)

    def _encode(self, frames: Tensor) -> Tensor:
        raise NotImplementedError

    def _decode(self, latents: Tensor) -> Tensor:
        raise NotImplementedError


class VideoTokenizer(Tokenizer):
    """An ``AutoencoderKLWan`` whose latents, modes of the posterior, are normalised: (z - mean) / std."""

    def __init__(self, config: TokenizerConfig) -> None:
        super().__init__(config)
        self.vae = AutoencoderKLWan(**config.kwargs())

    @classmethod
    def from_pretrained(cls, folder: Path, config: TokenizerConfig, dtype: torch.dtype = torch.float32) -> Self:
        """Load weights in diffusers layout (``config.json`` and safetensors) from a local folder.

        Raises:
            ValueError: no VAE in the folder, or one of another size or with other statistics than ``config``.
        """
        check_config(folder, AutoencoderKLWan, read_config(folder), config.kwargs())
        with torch.device("meta"):
            tokenizer = cls(config)
        load_weights(tokenizer.vae, folder, dtype)
        return tokenizer

    def _encode(self, frames: Tensor) -> Tensor:
        latents = self.vae.encode(frames.to(self.vae.dtype)).latent_dist.mode().float()
        mean, std = self._statistics(latents.device)
        return (latents - mean) / std

    def _decode(self, latents: Tensor) -> Tensor:
        mean, std = self._statistics(latents.device)
        return self.vae.decode((latents.float() * std + mean).to(self.vae.dtype)).sample.float()

    def _statistics(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation, (1, C, 1, 1, 1) float32; no buffers, since ``.to(dtype)`` would round them."""
        values = torch.tensor([self.config.latents_mean, self.config.latents_std], device=device)
        mean, std = values.view(2, 1, -1, 1, 1, 1)
        return mean, std


def frames_from_uint8(image: NDArray[np.uint8], device: torch.device | str = "cpu") -> Tensor:
    """(H, W, 3) or (F, H, W, 3) RGB -> (1, 3, F, H, W) float32 in [-1, 1] on ``device``.

    Raises:
        ValueError: another shape or type.
    """
    if image.dtype != np.uint8 or image.ndim not in (3, 4) or image.shape[-1] != 3:
        raise ValueError(f"image must be (H, W, 3) or (F, H, W, 3) uint8, got {image.shape} {image.dtype}")
    frames = torch.tensor(image, device=device)  # bytes travel, floats do not
    frames = frames.unsqueeze(0) if frames.ndim == 3 else frames
    return (frames.permute(3, 0, 1, 2).unsqueeze(0).float() / 255) * 2 - 1


def frames_to_uint8(frames: Tensor) -> NDArray[np.uint8]:
    """(B, 3, F, H, W) in [-1, 1] -> (B, F, H, W, 3) uint8 RGB."""
    pixels = ((frames.float() + 1) * 127.5).round().clamp(0, 255).to(torch.uint8)
    return pixels.permute(0, 2, 3, 4, 1).cpu().numpy()
