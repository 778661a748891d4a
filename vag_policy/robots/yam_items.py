"""The catalogue of objects and containers that can stand on the table, made of primitive shapes."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from vag_policy.robots.yam_shapes import Shape

SCENE_COLOURS: dict[str, tuple[float, float, float]] = {
    "red": (0.85, 0.10, 0.10),
    "green": (0.10, 0.62, 0.18),
    "blue": (0.10, 0.28, 0.88),
    "yellow": (0.98, 0.82, 0.08),
    "purple": (0.55, 0.16, 0.68),
    "bowl": (0.22, 0.50, 0.85),
    "plate": (0.25, 0.60, 0.35),
    "plate_rim": (0.16, 0.47, 0.26),
    "wood": (0.62, 0.40, 0.20),
    "wood_light": (0.74, 0.53, 0.31),
}


@dataclass(frozen=True)
class Item:
    """Something on the table. Its frame's origin is on its underside, z up.

    Attributes:
        name: identifier, also of its body in the simulator.
        words: how an instruction calls it.
        mass: kilograms.
        footprint: radius in metres of the circle it covers.
        height: metres.
        shapes: what it is made of; ``colour`` is a key of ``SCENE_COLOURS``.
    """

    name: str
    words: str
    mass: float
    footprint: float
    height: float
    shapes: tuple[Shape, ...]


@dataclass(frozen=True)
class Container(Item):
    """A place to put an object.

    Attributes:
        preposition: ``in`` or ``on``.
        inside: half extents (x, y) in metres of the region that counts; equal ones are a circle's radius if ``round``.
        round: whether the region is a disc.
    """

    preposition: str = "in"
    inside: tuple[float, float] = (0.0, 0.0)
    round: bool = True

    def contains(self, x: float, y: float) -> bool:
        """Whether a point in the container's frame is over the region that counts."""
        if self.round:
            return math.hypot(x, y) <= self.inside[0]
        return abs(x) <= self.inside[0] and abs(y) <= self.inside[1]


def _cube(colour: str, edge: float = 0.044) -> Item:
    shape = Shape("box", (edge, edge, edge), (0.0, 0.0, edge / 2), colour)
    return Item(f"{colour}_cube", f"{colour} cube", 0.06, edge / math.sqrt(2), edge, (shape,))


def _can() -> Item:
    radius, height = 0.022, 0.06
    shape = Shape("cylinder", (radius, height), (0.0, 0.0, height / 2), "purple")
    return Item("purple_can", "purple can", 0.07, radius, height, (shape,))


def _bowl(segments: int = 14) -> Container:
    bottom, rim, height, wall, floor = 0.046, 0.072, 0.040, 0.005, 0.006
    slope = math.atan2(rim - bottom, height - floor)
    length, middle = math.hypot(rim - bottom, height - floor), (rim + bottom) / 2
    shapes = [Shape("cylinder", (bottom, floor), (0.0, 0.0, floor / 2), "bowl")]
    for angle in np.arange(segments) * 2 * math.pi / segments:
        centre = (middle * math.cos(angle), middle * math.sin(angle), (height + floor) / 2)
        size = (wall, 2 * rim * math.tan(math.pi / segments), length)
        shapes.append(Shape("box", size, centre, "bowl", (0.0, slope, float(angle))))
    return Container("blue_bowl", "blue bowl", 0.4, rim + wall, height, tuple(shapes), "in", (bottom, bottom))


def _plate() -> Container:
    shapes = (
        Shape("cylinder", (0.074, 0.008), (0.0, 0.0, 0.004), "plate_rim"),
        Shape("cylinder", (0.056, 0.001), (0.0, 0.0, 0.0085), "plate", collides=False),
    )
    return Container("green_plate", "green plate", 0.4, 0.074, 0.009, shapes, "on", (0.062, 0.062))


def _tray() -> Container:
    x, y, wall, floor, height = 0.12, 0.16, 0.007, 0.006, 0.030
    shapes = [Shape("box", (x, y, floor), (0.0, 0.0, floor / 2), "wood_light")]
    for sign in (1.0, -1.0):
        middle = (height + floor) / 2
        shapes.append(Shape("box", (wall, y, height - floor), (sign * (x - wall) / 2, 0.0, middle), "wood"))
        shapes.append(Shape("box", (x - 2 * wall, wall, height - floor), (0.0, sign * (y - wall) / 2, middle), "wood"))
    inside = (x / 2 - wall - 0.01, y / 2 - wall - 0.01)
    footprint = math.hypot(x, y) / 2
    return Container("wooden_tray", "wooden tray", 0.5, footprint, height, tuple(shapes), "in", inside, round=False)


OBJECTS = (*(_cube(colour) for colour in ("red", "green", "blue", "yellow")), _can())
CONTAINERS = (_bowl(), _plate(), _tray())
