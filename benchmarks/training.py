"""How fast training is, against what one would write without this package, and what its data and its cache cost.

- ``throughput_ratio``: joint training of the tiny preset through this package's stage loop, over the plain loop one
  writes with diffusers: ``CosmosTransformer3DModel.forward`` with a hook on the feature block; the same tokenizer,
  head, losses, draws, optimizer and bfloat16 autocast; batches made in line.
- ``cached_head_ratio``: samples a second of head training on cached features over recomputing them (tokenizer, backbone
  up to the feature block, head), for the libero preset at its real widths. A layer stands for its like: few are run,
  and their time counts as often as the preset has them. The cache is full and on disk; ``with_filling`` spreads the
  time to compute a sample's features over the draws that the shipped configuration makes of it.
- ``data_share``: share of a step of the tiny preset spent waiting for its batch, frames mapped from disk.

Ratios are medians over rounds in which the two sides take turns; times are the process's CPU time on one thread, so
that other load on the machine is not counted (waiting for data is wall time).
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from accelerate import Accelerator
from diffusers.models.transformers.transformer_cosmos import CosmosTransformer3DModel

from vag_policy.data.samples import Sample
from vag_policy.training.batches import BatchMaker, Place
from vag_policy.training.config import FeatureCacheConfig, StageConfig, TrainConfig
from vag_policy.training.config_file import load_config
from vag_policy.training.data import fit_normalization
from vag_policy.training.feature_cache import FeatureCache
from vag_policy.training.losses import action_loss, noised, video_loss
from vag_policy.training.objective import Objective, repeat_prefix
from vag_policy.training.stage import Stage
from vag_policy.vam.action_head import ActionHead
from vag_policy.vam.presets import VamPreset, override, preset
from vag_policy.video.backbone import VideoBackbone, precondition
from vag_policy.video.instruction import WordEncoder
from vag_policy.video.presets import video_frames
from vag_policy.video.tokenizers import make_tokenizer

BATCH, DRAWS = 16, 4
SHIPPED = Path(__file__).resolve().parent.parent / "config/train/libero_two_stage_lora.yaml"


class MappedSamples:
    """Clips from one file mapped into memory, as the frame cache gives them; everything else is random."""

    def __init__(self, settings: VamPreset, folder: Path, frames: int = 600) -> None:
        self.settings, self.frames = settings, video_frames(settings.video.latent_frames)
        width, height = settings.video.image_size
        path, shape = folder / "frames", (frames, height, width, 3)
        np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8).tofile(path)
        self._map = np.memmap(path, np.uint8, "r", shape=shape)

    def __len__(self) -> int:
        return len(self._map) - self.frames

    def __getitem__(self, index: int) -> Sample:
        rng, settings = np.random.default_rng(index), self.settings
        shape = (settings.action_horizon, len(settings.action_names))
        return Sample(
            clip=self._map[np.arange(index, index + self.frames)],
            clip_valid=np.ones(self.frames, bool),
            state=rng.normal(size=len(settings.state_names)).astype(np.float32),
            actions=rng.normal(size=shape).astype(np.float32),
            actions_valid=np.ones(shape[0], bool),
            task=f"put the {('red', 'green', 'blue')[index % 3]} cube in the bowl",
            frame=index,
        )


class _Rates:
    """Takes a stage's reports; keeps the share of waiting."""

    def __init__(self) -> None:
        self.waiting: list[float] = []

    def step(self, step: int, stage: str, values: dict[str, float], rates: dict[str, float]) -> None:
        self.waiting.append(rates["data_share"])


class Ours:
    """The package's stage loop, a few steps at a time."""

    def __init__(self, settings: VamPreset, maker: BatchMaker, objective: Objective, folder: Path) -> None:
        stage = StageConfig(kind="joint", steps=10**6, batch=BATCH, lr=1e-3, action_draws=DRAWS)
        config = TrainConfig("benchmark", settings.name, (stage,), precision="bf16", checkpoint_every=10**9)
        tokenizer = make_tokenizer(settings.video.tokenizer)
        accelerator = Accelerator(mixed_precision="bf16", cpu=True)
        self.stage = Stage(config, 0, accelerator, objective, tokenizer, maker, folder, [], lambda weights: None)
        self.stage.save = lambda step: None  # type: ignore[method-assign]  # checkpoints are not what is measured
        self.rates, self.done = _Rates(), 0

    def steps(self, count: int) -> None:
        self.done = self.stage.run(0, self.done, self.done + count, self.rates)  # type: ignore[arg-type]


class Plain:
    """What one writes around the library's model: a hook for the features, everything in line."""

    def __init__(self, settings: VamPreset, maker: BatchMaker, objective: Objective) -> None:
        self.settings, self.maker = settings, maker
        self.transformer = CosmosTransformer3DModel(**settings.video.backbone.kwargs())
        self.transformer.load_state_dict(objective.backbone.transformer.state_dict())
        self.head = ActionHead(settings.head)
        self.head.load_state_dict(objective.head.state_dict())
        self.tokenizer = make_tokenizer(settings.video.tokenizer)
        block = self.transformer.transformer_blocks[settings.video.feature_block - 1]
        block.register_forward_hook(lambda module, args, output: setattr(self, "features", output))
        self.optimizer = torch.optim.AdamW([*self.transformer.parameters(), *self.head.parameters()], lr=1e-3)
        self.stage = StageConfig(kind="joint", steps=10**6, batch=BATCH, lr=1e-3, action_draws=DRAWS)
        self.done = 0

    def steps(self, count: int) -> None:
        for _ in range(count):
            self._step(self.done)
            self.done += 1

    def _step(self, number: int) -> None:
        batch = self.maker.make(Place(0, 0, number), self.stage)
        with torch.no_grad():
            clean = self.tokenizer.encode(batch.frames.permute(0, 4, 1, 2, 3).float() / 127.5 - 1)
        noisy = noised(clean, batch.video_noise, batch.sigma)
        inputs = torch.cat([clean[:, :, :1], noisy[:, :, 1:]], dim=2)
        masks = torch.zeros(len(batch), 2, *inputs.shape[2:])
        masks[:, 0, 0] = 1
        timestep = batch.sigma.view(-1, 1, 1, 1, 1).repeat(1, 1, inputs.shape[2], 1, 1)
        timestep[:, :, 0] = 1e-4
        with torch.autocast("cpu", torch.bfloat16):
            text = batch.embeddings[batch.text_index]
            output = self.transformer(inputs, timestep, text, condition_mask=masks, return_dict=False)[0]
            if self.settings.video.backbone.preconditioned:
                output = precondition(output, noisy, batch.sigma)
            loss = video_loss(output, clean, batch.video_noise, batch.frames_valid)
            features = self.features.unflatten(1, (inputs.shape[2], *self.settings.video.grid))  # type: ignore[attr-defined]
            prefix = repeat_prefix(self.head.prefix(features, batch.sigma), DRAWS)
            actions = batch.actions.repeat_interleave(DRAWS, 0)
            velocity = self.head.velocity(
                noised(actions, batch.action_noise, batch.action_time),
                batch.action_time,
                batch.state.repeat_interleave(DRAWS, 0),
                prefix,
            )
            valid = batch.actions_valid.repeat_interleave(DRAWS, 0)
            loss = loss + action_loss(velocity, actions, batch.action_noise, valid)
        loss.backward()
        torch.nn.utils.clip_grad_norm_([*self.transformer.parameters(), *self.head.parameters()], 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()
        float(loss.detach())


def seconds(work: Callable[[], object]) -> float:
    """CPU seconds of the process, all its threads."""
    begin = time.process_time()
    work()
    return time.process_time() - begin


def throughput(rounds: int, folder: Path) -> dict[str, float]:
    settings = preset("tiny")
    samples = MappedSamples(settings, folder)
    encoder = WordEncoder(settings.video.text)
    maker = BatchMaker(samples, settings, fit_normalization(samples, settings, True), encoder)
    objective = Objective(settings, VideoBackbone(settings.video.backbone), ActionHead(settings.head))
    objective.head.draw_modulation()
    plain, ours = Plain(settings, maker, objective), Ours(settings, maker, objective, folder)
    sides = {"plain": plain.steps, "ours": ours.steps}
    for steps in sides.values():
        steps(1)
    times: dict[str, list[float]] = {name: [] for name in sides}
    ours.rates.waiting.clear()
    for index in range(rounds):
        for name in list(sides)[index % 2 :] + list(sides)[: index % 2]:
            times[name].append(seconds(lambda name=name: sides[name](3)) / 3)  # type: ignore[misc]
    ratio = np.median(np.array(times["plain"]) / np.array(times["ours"]))
    # The first batch of a sitting is waited for; it is no part of what a running trainer sees.
    waiting = [share for index, share in enumerate(ours.rates.waiting) if index % 3]
    return {
        "throughput_ratio": float(ratio),
        "samples_per_second": BATCH / float(np.median(times["ours"])),
        "plain_samples_per_second": BATCH / float(np.median(times["plain"])),
        "data_share": float(np.median(waiting)),
    }


def cached_head(rounds: int, folder: Path, layers: int) -> dict[str, float]:
    """Times of the libero preset's parts at their real widths, each layer standing for all of its kind."""
    whole = preset("libero")
    changes = {
        "head.layers": layers,
        "tr_layer": 1,
        "video.backbone.num_layers": 1,
        "video.feature_block": 1,
        "video.backbone.crossattn_proj_in_channels": 64,  # projected once an instruction, not once a sample
        "video.text.width": 64,
    }
    settings = override(whole, changes)
    stage = StageConfig(kind="head", steps=10, batch=1, lr=1e-4)
    objective = Objective(settings, VideoBackbone(settings.video.backbone), ActionHead(settings.head))
    objective.head.draw_modulation()
    tokenizer = make_tokenizer(settings.video.tokenizer)
    samples = MappedSamples(settings, folder, frames=40)
    encoder = WordEncoder(replace(settings.video.text, kind="words"))
    maker = BatchMaker(samples, settings, fit_normalization(samples, settings, False), encoder)
    batch = maker.make(Place(0, 0, 0), stage)
    frames = batch.frames.permute(0, 4, 1, 2, 3).float() / 127.5 - 1

    def encode(count: int) -> None:
        with torch.no_grad():
            tokenizer.encode(frames[:, :, :count])

    def compute(number: int) -> tuple:
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
            shard = maker.shard(number, 1, Place(0, 0, 0), stage)
            latents = torch.randn(shard.video_noise.shape)
            return shard, objective(shard, latents, stage, features_only=True)["features"]

    cache = FeatureCache(FeatureCacheConfig(shards=1, shard_samples=1, reuse=10**6), folder / "features", compute, 1)
    optimizer = torch.optim.AdamW(objective.head.layers.parameters(), lr=1e-4)

    def train_layers() -> None:
        drawn, features = cache.batch(Place(0, 0, 0), stage)
        with torch.autocast("cpu", torch.bfloat16):
            loss = objective(drawn, features, stage)["loss"]
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    train_layers()
    latents = torch.randn(batch.video_noise.shape)
    parts: dict[str, list[float]] = {"tokenizer": [], "backbone": [], "head": []}
    for _ in range(rounds):
        one, five = seconds(lambda: encode(1)), seconds(lambda: encode(5))
        parts["tokenizer"].append(one + (whole.video.latent_frames - 1) * (five - one))  # groups of four cost alike
        with torch.autocast("cpu", torch.bfloat16):
            block = seconds(lambda: objective(batch, latents, stage, features_only=True))
        parts["backbone"].append(block * whole.video.feature_block)
        parts["head"].append(seconds(train_layers) * whole.head.layers / layers)
    tokenizer_s, backbone_s, head_s = (float(np.median(values)) for values in parts.values())
    reuse = load_config(SHIPPED).feature_cache.reuse
    recomputed = tokenizer_s + backbone_s + head_s
    return {
        "cached_head_ratio": recomputed / head_s,
        "cached_head_ratio_with_filling": recomputed / (head_s + (tokenizer_s + backbone_s) / reuse),
        "tokenizer_s": tokenizer_s,
        "backbone_s": backbone_s,
        "head_s": head_s,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--head-layers", type=int, default=2, help="head layers that stand for the preset's 18")
    parser.add_argument("--json", action="store_true", help="print one JSON object last")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        result = throughput(options.rounds, Path(folder))
        result |= cached_head(min(options.rounds, 3), Path(folder), options.head_layers)
    print(f"joint training of the tiny preset: {result['samples_per_second']:.1f} samples a CPU second, ", end="")
    print(f"plain loop {result['plain_samples_per_second']:.1f}: ratio {result['throughput_ratio']:.2f} (at least 1)")
    print(f"waiting for data: {100 * result['data_share']:.1f} % of a step (under 10 %)")
    print(f"libero head on cached features: {result['cached_head_ratio']:.1f} times recomputing them (at least 8), ")
    print(f"{result['cached_head_ratio_with_filling']:.1f} with the time to fill the cache")
    if options.json:
        print(json.dumps({name: round(value, 4) for name, value in result.items()}))


if __name__ == "__main__":
    main()
