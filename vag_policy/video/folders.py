"""Published weights in diffusers layout: ``config.json`` beside one or several safetensors files.

The library's own ``from_pretrained`` needs accelerate for the Cosmos transformer and falls back to pickled weights.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import nn

_STEM = "diffusion_pytorch_model"


def read_config(folder: Path) -> dict[str, Any]:
    """What ``config.json`` in ``folder`` says.

    Raises:
        ValueError: there is none, or it is not JSON.
    """
    path = Path(folder) / "config.json"
    try:
        return json.loads(path.read_text())
    except FileNotFoundError:
        raise ValueError(f"no model in {folder}: a diffusers folder with config.json is needed") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"{path} is not JSON: {error}") from error


def check_config(folder: Path, model: type, found: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    """Compare the entries of ``wanted`` with ``config.json``; what that leaves out is the default of ``model``.

    Raises:
        ValueError: an entry differs; the message names it.
    """
    defaults = {name: parameter.default for name, parameter in inspect.signature(model).parameters.items()}
    for name, value in wanted.items():
        other = found.get(name, defaults[name])
        if _as_json(other) != _as_json(value):
            raise ValueError(f"the model in {folder} has {name}={other}, the preset needs {value}")


def _as_json(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def load_weights(module: nn.Module, folder: Path, dtype: torch.dtype) -> None:
    """Fill ``module``, built on the meta device, with the folder's tensors as ``dtype`` on the CPU.

    Raises:
        ValueError: no safetensors file, a broken one, or tensors that are not the module's by name or shape.
    """
    files = sorted({*Path(folder).glob(f"{_STEM}.safetensors"), *Path(folder).glob(f"{_STEM}-*.safetensors")})
    if not files:
        raise ValueError(f"no {_STEM}*.safetensors in {folder} (pickled weights are not read)")
    try:
        state = {name: tensor.to(dtype) for file in files for name, tensor in load_file(file).items()}
        module.load_state_dict(state, strict=True, assign=True)
    except (SafetensorError, RuntimeError) as error:
        raise ValueError(f"the weights in {folder} do not fit: {error}") from error
