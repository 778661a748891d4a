"""A scripted pick and place on privileged state, to show that the simulated task can be done. Not a policy."""

from __future__ import annotations

import math

import numpy as np

from vag_policy.robots import yam
from vag_policy.robots.yam_sim import Sim

DOWN = yam.axis_angle((0, 1, 0), math.pi / 2)
CONTROL_STEPS = 15  # of 2 ms: about 30 Hz


def solve_ik(target: np.ndarray, start: np.ndarray) -> np.ndarray:
    """Damped least squares on the tool centre point: (4, 4) target in the base frame, (6,) start -> (6,) joints."""
    q = np.array(start, np.float64)
    lower, upper = yam.LOWER[: yam.ARM_DOF], yam.UPPER[: yam.ARM_DOF]
    for _ in range(200):
        pose = yam.forward_kinematics(q)
        turn = sum(np.cross(pose[:3, axis], target[:3, axis]) for axis in range(3)) / 2
        error = np.concatenate([target[:3, 3] - pose[:3, 3], turn])
        if np.linalg.norm(error) < 1e-6:
            return q
        matrix = yam.jacobian(q)
        step = matrix.T @ np.linalg.solve(matrix @ matrix.T + 1e-5 * np.eye(6), error)
        q = np.clip(q + np.clip(step, -0.3, 0.3), lower, upper)
    raise AssertionError(f"no joint solution for {target[:3, 3]}")


class Script:
    """Moves one arm of ``sim`` through gripper-down poses."""

    def __init__(self, sim: Sim, arm: str) -> None:
        self.sim, self.arm = sim, arm
        self.base = np.array(sim.config.rig.base_xyz(arm))
        self.slot = slice(0, 7) if arm == "left" else slice(7, 14)
        self.targets = sim.joint_positions()

    def hold(self, seconds: float) -> None:
        """Let the world run."""
        for _ in range(round(seconds / 0.03)):
            self.sim.step(self.targets, CONTROL_STEPS)

    def joints_for(self, xyz: np.ndarray, yaw: float) -> np.ndarray:
        local = np.asarray(xyz) - self.base
        target = yam.transform(local, yam.axis_angle((0, 0, 1), yaw) @ DOWN)
        guess = np.array([math.atan2(local[1], local[0]), 1.5, 1.4, -1.4, 0.0, 0.0])
        return solve_ik(target, guess)

    def move(self, xyz: np.ndarray, yaw: float, seconds: float) -> None:
        """Drive the fingertips to ``xyz`` in the world frame, in joint space."""
        start, goal = self.targets[self.slot].copy(), self.joints_for(xyz, yaw)
        ticks = round(seconds / 0.03)
        for tick in range(1, ticks + 1):
            blend = tick / ticks
            self.targets[self.slot][:6] = start[:6] + (goal - start[:6]) * blend
            self.sim.step(self.targets, CONTROL_STEPS)

    def grip(self, opening: float, seconds: float = 0.6) -> None:
        """Command the gripper and wait."""
        self.targets[self.slot][6] = opening
        self.hold(seconds)


def pick_and_place(sim: Sim, arm: str) -> float:
    """Do the scene's task with ``arm``; return how high the object was lifted, metres."""
    task = sim.config.scene.find_task(sim.instruction)
    poses = sim.object_poses()
    item, container = poses[task.item.name], poses[task.container.name]
    yaw = 2 * math.atan2(item[6], item[3])
    grasp_height = task.item.height / 2 - 0.006
    script = Script(sim, arm)
    script.move((*item[:2], 0.14), yaw, 1.5)
    script.move((*item[:2], grasp_height), yaw, 0.9)
    script.grip(0.0)
    script.move((*item[:2], 0.14), yaw, 0.9)
    lifted = float(sim.object_poses()[task.item.name][2])
    script.move((*container[:2], 0.14), 0.0, 1.5)
    script.move((*container[:2], 0.03 + grasp_height), 0.0, 0.9)
    script.grip(0.8)
    script.move((*container[:2], 0.14), 0.0, 0.9)
    return lifted
