"""What running nodes complain about, read from the files that their output goes to."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

SECOND_NS = 1_000_000_000
_LINE = re.compile(r"\[(INFO|WARN|ERROR|FATAL)\] \[[\d.]+\] \[[^\]]*\]: (.*)")
_LINES_SHOWN = 15


def last_words(log: str) -> str:
    """Why a process ended, judging by its output: the last FATAL line, or the last lines where it had none."""
    fatal = [found[2] for found in map(_LINE.match, log.splitlines()) if found and found[1] == "FATAL"]
    return fatal[-1] if fatal else "\n" + "\n".join(log.splitlines()[-_LINES_SHOWN:]) + "\n"


class LogTail:
    """The warnings and errors in one node's output, as they are written.

    Args:
        name: of the node, put before every line.
        path: the file; it need not exist yet.
        burst: most lines that ``new`` gives within a second; what is more is counted.
    """

    def __init__(self, name: str, path: Path, burst: int = 5) -> None:
        self._name, self._path, self._burst = name, path, burst
        self._offset = self._left_out = self._given = 0
        self._second_ns: int | None = None
        self._news: list[tuple[str, str]] = []

    def news(self) -> list[tuple[str, str]]:
        """(node, message) of what was logged as information, and read by ``new``, since the last call."""
        news, self._news = self._news, []
        return news

    def new(self, now_ns: int) -> Iterator[str]:
        """``<node>: <severity>: <message>`` for what was written since the last call, and how much was left out."""
        if self._second_ns is None or now_ns - self._second_ns >= SECOND_NS:
            if self._left_out:
                yield f"{self._name}: {self._left_out} more warnings or errors, see {self._path}"
            self._second_ns, self._given, self._left_out = now_ns, 0, 0
        for line in self._read():
            found = _LINE.match(line)
            if found and found[1] == "INFO":
                self._news.append((self._name, found[2]))
            elif found and self._given < self._burst:
                self._given += 1
                yield f"{self._name}: {found[1]}: {found[2]}"
            elif found:
                self._left_out += 1

    def _read(self) -> list[str]:
        """Whole lines since the last call; one that is still being written is left for the next."""
        if not self._path.exists():
            return []
        with self._path.open("rb") as file:
            file.seek(self._offset)
            text = file.read()
        whole = text[: text.rfind(b"\n") + 1]
        self._offset += len(whole)
        return whole.decode(errors="replace").splitlines()


class LogTails:
    """The warnings and errors of several nodes; ``files`` is the output file by node name."""

    def __init__(self, files: Mapping[str, Path]) -> None:
        self._tails = [LogTail(name, path) for name, path in files.items()]

    def new(self, now_ns: int) -> list[str]:
        """What was written since the last call, a node at a time."""
        return [line for tail in self._tails for line in tail.new(now_ns)]

    def news(self) -> list[tuple[str, str]]:
        """(node, message) of what was logged as information, and read by ``new``, since the last call."""
        return [line for tail in self._tails for line in tail.news()]
