"""Guidance scale and formula, lazy branches, and the Euler sampler against a plainly written one."""

import numpy as np
import pytest
import torch
from test_vam_action_head import ACTIONS, MODES, SIGMA, SMALL, level, make_head, make_inputs

from vag_policy.vam.guidance import Branch, guidance_scale, guide
from vag_policy.vam.presets import GuidanceConfig
from vag_policy.vam.sampler import sample_chunk

STEPS = 10


@pytest.mark.parametrize(
    ("mode", "ratio", "baseline", "expected"),
    [
        ("none", 9.0, 1.0, 0.0),
        ("flat", 0.1, 1.0, 1.0),
        ("flat", 0.1, None, 1.0),
        ("adaptive", 1.5, 1.0, 0.5),
        ("adaptive", 0.9, 1.0, 0.0),  # below the baseline
        ("adaptive", 1.0, 1.0, 0.0),
        ("adaptive", 2.9, 1.0, 1.9),
        ("adaptive", 3.1, 1.0, 2.0),  # s_max
        ("adaptive", 8.0, 4.0, 1.0),
        ("adaptive", 9.0, None, 0.0),  # first replan: there is no baseline yet
        ("adaptive", 1.0, 0.0, 2.0),
    ],
)
def test_guidance_scale(mode, ratio, baseline, expected):
    assert guidance_scale(GuidanceConfig(mode=mode), ratio, baseline) == pytest.approx(expected)


def test_s_max_is_a_setting():
    assert guidance_scale(GuidanceConfig(mode="adaptive", s_max=0.25), 10.0, 1.0) == 0.25


class Counted:
    """A branch whose computation is counted."""

    def __init__(self, prefix):
        self.calls = 0
        self.prefix = prefix
        self.branch = Branch(self.compute)

    def compute(self):
        self.calls += 1
        return self.prefix


def test_guided_velocity_is_the_papers_formula():
    config = GuidanceConfig(mode="adaptive", w_lang=0.1, w_plan=0.3)
    velocities = {"null": torch.tensor([2.0, 0.0]), "plan": torch.tensor([-1.0, 5.0])}
    conditional = torch.tensor([1.0, 1.0])
    branches = {name: Counted(name) for name in velocities}
    lazy = {name: counted.branch for name, counted in branches.items()}
    guided = guide(config, 1.5, conditional, lazy, velocities.__getitem__)
    # 1 + 1.5 (0.1 (1 - 2) + 0.3 (-1 - 1)) and 1 + 1.5 (0.1 (1 - 0) + 0.3 (5 - 1))
    torch.testing.assert_close(guided, torch.tensor([-0.05, 2.95]))
    guide(config, 0.5, conditional, lazy, velocities.__getitem__)
    assert [counted.calls for counted in branches.values()] == [1, 1]


@pytest.mark.parametrize(
    ("scale", "weights", "calls"),
    [
        (0.0, {}, {"null": 0, "plan": 0}),
        (1.0, {"w_lang": 0.0}, {"null": 0, "plan": 1}),
        (1.0, {"w_plan": 0.0}, {"null": 1, "plan": 0}),
        (1.0, {"w_lang": 0.0, "w_plan": 0.0}, {"null": 0, "plan": 0}),
    ],
)
def test_a_branch_without_effect_is_not_computed(scale, weights, calls):
    branches = {name: Counted(torch.ones(1)) for name in ("null", "plan")}
    lazy = {name: counted.branch for name, counted in branches.items()}
    conditional = torch.zeros(1)
    guided = guide(GuidanceConfig(mode="flat", **weights), scale, conditional, lazy, lambda prefix: prefix)
    assert {name: counted.calls for name, counted in branches.items()} == calls
    assert {name: counted.branch.ran for name, counted in branches.items()} == {n: c > 0 for n, c in calls.items()}
    if not any(calls.values()):
        assert torch.equal(guided, conditional)


def run(head, features, guidance, baseline=None, layers=(2,), tr_layer=2, steps=STEPS):
    """Sample with the conditional features and two counterfactual ones; also the counted branches."""
    actions, state, _ = make_inputs()
    prefixes = [head.prefix(one[None], level(SIGMA)) for one in features]
    branches = {"null": Counted(prefixes[1]), "plan": Counted(prefixes[2])}
    chunk = sample_chunk(
        head,
        prefixes[0],
        state[None],
        actions[None],
        steps=steps,
        layers=layers,
        tr_layer=tr_layer,
        guidance=guidance,
        branches={name: counted.branch for name, counted in branches.items()},
        baseline=baseline,
    )
    return chunk, {name: counted.calls for name, counted in branches.items()}


def reference_run(reference, features, config, baseline, layer=2):
    """The same by the book, from full attention."""
    actions, state, _ = make_inputs()
    ratios, scales = [], []
    for step in range(STEPS):
        time = 1 - step / STEPS
        conditional, attention = reference.velocity(actions, time, state, features[0], SIGMA)
        mass = reference.frame_mass(attention[layer - 1], len(features[0]), ACTIONS)
        ratios.append((mass[1:].sum() / mass[0]).item())
        s = {"none": 0.0, "flat": 1.0}.get(config.mode)
        if s is None:
            s = min(max(ratios[-1] / baseline[step] - 1, 0.0), config.s_max)
        scales.append(s)
        velocity = conditional
        if s:
            null, plan = (reference.velocity(actions, time, state, one, SIGMA)[0] for one in features[1:])
            velocity = conditional + s * config.w_lang * (conditional - null) + s * config.w_plan * (plan - conditional)
        actions = actions - velocity / STEPS
    return actions, ratios, scales


FEATURES = [make_inputs(seed)[2] for seed in (1, 11, 12)]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("guidance", ["none", "flat", "adaptive"])
def test_ten_guided_euler_steps_equal_the_reference(mode, guidance):
    head, reference = make_head(mode)
    config = GuidanceConfig(mode=guidance)
    unguided, _ = run(head, FEATURES, GuidanceConfig())
    # A baseline that the ratio is above in some steps, below in others, and far above (clipped) in one.
    baseline = unguided.ratio * np.array([0.8, 1.1, 0.5, 0.2, 1.0, 0.9, 1.2, 0.7, 1.3, 0.95])
    chunk, calls = run(head, FEATURES, config, baseline)
    actions, ratios, scales = reference_run(reference, FEATURES, config, baseline)
    torch.testing.assert_close(chunk.actions, actions, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(chunk.ratio, ratios, rtol=1e-6)
    np.testing.assert_allclose(chunk.guidance_scale, scales, rtol=1e-6, atol=1e-9)
    np.testing.assert_array_equal(chunk.baseline, baseline)
    if guidance == "none":
        assert calls == {"null": 0, "plan": 0}
    else:
        assert calls == {"null": 1, "plan": 1}
        assert (chunk.actions - unguided.actions).abs().max() > 1e-3
    if guidance == "adaptive":
        assert 2.0 in chunk.guidance_scale and 0.0 in chunk.guidance_scale and 0 < chunk.guidance_scale[0] < 2


def test_while_the_scale_is_zero_no_branch_is_computed():
    head, _ = make_head("cached")
    first, calls = run(head, FEATURES, GuidanceConfig(mode="adaptive"))
    assert calls == {"null": 0, "plan": 0} and not first.guidance_scale.any()
    _, calls = run(head, FEATURES, GuidanceConfig(mode="adaptive"), baseline=first.ratio * 1.5)
    assert calls == {"null": 0, "plan": 0}
    late = first.ratio * 1.5
    late[-1] /= 2
    chunk, calls = run(head, FEATURES, GuidanceConfig(mode="adaptive"), baseline=late)
    assert calls == {"null": 1, "plan": 1} and (chunk.guidance_scale > 0).tolist() == [False] * 9 + [True]


def test_the_first_chunk_sets_the_baseline():
    head, _ = make_head("cached")
    per_step, _ = run(head, FEATURES, GuidanceConfig(mode="adaptive", baseline="per_step"))
    np.testing.assert_array_equal(per_step.baseline, per_step.ratio)
    again, _ = run(head, FEATURES, GuidanceConfig(mode="adaptive"), baseline=per_step.baseline)
    assert not again.guidance_scale.any()  # the same ratios once more: s = 0
    assert torch.equal(again.actions, per_step.actions)
    mean, _ = run(head, FEATURES, GuidanceConfig(mode="adaptive", baseline="mean"))
    np.testing.assert_allclose(mean.baseline, np.full(STEPS, mean.ratio.mean()))
    assert not mean.guidance_scale.any()
    assert np.ptp(mean.ratio) > 1e-3
    second, _ = run(head, FEATURES, GuidanceConfig(mode="adaptive", baseline="mean"), baseline=mean.baseline)
    assert (second.guidance_scale > 0).any()  # steps above their mean


def test_every_layer_at_once_and_the_grid():
    head, _ = make_head("per_step")
    one, _ = run(head, FEATURES, GuidanceConfig())
    every, _ = run(head, FEATURES, GuidanceConfig(), layers=(1, 2, 3))
    frames, rows, columns, _ = FEATURES[0].shape
    assert one.attention.shape == (STEPS, 1, frames) and every.attention.shape == (STEPS, 3, frames)
    assert every.attention_grid.shape == (frames, rows, columns)
    np.testing.assert_allclose(every.attention[:, 1], one.attention[:, 0], rtol=1e-6)
    np.testing.assert_allclose(every.ratio, one.ratio, rtol=1e-6)
    np.testing.assert_allclose(every.attention_grid.sum((1, 2)), one.attention[:, 0].mean(0), rtol=1e-5)
    # Each query of each head spends attention 1, some of it on state and actions.
    assert 0 < every.attention.sum(2).max() < ACTIONS * SMALL["heads"]


def test_wrong_arguments_are_named():
    head, _ = make_head("cached")
    with pytest.raises(ValueError, match=r"baseline must be \(10,\), one TR_0 a step, got \(9,\)"):
        run(head, FEATURES, GuidanceConfig(), baseline=np.ones(9))
    with pytest.raises(ValueError, match="one chunk at a time"):
        prefix = head.prefix(FEATURES[0][None], level(SIGMA))
        noise = torch.zeros(2, ACTIONS, SMALL["pad"])
        sample_chunk(
            head, prefix, noise[:, 0], noise, steps=1, layers=(2,), tr_layer=2, guidance=GuidanceConfig(), branches={}
        )
