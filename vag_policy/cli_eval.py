"""``vag eval``: how often a policy does the task, measured in simulated time."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import is_dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vag_policy.cli_options import SET_HELP, SETTING

if TYPE_CHECKING:
    from vag_policy.evaluation.rollout import LoopConfig
    from vag_policy.evaluation.trials import Trial
    from vag_policy.policy import Policy
    from vag_policy.robots.yam_sim import Sim

Values = Mapping[str, Mapping[str, Any]]
"""Parameter values by node and name."""


def evaluate(
    graph_name: Annotated[str, typer.Argument(metavar="GRAPH", help="yam_sim, the one that can be simulated")],
    checkpoint: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="a checkpoint folder; default: the weights that ship with the package, if it has any"
        ),
    ] = None,
    policy: Annotated[
        str, typer.Option(metavar="KIND", help="checkpoint, or expert: the scripted one, which needs no weights")
    ] = "checkpoint",
    part: Annotated[
        str, typer.Option("--split", metavar="PART", help="id: demonstrated instructions; ood: held out ones")
    ] = "id",
    episodes: Annotated[int, typer.Option(min=1, metavar="N", help="how many, instructions in turn")] = 100,
    seed: Annotated[int, typer.Option(min=0, metavar="N", help="skip so many of the split's scene seeds")] = 0,
    workers: Annotated[int, typer.Option(min=1, metavar="N", help="processes of one thread each")] = 2,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="keep every episode here; the same command goes on where it was stopped"),
    ] = None,
    instruction: Annotated[str, typer.Option(metavar="TEXT", help="only this instruction; empty: all")] = "",
    seconds: Annotated[float, typer.Option(min=1.0, metavar="S", help="longest episode, simulated seconds")] = 25.0,
    latency: Annotated[
        float, typer.Option(min=0.0, metavar="S", help="from what is seen to the chunk's arrival, seconds")
    ] = 0.2,
    blank: Annotated[bool, typer.Option("--blank", help="the policy sees grey instead of pictures")] = False,
    pictures: Annotated[int, typer.Option(min=0, metavar="N", help="draw so many failures, in OUT/failures")] = 0,
    against: Annotated[
        Path | None, typer.Option(metavar="DIR", help="compare with an earlier --out, episode by episode")
    ] = None,
    settings: Annotated[list[str] | None, typer.Option("--set", metavar=SETTING, help=SET_HELP)] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON object as last line")] = False,
) -> None:
    """Measure how often a policy does its task, in simulated time.

    On scenes that it was not trained on, through the code of the real graph.
    """
    from vag_policy.bringup import share_directory
    from vag_policy.data.splits import load_split
    from vag_policy.evaluation.journal import Journal
    from vag_policy.evaluation.ratio_analysis import against_success, by_phase
    from vag_policy.evaluation.records import compare_records, summary
    from vag_policy.evaluation.trials import trials
    from vag_policy.evaluation.workers import run

    if pictures and out is None:
        raise ValueError("--pictures needs a folder: --out")
    values = graph_parameters(graph_name, checkpoint, policy, settings or [])
    config = loop_config(values, seconds, latency, blank)
    make_policy = _maker(policy, values["policy"], config)
    chosen = trials(load_split(share_directory("config", "splits") / "yam_sim.yaml"), part, episodes, seed, instruction)
    header = {
        "graph": graph_name,
        "policy": policy,
        "checkpoint": digest(Path(values["policy"]["checkpoint"])) if policy == "checkpoint" else "",
        "split": part,
        "seed": seed,
        "instruction": instruction,
        "seconds": seconds,
        "latency": latency,
        "blank": blank,
        "versions": _versions(),
        **{f"{node}.{name}": value for node, table in values.items() for name, value in table.items()},
        "policy.checkpoint": "",  # its hash counts, not where it lies
    }
    with Journal(out, header) as journal:
        missing = [trial for trial in chosen if trial.index not in journal.records]
        with _Bar(journal.records, chosen) as bar:
            for record in run(config, make_policy, missing, workers):
                journal.add(record)
                bar.update()
        records = [journal.records[trial.index] for trial in chosen]
    numbers: dict[str, Any] = summary(records)
    numbers |= {"tr_by_phase": by_phase(records), "tr_against_success": against_success(records)}
    if against is not None:
        numbers["against"] = compare_records(records, against)
    _print(numbers, f"{graph_name}, split {part}")
    if pictures and out is not None:
        failed = [trial for trial, record in zip(chosen, records, strict=True) if not record["success"]][:pictures]
        for _ in run(config, make_policy, failed, workers, out / "failures"):  # the same episodes again, to the bit
            pass
        typer.echo(f"{len(failed)} sheets in {out / 'failures'}", err=True)
    if as_json:
        seeds = {"first": chosen[0].seed, "last": chosen[-1].seed, "policy": values["policy"]["seed"]}
        about = {key: header[key] for key in ("policy", "checkpoint", "split", "latency", "blank", "versions")}
        typer.echo(json.dumps({**numbers, **about, "seeds": seeds}, default=_plain))


def graph_parameters(
    graph_name: str, checkpoint: Path | None, policy: str, settings: Sequence[str]
) -> dict[str, dict[str, Any]]:
    """Parameter values by node: what the graph's files say, and ``settings`` (``node.parameter=value``) on top.

    Raises:
        ValueError: an unknown graph, policy, node, parameter or value, a checkpoint where none belongs, or none where
            one does.
    """
    from vag_policy.bringup import BringupError, graph, parse_settings
    from vag_policy.nodes import camera_sync_parameters, joint_command_parameters, policy_parameters, yam_sim_parameters
    from vag_policy.nodes.graph_values import graph_values

    if graph_name != "yam_sim":
        raise BringupError(f"no graph '{graph_name}' to evaluate in; there is: yam_sim")
    if policy not in ("checkpoint", "expert"):
        raise ValueError(f"no policy '{policy}'; there are: checkpoint, expert")
    if policy == "expert" and checkpoint is not None:
        raise ValueError("name a checkpoint with --checkpoint, or take --policy expert, which needs none")
    parameters = parse_settings(settings)
    if checkpoint is not None:
        parameters.setdefault("policy", {})["checkpoint"] = str(checkpoint)
    tables = {
        "yam_sim": yam_sim_parameters.PARAMETERS,
        "camera_sync": camera_sync_parameters.PARAMETERS,
        "policy": policy_parameters.PARAMETERS,
        "joint_command": joint_command_parameters.PARAMETERS,
    }
    specs = graph(graph_name, parameters=parameters)
    idle = sorted(set(parameters) - set(tables))
    if idle:
        raise BringupError(f"node '{idle[0]}' takes no part in an evaluation; these do: {', '.join(tables)}")
    values = graph_values(specs, tables)
    if policy == "checkpoint":
        values["policy"]["checkpoint"] = _folder(values["policy"]["checkpoint"])
    return values


def _folder(checkpoint: str) -> str:
    from vag_policy.shipped import checkpoint_folder

    folder = checkpoint_folder(checkpoint)
    if folder:
        return folder
    missing = f"{checkpoint} is not in this copy of the package; " if checkpoint else ""
    raise ValueError(f"{missing}name a checkpoint with --checkpoint, or take --policy expert, which needs none")


def loop_config(values: Values, seconds: float, latency: float, blank: bool) -> LoopConfig:
    """The loop that nodes with these parameter values make.

    Raises:
        ValueError: they do not fit together.
    """
    from vag_policy.evaluation.rollout import LoopConfig
    from vag_policy.nodes.camera_sync_parameters import stack_config
    from vag_policy.nodes.joint_command_parameters import make_arbiter, make_rig, nanoseconds
    from vag_policy.nodes.policy_parameters import session_config
    from vag_policy.nodes.yam_sim_parameters import sim_config

    world, command = values["yam_sim"], values["joint_command"]
    sim, joint_state_ns = sim_config(world)
    rig = make_rig(command)
    return LoopConfig(
        sim=sim,
        joint_state_ns=joint_state_ns,
        camera_ns=round(1e9 / world["camera_rate"]),
        layout=stack_config(values["camera_sync"]),
        rig=rig,
        arbiter=make_arbiter(rig, command),
        command_ns=nanoseconds(1.0 / command["rate"]),
        time_from_start_ns=nanoseconds(command["time_from_start"]),
        session=session_config(values["policy"]),
        latency_ns=nanoseconds(latency),
        limit_ns=nanoseconds(seconds),
        blank=blank,
    )


def _maker(policy: str, values: Mapping[str, Any], config: LoopConfig) -> Callable[[Sim], Policy]:
    """What makes the policy in a worker process."""
    if policy == "checkpoint":
        return partial(_load, values)
    from vag_policy.evaluation.expert_policy import ExpertPolicy

    if values["mode"] != "blocking":
        raise ValueError(f"the expert needs an executor that holds while it plans: mode blocking, not {values['mode']}")
    layout, chosen = config.layout, {"execute": values["execute"]} if values["execute"] else {}
    return partial(ExpertPolicy, camera_names=layout.cameras, image_size=layout.size, **chosen)


def _load(values: Mapping[str, Any], _sim: Sim) -> Policy:
    from vag_policy.nodes.policy_loader import load_policy

    return load_policy(values, lambda text: typer.echo(text, err=True))


def digest(checkpoint: Path) -> str:
    """A hash of what is in a checkpoint's folder, whatever it is called."""
    import hashlib

    from vag_policy.checkpoint import stored_preset

    stored_preset(checkpoint)
    digest = hashlib.sha256()
    for path in sorted(checkpoint.rglob("*")):
        if path.is_file():
            digest.update(str(path.relative_to(checkpoint)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


def _versions() -> dict[str, str]:
    from importlib.metadata import version

    import vag_policy

    return {"vag_policy": vag_policy.__version__, **{name: version(name) for name in ("torch", "mujoco", "numpy")}}


def _plain(value: Any) -> Any:
    """What JSON lacks: dataclasses as objects, and null for a number that the data cannot tell."""
    if not is_dataclass(value) or isinstance(value, type):
        raise TypeError(f"{type(value).__name__} in a report")
    return {name: _number(entry) for name, entry in vars(value).items()}


def _number(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, 4) if math.isfinite(value) else None
    return value


class _Bar:
    """A progress bar on a terminal, now and then a line elsewhere; success so far beside it."""

    def __init__(self, records: Mapping[int, Mapping[str, Any]], chosen: Sequence[Trial]) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        self._records, self._chosen, console = records, chosen, Console(stderr=True)
        self._lines, self._next = not console.is_terminal, 0
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        self._progress = Progress(*columns, console=console, disable=self._lines)
        self._task = self._progress.add_task("episodes", total=len(chosen))

    def __enter__(self) -> _Bar:
        self._progress.start()
        self.update()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def update(self) -> None:
        from vag_policy.evaluation.statistics import wilson

        done = [self._records[trial.index] for trial in self._chosen if trial.index in self._records]
        if not done:
            return
        share = wilson(sum(record["success"] for record in done), len(done))
        text = f"success {100 * share.value:.0f} % ({100 * share.low:.0f} .. {100 * share.high:.0f})"
        self._progress.update(self._task, completed=len(done), description=text)
        if self._lines and len(done) >= self._next:
            typer.echo(f"{len(done)}/{len(self._chosen)} {text}", err=True)
            self._next = len(done) + max(1, len(self._chosen) // 10)


def _print(numbers: Mapping[str, Any], title: str) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("success", "95 %", "lifted", "episodes", "instruction", title=title)
    for text, share in (*numbers["instructions"].items(), ("all", numbers)):
        interval = f"{100 * share['low']:.0f} .. {100 * share['high']:.0f} %"
        percent, lifted = f"{100 * share['success']:.0f} %", f"{100 * share['lifted']:.0f} %"
        table.add_row(percent, interval, lifted, str(share["episodes"]), text)
    console = Console(stderr=True)
    console.print(table)
    for reason, count in numbers["reasons"].items():
        console.print(f"failed {count} times: {reason}")
    if "against" in numbers:
        compared = numbers["against"]
        difference = compared.difference
        console.print(
            f"against: {100 * difference.value:+.0f} points "
            f"({100 * difference.low:+.0f} .. {100 * difference.high:+.0f}); "
            f"{compared.only_first} only here, {compared.only_second} only there, p = {compared.p:.3f}"
        )
