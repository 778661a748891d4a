"""A node that runs one episode on a graph and keeps what happened: the ROS side of ``vag demo``."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import rclpy
from action_msgs.msg import GoalStatus
from builtin_interfaces.msg import Duration
from diagnostic_msgs.msg import DiagnosticArray
from rclpy.action import ActionClient
from rclpy.executors import ExternalShutdownException, SingleThreadedExecutor
from rclpy.node import Node
from rclpy.signals import SignalHandlerOptions
from std_srvs.srv import Trigger
from trajectory_msgs.msg import JointTrajectory
from vag_interfaces.action import RunEpisode
from vag_interfaces.msg import JointCommandStatus, Observation, PolicyTrace, TaskState, TemporalRatio

from vag_policy.evaluation.episode_log import EpisodeLog, FrameSample, Replan
from vag_policy.nodes.common import ERROR, LATCHED, LATEST, subscribe
from vag_policy.nodes.messages import ns_from_stamp, observation_from_msg, trace_from_msg

ARM_TOPICS = tuple(
    f"{arm}_{part}_controller/joint_trajectory" for arm in ("left", "right") for part in ("arm", "gripper")
)


class DemoClient(Node):
    """Listens to a whole graph, arms it, and asks for an episode."""

    def __init__(self, log: EpisodeLog, frame_period_s: float, **options: Any) -> None:
        super().__init__("demo_client", **options)
        self.log = log
        self.scene_instruction = ""
        self.policy_fault = ""
        """Why the policy cannot become active; empty where it can."""
        self._frame_period_ns = int(frame_period_s * 1e9)
        self._last_frame_ns = 0
        self._arm = self.create_client(Trigger, "joint_command/arm")
        self._episode = ActionClient(self, RunEpisode, "run_episode")
        subscribe(self, Observation, "observation", self._on_observation, LATEST)
        subscribe(self, PolicyTrace, "policy_trace", self._on_trace, LATEST)
        subscribe(self, TemporalRatio, "temporal_ratio", self._on_ratio, LATEST)
        subscribe(self, JointCommandStatus, "joint_command/status", self._on_status, LATCHED)
        subscribe(self, TaskState, "task_state", self._on_task, LATCHED)
        subscribe(self, DiagnosticArray, "/diagnostics", self._on_diagnostics, 10)
        for topic in ARM_TOPICS:
            subscribe(self, JointTrajectory, topic, self._on_command, LATEST)

    def _now_ns(self) -> int:
        return time.time_ns()

    def _on_observation(self, message: Observation) -> None:
        now = self._now_ns()
        self.log.add_observation(now, now - ns_from_stamp(message.header.stamp))
        if now - self._last_frame_ns >= self._frame_period_ns:
            self._last_frame_ns = now
            self.log.cameras = tuple(message.camera_names)
            image = np.array(observation_from_msg(message).image)
            self.log.frames.append(FrameSample(now, image))

    def _on_trace(self, message: PolicyTrace) -> None:
        self.log.replans.append(Replan(self._now_ns(), message.replan, trace_from_msg(message)))

    def _on_ratio(self, message: TemporalRatio) -> None:
        self.log.ratios.append((self._now_ns(), message.ratio, message.baseline, message.guidance_scale))

    def _on_status(self, message: JointCommandStatus) -> None:
        self.log.add_status(self._now_ns(), message)

    def _on_task(self, message: TaskState) -> None:
        self.scene_instruction = message.instruction
        self.log.success = message.success

    def _on_diagnostics(self, message: DiagnosticArray) -> None:
        for status in message.status:
            if status.name.endswith("policy: state"):
                self.policy_fault = status.message if status.level == ERROR else ""

    def _on_command(self, message: JointTrajectory) -> None:
        self.log.add_command(self._now_ns(), message.joint_names, message.points[0].positions)

    def waiting_for(self) -> list[str]:
        """What has not shown up yet of all that an episode needs."""
        missing = {
            "observations": bool(self.log.observations),
            "joint_command's status": self.log.status is not None,
            "a task": bool(self.scene_instruction),
            "the policy's run_episode": self._episode.server_is_ready(),
            "joint_command's arm service": self._arm.service_is_ready(),
        }
        return [name for name, there in missing.items() if not there]

    def arm(self, timeout_s: float) -> str:
        """Arm joint_command; return why it refused, or an empty string."""
        response = _wait(self._arm.call_async(Trigger.Request()), timeout_s)
        if response is None:
            return "joint_command did not answer"
        return "" if response.success else response.message

    def start_episode(self, instruction: str, seconds: float) -> Any:
        """Ask the policy for an episode; return the goal handle.

        Raises:
            RuntimeError: the policy refused it or did not answer.
        """
        goal = RunEpisode.Goal(instruction=instruction, timeout=Duration(sec=int(seconds), nanosec=0))
        handle = _wait(self._episode.send_goal_async(goal), 10.0)
        if handle is None or not handle.accepted:
            raise RuntimeError(f"the policy did not accept the episode '{instruction}'")
        self._result = handle.get_result_async()
        return handle

    def result(self) -> tuple[bool, str] | None:
        """(whether the episode ended without a fault, the policy's words) once it has ended."""
        if not self._result.done():
            return None
        wrapped = self._result.result()
        ended = wrapped.status in (GoalStatus.STATUS_SUCCEEDED, GoalStatus.STATUS_CANCELED)
        return ended and wrapped.result.success, wrapped.result.message


def _wait(future: Any, timeout_s: float) -> Any:
    done = threading.Event()
    future.add_done_callback(lambda _: done.set())
    return future.result() if done.wait(timeout_s) else None


class SpinningClient:
    """A DemoClient spun by a thread of its own, in a context of its own. Use as a context manager."""

    def __init__(self, log: EpisodeLog, environment: Mapping[str, str], frame_period_s: float) -> None:
        self._context = rclpy.Context()
        rclpy.init(
            context=self._context,
            domain_id=int(environment.get("ROS_DOMAIN_ID", "0")),
            signal_handler_options=SignalHandlerOptions.NO,
        )
        self.node = DemoClient(log, frame_period_s, context=self._context)
        self._executor = SingleThreadedExecutor(context=self._context)
        self._executor.add_node(self.node)
        self._thread = threading.Thread(target=self._spin, name="demo_client")

    def _spin(self) -> None:
        with contextlib.suppress(ExternalShutdownException):
            self._executor.spin()

    def __enter__(self) -> DemoClient:
        self._thread.start()
        return self.node

    def __exit__(self, *_: object) -> None:
        self._executor.shutdown()
        self._context.try_shutdown()
        self._thread.join(5.0)
        self.node.destroy_node()
