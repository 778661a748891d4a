"""From noise along the six-point grid towards a video: the UniPC solver around the backbone.

One point of the grid is one full solver step. Features at index j are read after j steps, at ``sigma_grid()[j]``.
"""

from __future__ import annotations

import numpy as np
import torch
from diffusers.schedulers.scheduling_unipc_multistep import UniPCMultistepScheduler
from numpy.typing import NDArray
from torch import Tensor

from vag_policy.video.anchor import ANCHOR_TIMESTEP, with_anchor_velocity
from vag_policy.video.backbone import VideoBackbone
from vag_policy.video.presets import SIGMA_STEPS, check_latent_frames

SHIFT = 5.0
"""Flow shift of Predict2.5 (paper, appendix: inference)."""

_LAST_TIME = 0.001  # 1 / 1000 training timesteps, as FlowMatchEulerDiscreteScheduler has it


def _shifted(time: NDArray[np.float64], shift: float) -> NDArray[np.float64]:
    return shift * time / (1 + (shift - 1) * time)


def _times(steps: int, shift: float) -> NDArray[np.float64]:
    """Points whose shifted values are the grid. The far end is itself a shifted value: the shift acts twice."""
    return np.linspace(1.0, _shifted(np.array(_LAST_TIME), shift), steps)


def sigma_grid(steps: int = SIGMA_STEPS, shift: float = SHIFT) -> NDArray[np.float64]:
    """(steps,) noise levels, falling from 1: 1.00000, 0.95266, 0.88321, 0.77143, 0.56165, 0.02441 by default.

    After the last point a rollout takes one more step, to 0.

    Raises:
        ValueError: fewer than two steps or a shift that is not positive.
    """
    if steps < 2 or shift <= 0:
        raise ValueError(f"the sigma grid needs at least 2 steps and a positive shift, got {steps} and {shift}")
    return _shifted(_times(steps, shift), shift)


def make_solver(steps: int = SIGMA_STEPS, shift: float = SHIFT) -> UniPCMultistepScheduler:
    """UniPC set to ``sigma_grid(steps, shift)`` and then 0.

    The solver's own grid (``set_timesteps(steps)``) is another one; its first level is 1 - 1e-6, since UniPC divides by
    1 - sigma.
    """
    sigma_grid(steps, shift)  # checks the arguments
    solver = UniPCMultistepScheduler(use_flow_sigmas=True, prediction_type="flow_prediction", flow_shift=shift)
    solver.set_timesteps(sigmas=_times(steps, shift))
    solver.set_begin_index(0)  # without it every first step searches for its timestep
    return solver


@torch.no_grad()
def rollout(
    backbone: VideoBackbone,
    anchor: Tensor,
    text: Tensor,
    noise: Tensor,
    stop_index: int | None = None,
    steps: int = SIGMA_STEPS,
    shift: float = SHIFT,
    anchor_timestep: float | None = ANCHOR_TIMESTEP,
) -> Tensor:
    """Denoise ``noise`` behind the clean frame ``anchor``; no gradients.

    Args:
        anchor: (B, C, 1, h, w) latent of the current image.
        text: (B, tokens, text_embed_dim) from ``backbone.text``.
        noise: (B, C, T, h, w) standard normal, float32; T in ``LATENT_FRAMES``.
        stop_index: grid index to stop at; the result is at noise level ``sigma_grid(steps, shift)[stop_index]``, ready
            for ``backbone.features``. 0 takes no step. None runs to noise level 0: the imagined video.
        steps, shift: the grid.
        anchor_timestep: as for ``VideoBackbone.velocity``.

    Returns:
        (B, C, T, h, w) latents. Frame 0 is at the same noise level as the others (the network never sees it: every
        call puts ``anchor`` there); at level 0 it is ``anchor`` to rounding.

    Raises:
        ValueError: T or ``stop_index`` is not allowed, or shapes do not belong together.
    """
    if noise.ndim != 5:
        raise ValueError(f"noise must be (B, C, T, h, w), got {tuple(noise.shape)}")
    check_latent_frames(noise.shape[2])
    if stop_index is not None and not 0 <= stop_index < steps:
        raise ValueError(f"stop_index must be 0..{steps - 1} or None, got {stop_index}")
    anchor = anchor.to(noise.dtype)
    solver = make_solver(steps, shift)
    levels = solver.sigmas.tolist()  # on the host
    solver.sigmas = solver.sigmas.to(noise.device)  # so that a step copies nothing between host and device

    latents = noise
    for index in range(steps if stop_index is None else stop_index):
        velocity = backbone.velocity(latents, anchor, levels[index], text, anchor_timestep)
        velocity = with_anchor_velocity(velocity, noise[:, :, :1], anchor)
        latents = solver.step(velocity, solver.timesteps[index], latents, return_dict=False)[0]
    return latents
