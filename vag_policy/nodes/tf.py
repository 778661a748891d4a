"""The frames of a robot tree on /tf and /tf_static, from joint positions by name.

What robot_state_publisher does, for places that have none.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from geometry_msgs.msg import TransformStamped
from rclpy.node import Node
from rclpy.qos import DurabilityPolicy, QoSProfile
from tf2_msgs.msg import TFMessage

from vag_policy.nodes.messages import stamp_from_ns
from vag_policy.robots.yam_parts import Joint, Tree, quaternion_from_rotation, rotation_from_rpy

Quaternion = tuple[float, float, float, float]
_STATIC = QoSProfile(depth=1, durability=DurabilityPolicy.TRANSIENT_LOCAL)


class FrameBroadcaster:
    """Publishes ``tree``'s fixed joints once and the moving ones whenever told where they are."""

    def __init__(self, node: Node, tree: Tree) -> None:
        self._moving = [(joint, _transform_of(joint)) for joint in tree.joints if joint.kind != "fixed"]
        self._message = TFMessage(transforms=[transform for _, transform in self._moving])
        self._publisher = node.create_publisher(TFMessage, "/tf", 100)
        self._static_publisher = node.create_publisher(TFMessage, "/tf_static", _STATIC)
        fixed = [_transform_of(joint) for joint in tree.joints if joint.kind == "fixed"]
        stamp = node.get_clock().now().to_msg()
        for transform in fixed:
            transform.header.stamp = stamp
        self._static_publisher.publish(TFMessage(transforms=fixed))

    def publish(self, positions: Mapping[str, float], stamp_ns: int) -> None:
        """Publish where every moving joint's child is; ``positions`` in rad and metres, by joint name.

        Raises:
            KeyError: a joint of the tree is missing.
        """
        stamp = stamp_from_ns(stamp_ns)
        for joint, transform in self._moving:
            transform.header.stamp = stamp
            _move(transform, joint, positions[joint.mimic or joint.name])
        self._publisher.publish(self._message)


def _transform_of(joint: Joint) -> TransformStamped:
    transform = TransformStamped(child_frame_id=joint.child)
    transform.header.frame_id = joint.parent
    _move(transform, joint, 0.0)
    return transform


def _move(transform: TransformStamped, joint: Joint, position: float) -> None:
    """Plain floats: a 4x4 product and an eigenvector for each joint would cost more than the simulation."""
    place, turn = transform.transform.translation, transform.transform.rotation
    origin = _origin(joint)
    x, y, z = joint.xyz
    if joint.kind == "revolute":
        half = math.sin(position / 2)
        ax, ay, az = joint.axis
        origin = _product(origin, (math.cos(position / 2), ax * half, ay * half, az * half))
    elif joint.kind == "prismatic":
        dx, dy, dz = (position * a for a in joint.axis)
        _, rx, ry, rz = _product(_product(origin, (0.0, dx, dy, dz)), _conjugate(origin))
        x, y, z = x + rx, y + ry, z + rz
    place.x, place.y, place.z = float(x), float(y), float(z)
    turn.w, turn.x, turn.y, turn.z = origin


def _origin(joint: Joint) -> Quaternion:
    if joint.rpy == (0.0, 0.0, 0.0):
        return 1.0, 0.0, 0.0, 0.0
    w, x, y, z = (float(value) for value in quaternion_from_rotation(rotation_from_rpy(joint.rpy)))
    return w, x, y, z


def _product(a: Quaternion, b: Quaternion) -> Quaternion:
    aw, ax, ay, az = a
    bw, bx, by, bz = b
    return (
        aw * bw - ax * bx - ay * by - az * bz,
        aw * bx + ax * bw + ay * bz - az * by,
        aw * by - ax * bz + ay * bw + az * bx,
        aw * bz + ax * by - ay * bx + az * bw,
    )


def _conjugate(q: Quaternion) -> Quaternion:
    return q[0], -q[1], -q[2], -q[3]
