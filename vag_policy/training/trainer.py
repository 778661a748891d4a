"""A training run: stages one after the other, on one device or many, stoppable at any moment.

accelerate places the networks (CPU, one GPU, one process a GPU under torchrun, FSDP shards) and reduces gradients. What
a step does depends on the configuration and its number alone (``batches``, ``feature_cache``), and a checkpoint holds
weights, optimizer and average: a run that was killed repeats the steps after its last checkpoint exactly.
"""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import torch
from accelerate import Accelerator
from safetensors.torch import load_file, save_file
from torch import Tensor

from vag_policy import checkpoint
from vag_policy.training import store
from vag_policy.training.batches import BatchMaker, SampleSource
from vag_policy.training.config import TrainConfig
from vag_policy.training.distributed import make_accelerator
from vag_policy.training.lora import add_lora
from vag_policy.training.objective import Objective, learning
from vag_policy.training.reporting import Report
from vag_policy.training.stage import Stage
from vag_policy.training.start import finished_policy, objective_of, start_policy
from vag_policy.vam.normalization import Normalization
from vag_policy.vam.policy import VamPolicy

CHECKPOINTS, POLICY, RUN = "checkpoints", "policy", "run.json"
_TOKENIZER, _LOCK = "tokenizer.safetensors", ".lock"


def train(
    config: TrainConfig,
    out: Path,
    samples: SampleSource,
    max_steps: int | None = None,
    snapshots: SampleSource | None = None,
) -> Path:
    """Begin a training run, or go on with one.

    Args:
        config: of the run.
        out: its folder; one that another run is using, or that belongs to another configuration, is refused.
        samples: the dataset.
        max_steps: stop after so many steps in all; None: at the end of the last stage. Either way the run ends with a
            checkpoint and a policy.
        snapshots: what stages of kind ``image`` learn from; None: from ``samples``.

    Returns:
        the policy's folder.

    Raises:
        ValueError: the folder is not this run's, the data do not fit, or a loss is not finite.
    """
    if config.threads:
        torch.set_num_threads(config.threads)
    accelerator = make_accelerator(config)
    with _claimed(out, accelerator):
        run = _Run(config, out, samples, snapshots, accelerator)
        run.go(config.steps if max_steps is None else min(max_steps, config.steps))
    return out / POLICY


class _Run:
    """One process's part of a run."""

    def __init__(
        self,
        config: TrainConfig,
        out: Path,
        samples: SampleSource,
        snapshots: SampleSource | None,
        accelerator: Accelerator,
    ) -> None:
        processes = accelerator.num_processes
        for stage in config.stages:
            if stage.batch % (stage.accumulate * processes):
                raise ValueError(
                    f"stage batch {stage.batch} is no multiple of accumulate {stage.accumulate} x {processes} processes"
                )
        self.config, self.out, self.accelerator = config, out, accelerator
        policy = self._start(start_policy(config, samples))
        self.normalization, self.encoder = policy.normalization, policy.encoder
        self.tokenizer = policy.model.tokenizer.to(accelerator.device)
        self._samples, self._snapshots = samples, snapshots
        if config.tuning.kind == "lora":
            add_lora(policy.model.backbone, config.tuning.rank)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(config.seed)
            self.objective = Objective(config.settings(), policy.model.backbone, policy.model.head, probe=config.probes)
        self.learned = sorted({name for stage in config.stages for name in learning(self.objective, stage)})

    def _start(self, policy: VamPolicy) -> VamPolicy:
        """The policy before the first step. What was fitted to data is kept, so that more data do not change it."""
        path, tokenizer = self.out / RUN, self.out / _TOKENIZER
        identity = json.loads(json.dumps(self.config.identity()))
        if self.accelerator.is_main_process and not path.exists():
            save_file(policy.model.tokenizer.state_dict(), tokenizer)
            unfinished = path.with_suffix(".part")
            content = {"config": identity, "normalization": asdict(policy.normalization)}
            unfinished.write_text(json.dumps(content, indent=2) + "\n")
            unfinished.replace(path)
        self.accelerator.wait_for_everyone()
        content = json.loads(path.read_text())
        for name in sorted({*identity, *content["config"]}):
            if identity.get(name) != content["config"].get(name):
                raise ValueError(
                    f"{self.out} holds a run with {name} {content['config'].get(name)!r}, the configuration says "
                    f"{identity.get(name)!r}; choose another folder"
                )
        policy.model.tokenizer.load_state_dict(load_file(tokenizer))
        return VamPolicy(policy.model, policy.encoder, Normalization(**content["normalization"]))

    def go(self, stop: int) -> None:
        """Train to step ``stop`` and write the policy."""
        found = store.checkpoints(self.out / CHECKPOINTS)
        done, groups, state = store.load_checkpoint(found[-1]) if found else (0, {}, {})
        if done > stop:
            raise ValueError(f"{self.out} has done {done} steps, more than the {stop} asked for")
        self._take(groups.get("weights", {}))
        index, within = self.config.stage_at(done) if done < self.config.steps else (len(self.config.stages), 0)
        if not within:  # at a stage's end its average becomes the weights
            self._take(groups.get("average", {}))
        with Report(self.out, done, stop, silent=not self.accelerator.is_main_process) as report:
            report.say(f"step {done} of {stop}; everything goes to {self.out}")
            while done < stop:
                stage = self._stage(index)
                if within:
                    stage.restore(groups, state)
                end = stage.run(done - within, done, stop, report)
                self.objective = objective_of(self.config, stage.weights())
                self.accelerator.free_memory()
                done, index, within = end, index + 1, 0
            self._export(self.objective.state_dict())

    def _stage(self, index: int) -> Stage:
        config = self.config
        single = config.stages[index].kind == "image" and self._snapshots is not None
        maker = BatchMaker(
            self._snapshots if single else self._samples,  # type: ignore[arg-type]
            config.settings(),
            self.normalization,
            self.encoder,
            config.data.text_dropout,
            self.accelerator.num_processes,
        )
        return Stage(
            self.config,
            index,
            self.accelerator,
            self.objective,
            self.tokenizer,
            maker,
            self.out,
            self.learned,
            self._export,
        )

    def _take(self, weights: Mapping[str, Tensor]) -> None:
        self.objective.load_state_dict(dict(weights), strict=False)

    def _export(self, weights: Mapping[str, Tensor]) -> None:
        """Write the policy that ``weights``, all of the objective's, make."""
        if self.accelerator.is_main_process:
            policy = finished_policy(self.config, weights, self.tokenizer, self.normalization, self.encoder)
            checkpoint.save(policy, self.out / POLICY)


@contextmanager
def _claimed(out: Path, accelerator: Accelerator) -> Iterator[None]:
    """Hold the run's folder, so that two runs never write one."""
    out.mkdir(parents=True, exist_ok=True)
    if not accelerator.is_main_process:
        yield
        return
    with (out / _LOCK).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise ValueError(f"another run is training in {out}") from None
        yield
