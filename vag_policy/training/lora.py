"""Low-rank adaptation of the backbone by peft (paper, appendix: training): every attention and MLP projection."""

from __future__ import annotations

from typing import Any

import torch
from peft import LoraConfig, inject_adapter_in_model
from peft.tuners.lora import LoraLayer
from torch import Tensor, nn

from vag_policy.video.backbone import VideoBackbone

TARGETS = r"transformer_blocks\.\d+\.(attn[12]\.(to_q|to_k|to_v|to_out\.0)|ff\.net\.(0\.proj|2))"
"""The ten projections of a block, as peft matches them against whole module names."""

_ADAPTER = "default"


def add_lora(backbone: VideoBackbone, rank: int) -> None:
    """Put adapters of ``rank`` (alpha = rank) beside the projections; the backbone computes the same until they learn.

    Raises:
        ValueError: ``rank`` is not positive.
    """
    if rank < 1:
        raise ValueError(f"LoRA rank must be positive, got {rank}")
    config = LoraConfig(r=rank, lora_alpha=rank, target_modules=TARGETS, lora_dropout=0.0, bias="none")
    inject_adapter_in_model(config, backbone.transformer, adapter_name=_ADAPTER)


@torch.no_grad()
def merged_state(module: nn.Module) -> dict[str, Tensor]:
    """State dict as if there had never been adapters: their products are added to the weights beside them."""
    layers: dict[str, Any] = {name: part for name, part in module.named_modules() if isinstance(part, LoraLayer)}
    merged: dict[str, Tensor] = {}
    for name, tensor in module.state_dict().items():
        owner = next((layer for layer in layers if name.startswith(f"{layer}.")), None)
        if owner is None:
            merged[name] = tensor
        elif name.startswith(f"{owner}.base_layer."):
            plain = f"{owner}.{name.removeprefix(f'{owner}.base_layer.')}"
            delta = layers[owner].get_delta_weight(_ADAPTER) if plain.endswith(".weight") else 0
            merged[plain] = tensor + delta
    return merged
