"""The worker, the planning session and the replan statistics, without ROS and without a model."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from vag_policy.observation.observation import JOINT_SOURCE, Observation
from vag_policy.policy import Plan
from vag_policy.serving.episode_watch import PAUSE_NS, EpisodeWatch, Repetition
from vag_policy.serving.session import PlanningSession, SessionConfig
from vag_policy.serving.statistics import ReplanTimes
from vag_policy.serving.worker import LatestWorker, WorkerStoppedError

SECOND = 1_000_000_000
T0 = 1_000 * SECOND
PERIOD = SECOND // 10


def seen(stamp_ns: int, joints_age_ns: int = 0) -> Observation:
    return Observation(
        stamp_ns=stamp_ns,
        image=np.zeros((2, 2, 3), np.uint8),
        camera_names=("top",),
        state=np.zeros(1, np.float32),
        state_names=("joint",),
        source_stamp_ns={"top": stamp_ns, JOINT_SOURCE: stamp_ns - joints_age_ns},
        age_ns={"top": 0, JOINT_SOURCE: joints_age_ns},
    )


def plan_for(ticket, stamp_ns: int, execute: int = 5) -> Plan:
    return Plan(
        observation_stamp_ns=stamp_ns,
        episode=ticket.episode,
        replan=0,
        instruction=ticket.instruction,
        actions=np.zeros((10, 1)),
        names=("joint",),
        period_ns=PERIOD,
        execute=execute,
    )


def session(mode: str = "async", max_age_ns: int = SECOND // 2, min_period_ns: int = 0) -> PlanningSession:
    return PlanningSession(SessionConfig(mode, max_age_ns, min_period_ns), first_episode=100)


def commit(s: PlanningSession, ticket, now_ns: int) -> list[Plan]:
    out: list[Plan] = []
    s.commit(ticket, plan_for(ticket, now_ns), now_ns, out.append)
    return out


def test_idle_until_an_instruction_comes():
    s = session()
    assert s.admit(seen(T0), T0) is None
    assert s.refusal == ""
    assert s.begin("go") == 100
    ticket = s.admit(seen(T0), T0)
    assert (ticket.episode, ticket.instruction) == (100, "go")


def test_blocking_waits_until_the_chunk_has_run_out():
    s = session("blocking")
    s.begin("go")
    ticket = s.admit(seen(T0), T0)
    published = T0 + 2 * SECOND
    assert len(commit(s, ticket, published)) == 1
    due = published + 5 * PERIOD  # execute actions, counted from when the chunk went out
    assert s.admit(seen(due - 1), due - 1) is None
    assert s.admit(seen(due), due) is not None


def test_async_plans_again_at_once_but_never_on_the_same_observation():
    s = session("async")
    s.begin("go")
    commit(s, s.admit(seen(T0), T0), T0 + PERIOD)
    assert s.admit(seen(T0), T0 + PERIOD) is None
    assert s.admit(seen(T0 + 1), T0 + PERIOD) is not None


def test_minimum_period_counts_from_start_to_start_and_holds_for_failures():
    s = session("async", min_period_ns=PERIOD)
    s.begin("go")
    s.fail(s.admit(seen(T0), T0))
    assert s.admit(seen(T0 + 1), T0 + PERIOD - 1) is None
    assert s.admit(seen(T0 + 2), T0 + PERIOD) is not None


def test_age_limit_is_inclusive_and_names_the_oldest_source():
    s = session(max_age_ns=SECOND // 2)
    s.begin("go")
    assert s.admit(seen(T0, joints_age_ns=SECOND // 4), T0 + SECOND // 4) is not None
    assert s.admit(seen(T0 + 1, joints_age_ns=SECOND // 4), T0 + SECOND // 4 + 2) is None
    assert s.refusals == {"too old": 1}
    assert JOINT_SOURCE in s.refusal
    assert s.admit(seen(T0 + SECOND), T0 + SECOND) is not None
    assert s.refusal == ""


def test_no_stamp_no_clock_and_the_future_are_refused_by_name():
    s = session()
    s.begin("go")
    assert s.admit(seen(0), T0) is None
    assert s.admit(seen(T0), 0) is None
    assert s.admit(seen(T0 + SECOND), T0) is None
    assert s.refusals == {"no stamp": 1, "no clock": 1, "from the future": 1}


def test_a_plan_of_an_episode_that_is_over_does_not_go_out():
    s = session()
    s.begin("go")
    stale = s.admit(seen(T0), T0)
    s.end()
    assert commit(s, stale, T0 + 1) == []
    s.begin("go")
    assert commit(s, stale, T0 + 2) == []
    assert s.discarded == 2
    assert s.fail(stale) is False
    assert s.faults == 0


def test_end_waits_for_a_publish_under_way():
    s = session()
    s.begin("go")
    ticket = s.admit(seen(T0), T0)
    publishing, release, order = threading.Event(), threading.Event(), []

    def publish(_plan):
        publishing.set()
        release.wait(5.0)
        order.append("published")

    planner = threading.Thread(target=s.commit, args=(ticket, plan_for(ticket, T0), T0, publish))
    planner.start()
    assert publishing.wait(5.0)
    ender = threading.Thread(target=lambda: (s.end(), order.append("ended")))
    ender.start()
    release.set()
    planner.join(5.0)
    ender.join(5.0)
    assert order == ["published", "ended"]


def test_backward_jump_starts_a_new_episode_and_then_goes_on():
    s = session("blocking")
    s.begin("go")
    assert s.arrived(T0, T0) is False
    commit(s, s.admit(seen(T0), T0), T0)
    in_flight = s.admit(seen(T0 + SECOND), T0 + SECOND)
    back = T0 - 100 * SECOND
    assert s.arrived(back, back) is True
    assert commit(s, in_flight, back) == []
    ticket = s.admit(seen(back), back)  # at once: the chunk of before the jump is forgotten
    assert ticket.episode == 101
    assert s.arrived(back + 1, back + 1) is False
    assert s.jumps == 1


def test_after_the_clock_went_back_old_observations_are_refused_and_do_not_jump_again():
    s = session()
    s.begin("go")
    s.arrived(T0, T0)
    now = T0 - 100 * SECOND
    s.clock_jumped_back()
    assert s.arrived(T0 + 1, now) is False
    assert s.admit(seen(T0 + 1), now) is None
    assert s.arrived(now, now) is False
    assert s.admit(seen(now), now).episode == 101


def test_a_jump_while_idle_starts_nothing():
    s = session()
    s.arrived(T0, T0)
    assert s.arrived(T0 - 1, T0) is True
    assert s.instruction == ""
    assert s.restart() is False


def test_faults_are_counted_for_the_episode_they_belong_to():
    s = session()
    s.begin("go")
    ticket = s.admit(seen(T0), T0)
    assert s.fail(ticket) is True
    assert s.faults == 1
    s.begin("go on")
    assert s.fail(ticket) is False
    assert s.faults == 0


@pytest.mark.parametrize("values", [("sometimes", 1, 0), ("async", 0, 0), ("async", 1, -1)])
def test_session_config_is_validated(values):
    with pytest.raises(ValueError, match="allowed|must be"):
        SessionConfig(*values)


def test_worker_takes_the_newest_and_drops_those_between():
    done, started, release = [], threading.Event(), threading.Event()

    def work(item):
        started.set()
        release.wait(5.0)
        done.append(item)

    worker = LatestWorker(work, "test")
    worker.put(1)
    assert started.wait(5.0)
    for item in (2, 3, 4):
        worker.put(item)
    release.set()
    worker.call(lambda: None)  # calls go between items
    while done != [1, 4]:
        worker.call(lambda: None)
    assert worker.stop(5.0)


def test_worker_calls_run_on_its_thread_and_raise_in_the_caller():
    worker = LatestWorker(lambda item: None, "planner")
    assert worker.call(lambda: threading.current_thread().name) == "planner"
    with pytest.raises(KeyError):
        worker.call(lambda: {}["missing"])
    assert worker.stop(5.0)
    with pytest.raises(WorkerStoppedError):
        worker.call(lambda: None)


def test_worker_survives_work_that_raises(monkeypatch):
    errors, done = [], threading.Event()
    monkeypatch.setattr(threading, "excepthook", lambda arguments: errors.append(arguments.exc_type))

    def work(item):
        if item == "bad":
            raise MemoryError
        done.set()

    worker = LatestWorker(work, "test")
    worker.put("bad")
    worker.call(lambda: None)
    while not errors:
        worker.call(lambda: None)
    worker.put("good")
    assert done.wait(5.0)
    assert errors == [MemoryError]
    assert worker.stop(5.0)


def test_worker_that_cannot_be_interrupted_is_reported_and_its_callers_are_freed():
    release, started, freed = threading.Event(), threading.Event(), threading.Event()

    def work(_item):
        started.set()
        release.wait(10.0)

    worker = LatestWorker(work, "test")
    worker.put(1)
    assert started.wait(5.0)

    def caller():
        with pytest.raises(WorkerStoppedError):
            worker.call(lambda: None)
        freed.set()

    waiting = threading.Thread(target=caller)
    waiting.start()
    assert worker.stop(0.05) is False
    assert freed.wait(5.0)
    release.set()
    assert worker.stop(5.0) is True
    waiting.join()


def test_an_instruction_that_is_repeated_is_told_from_one_that_is_given_again():
    repetition = Repetition()
    texts = [("go", 0), ("go", 1), ("go", PAUSE_NS), ("go", 2 * PAUSE_NS), ("", 1), ("go", 1), ("stay", 1), ("stay", 1)]
    seen, now_ns = [], 0
    for text, pause_ns in texts:
        now_ns += pause_ns
        seen.append(repetition.seen(text, now_ns))
    assert seen == [False, True, False, False, False, False, False, True]


def test_an_episode_ends_when_the_arms_are_sent_home():
    watch = EpisodeWatch()
    assert not watch.ended("hold", 0, 0, current=7, now_ns=0)
    assert not watch.ended("policy", 7, 1, current=7, now_ns=1)
    assert watch.ended("home", 0, 1, current=7, now_ns=2)
    # once: what is begun on the way home, or before a chunk of it was taken, is another episode
    assert not watch.ended("home", 0, 1, current=8, now_ns=3)
    assert not watch.ended("hold", 0, 1, current=8, now_ns=4)
    assert not watch.ended("policy", 8, 2, current=8, now_ns=5)
    assert watch.ended("home", 0, 2, current=8, now_ns=6)


@pytest.mark.parametrize("late_ms", range(-20, 81, 5))
def test_of_a_call_of_home_and_an_instruction_at_the_same_moment_home_wins(late_ms):
    """``late_ms``: how much later than the status that says home the policy hears of the instruction."""
    watch, session, home_ns = EpisodeWatch(), PlanningSession(SessionConfig("blocking", SECOND), 7), 10 * SECOND
    watch.ended("hold", 0, 0, session.episode, home_ns - SECOND)

    def instruction(now_ns: int) -> None:
        if not watch.home_wins(now_ns):
            session.begin("go")

    def status(now_ns: int) -> None:
        if watch.ended("home", 0, 0, session.episode, now_ns):
            session.end()

    heard_ns = home_ns + late_ms * 1_000_000
    for now_ns, hear in sorted([(home_ns, status), (heard_ns, instruction)], key=lambda event: event[0]):
        hear(now_ns)
    status(home_ns + SECOND // 5)  # it is said again all the way
    assert session.instruction == ("go" if late_ms >= 50 else "")


def test_an_end_is_seen_where_the_move_home_was_not():
    watch = EpisodeWatch()
    watch.ended("policy", 7, 3, current=7, now_ns=0)
    assert watch.ended("stopped", 0, 3, current=7, now_ns=1)
    assert not watch.home_wins(1)


def test_arms_that_start_again_or_follow_others_end_nothing():
    watch = EpisodeWatch()
    watch.ended("policy", 7, 3, current=7, now_ns=0)
    assert not watch.ended("disarmed", 0, 0, current=7, now_ns=1)  # joint_command was started again
    watch.ended("policy", 99, 1, current=7, now_ns=2)
    assert not watch.ended("hold", 0, 1, current=7, now_ns=3)  # another policy's


def test_replan_times_are_medians_by_stage_and_count_misses():
    times = ReplanTimes(window=3)
    assert times.medians() == {}
    for total, stages in ((900.0, {"encode": 1.0}), (10.0, {"encode": 2.0}), (20.0, {"encode": 4.0, "null": 7.0})):
        times.add(total, stages, lasts_ms=500.0)
    assert times.medians() == {"total": 20.0, "encode": 2.0, "null": 7.0}
    times.add(30.0, {"encode": 5.0}, lasts_ms=30.0)  # exactly in time; the first one leaves the window
    assert times.medians() == {"total": 20.0, "encode": 4.0, "null": 7.0}
    assert (times.count, times.misses) == (4, 1)
