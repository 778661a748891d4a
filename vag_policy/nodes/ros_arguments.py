"""What is wrong with a node's command line, in one sentence: rclpy raises where its C code stopped parsing."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

from rclpy.exceptions import NameValidationException, ParameterException
from rclpy.qos_overriding_options import InvalidQosOverridesError

from vag_policy.nodes.parameters import ParameterError

_ALLOWED = {
    "remap rule": "-r FROM:=TO, where names have letters, digits, _ and /, and no part begins with a digit; "
    "__node:=NAME and __ns:=/NAME rename the node and its namespace",
    "parameter override rule": "-p NAME:=VALUE, with a value in YAML and lists of one type",
    "params file": "a YAML file of NODE: {ros__parameters: {NAME: VALUE}}, with lists of one type",
    "log level": "debug, info, warn, error or fatal, or LOGGER:=LEVEL",
}


_QOS = "allowed in qos_overrides: depth (0 or more), history (keep_last, keep_all), reliability (reliable, best_effort)"


@contextlib.contextmanager
def explained(topic: str = "") -> Iterator[None]:
    """Turn what rclpy raises for a wrong command line, parameter or name into a ParameterError.

    Args:
        topic: set while a publisher or subscription is made, where only its QoS overrides are read.

    Raises:
        ParameterError: names the argument and what is allowed.
    """
    try:
        yield
    except NameValidationException as error:
        raise ParameterError(" ".join(str(error).replace("^", "").split())) from error
    except ParameterException as error:
        raise ParameterError(explain_parameter(error)) from error
    except (RuntimeError, InvalidQosOverridesError) as error:  # RCLError and its kind are RuntimeErrors
        text = str(error).partition(", at /")[0]
        raise ParameterError(f"QoS of '{topic}': {text}; {_QOS}" if topic else _explain(str(error))) from error


def explain_parameter(error: ParameterException) -> str:
    """What rclpy says of a parameter that it declares itself, in the words of ours."""
    text = str(error)
    found = re.match(r"Trying to set parameter '(.*?)' to '(.*)' of type '(\w+)', expecting type '(\w+)'", text)
    if found is None:
        return text
    name, value, given, wanted = found.groups()
    return f"parameter '{name}' must be {wanted.lower()}, got {given.lower()} '{value}'"


def _explain(text: str) -> str:
    parsed = re.search(
        r"Couldn't parse (?P<kind>[a-z ]+): '(?P<given>.*?)'\. Error: (?P<why>.*?), at /", text, re.DOTALL
    )
    if parsed is None:
        unknown = re.fullmatch(r"\[(.*)\]", text)
        return f"unknown ROS arguments {unknown[1]}" if unknown else text.partition(", at /")[0]
    sentence = f"cannot read '{parsed['given']}'"
    if parsed["kind"] == "params file":  # the one kind whose reason is about the user's text
        sentence += f" ({' '.join(parsed['why'].split())})"
    return f"{sentence}; allowed: {_ALLOWED.get(parsed['kind'], 'see ros2 --help')}"
