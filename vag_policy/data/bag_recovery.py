"""The way back from a write that failed half-way: a bag is cut off after its last whole chunk.

It reaches into the writer of ``rosbags``, which has no such way.
"""

from __future__ import annotations

import os
from collections import defaultdict
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

from rosbags.rosbag2 import Writer


@dataclass(frozen=True)
class Whole:
    """What ``restore`` needs of an MCAP bag as it was after its last whole chunk."""

    chunks: int
    size: int
    counts: dict[int, int]
    first_ns: int
    last_ns: int

    @classmethod
    def of(cls, writer: Writer) -> Whole:
        """The bag as it is now, all of it on its way to the disk.

        Raises:
            OSError: it cannot be written.
        """
        storage: Any = writer.storage
        storage.bio.flush()
        times = (writer.min_timestamp, writer.max_timestamp)
        return cls(len(storage.chunks), storage.bio.tell(), dict(writer.counts), *times)

    def is_newest(self, writer: Writer) -> bool:
        """Whether no chunk was finished since."""
        storage: Any = writer.storage
        return len(storage.chunks) == self.chunks

    def restore(self, writer: Writer) -> None:
        """Cut off what came later; the bag can be closed then.

        Raises:
            OSError: not even that is possible.
        """
        storage: Any = writer.storage
        with Path(os.devnull).open("wb") as nowhere:
            os.dup2(nowhere.fileno(), storage.bio.fileno())
        storage.bio.close()  # what it still had in its buffer went nowhere
        storage.bio = storage.path.open("r+b")
        storage.bio.truncate(self.size)
        storage.bio.seek(self.size)
        del storage.chunks[self.chunks :]
        storage.chunk = type(storage.chunk)(2**63 - 1, 0, BytesIO(), defaultdict(list))
        writer.counts = {c.id: self.counts.get(c.id, 0) for c in writer.connections}
        storage.channel_stats = dict(writer.counts)
        writer.min_timestamp = storage.message_start_time = self.first_ns
        writer.max_timestamp = storage.message_end_time = self.last_ns
