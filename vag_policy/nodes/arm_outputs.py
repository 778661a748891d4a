"""Joint commands as the messages that a rig's drivers take: built once, only their numbers change."""

from __future__ import annotations

import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rclpy.node import Node
from rclpy.publisher import Publisher
from std_msgs.msg import Float64MultiArray, MultiArrayDimension
from trajectory_msgs.msg import JointTrajectory, JointTrajectoryPoint

from vag_policy.nodes.common import LATEST, publisher
from vag_policy.nodes.messages import duration_from_ns

INTERFACES = ("trajectory", "forward")


@dataclass(frozen=True)
class OutputConfig:
    """What the drivers expect.

    Attributes:
        interface: ``trajectory`` (JointTrajectory of one point) or ``forward`` (Float64MultiArray).
        gripper_in_arm: the gripper is the last joint of its arm's message, rather than a message of its own.
        time_from_start_ns: when the point is to be reached; more than 0, or a controller finds it in the past.
    """

    interface: str
    gripper_in_arm: bool
    time_from_start_ns: int


class ArmOutputs:
    """Publishers for all arms.

    Args:
        node: whose publishers they are.
        arms: per arm, the places of its joints in a command, the gripper last.
        names: the drivers' names of all joints.
        config: what the drivers expect.
    """

    def __init__(self, node: Node, arms: dict[str, Sequence[int]], names: Sequence[str], config: OutputConfig) -> None:
        self._outputs: list[_Output] = []
        for arm, places in arms.items():
            parts = {"arm": places} if config.gripper_in_arm else {"arm": places[:-1], "gripper": places[-1:]}
            for part, of_part in parts.items():
                self._outputs.append(_Output(node, _topic(arm, part, config), of_part, names, config))

    @property
    def publishers(self) -> list[Publisher]:
        """Every publisher, for those who want to know who listens."""
        return [output.publisher for output in self._outputs]

    def publish(self, command: NDArray[np.float64]) -> None:
        """Send a command (N,) in the drivers' units."""
        for output in self._outputs:
            output.publish(command)


def _topic(arm: str, part: str, config: OutputConfig) -> str:
    if config.interface == "trajectory":
        return f"{arm}_{part}_controller/joint_trajectory"
    return f"{arm}_forward_controller/commands" if part == "arm" else f"{arm}_gripper_controller/commands"


class _Output:
    def __init__(
        self, node: Node, topic: str, places: Sequence[int], names: Sequence[str], config: OutputConfig
    ) -> None:
        self._places = np.array(places, np.intp)
        numbers = array.array("d", bytes(8 * len(places)))
        joints = [names[place] for place in places]
        self._message: Any
        if config.interface == "trajectory":
            # The header's stamp stays 0: "now", whatever the controller's clock says.
            point = JointTrajectoryPoint(positions=numbers, time_from_start=duration_from_ns(config.time_from_start_ns))
            self._message = JointTrajectory(joint_names=joints, points=[point])
            numbers = point.positions
        else:
            self._message = Float64MultiArray(data=numbers)
            self._message.layout.dim = [MultiArrayDimension(label=",".join(joints), size=len(joints), stride=1)]
            numbers = self._message.data
        self._numbers = np.frombuffer(numbers, np.float64)  # a view: writing here fills the message
        self.publisher = publisher(node, type(self._message), topic, LATEST)

    def publish(self, command: NDArray[np.float64]) -> None:
        self._numbers[:] = command[self._places]
        self.publisher.publish(self._message)
