"""The YAM arm and the two-armed rig as numbers: joints, links, motors, poses, the gripper converter, kinematics.

Every number a URDF, a simulator or a limit check needs comes from the tables here. Frames are base-aligned: at the
encoder zero every frame has x forward, y left, z up (REP-103). The arm's base frame sits on the table's surface.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

ARMS = ("left", "right")
ARM_DOF = 6
STROKE = 0.0475
"""Travel of one finger, metres: 0 closed, STROKE open. The opening between the fingers is twice that."""

TCP_OFFSET = 0.14465
"""From the flange (link 6) along its x axis to the fingertips, metres."""


@dataclass(frozen=True)
class Motor:
    """A joint motor: torques in Nm, velocity in rad/s, ``armature`` in kg m2, ``friction`` in Nm."""

    name: str
    rated: float
    peak: float
    velocity: float
    armature: float
    friction: float = 0.1


DM4340 = Motor("DM4340", rated=9.0, peak=27.0, velocity=10.0, armature=0.032)
DM4310 = Motor("DM4310", rated=3.0, peak=7.0, velocity=30.0, armature=0.0018)


@dataclass(frozen=True)
class ArmJoint:
    """A revolute joint: ``origin`` (metres) from its parent's frame, ``axis``, limits in rad, PD gains.

    ``kp`` (Nm/rad) and ``kd`` (Nm s/rad) are the motor drive's; ``sim_kp`` is what a simulated drive needs.
    """

    origin: tuple[float, float, float]
    axis: tuple[float, float, float]
    lower: float
    upper: float
    motor: Motor
    kp: float
    kd: float
    sim_kp: float


ARM_JOINTS = (
    ArmJoint((0.0, 0.0, 0.068), (0, 0, 1), -2.61799, 3.14159, DM4340, 80.0, 5.0, 80.0),
    ArmJoint((0.02, 0.0, 0.0455), (0, 1, 0), 0.0, 3.66519, DM4340, 80.0, 5.0, 80.0),
    ArmJoint((-0.264, 0.0, 0.0), (0, -1, 0), 0.0, 3.14159, DM4340, 80.0, 5.0, 80.0),
    ArmJoint((0.245, 0.0, 0.06), (0, -1, 0), -1.69297, 1.5708, DM4310, 10.0, 1.5, 40.0),
    ArmJoint((0.074, 0.0, 0.0), (0, 0, -1), -1.5708, 1.5708, DM4310, 10.0, 1.5, 10.0),
    ArmJoint((0.0356, 0.0, 0.0), (1, 0, 0), -2.0944, 2.0944, DM4310, 10.0, 1.5, 10.0),
)


@dataclass(frozen=True)
class Inertial:
    """Mass (kg), centre of mass (metres) and inertia about it (kg m2), in the link's frame."""

    mass: float
    com: tuple[float, float, float]
    ixx: float
    iyy: float
    izz: float
    ixz: float = 0.0


BASE_INERTIAL = Inertial(0.8737, (0.0, 0.0, 0.0248), 16.94e-4, 6.78e-4, 15.71e-4)
LINK_INERTIALS = (
    Inertial(0.1012, (0.0073, 0.0017, 0.0234), 1.26e-4, 0.48e-4, 1.15e-4),
    Inertial(1.4691, (-0.1292, 0.0008, 0.0001), 8.0e-4, 146e-4, 146.7e-4),
    Inertial(0.9826, (0.1351, -0.0009, 0.0556), 9.38e-4, 76.3e-4, 75.9e-4, -6.4e-4),
    Inertial(0.4622, (0.0576, 0.0012, 0.0551), 6.05e-4, 7.64e-4, 4.74e-4, -2.4e-4),
    Inertial(0.4033, (0.0008, 0.0, 0.0029), 1.81e-4, 2.20e-4, 1.84e-4),
    Inertial(0.5532, (0.0293, 0.0, 0.0), 3.69e-4, 3.25e-4, 4.10e-4),
)
"""Links 1 to 6; the last includes the gripper's housing."""


@dataclass(frozen=True)
class Finger:
    """One of the gripper's two fingers, sliding along ``axis`` of the flange frame."""

    side: str
    axis: tuple[float, float, float]
    inertial: Inertial


FINGERS = (
    Finger("left", (0, 1, 0), Inertial(0.071, (0.0795, -0.0019, 0.0094), 0.5e-4, 0.5e-4, 0.5e-4)),
    Finger("right", (0, -1, 0), Inertial(0.071, (0.0795, 0.0019, -0.0094), 0.5e-4, 0.5e-4, 0.5e-4)),
)
FINGER_FORCE = 100.0
"""Newtons at the gripper's drive; two fingers share it."""
FINGER_KP = 2000.0
FINGER_KD = 150.0
FINGER_ARMATURE, FINGER_FRICTION = 0.1, 0.1
"""Reflected mass of the drive (kg) and friction (N) of one finger."""
FINGER_VELOCITY = STROKE
"""Metres a second: the full stroke takes one second at least, as on the real gripper."""


def arm_joint_names(arm: str) -> tuple[str, ...]:
    """``<arm>_joint1`` to ``<arm>_joint6``.

    Raises:
        ValueError: no such arm.
    """
    if arm not in ARMS:
        raise ValueError(f"no arm '{arm}'; the rig has: {', '.join(ARMS)}")
    return tuple(f"{arm}_joint{number}" for number in range(1, ARM_DOF + 1))


def gripper_joint_name(arm: str) -> str:
    """``<arm>_joint7``, the finger whose position is commanded and reported, in metres."""
    arm_joint_names(arm)
    return f"{arm}_joint{ARM_DOF + 1}"


JOINT_NAMES = tuple(name for arm in ARMS for name in (*arm_joint_names(arm), gripper_joint_name(arm)))
"""The 14 joints in the order of states, actions and datasets: left 1..6, left gripper, right 1..6, right gripper."""

SIDEWAYS_JOINTS = ("joint1", "joint5", "joint6")
"""Joints of an arm that turn to a side: their signs change in the mirror, where left is right."""

GRIPPER_INDICES = tuple(index for index, name in enumerate(JOINT_NAMES) if name.endswith("joint7"))

_ARM_LOWER, _ARM_UPPER = [j.lower for j in ARM_JOINTS], [j.upper for j in ARM_JOINTS]
LOWER = np.array([*_ARM_LOWER, 0.0] * len(ARMS))
"""(14,) lower limits in ``JOINT_NAMES`` order; rad, grippers 0 (closed)."""
UPPER = np.array([*_ARM_UPPER, 1.0] * len(ARMS))
"""(14,) upper limits; rad, grippers 1 (open)."""

REST = np.array([0.0] * ARM_DOF + [1.0])
"""(7,) one arm at the encoder zero: folded, gripper open. The start and rest pose."""
HOME = np.array([0.0, 1.047, 1.047, 0.0, 0.0, 0.0, 1.0])
"""(7,) one arm's usual working pose, gripper level and open."""
POSES = {"rest": np.tile(REST, len(ARMS)), "home": np.tile(HOME, len(ARMS))}
"""Named poses of the whole rig, (14,) each."""
for _constant in (LOWER, UPPER, REST, HOME, *POSES.values()):
    _constant.setflags(write=False)

COMMAND_VELOCITY = 1.5
"""The fastest arm joint, rad/s, that rigs in use let a policy command; the motors could do far more."""


def command_bounds() -> tuple[dict[str, float], dict[str, float], dict[str, float]]:
    """Lower and upper position and highest speed of a published command, by joint name.

    In a driver's units: rad and rad/s, and metres and m/s of one finger for a gripper.
    """
    lower, upper = dict(zip(JOINT_NAMES, LOWER, strict=True)), dict(zip(JOINT_NAMES, UPPER, strict=True))
    velocity = dict.fromkeys(JOINT_NAMES, COMMAND_VELOCITY)
    for index in GRIPPER_INDICES:
        upper[JOINT_NAMES[index]], velocity[JOINT_NAMES[index]] = STROKE, FINGER_VELOCITY
    return {n: float(v) for n, v in lower.items()}, {n: float(v) for n, v in upper.items()}, velocity


def gripper_to_metres(opening: ArrayLike, stroke: float = STROKE) -> NDArray[np.float64]:
    """Finger position in metres for an ``opening`` of 0 (closed) .. 1 (open); clipped to the stroke."""
    return np.clip(np.asarray(opening, np.float64), 0.0, 1.0) * stroke


def gripper_from_metres(metres: ArrayLike, stroke: float = STROKE) -> NDArray[np.float64]:
    """Opening 0 (closed) .. 1 (open) for a finger position in ``metres``; clipped."""
    return np.clip(np.asarray(metres, np.float64) / stroke, 0.0, 1.0)


def axis_angle(axis: ArrayLike, angle: float) -> NDArray[np.float64]:
    """(3, 3) rotation by ``angle`` rad about the unit vector ``axis`` (Rodrigues)."""
    x, y, z = np.asarray(axis, np.float64)
    cross = np.array([[0.0, -z, y], [z, 0.0, -x], [-y, x, 0.0]])
    return np.eye(3) + math.sin(angle) * cross + (1.0 - math.cos(angle)) * cross @ cross


def transform(xyz: ArrayLike, rotation: ArrayLike | None = None) -> NDArray[np.float64]:
    """(4, 4) homogeneous transform from a translation and a (3, 3) rotation."""
    matrix = np.eye(4)
    matrix[:3, 3] = xyz
    if rotation is not None:
        matrix[:3, :3] = rotation
    return matrix


def link_poses(joints: ArrayLike) -> NDArray[np.float64]:
    """(6, 4, 4) poses of links 1 to 6 in the arm's base frame at ``joints`` (6,) rad.

    Raises:
        ValueError: not six finite joints.
    """
    q = np.asarray(joints, np.float64)
    if q.shape != (ARM_DOF,) or not np.isfinite(q).all():
        raise ValueError(f"an arm has {ARM_DOF} finite joint positions, got {q}")
    poses = np.empty((ARM_DOF, 4, 4))
    pose = np.eye(4)
    for index, joint in enumerate(ARM_JOINTS):
        pose = pose @ transform(joint.origin, axis_angle(joint.axis, q[index]))
        poses[index] = pose
    return poses


def forward_kinematics(joints: ArrayLike) -> NDArray[np.float64]:
    """(4, 4) pose of the tool centre point (fingertips, x along the fingers) in the arm's base frame."""
    return link_poses(joints)[-1] @ transform((TCP_OFFSET, 0.0, 0.0))


def jacobian(joints: ArrayLike) -> NDArray[np.float64]:
    """(6, 6) geometric Jacobian of the tool centre point: rows vx vy vz wx wy wz, in the base frame."""
    poses = link_poses(joints)
    tcp = poses[-1, :3, :3] @ (TCP_OFFSET, 0.0, 0.0) + poses[-1, :3, 3]
    axes = np.array([pose[:3, :3] @ joint.axis for pose, joint in zip(poses, ARM_JOINTS, strict=True)])
    return np.concatenate([np.cross(axes, tcp - poses[:, :3, 3]), axes], axis=1).T
