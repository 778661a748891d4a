"""Where networks live: one device, a copy in every process, or shards; and their tensors as if they were whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import torch
from accelerate import Accelerator, FullyShardedDataParallelPlugin
from accelerate.state import AcceleratorState
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.optim import Optimizer

from vag_policy.training.config import TrainConfig

SHARDED_BLOCK = "CosmosTransformerBlock"
"""The unit that FSDP shards and gathers. The head stays with the root: its layers' parts are used one by one."""

_WHOLE = StateDictOptions(full_state_dict=True, cpu_offload=True)
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
    return Accelerator(mixed_precision=config.precision, fsdp_plugin=plugin)


def whole(tensor: Tensor) -> Tensor:
    """A tensor gathered from its shards, on the CPU; every process must call it."""
    tensor = tensor.detach()
    return (tensor.full_tensor() if isinstance(tensor, DTensor) else tensor).cpu()


def like(tensor: Tensor, other: Tensor) -> Tensor:
    """A whole tensor laid out as ``other``: the same shards, or the same device."""
    tensor = tensor.to(other.device, other.dtype)
    return distribute_tensor(tensor, other.device_mesh, other.placements) if isinstance(other, DTensor) else tensor


def whole_weights(model: nn.Module) -> dict[str, Tensor]:
    """All parameters and buffers by name, gathered on the CPU; every process must call it."""
    return cast(dict[str, Tensor], get_model_state_dict(model, options=_WHOLE))


def whole_optimizer_state(model: nn.Module, optimizers: Sequence[Optimizer]) -> dict[str, Tensor]:
    """Moments by ``parameter|moment``, gathered on the CPU; every process must call it."""
    state: Any = get_optimizer_state_dict(model, tuple(optimizers), options=_WHOLE)
    return {
        f"{name}{_SEPARATOR}{moment}": torch.as_tensor(value)
        for name, moments in state["state"].items()
        for moment, value in moments.items()
    }


def load_optimizer_state(model: nn.Module, optimizers: Sequence[Optimizer], tensors: Mapping[str, Tensor]) -> None:
    """Undo ``whole_optimizer_state``. Learning rates and the like are the optimizers' own."""
    state: Any = get_optimizer_state_dict(model, tuple(optimizers), options=_WHOLE)
    moments: dict[str, dict[str, Tensor]] = {}
    for key, value in tensors.items():
        name, _, moment = key.rpartition(_SEPARATOR)
        moments.setdefault(name, {})[moment] = value
    state["state"] = moments
    set_optimizer_state_dict(model, tuple(optimizers), state, options=_WHOLE)
