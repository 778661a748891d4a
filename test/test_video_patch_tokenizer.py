"""The linear tokenizer: its layout is the VAE's, what it keeps is what pictures vary in."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from vag_policy.video.patch_tokenizer import PatchTokenizer
from vag_policy.video.presets import video_preset
from vag_policy.video.tokenizer import VideoTokenizer, frames_from_uint8
from vag_policy.video.tokenizers import make_tokenizer

CONFIG = replace(video_preset("tiny").tokenizer, z_dim=24)


def clip(seed, frames=9, height=32, width=48):
    """A coloured disc moving over a shaded table."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[:height, :width]
    table = np.stack([150 + 40 * np.sin(x / 9 + c) + 20 * np.cos(y / 7) for c in range(3)], axis=-1)
    colour, start, speed = rng.integers(0, 256, 3), rng.uniform(8, 24, 2), rng.uniform(-1.5, 1.5, 2)
    pictures = np.repeat(table[None], frames, axis=0)
    for index in range(frames):
        row, column = start + speed * index
        pictures[index][(y - row) ** 2 + (x - column) ** 2 < 36] = colour
    return pictures.clip(0, 255).astype(np.uint8)


@pytest.fixture(scope="module")
def tokenizer():
    fitted = PatchTokenizer(CONFIG)
    fitted.fit(clip(seed) for seed in range(40))
    return fitted


def psnr(frames, decoded):
    return 10 * np.log10(4 / (frames - decoded).square().mean().item())


def test_shapes_are_the_vaes(tokenizer):
    frames = frames_from_uint8(clip(0))
    latents = tokenizer.encode(frames)
    assert latents.shape == (1, 24, 3, 4, 6) and latents.dtype == torch.float32
    assert tokenizer.decode(latents).shape == frames.shape
    assert isinstance(make_tokenizer(CONFIG), PatchTokenizer)
    with torch.device("meta"):
        assert isinstance(make_tokenizer(video_preset("yam").tokenizer), VideoTokenizer)
        assert make_tokenizer(CONFIG).encode(torch.empty(1, 3, 5, 16, 16)).shape == (1, 24, 2, 2, 2)


def test_one_image_is_the_first_latent_of_a_clip(tokenizer):
    frames = frames_from_uint8(clip(3))
    latents = tokenizer.encode(frames)
    assert torch.equal(tokenizer.encode_image(frames[:, :, 0]), latents[:, :, :1])
    changed = frames.clone()
    changed[:, :, 5:] = 0.5  # later frames do not reach earlier latents
    assert torch.equal(tokenizer.encode(changed)[:, :, :2], latents[:, :, :2])
    assert not torch.equal(tokenizer.encode(changed)[:, :, 2], latents[:, :, 2])


def test_round_trip_of_unseen_clips(tokenizer):
    frames = torch.cat([frames_from_uint8(clip(seed)) for seed in range(100, 105)])
    decoded = tokenizer.decode(tokenizer.encode(frames))
    assert psnr(frames[:, :, :1], decoded[:, :, :1]) > 30
    assert psnr(frames, decoded) > 28
    # No linear codec of this size does better on the changes it was fitted to; the cosine transform it starts as shows
    # the picture too.
    frames = torch.cat([frames_from_uint8(clip(seed)) for seed in range(40)])
    fitted = PatchTokenizer(replace(CONFIG, chroma_gain=1.0))
    unfitted = fitted.decode(fitted.encode(frames))
    fitted.fit(clip(seed) for seed in range(40))
    assert psnr(frames, fitted.decode(fitted.encode(frames))) > psnr(frames, unfitted) > 25
    whole = PatchTokenizer(replace(CONFIG, z_dim=192))
    whole.fit(clip(seed) for seed in range(10))
    image = frames[:, :, :1]
    torch.testing.assert_close(whole.decode(whole.encode(image)), image, rtol=0, atol=2e-3)


def test_what_stands_still_is_zero_and_costs_nothing(tokenizer):
    still = np.repeat(clip(7, frames=1), 9, axis=0)
    latents = tokenizer.encode(frames_from_uint8(still))
    rest = tokenizer.encode(frames_from_uint8(np.zeros_like(still)))[:, :, 1:]  # nothing changes there either
    torch.testing.assert_close(latents[:, :, 1:], rest, rtol=0, atol=1e-5)
    decoded = tokenizer.decode(latents)
    torch.testing.assert_close(decoded, decoded[:, :, :1].expand_as(decoded), rtol=0, atol=0.03)


def test_it_is_linear_up_to_the_mean(tokenizer):
    one, other = frames_from_uint8(clip(1)), frames_from_uint8(clip(2))
    mixed = tokenizer.encode(0.3 * one + 0.7 * other)
    torch.testing.assert_close(mixed, 0.3 * tokenizer.encode(one) + 0.7 * tokenizer.encode(other), rtol=0, atol=1e-4)
    z, w = tokenizer.encode(one), tokenizer.encode(other)
    mixed = tokenizer.decode(0.3 * z + 0.7 * w)
    torch.testing.assert_close(mixed, 0.3 * tokenizer.decode(z) + 0.7 * tokenizer.decode(w), rtol=0, atol=1e-5)
    torch.testing.assert_close(tokenizer.encode(tokenizer.decode(z)), z, rtol=0, atol=1e-3)  # a projection


def test_latents_are_white(tokenizer):
    latents = torch.cat([tokenizer.encode(frames_from_uint8(clip(seed))) for seed in range(40)])
    for frames in (latents[:, :, :1], latents[:, :, 1:]):
        rows = frames.transpose(0, 1).flatten(1)
        torch.testing.assert_close(rows.mean(1), torch.zeros(24), rtol=0, atol=1e-3)
        torch.testing.assert_close(torch.cov(rows), torch.eye(24), rtol=0, atol=0.02)


def test_colour_is_kept_before_brightness():
    """Two patches of one brightness and different hue: with few channels only a weighted codec tells them apart."""
    rng = np.random.default_rng(0)
    clips = []
    for _ in range(60):
        picture = rng.integers(60, 190, (1, 16, 16, 1)) + rng.integers(-50, 50, (1, 16, 16, 1)) + np.zeros((5, 1, 1, 3))
        hue = rng.integers(-14, 15)
        clips.append((picture + np.array([hue, 0, -hue])).clip(0, 255).astype(np.uint8))
    frames = torch.cat([frames_from_uint8(c) for c in clips[:10]])

    def hue_error(gain):
        codec = PatchTokenizer(replace(CONFIG, z_dim=4, chroma_gain=gain))
        codec.fit(clips)
        decoded = codec.decode(codec.encode(frames))
        return ((frames[:, 0] - frames[:, 2]) - (decoded[:, 0] - decoded[:, 2])).square().mean().item()

    assert hue_error(20.0) < 0.3 * hue_error(1.0)


def test_a_pixel_that_never_varies_is_harmless():
    black = PatchTokenizer(CONFIG)
    black.fit([np.zeros((5, 16, 16, 3), np.uint8)])
    assert torch.isfinite(black.encode(torch.rand(1, 3, 5, 16, 16) * 2 - 1)).all()


def test_weights_travel_by_state_dict(tokenizer):
    other = PatchTokenizer(CONFIG)
    other.load_state_dict(tokenizer.state_dict())
    frames = frames_from_uint8(clip(5))
    assert torch.equal(other.encode(frames), tokenizer.encode(frames))


def test_what_cannot_be_fitted_or_encoded_is_refused():
    with pytest.raises(ValueError, match="at least one clip"):
        PatchTokenizer(CONFIG).fit([])
    with pytest.raises(ValueError, match="1 \\+ 4n frames, at least 5, got 1"):
        PatchTokenizer(CONFIG).fit([np.zeros((1, 16, 16, 3), np.uint8)])
    with pytest.raises(ValueError, match="frames must number"):
        PatchTokenizer(CONFIG).encode(torch.zeros(1, 3, 4, 16, 16))
    with pytest.raises(ValueError, match=r"latents must be \(B, 24"):
        PatchTokenizer(CONFIG).decode(torch.zeros(1, 16, 2, 2, 2))
