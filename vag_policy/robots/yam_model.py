"""Writes the rig as URDF (and xacro) and as MJCF, all from the one tree in ``yam_parts``.

``python -m vag_policy.robots.yam_model --urdf --spacing 0.61`` prints a model; ``--out FILE`` writes it.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from xml.etree.ElementTree import Element, SubElement, fromstring, indent, tostring

import numpy as np

from vag_policy.robots.yam import ARMS
from vag_policy.robots.yam_parts import Joint, Link, Tree, quaternion_from_rotation, rig_tree, rotation_from_rpy
from vag_policy.robots.yam_rig import BASE_SPACINGS, RigGeometry
from vag_policy.robots.yam_shapes import COLOURS, Shape

COLLISION_BITS = {"left_": (2, 1 | 4), "right_": (4, 1 | 2)}
"""MuJoCo contype and conaffinity by name prefix: an arm meets the world (1, 1) and the other arm, never itself."""


def urdf(rig: RigGeometry) -> str:
    """The rig as a URDF document."""
    tree = rig_tree(rig)
    robot = Element("robot", name=tree.name)
    for name, rgb in COLOURS.items():
        SubElement(SubElement(robot, "material", name=name), "color", rgba=numbers((*rgb, 1.0)))
    for link in tree.links:
        _urdf_link(robot, link)
    for joint in tree.joints:
        _urdf_joint(robot, joint)
    return _text(robot)


def xacro(rig: RigGeometry) -> str:
    """The URDF as a xacro document whose argument ``spacing`` (default: ``rig``'s) sets the bases' distance."""
    robot = fromstring(urdf(rig))
    robot.set("xmlns:xacro", "http://www.ros.org/wiki/xacro")
    for arm, sign in zip(ARMS, ("", "-"), strict=True):
        origin = robot.find(f"joint[@name='{arm}_base_joint']/origin")
        assert origin is not None
        origin.set("xyz", f"0 ${{{sign}spacing / 2}} 0")
    robot.insert(0, Element("xacro:arg", name="spacing", default=_number(rig.spacing)))
    robot.insert(1, Element("xacro:property", name="spacing", value="$(arg spacing)"))
    return _text(robot)


def _urdf_link(robot: Element, link: Link) -> None:
    element = SubElement(robot, "link", name=link.name)
    for shape in link.shapes:
        for part in _without_capsules(shape):
            for tag in ("visual", "collision") if part.collides else ("visual",):
                body = SubElement(element, tag)
                SubElement(body, "origin", xyz=numbers(part.xyz), rpy=numbers(part.rpy))
                _urdf_geometry(SubElement(body, "geometry"), part)
                if tag == "visual":
                    SubElement(body, "material", name=part.colour)
    if link.inertial is None:
        return
    inertial, body = link.inertial, SubElement(element, "inertial")
    SubElement(body, "origin", xyz=numbers(inertial.com), rpy="0 0 0")
    SubElement(body, "mass", value=_number(inertial.mass))
    entries = {"ixx": inertial.ixx, "ixy": 0.0, "ixz": inertial.ixz, "iyy": inertial.iyy, "iyz": 0.0}
    SubElement(body, "inertia", {key: _number(value) for key, value in {**entries, "izz": inertial.izz}.items()})


def _without_capsules(shape: Shape) -> tuple[Shape, ...]:
    """URDF has no capsule: a cylinder and two spheres."""
    if shape.kind != "capsule":
        return (shape,)
    radius, length = shape.size
    half = rotation_from_rpy(shape.rpy) @ (0.0, 0.0, length / 2)
    ends = [tuple(np.add(shape.xyz, sign * half)) for sign in (1.0, -1.0)]
    spheres = (Shape("sphere", (radius,), end, shape.colour, collides=shape.collides) for end in ends)
    return Shape("cylinder", shape.size, shape.xyz, shape.colour, shape.rpy, shape.collides), *spheres


def _urdf_geometry(geometry: Element, shape: Shape) -> None:
    if shape.kind == "box":
        SubElement(geometry, "box", size=numbers(shape.size))
    elif shape.kind == "sphere":
        SubElement(geometry, "sphere", radius=_number(shape.size[0]))
    else:
        SubElement(geometry, "cylinder", radius=_number(shape.size[0]), length=_number(shape.size[1]))


def _urdf_joint(robot: Element, joint: Joint) -> None:
    element = SubElement(robot, "joint", name=joint.name, type=joint.kind)
    SubElement(element, "parent", link=joint.parent)
    SubElement(element, "child", link=joint.child)
    SubElement(element, "origin", xyz=numbers(joint.xyz), rpy=numbers(joint.rpy))
    if joint.limit is None or joint.drive is None:
        return
    SubElement(element, "axis", xyz=numbers(joint.axis))
    limit = joint.limit
    bounds = {"lower": limit.lower, "upper": limit.upper, "effort": limit.effort, "velocity": limit.velocity}
    SubElement(element, "limit", {key: _number(value) for key, value in bounds.items()})
    SubElement(element, "dynamics", damping="0", friction=_number(joint.drive.friction))
    if joint.mimic:
        SubElement(element, "mimic", joint=joint.mimic, multiplier="1", offset="0")


def mjcf_element(rig: RigGeometry) -> Element:
    """The rig as an MJCF element, for a world to be built around it.

    Actuators stand in ``JOINT_NAMES`` order and take rad, and metres for a gripper. Links are gravity-compensated by
    their own drives, so that gravity and control together stay within the motors' torque.
    """
    tree = rig_tree(rig)
    root = Element("mujoco", model=tree.name)
    SubElement(root, "compiler", angle="radian", autolimits="true", inertiafromgeom="false")
    SubElement(root, "option", integrator="implicitfast")
    assets = SubElement(root, "asset")
    for name, rgb in COLOURS.items():
        add_material(assets, name, rgb)
    _mjcf_bodies(SubElement(root, "worldbody"), tree, rig)
    _mjcf_drives(root, tree)
    return root


def mjcf(rig: RigGeometry) -> str:
    """The rig alone as an MJCF document."""
    return _text(mjcf_element(rig))


def _mjcf_bodies(world: Element, tree: Tree, rig: RigGeometry) -> None:
    cameras = {camera.optical_frame: camera for camera in rig.cameras}
    links, bodies = {link.name: link for link in tree.links}, {tree.links[0].name: world}
    for joint in tree.joints:
        link = links[joint.child]
        body = SubElement(bodies[joint.parent], "body", name=link.name, pos=numbers(joint.xyz), quat=_quat(joint.rpy))
        bodies[link.name] = body
        if joint.drive is not None:
            body.set("gravcomp", "1")
            _mjcf_joint(body, joint)
        if link.inertial is not None:
            inertial = link.inertial
            full = (inertial.ixx, inertial.iyy, inertial.izz, 0.0, inertial.ixz, 0.0)
            SubElement(
                body, "inertial", mass=_number(inertial.mass), pos=numbers(inertial.com), fullinertia=numbers(full)
            )
        bits = next((bits for prefix, bits in COLLISION_BITS.items() if link.name.startswith(prefix)), (1, 1))
        for shape in link.shapes:
            geom = add_geom(body, shape, bits)
            if shape.colour == "pad":  # soft rubber: grips without slip, resists twisting
                geom.attrib.update(
                    name=f"{link.name}_pad", condim="4", friction="1.5 0.02 0.0001", priority="1", solref="0.01 1"
                )
        if link.name in cameras:  # MuJoCo looks along -z with y up: half a turn about x from the optical frame
            camera = cameras[link.name]
            fovy = _number(float(np.degrees(camera.fovy)))
            SubElement(body, "camera", name=camera.name, quat="0 1 0 0", fovy=fovy)


def _mjcf_joint(body: Element, joint: Joint) -> None:
    limit, drive = joint.limit, joint.drive
    assert limit is not None
    assert drive is not None
    SubElement(
        body,
        "joint",
        name=joint.name,
        type="hinge" if joint.kind == "revolute" else "slide",
        axis=numbers(joint.axis),
        range=numbers((limit.lower, limit.upper)),
        armature=_number(drive.armature),
        frictionloss=_number(drive.friction),
        actuatorfrcrange=numbers((-limit.effort, limit.effort)),
        actuatorgravcomp="true",
    )


def add_material(assets: Element, name: str, rgb: Sequence[float]) -> None:
    """Add a matte material to MJCF ``assets``; RGB 0..1."""
    SubElement(assets, "material", name=name, rgba=numbers((*rgb, 1.0)), specular="0.2", shininess="0.2")


def add_geom(body: Element, shape: Shape, bits: tuple[int, int] = (1, 1)) -> Element:
    """Add a massless geom to an MJCF ``body``; ``bits`` are contype and conaffinity."""
    contype, conaffinity = bits if shape.collides else (0, 0)
    if shape.kind == "box":
        size = tuple(edge / 2 for edge in shape.size)
    else:
        size = (shape.size[0], shape.size[1] / 2)
    return SubElement(
        body,
        "geom",
        type=shape.kind,
        size=numbers(size),
        pos=numbers(shape.xyz),
        quat=_quat(shape.rpy),
        mass="0",
        material=shape.colour,
        contype=str(contype),
        conaffinity=str(conaffinity),
    )


def _mjcf_drives(root: Element, tree: Tree) -> None:
    equality, actuator = SubElement(root, "equality"), SubElement(root, "actuator")
    for joint in tree.joints:
        if joint.mimic:
            SubElement(equality, "joint", joint1=joint.name, joint2=joint.mimic, polycoef="0 1 0 0 0", solref="0.005 1")
        elif joint.drive is not None and joint.limit is not None:
            SubElement(
                actuator,
                "position",
                name=joint.name,
                joint=joint.name,
                kp=_number(joint.drive.kp),
                kv=_number(joint.drive.kd),
                ctrlrange=numbers((joint.limit.lower, joint.limit.upper)),
            )


def _quat(rpy: tuple[float, float, float]) -> str:
    return numbers(quaternion_from_rotation(rotation_from_rpy(rpy)))


def _number(value: float) -> str:
    return f"{value + 0.0:.12g}"


def numbers(values: Sequence[float] | np.ndarray) -> str:
    """Numbers as an XML attribute; rounded first, so that a last bit or a minus zero does not show in the file."""
    return " ".join(_number(round(float(value), 12)) for value in values)


def _text(root: Element) -> str:
    indent(root)
    header = "<!-- Written by python -m vag_policy.robots.yam_model: edit the tables there, not this file. -->"
    return f'<?xml version="1.0"?>\n{header}\n{tostring(root, encoding="unicode")}\n'


def main(arguments: Sequence[str] | None = None) -> None:
    """Print or write one of the models."""
    parser = argparse.ArgumentParser(description="Write the bimanual YAM rig as URDF, xacro or MJCF.")
    kind = parser.add_mutually_exclusive_group(required=True)
    kind.add_argument("--urdf", dest="write", action="store_const", const=urdf)
    kind.add_argument("--mjcf", dest="write", action="store_const", const=mjcf)
    kind.add_argument("--xacro", dest="write", action="store_const", const=xacro)
    parser.add_argument("--spacing", type=float, default=BASE_SPACINGS[0], help="metres between the bases")
    parser.add_argument("--out", type=Path, help="file to write (default: standard output)")
    options = parser.parse_args(arguments)
    try:
        document = options.write(RigGeometry(spacing=options.spacing))
    except ValueError as error:
        parser.error(str(error))
    if options.out is None:
        print(document, end="")
    else:
        options.out.write_text(document)


if __name__ == "__main__":
    main()
