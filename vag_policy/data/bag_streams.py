"""What a recorded bag holds, as streams by name: encoded frames, joint positions, commands, instructions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rosbags.highlevel import AnyReader
from rosbags.typesys import Stores, get_typestore

from vag_policy.data.bag_writer import BagError
from vag_policy.data.resample import SECOND_NS, Stamps, in_order
from vag_policy.observation.image_codec import CompressedFrame, RawFrame
from vag_policy.robots.yam import JOINT_NAMES
from vag_policy.robots.yam_rig import CAMERA_NAMES

IMAGE_TYPES = ("sensor_msgs/msg/Image", "sensor_msgs/msg/CompressedImage")
JOINT_TYPES = ("sensor_msgs/msg/JointState", "trajectory_msgs/msg/JointTrajectory")


@dataclass(frozen=True)
class BagTopics:
    """Where things are in a bag.

    Attributes:
        cameras: camera name -> topic, Image or CompressedImage; a camera not listed is ``/<name>/image_raw``, or
            ``/<name>/image_raw/compressed`` where only that was recorded.
        joint_states: topics of the joints' positions; partial ones are merged.
        commands: topics of what the joints were told (JointState or JointTrajectory). Empty: an action is the joint
            position one frame later.
        instruction: String topic; each non-empty text begins an episode, an empty one ends it.
        joints: our joint name -> the bag's, where they differ.
    """

    cameras: Mapping[str, str] = field(default_factory=dict)
    joint_states: Sequence[str] = ("/joint_states",)
    commands: Sequence[str] = ()
    instruction: str = "/instruction"
    joints: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> BagTopics:
        """From a configuration file.

        Raises:
            ValueError: an unknown key; the message lists the keys.
        """
        unknown = sorted(set(config) - set(cls.__dataclass_fields__))
        if unknown:
            raise ValueError(f"no setting '{unknown[0]}' of a bag; allowed: {', '.join(cls.__dataclass_fields__)}")
        return cls(**config)


class Joints:
    """Samples of every joint by name, from any number of partial messages."""

    def __init__(self) -> None:
        self._samples: dict[str, list[tuple[int, float]]] = {}

    def add(self, names: Sequence[str], positions: Sequence[float], stamp_ns: int) -> None:
        """Take one message; a message without one position a name is ignored."""
        if len(names) == len(positions):
            for name, position in zip(names, positions, strict=True):
                self._samples.setdefault(name, []).append((stamp_ns, float(position)))

    @property
    def names(self) -> tuple[str, ...]:
        """All joints that were seen."""
        return tuple(self._samples)

    def stream(self, name: str) -> tuple[Stamps, NDArray[np.float64]]:
        """(M,) stamps and (M,) positions of one joint, in order of time, each stamp once.

        Raises:
            BagError: no such joint.
        """
        if name not in self._samples:
            raise BagError(f"joint '{name}' is in no message; there are: {', '.join(sorted(self._samples)) or 'none'}")
        stamps, positions = (np.array(part) for part in zip(*self._samples[name], strict=True))
        unique, first = np.unique(stamps, return_index=True)
        return unique, positions[first]


@dataclass
class BagStreams:
    """Everything of a bag but the pixels.

    Attributes:
        frames: stamps by camera.
        logged: by camera, when each frame was recorded.
        states: measured joints.
        commands: commanded joints.
        instructions: (stamp, text), in order.
    """

    path: Path
    topics: BagTopics
    camera_topics: dict[str, str] = field(default_factory=dict)
    frames: dict[str, Stamps] = field(default_factory=dict)
    logged: dict[str, Stamps] = field(default_factory=dict)
    states: Joints = field(default_factory=Joints)
    commands: Joints = field(default_factory=Joints)
    instructions: list[tuple[int, str]] = field(default_factory=list)

    def joint(self, name: str) -> str:
        """The bag's name of our joint."""
        return self.topics.joints.get(name, name)


def read_streams(path: Path, topics: BagTopics, cameras: Sequence[str] = CAMERA_NAMES) -> BagStreams:
    """Read all stamps and joints of a bag; pixels stay where they are.

    Raises:
        BagError: not a bag, a topic that is not in it or has another type, or stamps that jump backwards.
    """
    streams = BagStreams(path, topics)
    with open_bag(path) as reader:
        known = {connection.topic: connection.msgtype for connection in reader.connections}
        streams.camera_topics = {camera: _camera_topic(camera, topics, known) for camera in cameras}
        for topic in (*topics.joint_states, *topics.commands):
            _check_type(topic, known, JOINT_TYPES)
        by_topic = {topic: camera for camera, topic in streams.camera_topics.items()}
        stamps: dict[str, list[tuple[int, int]]] = {camera: [] for camera in cameras}
        wanted = {*by_topic, *topics.joint_states, *topics.commands, topics.instruction}
        for connection, log_ns, raw in _messages(reader, wanted):
            message: Any = reader.deserialize(raw, connection.msgtype)
            topic, stamp_ns = connection.topic, stamp_of(message, log_ns)
            if topic in by_topic:
                stamps[by_topic[topic]].append((stamp_ns, log_ns))
            elif topic == topics.instruction:
                streams.instructions.append((stamp_ns, message.data))
            else:
                _add_joints(streams.commands if topic in topics.commands else streams.states, message, stamp_ns)
    for camera, found in stamps.items():
        streams.frames[camera], streams.logged[camera] = np.array(found, np.int64).reshape(-1, 2).T
        if not found or not in_order(streams.frames[camera]):
            what = "has no frames" if not found else "jumps backwards in time (a bag that was looped?)"
            raise BagError(f"{path}: {streams.camera_topics[camera]} {what}")
    return streams


def read_frames_of(streams: BagStreams, camera: str, wanted: Sequence[int]) -> Iterator[RawFrame | CompressedFrame]:
    """Frames of one camera, still encoded, by their number among its messages; ``wanted`` ascends.

    A number that is wanted twice is given twice.
    """
    topic, logged = streams.camera_topics[camera], streams.logged[camera]
    begin_ns, end_ns = int(logged[wanted[0]]), int(logged[wanted[-1]])
    first = int(np.searchsorted(logged, begin_ns))
    with open_bag(streams.path) as reader:
        remaining = iter(wanted)
        target = next(remaining, None)
        messages = _messages(reader, {topic}, begin_ns, end_ns + 1)
        for number, (connection, _, raw) in enumerate(messages, start=first):
            if target is None:
                return
            if number != target:
                continue
            frame = frame_of(reader.deserialize(raw, connection.msgtype))
            while target == number:
                yield frame
                target = next(remaining, None)


def open_bag(path: Path) -> AnyReader:
    """A reader for MCAP and sqlite3 bags.

    Raises:
        BagError: there is no readable bag.
    """
    try:
        return AnyReader([path], default_typestore=get_typestore(Stores.ROS2_JAZZY))
    except Exception as error:  # rosbags raises a kind of its own for every storage
        raise BagError(f"{path} is not a readable bag: {error}") from error


def frame_of(message: Any) -> RawFrame | CompressedFrame:
    """An Image or CompressedImage message as a frame for the image codec."""
    if hasattr(message, "format"):
        return CompressedFrame(message.format, message.data)
    return RawFrame(
        message.encoding, message.height, message.width, message.step, bool(message.is_bigendian), message.data
    )


def stamp_of(message: Any, log_ns: int) -> int:
    """The message's own stamp, or where it has none (or 0) the time it was recorded, ns."""
    header = getattr(message, "header", None)
    stamp_ns = header.stamp.sec * SECOND_NS + header.stamp.nanosec if header is not None else 0
    return stamp_ns or log_ns


def _messages(
    reader: AnyReader, topics: set[str], start_ns: int | None = None, stop_ns: int | None = None
) -> Iterator[tuple[Any, int, bytes]]:
    """(connection, time recorded, bytes) of every message on ``topics``, in order of the time recorded."""
    connections = [connection for connection in reader.connections if connection.topic in topics]
    return reader.messages(connections, start_ns, stop_ns) if connections else iter(())


def _camera_topic(camera: str, topics: BagTopics, known: Mapping[str, str]) -> str:
    topic = topics.cameras.get(camera, f"/{camera}/image_raw")
    if topic not in known and f"{topic}/compressed" in known:
        topic = f"{topic}/compressed"
    _check_type(topic, known, IMAGE_TYPES)
    return topic


def _check_type(topic: str, known: Mapping[str, str], allowed: Sequence[str]) -> None:
    if topic not in known:
        raise BagError(f"the bag has no topic '{topic}'; it has: {', '.join(sorted(known)) or 'none'}")
    if known[topic] not in allowed:
        raise BagError(f"topic '{topic}' is {known[topic]}; expected: {' or '.join(allowed)}")


def _add_joints(joints: Joints, message: Any, stamp_ns: int) -> None:
    if hasattr(message, "points"):
        if message.points:
            joints.add(message.joint_names, message.points[-1].positions.tolist(), stamp_ns)
    else:
        joints.add(message.name, message.position.tolist(), stamp_ns)


def check_joints(streams: BagStreams, names: Sequence[str] = JOINT_NAMES) -> None:
    """Raise BagError unless every joint was measured, and commanded where commands are used; the joint is named."""
    for name in names:
        streams.states.stream(streams.joint(name))
        if streams.topics.commands:
            streams.commands.stream(streams.joint(name))
