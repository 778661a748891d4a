"""The first moments of a program: stop signals, and a starter that dies."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from ros_process import PATIENCE_S

from vag_policy import entry

SETUP = (Path(__file__).resolve().parent.parent / "setup.py").read_text()


def start(command: list[str], before: Callable[[], object] | None = None, **environment: str) -> subprocess.Popen[str]:
    """Start with stop signals blocked, so that one that comes while Python itself starts is not lost."""
    signal.pthread_sigmask(signal.SIG_BLOCK, entry.STOP_SIGNALS)
    try:
        everything = {**os.environ, **environment}
        everything.pop("_ROS_WHEELS_BOOTSTRAP_COMPLETE", None)
        command = [sys.executable, *command]
        return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=everything, preexec_fn=before)
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, entry.STOP_SIGNALS)


@pytest.mark.parametrize("number", entry.STOP_SIGNALS)
@pytest.mark.parametrize(
    ("command", "node"),
    [
        (["-m", "vag_policy.cli", "up", "yam"], False),
        (["-c", "from vag_policy.entry import vag; vag()", "up", "yam"], False),
        (["-m", "vag_policy.nodes.recorder_node"], True),
        (["-c", "from vag_policy.entry import recorder_node; recorder_node()"], True),
    ],
)
def test_a_stop_during_imports_is_quiet(command, node, number):
    with start(command) as process:
        process.send_signal(number)
        _, words = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, words) == (0 if node else 128 + number, "")


def test_a_hang_up_that_nohup_ignores_stays_ignored():
    with start(
        ["-m", "vag_policy.nodes.recorder_node"], before=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN)
    ) as p:
        p.send_signal(signal.SIGHUP)
        _, words = p.communicate(timeout=PATIENCE_S)
    assert p.returncode == 2 and "parameter 'output' must name the folder" in words  # it went on to its own end


@pytest.mark.parametrize("ignored", [True, False])
def test_a_hang_up_stops_a_running_program_unless_it_is_ignored(ignored):
    seen: list[int] = []
    handlers = {number: signal.getsignal(number) for number in entry.STOP_SIGNALS}
    try:
        signal.signal(signal.SIGHUP, signal.SIG_IGN if ignored else signal.SIG_DFL)
        entry.on_stop(seen.append)
        for number in entry.STOP_SIGNALS:
            signal.raise_signal(number)
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    assert seen == [signal.SIGINT, signal.SIGTERM, *([] if ignored else [signal.SIGHUP])]


CAUGHT = """
import sys, time
from vag_policy import entry
entry.begin()
entry.imports_done()
try:
    print("ready", file=sys.stderr, flush=True)
    time.sleep(60)
except KeyboardInterrupt:
    raise SystemExit(7)
"""


def test_ctrl_c_has_its_usual_meaning_after_the_imports():
    with start(["-c", CAUGHT]) as process:
        assert process.stderr.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_S) == 7


def test_a_program_ends_with_its_starter():
    body = "import time; from vag_policy.entry import begin; begin(); time.sleep(60)"
    with start(["-c", body], VAG_STARTER=f"{os.getpid()}:0") as process:
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(1.0)  # the starter lives
        process.kill()
    with start(["-c", body], VAG_STARTER="1:0") as process:
        assert process.wait(PATIENCE_S) == 128 + signal.SIGTERM


@pytest.mark.parametrize("text", ["make", "12:soon", "-1", "1:-1", "1:nan", "1:1e9", "٣", "9" * 400, ":", "1:2:3"])
def test_a_starter_that_is_none_is_ignored(text, capsys):
    assert entry._starter(text) is None
    (line,) = capsys.readouterr().err.splitlines()
    assert line == f"VAG_STARTER is '{text[:80]}', not a process id or ID:SECONDS: ignored"


def test_a_starter_may_leave_a_delay(capsys):
    assert (entry._starter(""), entry._starter("12"), entry._starter("12:2.0")) == (None, (12, 0.0), (12, 2.0))
    assert capsys.readouterr().err == ""


def test_every_console_script_begins_here():
    scripts = dict(re.findall(r'"(\w+) = ([\w.]+:\w+)"', SETUP))
    assert scripts == {name: f"vag_policy.entry:{name}" for name in scripts} and len(scripts) == 7
    assert all(callable(getattr(entry, name)) for name in scripts)


def test_nothing_slow_is_imported_before_the_signals_are_taken():
    with start(["-X", "importtime", "-c", "import vag_policy.entry"]) as process:
        _, words = process.communicate(timeout=PATIENCE_S)
    assert "vag_policy.entry" in words and not re.search(r"\b(rclpy|numpy|typer|yaml|torch)\b", words)
