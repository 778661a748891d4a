"""The video-action model at its three sizes: configuration only, no weights and no torch.

A ``VamPreset`` is everything a policy is besides its weights and normalisation; a checkpoint stores it whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any, get_args, get_origin, get_type_hints

from vag_policy.robots.yam import JOINT_NAMES
from vag_policy.video.presets import VideoPreset, check_latent_frames, check_range, video_preset

PREFIX_MODES = ("per_step", "cached")
GUIDANCE_MODES = ("none", "flat", "adaptive")
BASELINES = ("per_step", "mean")
NULL_BRANCHES = ("features", "rollout")


# Far beyond any model, and still no work to build: what is outside is a damaged or malicious file.
_LARGEST_HEAD = {
    "layers": 1000,
    "width": 2**16,
    "heads": 1024,
    "head_dim": 4096,
    "mlp": 2**20,
    "pad": 4096,
    "video_width": 2**20,
    "group": 64,
    "frames": 24,
}
_LARGEST_WEIGHT = 1000.0
_PERIOD_NS = (100_000, 60_000_000_000)


def _check_choice(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ValueError(f"unknown {name} {value!r}; allowed: {', '.join(allowed)}")


def _tuples(config: Any, *names: str) -> None:
    """Turn the lists that JSON brings into tuples."""
    for name in names:
        object.__setattr__(config, name, tuple(getattr(config, name)))


@dataclass(frozen=True)
class HeadConfig:
    """Size of the action head. Defaults: the Gemma expert of the paper (appendix: architecture).

    Attributes:
        layers, width, heads, head_dim, mlp: the transformer; one key/value head is shared by ``heads`` queries.
        pad: width that proprioception and actions are zero-padded to.
        video_width: channels of a video feature.
        group: side of the square of neighbouring video features that make one token (1: none).
        frames: latent frames the head sees, the first ones of the rollout.
        prefix_mode: ``per_step``: the action timestep modulates the video tokens too (the paper's reading), so they
            are recomputed every Euler step; ``cached``: it does not, and their keys and values are made once a replan.
    """

    layers: int = 18
    width: int = 1024
    heads: int = 8
    head_dim: int = 256
    mlp: int = 4096
    pad: int = 32
    video_width: int = 2048
    group: int = 1
    frames: int = 5
    prefix_mode: str = "per_step"

    def __post_init__(self) -> None:
        for name, most in _LARGEST_HEAD.items():
            check_range(f"head {name}", getattr(self, name), 1, most)
        if self.width % 2 or self.head_dim % 2:
            raise ValueError(f"head width and head_dim must be even, got {self.width} and {self.head_dim}")
        _check_choice("prefix_mode", self.prefix_mode, PREFIX_MODES)


@dataclass(frozen=True)
class GuidanceConfig:
    """Guidance of the action velocity (paper, algorithm 3). Defaults: its canonical values.

    Attributes:
        mode: ``none``; ``flat``: s_i = 1; ``adaptive``: s_i = clip(TR_i / TR_0 - 1, 0, s_max).
        w_lang: weight of v_cond - v_null; 0 switches the branch off.
        w_plan: weight of v_plan - v_cond; 0 switches the branch off.
        s_max: upper bound of s_i in ``adaptive``.
        baseline: TR_0 of the episode's first replan, ``per_step``: one for each Euler step; ``mean``: their mean.
            Either way TR_0 is known only when that replan is done, so the first replan runs with s_i = 0.
        null_branch: where the zero text enters, ``features``: the feature pass alone, on the conditional rollout's
            latents (one pass, and the two branches differ in the text only, as in classifier-free guidance);
            ``rollout``: the whole rollout.
        plan_frames: latent frames of the plan branch's rollout, T'.
    """

    mode: str = "none"
    w_lang: float = 0.1
    w_plan: float = 0.3
    s_max: float = 2.0
    baseline: str = "per_step"
    null_branch: str = "features"
    plan_frames: int = 24

    def __post_init__(self) -> None:
        _check_choice("guidance mode", self.mode, GUIDANCE_MODES)
        _check_choice("guidance baseline", self.baseline, BASELINES)
        _check_choice("null_branch", self.null_branch, NULL_BRANCHES)
        for name in ("w_lang", "w_plan", "s_max"):
            check_range(f"guidance {name}", getattr(self, name), 0, _LARGEST_WEIGHT)
        check_latent_frames(self.plan_frames)


@dataclass(frozen=True)
class VamPreset:
    """A whole policy without its weights.

    Attributes:
        name: key in ``PRESETS``.
        video, head, guidance: the parts.
        state_names: proprioception in order.
        action_names: columns of a chunk.
        action_horizon: actions in a chunk, A_H.
        execute: how many of them to execute before the next replan.
        period_ns: nanoseconds between two actions.
        tr_layer: head layer TR is read from, 1-indexed (the paper's l* = 15).
        tr_extra_layers: further head layers to measure, for display; any of 1 .. head.layers.
        euler_steps: integration steps of the action flow.
    """

    name: str
    video: VideoPreset
    head: HeadConfig
    state_names: tuple[str, ...]
    action_names: tuple[str, ...]
    action_horizon: int
    execute: int
    period_ns: int
    tr_layer: int
    tr_extra_layers: tuple[int, ...] = ()
    euler_steps: int = 10
    guidance: GuidanceConfig = field(default_factory=GuidanceConfig)

    def __post_init__(self) -> None:
        _tuples(self, "state_names", "action_names", "tr_extra_layers")
        head = self.head
        for name in ("state_names", "action_names"):
            names = getattr(self, name)
            if not names or len(set(names)) != len(names) or len(names) > head.pad:
                raise ValueError(f"{name} must be 1..{head.pad} distinct names, got {names}")
        check_range("action_horizon", self.action_horizon, 1, 10_000)
        if not 1 <= self.execute <= self.action_horizon:
            raise ValueError(f"execute must be 1..action_horizon, got {self.execute} of {self.action_horizon}")
        check_range("period_ns", self.period_ns, *_PERIOD_NS)
        check_range("euler_steps", self.euler_steps, 1, 1000)
        for layer in (self.tr_layer, *self.tr_extra_layers):
            if not 1 <= layer <= head.layers:
                raise ValueError(f"TR layers must be 1..{head.layers}, got {layer}")
        if head.video_width != self.video.backbone.width:
            raise ValueError(
                f"the head takes features {head.video_width} wide, the backbone makes {self.video.backbone.width}"
            )
        if any(side % head.group for side in self.video.grid):
            raise ValueError(f"a grid of {self.video.grid} tokens cannot be grouped by {head.group}x{head.group}")
        for frames in (self.video.latent_frames, self.guidance.plan_frames):
            if frames < head.frames:
                raise ValueError(f"a rollout of {frames} latent frames is shorter than the head's {head.frames}")

    @property
    def layers(self) -> tuple[int, ...]:
        """Measured head layers, ascending, ``tr_layer`` among them."""
        return tuple(sorted({self.tr_layer, *self.tr_extra_layers}))

    @property
    def grid(self) -> tuple[int, int]:
        """(rows, columns) of video tokens of one latent frame, as the head sees them."""
        rows, columns = self.video.grid
        return rows // self.head.group, columns // self.head.group

    @property
    def tokens_per_frame(self) -> int:
        """Video tokens of one latent frame, as the head sees them."""
        return self.grid[0] * self.grid[1]

    @property
    def video_tokens(self) -> int:
        """Video tokens of the whole prefix."""
        return self.head.frames * self.tokens_per_frame


LIBERO_STATE_NAMES = (
    *(f"eef_position_{axis}" for axis in "xyz"),
    *(f"eef_axis_angle_{axis}" for axis in "xyz"),
    "gripper_finger_1",
    "gripper_finger_2",
)
LIBERO_ACTION_NAMES = (*(f"delta_{axis}" for axis in "xyz"), *(f"delta_rotation_{axis}" for axis in "xyz"), "gripper")

_YAM: dict[str, Any] = {
    "state_names": JOINT_NAMES,
    "action_names": JOINT_NAMES,
    "action_horizon": 50,
    "execute": 30,
    "period_ns": 33_333_333,
}

PRESETS = {
    preset.name: preset
    for preset in (
        VamPreset(name="yam", video=video_preset("yam"), head=HeadConfig(), tr_layer=15, **_YAM),
        VamPreset(
            name="libero",
            video=video_preset("libero"),
            head=HeadConfig(group=2),
            state_names=LIBERO_STATE_NAMES,
            action_names=LIBERO_ACTION_NAMES,
            action_horizon=17,
            execute=10,
            period_ns=100_000_000,
            tr_layer=15,
        ),
        VamPreset(
            name="tiny",
            video=video_preset("tiny"),
            head=HeadConfig(
                layers=4,
                width=128,
                heads=4,
                head_dim=32,
                mlp=512,
                pad=14,
                video_width=128,
                group=2,
                prefix_mode="cached",
            ),
            tr_layer=3,
            # T' = 24 would take a CPU ten times the rest of the replan
            guidance=GuidanceConfig(plan_frames=9),
            **_YAM,
        ),
    )
}


def preset(name: str) -> VamPreset:
    """Look up a preset by name.

    Raises:
        ValueError: no such preset; the message lists the names.
    """
    if name not in PRESETS:
        raise ValueError(f"unknown preset {name!r}; allowed: {', '.join(sorted(PRESETS))}")
    return PRESETS[name]


def fits(value: Any, hint: Any) -> bool:
    """Whether a value as JSON brings it can stand for a field of type ``hint``.

    Lists stand for tuples, element by element, and integers for floats; a boolean is no number, and a number is finite.
    """
    if get_origin(hint) is tuple:
        kinds = get_args(hint)
        if not isinstance(value, list | tuple):
            return False
        if kinds[-1] is Ellipsis:
            kinds = kinds[:1] * len(value)
        return len(kinds) == len(value) and all(map(fits, value, kinds))
    if isinstance(value, bool) or hint is bool:
        return isinstance(value, bool) and hint is bool
    if hint is float:
        return isinstance(value, float | int) and abs(value) < float("inf")
    return isinstance(value, hint)


def _readable(hint: Any) -> str:
    return str(hint) if get_origin(hint) else hint.__name__


def override(config: Any, changes: Mapping[str, Any]) -> Any:
    """Change fields of a configuration, nested ones by dotted names (``{"guidance.mode": "flat"}``).

    Raises:
        ValueError: a name is not a field (the message lists the fields), or a value is not allowed.
    """
    nested: dict[str, dict[str, Any]] = {}
    flat: dict[str, Any] = {}
    names = [config_field.name for config_field in fields(config)]
    hints = get_type_hints(type(config))
    for key, value in changes.items():
        name, _, rest = key.partition(".")
        if name not in names or bool(rest) != is_dataclass(getattr(config, name)):
            raise ValueError(f"unknown setting {key!r} of {type(config).__name__}; its fields: {', '.join(names)}")
        if rest:
            nested.setdefault(name, {})[rest] = value
        else:
            if not fits(value, hints[name]):
                raise ValueError(f"setting {key!r} must be {_readable(hints[name])}, got {value!r}")
            flat[name] = value
    return replace(config, **flat, **{name: override(getattr(config, name), inner) for name, inner in nested.items()})
