"""``vag demos`` and ``vag data``: making demonstrations, and looking at datasets."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vag_policy import yaml_text
from vag_policy.cli_options import finite

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from vag_policy.data.demos import Result, Tally
    from vag_policy.data.inspection import Report
    from vag_policy.data.splits import Split

app = typer.Typer(no_args_is_help=True, help="Look at datasets.")
_SHOWN = 20


def demos(
    episodes: Annotated[int, typer.Option(min=1, metavar="N", help="successful demonstrations wanted")],
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="dataset folder; one that an earlier run began is gone on with")
    ],
    seed: Annotated[int, typer.Option(metavar="N", help="scene seed of the first attempt")] = 100_000,
    workers: Annotated[int, typer.Option(min=0, max=256, metavar="N", help="processes; 0: one a core")] = 0,
    pairs: Annotated[
        Path | None, typer.Option(metavar="FILE", help="split file; its id instructions are demonstrated")
    ] = None,
    held_out: Annotated[
        list[str] | None,
        typer.Option("--hold-out", metavar="INSTRUCTION", help="demonstrate all but this; may be given several times"),
    ] = None,
    width: Annotated[int, typer.Option(min=32, max=1280, metavar="N", help="of a camera's pictures, pixels")] = 320,
    height: Annotated[int, typer.Option(min=32, max=960, metavar="N", help="of a camera's pictures, pixels")] = 240,
    picture_every: Annotated[
        int, typer.Option(min=1, max=30, metavar="N", help="draw one in so many frames, and repeat it between")
    ] = 1,
    plain: Annotated[bool, typer.Option("--plain", help="no noise, no mistakes, always from rest")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON object as last line")] = False,
) -> None:
    """Let a scripted expert make demonstrations in the simulator.

    They are written as a LeRobot v3 dataset.
    """
    from vag_policy.data.demo_worker import DemoConfig
    from vag_policy.data.demos import generate
    from vag_policy.expert.style import PLAIN

    split = _split(pairs, held_out)
    split.check_demonstration_seeds(seed, 2 * episodes)
    config = DemoConfig(seed, split.id, width, height, picture_every=picture_every)
    config = replace(config, variety=PLAIN) if plain else config
    with _Bar(episodes) as bar:
        result = generate(out, config, episodes, workers or os.cpu_count() or 1, bar.update)
    _print_result(result)
    if as_json:
        rate, speedup = result.episodes_per_minute, result.speedup
        numbers = {
            "expert_success": round(result.tally.success, 4),
            "episodes": result.episodes,
            "attempts": result.tally.attempts.total(),
            "episodes_per_minute": None if rate is None else round(rate, 2),
            "speedup": None if speedup is None else round(speedup, 2),
        }
        typer.echo(json.dumps(numbers))


def snapshots(
    count: Annotated[
        int, typer.Option(min=1, metavar="N", help="scenes wanted, one picture of each; rounded up to 250s")
    ],
    out: Annotated[Path, typer.Option(metavar="DIR", help="folder; one that an earlier run began is gone on with")],
    seed: Annotated[int, typer.Option(metavar="N", help="of the first scene")] = 400_000,
    preset: Annotated[str, typer.Option(metavar="NAME", help="whose pictures and chunks they are")] = "tiny",
    workers: Annotated[int, typer.Option(min=0, max=256, metavar="N", help="processes; 0: one a core")] = 0,
    pairs: Annotated[
        Path | None, typer.Option(metavar="FILE", help="split file; its id instructions are shown")
    ] = None,
) -> None:
    """Take single frames of demonstrations, each of another scene.

    For training stages of kind image: see data.snapshots.
    """
    from vag_policy.data.demo_worker import DemoConfig
    from vag_policy.data.snapshot_maker import SnapshotConfig, make_snapshots
    from vag_policy.observation.stacking import StackConfig
    from vag_policy.vam.presets import preset as find

    split = _split(pairs, None)
    split.check_demonstration_seeds(seed, count)
    settings = find(preset)
    width, height = settings.video.image_size
    cameras = settings.video.cameras
    stack = StackConfig(cameras, (width // len(cameras), height))
    config = SnapshotConfig(DemoConfig(seed, split.id), stack, settings.action_horizon)
    with _Bar(count, "snapshots") as bar:
        made = make_snapshots(out, config, count, workers or os.cpu_count() or 1, bar.count)
    typer.echo(f"{made} snapshots in {out}")


def _split(pairs: Path | None, held_out: list[str] | None) -> Split:
    from vag_policy.bringup import share_directory
    from vag_policy.data.splits import hold_out, load_split

    if pairs is not None and held_out:
        raise ValueError("--pairs and --hold-out exclude each other")
    split = load_split(pairs or share_directory("config", "splits") / "yam_sim.yaml")
    return hold_out(split, held_out) if held_out else split


class _Bar:
    """A progress bar on a terminal, now and then a line elsewhere."""

    def __init__(self, total: int, what: str = "demonstrations") -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        self._total, console = total, Console(stderr=True)
        self._lines, self._next = not console.is_terminal, 0
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        self._progress = Progress(*columns, console=console, disable=self._lines)
        self._task = self._progress.add_task(what, total=total)
        self._what = what

    def __enter__(self) -> _Bar:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def update(self, episodes: int, tally: Tally) -> None:
        self.count(episodes, f", expert {100 * tally.success:.0f} %")

    def count(self, done: int, note: str = "") -> None:
        text = f"{self._what}{note}"
        self._progress.update(self._task, completed=done, description=text)
        if self._lines and done >= self._next:
            typer.echo(f"{done}/{self._total} {text}", err=True)
            self._next = done + max(1, self._total // 10)


def _print_result(result: Result) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("instruction", "succeeded", "attempts", title=f"{result.episodes} demonstrations")
    for instruction, attempts in sorted(result.tally.attempts.items()):
        table.add_row(instruction, str(result.tally.successes[instruction]), str(attempts))
    table.add_row("all", str(result.tally.successes.total()), str(result.tally.attempts.total()))
    console = Console(stderr=True)
    console.print(table)
    for reason, count in result.tally.reasons.most_common():
        console.print(f"failed {count} times: {reason}")


@app.command()
def inspect(
    dataset: Annotated[Path, typer.Argument(metavar="DATASET", help="folder of a LeRobot dataset, v3.0 or v2.1")],
    names: Annotated[
        Path | None, typer.Option(metavar="FILE", help="YAML file that maps a policy's names to the dataset's")
    ] = None,
    sheet: Annotated[Path | None, typer.Option(metavar="FILE", help="write a contact sheet (PNG) here")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON object as last line")] = False,
) -> None:
    """Names, dims, fps, gaps and statistics of a dataset.

    Exit codes: 0 it is whole, 1 something is wrong with it, 2 it cannot be read, or bad input.
    """
    from vag_policy.data.inspection import as_json as report_as_json
    from vag_policy.data.inspection import contact_sheet
    from vag_policy.data.inspection import inspect as inspect_dataset
    from vag_policy.data.names import NameMap

    name_map = NameMap.from_config(yaml_text.read(names)) if names else None
    report = inspect_dataset(dataset, name_map)
    if sheet is not None:
        try:
            picture = contact_sheet(report.catalogue)
        except ValueError as error:
            report.problems.append(f"no contact sheet: {error}")
        else:
            _write_png(sheet, picture)
    _print_report(report)
    if as_json:
        typer.echo(json.dumps(report_as_json(report)))
    raise typer.Exit(1 if report.problems else 0)


@app.command("from-bag")
def from_bag(
    bags: Annotated[list[Path], typer.Argument(metavar="BAG", help="bags to convert, MCAP or sqlite3, in this order")],
    out: Annotated[Path, typer.Option(metavar="DIR", help="folder of the new dataset")],
    topics: Annotated[Path | None, typer.Option(metavar="FILE", help="YAML file: which topics hold what")] = None,
    task: Annotated[str, typer.Option(metavar="TEXT", help="the instruction, where the bags record none")] = "",
    fps: Annotated[int, typer.Option(metavar="N", help="frames a second of the dataset")] = 30,
    longest_gap: Annotated[
        float, typer.Option(metavar="S", callback=finite, help="seconds a stream may be silent within an episode")
    ] = 0.2,
    gripper_stroke: Annotated[
        float | None,
        typer.Option(
            metavar="P", callback=finite, help="gripper position at 1 (open), in the bag's unit; 1: it is 0..1 already"
        ),
    ] = None,
) -> None:
    """Make a LeRobot v3 dataset from recorded bags.

    They are resampled to exact frames; gaps are told.
    """
    from vag_policy.data.bag_convert import ConvertConfig, convert
    from vag_policy.data.bag_streams import BagTopics

    config = ConvertConfig(fps=fps, task=task, longest_gap_s=longest_gap)
    if gripper_stroke is not None:
        config = replace(config, gripper_stroke=gripper_stroke)
    where = BagTopics.from_config(yaml_text.read(topics) if topics else {})
    result = convert(bags, out, where, config, lambda text: typer.echo(text, err=True))
    for source, silence in result.silences.items():
        typer.echo(f"gaps: {source}: {silence.count}, the longest {silence.longest_s:.3f} s")
    for reason in result.left_out:
        typer.echo(f"left out: {reason}")
    typer.echo(f"{out}: {result.episodes} episodes, {result.frames} frames at {fps} a second")


def _write_png(path: Path, picture: NDArray[np.uint8]) -> None:
    import cv2

    good, data = cv2.imencode(".png", picture[..., ::-1])
    assert good
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data.tobytes())


def _print_report(report: Report) -> None:
    from rich.console import Console
    from rich.table import Column, Table

    console, catalogue = Console(soft_wrap=True), report.catalogue
    info = catalogue.info
    console.print(
        f"{catalogue.root}: LeRobot {info['codebase_version']}, {len(catalogue.episodes)} episodes, {report.frames} "
        f"frames at {info['fps']} a second ({report.frames / info['fps'] / 60:.1f} min), robot {info.get('robot_type')}"
    )
    table = Table(Column("feature", overflow="fold"), "type", "shape")  # whole names: a name map is written for them
    for name, feature in catalogue.features.items():
        table.add_row(name, feature["dtype"], str(tuple(feature["shape"])))
    console.print(table)
    for name, found in report.statistics.items():
        if name == "timestamp":
            continue
        table = Table(Column("entry", overflow="fold"), "min", "q01", "mean", "std", "q99", "max", title=name)
        entries = report.names[name] or tuple(map(str, range(len(found["mean"]))))
        for index, entry in enumerate(entries):
            numbers = (f"{found[key][index]:.3f}" for key in ("min", "q01", "mean", "std", "q99", "max"))
            table.add_row(entry, *numbers)
        console.print(table)
    table = Table("instruction", "episodes")
    for task, count in report.episodes_by_task.most_common(_SHOWN):
        table.add_row(task, str(count))
    console.print(table)
    if len(report.episodes_by_task) > _SHOWN:
        console.print(f"and {len(report.episodes_by_task) - _SHOWN} more instructions")
    console.print(f"bimanual YAM data: {'no: ' + report.yam if report.yam else 'yes'}")
    console.print(f"gaps: {len(report.gaps)}")
    for problem in report.problems[:_SHOWN]:
        console.print(f"[red]problem:[/red] {problem}", highlight=False)
    if len(report.problems) > _SHOWN:
        console.print(f"and {len(report.problems) - _SHOWN} more problems")
