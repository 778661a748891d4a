"""The two flow-matching losses and the noise levels they are taken at (paper, appendix: training).

Both flows run from data (level 0) to unit noise (level 1) along a straight line; a network learns its velocity,
noise - data.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from vag_policy.video.presets import SIGMA_STEPS
from vag_policy.video.sampler import sigma_grid

BETA_ALPHA = 1.5
EQUAL_WEIGHTS = (1.0,) * SIGMA_STEPS
_OFFSET_WEIGHT = 4.0  # a token's width squared is 1/12 at most: as much as the other part in the end
TIME_SCALE, TIME_OFFSET = 0.999, 0.001
"""Action noise levels are Beta(1.5, 1) * 0.999 + 0.001, as in pi0."""


def noised(clean: Tensor, noise: Tensor, level: Tensor) -> Tensor:
    """(1 - level) * clean + level * noise, with one level (B,) a sample; clean and noise (B, ...)."""
    level = level.view(-1, *([1] * (clean.ndim - 1)))
    return (1 - level) * clean + level * noise


def video_loss(velocity: Tensor, clean: Tensor, noise: Tensor, frames_valid: Tensor) -> Tensor:
    """Mean squared error of the video flow over imagined frames.

    Frame 0 is the clean anchor, whose velocity the sampler knows: it is no part of the loss.

    Args:
        velocity: (B, C, T, h, w) predicted.
        clean: (B, C, T, h, w) latents of the clip.
        noise: (B, C, T, h, w).
        frames_valid: (B, T) False where the episode is over and a frame only repeats its last one.

    Returns:
        a scalar; 0 if no frame is valid.
    """
    error = (velocity.float() - (noise - clean).float())[:, :, 1:].square().mean(dim=(1, 3, 4))
    return _masked_mean(error, frames_valid[:, 1:])


def action_loss(velocity: Tensor, clean: Tensor, noise: Tensor, valid: Tensor) -> Tensor:
    """Mean squared error of the action flow over the actions that exist.

    Columns beyond the robot's (padding up to the head's width) count too: their actions are 0, and a head that does
    not learn that would feed on its own drift there while it integrates.

    Args:
        velocity: (B, A_H, pad) predicted.
        clean: (B, A_H, pad) normalised actions.
        noise: (B, A_H, pad).
        valid: (B, A_H) False where the episode is over.

    Returns:
        a scalar; 0 if no action is valid.
    """
    error = (velocity.float() - (noise - clean).float()).square().mean(dim=2)
    return _masked_mean(error, valid)


def keyframe_loss(guess: Tensor, keyframe: Tensor) -> Tensor:
    """Huber loss of a (B, pad) guess: quadratic within a unit, so that what cannot be known yet does not drown it."""
    return functional.smooth_l1_loss(guess.float(), keyframe)


def point_loss(scores: Tensor, offsets: Tensor, place: Tensor, columns: int) -> Tensor:
    """Cross-entropy of the token that shows a place, and squared error of where in that token it is.

    Args:
        scores: (B, N) of a picture's tokens, row by row.
        offsets: (B, N, 2) columns and rows from each token's middle, in tokens.
        place: (B, 2) columns and rows from the picture's upper left, in tokens; negative: nowhere, no part of the loss.
        columns: tokens in a row.

    Returns:
        a scalar; 0 if every place is nowhere.
    """
    somewhere = (place >= 0).all(dim=1)
    if not somewhere.any():
        return scores.sum() * 0.0
    scores, offsets, place = scores[somewhere].float(), offsets[somewhere].float(), place[somewhere]
    cell = place.long()
    token = cell[:, 1] * columns + cell[:, 0]
    inside = offsets[torch.arange(len(token), device=token.device), token]
    distance = functional.mse_loss(inside, place - cell - 0.5)
    return functional.cross_entropy(scores, token) + _OFFSET_WEIGHT * distance


def _masked_mean(error: Tensor, valid: Tensor) -> Tensor:
    weight = valid.to(error.dtype)
    return (error * weight).sum() / weight.sum().clamp_min(1)


def action_times(count: int, generator: torch.Generator) -> Tensor:
    """(count,) float32 noise levels of actions: Beta(1.5, 1) * 0.999 + 0.001.

    Beta(a, 1) has the distribution function x^a, so that a uniform u gives u^(1/a).
    """
    uniform = torch.rand(count, generator=generator, dtype=torch.float64)
    return (uniform ** (1 / BETA_ALPHA) * TIME_SCALE + TIME_OFFSET).float()


def video_sigmas(
    count: int, generator: torch.Generator, grid_share: float = 0.0, grid_weights: Sequence[float] = EQUAL_WEIGHTS
) -> Tensor:
    """(count,) float32 noise levels of videos.

    Args:
        count: how many.
        generator: on the CPU.
        grid_share: probability that a level is one of the six points the sampler uses, and not uniform in [0, 1]. 0 is
            the paper's; a small model does better on the levels it is used at.
        grid_weights: how likely each of the six points is, relative to the others.
    """
    uniform = torch.rand(count, generator=generator)
    grid = torch.from_numpy(sigma_grid().astype(np.float32))
    weights = torch.tensor(grid_weights, dtype=torch.float32)
    points = grid[torch.multinomial(weights, count, replacement=True, generator=generator)]
    return torch.where(torch.rand(count, generator=generator) < grid_share, points, uniform)
