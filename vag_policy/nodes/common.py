"""What every node shares: QoS, loud subscriptions, 1 Hz diagnostics, and a main that stops cleanly."""

from __future__ import annotations

import faulthandler
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import rclpy
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus, KeyValue
from rclpy.clock import Clock, ClockType
from rclpy.event_handler import PublisherEventCallbacks, SubscriptionEventCallbacks
from rclpy.exceptions import NameValidationException, ParameterException
from rclpy.executors import Executor, ExternalShutdownException, SingleThreadedExecutor
from rclpy.node import Node
from rclpy.publisher import Publisher
from rclpy.qos import DurabilityPolicy, HistoryPolicy, QoSProfile, ReliabilityPolicy, qos_profile_sensor_data
from rclpy.qos_overriding_options import QoSOverridingOptions
from rclpy.signals import SignalHandlerOptions
from rclpy.subscription import Subscription

from vag_policy.entry import on_stop
from vag_policy.nodes.parameters import ParameterError
from vag_policy.nodes.repeats import Repeats
from vag_policy.nodes.ros_arguments import explain_parameter, explained

SENSOR = qos_profile_sensor_data
"""Cameras and joint_states: best effort, so a reliable or a best-effort publisher both match."""

LATEST = QoSProfile(depth=1, history=HistoryPolicy.KEEP_LAST, reliability=ReliabilityPolicy.RELIABLE)
"""Commands, chunks, traces: reliable, only the newest matters."""

LATCHED = QoSProfile(depth=1, reliability=ReliabilityPolicy.RELIABLE, durability=DurabilityPolicy.TRANSIENT_LOCAL)
"""Status and descriptions: a late joiner gets the last one."""

OK, WARN, ERROR, STALE = DiagnosticStatus.OK, DiagnosticStatus.WARN, DiagnosticStatus.ERROR, DiagnosticStatus.STALE

TAKE_DOWN_S = 10.0
"""Longest that taking a node down, and then the process, may take after its ``stop()``."""

Check = Callable[[], tuple[bytes, str, Mapping[str, Any]]]


def subscribe(
    node: Node, message_type: type, topic: str, callback: Callable[[Any], None], qos: QoSProfile, **options: Any
) -> Subscription:
    """Subscribe with QoS overrides allowed and an incompatible publisher logged by name instead of silence."""

    def incompatible(event: Any) -> None:
        node.get_logger().error(
            f"a publisher on '{node.resolve_topic_name(topic)}' offers an incompatible QoS "
            f"({event.last_policy_kind.name if hasattr(event.last_policy_kind, 'name') else event.last_policy_kind}): "
            "nothing will arrive from it; set qos_overrides or change the publisher"
        )

    with explained(topic):
        return node.create_subscription(
            message_type,
            topic,
            callback,
            qos,
            event_callbacks=SubscriptionEventCallbacks(incompatible_qos=incompatible),
            qos_overriding_options=QoSOverridingOptions.with_default_policies(),
            **options,
        )


def publisher(node: Node, message_type: type, topic: str, qos: QoSProfile, lifecycle: bool = False) -> Publisher:
    """Create a publisher with QoS overrides allowed and an incompatible subscriber logged.

    ``lifecycle``: one that publishes only while the (lifecycle) node is active.
    """

    def incompatible(event: Any) -> None:
        node.get_logger().warning(
            f"a subscriber of '{node.resolve_topic_name(topic)}' asks for a QoS that is not offered "
            f"(policy {event.last_policy_kind}): it will receive nothing"
        )

    create = node.create_lifecycle_publisher if lifecycle else node.create_publisher
    with explained(topic):
        return create(
            message_type,
            topic,
            qos,
            event_callbacks=PublisherEventCallbacks(incompatible_qos=incompatible),
            qos_overriding_options=QoSOverridingOptions.with_default_policies(),
        )


def steady_timer(node: Node, period_s: float, callback: Callable[[], None], **options: Any) -> Any:
    """A timer on the steady clock: it keeps running when ``/clock`` stops or jumps."""
    return node.create_timer(period_s, callback, clock=Clock(clock_type=ClockType.STEADY_TIME), **options)


class Diagnostics:
    """Publishes the node's checks on ``/diagnostics`` at 1 Hz, and logs when a check's level changes.

    A level that goes up and down is logged now and then, not every time.
    """

    def __init__(self, node: Node, hardware_id: str, checks: Mapping[str, Check]) -> None:
        self._node = node
        self._hardware_id = hardware_id
        self._checks = dict(checks)
        self._levels: dict[str, bytes] = {}
        self._repeats = Repeats()
        self._publisher = node.create_publisher(DiagnosticArray, "/diagnostics", 10)
        self._timer = steady_timer(node, 1.0, self.publish)

    def publish(self) -> None:
        """Run every check and publish the result now."""
        array = DiagnosticArray()
        array.header.stamp = self._node.get_clock().now().to_msg()
        for name, check in self._checks.items():
            level, message, values = check()
            pairs = [KeyValue(key=key, value=_text(value)) for key, value in values.items()]
            full_name = f"{self._node.get_fully_qualified_name().lstrip('/')}: {name}"
            array.status.append(
                DiagnosticStatus(
                    level=level, name=full_name, message=message, hardware_id=self._hardware_id, values=pairs
                )
            )
            self._log_edge(name, level, message)
        self._publisher.publish(array)

    def _log_edge(self, name: str, level: bytes, message: str) -> None:
        before = self._levels.get(name, OK)
        self._levels[name] = level
        text = self._repeats.filtered(f"{name}: {message}", time.monotonic_ns()) if level != before else ""
        if text and level == OK:
            self._node.get_logger().info(text)
        elif text:
            self._node.get_logger().warning(text)


def _text(value: Any) -> str:
    return f"{value:.3f}" if isinstance(value, float) else str(value)


def run(
    make_node: Callable[[], Node],
    args: Sequence[str] | None = None,
    make_executor: Callable[[], Executor] = SingleThreadedExecutor,
) -> int:
    """Bring a node up, spin it, and take it down: a stop signal first reaches the node, then the context.

    rclpy's own handler would invalidate the context before the node could send its last command, so signals are
    handled here: the node's ``stop()``, where it has one, still publishes. Returns the exit code: 0 after a signal,
    2 for a bad parameter or ROS argument (the reason goes to the log, not a traceback).
    """
    stopping: list[int] = []
    on_stop(stopping.append)
    node: Node | None = None
    executor: Executor | None = None
    try:
        with explained():
            rclpy.init(args=args, signal_handler_options=SignalHandlerOptions.NO)
        node = make_node()
        executor = make_executor()
        executor.add_node(node)
        while rclpy.ok() and not stopping:
            executor.spin_once(timeout_sec=0.1)
    except ExternalShutdownException:
        pass
    except (ParameterError, ParameterException, NameValidationException) as error:
        reason = explain_parameter(error) if isinstance(error, ParameterException) else str(error)
        rclpy.logging.get_logger(node.get_name() if node else Path(sys.argv[0]).stem).fatal(reason)
        return 2
    finally:
        if node is not None:
            if hasattr(node, "stop"):
                node.stop()
            if executor is not None:
                executor.shutdown()
            _end_by_force_later()
            node.destroy_node()
        rclpy.try_shutdown()
        faulthandler.cancel_dump_traceback_later()
    return 0


def _end_by_force_later() -> None:
    """End the process, with exit code 1 and a dump of where it hangs, if the middleware does not let it go.

    Shared-memory transports keep locks in memory that a process killed at the wrong moment leaves locked for good; who
    waits for one holds the interpreter's lock, too, so that nothing written in Python could step in.
    """
    faulthandler.dump_traceback_later(TAKE_DOWN_S, exit=True)


def main_of(make_node: Callable[[], Node], **options: Any) -> Callable[[], None]:
    """A console script's ``main`` for ``make_node``."""

    def main() -> None:
        code = run(make_node, **options)
        _end_by_force_later()
        sys.exit(code)

    return main
