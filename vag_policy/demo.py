"""``vag demo``: bring the simulated rig up, let the policy act for an episode, and show what happened."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.live import Live
from rich.table import Table

from vag_policy.bringup import BringupError, NodeSpec, graph
from vag_policy.demo_folder import claimed
from vag_policy.evaluation.episode_log import EpisodeLog, JointBounds, failures
from vag_policy.processes import Graph, private_domain

if TYPE_CHECKING:
    from vag_policy.nodes.demo_client import DemoClient

READY_TIMEOUT_S = 90.0
FRAME_PERIOD_S = 0.5


@dataclass(frozen=True)
class DemoOptions:
    """What the command line chooses.

    Attributes:
        out: folder for the results; it is emptied first.
        seconds: how long the policy acts.
        instruction: the task; empty takes the scene's own.
        seed: of the scene and the policy's noise.
        guidance: ``none``, ``flat`` or ``adaptive``.
        checkpoint: folder; empty for untrained weights.
    """

    out: Path
    seconds: float
    instruction: str
    seed: int
    guidance: str
    checkpoint: str


def run_demo(options: DemoOptions) -> int:
    """Run the demo; return 0 only if every stage ran.

    Raises:
        BringupError: the output folder is not for a demo (``demo_folder.claimed``), the checkpoint is none, or the
            graph does not come up.
    """
    console = Console(highlight=False)
    for number in (signal.SIGTERM, signal.SIGHUP):  # leave through the context managers, which stop the graph
        signal.signal(number, lambda received, _frame: sys.exit(128 + received))
    _check_checkpoint(options.checkpoint)
    specs = demo_graph(options)
    with claimed(options.out), private_domain() as domain:
        environment = {
            "ROS_DOMAIN_ID": str(domain),
            "ROS_AUTOMATIC_DISCOVERY_RANGE": "LOCALHOST",
        }
        os.environ.update(environment)
        console.print(f"[bold]vag demo[/bold]: {len(specs)} nodes on ROS_DOMAIN_ID {domain}, this machine only")
        with Graph(specs, options.out / "logs", environment=environment) as running:
            return _act(console, options, running, environment)


def demo_graph(options: DemoOptions) -> tuple[NodeSpec, ...]:
    """The simulated graph with the demo's choices, and a recorder."""
    policy = {"seed": options.seed, "guidance": options.guidance, "checkpoint": options.checkpoint}
    parameters: dict[str, dict[str, Any]] = {
        "policy": {name: value for name, value in policy.items() if value != ""},
        "yam_sim": {"seed": options.seed},
    }
    recorder = NodeSpec("recorder", "recorder_node", parameters={"output": str(options.out / "bag")})
    return (recorder, *graph("yam_sim", parameters=parameters))


def _check_checkpoint(checkpoint: str) -> None:
    manifest = Path(checkpoint, "manifest.json")  # checkpoint.MANIFEST; that module would load torch
    if checkpoint and not manifest.is_file():
        raise BringupError(f"no checkpoint in {checkpoint}: there is no {manifest}")


def _act(console: Console, options: DemoOptions, running: Graph, environment: dict[str, str]) -> int:
    from vag_policy.nodes.demo_client import SpinningClient

    log = EpisodeLog(_bounds())
    with SpinningClient(log, environment, FRAME_PERIOD_S) as client:
        _wait_until_ready(console, running, client)
        refused = client.arm(10.0)
        if refused:
            raise BringupError(f"joint_command would not arm: {refused}")
        instruction = options.instruction or client.scene_instruction
        console.print(f"instruction: [bold]{instruction}[/bold]")
        start_ns = time.time_ns()
        client.start_episode(instruction, options.seconds)
        for _ in _watch(console, log, start_ns, options.seconds):
            if running.dead() or client.result() is not None:
                break
        end_ns = time.time_ns()
        result = client.result()
    died = [f"{name} ({code})" for name, code in running.dead().items()]
    codes = running.stop()
    died += [f"{name} ({code} at the end)" for name, code in codes.items() if code != 0 and name not in str(died)]
    summary = {
        "instruction": instruction,
        "seed": options.seed,
        "episode": result[1] if result else "cut off by the demo's own clock",
        **log.summary(start_ns, end_ns, died),
    }
    reasons = failures(summary) + _write_pictures(options, log, start_ns, end_ns, instruction) + _check_bag(options.out)
    summary["failed"] = reasons
    (options.out / "summary.json").write_text(json.dumps(summary, indent=2) + "\n")
    _conclude(console, options.out, summary, reasons)
    return 1 if reasons else 0


def _bounds() -> JointBounds:
    from vag_policy.robots.yam import command_bounds

    return JointBounds(*command_bounds())


def _wait_until_ready(console: Console, running: Graph, client: DemoClient) -> None:
    deadline = time.monotonic() + READY_TIMEOUT_S
    with console.status("starting"):
        while missing := client.waiting_for():
            if client.policy_fault:
                raise BringupError(f"the policy does not start: {client.policy_fault}")
            for dead in running.dead():
                raise BringupError(f"the graph did not come up: {running.epitaph(dead)}")
            if time.monotonic() > deadline:
                tail = "\n".join(running.log_of("policy").splitlines()[-15:])
                raise BringupError(f"the graph did not come up: still waiting for {', '.join(missing)}\n{tail}")
            time.sleep(0.1)
    console.print("graph is up: observations arrive, the policy is active")


def _watch(console: Console, log: EpisodeLog, start_ns: int, seconds: float) -> Iterator[None]:
    """Show the episode as it runs: a live table on a terminal, a line every two seconds elsewhere."""
    end = start_ns / 1e9 + seconds + 10.0
    next_line = 0.0
    live = Live(console=console, refresh_per_second=4) if sys.stdout.isatty() else None
    with live or contextlib.nullcontext():
        while time.time() < end:
            yield
            if live:
                live.update(_table(log, start_ns))
            elif time.time() >= next_line:
                next_line = time.time() + 2.0
                console.print(_line(log, start_ns), soft_wrap=True)
            time.sleep(0.2)


def _numbers(log: EpisodeLog, start_ns: int) -> dict[str, str]:
    status, last = log.status, log.replans[-1].trace if log.replans else None
    age = f"{log.observation_age_ns[-1] / 1e6:.0f} ms" if log.observation_age_ns else "-"
    numbers = {
        "time": f"{(time.time_ns() - start_ns) / 1e9:.1f} s",
        "mode": f"{status.mode} ({status.reason})" if status.reason else status.mode,
        "observation age": age,
        "queue depth": str(status.queue_depth),
        "misses": str(status.misses),
        "clamps": str(status.clamps),
        "replans": str(len(log.replans)),
    }
    if last is not None:
        stages = " ".join(f"{stage} {ms:.0f}" for stage, ms in last.stage_ms.items())
        numbers |= {
            "replan": f"{sum(last.stage_ms.values()):.0f} ms ({stages})",
            "TR": f"{last.ratio.mean():.3f}",
            "TR_0": f"{last.baseline.mean():.3f}",
            "s": f"{last.guidance_scale.mean():.3f}",
        }
    return numbers


def _table(log: EpisodeLog, start_ns: int) -> Table:
    table = Table(show_header=False, min_width=70)
    for name, text in _numbers(log, start_ns).items():
        table.add_row(name, text)
    return table


def _line(log: EpisodeLog, start_ns: int) -> str:
    return "  ".join(f"{name} {text}" for name, text in _numbers(log, start_ns).items())


def _write_pictures(options: DemoOptions, log: EpisodeLog, start_ns: int, end_ns: int, title: str) -> list[str]:
    from vag_policy.evaluation.pictures import contact_sheet, plot_temporal_ratio

    plot_temporal_ratio(log, start_ns, end_ns, title, options.out / "temporal_ratio.png")
    try:
        contact_sheet(log, start_ns, end_ns, log.cameras, options.out / "contact_sheet.png")
    except ValueError as error:
        return [str(error)]
    return []


def _check_bag(out: Path) -> list[str]:
    from vag_policy.data.bag_reader import topics_of
    from vag_policy.data.bag_writer import BagError

    needed = ("/observation", "/action_chunk", "/policy_trace", "/temporal_ratio", "/joint_states", "/top/image_raw")
    try:
        counts = topics_of(out / "bag")
    except BagError as error:
        return [str(error)]
    return [f"the bag has no message on {topic}" for topic in needed if not counts.get(topic)]


def _conclude(console: Console, out: Path, summary: dict, reasons: list[str]) -> None:
    replan, ratio = summary["replan_ms"], summary["tr"]
    console.print(
        f"{summary['replans']} replans, median {replan['median']} ms, p95 {replan['p95']} ms; observations at "
        f"{summary['observation_hz']} Hz; TR {ratio['min']} .. {ratio['max']}, median {ratio['median']}; "
        f"{summary['commands']} commands, {summary['limit_violations']} outside limits",
        soft_wrap=True,
    )
    console.print(f"results: {out}/summary.json, temporal_ratio.png, contact_sheet.png, bag/")
    for reason in reasons:
        console.print(f"[red]failed[/red]: {reason}")
    if not reasons:
        console.print("[green]every stage ran[/green]")
