"""Primitive shapes that look like the YAM's links: motors as drums, tubes as capsules, brackets as boxes."""

from __future__ import annotations

import math
from dataclasses import dataclass

Vector = tuple[float, float, float]

COLOURS: dict[str, tuple[float, float, float]] = {
    "shell": (0.93, 0.93, 0.91),
    "body": (0.34, 0.35, 0.38),
    "motor": (0.20, 0.21, 0.24),
    "finger": (0.66, 0.68, 0.72),
    "pad": (0.12, 0.13, 0.15),
    "lens": (0.05, 0.12, 0.22),
}
"""Named materials, RGB 0..1."""


@dataclass(frozen=True)
class Shape:
    """A primitive in a link's frame.

    ``size`` is, in metres: full edge lengths of a box; (radius, length) of a cylinder; (radius, length between the
    end spheres' centres) of a capsule. Cylinders and capsules lie along their z axis before ``rpy`` (rad) turns them.
    """

    kind: str
    size: tuple[float, ...]
    xyz: Vector
    colour: str
    rpy: Vector = (0.0, 0.0, 0.0)
    collides: bool = True


ALONG_X: Vector = (0.0, math.pi / 2, 0.0)
ALONG_Y: Vector = (math.pi / 2, 0.0, 0.0)
FINGER_TAPER = 0.19


def _pair(size: Vector, xyz: Vector, colour: str) -> tuple[Shape, Shape]:
    """Two boxes mirrored in y: the cheeks of a bracket."""
    x, y, z = xyz
    return Shape("box", size, (x, y, z), colour), Shape("box", size, (x, -y, z), colour)


BASE = (
    Shape("box", (0.13, 0.11, 0.012), (0.0, 0.0, 0.006), "body"),
    Shape("cylinder", (0.042, 0.052), (0.0, 0.0, 0.038), "motor"),
)

LINKS: tuple[tuple[Shape, ...], ...] = (
    (  # 1: turntable and the shoulder's fork
        Shape("cylinder", (0.040, 0.014), (0.0, 0.0, 0.007), "body"),
        *_pair((0.058, 0.007, 0.062), (0.018, 0.043, 0.040), "body"),
    ),
    (  # 2: upper arm, lying back along -x at zero
        Shape("cylinder", (0.034, 0.078), (0.0, 0.0, 0.0), "motor", ALONG_Y),
        Shape("capsule", (0.027, 0.190), (-0.132, 0.0, 0.0), "shell", ALONG_X),
        Shape("cylinder", (0.034, 0.078), (-0.264, 0.0, 0.0), "motor", ALONG_Y),
    ),
    (  # 3: the elbow's fork lifts the forearm 60 mm above the elbow's axis
        *_pair((0.056, 0.007, 0.104), (0.0, 0.043, 0.028), "body"),
        Shape("box", (0.050, 0.090, 0.030), (0.004, 0.0, 0.062), "body"),
        Shape("capsule", (0.026, 0.180), (0.126, 0.0, 0.060), "shell", ALONG_X),
        Shape("cylinder", (0.029, 0.062), (0.245, 0.0, 0.060), "motor", ALONG_Y),
    ),
    (  # 4: wrist fork; the motor of joint 5 stands above its axis
        *_pair((0.056, 0.006, 0.044), (0.012, 0.035, 0.006), "body"),
        Shape("box", (0.078, 0.076, 0.010), (0.046, 0.0, 0.030), "body"),
        Shape("cylinder", (0.029, 0.044), (0.074, 0.0, 0.056), "motor"),
    ),
    (  # 5: the motor of joint 6 lies along x
        Shape("cylinder", (0.022, 0.050), (0.0, 0.0, 0.0), "body"),
        Shape("cylinder", (0.028, 0.036), (0.016, 0.0, 0.0), "motor", ALONG_X),
    ),
    (  # 6: flange, gripper motor, finger rail, camera bracket
        Shape("cylinder", (0.029, 0.014), (0.010, 0.0, 0.0), "body", ALONG_X),
        Shape("box", (0.032, 0.062, 0.056), (0.032, 0.0, 0.0), "motor"),
        Shape("box", (0.020, 0.116, 0.060), (0.056, 0.0, 0.0), "body"),
        Shape("box", (0.006, 0.030, 0.050), (0.056, 0.0, 0.050), "body"),
    ),
)
"""Links 1 to 6."""

CAMERA = (
    Shape("box", (0.023, 0.042, 0.042), (-0.0135, 0.0, 0.0), "motor", collides=False),
    Shape("box", (0.002, 0.034, 0.016), (-0.001, 0.0, 0.0), "lens", collides=False),
)


def finger(sign: float) -> tuple[Shape, ...]:
    """A finger on the +y (``sign`` 1) or -y (-1) side; at zero the pad's inner face is the plane y = 0."""
    struts = tuple(
        Shape(
            "box", (0.066, 0.006, 0.010), (0.107, sign * 0.0068, side * 0.0125), "finger", (0.0, side * FINGER_TAPER, 0)
        )
        for side in (1.0, -1.0)
    )
    return (
        Shape("box", (0.012, 0.026, 0.052), (0.0735, sign * 0.0145, 0.0), "finger"),
        *struts,
        Shape("box", (0.0205, 0.004, 0.018), (0.1344, sign * 0.002, 0.0), "pad"),
    )
