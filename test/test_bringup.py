"""Graph tables, rigs, arguments, and processes that start and stop."""

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from ros_process import PATIENCE_S, claim_domain

from vag_policy.bringup import (
    GRAPHS,
    BringupError,
    Graph,
    NodeSpec,
    argument_parameters,
    arguments,
    graph,
    parse_settings,
    private_domain,
    share_directory,
)
from vag_policy.rig_file import load_rig


def test_unknown_names_are_errors_that_list_what_is_known():
    with pytest.raises(BringupError, match="no graph 'yan'; known: yam, yam_sim"):
        graph("yan")
    with pytest.raises(BringupError, match="no node 'camera'; it has: camera_sync"):
        graph("yam", parameters={"camera": {}})
    with pytest.raises(BringupError, match="no argument 'chekpoint'; known: preset, checkpoint"):
        argument_parameters("yam", {"chekpoint": "x"})


def test_rig_and_arguments_reach_the_nodes(tmp_path):
    file = tmp_path / "rig.yaml"
    file.write_text(
        "base_spacing: 0.8\n"
        "remappings: {joint_command: {joint_states: /arms/joint_states}}\n"
        "parameters: {joint_command: {rate: 50.0}}\n"
    )
    rig = load_rig(str(file))
    assert rig.base_spacing == 0.8
    given = argument_parameters("yam", {"seed": "3", "mode": "async", "guidance": ""})
    nodes = {spec.name: spec for spec in graph("yam", rig, given)}
    assert nodes["policy"].parameters == {"seed": 3, "mode": "async"}
    assert nodes["joint_command"].parameters == {"rate": 50.0, "mode": "async"}
    assert nodes["camera_sync"].remappings == {}
    command = arguments(nodes["joint_command"], tmp_path / "x.yaml", "/rig1/")
    assert "joint_states:=/arms/joint_states" in command and "__ns:=/rig1" in command
    assert command.index("--params-file") < command.index(str(tmp_path / "x.yaml")), "later files win"


def test_a_simulated_rig_takes_only_the_base_spacing_of_a_rig(tmp_path):
    file = tmp_path / "rig.yaml"
    file.write_text(
        "base_spacing: 0.8\n"
        "remappings: {camera_sync: {joint_states: /arms/joint_states}}\n"
        "parameters: {camera_sync: {gripper_stroke: -0.0475}}\n"
    )
    rig = load_rig(str(file))
    nodes = {spec.name: spec for spec in graph("yam_sim", rig)}
    assert nodes["yam_sim"].parameters == {"base_spacing": 0.8}
    assert nodes["camera_sync"].parameters == {} and nodes["camera_sync"].remappings == {}
    nodes = {spec.name: spec for spec in graph("yam_sim", rig, {"yam_sim": {"base_spacing": 0.62}})}
    assert nodes["yam_sim"].parameters == {"base_spacing": 0.62}, "what a user sets by hand wins"


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("policy.preset", "--set takes NODE.PARAMETER=VALUE"),
        ("preset=tiny", "--set takes NODE.PARAMETER=VALUE"),
        ("policy.=tiny", "--set takes NODE.PARAMETER=VALUE"),
        ("a.b=[", "the value is not YAML in line 1"),
        ("a.b='", "the value is not YAML in line 1"),
        ("a.b=!!python/object:os.system x", "the value is not YAML in line 1"),
        ("a.b=2024-13-45", "the value is not YAML"),
        ("a.b=", "the value is None; allowed: true or false, a number"),
        ("a.b={c: 1}", "allowed: true or false, a number, a text, or a list"),
        ("a.b=[1, x]", "allowed: true or false, a number, a text, or a list"),
        ("a.b=[[1]]", "allowed: true or false, a number, a text, or a list"),
        ("a.b=2024-01-01", "allowed: true or false, a number, a text, or a list"),
    ],
)
def test_a_setting_that_no_parameter_can_have_is_refused(setting, words):
    with pytest.raises(BringupError) as refused:
        parse_settings([setting])
    assert words in str(refused.value) and setting in str(refused.value) and "\n" not in str(refused.value)


def test_an_argument_that_no_parameter_can_have_is_refused():
    with pytest.raises(BringupError, match=r"seed '\[' is not YAML in line 1"):
        argument_parameters("yam", {"seed": "["})


@pytest.mark.parametrize("namespace", ["rig 1", "1rig", "a//b", "a-b", "~", "rig/2", "é"])
def test_a_namespace_that_ros_would_not_take_is_refused(namespace, tmp_path):
    with pytest.raises(BringupError, match=f"'{namespace}' is no namespace; allowed: letters, digits and _"):
        Graph(graph("yam"), tmp_path, namespace)


def test_a_namespaced_graph_keeps_its_frames_to_itself():
    spec = graph("yam_sim")[0]
    command = arguments(spec, None, "/rig1/arms/")
    assert "__ns:=/rig1/arms" in command and {"/tf:=tf", "/tf_static:=tf_static"} <= set(command)
    assert not [word for word in arguments(spec, None) if word.startswith(("/tf", "__ns"))]


def test_a_log_folder_that_cannot_be_written_is_said(tmp_path):
    (tmp_path / "file").touch()
    for folder in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(BringupError, match=f"cannot write the nodes' output to {folder}"), Graph((), folder):
            pass


def test_the_simulated_graph_is_the_real_one_and_the_simulator():
    real = [spec.executable for spec in GRAPHS["yam"]]
    simulated = [spec.executable for spec in GRAPHS["yam_sim"]]
    assert simulated == ["yam_sim_node", *real]


def test_private_domains_differ_while_held_and_are_free_again():
    with private_domain() as first, private_domain() as second:
        assert first != second and {first, second} <= set(range(1, 100))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 23700 + first))


def test_share_directory_falls_back_to_an_installed_package(tmp_path, monkeypatch):
    (tmp_path / "share/vag_policy/atlas").mkdir(parents=True)
    monkeypatch.setenv("AMENT_PREFIX_PATH", str(tmp_path))
    assert share_directory("atlas") == tmp_path / "share/vag_policy/atlas"
    with pytest.raises(BringupError, match="cannot find nowhere of vag_policy"):
        share_directory("nowhere")


def test_processes_start_are_seen_to_die_and_are_stopped(tmp_path):
    good = NodeSpec("recorder", "recorder_node", parameters={"output": str(tmp_path / "bag")})
    bad = NodeSpec("second", "recorder_node", parameters={"outptu": "typo"})
    with Graph((good, bad), tmp_path / "logs", environment={"ROS_DOMAIN_ID": str(claim_domain())}) as running:
        deadline = time.monotonic() + 20
        while "second" not in running.dead() or not (tmp_path / "bag").exists():
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert running.dead() == {"second": 2}
        assert "has no parameter 'outptu'; it has: exclude, output, topics" in running.epitaph("second")
        pid = running.process("recorder").pid
        codes = running.stop()
    assert codes["recorder"] == 0, "a stop is a clean exit"
    assert (tmp_path / "bag/metadata.yaml").exists()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_stop_before_a_node_has_started_is_clean(tmp_path):
    specs = (NodeSpec("recorder", "recorder_node", parameters={"output": str(tmp_path / "bag")}),)
    with Graph(specs, tmp_path, environment={"ROS_DOMAIN_ID": str(claim_domain())}) as running:
        codes = running.stop()  # long before its imports are done
    assert codes == {"recorder": 0} and running.log_of("recorder") == ""


STARTER = """
import sys, time
from pathlib import Path
from vag_policy.bringup import Graph, NodeSpec
folder = Path(sys.argv[1])
with Graph((NodeSpec("recorder", "recorder_node", parameters={"output": str(folder / "bag")}),), folder) as running:
    print(running.process("recorder").pid, flush=True)
    time.sleep(60)
"""


def test_nodes_stop_cleanly_when_their_starter_is_killed(tmp_path):
    environment = {**os.environ, "ROS_DOMAIN_ID": str(claim_domain())}
    environment.pop("_ROS_WHEELS_BOOTSTRAP_COMPLETE", None)
    command = [sys.executable, "-c", STARTER, str(tmp_path)]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as starter:
        node = int(starter.stdout.readline())
        wait_until(lambda: (tmp_path / "bag").exists(), "the node to run")
        starter.kill()
    wait_until(lambda: not alive(node), "the node to end")
    assert (tmp_path / "bag/metadata.yaml").exists(), "it was stopped, not killed"


def wait_until(condition, what):
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"waited for {what}"
        time.sleep(0.05)


def alive(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
