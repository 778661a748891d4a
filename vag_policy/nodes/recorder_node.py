"""recorder: everything the graph says, into an MCAP bag; for places where ``ros2 bag record`` is missing."""

from __future__ import annotations

import fnmatch
import importlib
from pathlib import Path
from typing import Any

from rclpy.node import Node
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy
from rclpy.subscription import Subscription

from vag_policy.data.bag_writer import BagError, BagWriter, TopicQos
from vag_policy.nodes.common import ERROR, OK, WARN, Diagnostics, main_of, steady_timer
from vag_policy.nodes.parameters import Param, ParameterError, declare

PARAMETERS = (
    Param("output", "", "folder of the bag to write; it must not exist"),
    Param("topics", ("*",), "topics to record, as full names or shell patterns"),
    # Hidden topics (a name that starts with _, as an action's have) are left out as ros2 bag leaves them out.
    Param("exclude", ("/rosout", "/parameter_events", "*/_*"), "topics to leave out, as full names or shell patterns"),
)


class Recorder(Node):
    """Subscribes to every matching topic as it appears and writes its messages undecoded."""

    def __init__(self, **options: Any) -> None:
        super().__init__("recorder", **options)
        values = declare(self, PARAMETERS)
        if not values["output"]:
            raise ParameterError("parameter 'output' must name the folder of the bag to write")
        self._topics, self._exclude = values["topics"], values["exclude"]
        self._refused: set[str] = set()
        self._recorded: list[Subscription] = []
        try:
            self._bag = BagWriter(Path(values["output"]), {"recorded_by": "vag_policy"}).__enter__()
        except BagError as error:
            raise ParameterError(str(error)) from error
        self._discovery = steady_timer(self, 0.25, self._discover)
        self._diagnostics = Diagnostics(self, "recorder", {"bag": self._check})

    def _discover(self) -> None:
        if self._bag.ended:
            while self._recorded:
                self.destroy_subscription(self._recorded.pop())
            return
        for topic, types in self.get_topic_names_and_types():
            matched = any(fnmatch.fnmatch(topic, pattern) for pattern in self._topics)
            left_out = any(fnmatch.fnmatch(topic, pattern) for pattern in self._exclude)
            if matched and not left_out and topic not in self._bag.counts and topic not in self._refused:
                self._record(topic, types)

    def _record(self, topic: str, types: list[str]) -> None:
        offered = [info.qos_profile for info in self.get_publishers_info_by_topic(topic)]
        if not offered:
            return
        # Ask for no more than every publisher offers, or nothing arrives.
        reliable = all(qos.reliability == ReliabilityPolicy.RELIABLE for qos in offered)
        latched = all(qos.durability == DurabilityPolicy.TRANSIENT_LOCAL for qos in offered)
        try:
            if len(types) != 1:
                raise BagError(f"topic '{topic}' has several types: {', '.join(types)}")
            message_class = _message_class(types[0])
            self._bag.add_topic(topic, types[0], TopicQos(reliable, latched))
        except (BagError, AttributeError, ModuleNotFoundError, ValueError) as error:
            self._refused.add(topic)
            self.get_logger().error(f"not recording '{topic}': {error}")
            return
        profile = QoSProfile(
            depth=100,
            reliability=ReliabilityPolicy.RELIABLE if reliable else ReliabilityPolicy.BEST_EFFORT,
            durability=DurabilityPolicy.TRANSIENT_LOCAL if latched else DurabilityPolicy.VOLATILE,
        )
        subscription = self.create_subscription(
            message_class, topic, lambda raw: self._write(topic, raw), profile, raw=True
        )
        self._recorded.append(subscription)

    def _write(self, topic: str, raw: bytes) -> None:
        if self._bag.ended:
            return
        try:
            self._bag.write(topic, self.get_clock().now().nanoseconds, raw)
        except BagError as error:
            self.get_logger().error(str(error))

    def _check(self) -> tuple[bytes, str, dict[str, Any]]:
        counts = self._bag.counts
        values = {"topics": len(counts), "messages": sum(counts.values()), "refused": ", ".join(sorted(self._refused))}
        if self._bag.ended:
            return ERROR, self._bag.ended, values
        if self._refused:
            return WARN, f"not recorded: {values['refused']}", values
        return OK, f"{values['messages']} messages of {values['topics']} topics", values

    def stop(self) -> None:
        """Finish the bag: index and metadata."""
        try:
            self._bag.close()
        except BagError as error:
            self.get_logger().error(str(error))


def _message_class(message_type: str) -> type:
    package, _, name = message_type.partition("/msg/")
    return getattr(importlib.import_module(f"{package}.msg"), name)


main = main_of(Recorder)

if __name__ == "__main__":
    main()
