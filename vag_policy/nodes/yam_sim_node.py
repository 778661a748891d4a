"""The simulated rig as ROS 2 hardware: cameras, joint states and frames out, trajectories in.

Simulation, pictures and callbacks share one thread, since OpenGL belongs to one. Time comes from the steady clock.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from rclpy.node import Node
from rosgraph_msgs.msg import Clock
from sensor_msgs.msg import CameraInfo, Image, JointState
from std_msgs.msg import String
from trajectory_msgs.msg import JointTrajectory
from vag_interfaces.msg import TaskState as TaskStateMsg
from vag_interfaces.srv import ResetScene

from vag_policy.evaluation.referee import Referee
from vag_policy.nodes.common import (
    LATCHED,
    LATEST,
    OK,
    SENSOR,
    WARN,
    Diagnostics,
    main_of,
    publisher,
    steady_timer,
    subscribe,
)
from vag_policy.nodes.messages import image_to_msg, stamp_from_ns
from vag_policy.nodes.parameters import ParameterError, declare
from vag_policy.nodes.sim_messages import (
    camera_info_to_msg,
    joint_state_to_msg,
    task_state_to_msg,
    trajectory_from_msg,
)
from vag_policy.nodes.tf import FrameBroadcaster
from vag_policy.nodes.yam_sim_parameters import PARAMETERS, sim_config
from vag_policy.robots import yam
from vag_policy.robots.pacing import FrameSchedule, Pacer
from vag_policy.robots.trajectory import TrajectoryFollower
from vag_policy.robots.yam_model import urdf
from vag_policy.robots.yam_parts import rig_tree
from vag_policy.robots.yam_rig import CAMERA_NAMES, Camera
from vag_policy.robots.yam_sim import Sim, SimConfig, from_metres, to_metres

SECOND_NS = 1_000_000_000
TASK_STATE_NS = SECOND_NS // 10
MAX_LAG_NS = SECOND_NS // 10


@dataclass
class CameraPort:
    """A camera's publishers."""

    camera: Camera
    image: Any
    info: Any
    info_message: CameraInfo


class YamSimNode(Node):
    """``yam_sim``: see the parameters in ``PARAMETERS``."""

    def __init__(self) -> None:
        super().__init__("yam_sim")
        values = declare(self, PARAMETERS)
        config, self._period_ns = _config(values)
        self._steps = round(self._period_ns / config.timestep_ns)
        self._with_clock = values["publish_clock"]
        self._sim = _simulation(config, values["seed"], values["task"])
        self._referee = Referee(self._sim)
        self._followers = {name: TrajectoryFollower(names, start) for name, names, start in _groups(self._sim)}
        self._refused = 0
        self._reasons = dict.fromkeys(self._followers, "")
        self._make_ports(values)
        self._frames = FrameSchedule(round(SECOND_NS / values["camera_rate"]))
        self._tf_frames = FrameSchedule(round(SECOND_NS / values["tf_rate"])) if values["tf_rate"] else None
        self._task_frames = FrameSchedule(TASK_STATE_NS)
        self._pending: list[str] = []
        self._captured_ns = 0
        self._draw_ns = 0
        self._pacer = Pacer(self._period_ns, time.monotonic_ns(), MAX_LAG_NS)
        self._measured = (time.monotonic_ns(), self._sim.time_ns, 0, 0)
        checks = {"simulation": self._check_simulation, "commands": self._check_commands}
        self._diagnostics = Diagnostics(self, "yam_sim", checks)
        self._timer = steady_timer(self, self._period_ns / SECOND_NS, self._tick)
        self.get_logger().info(f"scene of seed {self._sim.seed}: {self._sim.instruction}")

    def _make_ports(self, values: dict[str, Any]) -> None:
        config = self._sim.config
        self._ports = {}
        for camera in config.rig.cameras:
            image = publisher(self, Image, f"{camera.name}/image_raw", SENSOR)
            info = publisher(self, CameraInfo, f"{camera.name}/camera_info", SENSOR)
            message = camera_info_to_msg(camera, config.width, config.height)
            self._ports[camera.name] = CameraPort(camera, image, info, message)
        self._joint_states = publisher(self, JointState, "joint_states", SENSOR)
        self._task_state = publisher(self, TaskStateMsg, "task_state", LATCHED)
        self._description = publisher(self, String, "robot_description", LATCHED)
        self._description.publish(String(data=urdf(config.rig)))
        self._broadcaster = FrameBroadcaster(self, rig_tree(config.rig)) if values["tf_rate"] else None
        self._clock_publisher = publisher(self, Clock, "/clock", LATEST) if self._with_clock else None
        for name in self._followers:
            topic = f"{name}_controller/joint_trajectory"
            subscribe(
                self, JointTrajectory, topic, lambda message, name=name: self._on_trajectory(name, message), LATEST
            )
        self.create_service(ResetScene, "~/reset", self._on_reset)

    # --- commands in

    def _on_trajectory(self, name: str, message: JointTrajectory) -> None:
        now_ns = self._sim.time_ns
        try:
            names, points, times, stamp_ns = trajectory_from_msg(message)
            start_ns = now_ns + stamp_ns - self._stamp_ns(time.monotonic_ns()) if stamp_ns else 0
            self._followers[name].command(names, points, times, now_ns, start_ns)
        except ValueError as error:
            self._refuse(name, str(error))
        else:
            self._reasons[name] = ""

    def _refuse(self, name: str, reason: str) -> None:
        """Count a refused trajectory, and log its reason where it is a new one."""
        self._refused += 1
        if self._reasons[name] != reason:
            self.get_logger().warning(f"{name}_controller: trajectory refused, holding: {reason}")
        self._reasons[name] = reason

    def _on_reset(self, request: ResetScene.Request, response: ResetScene.Response) -> ResetScene.Response:
        seed = request.seed if request.seed >= 0 else self._sim.seed + 1
        try:
            self._sim.reset(seed, request.task)
        except ValueError as error:
            response.message = str(error)
        else:
            response.success = True
            self._after_reset()
        response.instruction, response.seed = self._sim.instruction, self._sim.seed
        return response

    def _after_reset(self) -> None:
        """Old commands and unfinished pictures end with the old scene; the new one's first frame is its very start."""
        for name, _, start in _groups(self._sim):
            self._followers[name].reset(start, self._sim.time_ns)
        self._referee = Referee(self._sim)
        stamp_ns = self._stamp_ns(time.monotonic_ns())
        self._publish_task_state(stamp_ns)
        self._capture(stamp_ns)
        self.get_logger().info(f"scene of seed {self._sim.seed}: {self._sim.instruction}")

    # --- the world out

    def _tick(self) -> None:
        for due_ns in self._pacer.due(time.monotonic_ns()):
            desired = np.concatenate([f.desired(self._sim.time_ns + self._period_ns) for f in self._followers.values()])
            self._sim.step(from_metres(desired), self._steps)
            self._publish_state(self._stamp_ns(due_ns))
        self._draw_pending()

    def _publish_state(self, stamp_ns: int) -> None:
        now_ns, state = self._sim.time_ns, self._sim.joint_state()
        if self._clock_publisher is not None:
            self._clock_publisher.publish(Clock(clock=stamp_from_ns(stamp_ns)))
        self._joint_states.publish(joint_state_to_msg(yam.JOINT_NAMES, state, stamp_ns))
        if self._broadcaster is not None and self._tf_frames is not None and self._tf_frames.take(now_ns, False):
            self._broadcaster.publish(dict(zip(yam.JOINT_NAMES, state.position.tolist(), strict=True)), stamp_ns)
        if self._task_frames.take(now_ns, False):
            self._publish_task_state(stamp_ns)
        behind = bool(self._pending) or self._pacer.lag_ns(time.monotonic_ns()) > self._frames.period_ns
        if self._frames.take(now_ns, behind):
            self._capture(stamp_ns)

    def _capture(self, stamp_ns: int) -> None:
        self._sim.capture(CAMERA_NAMES)
        self._pending, self._captured_ns = list(CAMERA_NAMES), stamp_ns

    def _draw_pending(self) -> None:
        """Draw at least one picture of the frame at hand, and more while they fit before the next period."""
        while self._pending:
            start_ns = time.monotonic_ns()
            self._publish_picture(self._ports[self._pending.pop(0)])
            end_ns = time.monotonic_ns()
            self._draw_ns = max(end_ns - start_ns, self._draw_ns * 9 // 10)
            if self._pacer.lag_ns(end_ns + self._draw_ns) > 0:
                break

    def _publish_picture(self, port: CameraPort) -> None:
        port.info_message.header.stamp = stamp_from_ns(self._captured_ns)
        port.info.publish(port.info_message)
        if port.image.get_subscription_count():  # drawing is most of the node's cost
            picture = self._sim.draw(port.camera.name)
            port.image.publish(image_to_msg(picture, self._captured_ns, port.camera.optical_frame))

    def _publish_task_state(self, stamp_ns: int) -> None:
        self._referee.look(self._sim.time_ns)
        state, verdict = self._sim.task_state(), self._referee.verdict()
        self._task_state.publish(task_state_to_msg(state, verdict, self._referee.phase(), stamp_ns))

    def _stamp_ns(self, steady_ns: int) -> int:
        """The stamp of an instant on the steady clock: simulated time with /clock, else the ROS clock's."""
        if self._with_clock:
            return self._sim.time_ns
        return self.get_clock().now().nanoseconds + steady_ns - time.monotonic_ns()

    # --- diagnostics, once a second

    def _check_simulation(self) -> tuple[bytes, str, dict[str, Any]]:
        now = (time.monotonic_ns(), self._sim.time_ns, self._frames.taken, self._frames.skipped)
        elapsed, simulated, taken, skipped = (b - a for a, b in zip(self._measured, now, strict=True))
        self._measured = now
        factor = simulated / elapsed
        values = {
            "real_time_factor": factor,
            "slipped_s": self._pacer.slipped_ns / SECOND_NS,
            "frames_hz": taken * SECOND_NS / elapsed,
            "frames_taken": self._frames.taken,
            "frames_skipped": self._frames.skipped,
            "draw_ms": self._draw_ns / 1e6,
        }
        if factor < 0.95:
            return WARN, f"slower than real time: factor {factor:.2f}", values
        if skipped * 10 > taken:
            return WARN, f"{skipped} frames skipped in the last second to keep pace", values
        return OK, "in real time", values

    def _check_commands(self) -> tuple[bytes, str, dict[str, Any]]:
        last_ns = max(follower.commanded_ns for follower in self._followers.values())
        accepted = sum(follower.accepted for follower in self._followers.values())
        age_ns = self._sim.time_ns - last_ns
        values = {"accepted": accepted, "refused": self._refused, "age_s": age_ns / SECOND_NS}
        idle = not accepted or age_ns > SECOND_NS
        return OK, "no command for 1 s: holding the last one" if idle else "following", values

    def stop(self) -> None:
        """Give OpenGL back."""
        self._sim.close()


def _config(values: dict[str, Any]) -> tuple[SimConfig, int]:
    try:
        return sim_config(values)
    except ValueError as error:
        raise ParameterError(str(error)) from error


def _simulation(config: SimConfig, seed: int, task: str) -> Sim:
    """The world, ready to be seen.

    Raises:
        ParameterError: no such task, or no OpenGL.
    """
    try:
        sim = Sim(config)
        sim.reset(seed, task)
        sim.capture()  # no OpenGL: say so now
        return sim
    except (ValueError, RuntimeError) as error:
        raise ParameterError(str(error)) from error


def _groups(sim: Sim) -> list[tuple[str, tuple[str, ...], np.ndarray]]:
    """Controller name, joints and start position of every group, in ``JOINT_NAMES`` order."""
    start = dict(zip(yam.JOINT_NAMES, to_metres(yam.POSES[sim.config.start_pose]), strict=True))
    groups = []
    for arm in yam.ARMS:
        for kind, names in (("arm", yam.arm_joint_names(arm)), ("gripper", (yam.gripper_joint_name(arm),))):
            groups.append((f"{arm}_{kind}", names, np.array([start[name] for name in names])))
    return groups


main = main_of(YamSimNode)

if __name__ == "__main__":
    main()
