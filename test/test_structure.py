"""The house keeps its walls: which room may import which, and what the package says of itself."""

import ast
import re
import tomllib
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "vag_policy"
SOURCES = sorted(PACKAGE.rglob("*.py"))
ROS = re.compile(r"^(rclpy|rcl_interfaces|launch|launch_ros|[a-z_]+_(msgs|interfaces))$")

# What a room may import of ours; a room imports itself too. `nodes` and the command line may import everything.
ALLOWED = {
    "observation": set(),
    "video": set(),
    "robots": set(),
    "policy": {"observation"},
    "expert": {"robots"},
    "data": {"observation", "robots", "expert", "parent", "yaml_text"},
    "vam": {"policy", "observation", "video", "robots"},
    "execution": {"policy", "observation", "robots"},
    "monitoring": {"policy", "observation"},
    "serving": {"policy", "observation"},
    "checkpoint": {"policy", "vam", "video", "robots"},
    "evaluation": {"parent", "policy", "observation", "robots", "data", "monitoring", "execution", "serving", "expert"},
    "training": {"policy", "observation", "video", "robots", "vam", "data", "checkpoint", "yaml_text"},
    "bringup": {"rig_file", "yaml_text"},
    "processes": {"bringup", "entry", "node_logs"},
    "rig_file": {"bringup", "robots", "yaml_text"},
    "demo_folder": {"bringup"},
    "milestones": set(),
    "node_logs": set(),
    "parent": set(),
    "shipped": set(),
    "yaml_text": set(),
}
FREE = {
    "entry",
    "nodes",
    "cli",
    "cli_data",
    "cli_eval",
    "cli_operator",
    "cli_options",
    "cli_run",
    "cli_train",
    "cli_up",
    "demo",
    "demo_episodes",
    "__init__",
}


def imports_of(path: Path) -> set[str]:
    """Every module that a file imports, at the top or inside a function."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            found.add(node.module or "")
            found |= {f"{node.module}.{alias.name}" for alias in node.names if node.module == "vag_policy"}
    return found


def room_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_rooms_import_one_way(path):
    room = room_of(path)
    if room in FREE:
        return
    assert room in ALLOWED, f"room '{room}' has no rule here; rooms: {', '.join(sorted(ALLOWED))}"
    ours = {name.split(".")[1] for name in imports_of(path) if name.startswith("vag_policy.")}
    assert ours <= ALLOWED[room] | {room}, f"{room} may import {sorted(ALLOWED[room])}, imports {sorted(ours)}"
    ros = sorted(name for name in imports_of(path) if ROS.match(name.split(".")[0]))
    assert not ros, f"only nodes/ may import ROS packages; here: {ros}"


def test_only_the_policy_node_imports_torch_and_only_simulators_mujoco():
    heavy = {}
    for path in (PACKAGE / "nodes").glob("*.py"):
        for name in imports_of(path):
            if name.split(".")[0] in ("torch", "mujoco", "diffusers"):
                heavy.setdefault(name.split(".")[0], set()).add(path.stem)
    assert heavy.get("torch", set()) <= {"policy_node", "policy_worker", "policy_loader"}
    assert heavy.get("mujoco", set()) <= {"yam_sim_node"}


def test_node_files_stay_readable():
    long = {p.name: n for p in (PACKAGE / "nodes").glob("*.py") if (n := len(p.read_text().splitlines())) > 300}
    assert not long, f"nodes only wire; over 300 lines: {long}"


def test_nothing_unpickles():
    forbidden = re.compile(
        r"import pickle|pickle\.loads?\(|torch\.load\(|allow_pickle=True|\bjoblib\b|\beval\(|\bexec\("
    )
    found = [str(p) for p in SOURCES if forbidden.search(re.sub(r"\.eval\(", "", p.read_text()))]
    assert not found, f"checkpoints are data: safetensors only; see {found}"


def test_versions_and_names_agree():
    versions = set()
    for package in ("", "vag_interfaces/"):
        xml = ElementTree.parse(ROOT / f"{package}package.xml").getroot()
        assert xml.get("format") == "3" and xml.findtext("license") == "Apache-2.0"
        versions.add(xml.findtext("version"))
    versions.add(re.search(r'__version__ = "(.*)"', (PACKAGE / "__init__.py").read_text())[1])
    versions.add(re.search(r'version="(.*)"', (ROOT / "setup.py").read_text())[1])
    assert len(versions) == 1, versions
    (version,) = versions
    assert version in (ROOT / "CHANGELOG.rst").read_text()
    assert (ROOT / "resource/vag_policy").exists()
    assert "Apache License" in (ROOT / "LICENSE").read_text()


def test_every_console_script_is_a_function():
    scripts = re.findall(r'"(\w+) = ([\w.]+):(\w+)"', (ROOT / "setup.py").read_text())
    assert {"vag", "camera_sync_node", "policy_node", "tr_monitor_node", "joint_command_node", "yam_sim_node"} <= {
        name for name, _, _ in scripts
    }
    for _, module, function in scripts:
        path = ROOT / (module.replace(".", "/") + ".py")
        names = {n.name for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.FunctionDef)}
        names |= {
            t.id
            for n in ast.walk(ast.parse(path.read_text()))
            if isinstance(n, ast.Assign)
            for t in n.targets
            if isinstance(t, ast.Name)
        }
        assert function in names, f"{module} has no {function}"


def test_pins_are_exact():
    for file in (ROOT / "requirements").glob("*.txt"):
        for line in file.read_text().splitlines():
            if line and not line.startswith("#") and not line.startswith("PyYAML"):
                assert re.fullmatch(r"[A-Za-z0-9_.-]+==[\w.]+", line), f"{file.name}: {line}"


def test_tool_configuration_parses():
    configuration = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert "project" not in configuration, "colcon reads setup.py; a [project] table would shadow it"


def test_interfaces_are_built_from_every_file():
    cmake = (ROOT / "vag_interfaces/CMakeLists.txt").read_text()
    for file in (ROOT / "vag_interfaces").glob("*/*.*"):
        assert f"{file.parent.name}/{file.name}" in cmake, f"{file.name} is not built"
