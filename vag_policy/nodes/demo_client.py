"""A node that runs episodes on a graph and keeps what happened: the ROS side of ``vag demo``."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import rclpy
from action_msgs.msg import GoalStatus
from diagnostic_msgs.msg import DiagnosticArray
from rclpy.action import ActionClient
from rclpy.executors import ExternalShutdownException, SingleThreadedExecutor
from rclpy.node import Node
from rclpy.signals import SignalHandlerOptions
from std_srvs.srv import Trigger
from trajectory_msgs.msg import JointTrajectory
from vag_interfaces.action import RunEpisode
from vag_interfaces.msg import JointCommandStatus, Observation, PolicyTrace, TaskState
from vag_interfaces.srv import ResetScene

from vag_policy.evaluation.episode_log import EpisodeLog, FrameSample, Replan, TaskSample
from vag_policy.nodes.common import ERROR, LATCHED, LATEST, subscribe
from vag_policy.nodes.messages import duration_from_ns, ns_from_stamp, observation_from_msg, trace_from_msg

ARM_TOPICS = tuple(
    f"{arm}_{part}_controller/joint_trajectory" for arm in ("left", "right") for part in ("arm", "gripper")
)
_ANSWER_S = 10.0


class RefusedError(RuntimeError):
    """A node of the graph refused what it was asked for, or did not answer."""


class DemoClient(Node):
    """Listens to a whole graph, sets scenes, and asks for episodes."""

    def __init__(self, log: EpisodeLog, frame_period_s: float, **options: Any) -> None:
        super().__init__("demo_client", **options)
        self.log = log
        self.policy_fault = ""
        """Why the policy cannot become active; empty where it can."""
        self.observed_ns = 0
        """Stamp of the newest observation."""
        self._frame_period_ns = int(frame_period_s * 1e9)
        self._arm = self.create_client(Trigger, "joint_command/arm")
        self._disarm = self.create_client(Trigger, "joint_command/disarm")
        self._reset = self.create_client(ResetScene, "yam_sim/reset")
        self._episode = ActionClient(self, RunEpisode, "run_episode")
        self._goal: Any = None
        self._result: Any = None
        subscribe(self, Observation, "observation", self._on_observation, LATEST)
        subscribe(self, PolicyTrace, "policy_trace", self._on_trace, LATEST)
        subscribe(self, JointCommandStatus, "joint_command/status", self._on_status, LATCHED)
        subscribe(self, TaskState, "task_state", self._on_task, LATCHED)
        subscribe(self, DiagnosticArray, "/diagnostics", self._on_diagnostics, 10)
        for topic in ARM_TOPICS:
            subscribe(self, JointTrajectory, topic, self._on_command, LATEST)

    def _on_observation(self, message: Observation) -> None:
        now, stamp_ns = time.time_ns(), ns_from_stamp(message.header.stamp)
        self.observed_ns = stamp_ns
        self.log.add_observation(now, now - stamp_ns)
        if not self.log.frames or stamp_ns - self.log.frames[-1].stamp_ns >= self._frame_period_ns:
            self.log.cameras = tuple(message.camera_names)
            observation = observation_from_msg(message)
            joints = dict(zip(observation.state_names, observation.state.tolist(), strict=True))
            self.log.frames.append(FrameSample(stamp_ns, np.array(observation.image), joints))

    def _on_trace(self, message: PolicyTrace) -> None:
        self.log.replans.append(Replan(time.time_ns(), ns_from_stamp(message.header.stamp), trace_from_msg(message)))

    def _on_status(self, message: JointCommandStatus) -> None:
        self.log.status = message

    def _on_task(self, message: TaskState) -> None:
        items = {
            name: (p.position.x, p.position.y, p.position.z)
            + (p.orientation.w, p.orientation.x, p.orientation.y, p.orientation.z)
            for name, p in zip(message.object_names, message.object_poses, strict=True)
        }
        stamp_ns = ns_from_stamp(message.header.stamp)
        self.log.tasks.append(TaskSample(stamp_ns, message.success, message.reason, message.phase, items))

    def _on_diagnostics(self, message: DiagnosticArray) -> None:
        for status in message.status:
            if status.name.endswith("policy: state"):
                self.policy_fault = status.message if status.level == ERROR else ""

    def _on_command(self, message: JointTrajectory, info: Mapping[str, Any]) -> None:
        # When it was sent: how late this process is must not count as the speed of a joint.
        stamp_ns = info["source_timestamp"] or time.time_ns()
        self.log.add_command(stamp_ns, message.joint_names, message.points[0].positions)

    def waiting_for(self) -> list[str]:
        """What has not shown up yet of all that an episode needs."""
        missing = {
            "observations": bool(self.log.observations),
            "joint_command's status": self.log.status is not None,
            "a task": bool(self.log.tasks),
            "the policy's run_episode": self._episode.server_is_ready(),
            "joint_command's arm service": self._arm.service_is_ready() and self._disarm.service_is_ready(),
            "yam_sim's reset service": self._reset.service_is_ready(),
        }
        return [name for name, there in missing.items() if not there]

    def arm(self) -> str:
        """Arm joint_command; return why it refused, or an empty string."""
        response = _wait(self._arm.call_async(Trigger.Request()))
        if response is None:
            return "joint_command did not answer"
        return "" if response.success else response.message

    def disarm(self) -> None:
        """Disarm joint_command: it brakes, then sends nothing more.

        Raises:
            RefusedError: it did not answer.
        """
        if _wait(self._disarm.call_async(Trigger.Request())) is None:
            raise RefusedError("joint_command did not answer")

    def reset_scene(self, seed: int, instruction: str) -> None:
        """Put the scene back to the start that ``seed`` draws for ``instruction``.

        Raises:
            RefusedError: the simulator cannot do that, or did not answer.
        """
        response = _wait(self._reset.call_async(ResetScene.Request(seed=seed, task=instruction)))
        if response is None or not response.success:
            raise RefusedError(response.message if response else "yam_sim did not answer")

    def start_episode(self, instruction: str, seconds: float) -> None:
        """Ask the policy for an episode.

        Raises:
            RefusedError: the policy refused it or did not answer.
        """
        goal = RunEpisode.Goal(instruction=instruction, timeout=duration_from_ns(round(seconds * 1e9)))
        sent = self._from_spinning_thread(lambda: self._episode.send_goal_async(goal))
        self._goal = None if sent is None else _wait(sent)
        if self._goal is None or not self._goal.accepted:
            raise RefusedError(f"the policy did not accept the episode '{instruction}'")
        self._result = self._from_spinning_thread(self._goal.get_result_async)

    def end_episode(self) -> None:
        """Stop the running episode, if there is one, and wait for its end.

        Raises:
            RefusedError: the policy did not answer.
        """
        if self._result is None or self._result.done():
            return
        self._from_spinning_thread(self._goal.cancel_goal_async)
        if _wait(self._result) is None:
            raise RefusedError("the policy does not end the episode")

    def _from_spinning_thread(self, send: Callable[[], Any]) -> Any:
        """What ``send`` returns. From any other thread, rclpy's action client loses an answer that comes at once."""
        assert self.executor is not None
        return _wait(self.executor.create_task(send))

    def result(self) -> tuple[bool, str] | None:
        """(whether the episode ended without a fault, the policy's words) once it has ended."""
        if not self._result.done():
            return None
        wrapped = self._result.result()
        ended = wrapped.status in (GoalStatus.STATUS_SUCCEEDED, GoalStatus.STATUS_CANCELED)
        return ended and wrapped.result.success, wrapped.result.message


def _wait(future: Any) -> Any:
    done = threading.Event()
    future.add_done_callback(lambda _: done.set())
    return future.result() if done.wait(_ANSWER_S) else None


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
