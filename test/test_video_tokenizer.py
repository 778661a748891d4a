"""The tokenizer against the VAE and the pipeline's own latents."""

from __future__ import annotations

import json
import types
from dataclasses import replace

import numpy as np
import pytest
import torch
from diffusers.pipelines.cosmos.pipeline_cosmos2_5_predict import Cosmos2_5_PredictBasePipeline

from vag_policy.video.presets import WAN_LATENTS_MEAN, WAN_LATENTS_STD, TokenizerConfig
from vag_policy.video.tokenizer import VideoTokenizer, frames_from_uint8, frames_to_uint8

CONFIG = TokenizerConfig(base_dim=8, num_res_blocks=1)


@pytest.fixture(scope="module")
def tokenizer():
    torch.manual_seed(0)
    return VideoTokenizer(CONFIG).eval()


@pytest.fixture(scope="module")
def clip():
    frames = np.random.default_rng(0).integers(0, 256, (9, 16, 32, 3), dtype=np.uint8)
    return frames_from_uint8(frames)


def pipeline_latents(vae, clip, frames):
    """``prepare_latents`` of the pipeline itself, on a stand-in with what its constructor computes."""
    pipeline = types.SimpleNamespace(
        vae=vae,
        vae_scale_factor_temporal=4,
        vae_scale_factor_spatial=8,
        latents_mean=torch.tensor(vae.config.latents_mean).view(1, 16, 1, 1, 1).float(),
        latents_std=1.0 / torch.tensor(vae.config.latents_std).view(1, 16, 1, 1, 1).float(),
    )
    pipeline.create_condition_mask = types.MethodType(Cosmos2_5_PredictBasePipeline.create_condition_mask, pipeline)
    _, cond_latents, _, _ = Cosmos2_5_PredictBasePipeline.prepare_latents(
        pipeline,
        video=clip,
        batch_size=1,
        height=clip.shape[-2],
        width=clip.shape[-1],
        num_frames_in=frames,
        num_frames_out=clip.shape[2],
        dtype=torch.float32,
        device="cpu",
    )
    return cond_latents


@torch.no_grad()
def test_latents_are_the_pipelines(tokenizer, clip):
    latents = tokenizer.encode(clip)
    assert latents.shape == (1, 16, 3, 2, 4)
    torch.testing.assert_close(latents, pipeline_latents(tokenizer.vae, clip, 9), rtol=1e-6, atol=1e-6)


@torch.no_grad()
def test_one_image_is_the_first_latent_of_a_clip(tokenizer, clip):
    anchor = tokenizer.encode_image(clip[:, :, 0])
    assert anchor.shape == (1, 16, 1, 2, 4)
    torch.testing.assert_close(anchor, tokenizer.encode(clip)[:, :, :1], rtol=1e-5, atol=1e-5)
    # ... and so of the pipeline's, which pads an image with black frames and encodes them all.
    padded = torch.cat([clip[:, :, :1], torch.zeros_like(clip[:, :, 1:])], dim=2)
    torch.testing.assert_close(anchor, pipeline_latents(tokenizer.vae, padded, 1)[:, :, :1], rtol=1e-5, atol=1e-5)
    assert not torch.allclose(anchor, tokenizer.encode_image(clip[:, :, 1]))


@torch.no_grad()
def test_statistics_standardise(tokenizer, clip):
    raw = tokenizer.vae.encode(clip).latent_dist.mode()
    config = replace(CONFIG, latents_mean=tuple(raw.mean((0, 2, 3, 4)).tolist()))
    config = replace(config, latents_std=tuple(raw.std((0, 2, 3, 4)).tolist()))
    other = VideoTokenizer(config).eval()
    other.load_state_dict(tokenizer.state_dict())
    latents = other.encode(clip)
    torch.testing.assert_close(latents.mean((0, 2, 3, 4)), torch.zeros(16), rtol=0, atol=1e-5)
    torch.testing.assert_close(latents.std((0, 2, 3, 4)), torch.ones(16), rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_decode_undoes_the_normalisation(tokenizer, clip):
    latents = tokenizer.encode(clip)
    frames = tokenizer.decode(latents)
    assert frames.shape == clip.shape
    expected = tokenizer.vae.decode(tokenizer.vae.encode(clip).latent_dist.mode()).sample
    torch.testing.assert_close(frames, expected, rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_half_precision_keeps_float32_latents_and_exact_statistics(clip):
    torch.manual_seed(0)
    tokenizer = VideoTokenizer(CONFIG).eval().to(torch.bfloat16)
    latents = tokenizer.encode(clip)
    assert latents.dtype == torch.float32
    raw = tokenizer.vae.encode(clip.bfloat16()).latent_dist.mode().float()
    mean, std = (torch.tensor(values).view(1, 16, 1, 1, 1) for values in (WAN_LATENTS_MEAN, WAN_LATENTS_STD))
    torch.testing.assert_close(latents, (raw - mean) / std)
    assert tokenizer.decode(latents).dtype == torch.float32


@pytest.mark.parametrize("shape", [(1, 3, 8, 16, 16), (1, 3, 5, 12, 16), (1, 4, 5, 16, 16), (1, 3, 16, 16)])
def test_other_clips_are_refused(tokenizer, shape):
    with pytest.raises(ValueError, match="frames must"):
        tokenizer.encode(torch.zeros(shape))


def test_other_images_and_latents_are_refused(tokenizer):
    with pytest.raises(ValueError, match="image must be"):
        tokenizer.encode_image(torch.zeros(1, 3, 1, 16, 16))
    with pytest.raises(ValueError, match=r"latents must be \(B, 16"):
        tokenizer.decode(torch.zeros(1, 8, 1, 2, 2))


def test_frames_from_uint8():
    image = np.zeros((2, 3, 3), dtype=np.uint8)
    image[1, 2] = [255, 51, 0]
    image.setflags(write=False)  # messages bring read-only memory
    frames = frames_from_uint8(image)
    assert frames.shape == (1, 3, 1, 2, 3) and frames.dtype == torch.float32
    assert frames[0, :, 0, 1, 2].tolist() == pytest.approx([1.0, -0.6, -1.0])
    assert frames_from_uint8(np.stack([image] * 5)).shape == (1, 3, 5, 2, 3)
    for bad in (image.astype(np.float32), np.zeros((2, 3), np.uint8), np.zeros((2, 3, 4), np.uint8)):
        with pytest.raises(ValueError, match="image must be"):
            frames_from_uint8(bad)


def test_uint8_round_trip_and_clamp():
    image = np.arange(256, dtype=np.uint8).repeat(3).reshape(1, 16, 16, 3)
    np.testing.assert_array_equal(frames_to_uint8(frames_from_uint8(image))[0], image)
    assert frames_to_uint8(torch.tensor([-1.5, 0.0, 2.0]).view(1, 3, 1, 1, 1)).flatten().tolist() == [0, 128, 255]


@torch.no_grad()
def test_published_folder_loads(tokenizer, clip, tmp_path):
    tokenizer.vae.save_pretrained(tmp_path)
    loaded = VideoTokenizer.from_pretrained(tmp_path, CONFIG).eval()
    assert torch.equal(loaded.encode(clip), tokenizer.encode(clip))
    stored = json.loads((tmp_path / "config.json").read_text())
    del stored["latents_std"]  # older files leave out what is the library's default
    (tmp_path / "config.json").write_text(json.dumps(stored))
    VideoTokenizer.from_pretrained(tmp_path, CONFIG)
    with pytest.raises(ValueError, match="latents_std"):
        VideoTokenizer.from_pretrained(tmp_path, replace(CONFIG, latents_std=(1.0,) * 16))
    (tmp_path / "diffusion_pytorch_model.safetensors").rename(tmp_path / "diffusion_pytorch_model.bin")
    with pytest.raises(ValueError, match="pickled weights are not read"):
        VideoTokenizer.from_pretrained(tmp_path, CONFIG)
    (tmp_path / "diffusion_pytorch_model.safetensors").write_bytes(b"not safetensors")
    with pytest.raises(ValueError, match="do not fit"):
        VideoTokenizer.from_pretrained(tmp_path, CONFIG)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ValueError, match="not JSON"):
        VideoTokenizer.from_pretrained(tmp_path, CONFIG)
