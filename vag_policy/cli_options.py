"""Checks of option values that several commands share."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

import typer

SETTING = "NODE.PARAMETER=VALUE"
SET_HELP = "change a node's parameter, such as policy.seed=3; may be given several times"
_LONGEST, _SHOWN = 200, 80


def shortened(text: str, arguments: Sequence[str]) -> str:
    """``text`` with what it repeats of the command line cut to a length that people read."""
    pieces = {piece for given in arguments for piece in (given, given.partition("=")[2], " ".join(given.split()))}
    for piece in sorted((piece for piece in pieces if len(piece) > _LONGEST), key=len, reverse=True):
        text = text.replace(piece, _cut(piece))
    return re.sub(rf"\S{{{_LONGEST + 1},}}", lambda found: _cut(found[0]), text)


def _cut(text: str) -> str:
    return f"{text[:_SHOWN]}... ({len(text)} characters)"


def finite(value: float | None) -> float | None:
    """A callback for numbers: typer's ranges let "nan" through."""
    if value is not None and not math.isfinite(value):
        raise typer.BadParameter(f"{value} is not a finite number")
    return value


def known_guidance(value: str | None) -> str | None:
    """A callback for the guidance of the actions."""
    from vag_policy.vam.presets import GUIDANCE_MODES

    if value is not None and value not in GUIDANCE_MODES:
        raise typer.BadParameter(f"'{value}' is not one of {', '.join(GUIDANCE_MODES)}")
    return value
