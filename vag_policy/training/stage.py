"""One stage of a run: its optimizer, its steps, its checkpoints."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any, cast

import torch
from accelerate import Accelerator
from torch import Tensor, nn

from vag_policy.training import store
from vag_policy.training.batches import Batch, BatchMaker, Place, Prefetcher
from vag_policy.training.config import TrainConfig
from vag_policy.training.distributed import load_optimizer_state, whole, whole_optimizer_state, whole_weights
from vag_policy.training.feature_cache import FeatureCache
from vag_policy.training.objective import Objective, learning
from vag_policy.training.optimizers import WeightAverage, make_optimizers, rate, set_rate
from vag_policy.training.reporting import Report
from vag_policy.video.tokenizer import Tokenizer

MicroBatch = tuple[Batch, Tensor]
"""A micro-batch and its clean latents, or, for stage ``head``, its features."""


class Stage:
    """A stage being trained.

    Args:
        config: of the run.
        index: which stage.
        accelerator: places and synchronises.
        objective: networks on the CPU; they are moved and wrapped.
        tokenizer: on the accelerator's device.
        maker: of batches.
        folder: of the run.
        learned: names of the weights that checkpoints hold.
        export: writes the policy that the weights it is given make.
    """

    def __init__(
        self,
        config: TrainConfig,
        index: int,
        accelerator: Accelerator,
        objective: Objective,
        tokenizer: Tokenizer,
        maker: BatchMaker,
        folder: Path,
        learned: list[str],
        export: Callable[[Mapping[str, Tensor]], None],
    ) -> None:
        self.config, self.index, self.stage = config, index, config.stages[index]
        self.accelerator, self.tokenizer, self.maker = accelerator, tokenizer, maker
        self.folder, self.learned, self._export = folder, learned, export
        names = list(learning(objective, self.stage))
        objective.backbone.gradient_checkpointing = config.gradient_checkpointing
        optimizers = make_optimizers(learning(objective, self.stage), self.stage, config.optimizer)
        prepared = accelerator.prepare(objective, *optimizers)
        self.model: nn.Module = prepared[0]
        self._accelerated = prepared[1:]
        self.optimizers = [cast(torch.optim.Optimizer, wrapped.optimizer) for wrapped in self._accelerated]
        # Without `keep_fp32_wrapper` the model would lose its autocast by being looked at.
        parameters = dict(accelerator.unwrap_model(self.model, keep_fp32_wrapper=True).named_parameters())
        self.parameters = {name: parameters[name] for name in names}
        self.average = WeightAverage(self.parameters, config.ema) if config.ema else None
        self._local = self.stage.batch // self.stage.accumulate // accelerator.num_processes
        self._cache = self._feature_cache() if self.stage.kind == "head" else None

    # --- steps

    def run(self, first: int, start: int, stop: int, report: Report) -> int:
        """Train from step ``start`` of the run to ``stop`` or the stage's end.

        Args:
            first: the run's step at which the stage begins.
            start: steps of the run that are done.
            stop: steps of the run after which to stop.
            report: of the steps.

        Returns:
            steps of the run that are done.

        Raises:
            ValueError: a loss is not finite; the step is named.
        """
        end = min(stop, first + self.stage.steps)
        if self._cache is not None and start == first:
            self._cache.clear()  # what is there was not made by these weights
        self.model.train()
        begin = time.perf_counter()
        batches = self._batches(start - first, end - first)
        for step in range(start, end):
            micro_batches = next(batches)
            ready = time.perf_counter()
            values = self._step(step - first, micro_batches)
            if not math.isfinite(values["loss"]):
                raise ValueError(f"the loss of step {step + 1} is {values['loss']}: training has diverged")
            finished = time.perf_counter()
            seconds = finished - begin
            rates = {"samples_per_second": self.stage.batch / seconds, "data_share": (ready - begin) / seconds}
            report.step(step + 1, self.stage.kind, values, rates)
            if (step + 1) % self.config.checkpoint_every == 0 or step + 1 == end:
                self.save(step + 1)
            if self.config.export_every and (step + 1) % self.config.export_every == 0:
                self._export(self.weights())
            begin = time.perf_counter()
        if self._cache is not None and end == first + self.stage.steps:
            self._cache.clear()
        return end

    def _batches(self, start: int, stop: int) -> Iterator[list[Batch] | list[MicroBatch]]:
        micros = range(self.stage.accumulate)
        if self._cache is not None:  # the cache computes features: not beside the training step, in its place
            for step in range(start, stop):
                yield [self._cache.batch(self._place(step, micro), self.stage) for micro in micros]
            return
        yield from Prefetcher(
            lambda step: [self.maker.make(self._place(step, micro), self.stage) for micro in micros], start, stop
        )

    def _place(self, step: int, micro: int = 0) -> Place:
        return Place(self.config.seed, self.index, step, micro, self.accelerator.process_index)

    def _step(self, step: int, micro_batches: list[Any]) -> dict[str, float]:
        factor = rate(self.stage, step)
        set_rate(self.optimizers, factor)
        count = len(micro_batches)
        totals: dict[str, Tensor] = {}
        for number, item in enumerate(micro_batches, start=1):
            batch, clean = item if self._cache is not None else (item, None)
            batch = batch.to(self.accelerator.device)
            clean = self.latents(batch) if clean is None else clean.to(self.accelerator.device).float()
            with nullcontext() if number == count else self.accelerator.no_sync(self.model):
                losses = self.model(batch, clean, self.stage)
                self.accelerator.backward(losses["loss"] / count)
            for name, loss in losses.items():
                totals[name] = totals.get(name, 0) + loss.detach() / count
        norm = self.accelerator.clip_grad_norm_(list(self.parameters.values()), self.config.optimizer.clip or math.inf)
        for wrapped in self._accelerated:
            wrapped.step()
            wrapped.zero_grad()
        if self.average is not None:
            self.average.update(self.parameters)
        means = self.accelerator.reduce(totals, "mean")
        return {name: float(value) for name, value in means.items()} | {
            "gradient": float(whole(norm) if isinstance(norm, Tensor) else norm),
            "rate": factor,
        }

    @torch.no_grad()
    def latents(self, batch: Batch) -> Tensor:
        """(B, C, T, h, w) clean latents of a batch's clips."""
        # On a CPU a clip at a time: one's floats stay in the cache, and a whole batch's take ten times as long.
        pieces = batch.frames.split(1 if batch.frames.device.type == "cpu" else len(batch))
        return torch.cat([self.tokenizer.encode(clips.permute(0, 4, 1, 2, 3).float() / 127.5 - 1) for clips in pieces])

    # --- features of stage `head`

    def _feature_cache(self) -> FeatureCache:
        config = self.config.feature_cache
        root = Path(config.folder) if config.folder else self.folder / "features"
        return FeatureCache(config, root / f"process_{self.accelerator.process_index}", self._shard, self._local)

    def _shard(self, number: int) -> tuple[Batch, Tensor]:
        """Features of a shard's samples, computed in pieces of a micro-batch."""
        batch = self.maker.shard(number, self.config.feature_cache.shard_samples, self._place(0), self.stage)
        self.model.eval()
        features = []
        for piece in batch.split(self._local):
            piece = piece.to(self.accelerator.device)
            with torch.no_grad():
                out = self.model(piece, self.latents(piece), self.stage, features_only=True)
            features.append(out["features"].to("cpu", torch.bfloat16))
        self.model.train()
        return batch, torch.cat(features)

    # --- checkpoints

    def save(self, step: int) -> None:
        """Write a checkpoint of ``step`` steps of the run."""
        main = self.accelerator.is_main_process
        weights = whole_weights(self.model, keep=main)
        groups = {
            "weights": {name: weights[name] for name in self.learned if main},
            "optimizer": whole_optimizer_state(self.model, self.optimizers, keep=main),
            "random": store.random_states(),
        }
        state = {}
        if self.average is not None:
            groups["average"] = {name: whole(value) for name, value in self.average.values.items()}
            state["updates"] = self.average.updates
        if main:
            store.save_checkpoint(self.folder / "checkpoints", step, groups, state, self.config.keep)
        self.accelerator.wait_for_everyone()

    def restore(self, groups: store.Groups, state: dict[str, Any]) -> None:
        """Take optimizer and average from a checkpoint within this stage; weights are in the objective already."""
        load_optimizer_state(self.model, self.optimizers, groups["optimizer"])
        store.restore_random_states(groups["random"])
        if self.average is not None:
            self.average.load(groups["average"], state["updates"])

    def weights(self) -> dict[str, Tensor]:
        """The stage's result, all of the objective's weights on the CPU: averaged ones where there is an average."""
        result = whole_weights(self.model)
        if self.average is not None:
            result |= {name: whole(value) for name, value in self.average.values.items()}
        return result
