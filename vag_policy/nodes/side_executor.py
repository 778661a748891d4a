"""An executor for a node with a few slow callbacks: they get threads, everything else runs in the spinning thread.

rclpy's MultiThreadedExecutor hands every callback to a pool, and until the pool's thread starts, it finds the same
callback pending and hands it over again, in a loop that keeps the interpreter lock from that very thread: with one
image topic at 30 Hz it costs 10 to 45 ms of CPU a message, where a single thread costs 1.6.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from rclpy.callback_groups import MutuallyExclusiveCallbackGroup, ReentrantCallbackGroup
from rclpy.exceptions import InvalidHandle
from rclpy.executors import Executor, ShutdownException, TimeoutException
from rclpy.task import Task

_THREADS = 8


class SideThread:
    """Marks callback groups whose callbacks may take long."""


class SideThreadGroup(SideThread, ReentrantCallbackGroup):
    """Slow callbacks that may run beside each other."""


class SideThreadExclusiveGroup(SideThread, MutuallyExclusiveCallbackGroup):
    """Slow callbacks, one at a time."""


class SideThreadExecutor(Executor):
    """Runs callbacks of ``SideThread`` groups, and the goals of action servers, in threads of their own."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="slow callback")
        self._running: set[Task] = set()

    def spin_once(self, timeout_sec: float | None = None) -> None:
        """Run the next callback, or hand it to a thread; raise what a callback raised."""
        for task in [task for task in self._running if task.done()]:
            self._running.discard(task)
            task.result()
        try:
            task, entity, _node = self.wait_for_ready_callbacks(timeout_sec)
        except (ShutdownException, TimeoutException):
            return
        except InvalidHandle:
            return  # a side thread has destroyed something that was about to be waited for
        if entity is not None and not isinstance(entity.callback_group, SideThread):
            task()
            task.result()
        elif task in self._running:
            time.sleep(0.001)  # handed over, and about to start
        else:
            self._running.add(task)
            self._pool.submit(task)

    def shutdown(self, timeout_sec: float | None = None) -> bool:
        """Take no more callbacks, and wait for those under way: they must not run into a destroyed node."""
        stopped = super().shutdown(timeout_sec)
        self._pool.shutdown()
        return stopped
