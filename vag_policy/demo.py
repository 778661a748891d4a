"""``vag demo``: bring the simulated rig up, let the policy do a few tasks, and show what happened."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from vag_policy.bringup import BringupError, NodeSpec, graph, share_directory
from vag_policy.data.splits import load_split
from vag_policy.demo_folder import claimed
from vag_policy.entry import on_stop
from vag_policy.evaluation.episode_log import EpisodeLog, JointBounds, Story, failures
from vag_policy.evaluation.trials import to_show
from vag_policy.processes import Graph, private_domain
from vag_policy.shipped import TINY_YAM, checkpoint_folder

if TYPE_CHECKING:
    from vag_policy.demo_episodes import Plan
    from vag_policy.nodes.demo_client import DemoClient

READY_TIMEOUT_S = 90.0
FRAME_PERIOD_S = 0.1
_RESULTS = ("demo.png", "temporal_ratio.png", "contact_sheet.png", "summary.json", "bag", "logs")
_WIDTH = 110
EPISODES = 4
"""Without an instruction; with one it is a single one."""


@dataclass(frozen=True)
class DemoOptions:
    """What the command line chooses.

    Attributes:
        out: folder for the results; it is emptied first.
        seconds: longest episode.
        instruction: the task of every episode; empty: some of the split's, demonstrated ones and others.
        episodes: how many; None: ``EPISODES``, or one with an instruction.
        seed: of the policy's noise, and how many of the split's scene seeds to skip.
        guidance: ``none``, ``flat`` or ``adaptive``; None: what the graph's files say.
        checkpoint: folder, or ``shipped:NAME``; empty for untrained weights.
    """

    out: Path
    seconds: float = 25.0
    instruction: str = ""
    episodes: int | None = None
    seed: int = 0
    guidance: str | None = None
    checkpoint: str = TINY_YAM


def run_demo(options: DemoOptions) -> int:
    """Run the demo; return 0 only if every stage ran. Whether the policy succeeded is reported, and not judged.

    Raises:
        ValueError: the scene has no such task, or (BringupError) the output folder is not for a demo
            (``demo_folder.claimed``), the checkpoint is none, or the graph does not come up.
    """
    console = Console(highlight=False, width=None if sys.stdout.isatty() else _WIDTH)
    on_stop(lambda number: sys.exit(128 + number))  # leave through the context managers, which stop the graph
    plan = demo_plan(options)
    _check_checkpoint(console, options.checkpoint)
    specs = demo_graph(options, plan)
    with claimed(options.out), private_domain() as domain:
        environment = {
            "ROS_DOMAIN_ID": str(domain),
            "ROS_AUTOMATIC_DISCOVERY_RANGE": "LOCALHOST",
        }
        os.environ.update(environment)
        console.print(f"[bold]vag demo[/bold]: {len(specs)} nodes on ROS_DOMAIN_ID {domain}, this machine only")
        with Graph(specs, options.out / "logs", environment=environment) as running:
            return _act(console, options, plan, running, environment)


def demo_plan(options: DemoOptions) -> Plan:
    """The episodes to run.

    Raises:
        ValueError: the scene has no such task, or the split not so many seeds.
    """
    split = load_split(share_directory("config", "splits") / "yam_sim.yaml")
    instruction = options.instruction.strip()
    return to_show(split, options.episodes or (1 if instruction else EPISODES), options.seed, instruction)


def demo_graph(options: DemoOptions, plan: Plan) -> tuple[NodeSpec, ...]:
    """The simulated graph with the demo's choices, at the start of the first episode, and a recorder."""
    first = plan[0][1]
    policy: dict[str, Any] = {"seed": options.seed, "checkpoint": options.checkpoint}
    if options.guidance is not None:
        policy["guidance"] = options.guidance
    parameters = {"policy": policy, "yam_sim": {"seed": first.seed, "task": first.instruction}}
    recorder = NodeSpec("recorder", "recorder_node", parameters={"output": str(options.out / "bag")})
    return (recorder, *graph("yam_sim", parameters=parameters))


def _check_checkpoint(console: Console, checkpoint: str) -> None:
    folder = checkpoint_folder(checkpoint)
    if not folder:
        missing = f"{checkpoint} is not in this copy of the package, so " if checkpoint else ""
        console.print(f"{missing}the weights are untrained: everything is real but the skill", soft_wrap=True)
        return
    manifest = Path(folder, "manifest.json")  # checkpoint.MANIFEST; that module would load torch
    if not manifest.is_file():
        raise BringupError(f"no checkpoint in {folder}: there is no {manifest}")


def _act(console: Console, options: DemoOptions, plan: Plan, running: Graph, environment: dict[str, str]) -> int:
    from vag_policy.demo_episodes import Stage, run_episodes
    from vag_policy.nodes.demo_client import SpinningClient

    log = EpisodeLog(_bounds())
    with SpinningClient(log, environment, FRAME_PERIOD_S) as client:
        _wait_until_ready(console, running, client)
        attempts, faults = run_episodes(Stage(console, running, client, log), plan, options.seconds)
    died = [f"{name} ({code})" for name, code in running.dead().items()]
    codes = running.stop()
    died += [f"{name} ({code} at the end)" for name, code in codes.items() if code != 0 and name not in str(died)]
    summary = {"seed": options.seed, "checkpoint": options.checkpoint, **log.summary(attempts, died)}
    summary["trained"] = bool(checkpoint_folder(options.checkpoint))
    stories = [log.story(attempt) for attempt in attempts]
    reasons = failures(summary) + faults + _write_pictures(options.out, log, stories) + _check_bag(options.out)
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


def _write_pictures(out: Path, log: EpisodeLog, stories: Sequence[Story]) -> list[str]:
    from vag_policy.evaluation.pictures import contact_sheet, demo_picture, plot_temporal_ratio

    if not stories:
        return []
    try:
        plot_temporal_ratio(stories, out / "temporal_ratio.png")
        contact_sheet(stories, log.cameras, out / "contact_sheet.png")
        demo_picture(stories, out / "demo.png")
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
    from vag_policy.demo_episodes import result_table

    replan, ratio = summary["replan_ms"], summary["tr"]
    console.print(result_table(summary["episodes"]))
    console.print(
        f"{summary['replans']} replans, median {replan['median']} ms, p95 {replan['p95']} ms; observations at "
        f"{summary['observation_hz']} Hz; TR {ratio['min']} .. {ratio['max']}, median {ratio['median']}; "
        f"{summary['commands']} commands, {summary['limit_violations']} outside limits",
        soft_wrap=True,
    )
    written = [name for name in _RESULTS if (out / name).exists()]
    console.print(f"results in {out}/: {', '.join(written)}", soft_wrap=True)
    for reason in reasons:
        console.print(f"[red]failed[/red]: {reason}")
    if not reasons:
        console.print("[green]every stage ran[/green]")
