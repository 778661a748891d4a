"""Trained weights that come with the package, by name."""

from __future__ import annotations

from pathlib import Path

PREFIX = "shipped:"
TINY_YAM = f"{PREFIX}tiny_yam"
"""The small policy of the simulated rig."""

WEIGHTS = Path(__file__).resolve().parent / "weights"
NAMES = ("tiny_yam",)


def shipped_policy(name: str) -> Path | None:
    """The checkpoint folder of the shipped policy ``name``; None where this copy of the package is without it.

    Raises:
        ValueError: no such policy is shipped.
    """
    if name not in NAMES:
        raise ValueError(f"no shipped policy '{name}'; there are: {', '.join(NAMES)}")
    folder = WEIGHTS / name
    return folder if (folder / "manifest.json").is_file() else None


def checkpoint_folder(text: str) -> str:
    """The folder that a ``checkpoint`` setting names: a path stays what it is, ``shipped:NAME`` is found.

    Empty where ``text`` is, and where the shipped weights are missing.

    Raises:
        ValueError: no such policy is shipped.
    """
    if not text.startswith(PREFIX):
        return text
    folder = shipped_policy(text.removeprefix(PREFIX))
    return "" if folder is None else str(folder)
