"""A training run's YAML file, read into the dataclasses of ``config``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

from vag_policy import yaml_text
from vag_policy.training.config import TrainConfig


def load_config(path: Path | str, changes: Mapping[str, Any] | None = None) -> TrainConfig:
    """Read a configuration file.

    Args:
        path: YAML.
        changes: values to set, by dotted name; ``stages.0.steps`` reaches into the list.

    Raises:
        ValueError: unknown or missing settings, or a value that is not allowed; file and setting are named.
    """
    path = Path(path)
    content = yaml_text.read(path)
    for key, value in (changes or {}).items():
        _set(content, key.split("."), value, key)
    return _build(TrainConfig, content, str(path))


def _set(content: Any, keys: list[str], value: Any, name: str) -> None:
    for key in keys[:-1]:
        if isinstance(content, list):
            if not (key.isdigit() and int(key) < len(content)):
                raise ValueError(f"{name}: there is no number {key}; there are {len(content)}")
            content = content[int(key)]
        elif isinstance(content, dict):
            content = content.setdefault(key, {})
        else:
            raise ValueError(f"{name}: {key} is not a group of settings")
    if not isinstance(content, dict):
        raise ValueError(f"{name} is not a setting")
    content[keys[-1]] = value


def _build(cls: type[Any], data: Any, where: str) -> Any:
    """A dataclass from YAML's mappings; the constructor checks the values."""
    if not isinstance(data, dict):
        raise ValueError(f"{where} must be a group of settings, got {data!r}")
    hints = get_type_hints(cls)
    unknown = sorted(set(map(str, data)) - set(hints))
    if unknown:
        raise ValueError(f"{where}: unknown setting {unknown[0]!r}; allowed: {', '.join(hints)}")
    values: dict[str, Any] = {}
    for config_field in fields(cls):
        name = config_field.name
        if name in data:
            values[name] = _value(hints[name], data[name], f"{where}: {name}")
        elif config_field.default is MISSING and config_field.default_factory is MISSING:
            raise ValueError(f"{where}: setting {name!r} is missing")
    try:
        return cls(**values)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from error


def _value(hint: Any, value: Any, where: str) -> Any:
    if is_dataclass(hint):
        return _build(hint, value, where)  # type: ignore[arg-type]
    origin = get_origin(hint) or hint
    if origin is tuple and isinstance(value, list):
        inner = get_args(hint)[0]
        return tuple(_value(inner, item, f"{where}[{index}]") for index, item in enumerate(value))
    if origin is float and isinstance(value, (int, float, str)) and not isinstance(value, bool):
        try:
            return float(value)  # YAML reads 1e-4, without a dot, as a string
        except ValueError:
            raise ValueError(f"{where} must be a number, got {value!r}") from None
    if not isinstance(value, origin) or (isinstance(value, bool) and origin is not bool):
        raise ValueError(f"{where} must be {getattr(origin, '__name__', origin)}, got {value!r}")
    return value
