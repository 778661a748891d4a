"""Where networks live: one device, a copy in every process, or shards; and their tensors as if they were whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import torch
from accelerate import Accelerator, FullyShardedDataParallelPlugin
from accelerate.state import AcceleratorState
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import (
    get_model_state_dict,
    get_optimizer_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.optim import Optimizer

from vag_policy.training.config import TrainConfig

SHARDED_BLOCK = "CosmosTransformerBlock"
"""The unit that FSDP shards and gathers. The head stays with the root: its layers' parts are used one by one."""

_SEPARATOR = "|"  # between a parameter's name and its moment's


def make_accelerator(config: TrainConfig) -> Accelerator:
    """accelerate for this process, as torchrun or ``accelerate launch`` placed it."""
    plugin = None
    if config.sharding == "fsdp":
        plugin = FullyShardedDataParallelPlugin(
            fsdp_version=2,
            auto_wrap_policy="transformer_based_wrap",
            transformer_cls_names_to_wrap=[SHARDED_BLOCK],
            reshard_after_forward=True,
            state_dict_type="FULL_STATE_DICT",
        )
    AcceleratorState._reset_state()  # one process may train twice, and differently
    # Told nothing, accelerate takes torchrun's processes on a machine without an accelerator for strangers.
    cpu = not torch.accelerator.is_available()
    return Accelerator(cpu=cpu, mixed_precision=config.precision, fsdp_plugin=plugin)


def whole(tensor: Tensor) -> Tensor:
    """A tensor gathered from its shards, on the CPU; every process must call it."""
    tensor = tensor.detach()
    return (tensor.full_tensor() if isinstance(tensor, DTensor) else tensor).cpu()


def like(tensor: Tensor, other: Tensor) -> Tensor:
    """A whole tensor laid out as ``other``: the same shards, or the same device."""
    tensor = tensor.to(other.device, other.dtype)
    return distribute_tensor(tensor, other.device_mesh, other.placements) if isinstance(other, DTensor) else tensor


def whole_weights(model: nn.Module, keep: bool = True) -> dict[str, Tensor]:
    """All parameters and buffers by name, gathered on the CPU; every process must call it.

    Args:
        model: wrapped or not; the names are those of the module inside.
        keep: whether this process needs the result; nothing is returned, nor held, otherwise.
    """
    return _gather(cast(dict[str, Tensor], get_model_state_dict(model)), keep)


def whole_optimizer_state(model: nn.Module, optimizers: Sequence[Optimizer], keep: bool = True) -> dict[str, Tensor]:
    """Moments by ``parameter|moment``, gathered on the CPU; every process must call it. Arguments as above."""
    state: Any = get_optimizer_state_dict(model, tuple(optimizers))
    moments = {
        f"{name}{_SEPARATOR}{moment}": torch.as_tensor(value)
        for name, values in state["state"].items()
        for moment, value in values.items()
    }
    return _gather(moments, keep)


def load_optimizer_state(model: nn.Module, optimizers: Sequence[Optimizer], tensors: Mapping[str, Tensor]) -> None:
    """Undo ``whole_optimizer_state``. Learning rates and the like are the optimizers' own."""
    state: Any = get_optimizer_state_dict(model, tuple(optimizers))
    for key, value in tensors.items():
        name, _, moment = key.rpartition(_SEPARATOR)
        state["state"][name][moment] = like(value, torch.as_tensor(state["state"][name][moment]))
    set_optimizer_state_dict(model, tuple(optimizers), state)


def _gather(tensors: Mapping[str, Tensor], keep: bool) -> dict[str, Tensor]:
    """One tensor after the other, so that no device ever holds more than one of them whole."""
    gathered = {}
    for name, tensor in tensors.items():
        value = whole(tensor)
        if keep:
            gathered[name] = value
    return gathered
