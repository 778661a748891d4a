"""Sizes of the video presets, and what a bad configuration is told."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

import pytest
import torch
from diffusers import AutoencoderKLWan

from vag_policy.video.backbone import VideoBackbone
from vag_policy.video.presets import (
    LATENT_FRAMES,
    VIDEO_PRESETS,
    BackboneConfig,
    TextConfig,
    TokenizerConfig,
    check_latent_frames,
    video_frames,
    video_preset,
)

PATCH = video_preset("tiny").tokenizer


@pytest.mark.parametrize(
    ("name", "latent_size", "grid", "tokens"),
    [
        ("yam", (84, 21), (11, 42), 462),
        ("libero", (56, 28), (14, 28), 392),
        ("tiny", (36, 8), (4, 18), 72),
    ],
)
def test_token_counts(name, latent_size, grid, tokens):
    preset = video_preset(name)
    assert preset.latent_size == latent_size
    assert preset.grid == grid
    assert preset.tokens_per_frame == tokens


def test_libero_groups_of_two_by_two_leave_98_tokens_a_frame():
    rows, columns = video_preset("libero").grid
    assert rows % 2 == 0 and columns % 2 == 0
    assert (rows // 2) * (columns // 2) == 98


@pytest.mark.parametrize("name", ["yam", "libero", "tiny"])
def test_grid_is_what_the_network_makes_of_the_latents(name):
    preset = video_preset(name)
    width, height = preset.latent_size
    with torch.device("meta"):
        backbone = VideoBackbone(replace(preset.backbone, num_layers=1))
        text = backbone.text(torch.empty(1, preset.text.tokens, preset.text.width))
        latents = torch.empty(1, preset.backbone.out_channels, preset.latent_frames, height, width)
        features = backbone.features(latents, latents[:, :, :1], 0.5, text, block=1)
    assert features.shape == (1, 5, *preset.grid, preset.backbone.width)


def test_backbone_of_the_large_presets_has_2_059_billion_parameters():
    assert video_preset("yam").backbone == video_preset("libero").backbone == BackboneConfig()
    with torch.device("meta"):
        count = sum(p.numel() for p in VideoBackbone(BackboneConfig()).parameters())
    assert round(count / 1e9, 3) == 2.059


def test_default_tokenizer_is_the_library_default():
    library = dict(AutoencoderKLWan.from_config({}).config)
    wanted = TokenizerConfig().kwargs()
    assert {name: library[name] for name in wanted} == wanted


def test_large_presets_read_features_after_block_20_at_index_2():
    for name in ("yam", "libero"):
        preset = video_preset(name)
        assert (preset.feature_block, preset.sigma_index, preset.backbone.num_layers) == (20, 2, 28)


def test_video_frames():
    assert [video_frames(t) for t in LATENT_FRAMES] == [17, 33, 93]


def test_latent_frames_lists_the_allowed_values():
    assert [check_latent_frames(t) for t in (5, 9, 24)] == [5, 9, 24]
    for frames in (0, 1, 6, 25):
        with pytest.raises(ValueError, match=rf"5, 9, 24, got {frames}"):
            check_latent_frames(frames)


def test_unknown_preset_lists_the_names():
    with pytest.raises(ValueError, match="'yamm'.*libero, tiny, yam"):
        video_preset("yamm")


@pytest.mark.parametrize("name", ["yam", "libero", "tiny"])
def test_configuration_survives_json(name):
    preset = VIDEO_PRESETS[name]
    raw = json.loads(json.dumps(asdict(preset)))
    raw["backbone"] = BackboneConfig(**raw["backbone"])
    raw["tokenizer"] = TokenizerConfig(**raw["tokenizer"])
    raw["text"] = TextConfig(**raw["text"])
    assert type(preset)(**raw) == preset


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"feature_block": 6}, "feature_block must be 1..5, got 6"),
        ({"feature_block": 0}, "feature_block must be 1..5, got 0"),
        ({"sigma_index": 6}, "sigma_index must be 0..5, got 6"),
        ({"latent_frames": 7}, "5, 9, 24, got 7"),
        ({"image_size": (288, 70)}, "multiples of 8.*288x70"),
        ({"image_size": (280, 64)}, "divisible by 3 cameras"),
        ({"cameras": ("top", "top", "wrist")}, "distinct"),
        ({"video_fps": 0}, "video_fps"),
        ({"text": TextConfig("words", 24, 128)}, "text is 128 wide, the backbone projects 256"),
        ({"tokenizer": TokenizerConfig(z_dim=8, latents_mean=(0,) * 8, latents_std=(1,) * 8)}, "8 channels.*takes 48"),
    ],
)
def test_bad_preset_is_named(change, message):
    with pytest.raises(ValueError, match=message):
        replace(video_preset("tiny"), **change)


@pytest.mark.parametrize(
    ("config", "change", "message"),
    [
        (BackboneConfig(), {"in_channels": 17}, r"in_channels must be out_channels \+ 2.*18, got 17"),
        (BackboneConfig(), {"patch_size": (2, 2, 2)}, "patch_size must be 1 in time"),
        (BackboneConfig(), {"attention_head_dim": 33}, "attention_head_dim"),
        (BackboneConfig(), {"num_layers": 0}, "num_layers must be 1..1000, got 0"),
        (TokenizerConfig(), {"latents_std": (0.0,) * 16}, "latents_std must be 1e-06..1e"),
        (TokenizerConfig(), {"latents_mean": (0.0,) * 15}, "latents_mean must have z_dim=16 entries, got 15"),
        (TokenizerConfig(), {"temperal_downsample": (True, True, True)}, "two of them true"),
        (TokenizerConfig(), {"dim_mult": (1, 2, 4)}, "four stages"),
        (TokenizerConfig(), {"kind": "vae"}, "'vae'; allowed: wan, patch"),
        (TokenizerConfig(), {"kind": "patch"}, "latents_mean and latents_std must be empty"),
        (PATCH, {"z_dim": 193}, "z_dim must be 1..192"),
        (PATCH, {"chroma_gain": 0.0}, "chroma_gain must be 0.001..1000, got 0.0"),
        (TextConfig("words", 4, 8), {"kind": "t5"}, "'t5'.*cosmos_reason1, words"),
        (TextConfig("words", 4, 8), {"tokens": 0}, "text tokens must be 1..65536, got 0"),
        (BackboneConfig(), {"rope_scale": (1.0, float("nan"), 1.0)}, "rope_scale must be 0.001..1000, got nan"),
        (BackboneConfig(), {"mlp_ratio": 1e18}, "mlp_ratio"),
    ],
)
def test_bad_part_is_named(config, change, message):
    with pytest.raises(ValueError, match=message):
        replace(config, **change)
