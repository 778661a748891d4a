"""The rig as a tree of links and joints: the one description that URDF, MJCF and tf are made from."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vag_policy.robots import yam, yam_shapes
from vag_policy.robots.yam_rig import Camera, RigGeometry
from vag_policy.robots.yam_shapes import Shape

Vector = tuple[float, float, float]

OPTICAL_RPY: Vector = (-math.pi / 2, 0.0, -math.pi / 2)
"""From a camera link (x forward) to its optical frame (z forward, x right, y down), REP-105."""


@dataclass(frozen=True)
class Limit:
    """Positions in rad or metres, ``effort`` in Nm or N, ``velocity`` in rad/s or m/s."""

    lower: float
    upper: float
    effort: float
    velocity: float


@dataclass(frozen=True)
class Drive:
    """What a simulated joint needs beyond its limits: PD gains, ``armature``, ``friction`` (SI units)."""

    kp: float
    kd: float
    armature: float
    friction: float


@dataclass(frozen=True)
class Link:
    """A rigid body, or a bare frame where ``inertial`` is None."""

    name: str
    inertial: yam.Inertial | None = None
    shapes: tuple[Shape, ...] = ()


@dataclass(frozen=True)
class Joint:
    """How ``child`` hangs on ``parent``: ``kind`` fixed, revolute or prismatic; ``mimic`` the joint it follows 1:1."""

    name: str
    kind: str
    parent: str
    child: str
    xyz: Vector = (0.0, 0.0, 0.0)
    rpy: Vector = (0.0, 0.0, 0.0)
    axis: Vector = (1.0, 0.0, 0.0)
    limit: Limit | None = None
    drive: Drive | None = None
    mimic: str = ""

    def transform(self, position: float = 0.0) -> NDArray[np.float64]:
        """(4, 4) pose of the child in the parent's frame at ``position`` (rad or metres)."""
        origin = yam.transform(self.xyz, rotation_from_rpy(self.rpy))
        if self.kind == "revolute":
            return origin @ yam.transform((0, 0, 0), yam.axis_angle(self.axis, position))
        if self.kind == "prismatic":
            return origin @ yam.transform(np.multiply(self.axis, position))
        return origin


@dataclass(frozen=True)
class Tree:
    """A robot: ``links[0]`` is the root, and joints stand before the joints of their children."""

    name: str
    links: tuple[Link, ...]
    joints: tuple[Joint, ...]

    def poses(self, positions: Mapping[str, float]) -> dict[str, NDArray[np.float64]]:
        """(4, 4) pose of every link in the root frame; joints that are not named stand at zero."""
        poses = {self.links[0].name: np.eye(4)}
        for joint in self.joints:
            position = positions.get(joint.mimic or joint.name, 0.0)
            poses[joint.child] = poses[joint.parent] @ joint.transform(position)
        return poses


def rotation_from_rpy(rpy: Vector) -> NDArray[np.float64]:
    """(3, 3) rotation of URDF's roll, pitch, yaw about fixed x, y, z."""
    roll, pitch, yaw = rpy
    return yam.axis_angle((0, 0, 1), yaw) @ yam.axis_angle((0, 1, 0), pitch) @ yam.axis_angle((1, 0, 0), roll)


def quaternion_from_rotation(rotation: NDArray[np.float64]) -> NDArray[np.float64]:
    """(4,) unit quaternion w x y z, w >= 0, of a (3, 3) rotation."""
    # The largest eigenvector of this symmetric matrix is the quaternion: no branches, no loss of precision near pi.
    (a, b, c), (d, e, f), (g, h, i) = rotation
    matrix = np.array(
        [
            [a + e + i, h - f, c - g, d - b],
            [h - f, a - e - i, b + d, c + g],
            [c - g, b + d, e - a - i, f + h],
            [d - b, c + g, f + h, i - a - e],
        ]
    )
    quaternion = np.linalg.eigh(matrix)[1][:, -1]
    return quaternion if quaternion[0] >= 0 else -quaternion


def rig_tree(rig: RigGeometry) -> Tree:
    """Both arms, their grippers and all cameras under one ``world`` frame."""
    links, joints = [Link("world")], []
    for arm in yam.ARMS:
        arm_links, arm_joints = _arm(arm, rig)
        links += arm_links
        joints += arm_joints
    for camera in rig.cameras:
        camera_links, camera_joints = _camera(camera)
        links += camera_links
        joints += camera_joints
    return Tree("yam_bimanual", tuple(links), tuple(joints))


def _arm(arm: str, rig: RigGeometry) -> tuple[list[Link], list[Joint]]:
    base = f"{arm}_base_link"
    links = [Link(base, yam.BASE_INERTIAL, yam_shapes.BASE)]
    joints = [Joint(f"{arm}_base_joint", "fixed", "world", base, rig.base_xyz(arm))]
    parent = base
    table = zip(yam.arm_joint_names(arm), yam.ARM_JOINTS, yam.LINK_INERTIALS, yam_shapes.LINKS, strict=True)
    for number, (name, joint, inertial, shapes) in enumerate(table, start=1):
        link, motor = f"{arm}_link{number}", joint.motor
        links.append(Link(link, inertial, shapes))
        limit = Limit(joint.lower, joint.upper, motor.peak, motor.velocity)
        drive = Drive(joint.sim_kp, joint.kd, motor.armature, motor.friction)
        joints.append(Joint(name, "revolute", parent, link, joint.origin, axis=joint.axis, limit=limit, drive=drive))
        parent = link
    leader = yam.gripper_joint_name(arm)
    limit = Limit(0.0, yam.STROKE, yam.FINGER_FORCE, yam.FINGER_VELOCITY)
    drive = Drive(yam.FINGER_KP, yam.FINGER_KD, yam.FINGER_ARMATURE, yam.FINGER_FRICTION)
    for finger in yam.FINGERS:
        link, follows = f"{arm}_{finger.side}_finger_link", finger is not yam.FINGERS[0]
        links.append(Link(link, finger.inertial, yam_shapes.finger(finger.axis[1])))
        joints.append(
            Joint(
                f"{leader}_mimic" if follows else leader,
                "prismatic",
                parent,
                link,
                axis=finger.axis,
                limit=limit,
                drive=drive,
                mimic=leader if follows else "",
            )
        )
    links.append(Link(f"{arm}_tcp"))
    joints.append(Joint(f"{arm}_tcp_joint", "fixed", parent, f"{arm}_tcp", (yam.TCP_OFFSET, 0.0, 0.0)))
    return links, joints


def _camera(camera: Camera) -> tuple[list[Link], list[Joint]]:
    mount = Joint(
        f"{camera.name}_camera_joint", "fixed", camera.parent, camera.link, camera.xyz, (0.0, camera.pitch, 0.0)
    )
    optical = Joint(f"{camera.name}_camera_optical_joint", "fixed", camera.link, camera.optical_frame, rpy=OPTICAL_RPY)
    return [Link(camera.link, shapes=yam_shapes.CAMERA), Link(camera.optical_frame)], [mount, optical]
