"""The node one would write without vag_policy: the baseline of pipeline.py.

Typed subscriptions, approximate-time matching as Python's ``message_filters.ApproximateTimeSynchronizer`` does it
(not on PyPI), cv2 decode and area resize of every frame, the newest joint state, the same Observation message.
Choices a careful author makes are made in its favour: stamps as ints, joint states outside the synchroniser,
``array.array`` for the image, one OpenCV thread, no diagnostics.
"""

from __future__ import annotations

import argparse
import array
import itertools
import signal
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import cv2
import numpy as np
import rclpy
from builtin_interfaces.msg import Duration, Time
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from rclpy.qos import qos_profile_sensor_data
from rclpy.signals import SignalHandlerOptions
from sensor_msgs.msg import Image, JointState
from vag_interfaces.msg import Observation

CAMERAS = ("top", "left_wrist", "right_wrist")
JOINTS = tuple(f"{arm}_joint{number}" for arm in ("left", "right") for number in range(1, 8))
TILE = (224, 168)


def nanoseconds(stamp: Time) -> int:
    return stamp.sec * 1_000_000_000 + stamp.nanosec


class ApproximateTime:
    """Keeps a queue a topic; a new message is matched with the nearest ones of every other topic, within ``slop``."""

    def __init__(self, topics: int, queue_size: int, slop_ns: int, matched: Callable[[Sequence[Any]], None]) -> None:
        self._queues: list[dict[int, Any]] = [{} for _ in range(topics)]
        self._queue_size = queue_size
        self._slop = slop_ns
        self._matched = matched

    def add(self, topic: int, message: Any) -> None:
        stamp = nanoseconds(message.header.stamp)
        own = self._queues[topic]
        own[stamp] = message
        while len(own) > self._queue_size:
            del own[min(own)]
        candidates = []
        for other, queue in enumerate(self._queues):
            if other == topic:
                candidates.append([stamp])
                continue
            near = sorted((abs(at - stamp), at) for at in queue if abs(at - stamp) <= self._slop)
            if not near:
                return
            candidates.append([at for _, at in near])
        for stamps in itertools.product(*candidates):
            if max(stamps) - min(stamps) < self._slop:
                pairs = list(zip(self._queues, stamps, strict=True))
                self._matched([queue[at] for queue, at in pairs])
                for queue, at in pairs:
                    del queue[at]
                return


class BaselineSync(Node):
    def __init__(self) -> None:
        super().__init__("camera_sync")
        self._period = int(1e9 / rate) if (rate := self.declare_parameter("rate", 0.0).value) else 0
        self._last = 0
        self._joints = dict.fromkeys(JOINTS, 0.0)
        self._joint_stamp = Time()
        self._sync = ApproximateTime(len(CAMERAS), 10, 50_000_000, self.matched)
        self._observations = self.create_publisher(Observation, "observation", 1)
        self._inputs = [self.create_subscription(JointState, "joint_states", self.joints, qos_profile_sensor_data)]
        for index, name in enumerate(CAMERAS):
            add = partial(self._sync.add, index)
            self._inputs.append(self.create_subscription(Image, f"{name}/image_raw", add, qos_profile_sensor_data))

    def joints(self, message: JointState) -> None:
        self._joints.update(zip(message.name, message.position, strict=True))
        self._joint_stamp = message.header.stamp

    def matched(self, images: Sequence[Image]) -> None:
        tiles = []
        for image in images:
            pixels = np.frombuffer(image.data, np.uint8).reshape(image.height, image.step)
            pixels = pixels[:, : image.width * 3].reshape(image.height, image.width, 3)
            if image.encoding == "bgr8":
                pixels = cv2.cvtColor(pixels, cv2.COLOR_BGR2RGB)
            tiles.append(cv2.resize(pixels, TILE, interpolation=cv2.INTER_AREA))
        stacked = np.hstack(tiles)
        reference = nanoseconds(images[0].header.stamp)
        # nearest reference frame to a period, as a careful author would do it
        if self._period and reference - self._last < self._period - 16_000_000:
            return
        self._last = reference
        self.publish(images, stacked)

    def publish(self, images: Sequence[Image], stacked: np.ndarray) -> None:
        message = Observation(camera_names=list(CAMERAS), state_names=list(JOINTS))
        message.header = images[0].header
        message.image = Image(height=TILE[1], width=stacked.shape[1], encoding="rgb8", step=stacked.shape[1] * 3)
        message.image.header = images[0].header
        data = array.array("B")
        data.frombytes(memoryview(stacked).cast("B"))
        message.image.data = data
        message.state = array.array("f", [self._joints[name] for name in JOINTS])
        stamps = [image.header.stamp for image in images] + [self._joint_stamp]
        message.source_names = [*CAMERAS, "joint_states"]
        message.source_stamps = stamps
        reference = nanoseconds(images[0].header.stamp)
        ages = [reference - nanoseconds(stamp) for stamp in stamps]
        message.source_ages = [Duration(sec=age // 1_000_000_000, nanosec=age % 1_000_000_000) for age in ages]
        self._observations.publish(message)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.parse_known_args()  # the rest is ROS's: --ros-args -p rate:=10.0
    cv2.setNumThreads(1)
    rclpy.init(signal_handler_options=SignalHandlerOptions.NO)
    executor = SingleThreadedExecutor()
    executor.add_node(BaselineSync())
    stopping = []

    def stop(number: int, _frame: object) -> None:
        stopping.append(number)
        executor.wake()

    signal.signal(signal.SIGINT, stop)
    while not stopping:
        executor.spin_once()
    rclpy.try_shutdown()


if __name__ == "__main__":
    main()
