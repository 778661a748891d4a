"""Losses and noise levels against their formulas in float64."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats
from training_support import SETTINGS, make_batch, make_objective, make_stage
from video_reference import library_transformer

from vag_policy.training.losses import action_loss, action_times, noised, point_loss, video_loss, video_sigmas
from vag_policy.training.objective import repeat_prefix
from vag_policy.vam.presets import override
from vag_policy.video.sampler import sigma_grid


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_video_loss_is_its_formula():
    velocity, clean, noise = (normal(3, 2, 5, 4, 6, seed=seed) for seed in range(3))
    valid = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0], [1, 0, 0, 0, 0]], dtype=torch.bool)
    v, x, e = (tensor.double().numpy() for tensor in (velocity, clean, noise))
    errors = [(v[b, :, t] - (e[b, :, t] - x[b, :, t])) ** 2 for b in range(3) for t in range(1, 5) if valid[b, t]]
    assert float(video_loss(velocity, clean, noise, valid)) == pytest.approx(np.mean(errors), rel=1e-6)


def test_the_anchor_is_no_part_of_the_video_loss():
    velocity, clean, noise = (normal(2, 2, 5, 4, 6, seed=seed) for seed in range(3))
    valid = torch.ones(2, 5, dtype=torch.bool)
    loss = video_loss(velocity, clean, noise, valid)
    for tensor in (velocity, noise):
        tensor[:, :, 0] += 100
    assert video_loss(velocity, clean, noise, valid) == loss
    assert video_loss(velocity, clean, noise, valid & (torch.arange(5) == 0)) == 0


def test_action_loss_is_its_formula():
    velocity, clean, noise = (normal(3, 6, 4, seed=seed) for seed in range(3))
    valid = torch.tensor([[1] * 6, [1] * 2 + [0] * 4, [0] * 6], dtype=torch.bool)
    v, a, e = (tensor.double().numpy() for tensor in (velocity, clean, noise))
    errors = ((v - (e - a)) ** 2)[valid.numpy()]
    assert float(action_loss(velocity, clean, noise, valid)) == pytest.approx(errors.mean(), rel=1e-6)
    velocity[~valid] = 1e3
    assert float(action_loss(velocity, clean, noise, valid)) == pytest.approx(errors.mean(), rel=1e-6)
    assert action_loss(velocity, clean, noise, valid & False) == 0


def test_half_precision_velocities_are_compared_in_float32():
    clean, noise = normal(2, 6, 4, seed=1), normal(2, 6, 4, seed=2)
    velocity = (noise - clean).bfloat16()
    expected = np.mean((velocity.double() - (noise - clean).double()).numpy() ** 2)
    loss = action_loss(velocity, clean, noise, torch.ones(2, 6, dtype=torch.bool))
    assert float(loss) == pytest.approx(expected, rel=1e-4) and loss.dtype == torch.float32


def test_noised_is_a_straight_line():
    clean, noise, level = normal(3, 2, 5), normal(3, 2, 5, seed=1), torch.tensor([0.0, 0.3, 1.0])
    line = noised(clean, noise, level)
    assert torch.equal(line[0], clean[0]) and torch.equal(line[2], noise[2])
    torch.testing.assert_close(line[1], 0.7 * clean[1] + 0.3 * noise[1])


def test_action_times_are_beta():
    times = action_times(20_000, torch.Generator().manual_seed(0)).double().numpy()
    assert times.min() > 0.001 and times.max() <= 1.0
    assert stats.kstest((times - 0.001) / 0.999, stats.beta(1.5, 1.0).cdf).pvalue > 0.01
    assert times.mean() == pytest.approx(0.6 * 0.999 + 0.001, abs=0.005)  # the mean of Beta(1.5, 1) is 0.6
    uniform = torch.rand(5, generator=torch.Generator().manual_seed(7), dtype=torch.float64).numpy()
    quantiles = stats.beta(1.5, 1.0).ppf(uniform) * 0.999 + 0.001
    np.testing.assert_allclose(action_times(5, torch.Generator().manual_seed(7)), quantiles, rtol=1e-6)


def test_video_sigmas_are_uniform_or_on_the_grid():
    uniform = video_sigmas(20_000, torch.Generator().manual_seed(0)).numpy()
    assert stats.kstest(uniform, "uniform").pvalue > 0.01
    mixed = video_sigmas(20_000, torch.Generator().manual_seed(0), grid_share=0.5).numpy()
    counts = [(mixed == point).sum() for point in sigma_grid().astype(np.float32)]
    assert sum(counts) == pytest.approx(10_000, rel=0.05)
    assert stats.chisquare(counts).pvalue > 0.001
    weights = (4, 3, 2, 1, 0, 0)
    weighted = video_sigmas(20_000, torch.Generator().manual_seed(0), 1.0, weights).numpy()
    counts = np.array([(weighted == point).sum() for point in sigma_grid().astype(np.float32)])
    assert counts[4:].sum() == 0
    assert stats.chisquare(counts[:4], 20_000 * np.array(weights[:4]) / 10).pvalue > 0.001


@torch.no_grad()
@pytest.mark.parametrize(("draws", "preconditioned"), [(1, False), (3, True)])
def test_joint_loss_is_the_written_out_one_in_float64(draws, preconditioned):
    """The library's own transformer, the anchor spelled out, the head draw by draw."""
    stage = make_stage(action_draws=draws, action_weight=0.7)
    batch, latents = make_batch(stage)
    changes = {"video.backbone.learned_positions": False}  # the library's are float32 only
    settings = override(SETTINGS, changes | {"video.backbone.preconditioned": preconditioned})
    objective = make_objective(settings).double()
    cast = {name: value.double() for name, value in vars(batch).items() if value.is_floating_point()}
    batch = type(batch)(**vars(batch) | cast)
    losses = objective(batch, latents.double(), stage)

    clean, noise, sigma = latents.double(), batch.video_noise, batch.sigma.view(-1, 1, 1, 1, 1)
    hidden = (1 - sigma) * clean + sigma * noise
    hidden[:, :, 0] = clean[:, :, 0]
    masks = torch.zeros(len(batch), 2, *hidden.shape[2:], dtype=torch.float64)
    masks[:, 0, 0] = 1
    timestep = batch.sigma.view(-1, 1, 1, 1, 1).repeat(1, 1, hidden.shape[2], 1, 1).float()
    timestep[:, :, 0] = 1e-4
    library, seen = library_transformer(objective.backbone.transformer).double(), {}
    block = SETTINGS.video.feature_block - 1
    library.transformer_blocks[block].register_forward_hook(lambda m, i, output: seen.update(features=output))
    embeddings = batch.embeddings[batch.text_index]
    velocity = library(hidden, timestep, embeddings, condition_mask=masks, return_dict=False)[0]
    if preconditioned:
        power = (1 - sigma) ** 2 + sigma**2
        velocity = (2 * sigma - 1) / power * hidden - velocity / power.sqrt()
    error = ((velocity - (noise - clean)) ** 2)[:, :, 1:].mean(dim=(1, 3, 4))[batch.frames_valid[:, 1:]].mean()
    assert float(losses["video"]) == pytest.approx(float(error), rel=1e-5)

    features = seen["features"].unflatten(1, (5, *SETTINGS.video.grid))
    prefix, errors = objective.head.prefix(features, batch.sigma), []
    for draw in range(draws):
        time, eps = batch.action_time[draw::draws], batch.action_noise[draw::draws]
        noisy = (1 - time.view(-1, 1, 1)) * batch.actions + time.view(-1, 1, 1) * eps
        velocity = objective.head.velocity(noisy, time, batch.state, prefix)
        errors.append(((velocity - (eps - batch.actions)) ** 2)[batch.actions_valid])
    action = torch.cat(errors).mean()
    assert float(losses["action"]) == pytest.approx(float(action), rel=1e-5)
    assert float(losses["loss"]) == pytest.approx(float(error + 0.7 * action), rel=1e-5)


@torch.no_grad()
def test_the_network_sees_a_clean_anchor_whatever_its_noise():
    stage = make_stage()
    batch, latents = make_batch(stage)
    objective, inputs = make_objective(), []
    objective.backbone.transformer.patch_embed.register_forward_hook(lambda m, args, out: inputs.append(args[0]))
    first = objective(batch, latents, stage)
    assert torch.equal(inputs[0][:, :-2, 0], latents[:, :, 0])
    batch.video_noise[:, :, 0] += 50
    assert torch.equal(objective(batch, latents, stage)["loss"], first["loss"])
    batch.video_noise[:, :, 1] += 1
    assert objective(batch, latents, stage)["loss"] != first["loss"]


@torch.no_grad()
def test_draws_share_one_video_pass():
    objective = make_objective().eval()
    features, sigma = normal(2, 5, *SETTINGS.video.grid, SETTINGS.video.backbone.width), torch.tensor([0.2, 0.9])
    prefix = objective.head.prefix(features, sigma)
    repeated = repeat_prefix(prefix, 3)
    actions, time, state = normal(6, 6, 16), torch.rand(6), normal(2, 14).repeat_interleave(3, 0)
    together = objective.head.velocity(actions, time, state, repeated)
    alone = objective.head.prefix(features.repeat_interleave(3, 0), sigma.repeat_interleave(3, 0))
    torch.testing.assert_close(together, objective.head.velocity(actions, time, state, alone))


def test_the_point_loss_is_cross_entropy_of_the_token_and_squared_distance_within_it():
    rng = np.random.default_rng(5)
    scores, offsets = rng.normal(size=(3, 6)), rng.normal(size=(3, 6, 2))
    place = np.array([[2.25, 1.5], [-1, -1], [0.0, 0.75]])  # columns, rows of a 2 x 3 grid
    wanted = []
    for row, token, inside in ((0, 5, (-0.25, 0.0)), (2, 0, (-0.5, 0.25))):
        entropy = np.log(np.exp(scores[row]).sum()) - scores[row, token]
        wanted.append(entropy + 4.0 * np.mean((offsets[row, token] - inside) ** 2))
    loss = point_loss(*(torch.tensor(x, dtype=torch.float32) for x in (scores, offsets, place)), columns=3)
    assert loss.item() == pytest.approx(np.mean(wanted), rel=1e-5)
    nowhere = torch.full((3, 2), -1.0)
    flat = torch.tensor(scores, requires_grad=True)
    nothing = point_loss(flat, torch.tensor(offsets), nowhere, 3)
    nothing.backward()
    assert nothing.item() == 0 and not flat.grad.any()
