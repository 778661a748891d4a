"""``vag train`` from a dataset on disk to a policy."""

from __future__ import annotations

import pytest
from lerobot_maker import make_v3
from training_support import SETTINGS, TASKS, write_config
from typer.testing import CliRunner

from vag_policy import checkpoint
from vag_policy.cli import app
from vag_policy.training.data import open_samples
from vag_policy.training.reporting import read_log


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cli")
    make_v3(folder / "demos", lengths=(60, 70))
    write_config(folder / "config.yaml")
    return folder


def vag_train(folder, *arguments):
    command = ["train", "--config", str(folder / "config.yaml"), "--out", str(folder / "run"), *arguments]
    return CliRunner().invoke(app, command)


def test_train_and_go_on(folder):
    data = ("--data", str(folder / "demos"), "--set", "data.every=3")
    result = vag_train(folder, *data, "--max-steps", "2")
    assert result.exit_code == 0, result.output + str(result.exception)
    assert f"policy: {folder / 'run/policy'}" in result.output.replace("\n", "")
    result = vag_train(folder, *data, "--max-steps", "3", "--set", "keep=1")
    assert result.exit_code == 0 and "step 2 of 3" in result.output
    assert [line["step"] for line in read_log(folder / "run")] == [1, 2, 3]
    policy = checkpoint.load(folder / "run/policy")
    assert policy.preset == SETTINGS
    assert policy.encoder.encode(TASKS[0]).any()


def test_samples_are_the_presets(folder):
    config = write_config(folder / "other.yaml", data={"dataset": str(folder / "demos"), "every": 3})
    samples = open_samples(config.data, SETTINGS, folder / "run/cache")
    width, height = SETTINGS.video.image_size
    sample = samples[0]
    assert sample.clip.shape == (17, height, width, 3)
    assert sample.actions.shape == (SETTINGS.action_horizon, 14) and len(samples) == 20 + 24


def test_what_is_wrong_is_said(folder):
    for arguments, message in (
        ((), "data.dataset is not set"),
        (("--data", str(folder / "nowhere")), "no LeRobot dataset here"),
        (("--set", "keep"), "--set takes NAME=VALUE, got 'keep'"),
        (("--set", "steps=3"), "unknown setting 'steps'"),
    ):
        result = vag_train(folder, *arguments)
        assert isinstance(result.exception, ValueError) and message in str(result.exception)
