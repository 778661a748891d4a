"""Rig files: what differs from one real rig to the next."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vag_policy import yaml_text
from vag_policy.bringup import POLICY_SIDE, BringupError, share_directory
from vag_policy.robots.yam_rig import RigGeometry

_KEYS = ("description", "base_spacing", "remappings", "parameters")
_TOPIC = re.compile(r"(~/|/)?[A-Za-z_]\w*(/[A-Za-z_]\w*)*", re.ASCII)


@dataclass(frozen=True)
class Rig:
    """Names of a rig's driver topics, and a few numbers.

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


def load_rig(name_or_path: str) -> Rig:
    """Read a rig file: a name below ``config/rig/`` or a path.

    Raises:
        BringupError: the file is missing or no YAML, or a key, node, name or value in it is not allowed; the message
            names it and what is.
    """
    folder = share_directory("config", "rig")
    path = Path(name_or_path)
    if path.suffix != ".yaml":
        path = folder / f"{name_or_path}.yaml"
    if not path.is_file():
        known = ", ".join(sorted(p.stem for p in folder.glob("*.yaml")))
        raise BringupError(f"no rig '{name_or_path}'; known: {known}, or the path of a .yaml file")
    try:
        return _rig(yaml_text.read(path) or {}, path.stem)
    except BringupError as error:
        raise BringupError(f"rig file {path}: {error}") from None
    except ValueError as error:
        raise BringupError(f"rig file: {error}") from None


def _rig(content: Any, name: str) -> Rig:
    if not isinstance(content, dict):
        raise BringupError(f"holds {content!r}; allowed: {', '.join(_KEYS)}, each with a value")
    unknown = [str(key) for key in content if key not in _KEYS]
    if unknown:
        raise BringupError(f"unknown {', '.join(unknown)}; allowed: {', '.join(_KEYS)}")
    return Rig(
        description=str(content.get("description", name)),
        base_spacing=_spacing(content.get("base_spacing", RigGeometry().spacing)),
        remappings=_section(content, "remappings", _remapping),
        parameters=_section(content, "parameters", _parameter),
    )


def _spacing(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise BringupError(f"base_spacing is {value!r}; allowed: a number of metres, such as {RigGeometry().spacing}")
    try:
        return RigGeometry(spacing=float(value)).spacing
    except ValueError as error:
        raise BringupError(str(error)) from None


def _section(content: dict[str, Any], section: str, check: Callable[[Any, Any, str], Any]) -> dict[str, dict[str, Any]]:
    nodes = content.get(section) or {}
    if not isinstance(nodes, dict):
        raise BringupError(f"{section} is {nodes!r}; allowed: a group of NODE: {{NAME: VALUE}}")
    for node, entries in nodes.items():
        if node not in POLICY_SIDE:
            raise BringupError(f"{section} of '{node}'; allowed: {', '.join(POLICY_SIDE)}")
        if not isinstance(entries, dict):
            raise BringupError(f"{section} of {node} is {entries!r}; allowed: a group of NAME: VALUE")
    return {
        node: {name: check(name, value, f"{section} of {node}: {name}") for name, value in entries.items()}
        for node, entries in nodes.items()
    }


def _remapping(ours: Any, theirs: Any, what: str) -> str:
    for topic in (ours, theirs):
        if not (isinstance(topic, str) and _TOPIC.fullmatch(topic)):
            raise BringupError(f"{what}: {topic!r} is no topic name; allowed: letters, digits, _ and /, no digit first")
    return theirs


def _parameter(name: Any, value: Any, what: str) -> yaml_text.Value:
    if not isinstance(name, str):
        raise BringupError(f"{what}: {name!r} is no parameter name; allowed: a text")
    try:
        return yaml_text.parameter(value, what)
    except ValueError as error:
        raise BringupError(str(error)) from None
