"""Run by torchrun in several processes: a copied run, and sharded networks against whole ones.

accelerate shards on accelerators only. Here the same modules are sharded in the same units by the function it calls, on
CPUs: what this package adds (names, gathering, optimizer state, the one entry through ``forward``) is what is tested.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from training_support import SyntheticSamples, make_batch, make_objective, make_stage

from vag_policy.training.config import OptimizerConfig
from vag_policy.training.config_file import load_config
from vag_policy.training.distributed import (
    SHARDED_BLOCK,
    like,
    load_optimizer_state,
    whole_optimizer_state,
    whole_weights,
)
from vag_policy.training.objective import learning
from vag_policy.training.optimizers import WeightAverage, make_optimizers
from vag_policy.training.trainer import train


def steps(objective, optimizers, average, count):
    losses = []
    for step in range(count):
        batch, latents = make_batch(step=step)  # the same in every process: gradients are those of one
        loss = objective(batch, latents, make_stage())["loss"]
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        average.update(dict(objective.named_parameters()))
        losses.append(loss.item())
    return losses


def prepared(shard):
    objective = make_objective()
    named = learning(objective, make_stage())
    if shard:
        mesh = init_device_mesh("cpu", (dist.get_world_size(),))
        blocks = [module for module in objective.modules() if type(module).__name__ == SHARDED_BLOCK]
        assert len(blocks) == 3
        for module in (*blocks, objective):
            fully_shard(module, mesh=mesh)
        named = dict(objective.named_parameters())
        assert all(isinstance(parameter, DTensor) for parameter in named.values())
    optimizers = make_optimizers(named, make_stage(), OptimizerConfig())
    return objective, optimizers, WeightAverage(named, 0.5)


def check_shards():
    alone, sharded = prepared(False), prepared(True)
    expected = steps(*alone, 3)
    torch.testing.assert_close(steps(*sharded, 3), expected, rtol=1e-4, atol=1e-5)
    weights = whole_weights(sharded[0])
    for name, value in alone[0].state_dict().items():
        assert type(weights[name]) is torch.Tensor
        torch.testing.assert_close(weights[name], value, rtol=1e-3, atol=1e-4)
    state, reference = (whole_optimizer_state(one[0], one[1]) for one in (sharded, alone))
    assert state.keys() == reference.keys() and len(state) == 3 * len(weights)

    again = prepared(True)
    with torch.no_grad():
        for name, parameter in again[0].named_parameters():
            parameter.copy_(like(weights[name], parameter))
    load_optimizer_state(again[0], again[1], state)
    restored = whole_optimizer_state(again[0], again[1])
    assert all(torch.equal(restored[name], state[name]) for name in state)
    whole = {name: value.full_tensor() for name, value in sharded[2].values.items()}
    again[2].load(whole, sharded[2].updates)
    assert all(torch.equal(value.full_tensor(), whole[name]) for name, value in again[2].values.items())
    batch, latents = make_batch()
    features = [one[0](batch, latents, make_stage(), features_only=True)["features"] for one in (sharded, again)]
    assert torch.equal(*features)  # gathers, without gradients
    assert steps(*again, 1) == steps(*sharded, 1)


if __name__ == "__main__":
    torch.set_num_threads(1)
    train(load_config(sys.argv[1]), Path(sys.argv[2]), SyntheticSamples())
    check_shards()
    dist.destroy_process_group()
