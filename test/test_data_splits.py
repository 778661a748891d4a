"""Which instructions are demonstrated: both halves of every held-out pair are, the pair never."""

from pathlib import Path

import pytest
import yaml

from vag_policy.data.splits import Split, hold_out, load_split
from vag_policy.robots.yam_scene import SceneConfig

SHIPPED = Path(__file__).parent.parent / "config/splits/yam_sim.yaml"
SEEDS = {"demonstrations": (100, 199), "id": (0, 9), "ood": (10, 19)}
RED, BLUE = "put the red cube in the blue bowl", "put the blue cube in the wooden tray"


def test_the_shipped_split_is_all_pairs_once():
    split, scene = load_split(SHIPPED), SceneConfig()
    assert sorted(split.id + split.ood) == sorted(task.instruction for task in scene.tasks)
    seen = [scene.find_task(text) for text in split.id]
    for text in split.ood:
        task = scene.find_task(text)
        assert sum(other.item == task.item for other in seen) >= 2
        assert sum(other.container == task.container for other in seen) >= 2


def test_demonstration_seeds_are_apart_from_evaluation():
    split = load_split(SHIPPED)
    split.check_demonstration_seeds(100_000, 5000)
    for first in (0, 1000, 19_999, 99_999, 999_990):
        with pytest.raises(ValueError, match="demonstrations take seeds 100000 to 999999"):
            split.check_demonstration_seeds(first, 20)


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (((RED,), (RED,), SEEDS), f"'{RED}' is both id and ood"),
        (((RED,), (BLUE,), SEEDS), f"'{BLUE}' is ood, but no id instruction has the blue cube"),
        (((), (), SEEDS), "at least one instruction"),
        ((("put the moon in the blue bowl",), (), SEEDS), "no task 'put the moon in the blue bowl'"),
        (((RED,), (), SEEDS | {"id": (5, 12)}), "must be disjoint"),
        (((RED,), (), SEEDS | {"id": (9, 0)}), "must be disjoint"),
        (((RED,), (), {"id": (0, 9)}), "missing: demonstrations, ood"),
    ],
)
def test_splits_that_cannot_be(arguments, word):
    with pytest.raises(ValueError, match=word):
        Split(*arguments)


def test_hold_out():
    split = hold_out(load_split(SHIPPED), [RED.upper() + "."])
    assert split.ood == (RED,) and len(split.id) == 14 and RED not in split.id


def test_files_that_are_no_split(tmp_path):
    path = tmp_path / "split.yaml"
    with pytest.raises(ValueError, match=r"cannot read .*split.yaml: No such file"):
        load_split(path)
    path.write_text("{")
    with pytest.raises(ValueError, match=r"split.yaml is not YAML in line 1"):
        load_split(path)
    for content in ("[1, 2]", "id: [a]", "", yaml.safe_dump({"id": [RED], "ood": [], "seeds": {"id": 3}})):
        path.write_text(content)
        with pytest.raises(ValueError, match=r"split.yaml is not a split"):
            load_split(path)
