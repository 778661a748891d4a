"""The four anchor operations, one by one, on hand-made tensors."""

from __future__ import annotations

import torch

from vag_policy.video.anchor import (
    anchor_mask,
    frame_timesteps,
    with_anchor,
    with_anchor_velocity,
    with_mask_channels,
)


def ramp(*shape):
    return torch.arange(torch.Size(shape).numel(), dtype=torch.float32).view(shape)


def test_mask_is_one_at_the_first_frame():
    mask = anchor_mask(torch.zeros(3, 16, 4, 2, 2, dtype=torch.float64))
    assert mask.dtype == torch.float64
    assert mask.tolist() == [[[[[1.0]], [[0.0]], [[0.0]], [[0.0]]]]]


def test_mask_channels_come_after_the_latents_condition_first():
    latents = ramp(2, 3, 2, 2, 2)
    out = with_mask_channels(latents)
    assert out.shape == (2, 5, 2, 2, 2)
    assert torch.equal(out[:, :3], latents)
    assert torch.equal(out[:, 3], torch.tensor([1.0, 0.0]).view(1, 2, 1, 1).expand(2, 2, 2, 2))
    assert torch.equal(out[:, 4], torch.zeros(2, 2, 2, 2))


def test_padding_repeats_the_edge_and_is_marked():
    latents = torch.tensor([[1.0, 2.0], [3.0, 4.0]]).view(1, 1, 1, 2, 2)
    out = with_mask_channels(latents, pad_rows=1, pad_columns=1)[0, :, 0]
    assert out[0].tolist() == [[1, 2, 2], [3, 4, 4], [3, 4, 4]]
    assert out[1].tolist() == [[1, 1, 1], [1, 1, 1], [1, 1, 1]]
    assert out[2].tolist() == [[0, 0, 1], [0, 0, 1], [1, 1, 1]]


def test_anchor_replaces_the_first_frame_whatever_is_there():
    latents = ramp(1, 2, 3, 1, 1)
    latents[:, :, 0] = torch.nan
    out = with_anchor(latents, torch.full((1, 2, 1, 1, 1), -1.0))
    assert out[0, :, :, 0, 0].tolist() == [[-1, 1, 2], [-1, 4, 5]]


def test_anchor_velocity_is_noise_minus_clean():
    velocity = ramp(1, 1, 3, 1, 1)
    out = with_anchor_velocity(velocity, torch.full((1, 1, 1, 1, 1), 5.0), torch.full((1, 1, 1, 1, 1), 2.0))
    assert out.flatten().tolist() == [3, 1, 2]


def test_frame_timesteps():
    out = frame_timesteps(torch.tensor([0.5, 0.9]), frames=3)
    assert out.shape == (2, 1, 3, 1, 1)
    torch.testing.assert_close(out.view(2, 3), torch.tensor([[1e-4, 0.5, 0.5], [1e-4, 0.9, 0.9]]))
    assert frame_timesteps(torch.tensor([0.5]), frames=2, anchor_timestep=0.25).flatten().tolist() == [0.25, 0.5]
