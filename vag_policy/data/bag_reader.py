"""Reading bags."""

from __future__ import annotations

from pathlib import Path

from rosbags.rosbag2 import Reader

from vag_policy.data.bag_writer import BagError


def topics_of(path: Path) -> dict[str, int]:
    """Message count of every topic in a bag.

    Raises:
        BagError: there is no readable bag at ``path``.
    """
    try:
        with Reader(path) as reader:
            return {connection.topic: connection.msgcount for connection in reader.connections}
    except Exception as error:
        raise BagError(f"{path} is not a readable bag: {error}") from error
