"""The simulated room: the rig's MJCF with a table, light, an outside camera and the scene's items around it."""

from __future__ import annotations

import math
from xml.etree.ElementTree import Element, SubElement, tostring

from vag_policy.robots.yam_items import SCENE_COLOURS, Item
from vag_policy.robots.yam_model import add_geom, add_material, mjcf_element, numbers
from vag_policy.robots.yam_rig import RigGeometry
from vag_policy.robots.yam_scene import SceneConfig
from vag_policy.robots.yam_shapes import Shape

TABLE = "table"
OVERVIEW = "overview"
"""The outside camera: for people, no policy sees it."""

_TABLE_X = (-0.20, 0.75)
_TABLE_MARGIN = 0.36
_TABLE_HEIGHT = 0.75
_WORLD_COLOURS = {
    "table_top": (0.74, 0.72, 0.68),
    "table_edge": (0.45, 0.42, 0.38),
    "floor": (0.40, 0.42, 0.45),
    "wall": (0.72, 0.76, 0.80),
}
_ROOM = 6.0
_MAX_IMAGE = (1280, 960)


def world_xml(rig: RigGeometry, scene: SceneConfig, timestep: float) -> str:
    """The whole world as an MJCF document; ``timestep`` in seconds."""
    root = mjcf_element(rig)
    option = root.find("option")
    assets, world = root.find("asset"), root.find("worldbody")
    assert option is not None
    assert assets is not None
    assert world is not None
    # Elliptic cones and a high impratio keep a held object from creeping out of the fingers.
    option.attrib.update(timestep=str(timestep), cone="elliptic", impratio="10")
    _visual(root)
    for name, rgb in {**SCENE_COLOURS, **_WORLD_COLOURS}.items():
        add_material(assets, name, rgb)
    _room(world, rig)
    for item in scene.items:
        _item(world, item)
    return tostring(root, encoding="unicode")


def _visual(root: Element) -> None:
    # Centre and extent are given, or MuJoCo would take the clipping planes from the floor's size.
    SubElement(root, "statistic", center="0.2 0 0.2", extent="1")
    visual = SubElement(root, "visual")
    width, height = _MAX_IMAGE
    SubElement(visual, "global", offwidth=str(width), offheight=str(height))
    SubElement(visual, "quality", offsamples="0", shadowsize="0", numslices="20", numstacks="10")
    SubElement(visual, "map", znear="0.008", zfar="12")
    SubElement(visual, "headlight", ambient="0.42 0.42 0.42", diffuse="0.28 0.28 0.28", specular="0 0 0")


def _room(world: Element, rig: RigGeometry) -> None:
    SubElement(
        world, "light", name="lamp", type="directional", pos="0 0 2", dir="0.45 0.35 -1", diffuse="0.5 0.5 0.48",
        specular="0.15 0.15 0.15", castshadow="false",
    )  # fmt: skip
    middle, length = sum(_TABLE_X) / 2, _TABLE_X[1] - _TABLE_X[0]
    width = rig.spacing + 2 * _TABLE_MARGIN
    table = SubElement(world, "body", name=TABLE)
    top, foot = (length, width, 0.03), _TABLE_HEIGHT - 0.03
    add_geom(table, Shape("box", top, (middle, 0.0, -0.015), "table_top"))
    for x in (_TABLE_X[0] + 0.05, _TABLE_X[1] - 0.05):
        for y in (width / 2 - 0.05, 0.05 - width / 2):
            leg = Shape("box", (0.05, 0.05, foot), (x, y, -0.03 - foot / 2), "table_edge", collides=False)
            add_geom(table, leg)
    add_geom(world, Shape("box", (_ROOM, _ROOM, 0.02), (0.0, 0.0, -_TABLE_HEIGHT - 0.01), "floor"))
    for x, y in ((1, 0), (-1, 0), (0, 1), (0, -1)):  # walls, since a skybox is slow to draw
        size = (0.02 if x else _ROOM, 0.02 if y else _ROOM, 3.0)
        place = (x * _ROOM / 2, y * _ROOM / 2, 1.5 - _TABLE_HEIGHT)
        add_geom(world, Shape("box", size, place, "wall", collides=False))
    eye, target = (1.45, -0.95, 0.95), (0.10, 0.0, 0.10)
    SubElement(world, "camera", name=OVERVIEW, pos=numbers(eye), xyaxes=numbers(_look(eye, target)), fovy="42")


def _look(eye: tuple[float, float, float], target: tuple[float, float, float]) -> tuple[float, ...]:
    """The x and y axes of a level camera at ``eye`` that looks at ``target``."""
    dx, dy, dz = (b - a for a, b in zip(eye, target, strict=True))
    flat, far = math.hypot(dx, dy), math.sqrt(dx * dx + dy * dy + dz * dz)
    right = (dy / flat, -dx / flat, 0.0)
    up = (-dx * dz / (flat * far), -dy * dz / (flat * far), flat / far)
    return (*right, *up)


def _item(world: Element, item: Item) -> None:
    body = SubElement(world, "body", name=item.name)
    SubElement(body, "freejoint", name=item.name)
    # A solid cylinder of the item's size is close enough for cubes, cans, bowls and trays alike.
    across = item.mass * (3 * item.footprint**2 + item.height**2) / 12
    about = item.mass * item.footprint**2 / 2
    SubElement(
        body, "inertial", mass=str(item.mass), pos=numbers((0, 0, item.height / 2)),
        diaginertia=numbers((across, across, about)),
    )  # fmt: skip
    for shape in item.shapes:
        geom = add_geom(body, shape)
        geom.attrib.update(condim="4", friction="1 0.01 0.0001")
