"""``vag run``."""

from __future__ import annotations

from typing import Annotated

import typer

from vag_policy.bringup import checked_namespace
from vag_policy.cli_options import finite


def run(
    instruction: Annotated[
        str, typer.Argument(metavar="INSTRUCTION", help='the task, such as "put the red cube in the blue bowl"')
    ],
    seconds: Annotated[
        float,
        typer.Option(min=0.0, max=1e6, metavar="S", callback=finite, help="stop after so many seconds; 0: at Ctrl-C"),
    ] = 0.0,
    max_replans: Annotated[
        int, typer.Option(min=0, max=2**32 - 1, metavar="N", help="stop after so many replans; 0: no limit")
    ] = 0,
    namespace: Annotated[str, typer.Option(metavar="NAME", help="of the graph, where it was started with one")] = "",
) -> None:
    """Let the policy of a running graph do one task.

    Ctrl-C cancels it. A policy that is still loading is waited for.

    Exit codes: 0 the episode ran to its end, 1 it ended with a fault (it says which), 2 no graph answers within 5 s,
    the policy rejects the episode, or bad input, 130 Ctrl-C. Whether the task was done, only a referee can tell: on
    the simulated rig the topic `task_state`.
    """
    namespace = checked_namespace(namespace)
    if not instruction.strip():
        raise ValueError("the instruction is empty; say what the policy is to do")
    from vag_policy.nodes.run_client import RunClient

    with RunClient(namespace, typer.echo) as client:
        good, words = client.run(instruction, seconds, max_replans)
    typer.echo(words, err=not good)
    raise typer.Exit(130 if client.cancelled else 0 if good else 1)
