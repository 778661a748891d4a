"""Graph tables and what fills them in: rigs, arguments, settings, namespaces."""

import pytest

from vag_policy.bringup import (
    GRAPHS,
    BringupError,
    argument_parameters,
    arguments,
    checked_namespace,
    graph,
    parse_settings,
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
def test_a_namespace_that_ros_would_not_take_is_refused(namespace):
    with pytest.raises(BringupError, match=f"'{namespace}' is no namespace; allowed: letters, digits and _"):
        checked_namespace(namespace)


def test_a_namespaced_graph_keeps_its_frames_to_itself():
    spec = graph("yam_sim")[0]
    command = arguments(spec, None, "/rig1/arms/")
    assert "__ns:=/rig1/arms" in command and {"/tf:=tf", "/tf_static:=tf_static"} <= set(command)
    assert not [word for word in arguments(spec, None) if word.startswith(("/tf", "__ns"))]


def test_the_simulated_graph_is_the_real_one_and_the_simulator():
    real = [spec.executable for spec in GRAPHS["yam"]]
    simulated = [spec.executable for spec in GRAPHS["yam_sim"]]
    assert simulated == ["yam_sim_node", *real]


def test_share_directory_falls_back_to_an_installed_package(tmp_path, monkeypatch):
    (tmp_path / "share/vag_policy/atlas").mkdir(parents=True)
    monkeypatch.setenv("AMENT_PREFIX_PATH", str(tmp_path))
    assert share_directory("atlas") == tmp_path / "share/vag_policy/atlas"
    with pytest.raises(BringupError, match="cannot find nowhere of vag_policy"):
        share_directory("nowhere")
