"""Which instructions and scene seeds are demonstrated, and which are only evaluated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from vag_policy import yaml_text
from vag_policy.robots.yam_scene import SceneConfig

PARTS = ("demonstrations", "id", "ood")


@dataclass(frozen=True)
class Split:
    """Instructions in distribution (demonstrated) and out of it (never), and the seeds of each use.

    Attributes:
        id: demonstrated and evaluated instructions.
        ood: evaluated instructions; each one's object and destination appear in ``id``, never together.
        seeds: (first, last) scene seed of ``demonstrations``, ``id`` and ``ood`` evaluation; disjoint.

    Raises:
        ValueError: an unknown instruction or one on both sides, an object or destination of ``ood`` that is not
            demonstrated, or seeds that overlap.
    """

    id: tuple[str, ...]
    ood: tuple[str, ...]
    seeds: dict[str, tuple[int, int]]

    def __post_init__(self) -> None:
        scene = SceneConfig()
        tasks = {part: [scene.find_task(text) for text in getattr(self, part)] for part in ("id", "ood")}
        if not self.id:
            raise ValueError("a split needs at least one instruction that is demonstrated (id)")
        both = sorted({task.instruction for task in tasks["id"]} & {task.instruction for task in tasks["ood"]})
        if both:
            raise ValueError(f"'{both[0]}' is both id and ood")
        seen = {item.name for task in tasks["id"] for item in (task.item, task.container)}
        for task in tasks["ood"]:
            for item in (task.item, task.container):
                if item.name not in seen:
                    raise ValueError(f"'{task.instruction}' is ood, but no id instruction has the {item.words}")
        missing = [part for part in PARTS if part not in self.seeds]
        if missing:
            raise ValueError(f"a split needs seeds of {', '.join(PARTS)}; missing: {', '.join(missing)}")
        ranges = sorted(self.seeds[part] for part in PARTS)
        for (first, last), (following, _) in zip(ranges, [*ranges[1:], (ranges[-1][1] + 1, 0)], strict=True):
            if not 0 <= first <= last < following:
                raise ValueError(f"seeds of {', '.join(PARTS)} must be disjoint ranges (first, last), got {self.seeds}")

    def check_demonstration_seeds(self, first: int, count: int) -> None:
        """Raise ValueError unless ``count`` seeds from ``first`` on are all for demonstrations."""
        lowest, highest = self.seeds["demonstrations"]
        if first < lowest or first + count - 1 > highest:
            raise ValueError(
                f"demonstrations take seeds {lowest} to {highest}, the rest is for evaluation; "
                f"asked for {first} to {first + count - 1}"
            )


def load_split(path: Path) -> Split:
    """Read a split from YAML: lists ``id`` and ``ood`` of instructions, and ``seeds``.

    Raises:
        ValueError: not such a file; its name is in the message.
    """
    content = yaml_text.read(path)
    try:
        seeds = {name: (int(first), int(last)) for name, (first, last) in content["seeds"].items()}
        return Split(tuple(content["id"]), tuple(content["ood"]), seeds)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} is not a split (lists 'id' and 'ood', and 'seeds'): {error}") from error


def hold_out(split: Split, held_out: Sequence[str]) -> Split:
    """All instructions of the scene, with ``held_out`` as ood and the others as id; seeds as in ``split``."""
    scene = SceneConfig()
    ood = {scene.find_task(text).instruction for text in held_out}
    demonstrated = tuple(task.instruction for task in scene.tasks if task.instruction not in ood)
    return Split(demonstrated, tuple(sorted(ood)), split.seeds)
