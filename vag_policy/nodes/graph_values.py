"""The parameter values that the nodes of a graph would have, without starting one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import yaml
from rclpy.parameter import Parameter

from vag_policy.bringup import NodeSpec, share_directory
from vag_policy.nodes.parameters import Param, ParameterError, check_override


def graph_values(specs: Sequence[NodeSpec], tables: Mapping[str, Sequence[Param]]) -> dict[str, dict[str, Any]]:
    """Values by parameter name, for every node of ``tables``: its defaults, parameter files and own values.

    Args:
        specs: a graph, as ``bringup.graph`` gives it.
        tables: the nodes' ``PARAMETERS``, by node name.

    Raises:
        ParameterError: a value is unknown, of the wrong type or out of range.
    """
    nodes = {spec.name: spec for spec in specs}
    return {name: _values(nodes[name], table) for name, table in tables.items()}


def _values(spec: NodeSpec, table: Sequence[Param]) -> dict[str, Any]:
    overrides: dict[str, Any] = {}
    for file in spec.config:
        content = yaml.safe_load((share_directory("config") / file).read_text())
        overrides |= content.get(f"/**/{spec.name}", {}).get("ros__parameters", {})
    overrides |= spec.parameters
    known = {param.name: param for param in table}
    values = {param.name: param.default for param in table}
    for name, value in overrides.items():
        if name not in known:
            raise ParameterError(f"{spec.name} has no parameter '{name}'; it has: {', '.join(sorted(known))}")
        check_override(known[name], Parameter(name, value=value))
        values[name] = tuple(value) if isinstance(known[name].default, tuple) else value
    return values
