"""A linear tokenizer for small models: principal components of 8x8 patches, with the Wan VAE's layout.

Latent frame 0 is the first frame alone and every later one a group of four, so that one image gives the anchor. A group
is coded as its difference from the first frame: what stands still is a constant, channels are spent on what moves, and
the network need not learn to copy. A model of a few million parameters cannot afford a learned VAE, and a random one
carries little; this one is fitted to clips in seconds and keeps what pictures vary in. Colour is weighted up before the
components are chosen: by plain variance it would be washed out, and instructions name colours.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vag_policy.video.presets import PATCH_VALUES, TokenizerConfig
from vag_policy.video.tokenizer import Tokenizer

GROUP = 4
"""Frames of one later latent."""

_SIDE = 8
_PARTS = ("mean", "encode", "decode")
_Array = NDArray[np.float64]
_MIN_STD = 1e-3  # of a component on the scale of [-1, 1] pixels: one that never varies must not blow up noise
_OPPONENT = np.array([[1, 1, 1], [1, 0, -1], [1, -2, 1]]) / np.sqrt([[3], [2], [6]])  # brightness, two colours


class PatchTokenizer(Tokenizer):
    """z = E (x - mean) and back x = mean + D z: one pair of matrices for an image, one for the changes in four frames.

    Until ``fit`` the components are the lowest frequencies of a cosine transform.
    """

    def __init__(self, config: TokenizerConfig) -> None:
        super().__init__(config)
        for name, frames in (("image", 1), ("group", GROUP)):
            components, std = _cosine_components(frames, config.z_dim)
            mean = np.zeros(frames * PATCH_VALUES)
            values = (mean, *_matrices(components, std, config.chroma_gain))
            for suffix, value in zip(_PARTS, values, strict=True):
                self.register_buffer(f"{name}_{suffix}", torch.tensor(value, dtype=torch.float32))

    def fit(self, clips: Iterable[NDArray[np.uint8]]) -> None:
        """Choose the components from clips.

        Args:
            clips: (F, H, W, 3) uint8 each, F = 1 + 4n with n >= 1.

        Raises:
            ValueError: no clip, or one of another shape.
        """
        moments = {"image": _Moments(PATCH_VALUES), "group": _Moments(GROUP * PATCH_VALUES)}
        for clip in clips:
            frames = torch.from_numpy(clip).permute(3, 0, 1, 2)[None].float() / 127.5 - 1
            if frames.shape[2] < 1 + GROUP or frames.shape[2] % GROUP != 1:
                raise ValueError(f"a clip must have 1 + 4n frames, at least 5, got {frames.shape[2]}")
            moments["image"].add(_patches(frames[:, :, :1], 1))
            moments["group"].add(_patches(frames[:, :, 1:] - frames[:, :, :1], GROUP))
        for name, moment in moments.items():
            mean, components, std = moment.principal(self.config.z_dim, self.config.chroma_gain)
            values = (mean, *_matrices(components, std, self.config.chroma_gain))
            for suffix, value in zip(_PARTS, values, strict=True):
                self.get_buffer(f"{name}_{suffix}").copy_(torch.from_numpy(value))

    def _encode(self, frames: Tensor) -> Tensor:
        parts = [self._project("image", frames[:, :, :1], 1)]
        if frames.shape[2] > 1:
            parts.append(self._project("group", frames[:, :, 1:] - frames[:, :, :1], GROUP))
        return torch.cat(parts, dim=1).permute(0, 4, 1, 2, 3)

    def _project(self, name: str, frames: Tensor, group: int) -> Tensor:
        """(B, 3, group * n, H, W) -> (B, n, h, w, C)."""
        mean, encode = self.get_buffer(f"{name}_mean").float(), self.get_buffer(f"{name}_encode").float()
        return (_patches(frames.float(), group) - mean) @ encode.T

    def _decode(self, latents: Tensor) -> Tensor:
        rows = latents.float().permute(0, 2, 3, 4, 1)
        parts = [self._restore("image", rows[:, :1], 1)]
        if rows.shape[1] > 1:
            parts.append(parts[0] + self._restore("group", rows[:, 1:], GROUP))
        return torch.cat(parts, dim=2)

    def _restore(self, name: str, rows: Tensor, group: int) -> Tensor:
        """(B, n, h, w, C) -> (B, 3, group * n, H, W)."""
        mean, decode = self.get_buffer(f"{name}_mean").float(), self.get_buffer(f"{name}_decode").float()
        patches = (rows @ decode.T + mean).unflatten(-1, (group, _SIDE, _SIDE, 3))
        batch, count, height, width = rows.shape[:4]
        pixels = patches.permute(0, 7, 1, 4, 2, 5, 3, 6)
        return pixels.reshape(batch, 3, count * group, height * _SIDE, width * _SIDE)


class _Moments:
    """Mean and covariance of patches, in float64, without keeping them."""

    def __init__(self, width: int) -> None:
        self.count = 0
        self.total = np.zeros(width)
        self.square = np.zeros((width, width))

    def add(self, patches: Tensor) -> None:
        rows = patches.flatten(0, -2).double().numpy()
        self.count += len(rows)
        self.total += rows.sum(0)
        self.square += rows.T @ rows

    def principal(self, count: int, chroma_gain: float) -> tuple[_Array, _Array, _Array]:
        """Mean (P,), orthonormal components (count, P) of the colour-weighted patches, their std (count,)."""
        if not self.count:
            raise ValueError("a patch tokenizer needs at least one clip to fit")
        mean = self.total / self.count
        weight = _colour_weight(len(mean), chroma_gain)
        covariance = weight @ (self.square / self.count - np.outer(mean, mean)) @ weight.T
        values, vectors = np.linalg.eigh(covariance)
        return mean, vectors[:, ::-1].T[:count], np.sqrt(values[::-1][:count].clip(0))


def _matrices(components: _Array, std: _Array, chroma_gain: float) -> tuple[_Array, _Array]:
    """Encoder (C, P) and decoder (P, C) of whitened components of colour-weighted patches."""
    weight = _colour_weight(components.shape[1], chroma_gain)
    std = std.clip(_MIN_STD)[:, None]
    return components / std @ weight, np.linalg.inv(weight).astype(np.float64) @ (components * std).T


def _colour_weight(values: int, chroma_gain: float) -> _Array:
    """(values, values) map of patches, colour last, to brightness and two weighted colours."""
    return np.kron(np.eye(values // 3), _OPPONENT * np.array([[1.0], [chroma_gain], [chroma_gain]]))


def _cosine_components(frames: int, count: int) -> tuple[_Array, _Array]:
    """The ``count`` lowest frequencies of a (frames, 8, 8, colour) cosine transform, and falling spreads."""

    def basis(size: int) -> _Array:
        position, frequency = np.meshgrid(np.arange(size), np.arange(size))
        waves = np.cos(np.pi * (position + 0.5) * frequency / size)
        return waves / np.linalg.norm(waves, axis=1, keepdims=True)

    time, space = basis(frames), basis(_SIDE)
    index = np.indices((frames, _SIDE, _SIDE, 3)).reshape(4, -1)
    cost = 2.0 * index[0] + index[1] + index[2] + (index[3] > 0)  # slow before fast, brightness before colour
    lowest = np.argsort(cost, kind="stable")[:count]
    rows = [
        np.einsum("t,y,x,c->tyxc", time[t], space[y], space[x], np.eye(3)[c]).ravel() for t, y, x, c in index.T[lowest]
    ]
    std = _SIDE * np.sqrt(frames) / (1.0 + cost[lowest]) ** 2
    return np.stack(rows), std


def _patches(frames: Tensor, group: int) -> Tensor:
    """(B, 3, group * n, H, W) -> (B, n, H / 8, W / 8, group * 8 * 8 * 3)."""
    cut = frames.unflatten(4, (-1, _SIDE)).unflatten(3, (-1, _SIDE)).unflatten(2, (-1, group))
    return cut.permute(0, 2, 4, 6, 3, 5, 7, 1).flatten(4)
