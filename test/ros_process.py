"""Helpers for tests over real DDS: a node as a process, and a probe that talks to it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import rclpy
from rclpy.exceptions import InvalidHandle
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from rclpy.qos import QoSProfile
from rclpy.signals import SignalHandlerOptions

from vag_policy.processes import private_domain

_CLAIMS = contextlib.ExitStack()


def claim_domain() -> int:
    """A ROS domain for as long as this test process lives; two runs on one machine never meet."""
    return _CLAIMS.enter_context(private_domain())


PATIENCE_S = 20.0
"""Longest wait for anything: only a failing test takes that long."""


class NodeProcess:
    """A ROS node in a process of its own; its output is in ``log()``."""

    def __init__(self, command: Sequence[str], folder: Path, domain: int, parameters: dict[str, Any] | None = None):
        arguments = [sys.executable, *command, "--ros-args"]
        for name, value in (parameters or {}).items():
            text = str(value).lower() if isinstance(value, bool) else str(value).replace("'", '"')
            arguments += ["-p", f"{name}:={text}"]
        environment = {**os.environ, "ROS_DOMAIN_ID": str(domain), "OMP_NUM_THREADS": "1"}
        environment["ROS_PYTHON_CHECK_FIELDS"] = "1"
        environment.pop("_ROS_WHEELS_BOOTSTRAP_COMPLETE", None)
        self._path = folder / f"{time.monotonic_ns()}.log"
        with self._path.open("w") as log:
            self.process = subprocess.Popen(arguments, stdout=log, stderr=log, env=environment)

    def __enter__(self) -> NodeProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def log(self) -> str:
        return self._path.read_text(errors="replace")

    def stop(self, number: int = signal.SIGINT, patience_s: float = PATIENCE_S) -> int:
        """Send a signal and return the exit code; one that does not end in time is killed (-9)."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            return self.process.wait(patience_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()

    def wait(self) -> int:
        """Exit code of a process that should end by itself."""
        try:
            return self.process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise AssertionError(f"still running; log:\n{self.log()}") from None


class Probe:
    """A node of the test's own, in its own context, spun by a thread."""

    def __init__(self, domain: int):
        self._context = rclpy.Context()
        rclpy.init(context=self._context, domain_id=domain, signal_handler_options=SignalHandlerOptions.NO)
        self.node = Node("probe", context=self._context)
        self._executor = SingleThreadedExecutor(context=self._context)
        self._executor.add_node(self.node)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._spin)
        self._thread.start()

    def _spin(self) -> None:
        while not self._stopping.is_set():
            with contextlib.suppress(InvalidHandle):  # the test has destroyed what was about to be waited for
                self._executor.spin_once(timeout_sec=0.05)

    def __enter__(self) -> Probe:
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()
        self._executor.shutdown()
        self.node.destroy_node()
        self._context.try_shutdown()

    def collect(self, message_type: type, topic: str, qos: QoSProfile | int = 10) -> list[Any]:
        """A list that grows with every message on ``topic``."""
        received: list[Any] = []
        self.node.create_subscription(message_type, topic, received.append, qos)
        return received

    def wait(self, condition: Callable[[], Any], what: str, seconds: float = PATIENCE_S) -> Any:
        """Wait until ``condition`` is true and return its value."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            value = condition()
            if value:
                return value
            time.sleep(0.005)
        raise AssertionError(f"waited {seconds} s for {what}")

    def done(self, future: Any, what: str, seconds: float = PATIENCE_S) -> Any:
        """The result of a future that the probe's own thread completes."""
        self.wait(future.done, what, seconds)
        return future.result()

    def call(self, service_type: type, name: str, request: Any = None, seconds: float = PATIENCE_S) -> Any:
        """Call a service and return its response."""
        client = self.node.create_client(service_type, name)
        try:
            self.wait(client.service_is_ready, f"service {name}", seconds)
            return self.done(client.call_async(request or service_type.Request()), f"an answer of {name}", seconds)
        finally:
            self.node.destroy_client(client)


def status_of(messages: Sequence[Any], name: str) -> Any:
    """The newest diagnostic status whose name ends with ``name``, or None."""
    for array in reversed(messages):
        for status in array.status:
            if status.name.endswith(name):
                return status
    return None


def values_of(status: Any) -> dict[str, str]:
    return {pair.key: pair.value for pair in status.values}
