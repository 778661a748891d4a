"""Stage times are exclusive: a nested stage is not counted in the one around it."""

import pytest

from vag_policy.vam import timing
from vag_policy.vam.timing import StageClock


class FakeTime:
    """A clock that the test moves."""

    def __init__(self):
        self.now_ns = 0

    def perf_counter_ns(self):
        return self.now_ns


@pytest.fixture
def fake(monkeypatch):
    fake = FakeTime()
    monkeypatch.setattr(timing, "time", fake)
    return fake


def test_nested_and_repeated_stages(fake):
    waits = []
    clock = StageClock(lambda: waits.append(fake.now_ns))
    with clock.stage("head"):
        fake.now_ns += 3_000_000
        with clock.stage("plan"):
            fake.now_ns += 20_000_000
            with clock.stage("deeper"):
                fake.now_ns += 500_000
        fake.now_ns += 1_000_000
    with clock.stage("head"):
        fake.now_ns += 2_000_000
    assert clock.stage_ms == {"head": 6.0, "plan": 20.0, "deeper": 0.5}
    assert list(clock.stage_ms) == ["head", "plan", "deeper"]
    assert len(waits) == 8  # the device is waited for at both ends of every stage


def test_a_stage_that_fails_is_still_timed(fake):
    clock = StageClock(lambda: None)
    with pytest.raises(ZeroDivisionError), clock.stage("outer"), clock.stage("inner"):
        fake.now_ns += 7_000_000
        _ = 1 / 0
    assert clock.stage_ms == {"outer": 0.0, "inner": 7.0}
