"""`vag demo` and the rest of the command line, as a user types it."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from demo_policy import record
from rosbags.highlevel import AnyReader

from vag_policy import processes, shipped
from vag_policy.bringup import GRAPHS, BringupError, arguments
from vag_policy.demo import EPISODES, DemoOptions, demo_graph, demo_plan, run_demo
from vag_policy.entry import STOP_SIGNALS
from vag_policy.shipped import TINY_YAM


def vag(*arguments: str, timeout: float = 120.0) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    environment.pop("_ROS_WHEELS_BOOTSTRAP_COMPLETE", None)
    command = [sys.executable, "-m", "vag_policy.cli", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=timeout, check=False)


def faults(summary: dict) -> list[str]:
    """What failed, but for how fast this machine is right now."""
    return [reason for reason in summary["failed"] if not reason.startswith("observations at")]


def test_the_demo_runs_every_stage(tmp_path):
    out = tmp_path / "out"
    result = vag("demo", "--episodes", "2", "--seconds", "5", "--seed", "1", "--out", str(out))
    summary = json.loads((out / "summary.json").read_text())
    assert not faults(summary), result.stdout + result.stderr
    assert result.returncode == (1 if summary["failed"] else 0)
    assert summary["replans"] >= 2 and summary["commands"] > 100 and summary["observation_hz"] > 0
    assert summary["limit_violations"] == 0 and summary["nodes_died"] == 0
    assert 0 < summary["tr"]["min"] <= summary["tr"]["median"] <= summary["tr"]["max"]
    assert summary["replan_ms"]["median"] > 0 and {"rollout", "head"} <= set(summary["replan_ms"]["stages"])
    first, second = summary["episodes"]
    assert (first["split"], first["seed"], second["split"], second["seed"]) == ("id", 1001, "ood", 10001)
    assert first["instruction"] != second["instruction"] and first["replans"] + second["replans"] == summary["replans"]
    assert summary["success"] == (first["success"] + second["success"]) / 2
    for name in ("demo.png", "temporal_ratio.png", "contact_sheet.png"):
        assert (out / name).stat().st_size > 5000
    with AnyReader([out / "bag"]) as reader:
        counts = {c.topic: c.msgcount for c in reader.connections}
        chunk = next(c for c in reader.connections if c.topic == "/action_chunk")
        _, _, raw = next(iter(reader.messages([chunk])))
        message = reader.deserialize(raw, chunk.msgtype)
    assert len(message.actions) == message.horizon * len(message.joint_names) == 50 * 14
    recorded = {"/observation", "/policy_trace", "/temporal_ratio", "/joint_command/status", "/task_state", "/tf"}
    assert recorded <= {topic for topic, count in counts.items() if count}


@pytest.fixture(autouse=True)
def own_process(monkeypatch):
    """What run_demo changes in its process is put back."""
    for name in ("ROS_DOMAIN_ID", "ROS_AUTOMATIC_DISCOVERY_RANGE"):
        monkeypatch.setenv(name, os.environ.get(name, "0"))
    handlers = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    yield
    for number, handler in handlers.items():
        signal.signal(number, handler)


def test_a_policy_that_does_the_task_is_seen_to_do_it(tmp_path, monkeypatch):
    """The whole graph, with the expert's motion in place of a network: the simulator's verdict ends the episode."""
    # On a machine that is too slow for the graph the arms wait for joint states again and again: give them time.
    options = DemoOptions(tmp_path / "out", seconds=90.0, instruction="put the green cube in the blue bowl", seed=3)
    ((_, trial),) = demo_plan(options)
    record(trial, tmp_path / "course.npz")
    policy = [str(Path(__file__).parent / "demo_policy.py"), str(tmp_path / "course.npz")]

    def with_another_policy(spec, *rest):
        command = arguments(spec, *rest)
        return [command[0], *policy, *command[3:]] if spec.name == "policy" else command

    monkeypatch.setattr(processes, "arguments", with_another_policy)
    run_demo(options)
    summary = json.loads((options.out / "summary.json").read_text())
    assert not faults(summary)
    (episode,) = summary["episodes"]
    assert (episode["success"], episode["reason"], summary["success"]) == (True, "", 1.0)
    assert 5.0 < episode["seconds"] < 85.0 and episode["replans"] > 5


def test_what_is_wrong_is_said_before_anything_starts(tmp_path):
    out = tmp_path / "out"
    with pytest.raises(BringupError, match="no checkpoint in /no/where: there is no /no/where/manifest.json"):
        run_demo(DemoOptions(out, checkpoint="/no/where"))
    with pytest.raises(ValueError, match="no shipped policy 'huge'; there are: tiny_yam"):
        run_demo(DemoOptions(out, checkpoint="shipped:huge"))
    with pytest.raises(
        ValueError, match="unknown word 'pink'; say 'put the OBJECT PLACE' with one of the objects blue"
    ):
        run_demo(DemoOptions(out, instruction="put the pink cube in the blue bowl"))
    with pytest.raises(ValueError, match="seed \\+ episodes may be up to 9000"):
        run_demo(DemoOptions(out, seed=2**31 - 1))
    assert not out.exists()


def test_untrained_weights_are_said_in_one_line(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(shipped, "WEIGHTS", tmp_path)
    (tmp_path / "taken").touch()
    for checkpoint, missing in ((TINY_YAM, "shipped:tiny_yam is not in this copy of the package, so "), ("", "")):
        with pytest.raises(BringupError, match="is not a folder"):
            run_demo(DemoOptions(tmp_path / "taken", checkpoint=checkpoint))
        said = capsys.readouterr().out
        assert said == f"{missing}the weights are untrained: everything is real but the skill\n"


def test_the_demo_starts_the_simulated_graph_and_a_recorder(tmp_path):
    options = DemoOptions(tmp_path, seed=7, guidance="flat", checkpoint="/some/where")
    plan = demo_plan(options)
    specs = {spec.name: spec for spec in demo_graph(options, plan)}
    assert set(specs) == {"recorder", *(spec.name for spec in GRAPHS["yam_sim"])}
    assert specs["policy"].parameters == {"seed": 7, "guidance": "flat", "checkpoint": "/some/where"}
    assert specs["yam_sim"].parameters == {"seed": 1007, "task": plan[0][1].instruction}
    plain = {spec.name: spec for spec in demo_graph(DemoOptions(tmp_path), plan)}
    assert plain["policy"].parameters == {"seed": 0, "checkpoint": TINY_YAM}, "guidance is the parameter files'"


def test_how_many_episodes_there_are(tmp_path):
    parts = [part for part, _ in demo_plan(DemoOptions(tmp_path))]
    assert parts == ["id"] * (EPISODES // 2) + ["ood"] * (EPISODES // 2)
    own = DemoOptions(tmp_path, instruction=" Put the green cube in the wooden tray. ")
    ((part, trial),) = demo_plan(own)
    assert (part, trial.instruction, trial.seed) == ("ood", "put the green cube in the wooden tray", 10000)
    assert len(demo_plan(DemoOptions(tmp_path, instruction=own.instruction, episodes=3))) == 3
    assert len(demo_plan(DemoOptions(tmp_path, episodes=7))) == 7


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
