"""A graph's nodes as processes, where ``launch`` is missing: started, watched, and stopped in the order of danger."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TextIO

import yaml

from vag_policy.bringup import BringupError, NodeSpec, arguments, checked_namespace
from vag_policy.entry import STARTER, STOP_SIGNALS
from vag_policy.node_logs import last_words

_GO_ON_S = 2.0
"""How long the others go on when their starter has died: joint_command tells the arms to hold, then brakes."""


_MOMENT_S = 1.0
_LAST_S = 0.5
"""How long a node has between SIGTERM and SIGKILL."""
_TELL_EVERY_S = 1.0
_LOOK_EVERY_S = 0.02


class Graph:
    """Running processes, one per node.

    Use as a context manager: leaving it stops every process, first politely (SIGINT, so that the arms are told to
    hold), then by force. Where this process dies without leaving it, they stop by themselves.

    Raises:
        BringupError: no such namespace, or a log cannot be written.
    """

    def __init__(
        self,
        specs: Sequence[NodeSpec],
        log_folder: Path,
        namespace: str = "",
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.specs = tuple(specs)
        self._log_folder = log_folder
        self._namespace = checked_namespace(namespace)
        self._environment = {**os.environ, **(environment or {})}
        # The guard of the ROS wheels' bootstrap must not reach a child, which bootstraps itself.
        self._environment.pop("_ROS_WHEELS_BOOTSTRAP_COMPLETE", None)
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._logs: dict[str, TextIO] = {}
        self._temporary: tempfile.TemporaryDirectory[str] | None = None

    def __enter__(self) -> Graph:
        self._temporary = tempfile.TemporaryDirectory(prefix="vag_")
        try:
            self._log_folder.mkdir(parents=True, exist_ok=True)
            for spec in self.specs:
                self.start(spec.name)
        except OSError as error:
            self.stop()
            reason = f"{error.strerror}: {error.filename}"
            raise BringupError(f"cannot write the nodes' output to {self._log_folder} ({reason})") from error
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self, name: str) -> None:
        """Start (or start again) the node called ``name``; its output goes to ``<log_folder>/<name>.log``."""
        assert self._temporary is not None
        spec = next(spec for spec in self.specs if spec.name == name)
        overrides = None
        if spec.parameters:
            overrides = Path(self._temporary.name) / f"{name}.yaml"
            overrides.write_text(yaml.safe_dump({f"/**/{name}": {"ros__parameters": dict(spec.parameters)}}))
        if name not in self._logs:
            self._logs[name] = self.log_file(name).open("w")
        delay = 0.0 if name == "joint_command" else _GO_ON_S
        environment = {**self._environment, STARTER: f"{os.getpid()}:{delay}"}
        # A stop that comes while Python itself starts waits until the node's first line (entry.begin).
        before = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
        try:
            self._processes[name] = subprocess.Popen(
                arguments(spec, overrides, self._namespace),
                stdout=self._logs[name],
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                env=environment,
                # A Ctrl-C in the terminal reaches this process alone, which then stops the others in order.
                start_new_session=True,
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def process(self, name: str) -> subprocess.Popen[bytes]:
        """The process of the node called ``name``."""
        return self._processes[name]

    def dead(self) -> dict[str, int]:
        """Exit code of every process that has ended, by node name."""
        return {name: code for name, p in self._processes.items() if (code := p.poll()) is not None}

    def log_file(self, name: str) -> Path:
        """Where the output of the node called ``name`` goes."""
        return self._log_folder / f"{name}.log"

    def log_of(self, name: str) -> str:
        """What the node called ``name`` has printed."""
        return self.log_file(name).read_text(errors="replace")

    def epitaph(self, name: str) -> str:
        """Why the node called ``name`` has ended: its last FATAL line, or its last lines where it had none."""
        code, text = self._processes[name].poll(), self.log_of(name)
        return f"{name} ended with code {code}: {last_words(text)}; its whole output: {self.log_file(name)}"

    def stop(
        self,
        patience_s: float = 8.0,
        say: Callable[[str], None] = lambda text: None,
        nothing_to_lose: Collection[str] = (),
    ) -> dict[str, int]:
        """Stop everything; return the exit code of every node.

        The order is that of danger: joint_command goes first, so that its last command is to hold while its
        feedback still lives, then the others.

        Args:
            patience_s: how long nodes may take to end by themselves before they are ended by force.
            say: told what is waited for.
            nothing_to_lose: nodes that are given a moment only, since all they do is start.
        """
        order = sorted(self._processes, key=lambda name: name != "joint_command")
        if any(process.poll() is None for process in self._processes.values()):
            say("stopping joint_command, so that the arms hold, then the others")
        for name in order:
            _signal(self._processes[name], signal.SIGINT)
            if name == "joint_command":
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._processes[name].wait(2.0)
        patience = {name: min(patience_s, _MOMENT_S) if name in nothing_to_lose else patience_s for name in order}
        self._wait(patience, say)
        codes = {name: process.wait() for name, process in self._processes.items()}
        for log in self._logs.values():
            log.close()
        if self._temporary is not None:
            self._temporary.cleanup()
        return codes

    def _wait(self, patience: Mapping[str, float], say: Callable[[str], None]) -> None:
        """Wait for every node for as long as its patience lasts, then end it: by SIGTERM, and by force."""
        began, told = time.monotonic(), time.monotonic()
        terminated: dict[str, float] = {}
        while living := [name for name, process in self._processes.items() if process.poll() is None]:
            now = time.monotonic()
            if now - told >= _TELL_EVERY_S:
                told = now
                say(f"waiting for {', '.join(living)} to end")
            for name in living:
                if now - terminated.get(name, now) >= _LAST_S:
                    say(f"{name} does not end: it is ended by force")
                    _signal(self._processes[name], signal.SIGKILL)
                elif now - began >= patience.get(name, 0.0) and name not in terminated:
                    _signal(self._processes[name], signal.SIGTERM)
                    terminated[name] = now
            time.sleep(_LOOK_EVERY_S)


def _signal(process: subprocess.Popen[bytes], number: int) -> None:
    if process.poll() is None:
        process.send_signal(number)


@contextlib.contextmanager
def private_domain() -> Iterator[int]:
    """A ROS domain that no other user of this function on this machine has, for as long as it is held.

    The claim is a bound loopback port, so it ends with the process, however that ends. Ids 1 to 99 keep clear of
    the default domain, where a real rig may be listening.

    Raises:
        BringupError: every domain is taken.
    """
    first = 1 + os.getpid() % 99
    for offset in range(99):
        domain = 1 + (first + offset) % 99
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as claim:
            try:
                claim.bind(("127.0.0.1", 23700 + domain))
            except OSError:
                continue
            yield domain
            return
    raise BringupError("all ROS domains from 1 to 99 are taken on this machine")
