"""The folder a demo writes to: only ever one that is empty or a demo's own, and one demo at a time."""

from __future__ import annotations

import contextlib
import fcntl
import shutil
from collections.abc import Iterator
from pathlib import Path

from vag_policy.bringup import BringupError

MARKER = ".vag_demo"
_ELSEWHERE = "name another folder with --out"


@contextlib.contextmanager
def claimed(out: Path) -> Iterator[Path]:
    """Make ``out`` an empty folder that no other demo writes to for as long as the context is open.

    What it held is removed, but only where a demo's marker says that it is a demo's own. The claim is a lock on that
    marker, so it ends with the process, however that ends.

    Raises:
        BringupError: it is no folder, cannot be written to, holds something that is not a demo's, or another demo
            is writing to it.
    """
    with contextlib.ExitStack() as held:
        try:
            held.enter_context(_lock(out))
            _empty(out)
        except OSError as error:
            reason = f"{error.strerror}: {error.filename}" if error.filename else error.strerror
            raise BringupError(f"cannot write to {out} ({reason}); {_ELSEWHERE}") from error
        yield out


@contextlib.contextmanager
def _lock(out: Path) -> Iterator[None]:
    if out.exists() and not out.is_dir():
        raise BringupError(f"{out} is not a folder; {_ELSEWHERE}")
    marker = out / MARKER
    if out.exists() and not marker.is_file() and any(out.iterdir()):
        raise BringupError(f"{out} holds something that is not a demo's results; {_ELSEWHERE}")
    out.mkdir(parents=True, exist_ok=True)
    with marker.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BringupError(f"another demo is writing to {out}; {_ELSEWHERE}") from None
        yield


def _empty(out: Path) -> None:
    for entry in out.iterdir():
        if entry.name == MARKER:
            continue
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()
