"""The first moments of every program of ours, before its imports, which take seconds.

A stop signal then ends the program quietly instead of with a traceback from whatever was being imported. A program
that was started by another of ours also ends when that one dies, however it dies: nobody else would stop it.
"""

from __future__ import annotations

import importlib
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable

STARTER = "VAG_STARTER"
"""Environment variable: the process id of whoever started this program, and after a colon the seconds for which it
goes on after that process died (none: 0)."""

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Ctrl-C, a stop by another program, and the end of the terminal or of the connection it came over."""
_LOOK_EVERY_S = 0.5
_PATIENCE_S = 10.0


def begin(exit_code: int | None = None) -> None:
    """Call before anything slow is imported.

    Until the program installs handlers of its own, a stop signal ends it at once with ``exit_code`` (None: 128 and
    the signal's number). One that came even earlier was kept back where the starter blocked it.
    """
    for number in STOP_SIGNALS:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, lambda received, _: os._exit(128 + received if exit_code is None else exit_code))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
    arguments = _starter(os.environ.pop(STARTER, ""))
    if arguments is not None:
        threading.Thread(target=_end_with, args=arguments, name="starter watch", daemon=True).start()


def _starter(text: str) -> tuple[int, float] | None:
    """The process id and the seconds in ``text``; None where there are none, which is said where it holds others."""
    found = re.fullmatch(r"([0-9]{1,10})(?::([0-9]{1,6}(?:[.][0-9]{1,9})?))?", text, re.ASCII)
    if found is None:
        if text:
            print(f"{STARTER} is '{text[:80]}', not a process id or ID:SECONDS: ignored", file=sys.stderr)
        return None
    return int(found[1]), float(found[2] or 0)


def on_stop(stop: Callable[[int], None]) -> None:
    """From now on, stop signals call ``stop`` with their number; a hang-up that ``nohup`` ignores stays ignored."""
    for number in STOP_SIGNALS:
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, lambda received, _: stop(received))


def begin_module() -> None:
    """``begin`` for ``python -m vag_policy.…``, called while the package itself is imported."""
    begin(0 if any(word.startswith("vag_policy.nodes.") for word in sys.orig_argv) else None)


def imports_done() -> None:
    """Give the stop signals back their usual meaning, for a program without handlers of its own."""
    if signal.getsignal(signal.SIGINT) != signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)


def _end_with(starter: int, delay_s: float) -> None:
    """Stop this process, as by a signal from outside, once its parent is no longer ``starter``."""
    while os.getppid() == starter:
        time.sleep(_LOOK_EVERY_S)
    time.sleep(delay_s)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(_PATIENCE_S)
    os._exit(1)


def _node(name: str) -> Callable[[], None]:
    def main() -> None:
        begin(0)
        importlib.import_module(f"vag_policy.nodes.{name}").main()

    return main


camera_sync_node = _node("camera_sync_node")
policy_node = _node("policy_node")
tr_monitor_node = _node("tr_monitor_node")
joint_command_node = _node("joint_command_node")
recorder_node = _node("recorder_node")
yam_sim_node = _node("yam_sim_node")


def vag() -> None:
    """Console script ``vag``."""
    begin()
    importlib.import_module("vag_policy.cli").main()
