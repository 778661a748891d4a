"""Small policies and observations for the tests of the video-action model."""

import numpy as np
import torch

from vag_policy.observation.observation import Observation
from vag_policy.policy import Policy

INSTRUCTION = "put the red cube in the bowl"

SMALL_LIBERO = {
    "video.backbone.num_layers": 3,
    "video.backbone.num_attention_heads": 2,
    "video.backbone.attention_head_dim": 32,
    "video.backbone.text_embed_dim": 32,
    "video.backbone.adaln_lora_dim": 8,
    "video.backbone.crossattn_proj_in_channels": 48,
    "video.tokenizer.base_dim": 4,
    "video.tokenizer.num_res_blocks": 1,
    "video.text.tokens": 6,
    "video.text.width": 48,
    "video.feature_block": 2,
    "head.layers": 3,
    "head.width": 32,
    "head.head_dim": 8,
    "head.mlp": 64,
    "head.video_width": 64,
    "tr_layer": 2,
}
"""Overrides that shrink the libero preset's networks and keep its images, tokens, names and chunk."""


def picture(policy: Policy, seed: int = 0) -> np.ndarray:
    """Coloured rectangles at the policy's image size."""
    width, height = policy.image_size
    rng = np.random.default_rng(seed)
    image = np.full((height, width, 3), 120, np.uint8)
    for _ in range(12):
        x, y = rng.integers(0, width), rng.integers(0, height)
        image[y : y + height // 4, x : x + width // 10] = rng.integers(0, 256, 3)
    return image


def make_observation(policy: Policy, **changes) -> Observation:
    """An observation the policy accepts, with some fields changed."""
    fields = {
        "stamp_ns": 1_000_000_000,
        "image": picture(policy),
        "camera_names": policy.camera_names,
        "state": np.linspace(-0.2, 0.9, len(policy.state_names), dtype=np.float32),
        "state_names": policy.state_names,
        "source_stamp_ns": {},
        "age_ns": {},
    }
    return Observation(**(fields | changes))


def count_calls(monkeypatch, owner, name: str) -> list[tuple]:
    """Replace a method by itself and a list of the positional arguments of its calls."""
    calls: list[tuple] = []
    original = getattr(owner, name)

    def counted(*args, **kwargs):
        calls.append(args)
        return original(*args, **kwargs)

    monkeypatch.setattr(owner, name, counted)
    return calls


def weights_equal(first: torch.nn.Module, second: torch.nn.Module) -> bool:
    """Whether two modules have bit-equal tensors of the same names."""
    a, b = first.state_dict(), second.state_dict()
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)
