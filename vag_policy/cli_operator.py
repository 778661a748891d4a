"""``vag arm``, ``disarm``, ``estop``, ``reset-stop``, ``home``, ``reset``: what an operator asks of a running graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from vag_policy.bringup import checked_namespace

if TYPE_CHECKING:
    from vag_policy.nodes.operator_client import OperatorClient

CODES = "Exit codes: 0 done, 1 refused (it says why), 2 no such node answers within 5 s, or bad input, 130 Ctrl-C."
Namespace = Annotated[str, typer.Option(metavar="NAME", help="of the graph, where it was started with one")]


def arm(namespace: Namespace = "") -> None:
    """Let the arms move.

    It moves nothing by itself, but a task that is still active goes on: end it first, by Ctrl-C of vag run or an empty
    instruction.
    """
    _ask(namespace, lambda client: client.trigger("arm"))


def disarm(namespace: Namespace = "") -> None:
    """Brake the arms, then send them nothing more."""
    _ask(namespace, lambda client: client.trigger("disarm"))


def estop(namespace: Namespace = "") -> None:
    """Stop the arms, until `vag reset-stop`. It may take seconds to start: keep the hardware's stop within reach."""
    _ask(namespace, lambda client: client.emergency_stop())


def reset_stop(namespace: Namespace = "") -> None:
    """Release the emergency stop; the arms stay disarmed."""
    _ask(namespace, lambda client: client.trigger("reset_stop"))


def home(namespace: Namespace = "") -> None:
    """Move the arms slowly home, and end the policy's episode."""
    _ask(namespace, lambda client: client.trigger("home"))


def reset(
    seed: Annotated[
        int, typer.Option(min=-1, max=2**31 - 1, metavar="N", help="of the new scene; -1: the next one")
    ] = -1,
    task: Annotated[str, typer.Option(metavar="INSTRUCTION", help="of the new scene; empty: the seed draws it")] = "",
    namespace: Namespace = "",
) -> None:
    """Put the simulated rig back to the start of a scene."""
    _ask(namespace, lambda client: client.reset_scene(seed, task))


def _ask(namespace: str, question: Callable[[OperatorClient], tuple[bool, str]]) -> None:
    namespace = checked_namespace(namespace)
    from vag_policy.nodes.operator_client import OperatorClient

    with OperatorClient(namespace) as client:
        done, words = question(client)
    typer.echo(words if done else f"refused: {words}", err=not done)
    raise typer.Exit(0 if done else 1)


def add_to(app: typer.Typer) -> None:
    """Add the commands, each with the exit codes in its help."""
    for command in (arm, disarm, estop, reset_stop, home, reset):
        app.command(command.__name__.replace("_", "-"), help=f"{command.__doc__}\n\n{CODES}")(command)
