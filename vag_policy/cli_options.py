"""Checks of option values that several commands share."""

from __future__ import annotations

import math

import typer


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
