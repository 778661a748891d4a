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


def to_show(split: Split, count: int, seed: int = 0, instruction: str = "") -> tuple[tuple[str, Trial], ...]:
    """``count`` episodes for people to look at, as (part, trial): half of them id, then the ood ones.

    Each is an episode that ``trials`` has too, for that part and seed; they are spread over its instructions.

    Args:
        split: instructions and scene seeds.
        count: how many.
        seed: as for ``trials``.
        instruction: only this one; its part is the one that has it.

    Raises:
        ValueError: as for ``trials``.
    """
    if instruction:
        told, find = SceneConfig().find_task(instruction), SceneConfig().find_task
        part = "ood" if told in map(find, split.ood) else "id"
        return tuple((part, trial) for trial in trials(split, part, count, seed, told.instruction))
    held_out = count // 2 if split.ood else 0
    return (*_spread(split, "id", count - held_out, seed), *_spread(split, "ood", held_out, seed))


def _spread(split: Split, part: str, count: int, seed: int) -> list[tuple[str, Trial]]:
    if not count:
        return []
    every = trials(split, part, max(count, len(getattr(split, part))), seed)
    return [(part, every[-(-k * len(every) // count)]) for k in range(count)]
