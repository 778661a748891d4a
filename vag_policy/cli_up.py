"""``vag up``."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from vag_policy.bringup import BringupError, checked_namespace, graph, parse_settings
from vag_policy.cli_options import SET_HELP, SETTING
from vag_policy.entry import on_stop
from vag_policy.milestones import Milestones
from vag_policy.node_logs import LogTails
from vag_policy.processes import Graph
from vag_policy.rig_file import load_rig
from vag_policy.shipped import named_checkpoint

_TASKS = {"yam": "fold the towel", "yam_sim": "put the red cube in the blue bowl"}


def up(
    name: Annotated[str, typer.Argument(metavar="GRAPH", help="yam: a real rig, or yam_sim: the simulated one")],
    checkpoint: Annotated[
        str, typer.Option(metavar="DIR_OR_NAME", help="the policy's weights; default: what the graph's files say")
    ] = "",
    rig: Annotated[
        str, typer.Option(metavar="NAME_OR_FILE", help="a rig below config/rig/, or the path of a rig file")
    ] = "",
    settings: Annotated[list[str] | None, typer.Option("--set", metavar=SETTING, help=SET_HELP)] = None,
    namespace: Annotated[str, typer.Option(metavar="NAME", help="put the whole graph below this name")] = "",
    logs: Annotated[Path, typer.Option(metavar="DIR", help="folder for the nodes' output")] = Path("log/vag_up"),
) -> None:
    """Start a node graph, without `launch`.

    Ctrl-C stops it, arms first. It says when the policy is loaded and the graph ready, and repeats what nodes warn of.

    Exit codes: 0 after Ctrl-C, 2 where a graph, option or node cannot be started or a node has died.
    """
    parameters = parse_settings(settings or [])
    if checkpoint:
        parameters.setdefault("policy", {})["checkpoint"] = named_checkpoint(checkpoint)
    specs = graph(name, load_rig(rig) if rig else None, parameters)
    namespace = checked_namespace(namespace)
    below = f" --namespace {namespace}" if namespace else ""
    milestones = Milestones(time.monotonic_ns(), f'vag run "{_TASKS[name]}"{below}', f"vag arm{below}")
    stopping: list[int] = []
    on_stop(stopping.append)
    with Graph(specs, logs, namespace) as running:
        typer.echo(f"starting {', '.join(spec.name for spec in specs)}; their whole output is in {logs}/")
        _watch(running, milestones, stopping)
        dead = [running.epitaph(node) for node in running.dead()]
        loading = {"policy"} if milestones.loading else set()
        running.stop(say=typer.echo, nothing_to_lose=loading)
        if dead:
            raise BringupError(f"{dead[0]}; the others are stopped")


def _watch(running: Graph, milestones: Milestones, stopping: list[int]) -> None:
    """Tell what the nodes say until a stop signal comes or one has died."""
    tails = LogTails({spec.name: running.log_file(spec.name) for spec in running.specs})
    while not stopping and not running.dead():
        time.sleep(0.2)
        now_ns = time.monotonic_ns()
        for line in tails.new(now_ns):
            typer.echo(line, err=True)
        for line in milestones.new(tails.news(), now_ns):
            typer.echo(line)
