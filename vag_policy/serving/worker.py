"""One thread that works on the newest item only."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any, Generic, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


class WorkerStoppedError(RuntimeError):
    """The worker was stopped before it could do what was asked of it."""


class LatestWorker(Generic[Item]):
    """A thread with a mailbox of one: an item that was not taken yet is replaced by a newer one.

    ``call`` runs a function on the same thread, between items: libraries that keep state per thread (OpenMP teams,
    CUDA handles) are then warmed up and used by one thread.

    The thread is a daemon, so that work which cannot be interrupted does not keep the process alive; ``stop`` says
    whether it ended in time.

    Args:
        work: called with each item taken; should not raise. What it raises goes to ``threading.excepthook`` and the
            thread goes on.
        name: of the thread.
    """

    def __init__(self, work: Callable[[Item], None], name: str) -> None:
        self._work = work
        self._condition = threading.Condition()
        self._calls: deque[_Call] = deque()
        self._mail: deque[Item] = deque(maxlen=1)
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def put(self, item: Item) -> None:
        """Make ``item`` the next one to work on."""
        with self._condition:
            if not self._stopped:
                self._mail.append(item)
                self._condition.notify_all()

    def clear(self) -> None:
        """Forget an item that was not taken yet."""
        with self._condition:
            self._mail.clear()

    def call(self, function: Callable[[], Result]) -> Result:
        """Run ``function`` on the thread, wait, and return its result or raise its exception.

        Raises:
            WorkerStoppedError: ``stop`` came first.
        """
        request = _Call(function)
        with self._condition:
            if not self._stopped:
                self._calls.append(request)
            self._condition.notify_all()
            self._condition.wait_for(lambda: request.done or self._stopped)
        if not request.done:
            raise WorkerStoppedError("the worker was stopped")
        if request.error is not None:
            raise request.error
        return request.result

    def stop(self, timeout_s: float) -> bool:
        """Take no more work, drop what waits, and wait for the thread; False where it is still busy after that."""
        with self._condition:
            self._stopped = True
            self._mail.clear()
            self._calls.clear()
            self._condition.notify_all()
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while True:
            with self._condition:
                self._condition.wait_for(lambda: self._stopped or self._calls or self._mail)
                if self._stopped:
                    return
                task = self._calls.popleft() if self._calls else self._mail.popleft()
            if isinstance(task, _Call):
                task.run()
                with self._condition:
                    task.done = True
                    self._condition.notify_all()
            else:
                self._attempt(task)
            del task  # an item may be large: do not hold it while waiting for the next

    def _attempt(self, item: Item) -> None:
        try:
            self._work(item)
        except Exception as error:
            arguments = threading.ExceptHookArgs((type(error), error, error.__traceback__, self._thread))
            threading.excepthook(arguments)


class _Call:
    def __init__(self, function: Callable[[], Any]) -> None:
        self._function = function
        self.result: Any = None
        self.error: BaseException | None = None
        self.done = False

    def run(self) -> None:
        try:
            self.result = self._function()
        except BaseException as error:  # handed to the caller, whatever it is
            self.error = error
