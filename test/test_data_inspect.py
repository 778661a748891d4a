"""`vag data inspect` reports everything that is wrong, and says so with its exit code."""

import json

import cv2
import numpy as np
import pytest
from lerobot_maker import make_v2, make_v3
from test_data_reader import drop_frame, edit_data, edit_info, put, put_time, video_of
from typer.testing import CliRunner

from vag_policy import cli
from vag_policy.data import lerobot_format as layout
from vag_policy.data.inspection import contact_sheet, inspect


def run(*arguments):
    result = CliRunner().invoke(cli.app, ["data", "inspect", *map(str, arguments)])
    return result.exit_code, result.output


def test_a_good_dataset(tmp_path):
    code, output = run(make_v3(tmp_path / "v3"), "--sheet", tmp_path / "sheet.png", "--json")
    assert code == 0, output
    found = json.loads(output.splitlines()[-1])
    assert (found["episodes"], found["frames"], found["fps"], found["version"]) == (2, 27, 30, "v3.0")
    assert found["problems"] == [] and found["gaps"] == [] and found["yam"] == ""
    assert found["names"]["action"][13] == "right_joint7"
    assert "left_joint1" in output and "put the red cube in the blue bowl" in output
    sheet = cv2.imread(str(tmp_path / "sheet.png"))
    # two episodes of six instants of three cameras of 160x120, each instant with a border of one pixel
    assert sheet.shape == (2 * 122, 6 * (3 * 160 + 2), 3)


@pytest.mark.parametrize("columns", ["120", "80"])
def test_names_are_whole_in_a_narrow_terminal(tmp_path, columns, monkeypatch):
    monkeypatch.setenv("COLUMNS", columns)
    _, output = run(make_v3(tmp_path))
    for name in ("observation.images.left_wrist", "observation.images.right_wrist", "right_joint7"):
        assert name in output
    assert "…" not in output


def test_the_sheet_shows_the_pictures(tmp_path):
    sheet = contact_sheet(inspect(make_v3(tmp_path)).catalogue)
    assert np.abs(sheet[61, 81].astype(int) - (40, 30, 20)).max() < 8  # top, episode 0, frame 0
    assert np.abs(sheet[122 + 61, 5 * 482 + 161 + 80].astype(int) - (120, 90, 160)).max() < 8  # wrist, last frame


@pytest.mark.parametrize("images", [False, True])
def test_the_old_layout(tmp_path, images):
    code, output = run(make_v2(tmp_path / "v2", images=images), "--sheet", tmp_path / "sheet.png")
    assert code == 0, output


def test_all_problems_at_once(tmp_path):
    root = make_v3(tmp_path, lengths=(12, 15, 12, 12))
    edit_data(root, 0, put(layout.ACTION, 3, 5, float("nan")))
    edit_data(root, 1, put_time)
    edit_data(root, 2, drop_frame)
    video_of(root, 1).write_bytes(video_of(root, 0).read_bytes())
    video_of(root, 3).unlink()
    report = inspect(root)
    for word in (
        "file-000.parquet: episode 0: 'action' of frame 3, entry 5 is not finite",
        "file-001.parquet: episode 1: frame 9 comes 0.0533 s after the last, not 0.0333",
        "file-002.parquet: episode 2 has 11 frames, the episode table says 12",
        "file-001.mp4: episode 1 needs frames 0 to 14, the video has 12",
        "file-003.mp4: cannot be opened",
    ):
        assert any(word in problem for problem in report.problems), (word, report.problems)
    assert report.gaps[0][:2] == (1, 9) and report.gaps[0][2] == pytest.approx(0.0533, abs=1e-3)
    code, output = run(root, "--sheet", tmp_path / "sheet.png")
    assert code == 1 and "problem:" in output


def test_other_robots_are_not_a_problem(tmp_path):
    root = make_v3(tmp_path, cameras=("front",))
    edit_info(root, lambda info: info["features"]["action"].update(names=None))
    code, output = run(root)
    assert code == 0 and "bimanual YAM data: no: cameras are named in no known way" in " ".join(output.split())


def test_a_name_map_from_a_file(tmp_path):
    root = make_v3(tmp_path / "v3", cameras=("a", "b", "c"))
    cameras = {"top": "a", "left_wrist": "b", "right_wrist": "c"}
    names = tmp_path / "names.yaml"
    names.write_text(json.dumps({"cameras": {ours: f"{layout.IMAGES}{theirs}" for ours, theirs in cameras.items()}}))
    assert "bimanual YAM data: yes" in run(root, "--names", names)[1]
    assert "bimanual YAM data: no" in run(root)[1]


def test_no_dataset(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["vag", "data", "inspect", str(tmp_path)])
    with pytest.raises(SystemExit) as caught:
        cli.main()
    assert caught.value.code == 2 and "no LeRobot dataset here" in capsys.readouterr().err
