"""Two YAM arms on a table in MuJoCo: joint targets in, joint states, pictures and the truth about the task out.

Pure Python, no clock: time is what ``step`` was asked for. Everything, pictures included, belongs to one thread.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vag_policy.robots import gl

gl.choose()  # before MuJoCo reads it

import mujoco  # noqa: E402

from vag_policy.robots import yam  # noqa: E402
from vag_policy.robots.renderer import Renderer  # noqa: E402
from vag_policy.robots.yam_rig import CAMERA_NAMES, RigGeometry  # noqa: E402
from vag_policy.robots.yam_scene import Layout, SceneConfig, yaw_quaternion  # noqa: E402
from vag_policy.robots.yam_world import OVERVIEW, TABLE, world_xml  # noqa: E402

VIEWS = (*CAMERA_NAMES, OVERVIEW)
_RELEASE_CLEARANCE = 1e-4
_REST_SPEED = 0.03


@dataclass(frozen=True)
class SimConfig:
    """What is simulated.

    Attributes:
        rig: where arms and cameras stand.
        scene: what stands on the table.
        width: image width, pixels.
        height: image height, pixels.
        timestep_ns: physics step, nanoseconds.
        start_pose: ``rest`` or ``home``.

    Raises:
        ValueError: a size, step or pose that is not allowed.
    """

    rig: RigGeometry = field(default_factory=RigGeometry)
    scene: SceneConfig = field(default_factory=SceneConfig)
    width: int = 320
    height: int = 240
    timestep_ns: int = 2_000_000
    start_pose: str = "rest"

    def __post_init__(self) -> None:
        if not (16 <= self.width <= 1280 and 16 <= self.height <= 960):
            raise ValueError(f"image size is {self.width}x{self.height}; allowed: 16x16 to 1280x960")
        if not 500_000 <= self.timestep_ns <= 4_000_000:
            raise ValueError(
                f"timestep is {self.timestep_ns} ns; allowed: 500000 to 4000000 (the fingers need it short)"
            )
        if self.start_pose not in yam.POSES:
            raise ValueError(f"no start pose '{self.start_pose}'; there are: {', '.join(yam.POSES)}")


@dataclass(frozen=True)
class JointState:
    """All 14 joints in ``JOINT_NAMES`` order as a driver reports them: rad, and metres of one finger for grippers."""

    position: NDArray[np.float64]
    velocity: NDArray[np.float64]
    effort: NDArray[np.float64]


@dataclass(frozen=True)
class TaskState:
    """The truth about the task. ``object_poses`` (N, 7): x y z metres, quaternion w x y z, in the world frame."""

    instruction: str
    success: bool
    scene: int
    seed: int
    object_names: tuple[str, ...]
    object_poses: NDArray[np.float64]


class Sim:
    """The simulated rig. ``reset`` is called once by the constructor, with seed 0."""

    def __init__(self, config: SimConfig | None = None) -> None:
        self.config = config or SimConfig()
        scene = self.config.scene
        document = world_xml(self.config.rig, scene, self.config.timestep_ns * 1e-9)
        self.model = mujoco.MjModel.from_xml_string(document)
        self.data = mujoco.MjData(self.model)
        joints = [self.model.joint(name) for name in yam.JOINT_NAMES]
        self._qpos = np.array([joint.qposadr[0] for joint in joints])
        self._dof = np.array([joint.dofadr[0] for joint in joints])
        mimics = [self.model.joint(f"{yam.gripper_joint_name(arm)}_mimic") for arm in yam.ARMS]
        self._mimic_qpos = np.array([joint.qposadr[0] for joint in mimics])
        self._free = {item.name: self.model.joint(item.name) for item in scene.items}
        arm_bodies = [
            index for index in range(self.model.nbody) if self.model.body(index).name.startswith(("left_", "right_"))
        ]
        self._is_arm_geom = np.isin(self.model.geom_bodyid, arm_bodies)
        self._renderer: Renderer | None = None
        self._layout: Layout
        self.time_ns = 0
        self.scene = -1
        self.seed = 0
        self.reset(0)

    @property
    def instruction(self) -> str:
        """What the current scene asks for."""
        return self._layout.task.instruction

    def reset(self, seed: int, task: str = "") -> str:
        """Put arms and items back to the start that ``seed`` draws, and return the instruction.

        Args:
            seed: 0 or more; the same seed and task give the same scene, to the last bit.
            task: an instruction; empty: drawn from the seed.

        Raises:
            ValueError: a negative seed or an unknown task; the scene stays as it was.
        """
        layout = self.config.scene.draw(self.config.rig, seed, task)
        self._layout, self.seed, self.scene = layout, seed, self.scene + 1
        mujoco.mj_resetData(self.model, self.data)
        start = yam.POSES[self.config.start_pose]
        self.data.ctrl[:] = to_metres(start)
        self.data.qpos[self._qpos] = self.data.ctrl
        self.data.qpos[self._mimic_qpos] = self.data.ctrl[list(yam.GRIPPER_INDICES)]
        for name, (x, y, yaw) in layout.places.items():
            address = self._free[name].qposadr[0]
            self.data.qpos[address : address + 7] = (x, y, 0.0, *yaw_quaternion(yaw))
        mujoco.mj_forward(self.model, self.data)
        return self.instruction

    def step(self, targets: ArrayLike, steps: int) -> None:
        """Hold ``targets`` (14,) for ``steps`` physics steps; rad, grippers 0 (closed) .. 1 (open).

        Targets beyond a joint's limits are taken as the limit.

        Raises:
            ValueError: not 14 finite numbers.
        """
        wanted = np.asarray(targets, np.float64)
        if wanted.shape != (len(yam.JOINT_NAMES),) or not np.isfinite(wanted).all():
            raise ValueError(f"targets must be {len(yam.JOINT_NAMES)} finite numbers, got {wanted}")
        self.data.ctrl[:] = to_metres(wanted)
        mujoco.mj_step(self.model, self.data, steps)
        self.time_ns += steps * self.config.timestep_ns

    def place(self, joints: ArrayLike, items: Mapping[str, ArrayLike]) -> None:
        """Show a state that was seen elsewhere, at rest: for pictures of it.

        Args:
            joints: (14,) rad, grippers 0 (closed) .. 1 (open).
            items: (7,) x y z metres and quaternion w x y z by name; items that are not named stay where they are.

        Raises:
            ValueError: an item that this scene has not.
        """
        unknown = sorted(set(items) - set(self._free))
        if unknown:
            raise ValueError(f"no item '{unknown[0]}'; this scene has: {', '.join(self._free)}")
        self.data.qpos[self._qpos] = to_metres(np.asarray(joints, np.float64))
        self.data.qpos[self._mimic_qpos] = self.data.qpos[self._qpos][list(yam.GRIPPER_INDICES)]
        for name, pose in items.items():
            address = self._free[name].qposadr[0]
            self.data.qpos[address : address + 7] = pose
        self.data.qvel[:] = 0.0
        mujoco.mj_forward(self.model, self.data)

    def joint_positions(self) -> NDArray[np.float64]:
        """(14,) rad, grippers 0 (closed) .. 1 (open)."""
        return from_metres(self.data.qpos[self._qpos])

    def joint_state(self) -> JointState:
        """Positions, velocities and drive efforts (gravity compensation included)."""
        effort = self.data.qfrc_actuator[self._dof]
        return JointState(self.data.qpos[self._qpos], self.data.qvel[self._dof], effort)

    def object_poses(self) -> dict[str, NDArray[np.float64]]:
        """(7,) x y z metres and quaternion w x y z of every item, by name, in the world frame."""
        return {name: self.data.qpos[j.qposadr[0] : j.qposadr[0] + 7].copy() for name, j in self._free.items()}

    def task_state(self) -> TaskState:
        """The truth about the task, now."""
        poses = self.object_poses()
        stacked = np.array(list(poses.values()))
        return TaskState(self.instruction, self.success(), self.scene, self.seed, tuple(poses), stacked)

    def success(self) -> bool:
        """Whether the task's object rests in or on its container, let go by the gripper and clear of the table."""
        task = self._layout.task
        item, container = self.data.body(task.item.name), self.data.body(task.container.name)
        rotation = container.xmat.reshape(3, 3)
        x, y, z = rotation.T @ (item.xipos - container.xpos)
        inside = task.container.contains(x, y) and 0.0 < z < task.container.height + task.item.height
        upright = rotation[2, 2] > 0.9
        velocity = self.data.qvel[self._free[task.item.name].dofadr[0] :][:3]
        resting = bool(np.linalg.norm(velocity) < _REST_SPEED)
        return bool(inside and upright and resting and not any(self.in_contact(task.item.name)))

    def in_contact(self, item: str) -> tuple[bool, bool]:
        """Whether the item called ``item`` touches an arm, and whether it touches the table."""
        body, table = self.data.body(item).id, self.model.body(TABLE).id
        arm = on_table = False
        for contact in self.data.contact[: self.data.ncon]:
            bodies = self.model.geom_bodyid[contact.geom]
            if body in bodies and contact.dist < _RELEASE_CLEARANCE:
                other = contact.geom[0] if bodies[1] == body else contact.geom[1]
                arm |= bool(self._is_arm_geom[other])
                on_table |= bool(self.model.geom_bodyid[other] == table)
        return arm, on_table

    def capture(self, cameras: Sequence[str] = CAMERA_NAMES) -> None:
        """Freeze what ``cameras`` see now; ``draw`` gives the pictures, all of this instant."""
        self._pictures().capture(self.data, _known(cameras))

    def draw(self, camera: str) -> NDArray[np.uint8]:
        """(H, W, 3) RGB of what ``camera`` saw at the last ``capture``."""
        return self._pictures().draw(*_known((camera,)))

    def render(self, camera: str) -> NDArray[np.uint8]:
        """(H, W, 3) RGB of what ``camera`` sees now.

        Raises:
            ValueError: no such camera.
            RuntimeError: no OpenGL, or another thread's.
        """
        self.capture((camera,))
        return self.draw(camera)

    def _pictures(self) -> Renderer:
        if self._renderer is None:
            self._renderer = Renderer(self.model, VIEWS, self.config.width, self.config.height)
        return self._renderer

    def close(self) -> None:
        """Give the OpenGL context back, if there is one."""
        if self._renderer is not None:
            self._renderer.close()
            self._renderer = None


def to_metres(positions: NDArray[np.float64]) -> NDArray[np.float64]:
    """(14,) with grippers 0..1 as (14,) with grippers in metres of one finger."""
    out = np.array(positions, np.float64)
    grippers = list(yam.GRIPPER_INDICES)
    out[grippers] = yam.gripper_to_metres(out[grippers])
    return out


def from_metres(positions: NDArray[np.float64]) -> NDArray[np.float64]:
    """(14,) with grippers in metres of one finger as (14,) with grippers 0..1."""
    out = np.array(positions, np.float64)
    grippers = list(yam.GRIPPER_INDICES)
    out[grippers] = yam.gripper_from_metres(out[grippers])
    return out


def _known(cameras: Sequence[str]) -> Sequence[str]:
    for name in cameras:
        if name not in VIEWS:
            raise ValueError(f"no camera '{name}'; the simulator has: {', '.join(VIEWS)}")
    return cameras
