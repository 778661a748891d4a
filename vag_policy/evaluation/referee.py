"""What really happens in the simulator while a policy acts. No policy sees any of it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vag_policy.expert.scene_view import arm_slot, item_pose
from vag_policy.robots import yam
from vag_policy.robots.yam_items import Container, Item
from vag_policy.robots.yam_sim import Sim

PHASES = ("approach", "grasp", "carry", "place", "retreat")
"""The paper's phases, and what follows them."""
REASONS = ("never grasped", "wrong object", "dropped", "wrong place", "time out")
"""Why an episode failed: nothing was lifted; only another object was; the object lies outside of every container; it
lies in another container; it is still in the hand, or in its place but not let go and at rest."""

HOLD_NS = 300_000_000
"""For how long a task has to be done to count."""

_LIFTED = 0.02  # metres above where it stood
_NEAR_ITEM = 0.04  # fingertips to the object's middle, horizontally
_OFF_TABLE = 0.004
_LOW = 0.105  # fingertips above the table, just under the height at which the expert travels
_NEAR_CONTAINER = 0.035  # fingertips beyond the region that counts, horizontally


@dataclass(frozen=True)
class Verdict:
    """How an episode ended: ``reason`` is one of ``REASONS``, empty where it succeeded."""

    success: bool
    reason: str
    lifted: bool


class Referee:
    """Watches one episode; made when the scene has just been reset.

    Args:
        sim: the world; only looked at.
        hold_ns: for how long the task has to be done.
    """

    def __init__(self, sim: Sim, hold_ns: int = HOLD_NS) -> None:
        self._sim, self._hold_ns = sim, hold_ns
        scene = sim.config.scene
        self._task = scene.find_task(sim.instruction)
        self._objects = {task.item.name: task.item for task in scene.tasks}
        self._containers = {task.container.name: task.container for task in scene.tasks}
        self._start = {name: pose[2] for name, pose in sim.object_poses().items() if name in self._objects}
        self._lifted: set[str] = set()
        self._done_since_ns: int | None = None
        self.success = False

    def look(self, now_ns: int) -> bool:
        """Note the world as it is; True once the task has been done for long enough. Call it many times a second."""
        poses = self._sim.object_poses()
        self._lifted |= {name for name, z in self._start.items() if poses[name][2] > z + _LIFTED}
        if not self._sim.success():
            self._done_since_ns = None
        elif self._done_since_ns is None:
            self._done_since_ns = now_ns
        self.success = self._done_since_ns is not None and now_ns - self._done_since_ns >= self._hold_ns
        return self.success

    def phase(self) -> str:
        """What the policy is at, one of ``PHASES``, read from where the object and the nearer fingertips are."""
        item, container = self._task.item, self._task.container
        middle, goal = self._middle(item), self._middle(container)
        tip = min(self._tips(), key=lambda tip: float(np.linalg.norm(tip - middle)))
        beside = float(np.linalg.norm((tip - middle)[:2]))
        if self._in_hand(item):
            far = float(np.linalg.norm((tip - goal)[:2])) > max(container.inside) + _NEAR_CONTAINER
            return "carry" if far or tip[2] > _LOW else "place"
        if self._inside(item, container):
            return "retreat"
        return "grasp" if beside < _NEAR_ITEM and tip[2] < _LOW else "approach"

    def verdict(self) -> Verdict:
        """How it ended, now."""
        item = self._task.item
        lifted = item.name in self._lifted
        if self.success:
            return Verdict(True, "", lifted)
        return Verdict(False, self._reason(item, lifted), lifted)

    def _reason(self, item: Item, lifted: bool) -> str:
        if not lifted and not self._inside(item, self._task.container):
            return "wrong object" if self._lifted else "never grasped"
        if self._in_hand(item) or self._inside(item, self._task.container):
            return "time out"
        others = (c for c in self._containers.values() if c is not self._task.container)
        return "wrong place" if any(self._inside(item, other) for other in others) else "dropped"

    def _in_hand(self, item: Item) -> bool:
        arm, table = self._sim.in_contact(item.name)
        return arm and not table and self._middle(item)[2] > item.height / 2 + _OFF_TABLE

    def _inside(self, item: Item, container: Container) -> bool:
        middle, rotation = item_pose(self._sim, container)
        x, y, z = rotation.T @ (self._middle(item) - middle) + (0.0, 0.0, container.height / 2)
        return container.contains(float(x), float(y)) and 0.0 < z < container.height + item.height

    def _middle(self, item: Item) -> NDArray[np.float64]:
        return item_pose(self._sim, item)[0]

    def _tips(self) -> list[NDArray[np.float64]]:
        """(3,) of each arm, world frame, metres."""
        joints, rig = self._sim.joint_positions(), self._sim.config.rig
        poses = {arm: yam.forward_kinematics(joints[arm_slot(arm)][: yam.ARM_DOF]) for arm in yam.ARMS}
        return [pose[:3, 3] + rig.base_xyz(arm) for arm, pose in poses.items()]
