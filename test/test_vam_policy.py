"""Observation to Plan: inputs by name, episodes and TR_0, lazy guidance, reproducibility, what moves the chunk."""

import numpy as np
import pytest
import torch
from vam_support import INSTRUCTION, SMALL_LIBERO, count_calls, make_observation, picture

from vag_policy.policy import Policy, PolicyError
from vag_policy.robots.yam import LOWER, UPPER
from vag_policy.vam.untrained import random_policy
from vag_policy.video.instruction import EmbeddingCache
from vag_policy.video.presets import TextConfig


@pytest.fixture(scope="module")
def unguided():
    return random_policy("tiny")


@pytest.fixture(scope="module")
def adaptive():
    return random_policy("tiny", overrides={"guidance.mode": "adaptive", "guidance.plan_frames": 9, "euler_steps": 4})


@pytest.fixture
def policy(unguided):
    unguided.reset()
    return unguided


@pytest.fixture
def guided(adaptive):
    adaptive.reset()
    return adaptive


def units(policy, plan):
    """Actions in the network's unit scale."""
    return (plan.actions - policy.normalization.action_mean) / policy.normalization.action_std


def test_a_plan_with_its_trace(policy):
    assert isinstance(policy, Policy)
    observation = make_observation(policy, stamp_ns=5_000)
    plan = policy.plan(observation, INSTRUCTION, 7)
    assert (plan.observation_stamp_ns, plan.episode, plan.replan, plan.instruction) == (5_000, 7, 0, INSTRUCTION)
    assert plan.actions.shape == (50, 14) and plan.actions.dtype == np.float64
    assert (plan.names, plan.execute, plan.period_ns) == (policy.action_names, 30, 33_333_333)
    trace = plan.trace
    layer = policy.preset.tr_layer
    assert (trace.layers, trace.monitored_layer) == ((layer,), layer)
    assert trace.attention.shape == (10, len(trace.layers), 5) and trace.attention_grid.shape == (
        5,
        *policy.preset.grid,
    )
    np.testing.assert_allclose(trace.ratio, trace.attention[:, 0, 1:].sum(1) / trace.attention[:, 0, 0], rtol=1e-6)
    assert (trace.ratio > 0).all() and np.isfinite(trace.ratio).all()
    np.testing.assert_array_equal(trace.baseline, trace.ratio)
    assert not trace.guidance_scale.any()
    assert (trace.guidance, trace.branches) == ("none", ())
    assert list(trace.stage_ms) == ["text", "encode", "rollout", "features", "head"]
    assert (trace.solver_index, round(trace.sigma, 5)) == (2, 0.88321)


def test_untrained_motion_is_gentle_and_inside_the_joint_limits(policy):
    for seed in range(3):
        plan = policy.plan(make_observation(policy, image=picture(policy, seed)), INSTRUCTION, seed)
        assert (plan.actions > LOWER).all() and (plan.actions < UPPER).all()
        assert 0.01 < plan.actions.std(0).mean() < 0.2


def test_noise_depends_on_seed_episode_and_replan_only(policy):
    observation = make_observation(policy)
    plans = {(0, replan): policy.plan(observation, INSTRUCTION, 0) for replan in range(2)}
    plans |= {(1, replan): policy.plan(observation, INSTRUCTION, 1) for replan in range(2)}
    assert [plan.replan for plan in plans.values()] == [0, 1, 0, 1]
    chunks = [plan.actions for plan in plans.values()]
    assert all(np.abs(a - b).max() > 0.01 for i, a in enumerate(chunks) for b in chunks[:i])
    torch.manual_seed(99)  # the global generator plays no part
    policy.reset()
    for episode, replan in plans:
        again = policy.plan(observation, INSTRUCTION, episode)
        np.testing.assert_array_equal(again.actions, plans[episode, replan].actions)
    policy.reset()
    policy.seed = 1
    try:
        assert np.abs(policy.plan(observation, INSTRUCTION, 0).actions - chunks[0]).max() > 0.01
    finally:
        policy.seed = 0


def first_plan(policy, instruction=INSTRUCTION, **changes):
    policy.reset()
    return policy.plan(make_observation(policy, **changes), instruction, 0)


def test_image_instruction_and_state_move_the_chunk(policy):
    plan = first_plan(policy)
    width, height = policy.image_size
    others = {
        "another image": first_plan(policy, image=picture(policy, 1)),
        "a blank image": first_plan(policy, image=np.zeros((height, width, 3), np.uint8)),
        "another instruction": first_plan(policy, instruction="open the drawer"),
        "another word order": first_plan(policy, instruction="put the bowl in the red cube"),
        "another state": first_plan(policy, state=np.full(14, 0.5, np.float32)),
    }
    np.testing.assert_array_equal(first_plan(policy).actions, plan.actions)
    moved = {name: np.abs(units(policy, other) - units(policy, plan)).max() for name, other in others.items()}
    assert all(value > 0.01 for value in moved.values()), moved
    assert moved["a blank image"] > 0.3
    ratio = others["a blank image"].trace.ratio / plan.trace.ratio
    assert np.abs(ratio - 1).max() > 0.01


def test_each_camera_matters(policy):
    plan = first_plan(policy)
    tile = policy.image_size[0] // 3
    for index in range(3):
        image = picture(policy)
        image[:, index * tile : (index + 1) * tile] = 0
        assert np.abs(units(policy, first_plan(policy, image=image)) - units(policy, plan)).max() > 0.01


def test_text_is_projected_once_an_instruction(policy, monkeypatch):
    observation = make_observation(policy)
    policy.plan(observation, INSTRUCTION, 0)
    calls = count_calls(monkeypatch, policy.model.backbone, "text")
    for episode in range(2):
        policy.plan(observation, INSTRUCTION, episode)
    assert len(calls) == 0
    policy.plan(observation, "open the drawer", 1)
    assert len(calls) == 1


def test_cameras_and_states_are_taken_by_name(policy):
    plan = first_plan(policy)
    order = [2, 0, 1]
    tiles = np.split(picture(policy), 3, axis=1)
    shuffled = first_plan(
        policy,
        image=np.concatenate([tiles[i] for i in order], axis=1),
        camera_names=tuple(policy.camera_names[i] for i in order),
    )
    np.testing.assert_array_equal(shuffled.actions, plan.actions)
    state = make_observation(policy).state
    backwards = first_plan(policy, state=state[::-1], state_names=policy.state_names[::-1])
    np.testing.assert_array_equal(backwards.actions, plan.actions)
    more = first_plan(policy, state=np.append(state, np.nan), state_names=(*policy.state_names, "waist"))
    np.testing.assert_array_equal(more.actions, plan.actions)


def bad_state(policy, name, value):
    state = make_observation(policy).state.copy()
    state[policy.state_names.index(name)] = value
    return {"state": state}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            lambda p: {"camera_names": ("top", "left_wrist", "front")},
            "lacks camera right_wrist; it has top, left_wrist, front",
        ),
        (
            lambda p: {"image": picture(p)[:, :-8]},
            "is {less}x{high} for 3 cameras, expected {tile}x{high} each: {wide}x{high}",
        ),
        (lambda p: {"image": picture(p)[:-1]}, "is {wide}x{lower} for 3 cameras"),
        (
            lambda p: {"state": np.zeros(13, np.float32), "state_names": p.state_names[:-1]},
            "lacks state right_joint7; it has left_joint1",
        ),
        (lambda p: {"state_names": (*p.state_names[:-1], "left_joint1")}, "lacks state right_joint7"),
        (
            lambda p: {"state": np.zeros(15, np.float32), "state_names": (*p.state_names, "left_joint1")},
            "names state left_joint1 twice",
        ),
        (lambda p: bad_state(p, "left_joint4", np.nan), "state is not finite: left_joint4=nan"),
        (lambda p: bad_state(p, "right_joint2", -np.inf), "state is not finite: right_joint2=-inf"),
    ],
)
def test_an_observation_that_does_not_fit_is_refused_by_name(policy, changes, message):
    wide, high = policy.image_size
    message = message.format(wide=wide, high=high, tile=wide // 3, less=wide - 8, lower=high - 1)
    with pytest.raises(PolicyError, match=message):
        policy.plan(make_observation(policy, **changes(policy)), INSTRUCTION, 0)


def test_an_instruction_without_embedding_is_refused(policy):
    with pytest.raises(PolicyError, match="holds no word"):
        policy.plan(make_observation(policy), " ", 0)
    most = policy.preset.video.text.tokens
    with pytest.raises(PolicyError, match=f"has {most + 1} words, the model takes at most {most}"):
        policy.plan(make_observation(policy), "word " * (most + 1), 0)
    with pytest.raises(PolicyError, match="episode must not be negative"):
        policy.plan(make_observation(policy), INSTRUCTION, -1)


def test_a_network_that_is_not_finite_gives_no_plan(policy):
    bias = policy.model.head.action_out.bias
    kept = bias.detach().clone()
    with torch.no_grad():
        bias[3] = float("nan")
    try:
        with pytest.raises(PolicyError, match="chunk is not finite: 700 of 700 values"):
            policy.plan(make_observation(policy), INSTRUCTION, 0)
    finally:
        with torch.no_grad():
            bias.copy_(kept)
    assert policy.plan(make_observation(policy), INSTRUCTION, 0).replan == 0  # the failed one did not count


def test_baseline_is_held_from_the_first_replan_to_the_end_of_the_episode(guided):
    first, second, third = (
        guided.plan(make_observation(guided, stamp_ns=stamp, image=picture(guided, stamp)), INSTRUCTION, 0)
        for stamp in (1, 2, 2)
    )
    assert not first.trace.guidance_scale.any() and first.trace.branches == ()
    for plan in (second, third):
        np.testing.assert_array_equal(plan.trace.baseline, first.trace.ratio)
        expected = np.clip(plan.trace.ratio / first.trace.ratio - 1, 0, 2)
        np.testing.assert_allclose(plan.trace.guidance_scale, expected, rtol=1e-9)
    new = guided.plan(make_observation(guided, stamp_ns=3), INSTRUCTION, 1)
    assert new.replan == 0
    np.testing.assert_array_equal(new.trace.baseline, new.trace.ratio)
    assert np.abs(new.trace.baseline / first.trace.baseline - 1).max() > 1e-6


def lower_baseline(policy, factor=0.5):
    """As if the episode had begun with less attention on the future."""
    policy._episode.baseline = policy._episode.baseline * factor


def test_branches_run_only_once_attention_rises(guided, monkeypatch):
    model = guided.model
    calls = {name: count_calls(monkeypatch, model, name) for name in ("rollout", "features")}
    observation = make_observation(guided)
    guided.plan(observation, INSTRUCTION, 0)
    assert {name: len(made) for name, made in calls.items()} == {"rollout": 1, "features": 1}
    lower_baseline(guided, 10.0)
    guided.plan(observation, INSTRUCTION, 0)
    assert {name: len(made) for name, made in calls.items()} == {"rollout": 2, "features": 2}
    lower_baseline(guided, 0.05)  # ratio / baseline about 2, at all four Euler steps
    plan = guided.plan(observation, INSTRUCTION, 0)
    assert (plan.trace.guidance_scale > 0.5).all()
    # Once each: the conditional rollout and the plan's; features of those two and of the null text.
    assert {name: len(made) for name, made in calls.items()} == {"rollout": 4, "features": 5}
    assert [made[-1].shape[2] for made in calls["rollout"]] == [5, 5, 5, 9]
    assert plan.trace.branches == ("null", "plan")
    assert list(plan.trace.stage_ms) == ["text", "encode", "rollout", "features", "head", "null", "plan"]
    assert all(ms >= 0 for ms in plan.trace.stage_ms.values())


def test_each_branch_moves_the_chunk_and_null_branch_kinds_differ(guided):
    kept, observation, chunks = guided.preset, make_observation(guided), {}
    settings = {
        "none": {"mode": "none"},
        "null": {"mode": "flat", "w_plan": 0.0},
        "null, whole rollout": {"mode": "flat", "w_plan": 0.0, "null_branch": "rollout"},
        "plan": {"mode": "flat", "w_lang": 0.0},
        "plan of the same length": {"mode": "flat", "w_lang": 0.0, "plan_frames": 5},
    }
    try:
        for name, changes in settings.items():
            guided.preset = kept
            guided.set_guidance(changes)
            guided.reset()
            chunks[name] = guided.plan(observation, INSTRUCTION, 0)
        with pytest.raises(ValueError, match="unknown guidance mode 'loud'; allowed: none, flat, adaptive"):
            guided.set_guidance({"w_lang": 0.5, "mode": "loud"})
        assert guided.preset.guidance.w_lang == 0.0  # nothing was changed
    finally:
        guided.preset = kept
    assert [plan.trace.branches for plan in chunks.values()] == [(), ("null",), ("null",), ("plan",), ("plan",)]
    same = chunks.pop("plan of the same length")
    # The plan branch continues the conditional rollout's noise: with no frame more it is that rollout.
    np.testing.assert_allclose(same.actions, chunks["none"].actions, atol=1e-6)
    actions = [plan.actions for plan in chunks.values()]
    assert all(np.abs(a - b).max() > 1e-5 for i, a in enumerate(actions) for b in actions[:i])


@pytest.mark.parametrize("how", ["reset", "older observation"])
def test_reset_and_a_backward_jump_start_the_episode_anew(guided, how):
    observation = make_observation(guided, stamp_ns=100)
    first = guided.plan(observation, INSTRUCTION, 4)
    guided.plan(make_observation(guided, stamp_ns=200), INSTRUCTION, 4)
    lower_baseline(guided)
    if how == "reset":
        guided.reset()
    again = guided.plan(observation, INSTRUCTION, 4)
    assert again.replan == 0
    np.testing.assert_array_equal(again.trace.baseline, first.trace.baseline)
    np.testing.assert_array_equal(again.actions, first.actions)  # a looped bag gives the same plans


def test_a_refused_observation_leaves_the_episode_as_it_was(guided):
    guided.plan(make_observation(guided, stamp_ns=1), INSTRUCTION, 0)
    baseline = guided._episode.baseline
    with pytest.raises(PolicyError):
        guided.plan(make_observation(guided, stamp_ns=2, camera_names=("a", "b", "c")), INSTRUCTION, 0)
    plan = guided.plan(make_observation(guided, stamp_ns=2), INSTRUCTION, 0)
    assert plan.replan == 1
    np.testing.assert_array_equal(plan.trace.baseline, baseline)


def test_a_reset_during_a_replan_is_not_undone_by_it(guided, monkeypatch):
    original = guided.model.encode
    monkeypatch.setattr(guided.model, "encode", lambda image: (guided.reset(), original(image))[1])
    assert guided.plan(make_observation(guided), INSTRUCTION, 0).replan == 0
    monkeypatch.undo()
    assert guided.plan(make_observation(guided), INSTRUCTION, 0).replan == 0


def test_imagined_video_follows_the_plans_rollout(policy, monkeypatch):
    observation = make_observation(policy)
    frames = policy.imagine(observation, INSTRUCTION)
    assert frames.shape == (17, *observation.image.shape) and frames.dtype == np.uint8
    assert np.ptp(frames) > 0
    with pytest.raises(ValueError, match="one of 5, 9, 24, got 6"):
        policy.imagine(observation, INSTRUCTION, frames=6)
    # What goes into the decoder's rollout is what went into the plan's: the same anchor, text and noise.
    planned, imagined = count_calls(monkeypatch, policy.model, "rollout"), []
    monkeypatch.setattr(policy.model, "imagine", lambda *inputs: imagined.append(inputs))
    for _ in range(2):
        plan = policy.plan(observation, INSTRUCTION, 3)
        policy.imagine(observation, INSTRUCTION, plan.episode, plan.replan)
    for mine, theirs in zip(imagined, planned, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(mine, theirs, strict=True))
    assert not torch.equal(imagined[0][2], imagined[1][2])
    policy.imagine(observation, INSTRUCTION, 3, 0, frames=9)
    assert torch.equal(imagined[-1][2][:, :, :5], imagined[0][2]) and imagined[-1][2].shape[2] == 9


def test_a_longer_rollout_gives_the_head_its_first_five_frames():
    policy = random_policy("tiny", overrides={"video.latent_frames": 9, "euler_steps": 2})
    plan = policy.plan(make_observation(policy), INSTRUCTION, 0)
    assert plan.trace.attention.shape == (2, 1, 5)


def test_the_libero_layout_end_to_end(tmp_path):
    cache = EmbeddingCache(tmp_path, TextConfig("cosmos_reason1", tokens=6, width=48))
    cache.store(INSTRUCTION, torch.randn(6, 48, generator=torch.Generator().manual_seed(0)))
    overrides = SMALL_LIBERO | {"guidance.mode": "flat", "guidance.plan_frames": 5, "tr_extra_layers": (1, 2, 3)}
    policy = random_policy("libero", overrides=overrides, embeddings=tmp_path)
    assert policy.preset.video_tokens == 490
    plan = policy.plan(make_observation(policy), INSTRUCTION, 0)
    assert plan.actions.shape == (17, 7) and plan.execute == 10
    assert plan.trace.layers == (1, 2, 3)
    assert plan.trace.attention.shape == (10, 3, 5) and plan.trace.attention_grid.shape == (5, 7, 14)
    assert plan.trace.branches == ("null", "plan")
    np.testing.assert_allclose(
        plan.trace.ratio, plan.trace.attention[:, 1, 1:].sum(1) / plan.trace.attention[:, 1, 0], 1e-6
    )
    with pytest.raises(PolicyError, match="no embedding of 'fly'"):
        policy.plan(make_observation(policy), "fly", 0)
    with pytest.raises(ValueError, match="folder of embeddings"):
        random_policy("libero", overrides=SMALL_LIBERO)
