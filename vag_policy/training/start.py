"""The networks a run starts from, and the policy it ends with."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from vag_policy import checkpoint
from vag_policy.training.batches import SampleSource
from vag_policy.training.config import TrainConfig
from vag_policy.training.data import fit_normalization, tokenizer_clips
from vag_policy.training.lora import add_lora, merged_state
from vag_policy.training.objective import Objective
from vag_policy.vam.action_head import ActionHead
from vag_policy.vam.model import VamModel
from vag_policy.vam.normalization import Normalization
from vag_policy.vam.policy import VamPolicy
from vag_policy.vam.presets import VamPreset
from vag_policy.video.backbone import VideoBackbone
from vag_policy.video.instruction import InstructionEncoder, instruction_encoder
from vag_policy.video.patch_tokenizer import PatchTokenizer
from vag_policy.video.tokenizer import Tokenizer, VideoTokenizer


def start_policy(config: TrainConfig, samples: SampleSource) -> VamPolicy:
    """The policy before its first step: from a checkpoint, published video weights, or new ones.

    New weights are drawn from the seed; a new patch tokenizer and the normalisation are fitted to the data.

    Raises:
        ValueError: the checkpoint or the weights are not the preset's.
    """
    settings = config.settings()
    if config.init.checkpoint:
        policy = checkpoint.load(config.init.checkpoint, embeddings=config.data.embeddings or None)
        if policy.preset.video != settings.video or policy.preset.head != settings.head:
            raise ValueError(f"the checkpoint {config.init.checkpoint} has other sizes than preset {config.preset!r}")
        return VamPolicy(policy.model, policy.encoder, policy.normalization)
    encoder = instruction_encoder(settings.video.text, Path(config.data.embeddings) if config.data.embeddings else None)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        model = _new_model(config, settings, samples)
    normalization = fit_normalization(
        samples, settings, config.data.relative_actions, config.seed, config.data.step_scale
    )
    return VamPolicy(model, encoder, normalization)


def _new_model(config: TrainConfig, settings: VamPreset, samples: SampleSource) -> VamModel:
    if config.init.video_weights:
        folder = Path(config.init.video_weights)
        tokenizer = VideoTokenizer.from_pretrained(folder / "vae", settings.video.tokenizer)
        backbone = VideoBackbone.from_pretrained(folder / "transformer", settings.video.backbone)
        return VamModel(settings, tokenizer, backbone)
    model = VamModel(settings)
    if isinstance(model.tokenizer, PatchTokenizer):
        model.tokenizer.fit(tokenizer_clips(samples, config.init.tokenizer_clips, config.seed))
    prepare_backbone(model.backbone)
    return model


@torch.no_grad()
def prepare_backbone(backbone: VideoBackbone) -> None:
    """Initialise a backbone that is trained from scratch (the library leaves torch's defaults).

    As in DiT: gates and the output start at zero, so that the network starts as the identity and deepens as it learns.
    Learned positions start at random in space, since the library's zeros have no gradient (they are normalised), and
    at zero in time, so that frames beyond the trained horizon are at least not noise.
    """
    transformer = backbone.transformer
    for module in transformer.modules():
        if isinstance(module, nn.Linear):
            nn.init.trunc_normal_(module.weight, std=module.in_features**-0.5, a=-3.0, b=3.0)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
    for block in transformer.transformer_blocks:
        for norm in (block.norm1, block.norm2, block.norm3):
            nn.init.zeros_(norm.linear_2.weight)
    nn.init.zeros_(transformer.time_embed.t_embedder.linear_2.weight)
    nn.init.zeros_(transformer.norm_out.linear_2.weight)
    nn.init.zeros_(transformer.proj_out.weight)
    if backbone.config.learned_positions:
        for axis in ("h", "w"):
            nn.init.normal_(transformer.get_parameter(f"learnable_pos_embed.pos_emb_{axis}"))


def objective_of(config: TrainConfig, weights: Mapping[str, Tensor]) -> Objective:
    """Networks on the CPU with ``weights``, all of an objective's by name, LoRA layers among them."""
    settings = config.settings()
    backbone = VideoBackbone(settings.video.backbone)
    if config.tuning.kind == "lora":
        add_lora(backbone, config.tuning.rank)
    objective = Objective(settings, backbone, ActionHead(settings.head), config.probes)
    objective.load_state_dict(dict(weights))
    return objective


def finished_policy(
    config: TrainConfig,
    weights: Mapping[str, Tensor],
    tokenizer: Tokenizer,
    normalization: Normalization,
    encoder: InstructionEncoder,
) -> VamPolicy:
    """A policy on the CPU with trained weights; LoRA is merged into the projections.

    Args:
        config: of the run.
        weights: all of the objective's, by name.
        tokenizer, normalization, encoder: the run's.
    """
    trained = objective_of(config, weights)
    model = VamModel(config.settings())
    model.backbone.load_state_dict(merged_state(trained.backbone))
    model.head.load_state_dict(trained.head.state_dict())
    model.tokenizer.load_state_dict({name: value.cpu() for name, value in tokenizer.state_dict().items()})
    return VamPolicy(model, encoder, normalization)
