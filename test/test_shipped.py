"""The weights that come with the package: found by name, installed, and what happens where they are missing."""

import runpy
from pathlib import Path

import pytest

from vag_policy import checkpoint, shipped
from vag_policy.bringup import graph
from vag_policy.cli_eval import graph_parameters, loop_config
from vag_policy.nodes.policy_loader import load_policy
from vag_policy.nodes.policy_parameters import PARAMETERS
from vag_policy.policy import PolicyError
from vag_policy.robots.yam import JOINT_NAMES
from vag_policy.vam.untrained import random_policy

ROOT = Path(__file__).resolve().parent.parent
DEFAULTS = {param.name: param.default for param in PARAMETERS}


@pytest.fixture
def weights(tmp_path, monkeypatch):
    """The package with a policy of its own shipped in it."""
    monkeypatch.setattr(shipped, "WEIGHTS", tmp_path)
    checkpoint.save(random_policy("tiny", seed=5), tmp_path / "tiny_yam")
    return tmp_path


def test_a_shipped_policy_is_found_by_name(weights):
    assert shipped.shipped_policy("tiny_yam") == weights / "tiny_yam"
    assert shipped.checkpoint_folder("shipped:tiny_yam") == str(weights / "tiny_yam")
    assert (shipped.checkpoint_folder("/my/own"), shipped.checkpoint_folder("")) == ("/my/own", "")
    with pytest.raises(ValueError, match="no shipped policy 'huge'; there are: tiny_yam"):
        shipped.checkpoint_folder("shipped:huge")


def test_a_checkpoint_is_named_by_its_folder_or_by_its_name(weights, monkeypatch):
    monkeypatch.chdir(weights)
    for text in ("./tiny_yam", "tiny_yam", str(weights / "tiny_yam")):
        assert shipped.named_checkpoint(text) == str(weights / "tiny_yam"), "a folder that is there wins"
    monkeypatch.chdir("/")
    assert shipped.named_checkpoint("tiny_yam") == shipped.named_checkpoint("shipped:tiny_yam") == "shipped:tiny_yam"
    for text, words in (("/no/where", "no checkpoint in /no/where"), ("shipped:huge", "no shipped policy 'huge'")):
        with pytest.raises(ValueError, match=words):
            shipped.named_checkpoint(text)
    monkeypatch.setattr(shipped, "WEIGHTS", weights / "empty")
    with pytest.raises(ValueError, match="the weights of shipped:tiny_yam are not in this copy of the package"):
        shipped.named_checkpoint("tiny_yam")
    assert shipped.MANIFEST == checkpoint.MANIFEST


def test_a_policy_is_loaded_by_that_name(weights):
    said = []
    loaded = load_policy(DEFAULTS | {"checkpoint": shipped.TINY_YAM, "seed": 1}, said.append)
    stored = checkpoint.load(weights / "tiny_yam")
    assert not said
    for mine, theirs in zip(loaded.model.parameters(), stored.model.parameters(), strict=True):
        assert mine.equal(theirs)


def test_without_the_weights_the_policy_is_untrained_where_that_is_allowed(tmp_path, monkeypatch):
    monkeypatch.setattr(shipped, "WEIGHTS", tmp_path)
    said = []
    load_policy(DEFAULTS | {"checkpoint": shipped.TINY_YAM}, said.append)
    assert said == [
        "shipped:tiny_yam is not in this copy of the package: preset 'tiny' with RANDOM weights; it does nothing useful"
    ]
    with pytest.raises(PolicyError, match="'checkpoint' names missing weights, and random weights are refused"):
        load_policy(DEFAULTS | {"checkpoint": shipped.TINY_YAM, "untrained": "refuse"}, said.append)


def test_the_simulated_graph_runs_them_unless_something_else_is_asked_for():
    assert graph_parameters("yam_sim", None, "expert", [])["policy"]["checkpoint"] == shipped.TINY_YAM
    for settings, wanted in (
        ({"preset": "tiny"}, ""),
        ({"preset": "tiny", "checkpoint": "/my/own"}, "/my/own"),
        ({"checkpoint": "/my/own"}, "/my/own"),
    ):
        specs = {spec.name: spec for spec in graph("yam_sim", parameters={"policy": settings})}
        assert specs["policy"].parameters["checkpoint"] == wanted
    real = {spec.name: spec for spec in graph("yam", parameters={"policy": {"preset": "yam"}})}
    assert real["policy"].parameters == {"preset": "yam"}, "a real rig's own parameter files may name a checkpoint"


def test_they_are_installed(weights, monkeypatch):
    said = {}
    monkeypatch.setattr("setuptools.setup", lambda **options: said.update(options))
    monkeypatch.chdir(ROOT)
    runpy.run_path("setup.py")
    for file in (weights / "tiny_yam").iterdir():
        inside = Path("weights") / file.relative_to(weights)
        assert any(inside.match(pattern) for pattern in said["package_data"]["vag_policy"]), inside
    assert shipped.__file__ and Path(shipped.__file__).parent == ROOT / "vag_policy"


@pytest.mark.skipif(shipped.shipped_policy("tiny_yam") is None, reason="this checkout is without the shipped weights")
def test_the_small_policy_fits_the_simulated_graph():
    folder = shipped.shipped_policy("tiny_yam")
    assert {path.suffix for path in folder.iterdir()} == {".json", ".safetensors"}
    assert sum(path.stat().st_size for path in folder.iterdir()) < 30e6
    values = graph_parameters("yam_sim", None, "checkpoint", [])
    assert values["policy"]["checkpoint"] == str(folder)
    policy = load_policy(values["policy"], lambda text: pytest.fail(text))
    layout = loop_config(values, 25.0, 0.2, False).layout
    assert (policy.image_size, policy.camera_names) == (layout.size, layout.cameras)
    assert policy.action_names == policy.state_names == JOINT_NAMES
