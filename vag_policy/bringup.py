"""A node graph as a table of nodes, parameter files and names.

The tables are the one description of which nodes make a graph, with which parameter files. ``launch/*.launch.py``
starts the same nodes for users who have ``launch``, and ``processes`` for those who have not; a test holds the two
together.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vag_policy import yaml_text

if TYPE_CHECKING:
    from vag_policy.rig_file import Rig

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
    Argument("preset", "random weights of a size: yam, libero or tiny", (("policy", "preset"),)),
    Argument("checkpoint", "checkpoint folder, or shipped:tiny_yam", (("policy", "checkpoint"),)),
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

    A simulated rig has drivers of its own: of ``rig`` it takes only how far the arms stand apart. Its parameter file
    names a checkpoint, which a ``preset`` that is asked for takes the place of.

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
    if "yam_sim" in names and "preset" in extra.get("policy", {}):
        extra = {**extra, "policy": {"checkpoint": "", **extra["policy"]}}
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
