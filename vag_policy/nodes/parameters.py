"""Node parameters as tables: declared, validated and documented in one place.

A table is read by the node, by the launch-file test and by the documentation; it needs no running node.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from rcl_interfaces.msg import FloatingPointRange, IntegerRange, ParameterDescriptor, SetParametersResult
from rclpy.node import Node
from rclpy.parameter import Parameter

Scalar = bool | int | float | str

_TYPES = {
    bool: Parameter.Type.BOOL,
    int: Parameter.Type.INTEGER,
    float: Parameter.Type.DOUBLE,
    str: Parameter.Type.STRING,
}
_ARRAYS = {
    bool: Parameter.Type.BOOL_ARRAY,
    int: Parameter.Type.INTEGER_ARRAY,
    float: Parameter.Type.DOUBLE_ARRAY,
    str: Parameter.Type.STRING_ARRAY,
}
# Names that rclpy itself declares or reads.
_FOREIGN = ("use_sim_time", "start_type_description_service")


class ParameterError(ValueError):
    """A parameter that is unknown, of the wrong type or out of range."""


@dataclass(frozen=True)
class Param:
    """One parameter.

    Attributes:
        name: dotted name.
        default: its value and type; a tuple for an array.
        description: one line, with the unit.
        range: inclusive (low, high) for numbers, elementwise for arrays.
        choices: the allowed values for strings.
        read_only: structural: cannot change while the node lives.
        element: element type of an array, needed where ``default`` is empty.
    """

    name: str
    default: Scalar | tuple[Scalar, ...]
    description: str
    range: tuple[float, float] | None = None
    choices: tuple[str, ...] = ()
    read_only: bool = True
    element: type | None = None

    @property
    def type(self) -> Parameter.Type:
        """The parameter's ROS type."""
        if isinstance(self.default, tuple):
            return _ARRAYS[self.element or type(self.default[0])]
        return _TYPES[type(self.default)]

    def check(self, value: Any) -> str:
        """Return why ``value`` is not allowed, or an empty string."""
        for item in value if isinstance(self.default, tuple) else (value,):
            if self.choices and item not in self.choices:
                return f"parameter '{self.name}' is '{item}'; allowed: {', '.join(self.choices)}"
            if self.range is not None and not self.range[0] <= item <= self.range[1]:
                return f"parameter '{self.name}' is {item}; allowed: {self.range[0]} to {self.range[1]}"
        return ""

    def descriptor(self) -> ParameterDescriptor:
        """The descriptor that tools such as ``ros2 param describe`` show."""
        descriptor = ParameterDescriptor(
            name=self.name, type=self.type.value, description=self.description, read_only=self.read_only
        )
        if self.choices:
            descriptor.additional_constraints = "one of: " + ", ".join(self.choices)
        if self.range is not None and self.type is Parameter.Type.INTEGER:
            descriptor.integer_range = [IntegerRange(from_value=int(self.range[0]), to_value=int(self.range[1]))]
        elif self.range is not None and self.type is Parameter.Type.DOUBLE:
            low, high = self.range
            descriptor.floating_point_range = [FloatingPointRange(from_value=float(low), to_value=float(high))]
        return descriptor


def declare(
    node: Node, table: Sequence[Param], changed: Callable[[dict[str, Any]], None] | None = None
) -> dict[str, Any]:
    """Declare every parameter of ``table`` on ``node`` and return the values by name.

    ``changed`` is called with the new values, after the fact, when a parameter that is not read-only changes.

    Raises:
        ParameterError: an override is unknown, of the wrong type or out of range; the message lists what is allowed.
    """
    known = {param.name: param for param in table}
    overrides = node._parameter_overrides  # no public way to see an override that nobody declares
    for name, override in overrides.items():
        if name in _FOREIGN or name.startswith("qos_overrides."):
            continue
        if name not in known:
            raise ParameterError(f"{node.get_name()} has no parameter '{name}'; it has: {', '.join(sorted(known))}")
        check_override(known[name], override)
    values: dict[str, Any] = {}
    for param in table:
        # rclpy would declare an empty list as a byte array: declare the type alone instead
        default = list(param.default) or param.type if isinstance(param.default, tuple) else param.default
        value = node.declare_parameter(param.name, default, param.descriptor()).value
        values[param.name] = tuple(value or ()) if isinstance(param.default, tuple) else value

    def on_set(parameters: list[Parameter]) -> SetParametersResult:
        reasons = [known[p.name].check(p.value) for p in parameters if p.name in known]
        reason = "; ".join(filter(None, reasons))
        return SetParametersResult(successful=not reason, reason=reason)

    def post_set(parameters: list[Parameter]) -> None:
        fresh = {p.name: p.value for p in parameters if p.name in known}
        values.update(fresh)
        if changed is not None and fresh:
            changed(fresh)

    node.add_on_set_parameters_callback(on_set)
    node.add_post_set_parameters_callback(post_set)
    return values


def check_override(param: Param, override: Parameter) -> None:
    """Raise ParameterError unless ``override`` has the type, range and choices of ``param``."""
    if override.type_ is not param.type:
        empty = isinstance(param.default, tuple) and not override.value
        if empty:
            raise ParameterError(f"parameter '{param.name}' is an empty list; leave it out to keep the default")
        whole = override.type_ is Parameter.Type.INTEGER and param.type is Parameter.Type.DOUBLE
        hint = f" such as {float(override.value)}" if whole else ""
        raise ParameterError(
            f"parameter '{param.name}' must be {param.type.name.lower()}{hint}, got {override.type_.name.lower()} "
            f"{override.value!r}"
        )
    reason = param.check(override.value)
    if reason:
        raise ParameterError(reason)
