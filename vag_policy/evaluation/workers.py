"""Episodes in processes of their own, one thread each, which share nothing."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

from vag_policy.evaluation.records import record
from vag_policy.evaluation.rollout import LoopConfig, Rollout
from vag_policy.evaluation.trials import Trial
from vag_policy.parent import end_with
from vag_policy.policy import Policy
from vag_policy.robots.yam_sim import Sim

MakePolicy = Callable[[Sim], Policy]
"""Makes the policy in the process that runs it; must be picklable. Only a scripted one may use the world."""

_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
_rollout: Rollout | None = None


def run(
    config: LoopConfig, make_policy: MakePolicy, trials: Sequence[Trial], workers: int, pictures: Path | None = None
) -> Iterator[dict[str, Any]]:
    """The record of every trial, in the order they end; with ``pictures``, a sheet of each goes into that folder.

    Raises:
        ValueError: not one worker, what an episode or ``make_policy`` raised, or a process died.
    """
    if workers < 1:
        raise ValueError(f"workers must be positive, got {workers}")
    if not trials:
        return
    os.environ.update(dict.fromkeys(_THREADS, "1"))  # read when the processes load their libraries
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(
        min(workers, len(trials)), context, initializer=_start, initargs=(config, make_policy, os.getpid())
    )
    try:
        yield from _drain(pool, trials, pictures, 2 * workers)
    except BrokenProcessPool as error:
        raise ValueError(f"a process died (out of memory?); the same command goes on from here: {error}") from error
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _drain(
    pool: ProcessPoolExecutor, trials: Sequence[Trial], pictures: Path | None, ahead: int
) -> Iterator[dict[str, Any]]:
    waiting = list(reversed(trials))
    running: set[Future[dict[str, Any]]] = set()
    while waiting or running:
        while waiting and len(running) < ahead:
            running.add(pool.submit(_run, waiting.pop(), pictures))
        done, running = wait(running, return_when=FIRST_COMPLETED)
        for future in done:
            yield future.result()


def _start(config: LoopConfig, make_policy: MakePolicy, parent: int) -> None:
    """Make this process's world and policy. It ends with the process that asked for it, however that ends."""
    global _rollout
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches every process; the parent decides
    end_with(parent)
    sim = Sim(config.sim)
    _rollout = Rollout(config, sim, make_policy(sim))


def _run(trial: Trial, pictures: Path | None) -> dict[str, Any]:
    assert _rollout is not None
    episode = _rollout.run(trial, pictures is not None)
    if pictures is not None:
        from vag_policy.evaluation.sheets import episode_sheet  # matplotlib takes a second to load

        episode_sheet(episode, pictures / f"episode-{trial.index:04d}.png")
    return record(episode)
