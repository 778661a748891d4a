"""One instant of a demonstration in a scene of its own, without physics: what the expert would see and do there.

Where the arm follows its course and what it holds moves with the hand, no simulation is needed to know a frame and the
actions that follow it. A scene costs a picture instead of a whole episode, so that a policy can see a hundred times as
many places of things as demonstrations would show it. Some begin where a grasp has missed. How drives lag behind their
targets, and objects that slip, are not in here: demonstrations have those.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import mujoco
import numpy as np
from numpy.typing import NDArray

from vag_policy.expert.demonstrator import Command, Demonstrator, GiveUpError
from vag_policy.expert.episode import FPS
from vag_policy.expert.kinematics import Kinematics, UnreachableError
from vag_policy.expert.scene_view import arm_slot, working_arm
from vag_policy.expert.style import Style
from vag_policy.robots import yam
from vag_policy.robots.yam_sim import Sim

AT_START, TO_GRASP = 0.12, 0.43
"""Shares of snapshots that show the very start, and any instant from there to the grasp; the others come after it."""

MISSED = 0.2
"""Share of snapshots from a course that begins where the gripper has closed beside or above the object."""

_HELD = 0.044 / (2 * yam.STROKE)  # opening around an object, all of which are 44 mm wide
_TOUCH = 0.02
_SETTLE = 0.008  # metres an object falls when it is let go
_BESIDE, _ABOVE = (0.03, 0.06), (0.045, 0.06)  # metres
_SPREAD, _SPREAD_SHARES = (0.0, 0.02, 0.05), (0.3, 0.4, 0.3)
_FREE = ("approach", "lift", "carry", "retreat")
_EXACT = ("grasp", "place")
_NEAR = 0.2  # of the deviation, where the arm comes down on something


@dataclass(frozen=True, eq=False)
class Snapshot:
    """What a policy would be shown and should answer.

    Attributes:
        state: (14,) joints in ``JOINT_NAMES`` order, rad, grippers 0 (closed) .. 1 (open).
        actions: (A_H, 14) targets at 30 Hz, the first at this instant.
        valid: (A_H,) False where the demonstration is over.
        keyframe: (14,) targets when a gripper next closes or opens.
        phase: of the working arm.
    """

    state: NDArray[np.float32]
    actions: NDArray[np.float32]
    valid: NDArray[np.bool_]
    keyframe: NDArray[np.float32]
    phase: str


def take_snapshot(
    sim: Sim,
    kinematics: Kinematics,
    seed: int,
    task: str,
    style: Style,
    rng: np.random.Generator,
    horizon: int,
) -> Snapshot:
    """Put ``sim`` into one instant of scene ``seed``, ready for pictures, and say what should follow.

    The arm stands off its course by a random amount now and then, so that answers lead back to it.

    Args:
        sim: its state is replaced.
        kinematics: of the same rig.
        seed: of the scene.
        task: the instruction.
        style: pace and start are followed, mistakes and noise are not.
        rng: chooses the instant and the deviation.
        horizon: actions wanted.

    Raises:
        ValueError: a negative seed or an unknown task.
        GiveUpError: the expert cannot do this scene.
    """
    sim.reset(seed, task)
    try:
        return _take(sim, kinematics, replace(style, mistake="none"), rng, horizon)
    except UnreachableError as error:
        raise GiveUpError(str(error)) from error


def _take(sim: Sim, kinematics: Kinematics, style: Style, rng: np.random.Generator, horizon: int) -> Snapshot:
    working = working_arm(sim, sim.config.scene.find_task(sim.instruction))
    rest = _start(working, style.start)
    sim.place(rest, {})
    demonstrator = Demonstrator(sim, kinematics, style, rng)
    slot, item = demonstrator.slot, demonstrator.task.item
    if rng.random() < MISSED:
        rest[slot] = _missed(sim, kinematics, demonstrator, rng)
        sim.place(rest, {})
        demonstrator = Demonstrator(sim, kinematics, style, rng)
    on_table = _matrix(sim.object_poses()[item.name])
    commands, gripped = _perform(sim, demonstrator, rest)
    targets = np.stack([command.label for command in commands])
    changes = np.flatnonzero(np.diff(targets[:, yam.ARM_DOF] < 0.5)) + 1
    phases = [command.phase for command in commands]
    closing = next((int(change) for change in changes if phases[change] == "grasp"), 0)
    if not closing:
        raise GiveUpError("the gripper does not close around the object")
    width = targets[:, yam.ARM_DOF]
    grasped = next(i for i, phase in enumerate(phases) if phase == "grasp" and width[i] < _HELD + _TOUCH)
    released = next(i for i, phase in enumerate(phases) if phase == "place" and width[i] > _HELD + _TOUCH)
    instant = _instant(rng, closing, len(commands))
    arm = targets[max(instant - 1, 0)].copy()  # drives are about a frame late
    if instant:
        arm[: yam.ARM_DOF] += _deviation(rng, phases[instant])
    items = {}
    if instant >= grasped:
        held = np.linalg.inv(_hand(sim, working, gripped)) @ on_table
        if instant <= released:
            arm[yam.ARM_DOF] = max(arm[yam.ARM_DOF], _HELD)
            items[item.name] = _pose(_hand(sim, working, arm) @ held)
        else:
            items[item.name] = _pose(_hand(sim, working, targets[released]) @ held)
            items[item.name][2] -= _SETTLE
    state = rest.copy()
    state[slot] = arm
    sim.place(state, items)
    numbers = np.arange(instant, instant + horizon)
    actions = np.tile(rest, (horizon, 1))
    actions[:, slot] = targets[numbers.clip(max=len(targets) - 1)]
    keyframe = rest.copy()
    keyframe[slot] = targets[next((change for change in changes if change > instant), len(targets) - 1)]
    return Snapshot(
        state.astype(np.float32),
        actions.astype(np.float32),
        numbers < len(targets),
        keyframe.astype(np.float32),
        phases[instant],
    )


def _missed(
    sim: Sim, kinematics: Kinematics, demonstrator: Demonstrator, rng: np.random.Generator
) -> NDArray[np.float64]:
    """(7,) joints of the arm with its gripper closed beside or above the object."""
    pose = _hand(sim, demonstrator.arm, demonstrator.command(demonstrator.ends).label)
    offset = np.array([0.0, 0.0, rng.uniform(*_ABOVE)])
    if rng.random() < 0.5:
        angle = rng.uniform(0.0, 2.0 * np.pi)
        offset = rng.uniform(*_BESIDE) * np.array([np.cos(angle), np.sin(angle), 0.0])
    yaw = float(np.arctan2(pose[1, 2], pose[0, 2]))
    return np.append(kinematics.solve(demonstrator.arm, pose[:3, 3] + offset, yaw), 0.0)


def _start(working: str, start: str) -> NDArray[np.float64]:
    """(14,) joints of both arms before the first move."""
    joints = np.zeros(len(yam.JOINT_NAMES))
    for arm in yam.ARMS:
        at_home = start in ("home", "working_home" if arm == working else "other_home")
        joints[arm_slot(arm)] = yam.HOME if at_home else yam.REST
    return joints


def _perform(
    sim: Sim, demonstrator: Demonstrator, rest: NDArray[np.float64]
) -> tuple[list[Command], NDArray[np.float64]]:
    """The commands of both courses, frame by frame, and where the arm grasps; ``sim`` is left at the grasp."""
    begin = demonstrator.ends
    count = int(np.ceil(begin * FPS))
    commands = [demonstrator.command(frame / FPS) for frame in range(count)]
    gripped = demonstrator.command(begin).label
    joints = rest.copy()
    joints[demonstrator.slot] = np.append(gripped[: yam.ARM_DOF], _HELD)
    sim.place(joints, {})
    demonstrator.decide(begin)  # it sees that it holds the object
    end = int(demonstrator.ends * FPS)
    return commands + [demonstrator.command(frame / FPS) for frame in range(count, end)], gripped


def _instant(rng: np.random.Generator, closing: int, count: int) -> int:
    """A frame's number: more often before the grasp, since the arm then has several things to tell apart."""
    chance = rng.random()
    if chance < AT_START:
        return 0
    if chance < AT_START + TO_GRASP:
        return int(rng.integers(0, closing))
    return int(rng.integers(max(closing - 5, 0), max(count - 12, closing + 1)))


def _deviation(rng: np.random.Generator, phase: str) -> NDArray[np.float64]:
    """(6,) rad off the course."""
    deviation = rng.normal(0.0, 1.0, yam.ARM_DOF) * rng.choice(_SPREAD, p=_SPREAD_SHARES)
    if phase in _EXACT:
        return np.zeros(yam.ARM_DOF)
    return deviation if phase in _FREE else _NEAR * deviation


def _hand(sim: Sim, arm: str, joints: NDArray[np.float64]) -> NDArray[np.float64]:
    """(4, 4) pose of the fingertips in the world frame."""
    pose = yam.forward_kinematics(joints[: yam.ARM_DOF])
    pose[:3, 3] += sim.config.rig.base_xyz(arm)
    return pose


def _matrix(pose: NDArray[np.float64]) -> NDArray[np.float64]:
    rotation, result = np.zeros(9), np.eye(4)
    mujoco.mju_quat2Mat(rotation, pose[3:])
    result[:3, :3], result[:3, 3] = rotation.reshape(3, 3), pose[:3]
    return result


def _pose(matrix: NDArray[np.float64]) -> NDArray[np.float64]:
    """(7,) x y z and quaternion w x y z."""
    quaternion = np.zeros(4)
    mujoco.mju_mat2Quat(quaternion, np.ascontiguousarray(matrix[:3, :3]).ravel())
    return np.concatenate([matrix[:3, 3], quaternion])
