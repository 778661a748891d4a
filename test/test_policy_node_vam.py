"""The policy node with the real tiny video-action policy, untrained: loading, and one process over real DDS."""

from __future__ import annotations

import dataclasses
import time

import numpy as np
import pytest
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus
from ros_process import NodeProcess, Probe, claim_domain, status_of, values_of
from std_msgs.msg import String
from vag_interfaces.msg import ActionChunk, PolicyTrace
from vag_interfaces.msg import Observation as ObservationMsg

from vag_policy import checkpoint
from vag_policy.nodes.messages import ns_from_stamp, observation_to_msg, plan_from_msg, trace_from_msg
from vag_policy.nodes.policy_loader import load_policy, warm_up
from vag_policy.nodes.policy_parameters import PARAMETERS, guidance_changes, overrides
from vag_policy.observation.observation import JOINT_SOURCE, Observation
from vag_policy.policy import PolicyError
from vag_policy.vam.presets import PRESETS, override, preset
from vag_policy.vam.untrained import random_policy

DOMAIN = claim_domain()
SEED = 3
TINY = preset("tiny")
DEFAULTS = {param.name: param.default for param in PARAMETERS}


def make_observation(stamp_ns: int, image_seed: int = 0) -> Observation:
    width, height = TINY.video.image_size
    cameras = TINY.video.cameras
    return Observation(
        stamp_ns=stamp_ns,
        image=np.random.default_rng(image_seed).integers(0, 256, (height, width, 3), np.uint8),
        camera_names=cameras,
        state=np.linspace(0.0, 0.5, len(TINY.state_names), dtype=np.float32),
        state_names=TINY.state_names,
        source_stamp_ns=dict.fromkeys((*cameras, JOINT_SOURCE), stamp_ns),
        age_ns=dict.fromkeys((*cameras, JOINT_SOURCE), 0),
    )


@pytest.fixture(scope="module")
def policy():
    return random_policy("tiny", seed=SEED)


@pytest.fixture(scope="module")
def folder(policy, tmp_path_factory):
    return checkpoint.save(policy, tmp_path_factory.mktemp("checkpoint"))


def no_log(_text: str) -> None:
    raise AssertionError("a checkpoint is nothing to warn about")


@pytest.mark.parametrize("name", PRESETS)
def test_default_parameters_leave_a_preset_as_it_is(name):
    assert override(preset(name), overrides(DEFAULTS)) == preset(name)


def test_every_setting_reaches_the_preset():
    values = DEFAULTS | {
        "execute": 7,
        "sigma_index": 0,
        "latent_frames": 9,
        "plan_frames": 9,
        "prefix_mode": "per_step",
        "tr_layer": 2,
        "tr_extra_layers": (1, 4),
        "guidance": "flat",
        "w_lang": 0.5,
    }
    settings = override(TINY, overrides(values))
    assert (settings.execute, settings.video.sigma_index, settings.video.latent_frames) == (7, 0, 9)
    assert (settings.guidance.plan_frames, settings.head.prefix_mode) == (9, "per_step")
    assert settings.layers == (1, 2, 4)
    assert (settings.guidance.mode, settings.guidance.w_lang) == ("flat", 0.5)
    assert guidance_changes({"w_plan": 0.2, "threads": 1}) == {"w_plan": 0.2}


def test_names_are_checked_before_weights_are_read(tmp_path, folder):
    (tmp_path / "manifest.json").write_text((folder / "manifest.json").read_text())  # a checkpoint without weights
    values = DEFAULTS | {"checkpoint": str(tmp_path)}
    with pytest.raises(PolicyError, match="tokenizer.safetensors is missing"):
        load_policy(values, no_log)
    swapped = ("top", "right_wrist", "left_wrist")
    with pytest.raises(PolicyError, match="'cameras' is top, right_wrist, left_wrist"):
        load_policy(values | {"cameras": swapped}, no_log)
    with pytest.raises(PolicyError, match="needs joints right_joint7; "):
        load_policy(values | {"joints": TINY.state_names[:-1]}, no_log)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"device": "gpu"}, "'device' is 'gpu'"),
        ({"device": "cuda:99"}, "'device' is 'cuda:99', and"),
        ({"tr_layer": 5}, "TR layers must be 1..4, got 5"),
        ({"execute": 51}, "execute must be 1..action_horizon, got 51 of 50"),
        ({"latent_frames": 7}, "latent frames must be one of 5, 9, 24, got 7"),
        ({"preset": "yam"}, "folder of embeddings"),
        ({"untrained": "refuse"}, "'checkpoint' is empty, and random weights are refused"),
    ],
)
def test_settings_that_do_not_fit_are_named(changes, words):
    with pytest.raises(ValueError, match=words):
        load_policy(DEFAULTS | changes, lambda text: None)


def test_an_untrained_policy_is_announced():
    said = []
    loaded = load_policy(DEFAULTS | {"seed": SEED}, said.append)
    assert "RANDOM weights" in said[0]
    assert warm_up(loaded, "go") > 0.0
    with pytest.raises(PolicyError, match="words"):
        warm_up(loaded, "word " * (TINY.video.text.tokens + 1))


def test_guidance_can_change_between_plans(policy):
    other = random_policy("tiny", seed=SEED)
    other.set_guidance({"mode": "adaptive", "w_lang": 0.5})
    assert (other.preset.guidance.mode, other.preset.guidance.w_lang) == ("adaptive", 0.5)
    assert other.preset.guidance.w_plan == policy.preset.guidance.w_plan
    with pytest.raises(ValueError, match="none, flat, adaptive"):
        other.set_guidance({"mode": "strong"})
    assert other.preset.guidance.mode == "adaptive"


def test_the_process_plans_what_the_policy_plans(policy, folder, tmp_path):
    parameters = {"checkpoint": folder, "seed": SEED, "mode": "async", "max_observation_age": 30.0, "threads": 1}
    parameters |= {"cameras": list(TINY.video.cameras), "joints": list(TINY.state_names)}
    module = ["-m", "vag_policy.nodes.policy_node"]
    with NodeProcess(module, tmp_path, DOMAIN, parameters) as node, Probe(DOMAIN) as probe:
        chunks, traces = probe.collect(ActionChunk, "action_chunk"), probe.collect(PolicyTrace, "policy_trace")
        diagnostics = probe.collect(DiagnosticArray, "/diagnostics")
        observations = probe.node.create_publisher(ObservationMsg, "observation", 1)
        instructions = probe.node.create_publisher(String, "instruction", 1)
        probe.wait(lambda: active(diagnostics), f"an active policy; log:\n{node.log()}", seconds=60.0)
        for publisher in (observations, instructions):
            probe.wait(publisher.get_subscription_count, publisher.topic_name)
        instructions.publish(String(data="put the red cube into the bowl"))
        probe.wait(lambda: "red cube" in status_of(diagnostics, "policy: state").message, "the instruction")
        seen = make_observation(time.time_ns())
        observations.publish(observation_to_msg(seen, "top_camera_optical_frame"))
        probe.wait(lambda: chunks and traces, "a chunk and its trace", seconds=60.0)
        assert node.stop() == 0, node.log()
        assert "RANDOM" not in node.log()
    plan, trace = plan_from_msg(chunks[0]), trace_from_msg(traces[0])
    assert (plan.names, plan.execute, len(plan.actions)) == (TINY.action_names, 30, 50)
    expected = policy.plan(seen, "put the red cube into the bowl", plan.episode)
    np.testing.assert_allclose(plan.actions, expected.actions, atol=1e-4)
    np.testing.assert_allclose(trace.ratio, expected.trace.ratio, rtol=1e-3)
    np.testing.assert_allclose(trace.attention_grid, expected.trace.attention_grid, rtol=1e-2, atol=1e-6)
    assert ns_from_stamp(chunks[0].header.stamp) == seen.stamp_ns
    policy.reset()
    blank = dataclasses.replace(seen, image=np.zeros_like(seen.image))
    without = policy.plan(blank, "put the red cube into the bowl", plan.episode)
    assert np.abs(without.actions - plan.actions).max() > 1e-3, "the image does not matter"


def active(diagnostics: list[DiagnosticArray]) -> bool:
    status = status_of(diagnostics, "policy: state")
    if status is None:
        return False
    assert status.level == DiagnosticStatus.OK, status.message
    return values_of(status)["lifecycle"] == "active"
