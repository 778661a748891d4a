"""YAML from users: files and values of options, where what is wrong is one sentence that names the place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

Value = bool | int | float | str | list[Any]


def read(path: Path | str) -> Any:
    """The content of a YAML file.

    Raises:
        ValueError: it cannot be read or is not YAML; the message names the file, and the line.
    """
    try:
        text = Path(path).read_text()
    except UnicodeDecodeError:
        raise ValueError(f"{path} is not a text file; a YAML file is wanted") from None
    except OSError as error:
        raise ValueError(f"cannot read {path}: {error.strerror}; a YAML file is wanted") from error
    return parse(text, str(path))


def parse(text: str, what: str) -> Any:
    """``text`` as YAML; ``what`` names it in the error.

    Raises:
        ValueError: it is not YAML.
    """
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" in line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        reason = getattr(error, "problem", None) or " ".join(str(error).split())
        raise ValueError(f"{what} is not YAML{where}: {reason}") from None
    except ValueError as error:  # such as a date that no calendar has
        raise ValueError(f"{what} is not YAML: {error}") from None


def parameter(value: Any, what: str) -> Value:
    """``value`` if a ROS parameter can have it.

    Raises:
        ValueError: it cannot; ``what`` names it.
    """
    items = value if isinstance(value, list) else [value]
    kinds = {type(item) for item in items}
    if kinds and kinds <= {bool, int, float, str} and len(kinds) == 1:
        return value
    raise ValueError(f"{what} is {value!r}; allowed: true or false, a number, a text, or a list of one of these")
