"""Joints in sentences that people read."""

from __future__ import annotations

from collections.abc import Sequence


def some_joints(names: Sequence[str], joints: Sequence[str], prefix: str = "") -> str:
    """``names`` as text, after ``prefix``; ``all 14 joints`` where they are all of several ``joints``."""
    if len(names) == len(joints) > 1:
        return f"all {len(joints)} joints"
    return prefix + ", ".join(names)
