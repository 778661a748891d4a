"""What a training run is: frozen dataclasses, checked before anything is loaded (``config_file`` reads them)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from vag_policy.vam.presets import PRESETS, VamPreset, override, preset
from vag_policy.video.presets import SIGMA_STEPS

STAGE_KINDS = ("image", "joint", "video", "head")
TUNINGS = ("full", "lora")
OPTIMIZERS = ("adamw", "muon")
SCHEDULES = ("constant", "cosine")
PRECISIONS = ("no", "bf16")
SHARDINGS = ("none", "fsdp")


def _choose(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ValueError(f"{name} is {value!r}; allowed: {', '.join(allowed)}")


def _within(name: str, value: float, low: float, high: float = float("inf")) -> None:
    if not low <= value <= high:
        raise ValueError(f"{name} is {value}; allowed: {low} to {high}")


@dataclass(frozen=True)
class DataConfig:
    """Where samples come from.

    Attributes:
        dataset: a LeRobot dataset's folder.
        snapshots: folder of snapshots (``vag snapshots``) that stages of kind ``image`` learn from; empty: from the
            dataset's frames.
        cache: folder for decoded frames; empty: ``cache`` inside the run's folder.
        every: one in so many frames is decoded and may start a sample.
        workers: processes that decode, once.
        names: from the policy's camera and joint names to the dataset's (``vag_policy.data.names.NameMap``); empty:
            found among those in use.
        relative_actions: train on differences from the measured state (grippers stay absolute), where actions and
            state have the same names; it makes the first actions easy for a small head. The policy's plans are
            absolute either way.
        step_scale: scale relative actions step by step of the chunk, not all alike (``Normalization.step_scale``).
        mirror: train on the mirror image of every sample too (``vag_policy.data.mirror``).
        text_dropout: share of samples whose instruction is replaced by the null text, which the language branch of
            guidance uses.
        embeddings: folder of instruction embeddings, for presets that read them.
    """

    dataset: str = ""
    snapshots: str = ""
    cache: str = ""
    every: int = 1
    workers: int = 1
    names: dict[str, Any] = field(default_factory=dict)
    relative_actions: bool = False
    step_scale: bool = False
    mirror: bool = False
    text_dropout: float = 0.0
    embeddings: str = ""

    def __post_init__(self) -> None:
        _within("data.every", self.every, 1)
        _within("data.workers", self.workers, 1)
        _within("data.text_dropout", self.text_dropout, 0.0, 1.0)
        if self.step_scale and not self.relative_actions:
            raise ValueError("data.step_scale is for relative actions; set data.relative_actions too")


@dataclass(frozen=True)
class InitConfig:
    """What training starts from; all empty: from scratch.

    Attributes:
        video_weights: a diffusers folder with ``transformer/`` and ``vae/``.
        checkpoint: a policy checkpoint; its tokenizer, backbone and head are taken, and its normalisation.
        tokenizer_clips: clips that a patch tokenizer is fitted to, where it does not come from a checkpoint.
    """

    video_weights: str = ""
    checkpoint: str = ""
    tokenizer_clips: int = 400

    def __post_init__(self) -> None:
        if self.video_weights and self.checkpoint:
            raise ValueError("init.video_weights and init.checkpoint are both given; one is enough")
        _within("init.tokenizer_clips", self.tokenizer_clips, 1)


@dataclass(frozen=True)
class TuningConfig:
    """Which of the backbone's parameters learn: ``full``: all; ``lora``: low-rank additions of ``rank``, alpha = rank,
    to every attention and MLP projection of its blocks. The head always learns whole.
    """

    kind: str = "full"
    rank: int = 32

    def __post_init__(self) -> None:
        _choose("tuning.kind", self.kind, TUNINGS)
        _within("tuning.rank", self.rank, 1)


@dataclass(frozen=True)
class FeatureCacheConfig:
    """How stage ``head`` keeps video features: at most ``shards`` files of ``shard_samples`` samples at a time.

    Attributes:
        shards: files kept.
        shard_samples: samples in a file (a YAM sample is 9.5 MB).
        reuse: how often a sample is drawn, on average, before its file is replaced by a new one.
        folder: where, and nothing else's; empty: ``features`` inside the run's folder.
    """

    shards: int = 8
    shard_samples: int = 128
    reuse: int = 8
    folder: str = ""

    def __post_init__(self) -> None:
        for name in ("shards", "shard_samples", "reuse"):
            _within(f"feature_cache.{name}", getattr(self, name), 1)


@dataclass(frozen=True)
class StageConfig:
    """One stretch of training.

    Attributes:
        kind: ``joint``: video and action loss; ``video``: the backbone alone; ``head``: the head alone, on features
            of the frozen backbone; ``image``: the action loss from the present image alone, with nothing imagined: a
            cheap start for a small model, which learns to see before it learns to imagine.
        steps: optimizer steps.
        batch: samples a step, over all processes and accumulated micro-batches.
        accumulate: micro-batches a step.
        lr: learning rate of the backbone (of LoRA, where that learns).
        head_lr: of the head; 0: the same.
        warmup: steps of linear warm-up.
        schedule: ``constant`` or ``cosine`` (to a hundredth of the rate) after it.
        cooldown: last steps over which a ``constant`` rate falls to a hundredth. A run that was stopped before them
            can be given more steps and goes on.
        action_weight: the paper's lambda. In an ``image`` stage 0 leaves the head out: probes alone teach.
        action_draws: noisy chunks the head sees for each video pass.
        point_weight: weight of the loss of a probe that points at the same place in the first camera's picture
            (``objective.PointProbe``), for a rig whose camera stands where ``yam_rig`` says.
        keyframe_weight: weight of the loss of a probe that reads from the present frame's features where the arms will
            be when a gripper next closes or opens (``objective.KeyframeProbe``); 0: no probe. It teaches the features
            of a small model where things are, and is no part of the policy.
        grid_share, grid_weights: video noise levels drawn from the sampler's grid, see ``losses.video_sigmas``.
    """

    kind: str
    steps: int
    batch: int
    lr: float
    accumulate: int = 1
    head_lr: float = 0.0
    warmup: int = 0
    schedule: str = "constant"
    cooldown: int = 0
    action_weight: float = 1.0
    action_draws: int = 1
    keyframe_weight: float = 0.0
    point_weight: float = 0.0
    grid_share: float = 0.0
    grid_weights: tuple[float, ...] = (1.0,) * SIGMA_STEPS

    def __post_init__(self) -> None:
        _choose("stage kind", self.kind, STAGE_KINDS)
        _choose("stage schedule", self.schedule, SCHEDULES)
        for name in ("steps", "batch", "accumulate", "action_draws"):
            _within(f"stage {name}", getattr(self, name), 1)
        _within("stage lr", self.lr, 0.0)
        _within("stage head_lr", self.head_lr, 0.0)
        _within("stage warmup", self.warmup, 0)
        _within("stage cooldown", self.cooldown, 0, self.steps)
        _within("stage action_weight", self.action_weight, 0.0)
        for name in ("keyframe_weight", "point_weight"):
            _within(f"stage {name}", getattr(self, name), 0.0)
            if getattr(self, name) and self.kind not in ("image", "joint"):
                raise ValueError(f"stage {name} needs features that learn: kind image or joint, not {self.kind}")
        if self.kind == "image" and not (self.action_weight or self.keyframe_weight or self.point_weight):
            raise ValueError("stage image has nothing to learn: every weight is 0")
        _within("stage grid_share", self.grid_share, 0.0, 1.0)
        weights = self.grid_weights
        if len(weights) != SIGMA_STEPS or min(weights) < 0 or not 0 < sum(weights) < float("inf"):
            raise ValueError(f"stage grid_weights must be {SIGMA_STEPS} numbers from 0 on, not all 0, got {weights}")
        if self.batch % self.accumulate:
            raise ValueError(f"stage batch {self.batch} is not a multiple of accumulate {self.accumulate}")


@dataclass(frozen=True)
class OptimizerConfig:
    """AdamW, or Muon for the matrices inside the blocks and AdamW for everything else (``muon``).

    Attributes:
        clip: largest norm of the gradient; 0: not clipped.
        muon_lr: Muon's rate relative to ``lr``; its updates are scaled to the size of AdamW's.
    """

    kind: str = "adamw"
    betas: tuple[float, float] = (0.9, 0.95)
    weight_decay: float = 0.01
    clip: float = 1.0
    muon_lr: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "betas", tuple(self.betas))
        _choose("optimizer.kind", self.kind, OPTIMIZERS)
        if len(self.betas) != 2 or not all(0 <= beta < 1 for beta in self.betas):
            raise ValueError(f"optimizer.betas must be two numbers in [0, 1), got {self.betas}")
        for name in ("weight_decay", "clip", "muon_lr"):
            _within(f"optimizer.{name}", getattr(self, name), 0.0)


@dataclass(frozen=True)
class TrainConfig:
    """A whole run.

    Attributes:
        name: of the run.
        preset: key in ``vag_policy.vam.presets.PRESETS``.
        stages: one after the other; the paper's joint training is one, its two-stage training two.
        overrides: changes of the preset, by dotted name.
        precision: ``no`` (float32) or ``bf16`` (autocast; weights and optimizer stay float32).
        gradient_checkpointing: recompute activations of the backbone's blocks in the backward pass.
        sharding: ``fsdp`` shards parameters, gradients and optimizer over processes; ``none`` copies them.
        ema: decay of an average of the weights that becomes the policy; 0: none.
        seed: of everything drawn.
        threads: intra-operation threads on a CPU; 0: torch's choice.
        checkpoint_every: steps between checkpoints.
        keep: newest checkpoints kept.
        export_every: steps between policies written to ``policy/``; 0: only at the end.
    """

    name: str
    preset: str
    stages: tuple[StageConfig, ...]
    data: DataConfig = field(default_factory=DataConfig)
    init: InitConfig = field(default_factory=InitConfig)
    tuning: TuningConfig = field(default_factory=TuningConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    feature_cache: FeatureCacheConfig = field(default_factory=FeatureCacheConfig)
    overrides: dict[str, Any] = field(default_factory=dict)
    precision: str = "no"
    gradient_checkpointing: bool = False
    sharding: str = "none"
    ema: float = 0.0
    seed: int = 0
    threads: int = 0
    checkpoint_every: int = 1000
    keep: int = 2
    export_every: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "stages", tuple(self.stages))
        if self.preset not in PRESETS:
            raise ValueError(f"unknown preset {self.preset!r}; allowed: {', '.join(sorted(PRESETS))}")
        if not self.stages:
            raise ValueError("a run needs at least one stage")
        _choose("precision", self.precision, PRECISIONS)
        _choose("sharding", self.sharding, SHARDINGS)
        _within("ema", self.ema, 0.0, 0.999999)
        for name in ("seed", "threads", "export_every"):
            _within(name, getattr(self, name), 0)
        for name in ("checkpoint_every", "keep"):
            _within(name, getattr(self, name), 1)
        if self.sharding == "fsdp" and self.optimizer.kind == "muon":
            raise ValueError("optimizer muon needs whole matrices, which sharding fsdp cuts; use adamw")
        self.settings()

    @property
    def steps(self) -> int:
        """Steps of all stages."""
        return sum(stage.steps for stage in self.stages)

    @property
    def probes(self) -> bool:
        """Whether a stage trains probes."""
        return any(stage.keyframe_weight or stage.point_weight for stage in self.stages)

    def settings(self) -> VamPreset:
        """The preset with its overrides."""
        return override(preset(self.preset), self.overrides)

    def stage_at(self, step: int) -> tuple[int, int]:
        """The stage that ``step`` (0-based) belongs to, and the step within it."""
        for index, stage in enumerate(self.stages):
            if step < stage.steps:
                return index, step
            step -= stage.steps
        raise ValueError(f"step is {step} beyond the last stage")

    def identity(self) -> dict[str, Any]:
        """What two runs must have in common for one to go on where the other stopped, by dotted name.

        Free are: where things lie, how often and how fast things happen, and how long stages are.
        """
        flat = dict(_flatten("", asdict(self)))
        return {name: value for name, value in flat.items() if name.split(".")[-1] not in _FREE}


_FREE = (
    *("name", "threads", "checkpoint_every", "keep", "export_every"),  # of the run
    *("dataset", "snapshots", "cache", "workers", "embeddings", "folder"),  # of its data
    *("steps", "cooldown"),  # of its stages
)


def _flatten(prefix: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, (dict, list, tuple)) and value:
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, inner in items:
            yield from _flatten(f"{prefix}.{key}" if prefix else str(key), inner)
    else:
        yield prefix, list(value) if isinstance(value, tuple) else value
