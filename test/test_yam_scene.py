import math
from itertools import combinations

import pytest

from vag_policy.robots.yam_items import CONTAINERS, OBJECTS
from vag_policy.robots.yam_rig import RigGeometry
from vag_policy.robots.yam_scene import SceneConfig

SCENE = SceneConfig()
SEEDS = range(60)


@pytest.mark.parametrize("spacing", [0.61, 0.62, 0.80])
def test_layouts_do_not_overlap_and_can_be_reached(spacing):
    rig = RigGeometry(spacing=spacing)
    size = {item.name: item.footprint for item in SCENE.items}
    for seed in SEEDS:
        layout = SCENE.draw(rig, seed)
        assert set(layout.places) == {item.name for item in (*OBJECTS, *CONTAINERS)}
        for (a, pa), (b, pb) in combinations(layout.places.items(), 2):
            assert math.dist(pa[:2], pb[:2]) >= size[a] + size[b] + SCENE.gap, (seed, a, b)
        arms = {}
        for name, (x, y, _) in layout.places.items():
            arms[name] = [arm for arm in ("left", "right") if 0.18 <= math.hypot(x, y - rig.base_xyz(arm)[1]) <= 0.42]
            assert arms[name], (seed, name)
            least, most = SCENE.object_x if name in SCENE.objects else SCENE.container_x
            assert least <= x <= most
        task = layout.task
        assert set(arms[task.item.name]) & set(arms[task.container.name]), seed
        for name in (task.item.name, task.container.name):
            assert abs(layout.places[name][1]) <= spacing / 2 - SCENE.clear + 1e-12


def test_a_seed_decides_everything_and_seeds_differ():
    rig = RigGeometry()
    first = [SCENE.draw(rig, seed) for seed in SEEDS]
    assert first == [SCENE.draw(rig, seed) for seed in SEEDS]
    assert len({layout.places["red_cube"] for layout in first}) == len(first)
    tasks = {layout.task.instruction for layout in first}
    assert len(tasks) > 10, "the task is drawn from the seed too"


def test_a_named_task_is_the_one_that_is_set():
    layout = SCENE.draw(RigGeometry(), 3, "Put the red cube  on the green plate.")
    assert (layout.task.item.name, layout.task.container.name) == ("red_cube", "green_plate")
    assert layout.task.instruction == "put the red cube on the green plate"


@pytest.mark.parametrize(
    "words", ["put the pink cube in the blue bowl", "put the red cube in the green plate", "dance"]
)
def test_an_unknown_task_is_refused_with_what_there_is(words):
    with pytest.raises(
        ValueError, match=f"no task '{words}'.*red cube.*in the blue bowl, in the wooden tray, on the green"
    ):
        SCENE.find_task(words)


@pytest.mark.parametrize(
    ("told", "reason"),
    [
        ("put the pink cube in the blue bowl", "scene: unknown word 'pink'; say"),
        ("Lift the red CUB, please.", "scene: unknown words 'lift', 'cub,', 'please'; say"),
        ("put the red cube in the green plate", "scene; say"),  # known words in a way that no task has them
    ],
)
def test_the_words_of_an_unknown_task_that_no_task_has_are_named(told, reason):
    with pytest.raises(ValueError, match=reason):
        SCENE.find_task(told)


def test_bad_scenes_are_refused():
    with pytest.raises(ValueError, match="no object 'red_ball'; a scene has: red_cube, green_cube"):
        SceneConfig(objects=("red_ball",))
    with pytest.raises(ValueError, match="containers must be one or more, each once; a scene has: blue_bowl"):
        SceneConfig(containers=())
    with pytest.raises(ValueError, match="objects must be one or more, each once"):
        SceneConfig(objects=("red_cube", "red_cube"))
    with pytest.raises(ValueError, match="seed is 0 or more, got -1"):
        SCENE.draw(RigGeometry(), -1)
    with pytest.raises(ValueError, match="no room for 8 items"):
        SceneConfig(container_x=(0.3, 0.31), y=0.02).draw(RigGeometry(), 0)


def test_a_small_scene_holds_only_what_is_asked_for():
    scene = SceneConfig(objects=("yellow_cube",), containers=("wooden_tray",))
    layout = scene.draw(RigGeometry(), 0)
    assert set(layout.places) == {"yellow_cube", "wooden_tray"}
    assert layout.task.instruction == "put the yellow cube in the wooden tray"


def test_regions_that_count_are_inside_the_containers():
    bowl, plate, tray = CONTAINERS
    assert bowl.contains(0.045, 0) and not bowl.contains(0.04, 0.04)
    assert plate.contains(0.06, 0) and not plate.contains(0.0, 0.07)
    assert tray.contains(0.04, 0.06) and not tray.contains(0.05, 0.0)
    for container in CONTAINERS:
        assert max(container.inside) < container.footprint
