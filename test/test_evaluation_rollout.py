"""Whole episodes in simulated time: timing as in the graph, repeatable to the bit, nothing leaked to the policy."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
import torch

from vag_policy import cli_eval
from vag_policy.evaluation.expert_policy import ExpertPolicy
from vag_policy.evaluation.records import compare_records, record, summary
from vag_policy.evaluation.rollout import GREY, Rollout
from vag_policy.evaluation.trials import Trial
from vag_policy.observation.image_codec import RawFrame
from vag_policy.observation.stacking import stack
from vag_policy.policy import Plan, PolicyError
from vag_policy.robots import yam
from vag_policy.robots.yam_sim import Sim
from vag_policy.vam.untrained import random_policy

SECOND_NS = 1_000_000_000
PERIOD_NS = 33_333_333
TRIAL = Trial(3, "put the green cube in the blue bowl", 1003)


def loop(*settings, seconds=3.0, latency=0.2, blank=False):
    values = cli_eval.graph_parameters("yam_sim", None, "expert", settings)
    return cli_eval.loop_config(values, seconds, latency, blank)


CONFIG = loop()


@pytest.fixture(scope="module")
def sim():
    return Sim(CONFIG.sim)


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


class Scripted:
    """A policy that says what a function of the observation says, and remembers what it saw."""

    def __init__(self, actions, execute=15, names=yam.JOINT_NAMES):
        self.camera_names, self.image_size = CONFIG.layout.cameras, CONFIG.layout.size
        self.state_names = self.action_names = names
        self.actions, self.execute = actions, execute
        self.seen = []

    def reset(self):
        self.seen.clear()

    def plan(self, observation, instruction, episode):
        self.seen.append(observation)
        number = len(self.seen) - 1
        actions = self.actions(observation)
        return Plan(
            observation.stamp_ns, episode, number, instruction, actions, self.action_names, PERIOD_NS, self.execute
        )


def stand(observation):
    return np.tile(observation.state.astype(np.float64), (50, 1))


def swing(observation):
    """Turn the left base by 0.6 rad in a second and a half."""
    actions = stand(observation)
    actions[:, 0] += np.linspace(0.0, 0.6, 50)
    return actions


def without_clocks(entry):
    entry = json.loads(json.dumps(entry))
    del entry["spent_s"]
    for replan in entry["replans"]:
        del replan["plan_ms"]
    return entry


def test_the_expert_does_the_task_through_the_loop(sim):
    config = loop(seconds=25.0)
    policy = ExpertPolicy(sim, config.layout.cameras, config.layout.size)
    episode = Rollout(config, sim, policy).run(TRIAL)
    assert episode.success and episode.lifted and not episode.refused
    assert 5.0 < episode.duration_ns / SECOND_NS < 20.0
    phases = [replanned.phase for replanned in episode.replans]
    assert phases == sorted(phases, key=["approach", "grasp", "carry", "place", "retreat"].index)
    numbers = summary([record(episode)])
    assert numbers["success"] == 1.0 and numbers["reasons"] == {} and numbers["low"] == pytest.approx(0.2065, abs=1e-3)


def test_blocking_replans_when_the_chunk_has_run_out_and_latency_has_passed(sim):
    latency = 0.25
    policy = Scripted(stand, execute=15)
    episode = Rollout(loop(latency=latency, seconds=4.0), sim, policy).run(TRIAL)
    times = np.array([replanned.time_ns for replanned in episode.replans]) / SECOND_NS
    assert times[0] == 0.0 and len(times) > 3
    between = np.diff(times)
    wait = latency + 15 * PERIOD_NS / SECOND_NS
    assert (between >= wait).all() and (between <= wait + 0.034).all(), "the next picture is at most a frame away"
    stamps = [observation.stamp_ns for observation in policy.seen]
    assert np.diff(stamps) / SECOND_NS == pytest.approx(between)


def test_async_replans_while_the_chunk_runs(sim):
    settings = ("policy.mode=async", "joint_command.mode=async")
    episode = Rollout(loop(*settings, latency=0.1, seconds=2.0), sim, Scripted(stand)).run(TRIAL)
    between = np.diff([replanned.time_ns for replanned in episode.replans]) / SECOND_NS
    assert len(between) > 10 and between.max() < 0.1 + 0.034
    with pytest.raises(ValueError, match="the policy's mode is 'async' and the executor's 'blocking'"):
        loop("policy.mode=async")


def test_chunks_move_the_arms_when_they_have_arrived_and_for_as_long_as_they_say(sim):
    moved = []

    def watching(observation):
        moved.append(observation.state[0])
        return swing(observation)

    Rollout(loop(seconds=9.0, latency=1.0), sim, Scripted(watching, execute=30)).run(TRIAL)
    slope = 0.6 / 49
    assert len(moved) == 5 and moved[0] == 0.0
    assert moved[1] < 0.01, "the ramp to the first action has just ended"
    # The first chunk plays on while the second is made, so the second begins at the action that is then due.
    assert moved[2] == pytest.approx(49 * slope, abs=0.02)
    # Later ones come when the arms hold, and lose nothing.
    assert np.diff(moved[2:]) == pytest.approx([29 * slope] * 2, abs=0.02)


def test_a_command_never_breaks_a_limit(sim):
    jump = np.where(np.arange(50)[:, None] % 2, yam.LOWER + 0.1, yam.UPPER - 0.1)
    commands = []
    config = loop(seconds=3.0)
    step = sim.step
    sim.step = lambda targets, steps: (commands.append(np.array(targets)), step(targets, steps))
    try:
        Rollout(config, sim, Scripted(lambda _: jump)).run(TRIAL)
    finally:
        sim.step = step
    speed = np.abs(np.diff(commands, axis=0)) / (config.joint_state_ns / SECOND_NS)
    allowed = config.rig.limits.velocity
    assert (speed[:, :6].max(0) > 0.3 * allowed[:6]).any(), "or nothing was tried"
    # what followed a trajectory is never faster than the commands it was made of
    assert (speed <= 1.5 * allowed + 1e-6).all()
    assert (np.array(commands) >= yam.LOWER - 1e-9).all() and (np.array(commands) <= yam.UPPER + 1e-9).all()


def test_refused_chunks_are_counted_and_move_nothing(sim):
    bad = np.full((50, 14), np.nan)
    episode = Rollout(CONFIG, sim, Scripted(lambda _: bad)).run(TRIAL)
    assert set(episode.refused) == {"not_finite"} and episode.refused["not_finite"] >= 3
    assert np.abs(sim.joint_positions() - yam.POSES["rest"]).max() < 0.02
    assert (episode.success, episode.reason) == (False, "never grasped")


def test_a_policy_that_cannot_go_on_fails_its_episode_and_not_the_next(sim):
    calls = iter(range(100))

    def breaking(observation):
        if next(calls) == 2:
            raise PolicyError("the noise is not finite")
        return stand(observation)

    rollout = Rollout(CONFIG, sim, Scripted(breaking))
    broken, whole = (rollout.run(trial) for trial in (TRIAL, Trial(4, "put the purple can on the green plate", 1004)))
    assert (broken.success, broken.reason) == (False, "policy error: the noise is not finite")
    assert len(broken.replans) == 2 and broken.duration_ns < whole.duration_ns == 3 * SECOND_NS
    numbers = summary([record(broken), record(whole)])
    assert numbers["episodes"] == 2
    assert numbers["reasons"] == {"policy error: the noise is not finite": 1, "never grasped": 1}


def test_any_other_error_of_a_policy_is_a_bug_and_stops_the_evaluation(sim):
    def broken(observation):
        raise IndexError("list index out of range")

    with pytest.raises(IndexError):
        Rollout(CONFIG, sim, Scripted(broken)).run(TRIAL)


def test_the_policy_sees_the_pictures_as_the_camera_node_stacks_them(sim):
    policy = Scripted(stand)
    Rollout(loop(seconds=0.5), sim, policy).run(TRIAL)
    sim.reset(TRIAL.seed, TRIAL.instruction)
    frames = {
        name: RawFrame("rgb8", *picture.shape[:2], 3 * picture.shape[1], False, picture.reshape(-1))
        for name in CONFIG.layout.cameras
        if (picture := sim.render(name)) is not None
    }
    first = policy.seen[0]
    np.testing.assert_array_equal(first.image, stack(frames, CONFIG.layout))
    np.testing.assert_allclose(first.state, yam.POSES["rest"], atol=1e-6)
    assert first.state_names == yam.JOINT_NAMES and set(first.age_ns.values()) == {0}


def test_pictures_are_drawn_for_replans_alone(sim):
    drawn, draw = [], sim.draw
    sim.draw = lambda camera: (drawn.append(camera), draw(camera))[1]
    try:
        episode = Rollout(CONFIG, sim, Scripted(stand)).run(TRIAL)
    finally:
        sim.draw = draw
    assert drawn == list(CONFIG.layout.cameras) * len(episode.replans)


def test_a_blank_policy_sees_grey_and_the_true_joints(sim):
    policy = Scripted(swing, execute=30)
    Rollout(loop(blank=True), sim, policy).run(TRIAL)
    assert len(policy.seen) > 2
    assert all((observation.image == GREY).all() for observation in policy.seen)
    assert np.ptp([observation.state[0] for observation in policy.seen]) > 0.1


def test_an_episode_is_the_same_whatever_ran_before(sim):
    """With a real (untrained) network, its noise and its guidance; what the clock said is no part of it."""
    policy = random_policy("tiny", overrides={"guidance.mode": "adaptive"})
    config = dataclasses.replace(CONFIG, limit_ns=5 * SECOND_NS // 2)
    size = {"tile": tuple(side // n for side, n in zip(policy.image_size, (len(policy.camera_names), 1), strict=True))}
    config = dataclasses.replace(config, layout=dataclasses.replace(config.layout, **size))
    rollout = Rollout(config, sim, policy)
    first = record(rollout.run(TRIAL))
    rollout.run(Trial(4, "put the purple can on the green plate", 1004))
    again = record(rollout.run(TRIAL))
    elsewhere = record(
        Rollout(config, Sim(config.sim), random_policy("tiny", overrides={"guidance.mode": "adaptive"})).run(TRIAL)
    )
    assert without_clocks(first) == without_clocks(again) == without_clocks(elsewhere)
    assert len(first["replans"]) >= 2 and all(len(replan["ratio"]) == 10 for replan in first["replans"])


def test_a_policy_for_other_cameras_is_refused(sim):
    policy = Scripted(stand)
    policy.camera_names = ("agentview", "wrist")
    with pytest.raises(ValueError, match="the policy sees agentview, wrist"):
        Rollout(CONFIG, sim, policy)


def test_the_loop_runs_at_the_rates_of_the_parameter_files():
    values = cli_eval.graph_parameters("yam_sim", Path("somewhere"), "checkpoint", ["policy.execute=12"])
    assert values["joint_command"]["velocity"] == 1.5 and values["policy"]["execute"] == 12
    assert values["policy"]["cameras"] == ("top", "left_wrist", "right_wrist")
    config = cli_eval.loop_config(values, 25.0, 0.2, False)
    assert config.arbiter.limits.velocity[0] == 1.5 and config.arbiter.config.displaced == "rehold"
    assert config.command_ns == SECOND_NS // 100 and config.layout.size == (288, 64)
    assert config.joint_state_ns % config.sim.timestep_ns < 4, "whole physics steps, to rounding"


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("policy.guidence=flat", "policy has no parameter 'guidence'"),
        ("policy.guidance=strong", "allowed: none, flat, adaptive"),
        ("joint_command.velocity=1", "must be double such as 1.0"),
        ("tr_monitor.threshold=1.0", "'tr_monitor' takes no part in an evaluation"),
        ("arm.velocity=1.0", "has no node 'arm'"),
    ],
)
def test_wrong_settings_are_named(setting, message):
    with pytest.raises(ValueError, match=message):
        cli_eval.graph_parameters("yam_sim", None, "expert", [setting])


def test_evaluations_are_compared_on_the_episodes_they_share(tmp_path):
    from vag_policy.evaluation.journal import Journal

    def entry(index, success):
        return {"index": index, "instruction": "a", "seed": 1000 + index, "success": success}

    with Journal(tmp_path, {}) as journal:
        for i in range(4):
            journal.add(entry(i, False))
    found = compare_records([entry(i, i > 1) for i in range(6)], tmp_path)
    assert (found.only_first, found.only_second) == (2, 0) and found.difference.value == 0.5
    with pytest.raises(ValueError, match="no episode in common"):
        compare_records([entry(9, True)], tmp_path)
