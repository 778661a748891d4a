"""What an operator reads on /diagnostics."""

from dataclasses import replace

import numpy as np
import pytest

from vag_policy.nodes.camera_sync_diagnostics import OutcomeCheck, StreamCheck
from vag_policy.nodes.common import ERROR, OK, STALE, WARN
from vag_policy.observation.stream import Dropped, StreamStatus
from vag_policy.observation.sync_config import SyncConfig
from vag_policy.observation.synchronizer import Synchronizer

GOOD = StreamStatus(
    name="top",
    state="ok",
    received=300,
    repeats=0,
    gaps=0,
    rate_hz=30.0,
    silent_ns=10_000_000,
    last_stamp_ns=5,
)


def stream_check():
    return StreamCheck("/top/image_raw", lambda: 1)


def test_a_healthy_stream_says_its_rate():
    level, message, values = stream_check().report(GOOD)
    assert (level, message) == (OK, "30.0 Hz")
    assert values["received"] == 300 and values["newest stamp (ns)"] == 5


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"state": "waiting", "silent_ns": -1}, ["/top/image_raw: nothing has arrived, publishers: 1"]),
        ({"state": "silent", "silent_ns": 2_100_000_000, "rate_hz": 0.0}, ["silent for 2.1 s", "publishers: 1"]),
        ({"state": "repeating", "silent_ns": 900_000_000}, ["frozen", "repeats one stamp for 0.9 s"]),
        ({"state": "frozen"}, ["frozen", "new stamps with the same picture"]),
        ({"state": "silent", "missing": ("a", "b")}, ["/top/image_raw arrives; without a position: a, b"]),
    ],
)
def test_an_unhealthy_stream_is_stale_and_says_how(change, words):
    level, message, _ = stream_check().report(replace(GOOD, **change))
    assert level == STALE and all(word in message for word in words), message


def test_losses_warn_in_the_second_in_which_they_happen():
    check = stream_check()
    check.report(GOOD)
    level, message, values = check.report(replace(GOOD, received=310, gaps=20))
    assert level == WARN and message == "30.0 Hz, 20 of 30 messages lost or never sent" and values["lost"] == 20
    level, message, _ = check.report(replace(GOOD, received=339, gaps=21))
    assert level == OK and message == "30.0 Hz, 1 of 30 messages lost or never sent"
    level, message, _ = check.report(replace(GOOD, received=369, gaps=21))
    assert (level, message) == (OK, "30.0 Hz")


def test_unstamped_messages_warn_while_they_come():
    check = stream_check()
    level, message, _ = check.report(replace(GOOD, dropped=Dropped(unstamped=7)))
    assert level == WARN and message.startswith("7 messages with stamp 0 dropped")
    assert check.report(replace(GOOD, dropped=Dropped(unstamped=7)))[0] == OK


@pytest.mark.parametrize(
    ("dropped", "words"),
    [
        (Dropped(ahead=3, ahead_ns=5_000_000_000), "3 messages stamped 5.000 s ahead of this node's clock dropped"),
        (Dropped(malformed=2, fault="3 joints are named, 2 positions given"), "2 malformed messages dropped: 3 joints"),
        (Dropped(unstamped=1, malformed=1, fault="x"), "must stamp them; 1 malformed messages dropped: x"),
    ],
)
def test_each_kind_of_message_that_is_not_used_is_named_while_it_comes(dropped, words):
    check = stream_check()
    level, message, values = check.report(replace(GOOD, dropped=dropped))
    assert level == WARN and words in message
    assert (values["from the future"], values["malformed"]) == (dropped.ahead, dropped.malformed)
    assert check.report(replace(GOOD, dropped=dropped))[0] == OK


def synchronizer():
    return Synchronizer(SyncConfig(("top", "left"), "top", ("a",)))


def test_the_outcome_names_the_reason():
    sync = synchronizer()
    check = OutcomeCheck(sync)
    assert check.report(0, 0, "")[:2] == (STALE, "no Observation: no frame of top, the reference")
    sync.offer("top", 10, "frame", 0)
    assert sync.match(10**9, 20) is None
    assert check.report(0, 0, "")[:2] == (ERROR, "no Observation: left: no frame; no position of joint a")
    assert check.report(30, 0, "")[:2] == (OK, "30 Observations")
    level, message, _ = check.report(50, 10, "top: unknown encoding")
    assert level == WARN and message == "20 Observations, 10 reference frames refused: top: unknown encoding"
    assert check.report(50, 40, "top: unknown encoding")[:2] == (ERROR, "no Observation: top: unknown encoding")


def test_two_publishers_on_one_topic_are_suspected():
    sync = synchronizer()
    check = OutcomeCheck(sync)
    for k in range(5):
        sync.offer("left", 10**12 + k, "live", k)
        sync.offer("left", 10**9 + k, "bag", k)
    level, message, values = check.report(0, 0, "")
    assert level == ERROR and "stamps of left went back 5 times: do two publishers share its topic?" in message
    assert values["backward jumps"] == 5
    sync.offer_joints(("a",), 5, np.zeros(1), 0)
