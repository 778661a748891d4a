"""``vag``: the one command-line tool."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from vag_policy import cli_data, cli_eval, cli_operator, cli_run, cli_train, cli_up
from vag_policy.cli_options import finite, known_guidance, shortened
from vag_policy.entry import imports_done
from vag_policy.shipped import TINY_YAM

app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)


def main() -> None:
    """Run the command line; a known kind of error is one line on stderr and exit code 2, Ctrl-C exit code 130."""
    imports_done()
    raise SystemExit(_run())  # out here, nothing that an exception's traceback held is alive any more


def _run() -> Any:
    try:
        app()
    except SystemExit as end:
        return end.code
    except KeyboardInterrupt:  # typer catches it inside commands alone
        return 130
    except OSError as error:
        reason = f"{error.filename}: {error.strerror}" if error.filename else error
        typer.echo(f"vag: {shortened(str(reason), sys.argv[1:])}", err=True)
    except ValueError as error:
        typer.echo(f"vag: {shortened(str(error), sys.argv[1:])}", err=True)
    return 2


@app.callback()
def _root() -> None:
    """Video-action policies with Temporal-Ratio guidance for bimanual arms."""


@app.command()
def info(
    preset: Annotated[str, typer.Option(metavar="NAME", help="yam, libero or tiny")] = "tiny",
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON object")] = False,
) -> None:
    """The numbers of a preset: sizes, token counts, sigma grid."""
    from vag_policy.vam.presets import preset as find

    find(preset)  # an unknown name is said before torch takes its seconds to load
    from vag_policy.vam.model import describe

    numbers = describe(preset)
    if as_json:
        typer.echo(json.dumps(numbers))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table("name", "value", title=f"preset {preset}")
    for name, value in numbers.items():
        table.add_row(name, f"{value:,}" if isinstance(value, int) else str(value))
    Console().print(table)


@app.command()
def demo(
    out: Annotated[Path, typer.Option(metavar="DIR", help="folder for the results")] = Path("demo_out"),
    instruction: Annotated[
        str, typer.Option(metavar="TEXT", help='one task, such as "put the red cube in the blue bowl"; empty: several')
    ] = "",
    episodes: Annotated[
        int | None,
        typer.Option(min=1, max=100, metavar="N", help="how many; default: 4, half of them ood, or 1 of your own task"),
    ] = None,
    seconds: Annotated[
        float, typer.Option(min=5.0, max=3600.0, metavar="S", callback=finite, help="longest episode, seconds")
    ] = 25.0,
    seed: Annotated[
        int, typer.Option(min=0, max=2**31 - 1, metavar="N", help="of the scenes and the policy's noise")
    ] = 0,
    guidance: Annotated[
        str | None,
        typer.Option(metavar="MODE", callback=known_guidance, help="none, flat or adaptive; default: the graph's"),
    ] = None,
    checkpoint: Annotated[
        str, typer.Option(metavar="DIR_OR_NAME", help="weights; untrained where it is empty or the package has none")
    ] = TINY_YAM,
) -> None:
    """Let a policy do tasks on the simulated rig.

    In real ROS 2 processes. Exit codes: 0 every stage ran, 1 one failed (it says which), 2 it cannot start, or bad
    input, 130 Ctrl-C. How many tasks were done is in the results.
    """
    from vag_policy.demo import DemoOptions, run_demo

    options = DemoOptions(out, seconds, instruction, episodes, seed, guidance, checkpoint)
    raise typer.Exit(run_demo(options))


app.command()(cli_up.up)
app.command()(cli_run.run)
cli_operator.add_to(app)
app.command()(cli_data.demos)
app.command()(cli_data.snapshots)
app.command()(cli_train.train)
app.command("eval")(cli_eval.evaluate)
app.add_typer(cli_data.app, name="data")


if __name__ == "__main__":
    main()
