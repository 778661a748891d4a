"""What a run tells: one line of JSON a step, TensorBoard, and a progress bar."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from torch.utils.tensorboard import SummaryWriter

LOG = "losses.jsonl"
_LINE_SECONDS = 15.0  # between lines where there is no terminal to draw a bar on


class Report:
    """Reports of one process; the others of a distributed run stay silent.

    Args:
        folder: of the run.
        done: steps done before; lines of later ones, left by a run that was killed, are dropped.
        total: steps in all.
        silent: write nothing.
    """

    def __init__(self, folder: Path, done: int, total: int, silent: bool = False) -> None:
        self._silent, self._last = silent, 0.0
        if silent:
            return
        path = folder / LOG
        kept = read_log(folder)[:done] if path.exists() else []
        unfinished = path.with_suffix(".part")
        unfinished.write_text("".join(json.dumps(line) + "\n" for line in kept))
        unfinished.replace(path)
        self._file = path.open("a")
        self._board = SummaryWriter(str(folder / "tensorboard"), purge_step=done)
        self._console = Console()
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        self._progress = Progress(*columns, console=self._console, disable=not self._console.is_terminal)
        self._task = self._progress.add_task("training", total=total, completed=done)

    def __enter__(self) -> Report:
        if not self._silent:
            self._progress.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None) -> None:
        if not self._silent:
            self._progress.stop()
            self._file.close()
            self._board.close()

    def step(self, step: int, stage: str, values: Mapping[str, float], rates: Mapping[str, float]) -> None:
        """Report step ``step`` (steps done, so 1 is the first).

        Args:
            step: number.
            stage: kind of the stage.
            values: what a run repeats exactly: losses, gradient norm, learning rate.
            rates: what it does not: samples a second, share of the time spent waiting for data.
        """
        if self._silent:
            return
        self._file.write(json.dumps({"step": step, "stage": stage, **values}) + "\n")
        self._file.flush()
        for name, value in (values | rates).items():  # type: ignore[operator]
            self._board.add_scalar(f"{stage}/{name}", value, step)
        losses = " ".join(f"{name} {value:.4f}" for name, value in values.items() if name != "rate")
        text = f"{stage} {losses} {rates['samples_per_second']:.1f}/s"
        self._progress.update(self._task, completed=step, description=text)
        if not self._console.is_terminal and time.monotonic() - self._last > _LINE_SECONDS:
            self._last = time.monotonic()
            line = f"step {step} {text}, waiting for data {100 * rates['data_share']:.1f} %"
            self._console.print(line, soft_wrap=True)

    def say(self, text: str) -> None:
        """A line for the user."""
        if not self._silent:
            self._console.print(text, soft_wrap=True)


def read_log(folder: Path) -> list[dict]:
    """Lines of a run's log, one a step, in order; a line cut short by a kill is left out."""
    lines = (folder / LOG).read_text().splitlines()
    found = []
    for number, line in enumerate(lines, start=1):
        try:
            entry = json.loads(line)
        except json.JSONDecodeError:
            break
        if entry.get("step") != number:
            raise ValueError(f"{folder / LOG}: line {number} is of step {entry.get('step')}")
        found.append(entry)
    return found
