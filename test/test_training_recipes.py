"""Two steps of every recipe: the loss falls, gradients reach what should learn, and nothing else moves by a bit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from training_support import SETTINGS, make_batch, make_maker, make_objective, make_stage

from vag_policy.robots.yam import POSES
from vag_policy.robots.yam_pointing import Pointer
from vag_policy.robots.yam_rig import RigGeometry
from vag_policy.training.batches import Place
from vag_policy.training.config import OptimizerConfig
from vag_policy.training.lora import add_lora, merged_state
from vag_policy.training.objective import hidden_matrices, learning
from vag_policy.training.optimizers import WeightAverage, make_optimizers, rate, set_rate
from vag_policy.video.backbone import VideoBackbone
from vag_policy.video.presets import video_preset

LAST = SETTINGS.head.layers - 1
# Without an input: the anchor's own prediction is cut out, the last layer makes no video rows.
NO_GRADIENT: set[str] = set()


def two_steps(objective, stage, optimizer="adamw"):
    """Train twice on one batch; returns the losses before, between and after, and the names that changed."""
    batch, latents = make_batch(stage)
    if stage.kind == "head":
        latents = objective(batch, latents, stage, features_only=True)["features"]
    before = {name: tensor.clone() for name, tensor in objective.state_dict().items()}
    named = learning(objective, stage)
    optimizers = make_optimizers(named, stage, OptimizerConfig(kind=optimizer, weight_decay=0.0))
    losses = []
    for _ in range(2):
        loss = objective(batch, latents, stage)["loss"]
        losses.append(loss.item())
        loss.backward()
        for each in optimizers:
            each.step()
            each.zero_grad()
    with torch.no_grad():
        losses.append(objective(batch, latents, stage)["loss"].item())
    after = objective.state_dict()
    return losses, {name for name in before if not torch.equal(before[name], after[name])}


def names(objective, prefix=""):
    return {name for name, _ in objective.named_parameters() if name.startswith(prefix)}


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_joint_full_reaches_everything(optimizer):
    objective = make_objective()
    losses, changed = two_steps(objective, make_stage("joint"), optimizer)
    assert losses[0] > losses[1] > losses[2]
    assert changed == names(objective)


def test_joint_lora_leaves_the_base_alone():
    objective = make_objective()
    add_lora(objective.backbone, 4)
    losses, changed = two_steps(objective, make_stage("joint"))
    assert losses[0] > losses[1] > losses[2]
    adapters = {name for name in names(objective) if "lora_" in name}
    assert len(adapters) == 2 * 10 * SETTINGS.video.backbone.num_layers
    # Blocks after the features reach the video loss; every adapter learns.
    assert changed == adapters | names(objective, "head.")


@pytest.mark.parametrize("lora", [False, True])
def test_two_stage(lora):
    objective = make_objective()
    if lora:
        add_lora(objective.backbone, 4)
    losses, changed = two_steps(objective, make_stage("video"))
    assert losses[0] > losses[1] > losses[2]
    backbone = names(objective, "backbone.")
    assert changed == ({name for name in backbone if "lora_" in name} if lora else backbone)
    losses, changed = two_steps(objective, make_stage("head"))
    assert losses[0] > losses[1] > losses[2]
    assert changed == names(objective, "head.")


@pytest.mark.parametrize("lora", [False, True])
def test_image_stage_trains_what_makes_the_features_and_the_head(lora):
    objective = make_objective()
    if lora:
        add_lora(objective.backbone, 4)
    before = {name for name, parameter in objective.named_parameters() if parameter.requires_grad}
    losses, changed = two_steps(objective, make_stage("image"))
    assert losses[0] > losses[1] > losses[2]
    blocks = {name.split(".")[3] for name in changed if ".transformer_blocks." in name}
    assert blocks == {str(index) for index in range(SETTINGS.video.feature_block)}
    later = [f".transformer_blocks.{i}." for i in range(SETTINGS.video.feature_block, 9)] + [".norm_out.", ".proj_out."]
    backbone = {name for name in before if name.startswith("backbone.") and not any(part in name for part in later)}
    adapters = {name for name in backbone if "lora_" in name}
    assert changed == (adapters if lora else backbone) | names(objective, "head.")


@pytest.mark.parametrize("kind", ["image", "joint"])
def test_a_keyframe_probe_teaches_the_features_and_leaves_the_head_alone(kind):
    objective, stage = make_objective(probe=True), make_stage(kind, keyframe_weight=2.0)
    learning(objective, stage)
    batch, latents = make_batch(stage)
    losses = objective(batch, latents, stage)
    parts = losses["action"] + 2.0 * losses["keyframe"] + losses.get("video", 0.0)
    assert losses["loss"].item() == pytest.approx(parts.item(), rel=1e-6)
    losses["keyframe"].backward()
    reached = {name for name, parameter in objective.named_parameters() if parameter.grad is not None}
    assert names(objective, "probe.") <= reached and not names(objective, "head.") & reached
    assert any(".transformer_blocks.0." in name for name in reached)
    found, changed = two_steps(objective, stage)
    assert found[0] > found[1] > found[2] and names(objective, "probe.") <= changed
    # without a weight the probe is silent and frozen
    plain = make_stage(kind)
    assert "keyframe" not in objective(batch, latents, plain)
    assert not any(name.startswith("probe.") for name in learning(objective, plain))


@pytest.mark.parametrize("kind", ["image", "joint"])
def test_a_point_probe_teaches_the_features_and_leaves_the_head_alone(kind):
    objective, stage = make_objective(probe=True), make_stage(kind, point_weight=2.0)
    learning(objective, stage)
    batch, latents = make_batch(stage)
    batch = replace(batch, place=torch.tensor([[0.5, 0.5], [2.25, 0.1], [-1.0, -1.0], [5.9, 0.9]]))
    losses = objective(batch, latents, stage)
    parts = losses["action"] + 2.0 * losses["point"] + losses.get("video", 0.0)
    assert losses["loss"].item() == pytest.approx(parts.item(), rel=1e-6)
    losses["point"].backward()
    reached = {name for name, parameter in objective.named_parameters() if parameter.grad is not None}
    assert names(objective, "point_probe.") <= reached and not names(objective, "head.") & reached
    assert not names(objective, "probe.") & reached and any(".transformer_blocks.0." in name for name in reached)
    plain = make_stage(kind)
    assert "point" not in objective(batch, latents, plain)
    assert not any(name.startswith("point_probe.") for name in learning(objective, plain))


def test_probes_alone_leave_the_head_as_it_is():
    objective, stage = make_objective(probe=True), make_stage("image", keyframe_weight=1.0, action_weight=0.0)
    found, changed = two_steps(objective, stage)
    assert found[0] > found[1] > found[2]
    assert not any(name.startswith("head.") for name in changed) and names(objective, "probe.") <= changed
    with pytest.raises(ValueError, match="stage image has nothing to learn"):
        make_stage("image", action_weight=0.0)


def test_the_place_to_point_at_is_in_tokens_of_the_first_cameras_tile():
    """Against the pointer in pixels: a token of this model is 16 x 16 of them, a tile 32 x 16."""
    stage, maker = make_stage("image", point_weight=1.0), make_maker()
    place = Place(seed=0, stage=0, step=0)
    goal = np.array(POSES["rest"], np.float32)
    goal[:6] = (-0.2, 1.4, 1.2, -0.4, 0.1, 0.3)
    sample = replace(maker.samples[0], state=np.array(POSES["rest"], np.float32), keyframe=goal)
    away = replace(sample, keyframe=np.array([3.0, 1.4, 1.2, *[0.0] * 11], np.float32))
    batch = maker.collate([sample, away], place.generator(), stage)
    u, v = Pointer(RigGeometry(), "top", SETTINGS.action_names, (32, 16)).pixel(sample.state, goal)
    assert 0 < u < 32 and 0 < v < 16
    assert batch.place[0].tolist() == pytest.approx([u / 16, v / 16], rel=1e-5)
    assert batch.place[1].tolist() == [-1, -1]
    assert maker.collate([sample], place.generator(), make_stage("image")).place.eq(-1).all()


def test_the_keyframe_is_counted_from_the_state_in_units_of_the_actions():
    stage = make_stage("image", keyframe_weight=1.0)
    maker = make_maker()
    batch = maker.make(Place(seed=0, stage=0, step=0), stage)
    sample = maker.samples[int(maker.indices(Place(seed=0, stage=0, step=0), stage)[0])]
    normal = maker.normalization
    offset = sample.keyframe - np.where(normal.relative_actions, sample.state, 0.0)
    expected = (offset - np.array(normal.action_mean)) / np.array(normal.action_std)
    torch.testing.assert_close(
        batch.keyframe[0, :14], torch.tensor(expected, dtype=torch.float32), rtol=1e-5, atol=1e-5
    )
    assert not make_batch(make_stage("image"))[0].keyframe.any()


def test_an_image_stage_sees_the_present_frame_alone():
    objective, stage = make_objective(), make_stage("image")
    batch, latents = make_batch(stage)
    assert batch.video_noise.shape[2] == 1
    assert batch.frames.shape[1] == 1
    _, latents = make_batch(make_stage("joint"))  # of a whole clip
    assert latents.shape[2] > 1
    loss = objective(batch, latents, stage)["loss"].item()
    later, first = latents.clone(), latents.clone()
    later[:, :, 1:] += 1.0
    first[:, :, 0] += 1.0
    assert objective(batch, later, stage)["loss"].item() == loss
    assert objective(batch, first, stage)["loss"].item() != loss


def test_the_action_loss_reaches_the_backbone_up_to_the_features():
    """Joint training is more than two trainings side by side."""
    objective = make_objective()
    batch, latents = make_batch()
    learning(objective, make_stage("joint"))
    objective(batch, latents, make_stage("joint"))["action"].backward()
    reached = {name for name, parameter in objective.named_parameters() if parameter.grad is not None}
    blocks = {name.split(".")[3] for name in reached if ".transformer_blocks." in name}
    assert blocks == {str(index) for index in range(SETTINGS.video.feature_block)}
    assert names(objective, "head.") <= reached


def test_features_for_the_cache_are_the_joint_pass_and_have_no_gradient():
    objective, stage = make_objective(), make_stage("head")
    batch, latents = make_batch(stage)
    features = objective(batch, latents, stage, features_only=True)["features"]
    assert not features.requires_grad
    joint = objective(batch, latents, make_stage("joint"))
    assert objective(batch, features, stage)["action"].item() == pytest.approx(joint["action"].item(), rel=1e-6)


@pytest.mark.parametrize(("rank", "millions"), [(16, 22.9), (64, 91.8)])
def test_lora_of_the_large_model_counts_what_the_paper_s_recipe_gives(rank, millions):
    with torch.device("meta"):
        backbone = VideoBackbone(video_preset("yam").backbone)
    add_lora(backbone, rank)
    count = sum(p.numel() for name, p in backbone.named_parameters() if p.requires_grad)
    assert round(count / 1e6, 1) == millions
    assert all("lora_" in name for name, p in backbone.named_parameters() if p.requires_grad)


@torch.no_grad()
def test_lora_starts_as_nothing_and_merges_into_plain_weights():
    objective = make_objective()
    batch, latents = make_batch()
    stage = make_stage("joint")
    plain = objective(batch, latents, stage)["loss"].item()
    keys = set(objective.backbone.state_dict())
    add_lora(objective.backbone, 4)
    assert objective(batch, latents, stage)["loss"].item() == plain
    for name, parameter in objective.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.05)
    adapted = objective(batch, latents, stage)["loss"].item()
    assert abs(adapted - plain) > 1e-3
    merged = make_objective()
    state = merged_state(objective.backbone)
    assert set(state) == keys
    merged.backbone.load_state_dict(state)
    assert merged(batch, latents, stage)["loss"].item() == pytest.approx(adapted, rel=1e-5)
    with pytest.raises(ValueError, match="rank must be positive"):
        add_lora(merged.backbone, 0)


def test_rates_warm_up_and_fall():
    constant = make_stage(steps=100, warmup=10)
    assert [rate(constant, step) for step in (0, 4, 9, 50, 99)] == pytest.approx([0.1, 0.5, 1.0, 1.0, 1.0])
    cooling = make_stage(steps=100, cooldown=20)
    assert [rate(cooling, step) for step in (79, 80, 90, 99)] == pytest.approx([1.0, 1.0, 0.5, 0.05])
    cosine = make_stage(steps=110, warmup=10, schedule="cosine")
    assert rate(cosine, 10) == pytest.approx(1.0) and rate(cosine, 60) == pytest.approx(0.505)
    assert rate(cosine, 109) == pytest.approx(0.01, abs=1e-3)


def test_groups_have_their_own_rates_and_decay_matrices_only():
    objective = make_objective()
    stage = make_stage(lr=1e-3, head_lr=1e-2)
    named = learning(objective, stage)
    optimizers = make_optimizers(named, stage, OptimizerConfig(kind="muon", muon_lr=3.0, weight_decay=0.1))
    set_rate(optimizers, 0.5)
    owner = {id(p): group for optimizer in optimizers for group in optimizer.param_groups for p in group["params"]}
    matrices = set(hidden_matrices(named))
    assert len(owner) == len(named) and matrices
    for name, parameter in named.items():
        group = owner[id(parameter)]
        expected = 0.5 * (1e-3 if name.startswith("backbone.") else 1e-2) * (3.0 if name in matrices else 1.0)
        assert group["lr"] == pytest.approx(expected), name
        assert group["weight_decay"] == (0.1 if parameter.ndim > 1 else 0.0), name
    assert "backbone.transformer.proj_out.weight" not in matrices
    assert "head.layers.0.q.weight" in matrices


def test_the_average_forgets_its_start():
    values = {"w": torch.zeros(3)}
    average = WeightAverage(values, 0.9)
    expected, weights = torch.zeros(3), torch.zeros(3)
    for update in range(1, 30):
        values["w"] = torch.full((3,), float(update))
        average.update(values)
        decay = min(0.9, (1 + update) / (10 + update))
        expected = decay * expected + (1 - decay) * values["w"]
    torch.testing.assert_close(average.values["w"], expected)
    other = WeightAverage({"w": weights}, 0.9)
    other.load(average.values, average.updates)
    for each in (average, other):
        each.update({"w": torch.ones(3)})
    assert torch.equal(average.values["w"], other.values["w"])
