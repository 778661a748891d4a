"""Every launch file, read against setup.py, config/ and the parameters that nodes declare.

``launch`` is not on PyPI, so the files are executed against a small stand-in that records what they ask for; it
knows only names and arguments that upstream has. Where the real packages are installed, they are used too.
"""

import importlib
import importlib.util
import re
import runpy
import sys
import types
from pathlib import Path

import pytest
import yaml

from vag_policy.bringup import ARGUMENTS, GRAPHS, BringupError
from vag_policy.rig_file import load_rig
from vag_policy.robots.yam_model import urdf
from vag_policy.robots.yam_rig import RigGeometry
from vag_policy.video.presets import video_preset

ROOT = Path(__file__).resolve().parent.parent
LAUNCH_FILES = sorted((ROOT / "launch").glob("*.launch.py"))
SCRIPTS = set(re.findall(r'"(\w+) = ', (ROOT / "setup.py").read_text()))
EXTERNAL = {("robot_state_publisher", "robot_state_publisher"), ("rviz2", "rviz2")}


class Action:
    """Records keyword arguments; refuses those that upstream's action does not have."""

    known: set[str] = set()

    def __init__(self, *args, **kwargs):
        unknown = set(kwargs) - self.known - {"condition"}
        assert not unknown, f"{type(self).__name__} has no argument {unknown}"
        self.args, self.kwargs = args, kwargs


class DeclareLaunchArgument(Action):
    known = {"default_value", "description", "choices"}


class ExecuteProcess(Action):
    known = {"cmd", "output", "name", "cwd", "additional_env", "shell"}


class OpaqueFunction(Action):
    known = {"function", "args", "kwargs"}


class Node(Action):
    known = {
        "package", "executable", "name", "namespace", "parameters", "remappings", "arguments", "output", "respawn",
        "exec_name", "ros_arguments", "emulate_tty",
    }  # fmt: skip


class IfCondition:
    def __init__(self, predicate):
        self.predicate = predicate


class LaunchConfiguration:
    def __init__(self, name):
        self.name = name

    def perform(self, context):
        return context[self.name]


class LaunchDescription:
    def __init__(self, entities):
        self.entities = entities


@pytest.fixture
def stand_in(monkeypatch):
    names = {
        "launch": {"LaunchDescription": LaunchDescription},
        "launch.actions": {
            "DeclareLaunchArgument": DeclareLaunchArgument,
            "ExecuteProcess": ExecuteProcess,
            "OpaqueFunction": OpaqueFunction,
        },
        "launch.conditions": {"IfCondition": IfCondition},
        "launch.substitutions": {"LaunchConfiguration": LaunchConfiguration},
        "launch_ros": {},
        "launch_ros.actions": {"Node": Node},
    }
    for name, content in names.items():
        module = types.ModuleType(name)
        module.__dict__.update(content)
        monkeypatch.setitem(sys.modules, name, module)


def load(path: Path):
    spec = importlib.util.spec_from_file_location(path.stem.replace(".", "_"), path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(path: Path, **given: str) -> tuple[dict[str, DeclareLaunchArgument], list[Node], list[ExecuteProcess]]:
    """What a launch file declares and would start with these arguments."""
    entities = load(path).generate_launch_description().entities
    declared = {e.args[0]: e for e in entities if isinstance(e, DeclareLaunchArgument)}
    assert set(given) <= set(declared)
    context = {name: given.get(name, e.kwargs.get("default_value", "")) for name, e in declared.items()}
    actions = []
    for entity in entities:
        actions += entity.kwargs["function"](context) if isinstance(entity, OpaqueFunction) else [entity]
    active = []
    for action in actions:
        condition = getattr(action, "kwargs", {}).get("condition")
        if condition is None or condition.predicate.perform(context) == "true":
            active.append(action)
    return (
        declared,
        [a for a in active if isinstance(a, Node)],
        [a for a in active if isinstance(a, ExecuteProcess)],
    )


def ours(nodes: list[Node]) -> dict[str, Node]:
    return {n.kwargs["name"]: n for n in nodes if n.kwargs["package"] == "vag_policy"}


def parameters_of(executable: str) -> dict[str, object]:
    return {p.name: p for p in importlib.import_module(f"vag_policy.nodes.{executable}").PARAMETERS}


@pytest.mark.parametrize("path", LAUNCH_FILES, ids=lambda p: p.name)
def test_a_launch_file_starts_the_graph_of_its_table(stand_in, path):
    declared, nodes, _ = run(path)
    table = {spec.name: spec for spec in GRAPHS[path.name.removesuffix(".launch.py")]}
    started = ours(nodes)
    assert set(started) == set(table)
    for name, node in started.items():
        assert node.kwargs["executable"] == table[name].executable
        assert node.kwargs["executable"] in SCRIPTS
        files = [Path(p) for p in node.kwargs["parameters"] if isinstance(p, str)]
        assert [f.name for f in files] == list(table[name].config)
        assert all(f.is_file() for f in files)
    for node in nodes:
        assert node.kwargs["package"] == "vag_policy" or (
            (node.kwargs["package"], node.kwargs["executable"]) in EXTERNAL
        )
    for name, argument in declared.items():
        assert argument.kwargs["description"], f"argument '{name}' has no description"
    assert {a.name for a in ARGUMENTS} <= set(declared)


@pytest.mark.parametrize("path", LAUNCH_FILES, ids=lambda p: p.name)
def test_arguments_reach_declared_parameters(stand_in, path):
    _, nodes, _ = run(path, namespace="rig", seed="7", mode="async", params_file="/x/mine.yaml")
    started = ours(nodes)
    assert all(node.kwargs["namespace"] == "rig" for node in nodes)
    assert started["policy"].kwargs["parameters"][-1]["seed"] == 7
    assert started["joint_command"].kwargs["parameters"][-1] == {"mode": "async"}
    assert started["camera_sync"].kwargs["parameters"][-2] == "/x/mine.yaml"
    for argument in ARGUMENTS:
        for node, parameter in argument.targets:
            if parameter != "use_sim_time" and node in started:
                assert parameter in parameters_of(f"{node}_node"), f"argument '{argument.name}' of {node}"


@pytest.mark.parametrize("path", LAUNCH_FILES, ids=lambda p: p.name)
def test_two_namespaced_graphs_share_no_frames(stand_in, path):
    _, nodes, _ = run(path, namespace="/rig1/", rviz="true")
    assert {"vag_policy", "rviz2"} <= {node.kwargs["package"] for node in nodes}
    for node in nodes:
        assert node.kwargs["namespace"] == "rig1"
        assert {("/tf", "tf"), ("/tf_static", "tf_static")} <= set(node.kwargs["remappings"])
    _, nodes, _ = run(path, rviz="true")
    assert not any(source.startswith("/tf") for node in nodes for source, _ in node.kwargs["remappings"])
    with pytest.raises(BringupError, match="'rig 1' is no namespace; allowed: letters"):
        run(path, namespace="rig 1")


def test_the_base_spacing_of_a_rig_is_one_number(stand_in, tmp_path):
    file = tmp_path / "wide.yaml"
    file.write_text("base_spacing: 0.8\nremappings: {camera_sync: {joint_states: /arms}}\n")
    _, nodes, _ = run(ROOT / "launch/yam_sim.launch.py", rig=str(file))
    simulated = ours(nodes)
    assert simulated["yam_sim"].kwargs["parameters"][-1] == {"base_spacing": 0.8}
    assert not simulated["camera_sync"].kwargs["remappings"], "a simulated rig has no drivers of other names"
    _, nodes, _ = run(ROOT / "launch/yam.launch.py", rig=str(file))
    (description,) = (n for n in nodes if n.kwargs["package"] == "robot_state_publisher")
    assert description.kwargs["parameters"] == [{"robot_description": urdf(RigGeometry(spacing=0.8))}]
    assert ours(nodes)["camera_sync"].kwargs["remappings"] == [("joint_states", "/arms")]


def test_conditions_start_what_they_say(stand_in):
    _, nodes, processes = run(ROOT / "launch/yam.launch.py", rviz="true", record="true", bag="b", describe="false")
    packages = {n.kwargs["package"] for n in nodes}
    assert "rviz2" in packages and "robot_state_publisher" not in packages
    assert processes[0].kwargs["cmd"][:4] == ["ros2", "bag", "record", "--all"]
    _, nodes, processes = run(ROOT / "launch/yam.launch.py")
    packages = {n.kwargs["package"] for n in nodes}
    assert packages == {"vag_policy", "robot_state_publisher"} and not processes


@pytest.mark.parametrize("rig", sorted(p.stem for p in (ROOT / "config/rig").glob("*.yaml")))
def test_a_rig_gives_only_parameters_and_topics_that_exist(stand_in, rig):
    _, nodes, _ = run(ROOT / "launch/yam.launch.py", rig=rig)
    loaded = load_rig(rig)
    for name, parameters in loaded.parameters.items():
        table = parameters_of(f"{name}_node")
        for parameter, value in parameters.items():
            assert parameter in table, f"{rig}: {name} has no parameter '{parameter}'"
            assert table[parameter].check(value) == ""
    source = "".join(path.read_text() for path in (ROOT / "vag_policy/nodes").glob("*.py"))
    for name, remappings in loaded.remappings.items():
        started = dict(ours(nodes)[name].kwargs["remappings"])
        assert started == remappings
        for topic in remappings:
            stem = topic.removeprefix("left_").removeprefix("right_").split("/")[-1]
            assert stem in source, f"{rig}: {name} has no topic like '{topic}'"


@pytest.mark.parametrize("file", sorted((ROOT / "config").glob("*.yaml")), ids=lambda p: p.name)
def test_parameter_files_name_declared_parameters_of_the_right_type_and_range(file):
    for key, content in yaml.safe_load(file.read_text()).items():
        node = key.removeprefix("/**/")
        assert key == f"/**/{node}", f"{key}: keys are /**/<node>, so that a namespace does not hide them"
        table = parameters_of(f"{node}_node")
        for name, value in content["ros__parameters"].items():
            assert name in table, f"{file.name}: {node} has no parameter '{name}'; it has {sorted(table)}"
            default = table[name].default
            wanted = list if isinstance(default, tuple) else type(default)
            assert type(value) is wanted, f"{file.name}: {node}.{name} must be {wanted.__name__}, is {value!r}"
            assert table[name].check(value) == ""


@pytest.mark.parametrize("name", sorted(GRAPHS))
def test_camera_sync_makes_the_image_that_the_graph_s_policy_takes(name):
    values: dict[str, dict] = {}
    for file in GRAPHS[name][0].config:
        for key, content in yaml.safe_load((ROOT / "config" / file).read_text()).items():
            values.setdefault(key.removeprefix("/**/"), {}).update(content["ros__parameters"])
    sync, video = values["camera_sync"], video_preset(values["policy"]["preset"])
    assert (len(sync["cameras"]) * sync["tile_width"], sync["tile_height"]) == video.image_size
    assert tuple(sync["cameras"]) == tuple(values["policy"]["cameras"]) == video.cameras


def test_everything_that_is_found_in_the_share_folder_is_installed(monkeypatch):
    said = {}
    monkeypatch.setattr("setuptools.setup", lambda **options: said.update(options))
    monkeypatch.chdir(ROOT)
    runpy.run_path("setup.py")
    installed = {
        f"{folder.removeprefix('share/vag_policy/')}/{Path(file).name}"
        for folder, files in said["data_files"]
        for file in files
    }
    shipped = {
        str(path.relative_to(ROOT))
        for folder in ("config", "launch", "urdf")
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert shipped <= installed


def test_every_parameter_is_described():
    for executable in sorted(SCRIPTS - {"vag"}):
        for parameter in parameters_of(executable).values():
            assert parameter.description, f"{executable}: {parameter.name}"


def test_rviz_shows_only_topics_and_types_that_exist():
    configuration = yaml.safe_load((ROOT / "config/vag.rviz").read_text())
    sources = "".join(p.read_text() for p in (ROOT / "vag_policy/nodes").glob("*.py"))
    for display in configuration["Visualization Manager"]["Displays"]:
        for key in ("Topic", "Description Topic"):
            topic = display.get(key, {}).get("Value", "").strip("/") if isinstance(display.get(key), dict) else ""
            for word in filter(None, topic.split("/")[-1:]):
                assert word in sources, f"{display['Name']}: no node has a topic like '{topic}'"


@pytest.mark.skipif(importlib.util.find_spec("launch_ros") is None, reason="needs ROS 2's launch_ros")
@pytest.mark.parametrize("path", LAUNCH_FILES, ids=lambda p: p.name)
def test_upstream_launch_accepts_the_file(path):
    from launch import LaunchContext

    description = load(path).generate_launch_description()
    context = LaunchContext()
    for entity in description.entities:
        if type(entity).__name__ == "DeclareLaunchArgument":
            entity.execute(context)
    started = [
        action
        for entity in description.entities
        if type(entity).__name__ == "OpaqueFunction"
        for action in entity.execute(context)
    ]
    assert {a.node_executable for a in started if a.node_package == "vag_policy"} == {
        spec.executable for spec in GRAPHS[path.name.removesuffix(".launch.py")]
    }
