"""Networks and losses of the kinds of stage, as one module that a distributed wrapper can hold."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vag_policy.training.batches import Batch
from vag_policy.training.config import StageConfig
from vag_policy.training.losses import action_loss, keyframe_loss, noised, point_loss, video_loss
from vag_policy.vam.action_head import ActionHead, Prefix
from vag_policy.vam.presets import VamPreset
from vag_policy.video.backbone import VideoBackbone

Losses = dict[str, Tensor]


class Objective(nn.Module):
    """The losses of one micro-batch. Frame 0 of a clip is clean everywhere: it is the anchor, and no part of the loss.

    Args:
        settings: the preset.
        backbone, head: the networks; which of their parameters learn is ``learning``'s business.
        probe: with a keyframe and a point probe.
    """

    def __init__(self, settings: VamPreset, backbone: VideoBackbone, head: ActionHead, probe: bool = False) -> None:
        super().__init__()
        self.settings = settings
        self.backbone = backbone
        self.head = head
        if probe:
            self.probe = KeyframeProbe(settings.head.video_width, settings.head.pad)
            self.point_probe = PointProbe(settings.head.video_width)

    def forward(self, batch: Batch, latents: Tensor, stage: StageConfig, features_only: bool = False) -> Losses:
        """Losses by name; ``loss`` is the one to minimise.

        Args:
            batch: on the networks' device.
            latents: (B, C, T, h, w) clean latents of its clips, of which ``image`` reads the first; for ``head`` the
                features that stand for them, (B, T, rows, columns, width).
            stage: kind, weights and draws.
            features_only: give the features of the noised clips, without gradients, and nothing else. (A sharded module
                gathers its parameters for ``forward`` only.)
        """
        if features_only:
            return {"features": self._features(batch, latents)}
        if stage.kind == "head":
            action = self._action(batch, latents, stage)
            return {"loss": action, "action": action}
        video = self.settings.video
        text = self.backbone.text(batch.embeddings)[batch.text_index]
        if stage.kind == "image":
            anchor = latents[:, :, :1]
            features = self.backbone.features(anchor, anchor, batch.sigma, text, video.feature_block)
            losses: Losses = {"loss": features.new_zeros(())}
            if stage.action_weight:
                action = self._action(batch, features, stage)
                losses = {"loss": stage.action_weight * action, "action": action}
            return self._with_probes(losses, batch, features, stage)
        noisy, anchor = noised(latents, batch.video_noise, batch.sigma), latents[:, :, :1]
        if stage.kind == "video":
            velocity = self.backbone.velocity(noisy, anchor, batch.sigma, text)
            loss = video_loss(velocity, latents, batch.video_noise, batch.frames_valid)
            return {"loss": loss, "video": loss}
        velocity, features = self.backbone.velocity_and_features(noisy, anchor, batch.sigma, text, video.feature_block)
        loss = video_loss(velocity, latents, batch.video_noise, batch.frames_valid)
        action = self._action(batch, features, stage)
        losses = {"loss": loss + stage.action_weight * action, "video": loss, "action": action}
        return self._with_probes(losses, batch, features, stage)

    def _with_probes(self, losses: Losses, batch: Batch, features: Tensor, stage: StageConfig) -> Losses:
        if stage.keyframe_weight:
            keyframe = keyframe_loss(self.probe(features, batch.state), batch.keyframe)
            losses = losses | {"loss": losses["loss"] + stage.keyframe_weight * keyframe, "keyframe": keyframe}
        if stage.point_weight:
            scores, offsets = self.point_probe(features)
            point = point_loss(scores, offsets, batch.place, features.shape[3])
            losses = losses | {"loss": losses["loss"] + stage.point_weight * point, "point": point}
        return losses

    @torch.no_grad()
    def _features(self, batch: Batch, latents: Tensor) -> Tensor:
        """(B, T, rows, columns, width)."""
        text = self.backbone.text(batch.embeddings)[batch.text_index]
        noisy = noised(latents, batch.video_noise, batch.sigma)
        block = self.settings.video.feature_block
        return self.backbone.features(noisy, latents[:, :, :1], batch.sigma, text, block)

    def _action(self, batch: Batch, features: Tensor, stage: StageConfig) -> Tensor:
        draws = stage.action_draws
        prefix = repeat_prefix(self.head.prefix(features[:, : self.settings.head.frames], batch.sigma), draws)
        # Where imagined frames are left out, state and actions stand where they will stand behind them.
        prefix = replace(prefix, positions=self.settings.video_tokens)
        clean = batch.actions.repeat_interleave(draws, dim=0)
        noisy = noised(clean, batch.action_noise, batch.action_time)
        velocity = self.head.velocity(noisy, batch.action_time, batch.state.repeat_interleave(draws, dim=0), prefix)
        valid = batch.actions_valid.repeat_interleave(draws, dim=0)
        return action_loss(velocity, clean, batch.action_noise, valid)


class KeyframeProbe(nn.Module):
    """Reads from a frame's features where the arms will be at the next keyframe: one query over all tokens.

    Args:
        width: of the features.
        pad: width of state and actions.
    """

    def __init__(self, width: int, pad: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.query = nn.Sequential(nn.Linear(pad, width), nn.SiLU(), nn.Linear(width, width))
        self.attention = nn.MultiheadAttention(width, num_heads=4, batch_first=True)
        self.out = nn.Sequential(nn.Linear(2 * width, 2 * width), nn.SiLU(), nn.Linear(2 * width, pad))

    def forward(self, features: Tensor, state: Tensor) -> Tensor:
        """(B, T, rows, columns, width) features and (B, D <= pad) states -> (B, pad)."""
        tokens = self.norm(features[:, 0].flatten(1, 2).to(self.norm.weight.dtype))
        first: nn.Linear = self.query[0]  # type: ignore[assignment]
        query = self.query(F.pad(state, (0, first.in_features - state.shape[1])))[:, None]
        seen, _ = self.attention(query, tokens, tokens, need_weights=False)
        return self.out(torch.cat([query, seen], dim=-1)[:, 0])


class PointProbe(nn.Module):
    """Says of every token of the present frame whether it shows where the hand will be at the next keyframe.

    Args:
        width: of the features.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.out = nn.Linear(width, 3)

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """(B, T, rows, columns, width) features -> scores (B, N) and offsets (B, N, 2), ``losses.point_loss``'s."""
        tokens = self.norm(features[:, 0].flatten(1, 2).to(self.norm.weight.dtype))
        values = self.out(tokens)
        return values[..., 0], values[..., 1:]


def repeat_prefix(prefix: Prefix, times: int) -> Prefix:
    """The same prefix for ``times`` neighbouring rows of each sample: one video pass serves several noisy chunks."""
    if times == 1:
        return prefix
    pairs = prefix.keys_values
    if pairs is not None:
        pairs = tuple((k.repeat_interleave(times, 0), v.repeat_interleave(times, 0)) for k, v in pairs)
    return replace(prefix, tokens=prefix.tokens.repeat_interleave(times, 0), keys_values=pairs)


def learning(objective: Objective, stage: StageConfig) -> dict[str, nn.Parameter]:
    """The parameters that learn in ``stage``, by name; every other one is frozen.

    LoRA layers, where there are any, are the only part of the backbone that learns. What comes after the features is
    out of an ``image`` stage's reach.
    """
    lora = any("lora_" in name for name, _ in objective.named_parameters())
    beyond = tuple(_beyond_features(objective.settings)) if stage.kind == "image" else ()
    chosen: dict[str, nn.Parameter] = {}
    for name, parameter in objective.named_parameters():
        in_backbone = name.startswith("backbone.")
        learns = stage.kind != "head" and (not lora or "lora_" in name) if in_backbone else stage.kind != "video"
        learns = learns and not name.startswith(beyond)
        if name.startswith("head.") and stage.kind == "image":
            learns = stage.action_weight > 0
        if name.startswith("probe."):
            learns = stage.keyframe_weight > 0
        if name.startswith("point_probe."):
            learns = stage.point_weight > 0
        parameter.requires_grad_(learns)
        if learns:
            chosen[name] = parameter
    return chosen


def _beyond_features(settings: VamPreset) -> Iterator[str]:
    """Beginnings of the names of parameters that the action loss does not reach."""
    video = settings.video
    for index in range(video.feature_block, video.backbone.num_layers):
        yield f"backbone.transformer.transformer_blocks.{index}."
    for name in ("norm_out", "proj_out"):
        yield f"backbone.transformer.{name}."


def hidden_matrices(named: dict[str, nn.Parameter]) -> Iterator[str]:
    """Names of the matrices between hidden layers of the blocks, which Muon is made for."""
    for name, parameter in named.items():
        if parameter.ndim == 2 and (".transformer_blocks." in name or name.startswith("head.layers.")):
            yield name
