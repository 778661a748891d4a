"""A folder on disk <-> a policy.

The folder holds ``manifest.json`` (format, preset, normalisation: everything but the weights) and one safetensors file
a network. Nothing else is read: a file that could run code (pickle: .pt, .bin, .ckpt) is never opened.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import MISSING, asdict, fields, is_dataclass
from pathlib import Path
from typing import Any, get_type_hints

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import nn
from torch.overrides import TorchFunctionMode

from vag_policy.policy import PolicyError
from vag_policy.vam.model import VamModel
from vag_policy.vam.normalization import Normalization
from vag_policy.vam.policy import VamPolicy
from vag_policy.vam.presets import PRESETS, VamPreset, fits, override
from vag_policy.vam.untrained import random_policy
from vag_policy.video.instruction import instruction_encoder

__all__ = ["load", "random_policy", "save", "stored_preset"]

FORMAT = 1
FAMILY = "vam"
MANIFEST = "manifest.json"
_LARGEST_MANIFEST = 4 * 1024**2
NETWORKS = ("tokenizer", "backbone", "head")
EMBEDDINGS = "instructions"
"""Folder of instruction embeddings inside a checkpoint, where the preset's text is not computed on the spot."""


def save(policy: VamPolicy, folder: Path | str) -> Path:
    """Write a checkpoint; the manifest last, so that a folder with one is whole.

    Instruction embeddings are not copied.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MANIFEST).unlink(missing_ok=True)
    for name in NETWORKS:
        state = getattr(policy.model, name).state_dict()
        save_file({key: tensor.contiguous() for key, tensor in state.items()}, _weights_file(folder, name))
    manifest = {
        "format": FORMAT,
        "family": FAMILY,
        "preset": asdict(policy.preset),
        "normalization": asdict(policy.normalization),
    }
    unfinished = folder / f"{MANIFEST}.part"
    unfinished.write_text(json.dumps(manifest, indent=2) + "\n")
    unfinished.replace(folder / MANIFEST)
    return folder


def load(
    folder: Path | str,
    device: torch.device | str = "cpu",
    dtype: torch.dtype | None = None,
    overrides: Mapping[str, Any] | None = None,
    embeddings: Path | str | None = None,
    seed: int = 0,
) -> VamPolicy:
    """Read a checkpoint.

    Args:
        folder: what ``save`` wrote.
        device: where the networks go.
        dtype: what they compute in; None keeps the stored one.
        overrides: settings to change, by dotted name (``{"guidance.mode": "adaptive", "video.sigma_index": 1}``).
        embeddings: folder of instruction embeddings for presets that need one; ``<folder>/instructions`` by default.
        seed: of the policy's noise.

    Raises:
        PolicyError: the folder, its manifest or its weights are missing, damaged or do not belong together, or an
            override is not allowed; the message names the file, and the tensor or setting.
    """
    folder = Path(folder)
    where = str(folder / MANIFEST)
    manifest, stored = _read_manifest(folder), stored_preset(folder)
    normalization = _build(Normalization, manifest["normalization"], f"{where}: normalization")
    try:
        settings = override(stored, overrides or {})
        encoder = instruction_encoder(settings.video.text, Path(embeddings or folder / EMBEDDINGS))
    except ValueError as error:
        raise PolicyError(f"{folder}: {error}") from error
    try:
        with _SkipInitialisation():
            model = VamModel(settings)
    except Exception as error:  # sizes that each may be, and together may not: torch and diffusers raise anything
        raise PolicyError(f"{where}: no model can be made of this preset: {type(error).__name__}: {error}") from error
    for name in NETWORKS:
        _load_weights(getattr(model, name), _weights_file(folder, name), dtype)
    model = model.to(device=device, dtype=dtype)
    try:
        return VamPolicy(model, encoder, normalization, seed)
    except ValueError as error:
        raise PolicyError(f"{where}: {error}") from error


def stored_preset(folder: Path | str) -> VamPreset:
    """The preset of a checkpoint: its camera and joint names, sizes and rates, without its weights.

    Raises:
        PolicyError: as for ``load``, as far as the manifest goes.
    """
    where = str(Path(folder) / MANIFEST)
    stored = _build(VamPreset, _read_manifest(Path(folder))["preset"], f"{where}: preset")
    if stored.name not in PRESETS:
        raise PolicyError(f"{where}: unknown preset {stored.name!r}; allowed: {', '.join(sorted(PRESETS))}")
    return stored


class _SkipInitialisation(TorchFunctionMode):
    """Modules made inside keep uninitialised weights: they are about to be replaced, and drawing 2 billion is slow."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if getattr(func, "__module__", None) == "torch.nn.init":
            return args[0] if args else kwargs["tensor"]
        return func(*args, **kwargs)


def _weights_file(folder: Path, network: str) -> Path:
    return folder / f"{network}.safetensors"


def _read_manifest(folder: Path) -> dict[str, Any]:
    path = folder / MANIFEST
    if not path.is_file():
        raise PolicyError(f"no checkpoint in {folder}: {MANIFEST} is missing")
    try:
        size = path.stat().st_size
        if size > _LARGEST_MANIFEST:
            raise PolicyError(f"{path} has {size} bytes, allowed: {_LARGEST_MANIFEST}")
        manifest = json.loads(path.read_text())
    except PolicyError:
        raise
    except (OSError, ValueError, RecursionError) as error:  # no file, no text, no JSON, or an endless number
        raise PolicyError(f"{path} is not readable: {error}") from error
    if not isinstance(manifest, dict):
        raise PolicyError(f"{path} must hold a JSON object")
    expected = {"format": FORMAT, "family": FAMILY}
    for key, value in expected.items():
        if manifest.get(key) != value:
            raise PolicyError(f"{path}: {key} is {manifest.get(key)!r}, this version reads {value!r}")
    for key in ("preset", "normalization"):
        if key not in manifest:
            raise PolicyError(f"{path}: {key} is missing")
    return manifest


def _build(cls: type[Any], data: Any, where: str) -> Any:
    """A configuration from its JSON object; fields without a default must be there, unknown ones must not."""
    if not isinstance(data, dict):
        raise PolicyError(f"{where} must be an object, got {data!r}")
    hints = get_type_hints(cls)
    unknown = sorted(set(data) - set(hints))
    if unknown:
        raise PolicyError(f"{where}: unknown field {', '.join(unknown)}; allowed: {', '.join(sorted(hints))}")
    values: dict[str, Any] = {}
    for field in fields(cls):
        if field.name not in data:
            if field.default is MISSING and field.default_factory is MISSING:
                raise PolicyError(f"{where}: field {field.name} is missing")
            continue
        hint, value = hints[field.name], data[field.name]
        if is_dataclass(hint):
            value = _build(hint, value, f"{where}.{field.name}")  # type: ignore[arg-type]
        elif not fits(value, hint):
            raise PolicyError(f"{where}.{field.name} must be {hint}, got {_shortened(value)}")
        values[field.name] = value
    try:
        return cls(**values)
    except (ValueError, TypeError, ArithmeticError) as error:
        raise PolicyError(f"{where}: {error}") from error


def _shortened(value: Any) -> str:
    text = repr(value) if not isinstance(value, int) or value.bit_length() < 1000 else "an endless number"
    return text if len(text) <= 200 else f"{text[:200]}..."


def _load_weights(module: nn.Module, path: Path, dtype: torch.dtype | None) -> None:
    """Replace a module's tensors by those of a file, after comparing every name, shape and kind of number."""
    state = module.state_dict()
    expected = {name: tuple(tensor.shape) for name, tensor in state.items()}
    if not path.is_file():
        others = sorted(other.name for other in path.parent.glob(f"{path.stem}.*"))
        found = f" (found {', '.join(others)}; only safetensors is read)" if others else ""
        raise PolicyError(f"weights file {path} is missing{found}")
    try:
        with safe_open(path, framework="pt") as file:
            found_shapes = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
            for name, shape in expected.items():
                if name not in found_shapes:
                    raise PolicyError(f"{path}: tensor {name} is missing, expected {shape}")
                if found_shapes[name] != shape:
                    raise PolicyError(f"{path}: tensor {name} has shape {found_shapes[name]}, expected {shape}")
            unknown = sorted(set(found_shapes) - set(expected))
            if unknown:
                raise PolicyError(f"{path}: tensor {unknown[0]} belongs to no part of the model ({len(unknown)} such)")
            # Copies: what safetensors returns is the file itself, mapped, and a later save would change it in place.
            tensors = {name: file.get_tensor(name).clone() for name in expected}
    except (SafetensorError, OSError) as error:
        raise PolicyError(f"{path} is not a readable safetensors file: {error}") from error
    for name, tensor in tensors.items():
        _check_numbers(tensor, state[name], f"{path}: tensor {name}", dtype)
    module.load_state_dict(tensors, assign=True)


def _check_numbers(tensor: torch.Tensor, like: torch.Tensor, what: str, dtype: torch.dtype | None) -> None:
    """Refuse numbers that are not finite in the type they are computed in."""
    if tensor.is_floating_point() != like.is_floating_point() or tensor.is_complex():
        raise PolicyError(f"{what} is of {tensor.dtype}, expected something like {like.dtype}")
    if not tensor.is_floating_point() or not tensor.numel():
        return
    largest = torch.finfo(dtype or tensor.dtype).max
    lowest, highest = (float(value) for value in tensor.aminmax())  # NaN where there is one
    if not -largest <= lowest <= highest <= largest:
        bad = next(value for value in (lowest, highest) if not -largest <= value <= largest)
        raise PolicyError(f"{what} holds {bad}, allowed: finite numbers of at most {largest:g}")
