"""The recorder node and the bag writer: what goes in comes back."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import rclpy
from rclpy.qos import DurabilityPolicy, QoSProfile, qos_profile_sensor_data
from ros_process import claim_domain
from rosbags.highlevel import AnyReader
from rosbags.rosbag2 import Reader
from rosbags.typesys import Stores, get_typestore
from sensor_msgs.msg import Image
from std_msgs.msg import String
from vag_interfaces.msg import TemporalRatio

from vag_policy.data.bag_writer import BagError, BagWriter, TopicQos, add_type
from vag_policy.nodes.messages import image_to_msg

DOMAIN = claim_domain()


def test_a_bag_is_not_overwritten_and_unknown_types_are_named(tmp_path):
    with BagWriter(tmp_path / "bag") as bag, pytest.raises(BagError, match="package 'nowhere_msgs'"):
        bag.add_topic("/x", "nowhere_msgs/msg/Thing", TopicQos())
    with pytest.raises(BagError, match="exists already"):
        BagWriter(tmp_path / "bag")


def test_types_are_registered_with_everything_they_are_made_of():
    store = get_typestore(Stores.EMPTY)
    add_type(store, "vag_interfaces/msg/Observation")
    assert {"sensor_msgs/msg/Image", "std_msgs/msg/Header", "builtin_interfaces/msg/Time"} <= set(store.fielddefs)


def test_recorder_process_records_every_kind_of_publisher(tmp_path):
    environment = {**os.environ, "ROS_DOMAIN_ID": str(DOMAIN)}
    environment.pop("_ROS_WHEELS_BOOTSTRAP_COMPLETE", None)
    bag = tmp_path / "bag"
    recorder = subprocess.Popen(
        [sys.executable, "-m", "vag_policy.nodes.recorder_node", "--ros-args", "-p", f"output:={bag}"], env=environment
    )
    context = rclpy.Context()
    rclpy.init(context=context, domain_id=DOMAIN)
    node = rclpy.create_node("talker", context=context)
    try:
        latched = QoSProfile(depth=1, durability=DurabilityPolicy.TRANSIENT_LOCAL)
        description = node.create_publisher(String, "robot_description", latched)
        camera = node.create_publisher(Image, "top/image_raw", qos_profile_sensor_data)
        ratio = node.create_publisher(TemporalRatio, "temporal_ratio", 10)
        description.publish(String(data="<robot/>"))
        deadline = time.monotonic() + 20
        while camera.get_subscription_count() == 0 or ratio.get_subscription_count() == 0:
            assert time.monotonic() < deadline and recorder.poll() is None
            time.sleep(0.05)
        pixels = np.arange(4 * 6 * 3, dtype=np.uint8).reshape(4, 6, 3)
        for i in range(10):
            camera.publish(image_to_msg(pixels, 1_000 + i, "top_camera_optical_frame"))
            ratio.publish(TemporalRatio(ratio=0.1 * i))
            time.sleep(0.03)
        time.sleep(0.3)
    finally:
        recorder.send_signal(signal.SIGINT)
        code = recorder.wait(10)
        node.destroy_node()
        rclpy.shutdown(context=context)
    assert code == 0
    with AnyReader([bag]) as reader:
        got = {}
        for connection, _, raw in reader.messages():
            got.setdefault(connection.topic, []).append(reader.deserialize(raw, connection.msgtype))
    assert len(got["/top/image_raw"]) == 10 and len(got["/temporal_ratio"]) == 10
    assert bytes(got["/top/image_raw"][3].data) == pixels.tobytes()
    assert got["/temporal_ratio"][4].ratio == pytest.approx(0.4)
    assert got["/robot_description"][0].data == "<robot/>"
    with Reader(bag) as reader:
        qos = {c.topic: c.ext.offered_qos_profiles[0] for c in reader.connections}
    assert qos["/robot_description"].durability.name == "TRANSIENT_LOCAL"
    assert qos["/top/image_raw"].reliability.name == "BEST_EFFORT"
