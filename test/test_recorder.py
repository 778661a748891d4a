"""The recorder node and the bag writer: what goes in comes back."""

import contextlib
import os
import re
import resource
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import rclpy
from rclpy.parameter import Parameter
from rclpy.qos import DurabilityPolicy, QoSProfile, qos_profile_sensor_data
from rclpy.serialization import serialize_message
from ros_process import PATIENCE_S, claim_domain
from rosbags.highlevel import AnyReader
from rosbags.rosbag2 import Reader
from rosbags.typesys import Stores, get_typestore
from sensor_msgs.msg import Image
from std_msgs.msg import String
from vag_interfaces.msg import TemporalRatio

from vag_policy.data.bag_writer import BagError, BagWriter, TopicQos, add_type
from vag_policy.nodes.common import ERROR, OK
from vag_policy.nodes.messages import image_to_msg
from vag_policy.nodes.recorder_node import Recorder

DOMAIN = claim_domain()


def test_a_bag_is_not_overwritten_and_unknown_types_are_named(tmp_path):
    with BagWriter(tmp_path / "bag") as bag, pytest.raises(BagError, match="package 'nowhere_msgs'"):
        bag.add_topic("/x", "nowhere_msgs/msg/Thing", TopicQos())
    with pytest.raises(BagError, match="exists already"):
        BagWriter(tmp_path / "bag")


@contextlib.contextmanager
def longest_file(size: int):
    """No file of this process can grow beyond ``size`` bytes: the kernel fails the write, as it does on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def messages_of(bag):
    with AnyReader([bag]) as reader:
        messages = [
            (connection.topic, stamp, bytes(reader.deserialize(raw, connection.msgtype).data))
            for connection, stamp, raw in reader.messages()
        ]
        assert sum(c.msgcount for c in reader.connections) == len(messages)
    return messages


@pytest.mark.parametrize("size", [0, 400, 300_000, 1_200_000, 2_300_000, 3_333_333])
def test_a_bag_that_cannot_grow_ends_whole_with_what_was_written_before(size, tmp_path):
    noise = np.random.default_rng(size)
    pictures = [image_to_msg(noise.integers(0, 256, (100, 1000, 3), np.uint8), i, "top") for i in range(16)]
    refused = 0
    with BagWriter(tmp_path / "bag") as bag:
        bag.add_topic("/top", "sensor_msgs/msg/Image", TopicQos())
        bag.add_topic("/never", "std_msgs/msg/String", TopicQos())
        with longest_file(size):
            for i, picture in enumerate(pictures):
                try:
                    bag.write("/top", i, serialize_message(picture))
                except BagError as error:
                    refused += 1
                    assert re.fullmatch(f"the bag {tmp_path}/bag ended early: File too large.*", str(error))
        kept = bag.counts["/top"]
    assert refused and bag.ended
    if "no metadata" in bag.ended:  # not even the little that remained after the cut could be written
        assert size < 10_000
        return
    assert [m[:2] for m in messages_of(tmp_path / "bag")] == [("/top", i) for i in range(kept)]
    assert all(m[2] == bytes(p.data) for m, p in zip(messages_of(tmp_path / "bag"), pictures, strict=False))
    assert kept * 300_000 > size - 1_800_000, "no more than the last chunk is lost"


def test_a_bag_leaves_space_on_its_disk(tmp_path):
    with BagWriter(tmp_path / "bag", least_free=0) as bag:
        bag.add_topic("/x", "std_msgs/msg/String", TopicQos())
        bag.write("/x", 1, serialize_message(String(data="a" * 1000)))
        bag._least_free = 1 << 60
        for _ in range(2):
            with pytest.raises(BagError, match=r"bag ended early: only [\d.]+ MB free, [\d.]+ MB are kept"):
                bag.write("/x", 2, serialize_message(String(data="a" * 1_100_000)))
    with pytest.raises(BagError, match=r"cannot write a bag to .*/second: only [\d.]+ MB free"):
        BagWriter(tmp_path / "second", least_free=1 << 60).__enter__()
    assert not (tmp_path / "second").exists()


def test_a_recorder_outlives_its_bag_and_reports_an_error(tmp_path):
    context = rclpy.Context()
    rclpy.init(context=context, domain_id=DOMAIN)
    output = Parameter("output", value=str(tmp_path / "bag"))
    node = Recorder(context=context, parameter_overrides=[output, Parameter("topics", value=["/x"])])
    try:
        node.create_publisher(String, "/x", 1)
        deadline = time.monotonic() + PATIENCE_S
        while not node._recorded:  # the graph knows of the publisher a moment later
            assert time.monotonic() < deadline
            node._discover()
        assert node._check()[0] == OK
        node._bag._least_free = 1 << 60
        for _ in range(3):
            node._write("/x", serialize_message(String(data="a" * 1_100_000)))
        level, message, values = node._check()
        assert level == ERROR and re.match(f"the bag {tmp_path}/bag ended early: only .* MB free", message)
        assert values["messages"] == 0
        node._discover()
        assert not node._recorded
        node.stop()
    finally:
        node.destroy_node()
        rclpy.shutdown(context=context)
    assert messages_of(tmp_path / "bag") == []


@pytest.mark.parametrize(
    ("where", "why"),
    [("file/below", "Not a directory"), ("file", "exists already"), ("x" * 300, "File name too long")],
)
def test_an_impossible_place_for_a_bag_is_named(where, why, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(BagError, match=f"{tmp_path}/{where}.*{why}"):
        BagWriter(tmp_path / where).__enter__()


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
