"""Trained weights that come with the package, by name."""

from __future__ import annotations

from pathlib import Path

PREFIX = "shipped:"
TINY_YAM = f"{PREFIX}tiny_yam"
"""The small policy of the simulated rig."""

WEIGHTS = Path(__file__).resolve().parent / "weights"
NAMES = ("tiny_yam",)
MANIFEST = "manifest.json"
"""What makes a folder a checkpoint; ``checkpoint.MANIFEST``, which would load torch."""


def shipped_policy(name: str) -> Path | None:
    """The checkpoint folder of the shipped policy ``name``; None where this copy of the package is without it.

    Raises:
        ValueError: no such policy is shipped.
    """
    if name not in NAMES:
        raise ValueError(f"no shipped policy '{name}'; there are: {', '.join(NAMES)}")
    folder = WEIGHTS / name
    return folder if (folder / MANIFEST).is_file() else None


def named_checkpoint(text: str) -> str:
    """A ``checkpoint`` setting for what a person typed: a folder, ``shipped:NAME``, or NAME alone.

    Raises:
        ValueError: it is neither a checkpoint's folder nor a policy that this copy of the package holds.
    """
    name = text.removeprefix(PREFIX)
    if text.startswith(PREFIX) or name in NAMES and not Path(text).exists():
        if shipped_policy(name) is None:
            raise ValueError(f"the weights of {PREFIX}{name} are not in this copy of the package")
        return PREFIX + name
    if not (Path(text) / MANIFEST).is_file():
        raise ValueError(f"no checkpoint in {text}: there is no {Path(text) / MANIFEST}")
    return str(Path(text).resolve())


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
