"""Writing MCAP bags that ``ros2 bag`` and ``rosbags`` read back."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from rosbags.interfaces import (
    Connection,
    Nodetype,
    Qos,
    QosDurability,
    QosHistory,
    QosLiveliness,
    QosReliability,
    QosTime,
)
from rosbags.rosbag2 import CompressionMode, StoragePlugin, Writer
from rosbags.rosbag2.enums import CompressionFormat
from rosbags.typesys import Stores, get_types_from_msg, get_typestore
from rosbags.typesys.store import Typestore


class BagError(ValueError):
    """A bag that cannot be written or read, or a type that cannot be found."""


@dataclass(frozen=True)
class TopicQos:
    """The part of a publisher's QoS that a player must offer again."""

    reliable: bool = True
    transient_local: bool = False
    depth: int = 10


class BagWriter:
    """An MCAP bag being written; chunks are compressed with zstd.

    Message definitions come from the installed interface packages, so any type that the graph uses can be recorded.
    Use as a context manager: leaving it writes the index and ``metadata.yaml``.
    """

    def __init__(self, path: Path, metadata: dict[str, str] | None = None) -> None:
        if path.exists():
            raise BagError(f"{path} exists already and is not overwritten")
        self._writer = Writer(path, version=9, storage_plugin=StoragePlugin.MCAP)
        self._writer.set_compression(CompressionMode.STORAGE, CompressionFormat.ZSTD)
        for key, value in (metadata or {}).items():
            self._writer.set_custom_data(key, value)
        self._store = get_typestore(Stores.ROS2_JAZZY)
        self._connections: dict[str, Connection] = {}
        self.counts: dict[str, int] = {}

    def __enter__(self) -> BagWriter:
        self._writer.open()
        return self

    def __exit__(self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None) -> None:
        self._writer.close()

    def add_topic(self, topic: str, message_type: str, qos: TopicQos) -> None:
        """Make ready to write ``topic``; ``message_type`` as in ``sensor_msgs/msg/Image``.

        Raises:
            BagError: the topic was added before, or the type's definition is not installed.
        """
        if topic in self._connections:
            raise BagError(f"topic '{topic}' was added before")
        add_type(self._store, message_type)
        self._connections[topic] = self._writer.add_connection(
            topic, message_type, typestore=self._store, offered_qos_profiles=[_rosbags_qos(qos)]
        )
        self.counts[topic] = 0

    def write(self, topic: str, stamp_ns: int, serialized: bytes) -> None:
        """Append one message in CDR, received at ``stamp_ns``."""
        self._writer.write(self._connections[topic], stamp_ns, serialized)
        self.counts[topic] += 1


def add_type(store: Typestore, message_type: str) -> None:
    """Register ``message_type`` in ``store``, with every type it is made of, from the installed ``.msg`` files.

    Raises:
        BagError: a definition is not installed.
    """
    wanted = [message_type]
    while wanted:
        name = wanted.pop()
        if name in store.fielddefs:
            continue
        new = get_types_from_msg(_definition(name), name)
        store.register(new)
        for _, fields in new.values():
            wanted += [nested for _, field in fields for nested in _names(field)]


def _names(field: tuple) -> Sequence[str]:
    kind, content = field
    if kind == Nodetype.NAME:
        return [content]
    return _names(content[0]) if kind in (Nodetype.ARRAY, Nodetype.SEQUENCE) else []


def _definition(message_type: str) -> str:
    package, _, name = message_type.partition("/msg/")
    for prefix in os.environ.get("AMENT_PREFIX_PATH", "").split(os.pathsep):
        file = Path(prefix, "share", package, "msg", f"{name}.msg")
        if prefix and file.is_file():
            return file.read_text()
    raise BagError(f"no definition of {message_type}: source the workspace that has package '{package}'")


def _rosbags_qos(qos: TopicQos) -> Qos:
    unlimited = QosTime(2147483647, 4294967295)
    return Qos(
        history=QosHistory.KEEP_LAST,
        depth=qos.depth,
        reliability=QosReliability.RELIABLE if qos.reliable else QosReliability.BEST_EFFORT,
        durability=QosDurability.TRANSIENT_LOCAL if qos.transient_local else QosDurability.VOLATILE,
        deadline=unlimited,
        lifespan=unlimited,
        liveliness=QosLiveliness.AUTOMATIC,
        liveliness_lease_duration=unlimited,
        avoid_ros_namespace_conventions=False,
    )
