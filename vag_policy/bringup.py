"""A node graph as a table, and a way to start it where ``launch`` is missing.

The tables are the one description of which nodes make a graph, with which parameter files. ``launch/*.launch.py``
starts the same nodes for users who have ``launch``; a test holds the two together.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TextIO

import yaml

PACKAGE = "vag_policy"


class BringupError(ValueError):
    """A graph, rig or parameter that does not exist."""


@dataclass(frozen=True)
class NodeSpec:
    """One process of a graph.

    Attributes:
        name: node name.
        executable: console script, and the module of that name in ``vag_policy.nodes``.
        config: parameter files below ``config/``, later ones win.
        parameters: values on top of the files.
        remappings: topic or service names to others.
    """

    name: str
    executable: str
    config: tuple[str, ...] = ()
    parameters: Mapping[str, Any] = field(default_factory=dict)
    remappings: Mapping[str, str] = field(default_factory=dict)


_POLICY_SIDE = ("camera_sync", "policy", "tr_monitor", "joint_command")


def _specs(names: Sequence[str], *config: str) -> tuple[NodeSpec, ...]:
    return tuple(NodeSpec(name, f"{name}_node", config) for name in names)


GRAPHS: Mapping[str, tuple[NodeSpec, ...]] = {
    "yam": _specs(_POLICY_SIDE, "yam.yaml"),
    "yam_sim": _specs(("yam_sim", *_POLICY_SIDE), "yam.yaml", "yam_sim.yaml"),
}
"""Every graph: ``yam`` is the real rig (its drivers run elsewhere), ``yam_sim`` the simulated one."""


@dataclass(frozen=True)
class Argument:
    """An argument of the launch files and of ``vag up``: one word for one or several parameters.

    Attributes:
        name: its name.
        description: one line.
        targets: (node, parameter) pairs; those whose node is not in the graph are skipped.
    """

    name: str
    description: str
    targets: tuple[tuple[str, str], ...]


ARGUMENTS = (
    Argument("preset", "model size: yam, libero or tiny", (("policy", "preset"),)),
    Argument("checkpoint", "checkpoint folder; without one the weights are random", (("policy", "checkpoint"),)),
    Argument("device", "torch device of the policy, such as cpu or cuda:0", (("policy", "device"),)),
    Argument("guidance", "none, flat or adaptive", (("policy", "guidance"),)),
    Argument("mode", "blocking or async", (("policy", "mode"), ("joint_command", "mode"))),
    Argument(
        "seed", "seed of the policy's noise and of the simulated scene", (("policy", "seed"), ("yam_sim", "seed"))
    ),
    Argument("autostart", "configure and activate the policy at once: true or false", (("policy", "autostart"),)),
    Argument("arm_on_start", "accept chunks without a call of ~/arm", (("joint_command", "arm_on_start"),)),
    Argument(
        "use_sim_time",
        "follow /clock: true or false",
        tuple((node, "use_sim_time") for node in _POLICY_SIDE),
    ),
)
"""What a user sets most often. Left out or empty, the parameter files decide."""


def argument_parameters(name: str, values: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """Parameters per node of graph ``name`` for argument texts such as ``{"seed": "3"}``; empty texts are skipped.

    Raises:
        BringupError: an unknown argument.
    """
    known = {argument.name: argument for argument in ARGUMENTS}
    nodes = {spec.name for spec in graph(name)}
    parameters: dict[str, dict[str, Any]] = {}
    for argument, text in values.items():
        if argument not in known:
            raise BringupError(f"no argument '{argument}'; known: {', '.join(known)}")
        for node, parameter in known[argument].targets:
            if text and node in nodes:
                parameters.setdefault(node, {})[parameter] = yaml.safe_load(text)
    return parameters


def parse_settings(settings: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Parameters per node for texts such as ``policy.seed=3``.

    Raises:
        BringupError: a text of another form.
    """
    parameters: dict[str, dict[str, Any]] = {}
    for setting in settings:
        target, equals, text = setting.partition("=")
        node, dot, parameter = target.partition(".")
        if not (equals and dot and parameter):
            raise BringupError(f"--set takes NODE.PARAMETER=VALUE, got '{setting}'")
        parameters.setdefault(node, {})[parameter] = yaml.safe_load(text)
    return parameters


@dataclass(frozen=True)
class Rig:
    """What differs from one real rig to the next: names of its drivers' topics, and a few numbers.

    Attributes:
        description: one line.
        base_spacing: metres between the two arm bases.
        remappings: per node, topic names to the driver's.
        parameters: per node, values on top of the graph's parameter files.
    """

    description: str
    base_spacing: float
    remappings: Mapping[str, Mapping[str, str]]
    parameters: Mapping[str, Mapping[str, Any]]


def share_directory(*parts: str) -> Path:
    """A folder that ships with the package, from a source checkout or from an installed package.

    Raises:
        BringupError: it is in neither place.
    """
    checkout = Path(__file__).resolve().parent.parent.joinpath(*parts)
    if checkout.is_dir():
        return checkout
    for prefix in os.environ.get("AMENT_PREFIX_PATH", "").split(os.pathsep):
        installed = Path(prefix, "share", PACKAGE, *parts)
        if prefix and installed.is_dir():
            return installed
    raise BringupError(f"cannot find {'/'.join(parts)} of {PACKAGE}: build the package and source its workspace")


def load_rig(name_or_path: str) -> Rig:
    """Read a rig file: a name below ``config/rig/`` or a path.

    Raises:
        BringupError: the file is missing, or has an unknown key or node; the message lists what is allowed.
    """
    folder = share_directory("config", "rig")
    path = Path(name_or_path)
    if path.suffix != ".yaml":
        path = folder / f"{name_or_path}.yaml"
    if not path.is_file():
        known = ", ".join(sorted(p.stem for p in folder.glob("*.yaml")))
        raise BringupError(f"no rig '{name_or_path}'; known: {known}, or the path of a .yaml file")
    content = yaml.safe_load(path.read_text()) or {}
    keys = ("description", "base_spacing", "remappings", "parameters")
    if not isinstance(content, dict) or set(content) - set(keys):
        unknown = sorted(set(content) - set(keys)) if isinstance(content, dict) else [type(content).__name__]
        raise BringupError(f"rig file {path}: unknown {', '.join(map(str, unknown))}; allowed: {', '.join(keys)}")
    for section in ("remappings", "parameters"):
        for node in content.get(section) or {}:
            if node not in _POLICY_SIDE:
                raise BringupError(f"rig file {path}: {section} of '{node}'; allowed: {', '.join(_POLICY_SIDE)}")
    return Rig(
        description=str(content.get("description", path.stem)),
        base_spacing=float(content.get("base_spacing", 0.61)),
        remappings=content.get("remappings") or {},
        parameters=content.get("parameters") or {},
    )


def graph(
    name: str, rig: Rig | None = None, parameters: Mapping[str, Mapping[str, Any]] | None = None
) -> tuple[NodeSpec, ...]:
    """The nodes of a graph, with a rig's names and extra parameters per node applied.

    Raises:
        BringupError: an unknown graph, or parameters for a node that is not in it.
    """
    if name not in GRAPHS:
        raise BringupError(f"no graph '{name}'; known: {', '.join(GRAPHS)}")
    specs = GRAPHS[name]
    extra = parameters or {}
    unknown = set(extra) - {spec.name for spec in specs}
    if unknown:
        nodes = ", ".join(spec.name for spec in specs)
        raise BringupError(f"graph '{name}' has no node '{sorted(unknown)[0]}'; it has: {nodes}")
    return tuple(
        replace(
            spec,
            parameters={**(rig.parameters.get(spec.name, {}) if rig else {}), **extra.get(spec.name, {})},
            remappings=dict(rig.remappings.get(spec.name, {})) if rig else {},
        )
        for spec in specs
    )


def arguments(spec: NodeSpec, overrides: Path | None, namespace: str = "") -> list[str]:
    """The command line of a node: its module, name, parameter files and remappings."""
    command = [sys.executable, "-m", f"{PACKAGE}.nodes.{spec.executable}", "--ros-args", "-r", f"__node:={spec.name}"]
    if namespace:
        command += ["-r", f"__ns:=/{namespace.strip('/')}"]
    for file in spec.config:
        command += ["--params-file", str(share_directory("config") / file)]
    if overrides is not None:
        command += ["--params-file", str(overrides)]
    for source, target in spec.remappings.items():
        command += ["-r", f"{source}:={target}"]
    return command


class Graph:
    """Running processes, one per node.

    Use as a context manager: leaving it stops every process, first politely (SIGINT, so that the arms are told to
    hold), then by force.
    """

    def __init__(
        self,
        specs: Sequence[NodeSpec],
        log_folder: Path,
        namespace: str = "",
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.specs = tuple(specs)
        self._log_folder = log_folder
        self._namespace = namespace
        self._environment = {**os.environ, **(environment or {})}
        # The guard of the ROS wheels' bootstrap must not reach a child, which bootstraps itself.
        self._environment.pop("_ROS_WHEELS_BOOTSTRAP_COMPLETE", None)
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._logs: dict[str, TextIO] = {}
        self._temporary: tempfile.TemporaryDirectory[str] | None = None

    def __enter__(self) -> Graph:
        self._temporary = tempfile.TemporaryDirectory(prefix="vag_")
        self._log_folder.mkdir(parents=True, exist_ok=True)
        try:
            for spec in self.specs:
                self.start(spec.name)
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self, name: str) -> None:
        """Start (or start again) the node called ``name``; its output goes to ``<log_folder>/<name>.log``."""
        assert self._temporary is not None
        spec = next(spec for spec in self.specs if spec.name == name)
        overrides = None
        if spec.parameters:
            overrides = Path(self._temporary.name) / f"{name}.yaml"
            overrides.write_text(yaml.safe_dump({f"/**/{name}": {"ros__parameters": dict(spec.parameters)}}))
        if name not in self._logs:
            self._logs[name] = (self._log_folder / f"{name}.log").open("w")
        self._processes[name] = subprocess.Popen(
            arguments(spec, overrides, self._namespace),
            stdout=self._logs[name],
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            env=self._environment,
            # A Ctrl-C in the terminal reaches this process alone, which then stops the others in order.
            start_new_session=True,
        )

    def process(self, name: str) -> subprocess.Popen[bytes]:
        """The process of the node called ``name``."""
        return self._processes[name]

    def dead(self) -> dict[str, int]:
        """Exit code of every process that has ended, by node name."""
        return {name: code for name, p in self._processes.items() if (code := p.poll()) is not None}

    def log_of(self, name: str) -> str:
        """What the node called ``name`` has printed."""
        return (self._log_folder / f"{name}.log").read_text(errors="replace")

    def stop(self, patience_s: float = 8.0) -> dict[str, int]:
        """Stop everything; return the exit code of every node.

        The order is that of danger: joint_command goes first, so that its last command is to hold while its
        feedback still lives, then the others.
        """
        order = sorted(self._processes, key=lambda name: name != "joint_command")
        for name in order:
            _signal(self._processes[name], signal.SIGINT)
            if name == "joint_command":
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._processes[name].wait(2.0)
        deadline = time.monotonic() + patience_s
        for name in order:
            for step in (signal.SIGTERM, signal.SIGKILL):
                try:
                    self._processes[name].wait(max(0.1, deadline - time.monotonic()))
                    break
                except subprocess.TimeoutExpired:
                    _signal(self._processes[name], step)
        codes = {name: process.wait() for name, process in self._processes.items()}
        for log in self._logs.values():
            log.close()
        if self._temporary is not None:
            self._temporary.cleanup()
        return codes


def _signal(process: subprocess.Popen[bytes], number: int) -> None:
    if process.poll() is None:
        process.send_signal(number)


@contextlib.contextmanager
def private_domain() -> Iterator[int]:
    """A ROS domain that no other user of this function on this machine has, for as long as it is held.

    The claim is a bound loopback port, so it ends with the process, however that ends. Ids 1 to 99 keep clear of
    the default domain, where a real rig may be listening.

    Raises:
        BringupError: every domain is taken.
    """
    first = 1 + os.getpid() % 99
    for offset in range(99):
        domain = 1 + (first + offset) % 99
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as claim:
            try:
                claim.bind(("127.0.0.1", 23700 + domain))
            except OSError:
                continue
            yield domain
            return
    raise BringupError("all ROS domains from 1 to 99 are taken on this machine")
