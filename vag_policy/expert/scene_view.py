"""What the expert reads off the simulated table."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from vag_policy.robots import yam
from vag_policy.robots.yam_items import Item
from vag_policy.robots.yam_scene import Task
from vag_policy.robots.yam_sim import Sim


def arm_slot(arm: str) -> slice:
    """Where ``arm``'s six joints and gripper stand in ``JOINT_NAMES``."""
    start = yam.JOINT_NAMES.index(yam.arm_joint_names(arm)[0])
    return slice(start, start + yam.ARM_DOF + 1)


def item_pose(sim: Sim, item: Item) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The middle (3,) of ``item``, metres, and its rotation (3, 3), in the world frame."""
    pose = sim.object_poses()[item.name]
    w, x, y, z = pose[3:]
    cross = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
    rotation = np.eye(3) + 2 * w * cross + 2 * cross @ cross
    return pose[:3] + rotation @ (0.0, 0.0, item.height / 2), rotation


def grasp_yaw(item: Item, rotation: NDArray[np.float64], natural: float) -> float | None:
    """The hand's yaw (rad) to grasp ``item`` from above, nearest to ``natural``; None: it lies so that it cannot be."""
    if item.shapes[0].kind == "cylinder":
        return natural if rotation[2, 2] > 0.9 else None
    flat = [axis for axis in rotation.T if abs(axis[2]) < 0.2]
    if len(flat) < 2:
        return None
    yaw, quarter = math.atan2(flat[0][1], flat[0][0]), math.pi / 2
    return natural + (yaw - natural + quarter / 2) % quarter - quarter / 2


def working_arm(sim: Sim, task: Task) -> str:
    """The arm nearer to the object, of those that reach both the object and the container.

    Raises:
        ValueError: no arm reaches both.
    """
    scene, rig, poses = sim.config.scene, sim.config.rig, sim.object_poses()
    able = set(yam.ARMS)
    for item in (task.item, task.container):
        able &= set(scene.arms_reaching(rig, *poses[item.name][:2]))
    if not able:
        raise ValueError(f"no arm reaches both the {task.item.words} and the {task.container.words}")
    x, y = poses[task.item.name][:2]
    return min(sorted(able), key=lambda arm: math.hypot(x, y - rig.base_xyz(arm)[1]))
