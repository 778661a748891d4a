"""What a step trains on follows from the seed and its number."""

from __future__ import annotations

import threading
import time
from dataclasses import fields, replace

import numpy as np
import pytest
import torch
from training_support import SETTINGS, TASKS, SyntheticSamples, make_maker, make_stage

from vag_policy.training.batches import Place, Prefetcher, latent_validity
from vag_policy.training.data import MIN_STD, fit_normalization, is_gripper
from vag_policy.vam.normalization import Normalization
from vag_policy.vam.presets import preset

STAGE = make_stage(batch=4, action_draws=3)
PLACE = Place(seed=1, stage=0, step=5)


def same(one, other):
    return all(torch.equal(getattr(one, f.name), getattr(other, f.name)) for f in fields(one))


def test_a_batch_is_its_place():
    batch = make_maker().make(PLACE, STAGE)
    assert same(batch, make_maker().make(PLACE, STAGE))
    torch.manual_seed(5)  # global generators play no part
    assert same(batch, make_maker().make(PLACE, STAGE))
    for change in ({"seed": 2}, {"stage": 1}, {"step": 6}, {"micro": 1}, {"process": 1}):
        other = make_maker().make(replace(PLACE, **change), STAGE)
        assert not torch.equal(other.video_noise, batch.video_noise), change
        assert not torch.equal(other.action_noise, batch.action_noise), change
        assert not torch.equal(other.sigma, batch.sigma), change


def test_an_epoch_holds_every_sample_once_over_steps_micro_batches_and_processes():
    count, processes, stage = 24, 2, make_stage(batch=8, accumulate=2)
    maker = make_maker(SyntheticSamples(count), processes=processes)

    def epoch(number, seed=0):
        places = [
            Place(seed, 0, step, micro, process)
            for step in range(3 * number, 3 * number + 3)
            for micro in range(2)
            for process in range(processes)
        ]
        return np.concatenate([maker.indices(place, stage) for place in places])

    assert sorted(epoch(0)) == sorted(epoch(1)) == list(range(count))
    assert list(epoch(0)) != list(epoch(1)) and list(epoch(0)) != list(epoch(0, seed=1))
    # How a step is cut into pieces does not change which samples it holds.
    alone = make_maker(SyntheticSamples(count))
    assert sorted(alone.indices(Place(0, 0, 1), make_stage(batch=8))) == sorted(epoch(0)[8:16])
    # Steps run across the end of an epoch.
    assert len(alone.indices(Place(0, 0, 3), make_stage(batch=7))) == 7


def test_shapes_and_units():
    maker = make_maker()
    samples, batch = maker.samples, maker.make(PLACE, STAGE)
    rows = maker.indices(PLACE, STAGE)
    width, height = SETTINGS.video.image_size
    assert batch.frames.shape == (4, 17, height, width, 3) and batch.frames.dtype == torch.uint8
    assert batch.video_noise.shape == (4, 6, 5, height // 8, width // 8)
    assert batch.action_time.shape == (12,) and batch.action_noise.shape == (12, 6, 16)
    assert batch.embeddings[batch.text_index].shape == (4, 24, 256)
    for row, index in enumerate(rows):
        sample = samples[int(index)]
        normal = batch.actions[row, :, :14].numpy()
        reference = maker.normalization.reference(sample.state, SETTINGS)
        restored = maker.normalization.denormalize_actions(normal, reference)
        np.testing.assert_allclose(restored, sample.actions, atol=1e-5)
        np.testing.assert_array_equal(batch.actions_valid[row], sample.actions_valid)
    assert not batch.actions[:, :, 14:].any()


def test_instructions_are_embedded_once_and_sometimes_dropped():
    stage = make_stage(batch=12)
    batch = make_maker().make(Place(0, 0, 0), stage)
    assert len(batch.embeddings) == len(TASKS)
    dropped = make_maker(text_dropout=1.0).make(Place(0, 0, 0), stage)
    assert dropped.embeddings.shape[0] == 1 and not dropped.embeddings.any()
    some = make_maker(SyntheticSamples(100), text_dropout=0.3).make(Place(0, 0, 0), make_stage(batch=100))
    null = [not some.embeddings[index].any() for index in some.text_index]
    assert 15 < sum(null) < 45


def test_a_group_of_four_is_valid_if_all_of_it_is():
    valid = np.array([True] * 4 + [False] * 13)
    assert latent_validity(valid).tolist() == [True, False, False, False, False]
    valid[:8] = True
    assert latent_validity(valid).tolist() == [True, True, False, False, False]
    assert latent_validity(np.ones(17, bool)).all()


def test_normalization_is_measured_on_valid_actions_counted_from_the_state():
    samples = SyntheticSamples(40)
    normalization = fit_normalization(samples, SETTINGS, relative=True)
    names = SETTINGS.action_names
    flags = normalization.relative_actions
    assert [name for name, flag in zip(names, flags, strict=True) if not flag] == ["left_joint7", "right_joint7"]
    offsets = np.concatenate(
        [samples[i].actions[samples[i].actions_valid] - samples[i].state * np.array(flags) for i in range(40)]
    )
    np.testing.assert_allclose(normalization.action_mean, offsets.mean(0), rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(normalization.action_std, offsets.std(0).clip(MIN_STD), rtol=1e-5)
    absolute = fit_normalization(samples, SETTINGS, relative=False)
    assert not any(absolute.relative_actions) and absolute.action_std[0] > 5 * normalization.action_std[0]
    np.testing.assert_allclose(absolute.state_std, np.stack([samples[i].state for i in range(40)]).std(0), rtol=1e-5)
    assert is_gripper("left_gripper.pos") and not is_gripper("left_joint6")


def test_relative_actions_are_scaled_step_by_step():
    samples = SyntheticSamples(40)
    normalization = fit_normalization(samples, SETTINGS, relative=True, stepwise=True)
    rows = [samples[i] for i in range(40)]
    units = np.stack(
        [normalization.normalize_actions(s.actions, normalization.reference(s.state, SETTINGS)) for s in rows]
    )
    valid = np.stack([s.actions_valid for s in rows])
    joints = np.array(normalization.relative_actions)
    for step in range(SETTINGS.action_horizon):  # every step has unit size, where one scale would give 1/6 at the first
        assert np.square(units[valid[:, step], step][:, joints]).mean() == pytest.approx(1.0, rel=1e-4)
    assert units[valid][:, ~joints].std() == pytest.approx(1.0, rel=0.1)  # grippers as ever
    sample = rows[3]
    reference = normalization.reference(sample.state, SETTINGS)
    back = normalization.denormalize_actions(units[3], reference)
    np.testing.assert_allclose(back, sample.actions, atol=1e-5)
    normalization.check(SETTINGS)
    with pytest.raises(ValueError, match="step_scale has 6 steps, preset 'tiny' has 50"):
        normalization.check(preset("tiny"))
    with pytest.raises(ValueError, match="step_scale must be"):
        replace(normalization, step_scale=(0.0,) * 6)


def test_relative_actions_need_their_state():
    with pytest.raises(ValueError, match="relative_actions has 1 entries, action_mean 2"):
        Normalization((0.0,), (1.0,), (0.0, 0.0), (1.0, 1.0), (True,))
    unit = ((0.0,) * 14, (1.0,) * 14)
    other = replace(SETTINGS, action_names=("x", *SETTINGS.action_names[1:]))
    with pytest.raises(ValueError, match="relative actions x are no state entries"):
        Normalization(*unit, *unit, (True,) * 14).check(other)
    Normalization(*unit, *unit).check(other)


def test_samples_of_another_size_are_refused():
    class Wide(SyntheticSamples):
        def __getitem__(self, index):
            sample = super().__getitem__(index)
            return replace(sample, clip=sample.clip[:, :, :64])

    with pytest.raises(ValueError, match=r"clip is \(17, 16, 64, 3\), preset needs \(17, 16, 96, 3\)"):
        make_maker(Wide()).make(PLACE, STAGE)
    with pytest.raises(ValueError, match="no sample to train on"):
        make_maker(SyntheticSamples(12), processes=1).__class__([], SETTINGS, None, None)


def test_prefetching_keeps_order_runs_ahead_and_brings_errors():
    made, release = [], threading.Event()

    def make(number):
        made.append(number)
        if number == 6:
            raise ValueError("sample 6 is damaged")
        return number

    items = iter(Prefetcher(make, 2, 8))
    assert next(items) == 2
    deadline = time.monotonic() + 5
    while len(made) < 2 and time.monotonic() < deadline:
        release.wait(0.01)
    assert made[:2] == [2, 3]  # the next one is made while this one is used
    assert [next(items) for _ in range(3)] == [3, 4, 5]
    with pytest.raises(ValueError, match="sample 6 is damaged"):
        next(items)
    assert list(Prefetcher(make, 5, 5)) == []
