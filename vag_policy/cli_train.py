"""``vag train``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vag_policy import yaml_text
from vag_policy.bringup import share_directory


def train(
    config: Annotated[
        Path,
        typer.Option(metavar="NAME_OR_FILE", help="a configuration below config/train/, such as tiny_yam, or a file"),
    ],
    out: Annotated[Path, typer.Option(metavar="DIR", help="folder of the run; one that was stopped goes on")] = Path(
        "train_out"
    ),
    data: Annotated[str, typer.Option(metavar="DIR", help="LeRobot dataset; sets data.dataset")] = "",
    max_steps: Annotated[int, typer.Option(min=0, metavar="N", help="stop after so many steps; 0: at the end")] = 0,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="change a setting, such as stages.0.steps=100; may be given several times",
        ),
    ] = None,
) -> None:
    """Train a video-action policy on a LeRobot dataset.

    Several processes by torchrun or `accelerate launch`.
    """
    file = _config_file(config)
    yaml_text.read(file)  # one that is missing or no YAML is said before torch takes its seconds to load
    changes = dict(_setting(text) for text in settings or [])
    if data:
        changes["data.dataset"] = data
    from rich.console import Console

    from vag_policy.training.config_file import load_config
    from vag_policy.training.data import open_samples, open_snapshots
    from vag_policy.training.trainer import train as run

    chosen = load_config(file, changes)
    _check_dataset(chosen.data.dataset)
    snapshots = open_snapshots(chosen.data, chosen.settings())
    cache = Path(chosen.data.cache) if chosen.data.cache else out / "cache"
    with Console().status("opening the dataset") as status:
        samples = open_samples(
            chosen.data, chosen.settings(), cache, lambda done, total: status.update(f"decoding episode {done}/{total}")
        )
    policy = run(chosen, out, samples, max_steps or None, snapshots)
    typer.echo(f"policy: {policy}")


def _config_file(config: Path) -> Path:
    if config.suffix:
        return config
    folder = share_directory("config", "train")
    shipped = folder / f"{config}.yaml"
    if not shipped.is_file():
        known = ", ".join(sorted(path.stem for path in folder.glob("*.yaml")))
        raise ValueError(f"no training configuration '{config}'; known: {known}, or the path of a .yaml file")
    return shipped


def _setting(text: str) -> tuple[str, object]:
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise ValueError(f"--set takes NAME=VALUE, got '{text}'")
    return name, yaml_text.parse(value, f"--set {text}: the value")


def _check_dataset(folder: str) -> None:
    if folder and not Path(folder, "meta/info.json").is_file():
        raise ValueError(
            f"no LeRobot dataset here: {folder}; name yours with --data, or make one of the simulated rig with: "
            f"vag demos --episodes 600 --out {folder}"
        )
