"""Subscriptions that look at a message's size before they take it apart."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rclpy.node import Node
from rclpy.qos import QoSProfile
from rclpy.serialization import deserialize_message
from rclpy.subscription import Subscription

from vag_policy.nodes.common import subscribe


def subscribe_bounded(
    node: Node,
    message_type: type,
    topic: str,
    callback: Callable[[Any], None],
    qos: QoSProfile,
    limit: int,
    refuse: Callable[[str], None],
) -> Subscription:
    """Like ``subscribe``, for messages that anyone may send: they must not keep the node from its work.

    Args:
        node: whose subscription it is.
        message_type: of the topic.
        topic: its name.
        callback: gets the messages.
        qos: see ``subscribe``.
        limit: bytes of a serialised message; one with more is not taken apart.
        refuse: gets the reason, for a message that is too large or no message of that type.
    """

    def received(data: bytes) -> None:
        message = None
        if len(data) > limit:
            refuse(f"a message of {len(data)} bytes on '{topic}', allowed: {limit}")
            return
        try:
            message = deserialize_message(data, message_type)
        except Exception as error:  # whatever the middleware throws
            refuse(f"a message on '{topic}' that is no {message_type.__name__}: {error}")
        if message is not None:
            callback(message)

    return subscribe(node, message_type, topic, received, qos, raw=True)
