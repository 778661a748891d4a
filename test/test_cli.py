"""Every command of `vag` with input that it cannot take: what is wrong is said, with exit code 2 and no traceback."""

import subprocess
import sys

import pytest

from vag_policy import cli

SNAPSHOTS = ("snapshots", "--count", "10", "--out", "OUT")
SPLIT = ("demos", "--episodes", "1", "--out", "OUT")
DEMO = ("demo", "--out", "OUT")
TRAIN = ("train", "--config", "tiny_yam", "--out", "OUT")
BAG = ("data", "from-bag", "nowhere", "--out", "OUT")
OPERATOR = ("arm", "disarm", "estop", "reset-stop", "home", "reset")
TABLE = [
    (("nonsense",), "nonsense"),
    (("info", "--preset", "yan"), "unknown preset 'yan'; allowed: libero, tiny, yam"),
    (("info", "--nonsense"), "--nonsense"),
    (("up",), "GRAPH"),
    (("up", "yan"), "no graph 'yan'; known: yam, yam_sim"),
    (("up", "yam", "--checkpoint", "FOLDER"), "no checkpoint in FOLDER: there is no FOLDER/manifest.json"),
    (("up", "yam", "--checkpoint", "shipped:huge"), "no shipped policy 'huge'; there are: tiny_yam"),
    (("up", "yam", "--rig", "mine"), "no rig 'mine'; known: i2rt, ros2_control"),
    (("up", "yam", "--rig", "BROKEN"), "BROKEN is not YAML in line 1"),
    (("up", "yam", "--rig", "LIST"), "LIST: holds [1]; allowed: description, base_spacing"),
    (("up", "yam", "--rig", "BINARY"), "BINARY is not a text file"),
    (("up", "yam", "--rig", "FOLDER"), "no rig 'FOLDER'"),
    (("up", "yam_sim", "--set", "policy.preset"), "--set takes NODE.PARAMETER=VALUE, got 'policy.preset'"),
    (("up", "yam_sim", "--set", "a.b=["), "--set a.b=[: the value is not YAML in line 1"),
    (("up", "yam_sim", "--set", "policy.seed="), "the value is None; allowed: true or false, a number"),
    (("up", "yam_sim", "--set", "camera.rate=3"), "no node 'camera'; it has: yam_sim, camera_sync"),
    (("up", "yam", "--namespace", "a b"), "'a b' is no namespace; allowed: letters, digits and _"),
    (("up", "yam", "--logs", "FILE"), "cannot write the nodes' output to FILE"),
    (("run", ""), "the instruction is empty"),
    (("run", "x", "--seconds", "nan"), "--seconds"),
    (("run", "x", "--seconds", "-1"), "--seconds"),
    (("run", "x", "--max-replans", "-1"), "--max-replans"),
    (("run", "x", "--namespace", "1"), "'1' is no namespace"),
    *(((command, "--namespace", "1"), "'1' is no namespace") for command in OPERATOR),
    (("reset", "--seed", "-2"), "--seed"),
    (("demo", "--out", "FILE"), "FILE is not a folder; name another folder with --out"),
    (("demo", "--out", "FILE/below"), "cannot write to FILE/below (Not a directory"),
    (("demo", "--out", "FOLDER"), "FOLDER holds something that is not a demo's results"),
    (("demo", "--out", "/proc/demo"), "cannot write to /proc/demo"),
    ((*DEMO, "--checkpoint", "/no/where"), "no checkpoint in /no/where"),
    ((*DEMO, "--checkpoint", "FILE"), "no checkpoint in FILE"),
    ((*DEMO, "--instruction", "put the red cub in the blue bowl"), "unknown word 'cub'; say 'put the OBJECT PLACE'"),
    ((*DEMO, "--episodes", "0"), "--episodes"),
    ((*DEMO, "--seed", "99999"), "scene seeds 1000 to 9999"),
    ((*DEMO, "--seconds", "nan"), "--seconds"),
    ((*DEMO, "--seconds", "inf"), "--seconds"),
    ((*DEMO, "--seconds", "1"), "--seconds"),
    ((*DEMO, "--seed", "-1"), "--seed"),
    ((*DEMO, "--guidance", "lots"), "'lots' is not one of none, flat, adaptive"),
    (("demos", "--episodes", "0", "--out", "OUT"), "--episodes"),
    (("demos", "--episodes", "1", "--out", "FILE"), "FILE is not a folder"),
    (("demos", "--episodes", "1", "--out", "/proc/demos"), "/proc/demos: No such file or directory"),
    ((*SPLIT, "--workers", "9999"), "--workers"),
    ((*SPLIT, "--width", "nan"), "--width"),
    ((*SPLIT, "--seed", "5"), "demonstrations take seeds 100000 to 999999"),
    ((*SPLIT, "--pairs", "BROKEN"), "BROKEN is not YAML in line 1"),
    ((*SPLIT, "--pairs", "LIST"), "LIST is not a split"),
    ((*SPLIT, "--pairs", "BINARY"), "BINARY is not a text file"),
    ((*SPLIT, "--pairs", "FOLDER"), "cannot read FOLDER: Is a directory"),
    ((*SPLIT, "--hold-out", "put the moon in the sea"), "no task 'put the moon in the sea' in this scene"),
    ((*SNAPSHOTS, "--preset", "huge"), "unknown preset 'huge'; allowed: libero, tiny, yam"),
    ((*SNAPSHOTS, "--seed", "5"), "demonstrations take seeds 100000 to 999999"),
    ((*SNAPSHOTS, "--pairs", "LIST"), "LIST is not a split"),
    (("snapshots", "--count", "0", "--out", "OUT"), "--count"),
    (("data", "nonsense"), "nonsense"),
    (("data", "inspect", "nowhere"), "no LeRobot dataset here"),
    (("data", "inspect", "FILE"), "no LeRobot dataset here"),
    (("data", "inspect", "nowhere", "--names", "BROKEN"), "BROKEN is not YAML in line 1"),
    (("data", "inspect", "nowhere", "--names", "LIST"), "no setting '1' of a name map; allowed: cameras"),
    (("data", "inspect", "nowhere", "--names", "BINARY"), "BINARY is not a text file"),
    (BAG, "nowhere is not a readable bag"),
    ((*BAG, "--topics", "nothing"), "cannot read nothing: No such file"),
    ((*BAG, "--topics", "BROKEN"), "BROKEN is not YAML in line 1"),
    ((*BAG, "--topics", "LIST"), "no setting '1' of a bag; allowed: cameras"),
    ((*BAG, "--fps", "0"), "fps is 0; allowed: 1 to 240"),
    ((*BAG, "--longest-gap", "nan"), "nan is not a finite number"),
    ((*BAG, "--gripper-stroke", "inf"), "inf is not a finite number"),
    ((*BAG, "--gripper-stroke", "0"), "gripper_stroke must not be 0"),
    (("train", "--config", "nothing", "--out", "OUT"), "no training configuration 'nothing'; known: libero_joint"),
    (("train", "--config", "nothing.yaml", "--out", "OUT"), "cannot read nothing.yaml: No such file"),
    (("train", "--config", "FOLDER", "--out", "OUT"), "cannot read FOLDER: Is a directory"),
    (("train", "--config", "BINARY", "--out", "OUT"), "BINARY is not a text file"),
    (("train", "--config", "BROKEN", "--out", "OUT"), "BROKEN is not YAML in line 1"),
    (("train", "--config", "LIST", "--out", "OUT"), "LIST must be a group of settings, got [1]"),
    ((*TRAIN, "--data", "nowhere"), "no LeRobot dataset here: nowhere; name yours with --data, or make one"),
    ((*TRAIN, "--data", "nowhere"), "vag demos --episodes 600 --out nowhere"),
    ((*TRAIN, "--max-steps", "-1"), "--max-steps"),
    ((*TRAIN, "--set", "ema"), "--set takes NAME=VALUE, got 'ema'"),
    ((*TRAIN, "--set", "ema=["), "--set ema=[: the value is not YAML in line 1"),
    ((*TRAIN, "--set", "ema=nan"), "ema is nan; allowed: 0.0 to 0.999999"),
    ((*TRAIN, "--set", "emma=0.9"), "unknown setting 'emma'; allowed: name, preset"),
    ((*TRAIN, "--set", "stages.7.steps=3"), "there is no number 7; there are 3"),
]


@pytest.fixture
def places(tmp_path):
    """What the capital words of the table stand for."""
    found = {word: tmp_path / f"{word.lower()}.yaml" for word in ("BROKEN", "LIST", "BINARY", "FILE", "FOLDER", "OUT")}
    found["BROKEN"].write_text("a: [")
    found["LIST"].write_text("- 1")
    found["BINARY"].write_bytes(b"\x80")
    found["FILE"].touch()
    found["FOLDER"].mkdir()
    (found["FOLDER"] / "thesis.tex").touch()
    return found


@pytest.mark.parametrize(("arguments", "words"), TABLE, ids=[" ".join(arguments)[-60:] for arguments, _ in TABLE])
def test_bad_input_is_said(arguments, words, places, monkeypatch, capsys):
    def filled(text: str) -> str:
        for word, path in places.items():
            text = text.replace(word, str(path))
        return text

    monkeypatch.setattr("sys.argv", ["vag", *map(filled, arguments)])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    said = capsys.readouterr().err
    assert ended.value.code == 2
    assert filled(words) in said
    lines = said.strip().splitlines()
    assert len(lines) == 1 or lines[0].startswith("Usage:"), "one sentence, or typer's own"
    assert not places["OUT"].exists()


def test_every_command_is_in_the_table():
    commands = {command.name or command.callback.__name__ for command in cli.app.registered_commands}
    assert commands - {"eval"} <= {arguments[0] for arguments, _ in TABLE}


@pytest.mark.parametrize(
    ("raised", "code", "words"),
    [
        (KeyboardInterrupt(), 130, ""),
        (SystemExit(3), 3, ""),
        (ValueError("no such thing"), 2, "vag: no such thing\n"),
        (PermissionError(13, "Permission denied", "/etc/shadow"), 2, "vag: /etc/shadow: Permission denied\n"),
        (OSError("no space"), 2, "vag: no space\n"),
    ],
)
def test_what_a_command_raises_ends_the_program(raised, code, words, monkeypatch, capsys):
    def app():
        raise raised

    monkeypatch.setattr(cli, "app", app)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert (ended.value.code, capsys.readouterr().err) == (code, words)


@pytest.mark.parametrize(
    ("arguments", "start"),
    [
        (("up", "x" * 9_000), "vag: no graph 'xxxx"),
        (("up", "yam_sim", "--set", "a b " * 3_000), "vag: --set takes NODE.PARAMETER=VALUE, got 'a b a b"),
        (("up", "yam_sim", "--set", f"a.b=[{'x,' * 3_000}"), "vag: --set a.b=[x,x,"),
        (("run", "go", "--namespace", "1" * 9_000), "vag: '1111"),
        (("demo", "--out", "OUT", "--instruction", "put " * 9_000), "vag: "),
        (("train", "--config", "y" * 200 + "z" * 9_000, "--out", "OUT"), "vag: "),
    ],
    ids=lambda value: "",
)
def test_input_without_end_is_not_repeated_without_end(arguments, start, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["vag", *arguments])
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    said = capsys.readouterr().err
    assert ended.value.code == 2 and said.startswith(start) and len(said) < 700


def test_a_training_configuration_that_is_not_there_is_refused_before_torch_is_imported():
    script = (
        "import sys; from vag_policy import cli_train\n"
        "try: cli_train.train('nothing')\n"
        "except Exception: print('torch' in sys.modules)"
    )
    script = script.replace("'nothing'", "__import__('pathlib').Path('nothing')")
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True).stdout == "False\n"


@pytest.mark.parametrize("group", [(), ("data",)])
def test_no_command_s_summary_is_cut_off(group, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr("sys.argv", ["vag", *group, "--help"])
    with pytest.raises(SystemExit):
        cli.main()
    said = capsys.readouterr().out
    commands = said.partition("Commands:")[2]
    assert commands and "..." not in commands
