"""The episodes of ``vag demo``: every one in a scene of its own, on one running graph, shown as it goes."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.console import Console
from rich.live import Live
from rich.table import Table

from vag_policy.evaluation.episode_log import SECOND_NS, Attempt, EpisodeLog
from vag_policy.evaluation.trials import Trial
from vag_policy.nodes.demo_client import DemoClient, RefusedError

if TYPE_CHECKING:
    from vag_policy.processes import Graph

Plan = Sequence[tuple[str, Trial]]
"""What to run: (split, trial)."""

_QUIET_NS = SECOND_NS // 5
_PATIENCE_S = 30.0


@dataclass(frozen=True)
class Stage:
    """What the episodes run on."""

    console: Console
    running: Graph
    client: DemoClient
    log: EpisodeLog


def run_episodes(stage: Stage, plan: Plan, seconds: float) -> tuple[list[Attempt], list[str]]:
    """The episodes that ran, of at most ``seconds`` each, and why not all of ``plan`` did."""
    attempts: list[Attempt] = []
    faults: list[str] = []
    for number, (split, trial) in enumerate(plan, 1):
        stage.console.print(
            f"episode {number}/{len(plan)}, {split}, scene {trial.seed}: [bold]{trial.instruction}[/bold]",
            soft_wrap=True,
        )
        try:
            _set_scene(stage, trial)
            attempts.append(_run(stage, split, trial, seconds))
            stage.client.end_episode()
        except RefusedError as error:
            faults.append(f"episode {number}: {error}")
            break
        stage.console.print(f"  {_outcome(attempts[-1])}", soft_wrap=True)
        if stage.running.dead():
            break
    if len(attempts) < len(plan):
        faults.append(f"{len(attempts)} of {len(plan)} episodes ran")
    return attempts, faults


def result_table(episodes: Sequence[dict]) -> Table:
    """A line an episode, of what ``EpisodeLog.summary`` says of it."""
    table = Table("", "instruction", "split", "scene", "seconds", "replans", "")
    for number, episode in enumerate(episodes, 1):
        verdict = "[green]done[/green]" if episode["success"] else f"[red]{episode['reason']}[/red]"
        numbers = (f"{episode['seconds']:.1f}", str(episode["replans"]))
        table.add_row(str(number), episode["instruction"], episode["split"], str(episode["seed"]), *numbers, verdict)
    return table


def _set_scene(stage: Stage, trial: Trial) -> None:
    """Reset the scene while nothing is sent to the arms, which the reset puts elsewhere at once."""
    client, log = stage.client, stage.log
    client.disarm()
    disarmed_ns = time.time_ns()

    def quiet() -> bool:
        return time.time_ns() - max(log.commanded_ns, disarmed_ns) > _QUIET_NS

    _until(quiet, "joint_command is disarmed and goes on commanding")
    client.reset_scene(trial.seed, trial.instruction)
    log.arms_were_placed()
    placed_ns = time.time_ns()
    _until(lambda: client.observed_ns > placed_ns, "no observation of the new scene came")
    refusals: list[str] = []

    def armed() -> bool:
        refusals.append(client.arm())
        return not refusals[-1]

    _until(armed, lambda: f"joint_command would not arm: {refusals[-1]}")


def _run(stage: Stage, split: str, trial: Trial, seconds: float) -> Attempt:
    client, log = stage.client, stage.log
    start_ns = time.time_ns()
    client.start_episode(trial.instruction, seconds)
    with _Watch(stage, start_ns) as watch:
        while True:
            watch.show()
            success_ns = _success(log, start_ns)
            late = time.time_ns() - start_ns > (seconds + _PATIENCE_S) * SECOND_NS
            if success_ns or client.result() or late or stage.running.dead():
                break
            time.sleep(0.1)
    end_ns = success_ns or time.time_ns()
    reason = "" if success_ns else _why_not(stage, late)
    return Attempt(trial.instruction, split, trial.seed, start_ns, end_ns, bool(success_ns), reason)


def _success(log: EpisodeLog, start_ns: int) -> int:
    """When the simulator first said in this episode that the task is done; 0 where it has not."""
    task = log.tasks[-1]
    return task.stamp_ns if task.success and task.stamp_ns > start_ns else 0


def _why_not(stage: Stage, late: bool) -> str:
    dead, result = stage.running.dead(), stage.client.result()
    if dead:
        return f"{', '.join(dead)} died"
    if late or result is None:
        return "the policy does not end the episode"
    good, words = result
    return stage.log.tasks[-1].reason if good else words


def _outcome(attempt: Attempt) -> str:
    if attempt.success:
        return f"[green]done[/green] after {attempt.seconds:.1f} s"
    return f"[red]not done[/red] after {attempt.seconds:.1f} s: {attempt.reason}"


def _until(condition: Callable[[], bool], otherwise: str | Callable[[], str]) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while not condition():
        if time.monotonic() > deadline:
            raise RefusedError(otherwise if isinstance(otherwise, str) else otherwise())
        time.sleep(0.05)


class _Watch:
    """Shows an episode as it runs: a live table on a terminal, a line every two seconds elsewhere."""

    def __init__(self, stage: Stage, start_ns: int) -> None:
        self._stage, self._start_ns = stage, start_ns
        self._first = len(stage.log.replans)
        self._live = Live(console=stage.console, refresh_per_second=4, transient=True) if sys.stdout.isatty() else None
        self._next_ns = start_ns + 2 * SECOND_NS
        self._held = contextlib.ExitStack()

    def __enter__(self) -> _Watch:
        if self._live:
            self._held.enter_context(self._live)
        return self

    def __exit__(self, *error: object) -> None:
        self._held.close()

    def show(self) -> None:
        """Show how it is now."""
        if self._live:
            table = Table(show_header=False, min_width=70)
            for name, text in self._numbers().items():
                table.add_row(name, text)
            self._live.update(table)
        elif time.time_ns() >= self._next_ns:
            self._next_ns += 2 * SECOND_NS
            line = "  ".join(f"{name} {text}" for name, text in self._numbers().items())
            self._stage.console.print(f"  {line}", soft_wrap=True)

    def _numbers(self) -> dict[str, str]:
        log, status = self._stage.log, self._stage.log.status
        replans = log.replans[self._first :]
        numbers = {
            "time": f"{(time.time_ns() - self._start_ns) / 1e9:.1f} s",
            "phase": log.tasks[-1].phase,
            "mode": f"{status.mode} ({status.reason})" if status.reason else status.mode,
            "observation age": f"{log.observation_age_ns[-1] / 1e6:.0f} ms",
            "queue depth": str(status.queue_depth),
            "misses": str(status.misses),
            "clamps": str(status.clamps),
            "replans": str(len(replans)),
        }
        if replans:
            last = replans[-1].trace
            stages = " ".join(f"{name} {ms:.0f}" for name, ms in last.stage_ms.items())
            numbers |= {
                "replan": f"{sum(last.stage_ms.values()):.0f} ms ({stages})",
                "TR": f"{last.ratio.mean():.3f}",
                "TR_0": f"{last.baseline.mean():.3f}",
                "s": f"{last.guidance_scale.mean():.3f}",
            }
        return numbers
