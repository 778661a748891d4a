"""Episodes on disk, one line each: a killed evaluation goes on where it was, and runs no episode twice."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO

FILE = "episodes.jsonl"


class Journal:
    """``episodes.jsonl`` of a folder: a line that says what is evaluated, then a line an episode, in any order.

    Use as a context manager.

    Args:
        folder: made if need be; None keeps everything in memory.
        header: what decides the episodes' content. A folder begun with another one is refused.

    Attributes:
        records: by episode index.

    Raises:
        ValueError: the folder was begun with another header, or another process is writing it.
    """

    def __init__(self, folder: Path | None, header: Mapping[str, Any]) -> None:
        self.records: dict[int, dict[str, Any]] = {}
        self._file: TextIO | None = None
        if folder is None:
            return
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / FILE
        self._file = path.open("a+")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._file.close()
            raise ValueError(f"another process is writing {path}") from error
        self._open(path, json.loads(json.dumps(header)))

    def _open(self, path: Path, header: dict[str, Any]) -> None:
        assert self._file is not None
        text = path.read_bytes()
        whole = text[: text.rfind(b"\n") + 1]  # a line cut short by a kill never counted
        if len(whole) < len(text):
            os.truncate(path, len(whole))
        lines = [json.loads(line) for line in whole.splitlines()]
        if not lines:
            self._write({"evaluation": header})
            return
        begun = lines[0].get("evaluation", {})
        differing = [key for key in {**begun, **header} if begun.get(key) != header.get(key)]
        if differing:
            self._file.close()
            raise ValueError(
                f"{path} was begun with another {differing[0]} ({begun.get(differing[0])}, now "
                f"{header.get(differing[0])}); go on with the same, or choose another folder"
            )
        self.records = {line["index"]: line for line in lines[1:]}

    def add(self, record: Mapping[str, Any]) -> None:
        """Keep an episode's record; it is on disk when this returns.

        Raises:
            ValueError: that episode is there already.
        """
        index = record["index"]
        if index in self.records:
            raise ValueError(f"episode {index} is there already")
        self._write(record)
        self.records[index] = dict(record)

    def _write(self, line: Mapping[str, Any]) -> None:
        if self._file is not None:
            self._file.write(json.dumps(line) + "\n")
            self._file.flush()
            os.fsync(self._file.fileno())

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.close()


def read_journal(folder: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """What a folder's episodes are of, and their records by index.

    Raises:
        ValueError: there is no journal.
    """
    path = folder / FILE
    if not path.is_file():
        raise ValueError(f"no evaluation in {folder}: {FILE} is missing")
    text = path.read_bytes()
    first, *lines = [json.loads(line) for line in text[: text.rfind(b"\n") + 1].splitlines()]
    return first["evaluation"], sorted(lines, key=lambda line: line["index"])
