"""Snapshots are what demonstrations would have shown: physics goes on from them, and shards are whole."""

from __future__ import annotations

import fcntl
from dataclasses import replace

import numpy as np
import pytest

from vag_policy.data.demo_worker import DemoConfig
from vag_policy.data.names import DatasetError
from vag_policy.data.snapshot_maker import SnapshotConfig, make_snapshots
from vag_policy.data.snapshots import SnapshotSamples, write_shard
from vag_policy.expert import snapshots
from vag_policy.expert.kinematics import Kinematics
from vag_policy.expert.snapshots import take_snapshot
from vag_policy.expert.style import Style
from vag_policy.observation.stacking import StackConfig
from vag_policy.robots import yam
from vag_policy.robots.yam_rig import CAMERA_NAMES
from vag_policy.robots.yam_sim import Sim

TASK = "put the red cube in the blue bowl"
SEED = 100_000


@pytest.fixture(scope="module")
def sim():
    return Sim()


@pytest.fixture(scope="module")
def kinematics(sim):
    return Kinematics(sim.config.rig)


def take(sim, kinematics, number, task=TASK, **style):
    return take_snapshot(sim, kinematics, SEED + number, task, Style(**style), np.random.default_rng(number), 50)


@pytest.fixture(scope="module")
def several(sim, kinematics):
    """The first snapshot of every phase, with the scene it shows."""
    found = {}
    for number in range(60):
        one = take(sim, kinematics, number)
        found.setdefault(one.phase, (number, one))
    return found


def test_every_phase_is_shown(several):
    assert set(several) == {"approach", "descend", "grasp", "lift", "carry", "place", "retreat"}


@pytest.mark.parametrize("phase", ["approach", "descend", "lift", "carry"])
def test_physics_goes_on_from_a_snapshot_as_its_actions_say(sim, kinematics, several, phase):
    number, one = several[phase]
    assert take(sim, kinematics, number).state.tolist() == one.state.tolist()  # the scene again
    before = sim.object_poses()["red_cube"]
    steps = round(1e9 / 30 / sim.config.timestep_ns)
    for action in one.actions[:12]:
        sim.step(action, steps)
    after = sim.object_poses()["red_cube"]
    assert np.abs(sim.joint_positions()[:6] - one.actions[12][:6]).max() < 0.2
    assert np.abs(sim.joint_positions()[7:13] - one.actions[12][7:13]).max() < 0.2
    if phase in ("lift", "carry"):  # what is held stays held
        moved = np.linalg.norm(after[:3] - before[:3])
        assert after[2] > 0.02 and moved < 0.3
        touching, table = sim.in_contact("red_cube")
        assert touching and not table
    elif phase == "approach":
        assert np.allclose(after[:3], before[:3], atol=2e-3)


def test_the_keyframe_is_the_grasp_before_it_and_the_release_after_it(sim, kinematics, several):
    for phase, thing, height in (("descend", "red_cube", 0.05), ("carry", "blue_bowl", 0.1)):
        number, one = several[phase]
        take(sim, kinematics, number)
        arm = int(np.abs(one.keyframe - one.state)[7:13].max() > np.abs(one.keyframe - one.state)[:6].max())
        tip = yam.forward_kinematics(one.keyframe[7 * arm : 7 * arm + 6])[:3, 3]
        tip = tip + sim.config.rig.base_xyz(yam.ARMS[arm])
        there = sim.object_poses()[thing][:3]
        assert np.linalg.norm(tip[:2] - there[:2]) < 0.01 and 0 < tip[2] < height


def test_the_start_is_shown_often_and_where_the_style_says(sim, kinematics):
    states = [take(sim, kinematics, number, start="home").state for number in range(40)]
    at_home = [np.allclose(state, yam.POSES["home"], atol=1e-6) for state in states]
    share = snapshots.AT_START
    assert 1 <= sum(at_home) <= 40 * share + 4 * np.sqrt(40 * share * (1 - share))


def test_some_begin_at_a_missed_grasp_and_go_back_to_it(sim, kinematics):
    missed = []
    for number in range(60):
        one = take(sim, kinematics, number)
        for arm in (0, 1):
            joints = one.state[7 * arm : 7 * arm + 7]
            tip = yam.forward_kinematics(joints[:6])[:3, 3]
            closed_and_low = joints[6] < 0.05 and tip[2] < 0.09 and not np.allclose(joints, yam.REST, atol=0.1)
            if closed_and_low and one.phase == "approach":
                missed.append((number, one, arm))
    assert missed
    for number, one, arm in missed:
        take(sim, kinematics, number)
        held = sim.object_poses()["red_cube"]
        assert held[2] < 0.001  # it lies on the table
        gripper = one.actions[:, 7 * arm + 6]
        assert gripper[0] < 0.3 and gripper.max() > 0.6  # it opens again
        height = [yam.forward_kinematics(action[7 * arm : 7 * arm + 6])[2, 3] for action in one.actions]
        assert max(height) > height[0] + 0.01 or height[0] > 0.08


CONFIG = SnapshotConfig(DemoConfig(SEED, (TASK,), 64, 48), StackConfig(CAMERA_NAMES, (24, 16)), 10, shard=20)


def test_shards_are_made_once_and_read_as_samples(tmp_path):
    made = make_snapshots(tmp_path / "a", CONFIG, 1, 1)
    assert 0.8 * CONFIG.shard <= made <= CONFIG.shard  # but for what the expert cannot reach
    first = (tmp_path / "a/shard-00000/columns.npz").stat().st_mtime_ns
    assert make_snapshots(tmp_path / "a", CONFIG, CONFIG.shard, 1) == made
    assert (tmp_path / "a/shard-00000/columns.npz").stat().st_mtime_ns == first
    with pytest.raises(DatasetError, match="begun with another configuration"):
        make_snapshots(tmp_path / "a", replace(CONFIG, horizon=11), 1, 1)
    with (tmp_path / "a/.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(DatasetError, match="another run is writing"):
            make_snapshots(tmp_path / "a", CONFIG, 1, 1)
    (tmp_path / "b").mkdir()
    (tmp_path / "b/thesis.tex").touch()
    with pytest.raises(DatasetError, match="is not empty and holds no snapshots"):
        make_snapshots(tmp_path / "b", CONFIG, 1, 1)
    samples = SnapshotSamples(tmp_path / "a", 17)
    assert len(samples) == made
    sample = samples[3]
    assert sample.clip.shape == (17, 16, 72, 3) and (sample.clip[0] == sample.clip[16]).all()
    assert sample.clip[0].std() > 10 and sample.task == TASK
    assert sample.state.shape == (14,) and sample.actions.shape == (10, 14) and sample.keyframe.shape == (14,)
    arms = np.delete(sample.actions[0] - sample.state, yam.GRIPPER_INDICES)  # a gripper closes on what it holds
    assert np.abs(arms).max() < 0.3
    with pytest.raises(IndexError):
        samples[made]


def columns(count):
    vectors = {"state": (14,), "actions": (5, 14), "keyframe": (14,)}
    content = {name: np.zeros((count, *shape), np.float32) for name, shape in vectors.items()}
    return content | {"valid": np.ones((count, 5), bool), "task": np.array([TASK] * count)}


def test_samples_come_from_the_right_shard(tmp_path):
    for number, count in enumerate((2, 3)):
        content = columns(count)
        content["state"][:, 0] = 10 * number + np.arange(count)
        frames = np.full((count, 4, 4, 3), number, np.uint8)
        write_shard(tmp_path, number, frames, content)
    samples = SnapshotSamples(tmp_path, 5)
    assert [samples[i].state[0] for i in range(5)] == [0, 1, 10, 11, 12]
    assert [int(samples[i].clip[0, 0, 0, 0]) for i in range(5)] == [0, 0, 1, 1, 1]


def test_no_or_damaged_shards_are_named(tmp_path):
    with pytest.raises(DatasetError, match="no snapshots in"):
        SnapshotSamples(tmp_path, 5)
    write_shard(tmp_path, 0, np.zeros((2, 4, 4, 3), np.uint8), columns(3))
    with pytest.raises(DatasetError, match="shard-00000 is damaged"):
        SnapshotSamples(tmp_path, 5)
    (tmp_path / "shard-00000/frames.npy").write_bytes(b"nothing")
    with pytest.raises(DatasetError, match=r"shard-00000/frames.npy is not readable"):
        SnapshotSamples(tmp_path, 5)
