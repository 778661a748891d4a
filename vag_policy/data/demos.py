"""Generates a dataset of demonstrations in parallel processes; killed at any moment, it goes on where it was.

Attempts are numbered and committed in order, so that the dataset does not depend on the number of processes, nor on
how often it was interrupted. An attempt counts once its line is in the journal: files are placed first, and what a
killed run left without a line is simply made again.
"""

from __future__ import annotations

import fcntl
import json
import multiprocessing
import os
import shutil
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vag_policy.data import demo_worker
from vag_policy.data.demo_worker import Attempt, DemoConfig
from vag_policy.data.lerobot_writer import EpisodeEntry, place_episode, task_numbers, write_metadata

JOURNAL = "meta/demonstrations.jsonl"
_WORK, _LOCK = ".work", ".lock"
_METADATA_EVERY = 20
_ALONE = 4
_LONGEST_FAILURE = 50


@dataclass
class Tally:
    """How attempts went, in this dataset as a whole."""

    attempts: Counter[str] = field(default_factory=Counter)
    successes: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)

    @property
    def success(self) -> float:
        """Share of attempts that succeeded."""
        return self.successes.total() / max(self.attempts.total(), 1)


@dataclass(frozen=True)
class Result:
    """What a run made.

    Attributes:
        episodes: in the dataset now.
        tally: of all attempts since the dataset was begun.
        episodes_per_minute: of this run; None if it made nothing.
        speedup: frames a second with all processes over those with one, measured in this run; None if it was too
            short to tell.
    """

    episodes: int
    tally: Tally
    episodes_per_minute: float | None
    speedup: float | None


def generate(
    out: Path, config: DemoConfig, episodes: int, workers: int, progress: Callable[[int, Tally], None] | None = None
) -> Result:
    """Bring the dataset at ``out`` to ``episodes`` successful demonstrations.

    Args:
        out: a new folder, or one that an earlier run with the same configuration began.
        config: what is demonstrated.
        episodes: how many are wanted.
        workers: processes.
        progress: called with the number of episodes and the tally after every attempt.

    Raises:
        ValueError: ``out`` holds something else, another run is writing it, or the expert keeps failing.
    """
    if episodes < 1 or workers < 1:
        raise ValueError(f"episodes and workers must be positive, got {episodes} and {workers}")
    with _locked(out):
        dataset = _Dataset(out, config)
        dataset.report = progress
        try:
            rates = _run(dataset, config, episodes, workers)
        except BrokenProcessPool as error:
            raise ValueError(f"a process died (out of memory?); the same command goes on from here: {error}") from error
        finally:
            dataset.flush()
        shutil.rmtree(out / _WORK, ignore_errors=True)
    return Result(len(dataset.episodes), dataset.tally, *rates)


class _Dataset:
    """The dataset being written: its journal, and what follows from it."""

    def __init__(self, out: Path, config: DemoConfig) -> None:
        self.out, self._description = out, demo_worker.description(config)
        self.episodes: list[EpisodeEntry] = []
        self.tally = Tally()
        self.next_attempt = 0
        self.frames = 0
        self.report: Callable[[int, Tally], None] | None = None
        self._flushed = 0
        self._journal = out / JOURNAL
        self._open(config.to_json())

    def _open(self, config: dict[str, Any]) -> None:
        if not self._journal.exists():
            if any(path.name not in (_LOCK, _WORK) for path in self.out.iterdir()):
                raise ValueError(f"{self.out} is not empty and holds no demonstrations to go on with")
            self._append({"config": config})
            return
        text = self._journal.read_bytes()
        whole = text[: text.rfind(b"\n") + 1]  # a line cut short by a kill never counted
        if len(whole) < len(text):
            os.truncate(self._journal, len(whole))
        lines = [json.loads(line) for line in whole.splitlines()]
        if not lines:
            self._append({"config": config})
            return
        differing = [key for key, value in config.items() if lines[0]["config"].get(key) != value]
        if differing:
            raise ValueError(
                f"{self.out} was begun with another {differing[0]} ({lines[0]['config'].get(differing[0])}, now "
                f"{config[differing[0]]}); go on with the same, or choose another folder"
            )
        for line in lines[1:]:
            self._count(line)

    def commit(self, attempt: Attempt) -> None:
        """Make an attempt part of the dataset: files first, then its line in the journal."""
        line: dict[str, Any] = {"attempt": attempt.number, "instruction": attempt.instruction}
        if attempt.entry is None:
            line["reason"] = attempt.reason
        else:
            numbers = task_numbers([*self.episodes, attempt.entry])
            place_episode(
                self.out,
                self._description,
                len(self.episodes),
                self.frames,
                numbers[attempt.entry.task],
                attempt.columns(),
                attempt.videos(),
            )
            line["episode"] = attempt.entry.to_json()
            assert attempt.folder is not None
            shutil.rmtree(attempt.folder)
        self._append(line)
        self._count(line)
        if len(self.episodes) - self._flushed >= _METADATA_EVERY:
            self.flush()
        if self.report is not None:
            self.report(len(self.episodes), self.tally)

    def _count(self, line: dict[str, Any]) -> None:
        self.next_attempt = line["attempt"] + 1
        self.tally.attempts[line["instruction"]] += 1
        if "episode" not in line:
            self.tally.reasons[line["reason"]] += 1
            return
        self.tally.successes[line["instruction"]] += 1
        self.episodes.append(EpisodeEntry.from_json(line["episode"]))
        self.frames += self.episodes[-1].length

    def _append(self, line: dict[str, Any]) -> None:
        self._journal.parent.mkdir(parents=True, exist_ok=True)
        with self._journal.open("a") as file:
            file.write(json.dumps(line) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def flush(self) -> None:
        """Bring the metadata up to the journal."""
        if self.episodes:
            write_metadata(self.out, self._description, self.episodes)
            self._flushed = len(self.episodes)


def _run(dataset: _Dataset, config: DemoConfig, episodes: int, workers: int) -> tuple[float | None, float | None]:
    """Returns episodes a minute, and the speed-up over one process."""
    if len(dataset.episodes) >= episodes:
        return None, None
    context = multiprocessing.get_context("spawn")  # a forked OpenGL context would not work
    work = dataset.out / _WORK
    shutil.rmtree(work, ignore_errors=True)
    arguments = (config, work, context.Barrier(workers), os.getpid())
    with ProcessPoolExecutor(workers, context, demo_worker.start_process, arguments) as pool:
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])  # Ctrl-C is the parent's, from the first moment on
        try:
            meetings = [pool.submit(demo_worker.meet) for _ in range(workers)]
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
        for ready in meetings:
            ready.result()
        alone = None
        try:
            if workers > 1 and episodes - len(dataset.episodes) >= 3 * _ALONE:
                alone = _produce(dataset, pool, len(dataset.episodes) + _ALONE, 1)
            together = _produce(dataset, pool, episodes, workers)
        finally:
            pool.shutdown(cancel_futures=True)
    made, frames, seconds = together
    speedup = 1.0 if workers == 1 else None
    if alone is not None:
        speedup = (frames / seconds) / (alone[1] / alone[2])
    return 60.0 * made / seconds, speedup


def _produce(dataset: _Dataset, pool: ProcessPoolExecutor, episodes: int, workers: int) -> tuple[int, int, float]:
    """Commit attempts, in order, until there are ``episodes``; returns episodes and frames made, and seconds."""
    begin, made, frames = time.perf_counter(), len(dataset.episodes), dataset.frames
    waiting: list[Future[Attempt]] = []
    number, failures = dataset.next_attempt, 0
    while len(dataset.episodes) < episodes:
        while len(waiting) < (1 if workers == 1 else 2 * workers):
            waiting.append(pool.submit(demo_worker.attempt, number))
            number += 1
        outcome = waiting.pop(0).result()
        dataset.commit(outcome)
        failures = failures + 1 if outcome.entry is None else 0
        if failures >= _LONGEST_FAILURE:
            raise ValueError(f"the expert failed {failures} times in a row, at last: {outcome.reason}")
    for future in waiting:
        future.cancel()
    return len(dataset.episodes) - made, dataset.frames - frames, time.perf_counter() - begin


@contextmanager
def _locked(out: Path) -> Iterator[None]:
    if out.exists() and not out.is_dir():
        raise ValueError(f"{out} is not a folder")
    out.mkdir(parents=True, exist_ok=True)
    with (out / _LOCK).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise ValueError(f"another run is writing {out}") from None
        yield
