"""`vag demos`: the same dataset whatever the number of processes and however often it was killed."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from vag_policy import cli
from vag_policy.data.demo_worker import DemoConfig, World
from vag_policy.data.demos import JOURNAL, generate
from vag_policy.data.inspection import inspect
from vag_policy.data.lerobot_reader import LeRobotDataset
from vag_policy.data.splits import load_split
from vag_policy.data.video import read_frames
from vag_policy.expert.demonstrator import PHASES
from vag_policy.expert.style import PLAIN
from vag_policy.robots.yam_scene import SceneConfig

RED = "put the red cube in the blue bowl"
CAN = "put the purple can on the green plate"
EPISODES = 2
COMMAND = (sys.executable, "-m", "vag_policy.cli", "demos", "--episodes", str(EPISODES), "--plain", "--json")
SMALL = ("--width", "32", "--height", "32")


def files(root):
    """Every file that belongs to the dataset, with its content."""
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file() and path.name != ".lock"
    }


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Made by two processes without interruption; with what the command printed."""
    out = tmp_path_factory.mktemp("demos") / "whole"
    done = subprocess.run(
        [*COMMAND, *SMALL, "--out", str(out), "--workers", "2"],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return out, json.loads(done.stdout.splitlines()[-1])


def test_the_numbers_that_are_printed(whole):
    _, numbers = whole
    assert numbers["episodes"] == EPISODES and numbers["attempts"] >= EPISODES
    assert numbers["expert_success"] == round(EPISODES / numbers["attempts"], 4)
    assert numbers["episodes_per_minute"] > 0 and numbers["speedup"] is None  # too short a run to tell


def test_what_is_in_the_dataset(whole):
    root, _ = whole
    report = inspect(root)
    assert not report.problems and not report.yam and len(report.catalogue.episodes) == EPISODES
    dataset, split = LeRobotDataset(root), load_split(cli_split())
    tasks = [dataset.task(int(start)) for start in dataset.starts[:-1]]
    assert len(set(tasks)) == EPISODES and set(tasks) <= set(split.id)
    assert set(dataset.column("phase")) == set(PHASES) and dataset.column("imitate").all()
    assert not {".work"} & {path.name for path in root.iterdir()}
    rows = pq.read_table(root / "meta/episodes/chunk-000/file-000.parquet")
    assert all(seed >= 100_000 for seed in rows["demonstration/seed"].to_pylist())
    for position in range(EPISODES):  # as many pictures as numbers, and they move
        pictures = list(dataset.pictures(position, "top"))
        assert len(pictures) == dataset.episodes[position].length
        assert (pictures[0].astype(int) - pictures[len(pictures) // 2]).std() > 5


def cli_split():
    from vag_policy.bringup import share_directory

    return share_directory("config", "splits") / "yam_sim.yaml"


def test_killed_and_gone_on_with(whole, tmp_path):
    expected, _ = whole
    out = tmp_path / "killed"
    command = [*COMMAND, *SMALL, "--out", str(out), "--workers", "1"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_for(lambda: journal_lines(out) >= 2, process)  # the configuration and one episode
        wait_for(lambda: any((out / ".work").glob(".attempt-*")), process)  # in the middle of the next
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    assert journal_lines(out) < 1 + EPISODES
    # What the worst moment could leave behind: a line cut short, and an episode's file without its line.
    with (out / JOURNAL).open("a") as journal:
        journal.write('{"attempt": 1, "instr')
    leftover = out / "data/chunk-000/file-001.parquet"
    leftover.write_bytes(b"half")
    wait_for(lambda: not running_below(out), None)  # the killed run's worker has gone too
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    again, once = files(out), files(expected)
    assert set(again) == set(once)
    assert [name for name in once if again[name] != once[name]] == []


def journal_lines(out):
    path = out / JOURNAL
    return path.read_bytes().count(b"\n") if path.exists() else 0


def running_below(out):
    """Whether a process still holds a file open below ``out``."""
    for folder in Path("/proc").glob("[0-9]*/fd"):
        try:
            if any(str(file.readlink()).startswith(f"{out}/") for file in folder.iterdir()):
                return True
        except OSError:
            continue
    return False


def wait_for(condition, process):
    deadline = time.monotonic() + 120
    while not condition():
        assert process is None or process.poll() is None, "ended too early"
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_finished_dataset_is_left_alone(whole):
    root, _ = whole
    before = files(root)
    result = generate(root, DemoConfig(100_000, load_split(cli_split()).id, 32, 32, PLAIN), EPISODES, 1)
    assert result.episodes == EPISODES and result.episodes_per_minute is None
    assert files(root) == before


def test_another_configuration_is_refused(whole):
    root, _ = whole
    instructions = load_split(cli_split()).id
    for config, word in (
        (DemoConfig(100_001, instructions, 32, 32, PLAIN), r"another seed \(100000, now 100001\)"),
        (DemoConfig(100_000, instructions, 64, 32, PLAIN), r"another width \(32, now 64\)"),
        (DemoConfig(100_000, instructions[:3], 32, 32, PLAIN), "another instructions"),
        (DemoConfig(100_000, instructions, 32, 32), "another variety"),
    ):
        with pytest.raises(ValueError, match=word):
            generate(root, config, EPISODES, 1)


def test_a_folder_that_holds_something_else_is_refused(tmp_path):
    (tmp_path / "thesis.tex").write_text("important")
    with pytest.raises(ValueError, match="is not empty and holds no demonstrations"):
        generate(tmp_path, DemoConfig(100_000, (RED,)), 1, 1)
    with pytest.raises(ValueError, match="thesis.tex is not a folder"):
        generate(tmp_path / "thesis.tex", DemoConfig(100_000, (RED,)), 1, 1)


def test_two_runs_at_once_are_refused(tmp_path):
    import fcntl

    with (tmp_path / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(ValueError, match="another run is writing"):
            generate(tmp_path, DemoConfig(100_000, (RED,)), 1, 1)


def test_pictures_may_be_drawn_less_often_than_frames_are_recorded(tmp_path):
    drawn = {}
    for every in (1, 3):
        config = DemoConfig(100_000, (RED,), 64, 48, PLAIN, every)
        attempt = World(config, tmp_path / str(every)).attempt(0)
        path = attempt.videos()["observation.images.top"]
        drawn[every] = np.stack(list(read_frames(path, 0, attempt.entry.length, 30))).astype(float)
    assert drawn[1].shape == drawn[3].shape  # a recording is as long, and its vectors are the same
    kept = np.arange(len(drawn[1])) // 3 * 3

    def changed(one, other):
        """Pixels that differ by more than compression makes them."""
        return int((np.abs(one - other).max(axis=-1) > 40).sum())

    assert 10 * changed(drawn[3], drawn[1][kept]) < changed(drawn[1], drawn[1][kept])
    with pytest.raises(ValueError, match="picture_every must be 1 or more, got 0"):
        DemoConfig(100_000, (RED,), picture_every=0)
    assert "picture_every" not in DemoConfig(1, (RED,)).to_json()  # datasets of before go on


def test_every_instruction_has_its_turn():
    config = DemoConfig(100_000, (RED, CAN, "put the green cube in the blue bowl"))
    turns = [[config.instruction(3 * turn + place) for place in range(3)] for turn in range(20)]
    assert all(sorted(turn) == sorted(config.instructions) for turn in turns)
    assert len({tuple(turn) for turn in turns}) > 3


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("--seed", "5"), "demonstrations take seeds 100000 to 999999"),
        (("--pairs", "nowhere.yaml"), "cannot read nowhere.yaml"),
        (("--hold-out", "put the moon in the blue bowl"), "no task 'put the moon in the blue bowl'"),
        (("--hold-out", RED, "--pairs", "a.yaml"), "--pairs and --hold-out exclude each other"),
        (("--width", "33"), "must be even"),
    ],
)
def test_bad_options(arguments, word, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["vag", "demos", "--episodes", "1", "--out", str(tmp_path / "out"), *arguments])
    with pytest.raises(SystemExit) as caught:
        cli.main()
    assert caught.value.code == 2 and word in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_the_scene_has_what_the_issue_asks_for():
    scene = SceneConfig()
    assert len({task.item.name for task in scene.tasks}) >= 4
    assert len({task.container.name for task in scene.tasks}) >= 3
