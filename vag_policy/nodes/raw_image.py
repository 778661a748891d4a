"""Read what camera_sync needs straight from a message's CDR bytes, without building the message.

A serialized Image becomes a stamp at once and, if its frame is used, an ``RawFrame`` whose data is a view on the bytes.
Layouts are those of XCDR1, both byte orders (OMG DDS-XTypes 7.4.1), which every rmw writes for these types; anything
else goes through rclpy's own deserializer.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from rclpy.serialization import deserialize_message
from sensor_msgs.msg import CompressedImage, Image, JointState

from vag_policy.nodes.messages import ns_from_stamp
from vag_policy.observation.image_codec import CompressedFrame, RawFrame

_KNOWN = 16  # publishers on one topic
_NAMES = 1000  # joints of a message; reading more would keep the cameras waiting
_PADDING = 15
_BODY = 4  # the encapsulation header; alignment counts from behind it
_ORDER = {b"\x00\x00": ">", b"\x00\x01": "<"}  # CDR_BE, CDR_LE
_STAMP = {order: struct.Struct(order + "iI") for order in "<>"}
_UINT = {order: struct.Struct(order + "I") for order in "<>"}


class CdrError(ValueError):
    """Bytes that are not the message they are said to be."""


@dataclass(frozen=True, slots=True)
class CameraFrame:
    """A camera message, its pixels still encoded."""

    stamp_ns: int
    frame_id: str
    frame: RawFrame | CompressedFrame


@dataclass(frozen=True, slots=True)
class JointPositions:
    """A joint-state message's names and positions; ``positions`` may be a read-only view on the bytes."""

    stamp_ns: int
    names: tuple[str, ...]
    positions: NDArray[np.float64]


class _Reader:
    """A cursor over a CDR body that never leaves the buffer."""

    def __init__(self, buffer: bytes, what: str) -> None:
        self.order = _ORDER[buffer[:2]]
        self._buffer = buffer
        self._what = what
        self.at = _BODY

    def take(self, count: int, align: int) -> int:
        """Offset of the next ``count`` bytes, which the cursor passes."""
        start = self.at + (_BODY - self.at) % align
        self.at = start + count
        if self.at > len(self._buffer):
            raise CdrError(f"{self._what}: {len(self._buffer)} bytes are too few (truncated)")
        return start

    def uint(self) -> int:
        return _UINT[self.order].unpack_from(self._buffer, self.take(4, 4))[0]

    def byte(self) -> int:
        return self._buffer[self.take(1, 1)]

    def stamp(self) -> int:
        seconds, nanoseconds = _STAMP[self.order].unpack_from(self._buffer, self.take(8, 4))
        return seconds * 1_000_000_000 + nanoseconds

    def text(self) -> str:
        length = self.uint()
        start = self.take(length, 1)
        raw = self._buffer[start : start + length]
        if length and (raw[-1] or raw.find(0) != length - 1):
            raise CdrError(f"{self._what}: a string without its end")
        try:
            return raw[:-1].decode()
        except UnicodeDecodeError as error:
            raise CdrError(f"{self._what}: a string is not UTF-8") from error

    def octets(self) -> memoryview:
        length = self.uint()
        start = self.take(length, 1)
        return memoryview(self._buffer)[start : start + length]

    def doubles(self) -> NDArray[np.float64]:
        count = self.uint()
        if not count:
            return np.empty(0)
        return np.frombuffer(self._buffer, self.order + "f8", count, self.take(8 * count, 8))

    def end(self) -> None:
        """Nothing but padding may follow: serializers round sizes up, for each empty sequence of doubles by 4."""
        rest = len(self._buffer) - self.at
        if rest > _PADDING:
            raise CdrError(f"{self._what}: {rest} bytes too many")


def _is_xcdr1(buffer: bytes, what: str) -> bool:
    if len(buffer) < _BODY:
        raise CdrError(f"{what}: {len(buffer)} bytes are too few (truncated)")
    return buffer[:2] in _ORDER


def _deserialized(buffer: bytes, message_type: type) -> Image | CompressedImage | JointState:
    try:
        return deserialize_message(buffer, message_type)
    except Exception as error:  # whatever the rmw throws
        raise CdrError(f"{message_type.__name__}: not readable as CDR ({error})") from error


def read_stamp(buffer: bytes, message_type: type) -> int:
    """Nanoseconds of the header stamp: the first eight bytes of any message that begins with a header.

    Raises:
        CdrError: the message is truncated or of an unknown representation.
    """
    if len(buffer) >= _BODY + 8 and (order := _ORDER.get(buffer[:2])) is not None:
        seconds, nanoseconds = _STAMP[order].unpack_from(buffer, _BODY)
        return seconds * 1_000_000_000 + nanoseconds
    _is_xcdr1(buffer, message_type.__name__)
    return ns_from_stamp(_deserialized(buffer, message_type).header.stamp)


def read_image(buffer: bytes) -> CameraFrame:
    """A serialized sensor_msgs/Image; the frame's data is a view on ``buffer``.

    Raises:
        CdrError: the bytes are truncated or not an Image.
    """
    if not _is_xcdr1(buffer, "Image"):
        image = _deserialized(buffer, Image)
        frame = RawFrame(image.encoding, image.height, image.width, image.step, bool(image.is_bigendian), image.data)
        return CameraFrame(ns_from_stamp(image.header.stamp), image.header.frame_id, frame)
    cdr = _Reader(buffer, "Image")
    stamp, frame_id = cdr.stamp(), cdr.text()
    height, width, encoding = cdr.uint(), cdr.uint(), cdr.text()
    is_bigendian, step, data = cdr.byte(), cdr.uint(), cdr.octets()
    cdr.end()
    return CameraFrame(stamp, frame_id, RawFrame(encoding, height, width, step, bool(is_bigendian), data))


def read_compressed_image(buffer: bytes) -> CameraFrame:
    """A serialized sensor_msgs/CompressedImage; the frame's data is a view on ``buffer``.

    Raises:
        CdrError: the bytes are truncated or not a CompressedImage.
    """
    if not _is_xcdr1(buffer, "CompressedImage"):
        image = _deserialized(buffer, CompressedImage)
        return CameraFrame(
            ns_from_stamp(image.header.stamp), image.header.frame_id, CompressedFrame(image.format, image.data)
        )
    cdr = _Reader(buffer, "CompressedImage")
    stamp, frame_id, label, data = cdr.stamp(), cdr.text(), cdr.text(), cdr.octets()
    cdr.end()
    return CameraFrame(stamp, frame_id, CompressedFrame(label, data))


class JointStateReader:
    """Reads serialized joint states. Names repeat from message to message: their bytes are compared, not decoded."""

    def __init__(self) -> None:
        self._known: dict[str, dict[bytes, tuple[str, ...]]] = {"<": {}, ">": {}}

    def read(self, buffer: bytes) -> JointPositions:
        """One sensor_msgs/JointState.

        Raises:
            CdrError: the bytes are truncated or not a JointState.
        """
        if not _is_xcdr1(buffer, "JointState"):
            message = _deserialized(buffer, JointState)
            return JointPositions(
                ns_from_stamp(message.header.stamp), tuple(message.name), np.array(message.position, np.float64)
            )
        cdr = _Reader(buffer, "JointState")
        stamp = cdr.stamp()
        cdr.take(cdr.uint(), 1)
        names = self._names(cdr, buffer)
        positions = cdr.doubles()
        cdr.doubles()
        cdr.doubles()
        cdr.end()
        return JointPositions(stamp, names, positions)

    def _names(self, cdr: _Reader, buffer: bytes) -> tuple[str, ...]:
        known = self._known[cdr.order]
        start = cdr.take(0, 4)
        for raw, names in known.items():
            if buffer.startswith(raw, start):
                cdr.at = start + len(raw)
                return names
        count = cdr.uint()
        if count > _NAMES:
            raise CdrError(f"JointState: {count} joints are named, allowed: at most {_NAMES}")
        names = tuple(cdr.text() for _ in range(count))
        if len(known) >= _KNOWN:
            known.clear()
        known[buffer[start : cdr.at]] = names
        return names
