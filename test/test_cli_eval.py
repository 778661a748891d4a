"""``vag eval`` as a user runs it."""

import json
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from vag_policy import cli_eval, shipped
from vag_policy.checkpoint import save
from vag_policy.cli import app
from vag_policy.evaluation.journal import read_journal
from vag_policy.vam.untrained import random_policy

SHORT = ("--seconds", "1.5", "--workers", "1", "--json")


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return save(random_policy("tiny"), tmp_path_factory.mktemp("checkpoint"))


def evaluate(*arguments):
    return CliRunner().invoke(app, ["eval", "yam_sim", *map(str, arguments)])


def result(*arguments):
    outcome = evaluate(*arguments)
    assert outcome.exit_code == 0, outcome.output
    return json.loads(outcome.stdout.splitlines()[-1])


def test_an_evaluation_goes_on_where_it_stopped(tmp_path):
    out = tmp_path / "out"
    asked = ("--policy", "expert", "--out", out, *SHORT)
    result(*asked, "--episodes", 1)
    before = read_journal(out)[1]
    numbers = result(*asked, "--episodes", 3, "--workers", 2, "--pictures", 1, "--against", out)
    records = read_journal(out)[1]
    assert records[0] == before[0] and [record["index"] for record in records] == [0, 1, 2]
    assert numbers["episodes"] == 3 and numbers["against"]["difference"]["value"] == 0.0
    assert (out / "failures/episode-0000.png").stat().st_size > 10_000
    outcome = evaluate(*asked, "--episodes", 2, "--set", "policy.execute=10")
    assert isinstance(outcome.exception, ValueError)
    assert "begun with another policy.execute (0, now 10)" in str(outcome.exception)


def test_a_checkpoint_is_measured(checkpoint):
    numbers = result("--checkpoint", checkpoint, "--split", "ood", "--episodes", 2, *SHORT)
    assert numbers["success"] == 0.0 and numbers["reasons"] == {"never grasped": 2}
    assert numbers["low"] == 0.0 and numbers["high"] == pytest.approx(0.6576, abs=1e-3)
    assert numbers["replan_ms"] > 0 and len(numbers["instructions"]) == 2 and len(numbers["checkpoint"]) == 16
    assert numbers["seeds"] == {"first": 10000, "last": 10001, "policy": 0}
    assert numbers["tr_by_phase"]["approach"]["ratio"]["low"] is not None


def test_the_shipped_weights_are_measured_where_no_others_are_named(checkpoint, tmp_path, monkeypatch):
    monkeypatch.setattr(shipped, "WEIGHTS", tmp_path)
    outcome = evaluate("--episodes", 1, *SHORT)
    assert "shipped:tiny_yam is not in this copy of the package; name a checkpoint" in str(outcome.exception)
    (tmp_path / "tiny_yam").symlink_to(checkpoint)
    values = cli_eval.graph_parameters("yam_sim", None, "checkpoint", [])
    assert values["policy"]["checkpoint"] == str(tmp_path / "tiny_yam")
    assert cli_eval.digest(tmp_path / "tiny_yam") == cli_eval.digest(checkpoint)


def test_mistakes_are_one_sentence():
    run = [sys.executable, "-m", "vag_policy.cli", "eval", "yam_sim"]
    done = subprocess.run([*run, "--policy", "expert", "--pictures", "3"], capture_output=True, text=True)
    assert done.returncode == 2 and done.stderr.strip() == "vag: --pictures needs a folder: --out"
    for arguments, message in (
        (("--checkpoint", "nowhere"), "no checkpoint in nowhere"),
        (("--set", "policy.preset=tiny"), "name a checkpoint with --checkpoint, or take --policy expert"),
        (("--checkpoint", "shipped:huge"), "no shipped policy 'huge'; there are: tiny_yam"),
        (("--policy", "expert", "--checkpoint", "x"), "which needs none"),
        (("--policy", "teleop"), "no policy 'teleop'"),
        (("--policy", "expert", "--split", "test"), "there are: id, ood"),
        (("--policy", "expert", "--set", "policy.mode=async", "--set", "joint_command.mode=async"), "mode blocking"),
    ):
        outcome = evaluate(*arguments)
        assert outcome.exit_code != 0 and message in str(outcome.exception), arguments


def test_the_hash_is_of_the_contents(checkpoint, tmp_path):
    copy = tmp_path / "renamed"
    copy.mkdir()
    for path in checkpoint.iterdir():
        (copy / path.name).write_bytes(path.read_bytes())
    assert cli_eval.digest(copy) == cli_eval.digest(checkpoint)
    weights = copy / "head.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\0")
    assert cli_eval.digest(copy) != cli_eval.digest(checkpoint)
