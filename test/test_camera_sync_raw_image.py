"""CDR bytes read by hand against rclpy's own serializer, in both byte orders, whole and cut."""

import array
import struct

import numpy as np
import pytest
from builtin_interfaces.msg import Time
from hypothesis import given, settings
from hypothesis import strategies as st
from rclpy.serialization import deserialize_message, serialize_message
from sensor_msgs.msg import CompressedImage, Image, JointState

from vag_policy.nodes.raw_image import (
    CdrError,
    JointStateReader,
    read_compressed_image,
    read_image,
    read_stamp,
)

texts = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=12)
stamps = st.tuples(st.integers(-(2**31), 2**31 - 1), st.integers(0, 999_999_999))
uints = st.integers(0, 2**32 - 1)
doubles = st.lists(st.floats(width=64), max_size=5)
MANY = settings(max_examples=150, deadline=None)


def with_header(message, stamp, frame_id):
    message.header.stamp = Time(sec=stamp[0], nanosec=stamp[1])
    message.header.frame_id = frame_id
    return message


def ns(stamp):
    return stamp[0] * 10**9 + stamp[1]


images = st.builds(
    lambda stamp, frame_id, h, w, encoding, big, step, data: with_header(
        Image(height=h, width=w, encoding=encoding, is_bigendian=big, step=step, data=array.array("B", data)),
        stamp,
        frame_id,
    ),
    stamps,
    texts,
    uints,
    uints,
    texts,
    st.integers(0, 255),
    uints,
    st.binary(max_size=40),
)
compressed = st.builds(
    lambda stamp, frame_id, label, data: with_header(
        CompressedImage(format=label, data=array.array("B", data)), stamp, frame_id
    ),
    stamps,
    texts,
    texts,
    st.binary(max_size=40),
)
joint_states = st.builds(
    lambda stamp, frame_id, names, position, velocity, effort: with_header(
        JointState(name=names, position=position, velocity=velocity, effort=effort), stamp, frame_id
    ),
    stamps,
    texts,
    st.lists(texts, max_size=5),
    doubles,
    doubles,
    doubles,
)


class BigEndian:
    """An encoder of its own: XCDR1, most significant byte first."""

    def __init__(self):
        self.body = b""

    def put(self, kind, *values):
        self.body += bytes(-len(self.body) % struct.calcsize(">" + kind))
        self.body += struct.pack(f">{len(values)}{kind}", *values)

    def text(self, value):
        raw = value.encode() + b"\0"
        self.put("I", len(raw))
        self.body += raw

    def header(self, message):
        self.put("i", message.header.stamp.sec)
        self.put("I", message.header.stamp.nanosec)
        self.text(message.header.frame_id)

    def octets(self, data):
        self.put("I", len(data))
        self.body += bytes(data)

    def bytes(self):
        return b"\x00\x00\x00\x00" + self.body


def big_endian(message):
    out = BigEndian()
    out.header(message)
    if isinstance(message, Image):
        out.put("I", message.height, message.width)
        out.text(message.encoding)
        out.put("B", message.is_bigendian)
        out.put("I", message.step)
        out.octets(message.data)
    elif isinstance(message, CompressedImage):
        out.text(message.format)
        out.octets(message.data)
    else:
        out.put("I", len(message.name))
        for name in message.name:
            out.text(name)
        for values in (message.position, message.velocity, message.effort):
            out.put("I", len(values))
            if values:
                out.put("d", *values)
    return out.bytes()


def check_image(read, message):
    frame = read.frame
    assert (read.stamp_ns, read.frame_id) == (
        ns((message.header.stamp.sec, message.header.stamp.nanosec)),
        message.header.frame_id,
    )
    assert bytes(frame.data) == bytes(message.data)
    if isinstance(message, Image):
        assert (frame.height, frame.width, frame.encoding, frame.step, frame.is_bigendian) == (
            message.height,
            message.width,
            message.encoding,
            message.step,
            bool(message.is_bigendian),
        )
    else:
        assert frame.format == message.format


def check_joints(read, message):
    assert read.stamp_ns == ns((message.header.stamp.sec, message.header.stamp.nanosec))
    assert read.names == tuple(message.name)
    assert np.array_equal(read.positions, np.array(message.position), equal_nan=True)


def reader_of(message):
    if isinstance(message, JointState):
        return JointStateReader().read, check_joints
    return (read_image if isinstance(message, Image) else read_compressed_image), check_image


@MANY
@given(message=st.one_of(images, compressed, joint_states))
def test_any_message_reads_as_it_was_written(message):
    read, check = reader_of(message)
    for buffer in (serialize_message(message), big_endian(message)):
        check(read(buffer), message)
        assert read_stamp(buffer, type(message)) == ns((message.header.stamp.sec, message.header.stamp.nanosec))
    # the encoder above is no wishful thinking: rclpy reads what it writes
    theirs = deserialize_message(big_endian(message), type(message))
    assert theirs.header == message.header


@MANY
@given(message=st.one_of(images, compressed, joint_states), data=st.data())
def test_a_cut_message_is_an_error_or_lost_only_padding(message, data):
    read, check = reader_of(message)
    for buffer in (serialize_message(message), big_endian(message)):
        cut = data.draw(st.integers(0, len(buffer) - 1))
        try:
            result = read(buffer[:cut])
        except CdrError as error:
            assert type(message).__name__ in str(error)
        else:
            check(result, message)
            assert cut >= len(buffer) - 16


@MANY
@given(message=st.one_of(images, compressed, joint_states), data=st.data())
def test_flipped_bytes_never_crash(message, data):
    read, _ = reader_of(message)
    buffer = bytearray(serialize_message(message))
    for _ in range(data.draw(st.integers(1, 4))):
        buffer[data.draw(st.integers(2, len(buffer) - 1))] = data.draw(st.integers(0, 255))
    try:
        result = read(bytes(buffer))
    except CdrError:
        return
    assert result is not None


@MANY
@given(buffer=st.binary(max_size=120))
def test_noise_never_crashes(buffer):
    for read in (read_image, read_compressed_image, JointStateReader().read, lambda b: read_stamp(b, Image)):
        try:
            read(buffer)
        except CdrError as error:
            assert str(error)


def test_the_pixels_are_a_view():
    message = with_header(Image(height=2, width=2, encoding="mono8", step=2), (5, 6), "camera")
    message.data = array.array("B", [1, 2, 3, 4])
    buffer = serialize_message(message)
    data = read_image(buffer).frame.data
    assert isinstance(data, memoryview) and data.obj is buffer


def test_bytes_after_the_message_are_an_error():
    message = with_header(Image(encoding="mono8"), (1, 0), "x")
    with pytest.raises(CdrError, match="Image: .* bytes too many"):
        read_image(serialize_message(message) + bytes(40))


def test_another_representation_goes_through_rclpy():
    for header in (b"\x00\x07\x00\x00", b"\x00\x03\x00\x00", b"\x12\x34\x00\x00"):
        buffer = header + serialize_message(with_header(Image(encoding="mono8"), (1, 0), "x"))[4:]
        try:
            theirs = deserialize_message(buffer, Image)
        except Exception:
            with pytest.raises(CdrError, match="Image: not readable as CDR"):
                read_image(buffer)
        else:
            check_image(read_image(buffer), theirs)


def test_known_names_are_not_confused_with_others():
    reader = JointStateReader()
    first = with_header(JointState(name=["a", "b"], position=[1.0, 2.0]), (1, 0), "")
    for names in (["a", "b"], ["b", "a"], ["a"], ["a", "b", "c"], [], ["a", "bb"], ["a", "b"]):
        message = with_header(JointState(name=names, position=[float(k) for k in range(len(names))]), (2, 0), "frame")
        check_joints(reader.read(serialize_message(message)), message)
        check_joints(reader.read(big_endian(first)), first)
    for k in range(100):  # more publishers than are remembered
        message = with_header(JointState(name=[f"j{k}"], position=[1.5]), (2, 0), "frame")
        check_joints(reader.read(serialize_message(message)), message)


def test_more_joints_than_any_robot_has_are_refused_unread():
    reader = JointStateReader()
    names = [f"joint_{k}" for k in range(1001)]
    with pytest.raises(CdrError, match="1001 joints are named, allowed: at most 1000"):
        reader.read(serialize_message(JointState(name=names, position=[0.0] * 1001)))
    assert len(reader.read(serialize_message(JointState(name=names[:1000], position=[0.0] * 1000))).names) == 1000
