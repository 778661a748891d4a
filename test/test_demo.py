"""`vag demo` and the rest of the command line, as a user types it."""

import json
import os
import subprocess
import sys

import pytest
from rosbags.highlevel import AnyReader

from vag_policy.bringup import GRAPHS, BringupError
from vag_policy.demo import DemoOptions, demo_graph, run_demo


def vag(*arguments: str, timeout: float = 120.0) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    environment.pop("_ROS_WHEELS_BOOTSTRAP_COMPLETE", None)
    command = [sys.executable, "-m", "vag_policy.cli", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=timeout, check=False)


def test_the_demo_runs_every_stage(tmp_path):
    out = tmp_path / "out"
    result = vag("demo", "--seconds", "8", "--seed", "1", "--out", str(out))
    summary = json.loads((out / "summary.json").read_text())
    # How fast this machine is right now is not what is tested: any other failure is one.
    reasons = [reason for reason in summary["failed"] if not reason.startswith("observations at")]
    assert not reasons, result.stdout + result.stderr
    assert result.returncode == (1 if summary["failed"] else 0)
    assert summary["replans"] >= 1 and summary["commands"] > 100 and summary["observation_hz"] > 0
    assert summary["limit_violations"] == 0 and summary["nodes_died"] == 0
    assert 0 < summary["tr"]["min"] <= summary["tr"]["median"] <= summary["tr"]["max"]
    assert summary["replan_ms"]["median"] > 0 and {"rollout", "head"} <= set(summary["replan_ms"]["stages"])
    assert (out / "temporal_ratio.png").stat().st_size > 5000
    assert (out / "contact_sheet.png").stat().st_size > 5000
    with AnyReader([out / "bag"]) as reader:
        counts = {c.topic: c.msgcount for c in reader.connections}
        chunk = next(c for c in reader.connections if c.topic == "/action_chunk")
        _, _, raw = next(iter(reader.messages([chunk])))
        message = reader.deserialize(raw, chunk.msgtype)
    assert len(message.actions) == message.horizon * len(message.joint_names) == 50 * 14
    recorded = {"/observation", "/policy_trace", "/temporal_ratio", "/joint_command/status", "/task_state", "/tf"}
    assert recorded <= {topic for topic, count in counts.items() if count}


def test_a_checkpoint_that_is_none_is_said_before_anything_starts(tmp_path):
    with pytest.raises(BringupError, match="no checkpoint in /no/where: there is no /no/where/manifest.json"):
        run_demo(DemoOptions(tmp_path / "out", 10.0, "", 0, "none", "/no/where"))
    assert not (tmp_path / "out").exists()


def test_the_demo_starts_the_simulated_graph_and_a_recorder(tmp_path):
    specs = {spec.name: spec for spec in demo_graph(DemoOptions(tmp_path, 10.0, "", 7, "flat", "/some/where"))}
    assert set(specs) == {"recorder", *(spec.name for spec in GRAPHS["yam_sim"])}
    assert specs["policy"].parameters == {"seed": 7, "guidance": "flat", "checkpoint": "/some/where"}
    assert specs["yam_sim"].parameters == {"seed": 7}


def test_bad_words_are_one_line_and_exit_code_2():
    result = vag("up", "yan")
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr == "vag: no graph 'yan'; known: yam, yam_sim\n"


def test_info_prints_one_object():
    numbers = json.loads(vag("info", "--preset", "yam", "--json").stdout.splitlines()[-1])
    assert numbers["sigma_grid"] == [1.0, 0.95266, 0.88321, 0.77143, 0.56165, 0.02441]
    assert (numbers["tokens_per_frame"], numbers["video_tokens"]) == (462, 2310)
    assert numbers["backbone_parameters"] == 2_059_174_912
    assert (numbers["action_horizon"], numbers["execute"]) == (50, 30)
    assert (numbers["feature_block"], numbers["tr_layer"]) == (20, 15)
    assert 420e6 < numbers["head_parameters"] < 450e6
