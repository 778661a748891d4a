"""Which episodes an evaluation consists of: the same for every policy, so that they can be compared in pairs."""

from __future__ import annotations

from dataclasses import dataclass

from vag_policy.data.splits import Split
from vag_policy.robots.yam_scene import SceneConfig

SPLITS = ("id", "ood")


@dataclass(frozen=True)
class Trial:
    """One episode to be run.

    Attributes:
        index: its place in the list.
        instruction: what the policy is told.
        seed: of the scene.
    """

    index: int
    instruction: str
    seed: int


def trials(split: Split, part: str, count: int, seed: int = 0, instruction: str = "") -> tuple[Trial, ...]:
    """The first ``count`` episodes: instructions in turn, every one in a scene of its own.

    Args:
        split: instructions and scene seeds.
        part: one of ``SPLITS``.
        count: how many.
        seed: how many of the part's scene seeds to skip.
        instruction: only this one, which need not be of the split; empty: all of the part's in turn.

    Raises:
        ValueError: an unknown part or instruction, or more episodes than the part has scene seeds.
    """
    if part not in SPLITS:
        raise ValueError(f"no split '{part}' to evaluate; there are: {', '.join(SPLITS)}")
    first, last = split.seeds[part]
    available = last - first + 1
    if count < 1 or seed < 0 or seed + count > available:
        raise ValueError(
            f"split '{part}' has scene seeds {first} to {last}: seed + episodes may be up to {available}, both "
            f"positive; got {seed} + {count}"
        )
    told = (SceneConfig().find_task(instruction).instruction,) if instruction else getattr(split, part)
    if not told:
        raise ValueError(f"split '{part}' has no instruction")
    return tuple(Trial(i, told[i % len(told)], first + seed + i) for i in range(count))
