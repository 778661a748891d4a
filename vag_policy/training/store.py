"""Checkpoints of a run: folders of safetensors and JSON, written so that a kill leaves a whole one or none.

Nothing is pickled: optimizer moments are tensors by parameter name, everything else is JSON.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

STATE = "state.json"
FORMAT = 1
_FOLDER = re.compile(r"step_(\d{8})")

Groups = dict[str, dict[str, Tensor]]
"""Tensors by file (``weights``, ``optimizer``, …) and name."""


def save_checkpoint(folder: Path, step: int, groups: Mapping[str, Mapping[str, Tensor]], state: Any, keep: int) -> Path:
    """Write ``folder/step_XXXXXXXX`` and delete all but the ``keep`` newest.

    Args:
        folder: of all checkpoints.
        step: steps done.
        groups: tensors, one file a group; any device.
        state: JSON.
        keep: at least 1.
    """
    folder.mkdir(parents=True, exist_ok=True)
    target, unfinished = folder / f"step_{step:08d}", folder / f".step_{step:08d}.part"
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir()
    for name, tensors in groups.items():
        save_file({key: value.detach().cpu().contiguous() for key, value in tensors.items()}, _file(unfinished, name))
        _sync(_file(unfinished, name))
    path = unfinished / STATE
    path.write_text(json.dumps({"format": FORMAT, "step": step, "groups": sorted(groups), "run": state}) + "\n")
    _sync(path)
    _sync(unfinished)
    shutil.rmtree(target, ignore_errors=True)
    unfinished.rename(target)
    _sync(folder)
    for old in checkpoints(folder)[:-keep]:
        shutil.rmtree(old, ignore_errors=True)
    return target


def checkpoints(folder: Path) -> list[Path]:
    """Whole checkpoints, oldest first. (The name is given only when everything is on disk.)"""
    found = [path for path in folder.glob("step_*") if _FOLDER.fullmatch(path.name) and (path / STATE).is_file()]
    return sorted(found, key=lambda path: path.name)


def load_checkpoint(path: Path) -> tuple[int, Groups, Any]:
    """Steps done, tensors and JSON of a checkpoint.

    Raises:
        ValueError: it is damaged; the file is named.
    """
    try:
        content = json.loads((path / STATE).read_text())
        if content["format"] != FORMAT:
            raise ValueError(f"{path / STATE}: format {content['format']!r}, this version reads {FORMAT}")
        step, names, state = content["step"], content["groups"], content["run"]
    except (OSError, json.JSONDecodeError, KeyError, TypeError) as error:
        raise ValueError(f"{path / STATE} is damaged: {error}") from error
    groups: Groups = {}
    for name in names:
        try:
            groups[name] = load_file(_file(path, name))
        except (SafetensorError, OSError) as error:
            raise ValueError(f"{_file(path, name)} is damaged: {error}") from error
    return step, groups, state


def random_states() -> dict[str, Tensor]:
    """States of torch's global generators, for modules that draw from them (dropout)."""
    states = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        states |= {f"cuda{index}": state for index, state in enumerate(torch.cuda.get_rng_state_all())}
    return states


def restore_random_states(states: Mapping[str, Tensor]) -> None:
    """Undo ``random_states``; generators of devices that are not there are left out."""
    torch.set_rng_state(states["cpu"])
    for index in range(torch.cuda.device_count()):
        if f"cuda{index}" in states:
            torch.cuda.set_rng_state(states[f"cuda{index}"], index)


def _file(folder: Path, name: str) -> Path:
    return folder / f"{name}.safetensors"


def _sync(path: Path) -> None:
    """Have a file, or a folder's list of names, on disk before going on."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
