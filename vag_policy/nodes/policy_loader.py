"""From parameters to a policy on its device, checked by name before any weight is read. The only import of torch."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from vag_policy.milestones import UNTRAINED
from vag_policy.nodes.policy_parameters import STORED, overrides
from vag_policy.observation.observation import JOINT_SOURCE, Observation
from vag_policy.policy import Policy, PolicyError
from vag_policy.shipped import checkpoint_folder
from vag_policy.vam.presets import VamPreset, preset

Log = Callable[[str], Any]


def check_names(values: Mapping[str, Any], cameras: Sequence[str], state_names: Sequence[str]) -> None:
    """Compare the rig's names with the policy's.

    Cameras must come in the policy's order: two wrist cameras swapped by position look alike to every check that comes
    later. Joints are matched by name, so more of them or another order do no harm.

    Raises:
        PolicyError: they do not fit; the message lists both sides.
    """
    if values["cameras"] and tuple(values["cameras"]) != tuple(cameras):
        raise PolicyError(
            f"the policy sees cameras {', '.join(cameras)} in this order; parameter 'cameras' is "
            f"{', '.join(values['cameras'])}"
        )
    missing = [name for name in state_names if name not in values["joints"]]
    if values["joints"] and missing:
        raise PolicyError(
            f"the policy needs joints {', '.join(missing)}; parameter 'joints' has {', '.join(values['joints'])}"
        )


def weights(values: Mapping[str, Any]) -> str:
    """What ``load_policy`` will load, in words.

    Raises:
        ValueError: (or its PolicyError) no such policy is shipped, or random weights are refused.
    """
    folder = checkpoint_folder(values["checkpoint"])
    _check_untrained(values, folder)
    return f"the checkpoint {folder}" if folder else f"{UNTRAINED} of preset '{values['preset']}'"


def load_policy(values: Mapping[str, Any], log_warning: Log) -> Policy:
    """The policy that the node's parameters describe.

    Raises:
        ValueError: (or its PolicyError) names, checkpoint, device or settings do not fit; the message says which.
    """
    folder = checkpoint_folder(values["checkpoint"])
    settings = _settings(values, folder)
    check_names(values, settings.video.cameras, settings.state_names)
    if not folder:
        why = f"{values['checkpoint']} is not in this copy of the package" if values["checkpoint"] else "no checkpoint"
        log_warning(f"{why}: preset '{values['preset']}' with RANDOM weights; it does nothing useful")
    import torch  # after the names: it takes seconds

    from vag_policy import checkpoint
    from vag_policy.vam.untrained import random_policy

    if values["threads"]:
        torch.set_num_threads(values["threads"])
    options = {
        "device": _device(values["device"]),
        "dtype": None if values["dtype"] == STORED else getattr(torch, values["dtype"]),
        "overrides": overrides(values),
        "embeddings": values["embeddings"] or None,
        "seed": values["seed"],
    }
    if folder:
        return checkpoint.load(folder, **options)
    return random_policy(values["preset"], **options)


def warm_up(policy: Policy, instruction: str) -> float:
    """Make one plan of a grey image, so that the first real one is not the slow one; return its milliseconds.

    Raises:
        PolicyError: the instruction has no embedding.
    """
    width, height = policy.image_size
    sources = (*policy.camera_names, JOINT_SOURCE)
    observation = Observation(
        stamp_ns=1,
        image=np.full((height, width, 3), 128, np.uint8),
        camera_names=policy.camera_names,
        state=np.zeros(len(policy.state_names), np.float32),
        state_names=policy.state_names,
        source_stamp_ns=dict.fromkeys(sources, 1),
        age_ns=dict.fromkeys(sources, 0),
    )
    start = time.perf_counter_ns()
    policy.plan(observation, instruction, episode=0)
    policy.reset()
    return (time.perf_counter_ns() - start) / 1e6


def _check_untrained(values: Mapping[str, Any], folder: str) -> None:
    if not folder and values["untrained"] == "refuse":
        what = "names missing weights" if values["checkpoint"] else "is empty"
        raise PolicyError(f"parameter 'checkpoint' {what}, and random weights are refused (parameter 'untrained')")


def _settings(values: Mapping[str, Any], folder: str) -> VamPreset:
    _check_untrained(values, folder)
    if not folder:
        return preset(values["preset"])
    from vag_policy.checkpoint import stored_preset

    return stored_preset(folder)


def _device(name: str) -> Any:
    import torch

    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise PolicyError(f"parameter 'device' is '{name}': {str(error).splitlines()[0]}") from None
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise PolicyError(f"parameter 'device' is '{name}', and {torch.cuda.device_count()} CUDA devices are there")
    return device
