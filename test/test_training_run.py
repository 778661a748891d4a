"""Whole runs: killed and resumed, in stages, with LoRA; what they leave behind loads as a policy."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from training_support import CONFIG, SETTINGS, TASKS, SyntheticSamples, write_config

from vag_policy import checkpoint
from vag_policy.observation.observation import Observation
from vag_policy.training import store
from vag_policy.training.reporting import LOG, read_log
from vag_policy.training.trainer import CHECKPOINTS, POLICY, train

SUPPORT = Path(__file__).with_name("training_support.py")
TWO_STAGES = [
    {"kind": "video", "steps": 6, "batch": 4, "lr": 1e-3},
    {"kind": "head", "steps": 8, "batch": 4, "lr": 1e-3, "action_draws": 2},
]
SMALL_CACHE = {"shards": 2, "shard_samples": 6, "reuse": 2}


def observation():
    width, height = SETTINGS.video.image_size
    return Observation(
        stamp_ns=0,
        image=np.full((height, width, 3), 90, np.uint8),
        camera_names=SETTINGS.video.cameras,
        state=np.full(14, 0.3, np.float32),
        state_names=SETTINGS.state_names,
        source_stamp_ns={},
        age_ns={},
    )


def weights(folder):
    return {
        f"{name}.{key}": tensor
        for name in ("tokenizer", "backbone", "head")
        for key, tensor in load_file(folder / f"{name}.safetensors").items()
    }


def equal(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A joint run that nothing disturbed."""
    folder = tmp_path_factory.mktemp("finished")
    train(write_config(folder / "config.yaml"), folder / "run", SyntheticSamples())
    return folder / "run"


def test_a_run_leaves_a_policy_a_log_and_whole_checkpoints(finished):
    log = read_log(finished)
    assert [line["step"] for line in log] == list(range(1, 21))
    assert {"loss", "video", "action", "gradient", "rate"} <= set(log[0])
    assert np.mean([line["loss"] for line in log[-5:]]) < np.mean([line["loss"] for line in log[:5]])
    assert [path.name for path in store.checkpoints(finished / CHECKPOINTS)] == ["step_00000016", "step_00000020"]
    assert not [path for path in finished.rglob("*") if path.suffix in (".pt", ".pth", ".bin", ".pkl", ".ckpt")]
    assert list((finished / "tensorboard").glob("events*"))
    policy = checkpoint.load(finished / POLICY)
    plan = policy.plan(observation(), TASKS[0], 0)
    assert plan.actions.shape == (6, 14) and np.isfinite(plan.actions).all()
    other = policy.plan(observation(), TASKS[1], 1)
    assert not np.array_equal(other.actions, plan.actions)


def test_a_policy_s_relative_actions_are_counted_from_the_state(finished):
    policy = checkpoint.load(finished / POLICY)
    assert policy.normalization.relative_actions[:7] == (True,) * 6 + (False,)
    plan = policy.plan(observation(), TASKS[0], 0)
    absolute = checkpoint.load(finished / POLICY)
    object.__setattr__(absolute.normalization, "relative_actions", ())
    difference = plan.actions - absolute.plan(observation(), TASKS[0], 0).actions
    expected = 0.3 * np.array(policy.normalization.relative_actions)
    np.testing.assert_allclose(difference, np.broadcast_to(expected, difference.shape), atol=1e-6)


def test_a_killed_run_resumes_to_the_very_same_losses_and_weights(finished, tmp_path):
    config = write_config(tmp_path / "config.yaml")
    out = tmp_path / "run"
    command = [sys.executable, str(SUPPORT), str(tmp_path / "config.yaml"), str(out)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        deadline = time.monotonic() + 120
        while not (out / LOG).exists() or len((out / LOG).read_text().splitlines()) < 7:
            assert process.poll() is None, process.stderr.read().decode()
            assert time.monotonic() < deadline
            time.sleep(0.002)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert process.returncode == -signal.SIGKILL
    before = len((out / LOG).read_text().splitlines())
    assert 7 <= before < 20  # in the middle, and past a checkpoint
    last = store.checkpoints(out / CHECKPOINTS)[-1]
    assert 4 <= store.load_checkpoint(last)[0] < 20
    train(config, out, SyntheticSamples())
    assert read_log(out) == read_log(finished)
    assert equal(weights(out / POLICY), weights(finished / POLICY))


def test_max_steps_stops_and_the_run_goes_on_later(finished, tmp_path):
    config = write_config(tmp_path / "config.yaml")
    out = tmp_path / "run"
    train(config, out, SyntheticSamples(), max_steps=9)
    assert len(read_log(out)) == 9
    assert checkpoint.load(out / POLICY).plan(observation(), TASKS[0], 0)
    with (out / LOG).open("a") as file:
        file.write('{"step": 10, "loss": 0.5}\n{"step": 11, "lo')  # what a kill leaves behind
    # New data change neither normalisation nor tokenizer of a run, and other settings of the kind are free.
    later = write_config(tmp_path / "config.yaml", checkpoint_every=50, keep=1, name="renamed")
    train(later, out, SyntheticSamples())
    assert read_log(out) == read_log(finished)
    assert equal(weights(out / POLICY), weights(finished / POLICY))
    with pytest.raises(ValueError, match="has done 20 steps, more than the 9"):
        train(later, out, SyntheticSamples(), max_steps=9)


def test_two_stages_with_cached_features(tmp_path):
    config = write_config(tmp_path / "config.yaml", stages=TWO_STAGES, feature_cache=SMALL_CACHE, ema=0.0)
    whole = tmp_path / "whole"
    stale = whole / "features/process_0/shard_000000.safetensors"
    stale.parent.mkdir(parents=True)
    stale.write_bytes(b"features of other weights")
    train(config, whole, SyntheticSamples())
    log = read_log(whole)
    assert [line["stage"] for line in log] == ["video"] * 6 + ["head"] * 8
    assert "video" not in log[-1] and "action" not in log[0]
    first = tmp_path / "first"
    train(config, first, SyntheticSamples(), max_steps=6)
    one, other = weights(first / POLICY), weights(whole / POLICY)
    changed = {name for name in one if not torch.equal(one[name], other[name])}
    assert changed and all(name.startswith("head.") for name in changed)
    # Stopped inside the second stage, and again at the boundary: the same in the end.
    train(config, first, SyntheticSamples(), max_steps=9)
    shards = list((first / "features/process_0").iterdir())
    assert 0 < len(shards) <= 2
    train(config, first, SyntheticSamples())
    assert read_log(first) == log
    assert equal(weights(first / POLICY), other)
    assert not list((first / "features").rglob("*.safetensors"))


class Watched(SyntheticSamples):
    """Remembers whether it was asked."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = 0

    def __getitem__(self, index):
        self.asked += 1
        return super().__getitem__(index)


def test_image_stages_learn_from_snapshots_and_the_others_from_the_dataset(tmp_path):
    data, snapshots = Watched(), Watched()
    image = {"kind": "image", "steps": 2, "batch": 4, "lr": 1e-3}
    joint = {"kind": "joint", "steps": 2, "batch": 4, "lr": 1e-3}
    config = write_config(tmp_path / "a.yaml", stages=[image, joint])
    train(config, tmp_path / "run", data, max_steps=2, snapshots=snapshots)
    fitted, shown = data.asked, snapshots.asked
    assert shown == 8
    train(config, tmp_path / "run", data, snapshots=snapshots)
    assert snapshots.asked == shown and data.asked > fitted


def test_a_stage_s_average_becomes_the_weights(tmp_path):
    config = write_config(tmp_path / "config.yaml", stages=TWO_STAGES, feature_cache=SMALL_CACHE)
    train(config, tmp_path / "run", SyntheticSamples(), max_steps=6)
    _, groups, _ = store.load_checkpoint(store.checkpoints(tmp_path / "run" / CHECKPOINTS)[-1])
    exported = load_file(tmp_path / "run" / POLICY / "backbone.safetensors")
    name = "transformer.proj_out.weight"
    assert torch.equal(exported[name], groups["average"][f"backbone.{name}"])
    assert not torch.equal(exported[name], groups["weights"][f"backbone.{name}"])


def test_lora_runs_resume_and_export_plain_weights(tmp_path):
    stages = CONFIG["stages"][0] | {"steps": 8}
    config = write_config(tmp_path / "config.yaml", stages=[stages], tuning={"kind": "lora", "rank": 4})
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    train(config, whole, SyntheticSamples())
    for stop in (5, None):
        train(config, parts, SyntheticSamples(), max_steps=stop)
    assert read_log(parts) == read_log(whole)
    assert equal(weights(parts / POLICY), weights(whole / POLICY))
    _, groups, _ = store.load_checkpoint(store.checkpoints(whole / CHECKPOINTS)[-1])
    assert all(".lora_" in name for name in groups["weights"] if name.startswith("backbone."))
    assert checkpoint.load(whole / POLICY).plan(observation(), TASKS[0], 0)


def test_training_starts_from_a_checkpoint(finished, tmp_path):
    start = {"checkpoint": str(finished / POLICY)}
    config = write_config(tmp_path / "config.yaml", init=start, ema=0.0)
    train(config, tmp_path / "run", SyntheticSamples(5), max_steps=1)
    one, other = weights(finished / POLICY), weights(tmp_path / "run" / POLICY)
    assert equal(
        {k: v for k, v in one.items() if k.startswith("tokenizer")},
        {k: v for k, v in other.items() if k.startswith("tokenizer")},
    )
    assert max((one[name] - other[name]).abs().max() for name in one) < 2e-3  # one step away
    manifests = [json.loads((folder / POLICY / "manifest.json").read_text()) for folder in (finished, tmp_path / "run")]
    assert manifests[0]["normalization"] == manifests[1]["normalization"]
    wrong = write_config(tmp_path / "config.yaml", init=start, overrides=CONFIG["overrides"] | {"head.mlp": 64})
    with pytest.raises(ValueError, match="other sizes than preset 'tiny'"):
        train(wrong, tmp_path / "wrong", SyntheticSamples())


def test_gradient_accumulation_is_one_larger_batch(tmp_path):
    stage = {"kind": "joint", "steps": 2, "batch": 4, "lr": 1e-3}
    plain = write_config(tmp_path / "a.yaml", stages=[stage], ema=0.0)
    train(plain, tmp_path / "a", SyntheticSamples())
    pieces = write_config(tmp_path / "b.yaml", stages=[stage | {"accumulate": 2}], ema=0.0, gradient_checkpointing=True)
    train(pieces, tmp_path / "b", SyntheticSamples())
    one, other = read_log(tmp_path / "a")[0], read_log(tmp_path / "b")[0]
    assert one["loss"] == pytest.approx(other["loss"], rel=0.5) and one["loss"] != other["loss"]  # other noise


def test_bf16_computes_in_bfloat16_and_keeps_float32_weights(tmp_path):
    stage = CONFIG["stages"][0] | {"steps": 3}
    logs = []
    for precision in ("no", "bf16"):
        config = write_config(tmp_path / "config.yaml", stages=[stage], precision=precision)
        train(config, tmp_path / precision, SyntheticSamples())
        logs.append(read_log(tmp_path / precision))
    one, other = (np.array([line["loss"] for line in log]) for log in logs)
    np.testing.assert_allclose(one, other, rtol=0.02)
    assert (one != other).all()
    assert all(tensor.dtype == torch.float32 for tensor in weights(tmp_path / "bf16" / POLICY).values())


def test_wrong_folders_are_refused(finished, tmp_path):
    with pytest.raises(ValueError, match="holds a run with seed 0, the configuration says 1"):
        train(write_config(tmp_path / "config.yaml", seed=1), finished, SyntheticSamples())
    with pytest.raises(ValueError, match=r"holds a run with stages.0.lr 0.001"):
        stage = CONFIG["stages"][0] | {"lr": 5e-4}
        train(write_config(tmp_path / "config.yaml", stages=[stage]), finished, SyntheticSamples())
    odd = CONFIG["stages"][0] | {"batch": 6, "accumulate": 4}
    with pytest.raises(ValueError, match="batch 6 is not a multiple of accumulate 4"):
        write_config(tmp_path / "config.yaml", stages=[odd])


def test_a_loss_that_is_not_finite_stops_the_run(tmp_path):
    stage = CONFIG["stages"][0] | {"lr": 1e30, "warmup": 0}
    with pytest.raises(ValueError, match=r"the loss of step \d+ is nan: training has diverged"):
        train(write_config(tmp_path / "config.yaml", stages=[stage]), tmp_path / "run", SyntheticSamples())


def test_checkpoints_are_whole_or_not_there(tmp_path):
    tensors = {"w": torch.arange(6.0)}
    store.save_checkpoint(tmp_path, 5, {"weights": tensors}, {"n": 1}, keep=2)
    (tmp_path / ".step_00000009.part").mkdir()
    (tmp_path / "step_00000010").mkdir()  # not ours: no state
    assert [path.name for path in store.checkpoints(tmp_path)] == ["step_00000005"]
    for step in (9, 12):
        store.save_checkpoint(tmp_path, step, {"weights": tensors}, {"n": step}, keep=2)
    found = store.checkpoints(tmp_path)
    assert [path.name for path in found] == ["step_00000009", "step_00000012"]
    step, groups, state = store.load_checkpoint(found[-1])
    assert (step, state) == (12, {"n": 12}) and torch.equal(groups["weights"]["w"], tensors["w"])
    (found[-1] / "weights.safetensors").write_bytes(b"x")
    with pytest.raises(ValueError, match="weights.safetensors is damaged"):
        store.load_checkpoint(found[-1])
    (found[0] / store.STATE).write_text("{")
    with pytest.raises(ValueError, match="state.json is damaged"):
        store.load_checkpoint(found[0])
    save_file(tensors, tmp_path / "x.safetensors")


def test_global_generators_are_restored():
    torch.manual_seed(4)
    states = store.random_states()
    drawn = torch.rand(3)
    store.restore_random_states(states)
    assert torch.equal(torch.rand(3), drawn)
