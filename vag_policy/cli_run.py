"""``vag run``."""

from __future__ import annotations

from typing import Annotated

import typer

from vag_policy.bringup import checked_namespace
from vag_policy.cli_options import finite


def run(
    instruction: Annotated[str, typer.Argument(help='the task, such as "put the red cube in the blue bowl"')],
    seconds: Annotated[
        float, typer.Option(min=0.0, max=1e6, callback=finite, help="stop after so long; 0: at Ctrl-C")
    ] = 0.0,
    max_replans: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="stop after so many; 0: no limit")] = 0,
    namespace: Annotated[str, typer.Option(help="of the graph")] = "",
) -> None:
    """Let the policy of a running graph do one task; Ctrl-C cancels it. Exit code 1: it ended with a fault."""
    namespace = checked_namespace(namespace)
    if not instruction.strip():
        raise ValueError("the instruction is empty; say what the policy is to do")
    from vag_policy.nodes.run_client import RunClient

    with RunClient(namespace, typer.echo) as client:
        good, words = client.run(instruction, seconds, max_replans)
    typer.echo(words, err=not good)
    raise typer.Exit(130 if client.cancelled else 0 if good else 1)
