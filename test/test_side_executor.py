"""The executor with side threads: slow callbacks do not hold up quick ones, run once, and their errors come out."""

from __future__ import annotations

import threading
import time

import pytest
import rclpy
from rclpy.node import Node
from rclpy.signals import SignalHandlerOptions
from ros_process import claim_domain
from std_msgs.msg import String

from vag_policy.nodes.common import LATEST, steady_timer, subscribe
from vag_policy.nodes.side_executor import SideThreadExclusiveGroup, SideThreadExecutor, SideThreadGroup

DOMAIN = claim_domain()


@pytest.fixture
def spinning():
    context = rclpy.Context()
    rclpy.init(context=context, domain_id=DOMAIN, signal_handler_options=SignalHandlerOptions.NO)
    node = Node("side", context=context)
    executor = SideThreadExecutor(context=context)
    executor.add_node(node)
    yield node, executor
    executor.shutdown()
    node.destroy_node()
    context.try_shutdown()


def once(node: Node, callback, group):
    """A timer that fires once, in ``group``."""

    def fire() -> None:
        timer.cancel()
        callback()

    timer = steady_timer(node, 0.001, fire, callback_group=group)


def spin_until(executor: SideThreadExecutor, condition, seconds: float = 10.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "nothing happened"
        executor.spin_once(timeout_sec=0.01)


def test_quick_callbacks_run_while_a_slow_one_waits_and_each_runs_once(spinning):
    node, executor = spinning
    release, threads, quick = threading.Event(), [], []

    def slow() -> None:
        threads.append(threading.current_thread())
        release.wait(10.0)

    once(node, slow, SideThreadGroup())
    steady_timer(node, 0.002, lambda: quick.append(threading.current_thread()))
    spin_until(executor, lambda: threads and len(quick) > 20)
    release.set()
    spin_until(executor, lambda: len(quick) > 40)
    assert len(threads) == 1
    assert threads[0] is not threading.current_thread()
    assert set(quick) == {threading.current_thread()}


def test_an_exclusive_group_runs_one_at_a_time(spinning):
    node, executor = spinning
    running, most, done = [], [], []

    def slow() -> None:
        running.append(1)
        most.append(len(running))
        time.sleep(0.05)
        running.pop()
        done.append(1)

    group = SideThreadExclusiveGroup()
    for _ in range(3):
        once(node, slow, group)
    spin_until(executor, lambda: len(done) == 3)
    assert max(most) == 1


@pytest.mark.parametrize("group", [SideThreadGroup(), None], ids=["slow", "quick"])
def test_what_a_callback_raises_comes_out_of_the_spin(spinning, group):
    node, executor = spinning

    def fail() -> None:
        raise KeyError("lost")

    once(node, fail, group)
    with pytest.raises(KeyError, match="lost"):
        spin_until(executor, lambda: False)


def test_shutdown_waits_for_callbacks_under_way(spinning):
    node, executor = spinning
    started, done = threading.Event(), []

    def slow() -> None:
        started.set()
        time.sleep(0.2)
        done.append(1)

    once(node, slow, SideThreadGroup())
    spin_until(executor, started.is_set)
    executor.shutdown()
    assert done == [1]


def test_what_another_thread_destroys_while_it_is_waited_for_is_no_error(spinning, monkeypatch):
    node, executor = spinning
    subscription = subscribe(node, String, "chatter", print, LATEST)  # its QoS event is waited for, too
    event = subscription.event_handlers[0]
    can_execute = executor.can_execute

    def destroy_then(entity) -> bool:
        answer = can_execute(entity)
        if entity is event:
            node.destroy_subscription(subscription)
        return answer

    monkeypatch.setattr(executor, "can_execute", destroy_then)
    fired = []
    once(node, lambda: fired.append(True), SideThreadGroup())
    spin_until(executor, lambda: fired)
    assert subscription not in node.subscriptions
