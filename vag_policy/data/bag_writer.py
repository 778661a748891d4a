"""Writing MCAP bags that ``ros2 bag`` and ``rosbags`` read back."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

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
from rosbags.rosbag2 import CompressionMode, StoragePlugin, Writer, WriterError
from rosbags.rosbag2.enums import CompressionFormat
from rosbags.typesys import Stores, get_types_from_msg, get_typestore
from rosbags.typesys.store import Typestore

from vag_policy.data.bag_recovery import Whole

LEAST_FREE = 16 << 20
"""Bytes left free on a bag's disk: enough for its index and metadata, and for everybody else's logs."""
_CHECK_SPACE_EVERY = 1 << 20


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

    A bag that cannot be written any more, or that leaves less than ``least_free`` bytes on its disk, is ended: what
    was written whole is kept, with index and metadata, and ``ended`` says why.
    """

    def __init__(self, path: Path, metadata: dict[str, str] | None = None, least_free: int = LEAST_FREE) -> None:
        try:
            if path.exists():
                raise BagError(f"{path} exists already and is not overwritten")
        except OSError as error:
            raise BagError(f"cannot write a bag to {path}: {error.strerror}") from error
        self.path = path
        self.ended = ""
        """Why the bag has ended early; empty while it has not."""
        self._least_free = least_free
        self._unchecked = 0
        self._writer = Writer(path, version=9, storage_plugin=StoragePlugin.MCAP)
        self._writer.set_compression(CompressionMode.STORAGE, CompressionFormat.ZSTD)
        for key, value in (metadata or {}).items():
            self._writer.set_custom_data(key, value)
        self._store = get_typestore(Stores.ROS2_JAZZY)
        self._connections: dict[str, Connection] = {}
        self.counts: dict[str, int] = {}

    def __enter__(self) -> BagWriter:
        """Make the bag's folder.

        Raises:
            BagError: it cannot be made; the message names it and says why.
        """
        try:
            existing = next(folder for folder in self.path.absolute().parents if folder.exists())
            self._check_space(existing, _CHECK_SPACE_EVERY)
            self._writer.open()
            self._whole = Whole.of(self._writer)
        except (OSError, WriterError) as error:
            raise BagError(f"cannot write a bag to {self.path}: {_cause(error)}") from error
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Write index and metadata, if the bag has not ended already.

        Raises:
            BagError: there is not even space for that.
        """
        if self.ended:
            return
        try:
            self._writer.close()
        except OSError as error:
            raise self._end(error) from error

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
        """Append one message in CDR, received at ``stamp_ns``.

        Raises:
            BagError: the bag has ended, now or before: the disk is full, or something else is wrong with it.
        """
        if self.ended:
            raise BagError(self.ended)
        try:
            self._check_space(self.path, len(serialized))
            self._writer.write(self._connections[topic], stamp_ns, serialized)
            self.counts[topic] += 1
            if not self._whole.is_newest(self._writer):
                self._whole = Whole.of(self._writer)
        except OSError as error:
            raise self._end(error) from error

    def _check_space(self, folder: Path, size: int) -> None:
        self._unchecked += size
        if self._unchecked < _CHECK_SPACE_EVERY:
            return
        self._unchecked = 0
        free = shutil.disk_usage(folder).free
        if free < self._least_free:
            raise OSError(errno.ENOSPC, f"only {free / 1e6:.1f} MB free, {self._least_free / 1e6:.1f} MB are kept")

    def _end(self, error: OSError) -> BagError:
        """Close the bag after its last whole chunk."""
        self.ended = f"the bag {self.path} ended early: {_cause(error)}"
        try:
            self._whole.restore(self._writer)
            self._writer.close()
        except OSError:
            self.ended += "; it has no index and no metadata"
            with contextlib.suppress(OSError):
                self._writer.abort()
        self.counts = {topic: self._writer.counts[c.id] for topic, c in self._connections.items()}
        return BagError(self.ended)


def _cause(error: Exception) -> str:
    return (error.strerror or str(error)) if isinstance(error, OSError) else str(error)


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
