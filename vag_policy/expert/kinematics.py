"""Joint positions for a gripper that points down, by mink's differential inverse kinematics."""

from __future__ import annotations

import math

import mink
import mujoco
import numpy as np
from numpy.typing import ArrayLike, NDArray

from vag_policy.robots import yam
from vag_policy.robots.yam_model import mjcf
from vag_policy.robots.yam_rig import RigGeometry

_SOLVER = "daqp"
_STEP_S = 0.1  # of the differential solver; with no velocity limit it only scales
_STEPS = 60
_POSITION_TOLERANCE, _ROTATION_TOLERANCE = 2e-4, 2e-3
_READY = (1.5, 1.4, -1.4, 0.0, 0.0)
"""Joints 2 to 6 near every pose with the gripper pointing down over the table."""

_DOWN = yam.axis_angle((0, 1, 0), math.pi / 2)


class UnreachableError(ValueError):
    """No joint positions bring the gripper there."""


class Kinematics:
    """Inverse kinematics of both arms of a rig, gripper pointing down."""

    def __init__(self, rig: RigGeometry) -> None:
        self._rig = rig
        model = mujoco.MjModel.from_xml_string(mjcf(rig))
        self._configuration = mink.Configuration(model)
        self._limits = [mink.ConfigurationLimit(model)]
        self._addresses = {
            arm: np.array([model.joint(name).qposadr[0] for name in yam.arm_joint_names(arm)]) for arm in yam.ARMS
        }
        self._tasks = {
            arm: mink.FrameTask(f"{arm}_tcp", "body", position_cost=1.0, orientation_cost=0.3, lm_damping=1e-4)
            for arm in yam.ARMS
        }
        # What the task leaves free, the other arm and the fingers, stays where it is.
        self._still = mink.PostureTask(model, cost=1e-4)

    def hand_yaw(self, arm: str, x: float, y: float) -> float:
        """The yaw (rad) of a gripper pointing down at (x, y) metres in the world frame with joint 6 at zero."""
        return math.atan2(y - self._rig.base_xyz(arm)[1], x)

    def solve(self, arm: str, xyz: ArrayLike, yaw: float) -> NDArray[np.float64]:
        """(6,) joints that put ``arm``'s fingertips at ``xyz`` (world frame, metres), pointing down.

        Args:
            arm: ``left`` or ``right``.
            xyz: the tool centre point, metres.
            yaw: of the hand about z, rad; the fingers close along its y axis.

        Raises:
            UnreachableError: the pose is outside the joints' limits or the arm's reach.
        """
        target = np.asarray(xyz, np.float64)
        address, task, configuration = self._addresses[arm], self._tasks[arm], self._configuration
        joints = np.zeros(configuration.model.nq)
        joints[address] = (self.hand_yaw(arm, target[0], target[1]), *_READY)
        configuration.update(joints)
        rotation = mink.SO3.from_matrix(yam.axis_angle((0, 0, 1), yaw) @ _DOWN)
        task.set_target(mink.SE3.from_rotation_and_translation(rotation, target))
        self._still.set_target_from_configuration(configuration)
        for _ in range(_STEPS):
            error = task.compute_error(configuration)
            if np.linalg.norm(error[:3]) < _POSITION_TOLERANCE and np.linalg.norm(error[3:]) < _ROTATION_TOLERANCE:
                return configuration.q[address].copy()
            velocity = mink.solve_ik(
                configuration, [task, self._still], _STEP_S, _SOLVER, damping=1e-6, limits=self._limits
            )
            configuration.integrate_inplace(velocity, _STEP_S)
        x, y, z = (round(float(value), 3) for value in target)
        raise UnreachableError(f"the {arm} arm cannot point its gripper down at ({x}, {y}, {z}) m, yaw {yaw:.2f} rad")
