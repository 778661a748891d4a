"""The policy node's parameters, and what they mean to a policy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vag_policy.nodes.parameters import Param
from vag_policy.serving.session import MODES, SessionConfig
from vag_policy.vam.presets import GUIDANCE_MODES, PREFIX_MODES, PRESETS

STORED = "stored"
"""Keep what the checkpoint or preset says; for numbers, 0 or (for an index) -1 says the same."""

_WEIGHT = (0.0, 100.0)

PARAMETERS = (
    Param("preset", "tiny", "model size, without a checkpoint", choices=tuple(sorted(PRESETS))),
    Param("checkpoint", "", "checkpoint folder, or shipped:tiny_yam; empty: the preset with random weights"),
    Param("untrained", "allow", "random weights, where there is no checkpoint", choices=("allow", "refuse")),
    Param("embeddings", "", "folder of instruction embeddings; empty: the checkpoint's own"),
    Param(
        "cameras",
        (),
        "cameras of an observation, in order; must be the policy's; empty: not checked",
        element=str,
    ),
    Param(
        "joints", (), "names in an observation's state, with the policy's among them; empty: not checked", element=str
    ),
    Param("device", "cpu", "torch device, such as cpu or cuda:0"),
    Param("dtype", STORED, "what networks compute in", choices=(STORED, "float32", "bfloat16", "float16")),
    Param("threads", 0, "CPU threads of one operation; 0: torch's default", range=(0, 1024)),
    Param("nice", 5, "niceness of inference, so that commands and cameras come first on a full CPU", range=(0, 19)),
    Param("seed", 0, "seed of the policy's noise, and of random weights", range=(0, 2**31 - 1)),
    Param("warm_up", "warm up", "instruction of the replan made while configuring; empty: none"),
    Param("autostart", True, "configure and activate at once, without a lifecycle manager"),
    Param("mode", "blocking", "replan when the chunk has run out, or while it runs", choices=MODES),
    Param("max_observation_age", 0.5, "oldest an observation's parts may be, seconds", range=(0.001, 3600.0)),
    Param("min_replan_period", 0.1, "least time from one replan's start to the next, seconds", range=(0.0, 3600.0)),
    Param("imagined_every", 5, "replans from one imagined/image to the next, if anyone listens", range=(1, 10**6)),
    Param("guidance", "none", "guidance of the actions", choices=GUIDANCE_MODES, read_only=False),
    Param("w_lang", 0.1, "guidance weight of the instruction", range=_WEIGHT, read_only=False),
    Param("w_plan", 0.3, "guidance weight of the longer plan", range=_WEIGHT, read_only=False),
    Param("s_max", 2.0, "upper bound of the adaptive guidance scale", range=_WEIGHT, read_only=False),
    Param("execute", 0, "actions to execute of a chunk; 0: stored", range=(0, 1000)),
    Param("sigma_index", -1, "point of the noise grid that features are read at; -1: stored", range=(-1, 5)),
    Param("latent_frames", 0, "latent frames of a rollout: 5, 9 or 24; 0: stored", range=(0, 24)),
    Param("plan_frames", 0, "latent frames of the plan branch: 5, 9 or 24; 0: stored", range=(0, 24)),
    Param("prefix_mode", STORED, "whether the action timestep modulates video tokens", choices=(STORED, *PREFIX_MODES)),
    Param("tr_layer", 0, "head layer the Temporal Ratio is read from; 0: stored", range=(0, 1000)),
    Param("tr_extra_layers", (), "further head layers to measure", range=(1, 1000), element=int),
)

_SETTINGS = {
    "execute": "execute",
    "sigma_index": "video.sigma_index",
    "latent_frames": "video.latent_frames",
    "plan_frames": "guidance.plan_frames",
    "prefix_mode": "head.prefix_mode",
    "tr_layer": "tr_layer",
    "tr_extra_layers": "tr_extra_layers",
}
_KEEP = {"sigma_index": -1, "prefix_mode": STORED, "tr_extra_layers": ()}
_GUIDANCE = {"guidance": "mode", "w_lang": "w_lang", "w_plan": "w_plan", "s_max": "s_max"}


def guidance_changes(values: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of ``GuidanceConfig`` in (some of) the parameter values."""
    return {field: values[name] for name, field in _GUIDANCE.items() if name in values}


def overrides(values: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of a ``VamPreset`` that the parameter values change, by dotted name."""
    guidance = {f"guidance.{field}": value for field, value in guidance_changes(values).items()}
    settings = {path: values[name] for name, path in _SETTINGS.items() if values[name] != _KEEP.get(name, 0)}
    return guidance | settings


def session_config(values: Mapping[str, Any]) -> SessionConfig:
    """When to replan."""
    return SessionConfig(
        mode=values["mode"],
        max_age_ns=round(values["max_observation_age"] * 1e9),
        min_period_ns=round(values["min_replan_period"] * 1e9),
    )
