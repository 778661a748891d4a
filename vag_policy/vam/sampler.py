"""From noise to an action chunk: Euler steps along the head's flow, with TR and guidance at every step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vag_policy.vam.action_head import ActionHead, Prefix
from vag_policy.vam.guidance import Branch, guidance_scale, guide
from vag_policy.vam.presets import GuidanceConfig
from vag_policy.vam.temporal_ratio import temporal_ratio


@dataclass(frozen=True)
class Chunk:
    """A sampled chunk and what was measured on the way. S Euler steps, L measured layers, T latent frames.

    Attributes:
        actions: (A_H, pad) normalised actions.
        attention: (S, L, T) float32, attention mass on each latent frame.
        attention_grid: (T, rows, columns) float32, the same at the TR layer token by token, mean over steps.
        ratio: (S,) float64, TR_i.
        baseline: (S,) float64, TR_0; this chunk's own where none was given.
        guidance_scale: (S,) float64, s_i.
    """

    actions: Tensor
    attention: NDArray[np.float32]
    attention_grid: NDArray[np.float32]
    ratio: NDArray[np.float64]
    baseline: NDArray[np.float64]
    guidance_scale: NDArray[np.float64]


@torch.no_grad()
def sample_chunk(
    head: ActionHead,
    prefix: Prefix,
    state: Tensor,
    noise: Tensor,
    *,
    steps: int,
    layers: Sequence[int],
    tr_layer: int,
    guidance: GuidanceConfig,
    branches: Mapping[str, Branch],
    baseline: NDArray[np.float64] | None = None,
) -> Chunk:
    """Integrate the action flow from noise (time 1) to actions (time 0) with equal Euler steps.

    Args:
        head: the action head.
        prefix: of the conditional features; batch 1.
        state: (1, D) normalised proprioception.
        noise: (1, A_H, pad) standard normal; the steps are taken in its dtype.
        steps: S.
        layers: measured head layers, 1-indexed.
        tr_layer: the layer TR is read from, one of ``layers``.
        guidance: mode, weights, kind of baseline.
        branches: ``null`` and ``plan``, computed only where guidance needs them.
        baseline: (S,) TR_0, or None in the episode's first replan.

    Raises:
        ValueError: a shape does not fit the head or ``steps``.
    """
    if noise.shape[0] != 1:
        raise ValueError(f"one chunk at a time: noise must be (1, A_H, pad), got {tuple(noise.shape)}")
    if baseline is not None and baseline.shape != (steps,):
        raise ValueError(f"baseline must be ({steps},), one TR_0 a step, got {baseline.shape}")
    dtype = head.action_out.weight.dtype
    state = state.to(dtype)
    monitored = layers.index(tr_layer)
    actions, scales, masses, grids = noise, [], [], []
    for step in range(steps):
        time = torch.full((1,), 1 - step / steps, dtype=noise.dtype, device=noise.device)
        velocity = partial(head.velocity, actions.to(dtype), time, state)
        tap = head.tap(prefix, layers, tr_layer)
        conditional = velocity(prefix, tap)
        masses.append(tap.mass[0])
        grids.append(tap.token_mass[0])
        ratio = 0.0
        if guidance.mode == "adaptive" and baseline is not None:  # the only case that must wait for the device
            ratio = float(temporal_ratio(masses[-1][monitored]))
        scale = guidance_scale(guidance, ratio, None if baseline is None else float(baseline[step]))
        guided = guide(guidance, scale, conditional, branches, velocity)
        actions = actions - guided.to(actions.dtype) / steps
        scales.append(scale)
    attention = torch.stack(masses)
    ratios = temporal_ratio(attention[:, monitored]).cpu().numpy()
    if baseline is None:
        baseline = ratios if guidance.baseline == "per_step" else np.full(steps, ratios.mean())
    return Chunk(
        actions=actions[0],
        attention=attention.float().cpu().numpy(),
        attention_grid=torch.stack(grids).mean(0).float().cpu().numpy(),
        ratio=ratios,
        baseline=baseline,
        guidance_scale=np.array(scales),
    )
