"""The grid and the rollout, against diffusers' schedulers and the parts of its pipeline."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from diffusers import FlowMatchEulerDiscreteScheduler, UniPCMultistepScheduler
from video_reference import SMALL_BACKBONE, install_resize, published_transformer, reference_rollout

from vag_policy.video import anchor as anchor_module
from vag_policy.video import backbone as backbone_module
from vag_policy.video import sampler
from vag_policy.video.backbone import VideoBackbone
from vag_policy.video.presets import BackboneConfig, video_preset
from vag_policy.video.sampler import make_solver, rollout, sigma_grid

PAPER = [1.00000, 0.95266, 0.88321, 0.77143, 0.56165, 0.02441]
LIBERO = video_preset("libero")
CONFIG = BackboneConfig(**SMALL_BACKBONE | {"num_layers": 2, "num_attention_heads": 1})


def test_grid_is_the_papers_to_five_digits():
    grid = sigma_grid()
    assert grid.dtype == np.float64
    assert [round(float(sigma), 5) for sigma in grid] == PAPER


def test_grid_is_flow_match_eulers():
    euler = FlowMatchEulerDiscreteScheduler(shift=5.0)
    euler.set_timesteps(6)
    np.testing.assert_allclose(sigma_grid(), euler.sigmas[:6].numpy(), rtol=0, atol=1e-6)
    assert euler.sigmas[6] == 0


def test_solver_walks_the_grid_and_then_to_zero():
    np.testing.assert_allclose(make_solver().sigmas.numpy(), [*sigma_grid(), 0.0], rtol=0, atol=1.1e-6)
    assert 1 - make_solver().sigmas[0] == pytest.approx(1e-6, rel=0.05)


def test_default_unipc_and_karras_grids_are_others():
    """The trap the explicit sigmas avoid."""
    flow = {"use_flow_sigmas": True, "prediction_type": "flow_prediction", "flow_shift": 5.0}
    for extra in ({}, {"use_karras_sigmas": True}):
        solver = UniPCMultistepScheduler(**flow, **extra)
        solver.set_timesteps(6)
        assert np.abs(solver.sigmas[:6].numpy() - sigma_grid()).max() > 0.05


def test_grid_of_another_size():
    grid = sigma_grid(steps=4, shift=3.0)
    assert grid.shape == (4,) and grid[0] == 1 and np.all(np.diff(grid) < 0)
    euler = FlowMatchEulerDiscreteScheduler(shift=3.0)
    euler.set_timesteps(4)
    np.testing.assert_allclose(grid, euler.sigmas[:4].numpy(), atol=1e-6)
    for arguments in ({"steps": 1}, {"shift": 0.0}):
        with pytest.raises(ValueError, match="at least 2 steps"):
            sigma_grid(**arguments)


@pytest.fixture(scope="module")
def scene():
    """A small network at LIBERO's latent size, with all a rollout is given."""
    torch.manual_seed(0)
    backbone = VideoBackbone(CONFIG).eval()
    width, height = LIBERO.latent_size
    embedding = torch.randn(1, 4, CONFIG.crossattn_proj_in_channels)
    return {
        "backbone": backbone,
        "embedding": embedding,
        "anchor": torch.randn(1, 16, 1, height, width),
        "noise": torch.randn(1, 16, 5, height, width),
        "text": backbone.text(embedding).detach(),
    }


def run(scene, stop_index=None, **options):
    return rollout(scene["backbone"], scene["anchor"], scene["text"], scene["noise"], stop_index, **options)


@pytest.mark.parametrize("anchor_timestep", [1e-4, None])
def test_rollout_is_the_pipelines(scene, monkeypatch, anchor_timestep):
    install_resize(monkeypatch)
    states, inputs = reference_rollout(
        published_transformer(scene["backbone"].transformer),
        scene["embedding"],
        scene["anchor"],
        scene["noise"],
        conditional_frame_timestep=-1.0 if anchor_timestep is None else anchor_timestep,
    )
    assert (states[2] - states[0]).abs().max() > 0.01
    for index in (0, 1, 2, 5):
        latents = run(scene, index, anchor_timestep=anchor_timestep)
        torch.testing.assert_close(latents, states[index], rtol=0, atol=1e-5)
        seen = anchor_module.with_anchor(latents, scene["anchor"])
        torch.testing.assert_close(seen, inputs[index], rtol=0, atol=1e-5)
    torch.testing.assert_close(run(scene, None, anchor_timestep=anchor_timestep), states[6], rtol=0, atol=1e-5)


def test_anchor_stays_clean(scene):
    """At every call the network sees the exact anchor, marked as such; the result begins with it."""
    seen = []
    handle = scene["backbone"].transformer.patch_embed.register_forward_hook(
        lambda module, args, output: seen.append(args[0])
    )
    video = run(scene)
    handle.remove()
    assert len(seen) == 6
    for inputs in seen:
        assert inputs.shape[1] == 18
        assert torch.equal(inputs[:, :16, :1], scene["anchor"])
        assert torch.all(inputs[:, 16, 0] == 1) and torch.all(inputs[:, 16, 1:] == 0)
        assert torch.all(inputs[:, 17] == 0)
    torch.testing.assert_close(video[:, :, :1], scene["anchor"], rtol=0, atol=1e-5)


def drop_mask(latents, pad_rows=0, pad_columns=0):
    inputs = anchor_module.with_mask_channels(latents, pad_rows, pad_columns)
    inputs[:, 16] = 0
    return inputs


@pytest.mark.parametrize(
    ("module", "name", "without"),
    [
        (backbone_module, "with_mask_channels", drop_mask),
        (backbone_module, "with_anchor", lambda latents, anchor: latents),
        (sampler, "with_anchor_velocity", lambda velocity, noise, anchor: velocity),
        (
            backbone_module,
            "frame_timesteps",
            lambda sigma, frames, _: sigma.view(-1, 1, 1, 1, 1).repeat(1, 1, frames, 1, 1),
        ),
    ],
)
def test_each_anchor_operation_matters(scene, monkeypatch, module, name, without):
    complete = run(scene)
    monkeypatch.setattr(module, name, without)
    assert (run(scene) - complete).abs().max() > 1e-3


def test_stop_index_zero_is_the_noise(scene):
    assert torch.equal(run(scene, 0), scene["noise"])


def test_rollout_keeps_no_gradients_and_leaves_its_noise_alone(scene):
    before = scene["noise"].clone()
    assert not run(scene, 1).requires_grad
    assert torch.equal(scene["noise"], before)


def test_batch_of_two_is_two_rollouts(scene):
    backbone, noise = scene["backbone"], torch.randn(2, 16, 5, 6, 8)
    anchor, text = torch.randn(2, 16, 1, 6, 8), backbone.text(torch.randn(2, 4, 256)).detach()
    both = rollout(backbone, anchor, text, noise, 3)
    for one in (slice(0, 1), slice(1, 2)):
        alone = rollout(backbone, anchor[one], text[one], noise[one], 3)
        torch.testing.assert_close(both[one], alone, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("frames", [5, 9, 24])
def test_horizons(scene, frames):
    backbone = scene["backbone"]
    noise, anchor = torch.randn(1, 16, frames, 3, 4), torch.randn(1, 16, 1, 3, 4)
    latents = rollout(backbone, anchor, scene["text"], noise, 2)
    features = backbone.features(latents, anchor, float(sigma_grid()[2]), scene["text"], 1)
    assert features[:, :5].shape == (1, 5, 2, 2, CONFIG.width)


@pytest.mark.parametrize("frames", [1, 4, 6, 25])
def test_other_horizons_are_refused(scene, frames):
    with pytest.raises(ValueError, match=rf"5, 9, 24, got {frames}"):
        rollout(scene["backbone"], scene["anchor"], scene["text"], torch.zeros(1, 16, frames, 28, 56), 1)


@pytest.mark.parametrize("stop_index", [-1, 6])
def test_stop_index_outside_the_grid_is_refused(scene, stop_index):
    with pytest.raises(ValueError, match=rf"0..5 or None, got {stop_index}"):
        run(scene, stop_index)


@pytest.mark.parametrize("name", ["yam", "libero"])
def test_the_2b_rollout_reads_nothing_back_to_the_host(name):
    """Meta tensors have no values: a copy to the host would raise. Shapes are the real ones."""
    preset = video_preset(name)
    width, height = preset.latent_size
    with torch.device("meta"):
        backbone = VideoBackbone(preset.backbone)
        text = backbone.text(torch.empty(1, preset.text.tokens, preset.text.width))
        anchor, noise = torch.empty(1, 16, 1, height, width), torch.empty(1, 16, 5, height, width)
    latents = rollout(backbone, anchor, text, noise, preset.sigma_index)
    features = backbone.features(latents, anchor, 0.88321, text, preset.feature_block)
    assert latents.shape == noise.shape
    assert features.shape == (1, 5, *preset.grid, 2048)
