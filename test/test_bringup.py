"""Graph tables, rigs, arguments, and processes that start and stop."""

import os
import socket
import time

import pytest
from ros_process import claim_domain

from vag_policy.bringup import (
    GRAPHS,
    BringupError,
    Graph,
    NodeSpec,
    argument_parameters,
    arguments,
    graph,
    load_rig,
    private_domain,
    share_directory,
)


def test_unknown_names_are_errors_that_list_what_is_known():
    with pytest.raises(BringupError, match="no graph 'yan'; known: yam, yam_sim"):
        graph("yan")
    with pytest.raises(BringupError, match="no node 'camera'; it has: camera_sync"):
        graph("yam", parameters={"camera": {}})
    with pytest.raises(BringupError, match="no argument 'chekpoint'; known: preset, checkpoint"):
        argument_parameters("yam", {"chekpoint": "x"})
    with pytest.raises(BringupError, match="no rig 'nope'; known: "):
        load_rig("nope")


def test_a_rig_file_with_a_wrong_key_or_node_is_refused(tmp_path):
    wrong_key = tmp_path / "a.yaml"
    wrong_key.write_text("remapings: {}\n")
    with pytest.raises(BringupError, match="unknown remapings; allowed: description, base_spacing"):
        load_rig(str(wrong_key))
    wrong_node = tmp_path / "b.yaml"
    wrong_node.write_text("remappings: {cameras: {a: b}}\n")
    with pytest.raises(BringupError, match="remappings of 'cameras'; allowed: camera_sync"):
        load_rig(str(wrong_node))


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
        assert "has no parameter 'outptu'; it has: exclude, output, topics" in running.log_of("second")
        pid = running.process("recorder").pid
        codes = running.stop()
    assert codes["recorder"] == 0, "a stop is a clean exit"
    assert (tmp_path / "bag/metadata.yaml").exists()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
