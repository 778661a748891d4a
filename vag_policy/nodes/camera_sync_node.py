"""camera_sync: camera frames and joint states in, one Observation for each reference frame (or at ``rate``) out.

Messages are taken as bytes, and only the frames of a match are ever decoded. What belongs together, and how long it
waits, is in ``observation/synchronizer.py``.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray
from rclpy.node import Node
from rclpy.qos import QoSProfile, ReliabilityPolicy
from rclpy.subscription import Subscription
from sensor_msgs.msg import CompressedImage, Image, JointState
from vag_interfaces.msg import Observation as ObservationMsg

from vag_policy.milestones import OBSERVING
from vag_policy.nodes.camera_sync_diagnostics import OutcomeCheck, Report, StreamCheck
from vag_policy.nodes.camera_sync_parameters import PARAMETERS, gripper_columns, stack_config, sync_config
from vag_policy.nodes.common import LATEST, SENSOR, Diagnostics, main_of, publisher, steady_timer, subscribe
from vag_policy.nodes.gate import Gate, take
from vag_policy.nodes.messages import observation_to_msg
from vag_policy.nodes.parameters import declare
from vag_policy.nodes.raw_image import CdrError, JointStateReader, read_compressed_image, read_image, read_stamp
from vag_policy.nodes.scheduling import ask_for_short_slices
from vag_policy.observation.assembly import Assembler
from vag_policy.observation.image_codec import ImageError
from vag_policy.observation.observation import JOINT_SOURCE
from vag_policy.observation.synchronizer import Match, Synchronizer
from vag_policy.robots.yam import gripper_from_metres

Offer = Callable[[bytes], None]

# The queues must hold what arrives between two polls: 100 Hz cameras, 1 kHz joint states.
_POLL_NS = 80_000_000
_CAMERA_QOS = QoSProfile(depth=10, reliability=ReliabilityPolicy.BEST_EFFORT)
_JOINT_QOS = QoSProfile(depth=128, reliability=ReliabilityPolicy.BEST_EFFORT)


@dataclass
class _Source:
    """A camera or the joint states. Until something is heard, its gate stays open so that QoS events are seen."""

    name: str
    subscription: Subscription
    gate: Gate
    offer: Offer
    heard: bool = False


class CameraSyncNode(Node):
    """Wires topics to the synchroniser."""

    def __init__(self) -> None:
        super().__init__("camera_sync")
        # A resize takes a millisecond: OpenCV's worker threads would burn more CPU waiting for the next one.
        cv2.setNumThreads(1)
        values = declare(self, PARAMETERS)
        self._sync = Synchronizer(sync_config(values))
        self._grippers = gripper_columns(values)
        self._stroke: float = values["gripper_stroke"]
        self._read = read_image if values["transport"] == "raw" else read_compressed_image
        self._assembler = Assembler(
            stack_config(values), values["joints"], lambda message: self._read(message).frame, self._to_state
        )
        self._joint_reader = JointStateReader()
        self._published = self._unreadable = self._resets = 0
        self._clock_ns = 0
        self._image_problem = ""
        self._last_jump_log = 0

        self._observations = publisher(self, ObservationMsg, "observation", LATEST)
        self._stacked = publisher(self, Image, "stacked/image", SENSOR)
        self._sources: dict[str, _Source] = {}
        image_type, suffix = (Image, "") if values["transport"] == "raw" else (CompressedImage, "/compressed")
        for name in values["cameras"]:
            self._add_source(name, image_type, f"{name}/image_raw{suffix}", _CAMERA_QOS, partial(self._offer, name))
        self._add_source(JOINT_SOURCE, JointState, JOINT_SOURCE, _JOINT_QOS, self._offer_joints)
        self._timer = steady_timer(self, _POLL_NS / 1e9, self._advance)
        self._diagnostics = Diagnostics(self, "cameras", self._checks())

    def _add_source(self, name: str, kind: type, topic: str, qos: QoSProfile, offer: Offer) -> None:
        gate = Gate()

        def received(message: bytes) -> None:
            self._clock_ns = self.get_clock().now().nanoseconds
            self._accept(source, message)
            self._advance()

        source = _Source(name, subscribe(self, kind, topic, received, qos, raw=True, callback_group=gate), gate, offer)
        self._sources[name] = source

    def _accept(self, source: _Source, message: bytes) -> None:
        source.heard = True
        try:
            source.offer(message)
        except CdrError as error:
            self._sync.refuse(source.name, str(error))
            self.get_logger().error(f"{source.name}: dropped a message: {error}", throttle_duration_sec=10.0)

    def _offer(self, camera: str, message: bytes) -> None:
        content = None
        if self._sync.config.frozen_ns:
            # some of the pixels, past the header: about a thousand bytes tell two pictures of a real sensor apart
            content = hash(message[64 :: max(1, len(message) // 1024)])
        stamp_ns = read_stamp(message, Image)
        self._sync.offer(camera, stamp_ns, message, time.monotonic_ns(), content, self._clock_ns)

    def _offer_joints(self, message: bytes) -> None:
        joints = self._joint_reader.read(message)
        now_ns = time.monotonic_ns()
        self._sync.offer_joints(joints.names, joints.stamp_ns, joints.positions, now_ns, self._clock_ns)

    def _advance(self) -> None:
        """Take what is queued, publish what matches, and decide what to wake up for next."""
        self._clock_ns = self.get_clock().now().nanoseconds
        for source in self._sources.values():
            while (message := take(source.subscription)) is not None:
                self._accept(source, message)
        if self._sync.resets != self._resets:
            self._log_jump()
        now = time.monotonic_ns()
        while (match := self._sync.match(now, self._clock_ns)) is not None:
            self._publish(match)
        if self._sync.waiting:
            for camera, stamp, message in self._sync.settled():
                self._assembler.prepare(camera, stamp, message)
        self._set_gates(time.monotonic_ns())

    def _set_gates(self, now: int) -> None:
        idle_until, deadline = self._sync.idle_until_ns, self._sync.deadline_ns
        for name, source in self._sources.items():
            source.gate.open = name in self._sync.waiting or not source.heard
        self._sources[self._sync.config.reference].gate.open = now >= idle_until
        wake = now + _POLL_NS
        if idle_until > now:
            wake = min(wake, idle_until)
        if deadline is not None:
            wake = min(wake, deadline)
        self._timer.timer_period_ns = max(wake - now, 500_000)
        self._timer.reset()

    def _publish(self, match: Match) -> None:
        reference = self._sync.config.reference
        try:
            observation = self._assembler.assemble(match)
            frame_id = self._read(match.frames[reference]).frame_id or f"{reference}_camera_optical_frame"
        except (CdrError, ImageError) as error:
            self._unreadable += 1
            self._image_problem = str(error)
            return
        message = observation_to_msg(observation, frame_id)
        self._observations.publish(message)
        if self._stacked.get_subscription_count():
            self._stacked.publish(message.image)
        if not self._published:
            self.get_logger().info(OBSERVING)
        self._published += 1
        self._image_problem = ""

    def _to_state(self, positions: NDArray[np.float64]) -> NDArray[np.float64]:
        state = positions.copy()
        state[self._grippers] = gripper_from_metres(positions[self._grippers], self._stroke)
        return state

    def _log_jump(self) -> None:
        """Say so once: every stream of a bag that loops jumps, within a moment."""
        self._resets, jump = self._sync.resets, self._sync.last_jump
        now = time.monotonic_ns()
        if jump is not None and now - self._last_jump_log > 1_000_000_000:
            self.get_logger().warning(
                f"stamps of {jump.stream} went back from {jump.from_ns / 1e9:.3f} to {jump.to_ns / 1e9:.3f} s: "
                "forgot every frame and joint position, starting anew"
            )
        self._last_jump_log = now

    def _checks(self) -> dict[str, Callable[[], Report]]:
        outcome = OutcomeCheck(self._sync)
        checks: dict[str, Callable[[], Report]] = {
            "observations": lambda: outcome.report(self._published, self._unreadable, self._image_problem)
        }
        for index, (name, source) in enumerate(self._sources.items()):
            topic = source.subscription.topic_name
            check = StreamCheck(topic, partial(self.count_publishers, topic), self._sync.config.joints)
            checks[name] = partial(self._stream_report, check, index)
        return checks

    def _stream_report(self, check: StreamCheck, index: int) -> Any:
        return check.report(self._sync.status(time.monotonic_ns())[index])


def main() -> None:
    """Run the node."""
    ask_for_short_slices()  # before anything starts a thread
    main_of(CameraSyncNode)()


if __name__ == "__main__":
    main()
