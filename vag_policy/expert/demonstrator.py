"""Decides, on privileged state, where the working arm goes next; smooth open-loop courses between decisions.

Between decisions the arm follows a ``Course``: to the grasp, then (if something is held) to the container, then home.
A missed or lost object leads back to the grasp, so that mistakes, made on purpose or not, come with their recovery.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vag_policy.expert.course import Course, Stroke
from vag_policy.expert.kinematics import Kinematics
from vag_policy.expert.noise import Deviation
from vag_policy.expert.scene_view import arm_slot, grasp_yaw, item_pose, working_arm
from vag_policy.expert.style import Style
from vag_policy.robots import yam
from vag_policy.robots.yam_sim import Sim

PHASES = ("approach", "descend", "grasp", "lift", "carry", "place", "retreat")

HOVER = 0.115
"""Fingertips above the table where the arm travels, metres: a held object passes over everything."""
_LOW_HOVER = 0.095
_BELOW_MIDDLE, _LOWEST = 0.006, 0.012
_FLOOR, _DROP_HEIGHT = 0.009, 0.008
_OPEN, _RELEASED, _CLOSED = 0.9, 0.72, 0.0
_HELD, _HELD_DISTANCE = 0.25, 0.05
_TRIES = 4
_HOLD_S = 0.3


class GiveUpError(ValueError):
    """The demonstration cannot succeed any more."""


@dataclass(frozen=True, eq=False)
class Command:
    """What the working arm is told at one instant.

    Attributes:
        label: (7,) what the expert wants, and what a policy should learn: rad, gripper 0 (closed) .. 1 (open).
        executed: (7,) the same with a deliberate mistake's deviation.
        phase: one of ``PHASES``.
    """

    label: NDArray[np.float64]
    executed: NDArray[np.float64]
    phase: str


class Demonstrator:
    """Performs the simulator's current task with one arm.

    Args:
        sim: the world; it is only looked at, never changed.
        kinematics: of the same rig.
        style: the manner.
        rng: for what the style leaves open.

    Raises:
        UnreachableError: the task's object or container is out of the arm's reach.
        GiveUpError: no arm reaches both, or the object lies so that it cannot be grasped.
    """

    def __init__(self, sim: Sim, kinematics: Kinematics, style: Style, rng: np.random.Generator) -> None:
        self._sim, self._kinematics, self._style, self._rng = sim, kinematics, style, rng
        self.task = sim.config.scene.find_task(sim.instruction)
        self.arm = working_arm(sim, self.task)
        self.slot = arm_slot(self.arm)
        self.tries = 0
        self.done = False
        self._mistake = style.mistake
        self._deviation: Deviation | None = None
        self._masked: list[tuple[float, float]] = []
        self._course = Course(sim.joint_positions()[self.slot], 0.0, style.pace)
        self._next: Callable[[float], None]
        self._grasp(0.0)

    def decide(self, time: float) -> None:
        """Look at the world and choose the next course, if the last one ends by ``time`` (seconds from the start).

        Raises:
            GiveUpError: the object cannot be had any more, or too many grasps failed.
        """
        if time >= self._course.end and not self.done:
            self._next(time)

    @property
    def ends(self) -> float:
        """When the present course ends (seconds from the start): then ``decide`` looks at the world again."""
        return self._course.end

    def command(self, time: float) -> Command:
        """What the arm is told at ``time`` by the present course."""
        label = self._course.at(time)
        executed = label.copy()
        if self._deviation is not None:
            executed[: yam.ARM_DOF] += self._deviation.at(time)
        return Command(label, executed, self._course.phase(time))

    def imitate(self, time: float) -> bool:
        """Whether what the expert wanted at ``time`` is worth learning: False where it errs on purpose."""
        return not any(start <= time < end for start, end in self._masked)

    # --- courses; each sets what comes after it

    def _grasp(self, time: float) -> None:
        """From wherever the arm is to a closed gripper around the object."""
        self.tries += 1
        if self.tries > _TRIES:
            raise GiveUpError(f"{_TRIES} grasps failed")
        course, (middle, rotation) = self._course, item_pose(self._sim, self.task.item)
        yaw = grasp_yaw(self.task.item, rotation, self._kinematics.hand_yaw(self.arm, middle[0], middle[1]))
        if yaw is None:
            raise GiveUpError(f"the {self.task.item.words} lies so that it cannot be grasped")
        target = np.array([middle[0], middle[1], max(middle[2] - _BELOW_MIDDLE, _LOWEST)])
        aside = np.append(target[:2] + self._rng.uniform(-0.012, 0.012, 2), HOVER if self.tries == 1 else _LOW_HOVER)
        opening_from = course.end
        if self._tip()[2] < _LOW_HOVER - 0.01:
            up = course.move("approach", self._straight_up(_LOW_HOVER), blend=False)
            opening_from += 0.3 * up.duration
        over = course.move("approach", self._solve(aside, yaw))
        course.grip("approach", _OPEN, start=opening_from)
        down = course.move("descend", self._solve(target, yaw), slow=0.9)
        if self._mistake.startswith("miss"):
            self._miss(target, yaw, over, down)
        course.grip("grasp", _CLOSED, wait=0.8)
        if self._deviation is not None:
            self._masked.append((down.start, course.end))
        self._next = self._after_grasp

    def _miss(self, target: NDArray[np.float64], yaw: float, over: Stroke, down: Stroke) -> None:
        """Make the fingers arrive elsewhere than the course says."""
        if self._mistake == "miss_high":
            wrong = target + (0.0, 0.0, self._rng.uniform(0.045, 0.06))
        else:  # across the closing direction, so that the fingers close beside the object
            far = self._rng.uniform(0.03, 0.05) * self._rng.choice((-1.0, 1.0))
            wrong = target + (far * math.cos(yaw), far * math.sin(yaw), 0.0)
        delta = self._solve(wrong, yaw) - self._solve(target, yaw)
        self._deviation = Deviation(delta, over.start + 0.5 * over.duration, down.end)
        self._mistake = "none"

    def _after_grasp(self, time: float) -> None:
        if self._deviation is not None:  # the mistake is made: go on from where the arm really was sent
            executed = self.command(time).executed
            self._course = Course(executed, time, self._style.pace)
            self._deviation = None
        if not self._holding():
            self._grasp(time)
        elif self._mistake == "drop":
            self._lose()
        else:
            self._deliver()

    def _lose(self) -> None:
        """Lift a little, then let go, as if it had slipped."""
        self._mistake = "none"
        course = self._course
        course.move("lift", self._straight_up(self._tip()[2] + 0.03), blend=False)
        slip = course.end
        course.grip("lift", 0.8)
        course.rest("lift", 0.15)
        self._masked.append((slip - 0.1, course.end))
        self._next = self._grasp

    def _deliver(self) -> None:
        """Lift, carry, put down, let go, leave."""
        course, (middle, _) = self._course, item_pose(self._sim, self.task.item)
        below = middle[2] - self._tip()[2]  # fingertips under the object's middle, as it was really grasped
        x, y = self._sim.object_poses()[self.task.container.name][:2]
        yaw = self._kinematics.hand_yaw(self.arm, x, y) + self._rng.uniform(-0.2, 0.2)
        height = _FLOOR + self.task.item.height / 2 - below + _DROP_HEIGHT
        above = self._solve((x, y, HOVER), yaw)
        course.move("lift", self._straight_up(HOVER), blend=False)
        course.move("carry", above)
        course.move("place", self._solve((x, y, height), yaw), slow=0.9)
        course.grip("place", _RELEASED, wait=0.85)
        up = course.move("retreat", above)
        course.move("retreat", yam.HOME[: yam.ARM_DOF])
        course.grip("retreat", 1.0, start=up.end, wait=0.0)
        course.rest("retreat", _HOLD_S)
        self._next = self._after_delivery

    def _after_delivery(self, time: float) -> None:
        if self._sim.success():
            self.done = True
        else:
            self._grasp(time)

    # --- geometry

    def _holding(self) -> bool:
        position = self._sim.joint_positions()[self.slot]
        middle, _ = item_pose(self._sim, self.task.item)
        near = np.linalg.norm(self._world(yam.forward_kinematics(position[: yam.ARM_DOF])) - middle) < _HELD_DISTANCE
        return bool(position[yam.ARM_DOF] > _HELD and near)

    def _tip(self) -> NDArray[np.float64]:
        """(3,) where the course's goal has the fingertips, world frame, metres."""
        return self._world(yam.forward_kinematics(self._course.goal[: yam.ARM_DOF]))

    def _world(self, pose: NDArray[np.float64]) -> NDArray[np.float64]:
        return pose[:3, 3] + self._sim.config.rig.base_xyz(self.arm)

    def _solve(self, xyz: NDArray[np.float64] | tuple[float, float, float], yaw: float) -> NDArray[np.float64]:
        return self._kinematics.solve(self.arm, xyz, yaw)

    def _straight_up(self, z: float) -> NDArray[np.float64]:
        """(6,) the course's goal, moved vertically to height ``z``, metres."""
        pose = yam.forward_kinematics(self._course.goal[: yam.ARM_DOF])
        x, y, _ = self._world(pose)
        return self._solve((x, y, z), math.atan2(pose[1, 2], pose[0, 2]))
