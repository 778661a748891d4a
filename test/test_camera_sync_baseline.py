"""The benchmark's baseline is no straw man: its synchroniser matches what it should."""

import importlib.util
from pathlib import Path
from types import SimpleNamespace

import numpy as np
from builtin_interfaces.msg import Time

PATH = Path(__file__).resolve().parent.parent / "benchmarks" / "baseline_sync.py"
SPEC = importlib.util.spec_from_file_location("baseline_sync", PATH)
baseline = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(baseline)

MS = 1_000_000


def message(ms):
    return SimpleNamespace(header=SimpleNamespace(stamp=Time(sec=0, nanosec=round(ms * MS))))


def milliseconds(message):
    return baseline.nanoseconds(message.header.stamp) / MS


def run(streams, slop=50):
    """Messages in stamp order; what comes out, in ms."""
    matches = []
    sync = baseline.ApproximateTime(len(streams), 10, slop * MS, lambda found: matches.append(found))
    for ms, topic in sorted((ms, topic) for topic, stream in enumerate(streams) for ms in stream):
        sync.add(topic, message(ms))
    return [[milliseconds(one) for one in found] for found in matches]


def test_every_set_of_three_frames_is_matched_once():
    offsets = (0, 2, 4)
    found = run([[offset + k * 33 for k in range(30)] for offset in offsets])
    assert found == [[offset + k * 33 for offset in offsets] for k in range(30)]


def test_the_nearest_within_the_slop_are_chosen():
    assert run([[100], [60, 90, 130]], slop=50) == [[100, 90]]
    assert run([[100], [40]], slop=50) == []


def test_a_lost_frame_costs_one_match_and_no_more():
    streams = [[1 + offset + k * 33 for k in range(30) if (offset, k) != (2, 10)] for offset in (0, 2, 4)]
    found = run(streams, slop=20)
    assert len(found) == 29 and max(np.ptp(row) for row in found) == 4


def test_queues_are_bounded():
    sync = baseline.ApproximateTime(2, 10, 50 * MS, lambda found: None)
    for k in range(100):
        sync.add(0, message(k * 9))
    assert [len(queue) for queue in sync._queues] == [10, 0]
