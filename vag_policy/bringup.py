"""A node graph as a table, and a way to start it where ``launch`` is missing.

The tables are the one description of which nodes make a graph, with which parameter files. ``launch/*.launch.py``
starts the same nodes for users who have ``launch``; a test holds the two together.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import yaml

from vag_policy import yaml_text
from vag_policy.entry import STARTER, STOP_SIGNALS
from vag_policy.node_logs import last_words

if TYPE_CHECKING:
    from vag_policy.rig_file import Rig

PACKAGE = "vag_policy"
_GO_ON_S = 2.0
"""How long the others go on when their starter has died: joint_command tells the arms to hold, then brakes."""


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


POLICY_SIDE = ("camera_sync", "policy", "tr_monitor", "joint_command")
"""The nodes of ours that both graphs have."""


def _specs(names: Sequence[str], *config: str) -> tuple[NodeSpec, ...]:
    return tuple(NodeSpec(name, f"{name}_node", config) for name in names)


GRAPHS: Mapping[str, tuple[NodeSpec, ...]] = {
    "yam": _specs(POLICY_SIDE, "yam.yaml"),
    "yam_sim": _specs(("yam_sim", *POLICY_SIDE), "yam.yaml", "yam_sim.yaml"),
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
        tuple((node, "use_sim_time") for node in POLICY_SIDE),
    ),
)
"""What a user sets most often. Left out or empty, the parameter files decide."""


def argument_parameters(name: str, values: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """Parameters per node of graph ``name`` for argument texts such as ``{"seed": "3"}``; empty texts are skipped.

    Raises:
        BringupError: an unknown argument, or a text that is no value of a parameter.
    """
    known = {argument.name: argument for argument in ARGUMENTS}
    nodes = {spec.name for spec in graph(name)}
    parameters: dict[str, dict[str, Any]] = {}
    for argument, text in values.items():
        if argument not in known:
            raise BringupError(f"no argument '{argument}'; known: {', '.join(known)}")
        for node, parameter in known[argument].targets:
            if text and node in nodes:
                parameters.setdefault(node, {})[parameter] = _value(text, f"{argument} '{text}'")
    return parameters


def parse_settings(settings: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Parameters per node for texts such as ``policy.seed=3``.

    Raises:
        BringupError: a text of another form, or one whose value no parameter can have.
    """
    parameters: dict[str, dict[str, Any]] = {}
    for setting in settings:
        target, equals, text = setting.partition("=")
        node, dot, parameter = target.partition(".")
        if not (equals and dot and parameter):
            raise BringupError(f"--set takes NODE.PARAMETER=VALUE, got '{setting}'")
        parameters.setdefault(node, {})[parameter] = _value(text, f"--set {setting}: the value")
    return parameters


def _value(text: str, what: str) -> yaml_text.Value:
    try:
        return yaml_text.parameter(yaml_text.parse(text, what), what)
    except ValueError as error:
        raise BringupError(str(error)) from None


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


def graph(
    name: str, rig: Rig | None = None, parameters: Mapping[str, Mapping[str, Any]] | None = None
) -> tuple[NodeSpec, ...]:
    """The nodes of a graph, with a rig's names and extra parameters per node applied.

    A simulated rig has drivers of its own: of ``rig`` it takes only how far the arms stand apart.

    Raises:
        BringupError: an unknown graph, or parameters for a node that is not in it.
    """
    if name not in GRAPHS:
        raise BringupError(f"no graph '{name}'; known: {', '.join(GRAPHS)}")
    specs = GRAPHS[name]
    extra = parameters or {}
    names = [spec.name for spec in specs]
    unknown = set(extra) - set(names)
    if unknown:
        raise BringupError(f"graph '{name}' has no node '{sorted(unknown)[0]}'; it has: {', '.join(names)}")
    base: Mapping[str, Mapping[str, Any]] = {}
    remappings: Mapping[str, Mapping[str, str]] = {}
    if rig is not None and "yam_sim" in names:
        base = {"yam_sim": {"base_spacing": rig.base_spacing}}
    elif rig is not None:
        base, remappings = rig.parameters, rig.remappings
    return tuple(
        replace(
            spec,
            parameters={**base.get(spec.name, {}), **extra.get(spec.name, {})},
            remappings=dict(remappings.get(spec.name, {})),
        )
        for spec in specs
    )


def checked_namespace(namespace: str) -> str:
    """``namespace`` without slashes at its ends.

    Raises:
        BringupError: it is no ROS namespace.
    """
    bare = namespace.strip("/")
    if bare and not re.fullmatch(r"[A-Za-z_]\w*(/[A-Za-z_]\w*)*", bare, re.ASCII):
        raise BringupError(
            f"'{namespace}' is no namespace; allowed: letters, digits and _, in parts divided by /, no digit first"
        )
    return bare


def namespace_remappings(namespace: str) -> dict[str, str]:
    """What a graph below a namespace must rename beside it, so that two such graphs do not share their frames."""
    return {"/tf": "tf", "/tf_static": "tf_static"} if namespace else {}


def arguments(spec: NodeSpec, overrides: Path | None, namespace: str = "") -> list[str]:
    """The command line of a node: its module, name, parameter files and remappings."""
    command = [sys.executable, "-m", f"{PACKAGE}.nodes.{spec.executable}", "--ros-args", "-r", f"__node:={spec.name}"]
    namespace = checked_namespace(namespace)
    if namespace:
        command += ["-r", f"__ns:=/{namespace}"]
    for file in spec.config:
        command += ["--params-file", str(share_directory("config") / file)]
    if overrides is not None:
        command += ["--params-file", str(overrides)]
    for source, target in {**namespace_remappings(namespace), **spec.remappings}.items():
        command += ["-r", f"{source}:={target}"]
    return command


class Graph:
    """Running processes, one per node.

    Use as a context manager: leaving it stops every process, first politely (SIGINT, so that the arms are told to
    hold), then by force. Where this process dies without leaving it, they stop by themselves.

    Raises:
        BringupError: no such namespace, or a log cannot be written.
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
        self._namespace = checked_namespace(namespace)
        self._environment = {**os.environ, **(environment or {})}
        # The guard of the ROS wheels' bootstrap must not reach a child, which bootstraps itself.
        self._environment.pop("_ROS_WHEELS_BOOTSTRAP_COMPLETE", None)
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._logs: dict[str, TextIO] = {}
        self._temporary: tempfile.TemporaryDirectory[str] | None = None

    def __enter__(self) -> Graph:
        self._temporary = tempfile.TemporaryDirectory(prefix="vag_")
        try:
            self._log_folder.mkdir(parents=True, exist_ok=True)
            for spec in self.specs:
                self.start(spec.name)
        except OSError as error:
            self.stop()
            reason = f"{error.strerror}: {error.filename}"
            raise BringupError(f"cannot write the nodes' output to {self._log_folder} ({reason})") from error
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
            self._logs[name] = self.log_file(name).open("w")
        delay = 0.0 if name == "joint_command" else _GO_ON_S
        environment = {**self._environment, STARTER: f"{os.getpid()}:{delay}"}
        # A stop that comes while Python itself starts waits until the node's first line (entry.begin).
        before = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
        try:
            self._processes[name] = subprocess.Popen(
                arguments(spec, overrides, self._namespace),
                stdout=self._logs[name],
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                env=environment,
                # A Ctrl-C in the terminal reaches this process alone, which then stops the others in order.
                start_new_session=True,
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def process(self, name: str) -> subprocess.Popen[bytes]:
        """The process of the node called ``name``."""
        return self._processes[name]

    def dead(self) -> dict[str, int]:
        """Exit code of every process that has ended, by node name."""
        return {name: code for name, p in self._processes.items() if (code := p.poll()) is not None}

    def log_file(self, name: str) -> Path:
        """Where the output of the node called ``name`` goes."""
        return self._log_folder / f"{name}.log"

    def log_of(self, name: str) -> str:
        """What the node called ``name`` has printed."""
        return self.log_file(name).read_text(errors="replace")

    def epitaph(self, name: str) -> str:
        """Why the node called ``name`` has ended: its last FATAL line, or its last lines where it had none."""
        code, text = self._processes[name].poll(), self.log_of(name)
        return f"{name} ended with code {code}: {last_words(text)}; its whole output: {self.log_file(name)}"

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
