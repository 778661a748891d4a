"""A small model and a synthetic dataset to train it on. As a script it trains until it is killed or done."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import torch

from vag_policy.data.samples import Sample
from vag_policy.training.batches import BatchMaker, Place
from vag_policy.training.config import StageConfig, TrainConfig
from vag_policy.training.config_file import load_config
from vag_policy.training.data import fit_normalization
from vag_policy.training.objective import Objective
from vag_policy.vam.action_head import ActionHead
from vag_policy.vam.presets import VamPreset, override, preset
from vag_policy.video.backbone import VideoBackbone
from vag_policy.video.instruction import WordEncoder

SMALL = {
    "video.image_size": [96, 16],
    "video.feature_block": 2,
    "video.backbone.num_layers": 3,
    "video.backbone.num_attention_heads": 1,
    "video.backbone.attention_head_dim": 32,
    "video.backbone.text_embed_dim": 16,
    "video.backbone.adaln_lora_dim": 8,
    "video.backbone.in_channels": 8,
    "video.backbone.out_channels": 6,
    "video.tokenizer.z_dim": 6,
    "head.layers": 2,
    "head.width": 32,
    "head.heads": 2,
    "head.head_dim": 16,
    "head.mlp": 48,
    "head.pad": 16,
    "head.video_width": 32,
    "head.group": 1,
    "tr_layer": 1,
    "action_horizon": 6,
    "execute": 3,
}
"""Changes of the tiny preset that leave every part in place and make a step take milliseconds."""

SETTINGS = override(preset("tiny"), SMALL)
TASKS = ("put the red cube in the blue bowl", "put the can on the plate")


class SyntheticSamples:
    """``count`` samples, each a drifting pattern whose speed, also its actions', depends on the instruction."""

    def __init__(self, count: int = 12) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Sample:
        if not 0 <= index < self.count:
            raise IndexError(index)
        rng = np.random.default_rng(index)
        width, height = SETTINGS.video.image_size
        horizon, names = SETTINGS.action_horizon, len(SETTINGS.action_names)
        speed = 1 + index % 2
        x, y = np.meshgrid(np.arange(width), np.arange(height))
        phase = rng.uniform(0, 6) + 0.3 * speed * np.arange(17)[:, None, None]
        waves = np.stack([np.sin(x / 5 + phase + colour) * np.cos(y / 4) for colour in range(3)], axis=-1)
        state = rng.normal(size=names).astype(np.float32)
        steps = np.arange(1, horizon + 1, dtype=np.float32)[:, None]
        valid = np.arange(horizon) < horizon - index % 3
        return Sample(
            clip=((waves + 1) * 127.5).astype(np.uint8),
            clip_valid=np.arange(17) < 17 - 3 * (index % 3),
            state=state,
            actions=(state + 0.05 * speed * steps).astype(np.float32),
            actions_valid=valid,
            task=TASKS[index % 2],
            frame=index,
            keyframe=(state + speed).astype(np.float32),
        )


def make_objective(settings: VamPreset = SETTINGS, probe: bool = False) -> Objective:
    """Networks with every gate open, so that one backward pass reaches every parameter."""
    torch.manual_seed(0)
    backbone, head = VideoBackbone(settings.video.backbone), ActionHead(settings.head)
    head.draw_modulation()
    if settings.video.backbone.learned_positions:
        torch.nn.init.normal_(backbone.transformer.learnable_pos_embed.pos_emb_t)
    return Objective(settings, backbone, head, probe)


def make_stage(kind: str = "joint", **changes) -> StageConfig:
    return StageConfig(**{"kind": kind, "steps": 10, "batch": 4, "lr": 1e-3} | changes)


def make_maker(samples=None, **options) -> BatchMaker:
    samples = samples or SyntheticSamples()
    normalization = fit_normalization(samples, SETTINGS, relative=True)
    return BatchMaker(samples, SETTINGS, normalization, WordEncoder(SETTINGS.video.text), **options)


def make_batch(stage: StageConfig | None = None, step: int = 0):
    """A batch, and random latents for its clips."""
    stage = stage or make_stage()
    batch = make_maker().make(Place(seed=0, stage=0, step=step), stage)
    return batch, torch.randn(batch.video_noise.shape, generator=torch.Generator().manual_seed(step))


CONFIG = {
    "name": "test",
    "preset": "tiny",
    "overrides": SMALL,
    "threads": 1,
    "ema": 0.9,
    "checkpoint_every": 4,
    "keep": 2,
    "data": {"relative_actions": True, "text_dropout": 0.2},
    "stages": [{"kind": "joint", "steps": 20, "batch": 4, "accumulate": 2, "lr": 1e-3, "warmup": 3, "action_draws": 2}],
}


def write_config(path: Path, **changes) -> TrainConfig:
    path.write_text(json.dumps(CONFIG | changes))  # JSON is YAML
    return load_config(path)


if __name__ == "__main__":
    from vag_policy.training.trainer import train

    train(load_config(sys.argv[1]), Path(sys.argv[2]), SyntheticSamples())
