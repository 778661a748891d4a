"""The folder a demo writes to."""

import os
from pathlib import Path

import pytest

from vag_policy.bringup import BringupError
from vag_policy.demo_folder import MARKER, claimed


def test_a_demo_s_own_folder_is_emptied(tmp_path):
    out, elsewhere = tmp_path / "out", tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "kept").touch()
    with claimed(out):
        (out / "bag").mkdir()
        (out / "bag/metadata.yaml").touch()
        (out / "link").symlink_to(elsewhere)
    with claimed(out) as same:
        assert same == out and [path.name for path in out.iterdir()] == [MARKER]
    assert (elsewhere / "kept").exists()


def test_a_second_demo_is_refused_while_the_first_one_writes(tmp_path):
    with claimed(tmp_path / "out"):
        (tmp_path / "out/summary.json").touch()
        with pytest.raises(BringupError, match=f"another demo is writing to {tmp_path}/out; name another"):
            claimed(tmp_path / "out").__enter__()
        assert (tmp_path / "out/summary.json").exists()
    with claimed(tmp_path / "out"):
        pass


def test_a_folder_is_left_alone_that_is_not_a_demo_s(tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(BringupError, match="holds something that is not a demo's results; name another folder"):
        claimed(tmp_path).__enter__()
    assert (tmp_path / "thesis.tex").exists()


@pytest.mark.parametrize(("name", "why"), [("file", "is not a folder"), ("file/below", "Not a directory")])
def test_what_cannot_be_a_folder_is_said(name, why, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(BringupError, match=f"{tmp_path}/{name}.*{why}.*name another folder with --out"):
        claimed(tmp_path / name).__enter__()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_an_unwritable_folder_is_said(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(BringupError, match="Permission denied"):
        claimed(tmp_path / "out").__enter__()


def test_a_folder_of_the_system_is_said():
    with pytest.raises(BringupError, match="cannot write to /proc/demo"):
        claimed(Path("/proc/demo")).__enter__()


def test_an_error_inside_is_not_taken_for_the_folder_s(tmp_path):
    with pytest.raises(PermissionError), claimed(tmp_path / "out"):
        raise PermissionError(13, "Permission denied", "elsewhere")
