"""Which items stand on the table, where a seed puts them, and what it asks for. Pure numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from vag_policy.robots.yam import ARMS
from vag_policy.robots.yam_items import CONTAINERS, OBJECTS, Container, Item
from vag_policy.robots.yam_rig import RigGeometry


@dataclass(frozen=True)
class Task:
    """Put ``item`` in or on ``container``."""

    item: Item
    container: Container

    @property
    def instruction(self) -> str:
        """The task in words."""
        return f"put the {self.item.words} {self.container.preposition} the {self.container.words}"


@dataclass(frozen=True)
class Layout:
    """One start state: ``places`` holds (x, y, yaw) by item name, in the world frame, metres and rad."""

    task: Task
    places: dict[str, tuple[float, float, float]]


@dataclass(frozen=True)
class SceneConfig:
    """Which items stand on the table, and where a seed may put them.

    Attributes:
        objects: names of the objects.
        containers: names of the containers.
        object_x, container_x: (least, most) metres in front of the bases; objects stand nearer than containers, so that
            a small model has fewer places to search.
        y: most metres to either side of the middle; the top camera sees little further.
        reach: (least, most) metres from a base's axis at which the gripper, pointing down, grasps and lifts 15 cm.
        gap: metres left free between two items, so that the fingers fit.
        clear: metres kept between the task's items and the line in front of each base, where the top camera's view is
            hidden by the folded arm.

    Raises:
        ValueError: an unknown name, no object or no container.
    """

    objects: tuple[str, ...] = tuple(item.name for item in OBJECTS)
    containers: tuple[str, ...] = tuple(item.name for item in CONTAINERS)
    object_x: tuple[float, float] = (0.16, 0.26)
    container_x: tuple[float, float] = (0.31, 0.40)
    y: float = 0.43
    reach: tuple[float, float] = (0.18, 0.42)
    gap: float = 0.03
    clear: float = 0.03
    items: tuple[Item, ...] = field(init=False, repr=False)
    tasks: tuple[Task, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        objects = _select("object", self.objects, OBJECTS)
        containers = _select("container", self.containers, CONTAINERS)
        object.__setattr__(self, "items", (*containers, *objects))
        tasks = tuple(Task(item, container) for item in objects for container in containers)
        object.__setattr__(self, "tasks", tasks)

    def find_task(self, instruction: str) -> Task:
        """The task that ``instruction`` names; case, outer spaces and a final full stop do not matter.

        Raises:
            ValueError: no such task in this scene.
        """
        wanted = " ".join(instruction.lower().rstrip(" .").split())
        for task in self.tasks:
            if task.instruction == wanted:
                return task
        known = {word for task in self.tasks for word in task.instruction.split()}
        strange = [f"'{word}'" for word in dict.fromkeys(wanted.split()) if word not in known]
        reason = f": unknown {'words' if strange[1:] else 'word'} {', '.join(strange)}" if strange else ""
        objects = sorted({task.item.words for task in self.tasks})
        places = sorted({f"{task.container.preposition} the {task.container.words}" for task in self.tasks})
        raise ValueError(
            f"no task '{instruction}' in this scene{reason}; say 'put the OBJECT PLACE' with one of the objects "
            f"{', '.join(objects)} and one of the places {', '.join(places)}"
        )

    def arms_reaching(self, rig: RigGeometry, x: float, y: float) -> tuple[str, ...]:
        """The arms that can grasp from above at (x, y) metres in the world frame."""
        distances = {arm: math.hypot(x, y - rig.base_xyz(arm)[1]) for arm in ARMS}
        return tuple(arm for arm, distance in distances.items() if self.reach[0] <= distance <= self.reach[1])

    def draw(self, rig: RigGeometry, seed: int, instruction: str = "") -> Layout:
        """Where ``seed`` puts every item, and the task: ``instruction``, or one drawn from the seed.

        Nothing overlaps, every item is within reach of an arm, and the task's object and container stand between the
        arms, both within reach of one of them.

        Raises:
            ValueError: a negative seed, an unknown instruction, or a table too full to draw a layout for.
        """
        if seed < 0:
            raise ValueError(f"a scene's seed is 0 or more, got {seed}")
        rng = np.random.default_rng(seed)
        drawn = self.tasks[rng.integers(len(self.tasks))]  # drawn in any case: the layout's draws stay the same
        task = self.find_task(instruction) if instruction else drawn
        for _ in range(1000):
            places = self._try_layout(rig, rng, task)
            if places is not None:
                return Layout(task, places)
        raise ValueError(
            f"no room for {len(self.items)} items at x {self.object_x} and {self.container_x} m, y {self.y} m, "
            f"gap {self.gap} m"
        )

    def _try_layout(
        self, rig: RigGeometry, rng: np.random.Generator, task: Task
    ) -> dict[str, tuple[float, float, float]] | None:
        places: dict[str, tuple[float, float, float]] = {}
        chosen = (task.container, task.item)
        for item in (*chosen, *(item for item in self.items if item not in chosen)):
            side = min(self.y, rig.spacing / 2 - self.clear) if item in chosen else self.y
            for _ in range(30):
                x, y = rng.uniform(*self._depth(item)), rng.uniform(-side, side)
                yaw = rng.uniform(-math.pi / 4, math.pi / 4)
                if self._fits(rig, item, x, y, places):
                    places[item.name] = (float(x), float(y), float(yaw))
                    break
            else:
                return None
        reaching = [set(self.arms_reaching(rig, *places[item.name][:2])) for item in chosen]
        return places if reaching[0] & reaching[1] else None

    def _depth(self, item: Item) -> tuple[float, float]:
        return self.container_x if item.name in self.containers else self.object_x

    def _fits(
        self, rig: RigGeometry, item: Item, x: float, y: float, places: dict[str, tuple[float, float, float]]
    ) -> bool:
        if not self.arms_reaching(rig, x, y):
            return False
        others = ((other, places[other.name]) for other in self.items if other.name in places)
        return all(
            math.hypot(x - place[0], y - place[1]) >= item.footprint + other.footprint + self.gap
            for other, place in others
        )


def _select(kind: str, names: Sequence[str], catalogue: Sequence[Item]) -> list:
    known = {item.name: item for item in catalogue}
    unknown = [name for name in names if name not in known]
    if unknown or not names or len(set(names)) != len(names):
        what = f"no {kind} '{unknown[0]}'" if unknown else f"{kind}s must be one or more, each once"
        raise ValueError(f"{what}; a scene has: {', '.join(known)}")
    return [known[name] for name in names]


def yaw_quaternion(yaw: float) -> NDArray[np.float64]:
    """(4,) quaternion w x y z of a turn about z."""
    return np.array([math.cos(yaw / 2), 0.0, 0.0, math.sin(yaw / 2)])
