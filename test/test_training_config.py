"""Configurations: the shipped ones are the paper's, wrong ones are told what is allowed."""

from __future__ import annotations

from pathlib import Path

import pytest
from training_support import CONFIG, write_config

from vag_policy.training.config_file import load_config

FOLDER = Path(__file__).resolve().parent.parent / "config/train"
PAPER = [f"{p}_{r}_{t}" for p in ("yam", "libero") for r in ("joint", "two_stage") for t in ("lora", "full")]


def test_every_shipped_file_loads():
    names = {path.stem for path in FOLDER.glob("*.yaml")}
    assert names >= {*PAPER, "tiny_yam"}
    for path in FOLDER.glob("*.yaml"):
        config = load_config(path)
        assert config.name == path.stem and config.settings().name == config.preset


@pytest.mark.parametrize("name", PAPER)
def test_paper_configurations(name):
    config = load_config(FOLDER / f"{name}.yaml")
    stages = [(stage.kind, stage.steps) for stage in config.stages]
    assert stages == ([("joint", 50_000)] if "joint" in name else [("video", 25_000), ("head", 50_000)])
    assert {stage.lr for stage in config.stages} == {1e-4 if "lora" in name else 1e-5}
    assert all(stage.action_weight == 1.0 and stage.grid_share == 0.0 for stage in config.stages)
    assert config.tuning.kind == ("lora" if "lora" in name else "full") and config.tuning.rank in (16, 32, 64)
    assert not config.data.relative_actions and config.precision == "bf16"


def test_settings_can_be_changed_by_name(tmp_path):
    write_config(tmp_path / "config.yaml")
    changes = {"stages.0.steps": 7, "data.text_dropout": 0.5, "optimizer.kind": "muon", "seed": 3}
    config = load_config(tmp_path / "config.yaml", changes)
    assert (config.stages[0].steps, config.data.text_dropout, config.optimizer.kind, config.seed) == (7, 0.5, "muon", 3)
    assert config.stages[0].batch == 4


def test_yaml_s_way_with_numbers(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text("name: a\npreset: tiny\nstages: [{kind: joint, steps: 5, batch: 2, lr: 1e-4}]\n")
    assert load_config(path).stages[0].lr == 1e-4


def test_steps_find_their_stage(tmp_path):
    stages = [{"kind": kind, "steps": steps, "batch": 4, "lr": 1.0} for kind, steps in (("video", 6), ("head", 8))]
    config = write_config(tmp_path / "config.yaml", stages=stages)
    assert [config.stage_at(step) for step in (0, 5, 6, 13)] == [(0, 0), (0, 5), (1, 0), (1, 7)]
    with pytest.raises(ValueError, match="beyond the last stage"):
        config.stage_at(14)


def test_what_may_change_between_two_sittings(tmp_path):
    one = write_config(tmp_path / "config.yaml").identity()
    stage = CONFIG["stages"][0]
    free = {"name": "b", "keep": 9, "stages": [stage | {"steps": 90, "cooldown": 5}], "export_every": 3}
    assert write_config(tmp_path / "config.yaml", **free).identity() == one
    for change in ({"seed": 9}, {"ema": 0.0}, {"stages": [stage | {"batch": 8}]}, {"stages": [stage, stage]}):
        assert write_config(tmp_path / "config.yaml", **change).identity() != one, change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"preset": "large"}, "unknown preset 'large'; allowed: libero, tiny, yam"),
        ({"learning_rate": 1}, "unknown setting 'learning_rate'; allowed: name, preset, stages"),
        ({"stages": []}, "at least one stage"),
        ({"stages": [{"kind": "joint", "steps": 5, "lr": 1}]}, r"stages\[0\]: setting 'batch' is missing"),
        ({"stages": [{"kind": "both", "steps": 5, "lr": 1, "batch": 2}]}, "'both'; allowed: image, joint, video, head"),
        ({"stages": [{"kind": "joint", "steps": 5, "lr": "fast", "batch": 2}]}, "lr must be a number, got 'fast'"),
        ({"stages": [{"kind": "joint", "steps": 5, "lr": 1, "batch": 2, "cooldown": 6}]}, "cooldown is 6; allowed: 0"),
        (
            {"stages": [{"kind": "joint", "steps": 5, "lr": 1, "batch": 2, "grid_weights": [1, 2]}]},
            "grid_weights must be 6 numbers",
        ),
        ({"precision": "fp16"}, "precision is 'fp16'; allowed: no, bf16"),
        ({"sharding": "zero"}, "sharding is 'zero'; allowed: none, fsdp"),
        ({"sharding": "fsdp", "optimizer": {"kind": "muon"}}, "muon needs whole matrices"),
        ({"tuning": {"kind": "ia3"}}, "tuning.kind is 'ia3'; allowed: full, lora"),
        ({"tuning": {"rank": 0}}, "tuning.rank is 0"),
        ({"optimizer": {"kind": "sgd"}}, "optimizer.kind is 'sgd'; allowed: adamw, muon"),
        ({"optimizer": {"betas": [0.9, 1.5]}}, "optimizer.betas must be two numbers"),
        ({"init": {"checkpoint": "a", "video_weights": "b"}}, "both given"),
        ({"data": {"every": 0}}, "data.every is 0"),
        ({"data": {"relative_actions": 1}}, "relative_actions must be bool, got 1"),
        ({"data": "demos"}, "data must be a group of settings, got 'demos'"),
        ({"overrides": {"head.layerz": 3}}, "unknown setting 'layerz'"),
        ({"ema": 1.0}, "ema is 1.0"),
        ({"keep": 0}, "keep is 0"),
    ],
)
def test_wrong_settings_are_named(tmp_path, change, message):
    with pytest.raises(ValueError, match=message):
        write_config(tmp_path / "config.yaml", **change)


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(ValueError, match="cannot read .*none.yaml: No such file"):
        load_config(tmp_path / "none.yaml")
    (tmp_path / "bad.yaml").write_text("a: [")
    with pytest.raises(ValueError, match="bad.yaml is not YAML in line 1"):
        load_config(tmp_path / "bad.yaml")
    write_config(tmp_path / "config.yaml")
    for key, message in (("stages.3.steps", "no number 3; there are 1"), ("name.x", "name.x is not a setting")):
        with pytest.raises(ValueError, match=message):
            load_config(tmp_path / "config.yaml", {key: 1})
