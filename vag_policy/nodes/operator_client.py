"""What an operator asks of a graph that runs elsewhere: one service call from the command line."""

from __future__ import annotations

import os
import time
from types import TracebackType
from typing import Any

import rclpy
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from rclpy.signals import SignalHandlerOptions
from std_msgs.msg import Bool
from std_srvs.srv import Trigger
from vag_interfaces.srv import ResetScene

from vag_policy.nodes.common import LATEST
from vag_policy.nodes.ros_arguments import explained

ANSWER_S = 5.0
"""How long a node may take to be found and to answer."""
_PRESS_EVERY_S = 0.1


class NoAnswerError(ValueError):
    """No node answers in time."""


class OperatorClient:
    """Calls services, spinning in the calling thread. Use as a context manager.

    Args:
        namespace: of the graph.
    """

    def __init__(self, namespace: str) -> None:
        self._context = rclpy.Context()
        with explained():
            rclpy.init(args=[], context=self._context, signal_handler_options=SignalHandlerOptions.NO)
        self._node = Node("vag_operator", namespace=namespace, context=self._context)
        self._executor = SingleThreadedExecutor(context=self._context)
        self._executor.add_node(self._node)
        self._button: Any = None
        self._pressed_s = 0.0

    def __enter__(self) -> OperatorClient:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._executor.shutdown()
        self._node.destroy_node()
        self._context.try_shutdown()

    def trigger(self, name: str) -> tuple[bool, str]:
        """Call joint_command's service ``name``; return whether it did that, and its words.

        Raises:
            NoAnswerError: no joint_command answers.
        """
        response = self._call(Trigger, "joint_command", name, Trigger.Request())
        return response.success, response.message

    def emergency_stop(self) -> tuple[bool, str]:
        """Stop the arms: by topic, over and over, until the service has answered that it arrived.

        Raises:
            NoAnswerError: no joint_command answers; one that only hears has been told.
        """
        self._button = self._node.create_publisher(Bool, "emergency_stop", LATEST)
        return self.trigger("emergency_stop")

    def reset_scene(self, seed: int, task: str) -> tuple[bool, str]:
        """Put yam_sim's scene back; return whether it did, and the new scene's seed and task, or why not.

        Raises:
            NoAnswerError: no yam_sim answers.
        """
        response = self._call(ResetScene, "yam_sim", "reset", ResetScene.Request(seed=seed, task=task))
        words = f"scene of seed {response.seed}: {response.instruction}" if response.success else response.message
        return response.success, words

    def _call(self, kind: type, node: str, name: str, request: Any) -> Any:
        service, deadline = self._node.resolve_service_name(f"{node}/{name}"), time.monotonic() + ANSWER_S
        client, sent = self._node.create_client(kind, service), None
        while sent is None or not sent.done():
            if time.monotonic() > deadline:
                domain = os.environ.get("ROS_DOMAIN_ID") or "0"
                what = f"no {node} answers" if sent is None else f"{node} is there, but does not answer"
                raise NoAnswerError(f"{what} on {service} in ROS domain {domain}, within {ANSWER_S:g} s")
            if sent is None and client.service_is_ready():
                sent = client.call_async(request)
            self._press(time.monotonic())
            self._executor.spin_once(timeout_sec=0.02)
        return sent.result()

    def _press(self, now_s: float) -> None:
        if self._button is not None and now_s - self._pressed_s >= _PRESS_EVERY_S:
            self._pressed_s = now_s
            self._button.publish(Bool(data=True))
