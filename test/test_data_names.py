"""Cameras and joints are found by name, whatever a dataset calls them."""

import numpy as np
import pytest
from lerobot_maker import make_v3, picture, vectors

from vag_policy.data import lerobot_format as layout
from vag_policy.data.lerobot_reader import DatasetSpec, LeRobotDataset
from vag_policy.data.names import DatasetError, NameMap, entry_names, find_yam_names, order
from vag_policy.robots.yam import ARMS, JOINT_NAMES


def joints(pattern, gripper=None, first=1):
    names = []
    for arm in ARMS:
        names += [pattern.format(arm=arm, n=n + first) for n in range(6)]
        names.append((gripper or pattern).format(arm=arm, n=6 + first))
    return names


VARIANTS = [
    joints("{arm}_joint{n}"),
    joints("{arm}_joint{n}.pos"),
    joints("{arm}_joint{n}.pos", "{arm}_gripper.pos"),
    joints("{arm}_j{n}", first=0),
    joints("{arm}_j{n}", "{arm}_gripper", first=0),
    joints("{arm}_joint_{n}"),
    joints("{arm}_joint_{n}", "{arm}_gripper"),
]


def features(names, cameras=("top", "left_wrist", "right_wrist")):
    picture_feature = layout.video_feature(32, 24, 30)
    vector = layout.vector_feature(names)
    return {layout.STATE: vector, layout.ACTION: vector} | {f"{layout.IMAGES}{c}": picture_feature for c in cameras}


@pytest.mark.parametrize("names", VARIANTS, ids=lambda names: f"{names[0]}-{names[6]}")
def test_known_joint_names_are_found_and_put_in_our_order(names):
    shuffled = list(np.random.default_rng(0).permutation(names))
    table = features(shuffled)
    found = find_yam_names(table)
    places = order("state", JOINT_NAMES, table[layout.STATE], found.state, positional=False)
    assert [shuffled[place] for place in places] == names


@pytest.mark.parametrize("cameras", [("top", "left", "right"), ("cam_high", "cam_left_wrist", "cam_right_wrist")])
def test_known_camera_names_are_found(cameras):
    found = find_yam_names(features(JOINT_NAMES, cameras))
    assert [found.camera(name) for name in ("top", "left_wrist", "right_wrist")] == [
        f"observation.images.{name}" for name in cameras
    ]


def test_unknown_names_are_listed():
    with pytest.raises(DatasetError, match="no known way: observation.images.front; known"):
        find_yam_names(features(JOINT_NAMES, ("front",)))
    with pytest.raises(DatasetError, match="no known way: a, b"):
        find_yam_names(features(["a", "b"]))
    with pytest.raises(DatasetError, match="no feature 'observation.state'; there are: action"):
        find_yam_names({name: f for name, f in features(JOINT_NAMES).items() if name != layout.STATE})


def test_entry_names_in_every_form():
    assert entry_names({"names": ["a", "b"], "shape": [2]}) == ("a", "b")
    assert entry_names({"names": {"motors": ["a", "b"]}, "shape": [2]}) == ("a", "b")
    assert entry_names({"names": {"b": 1, "a": 0}, "shape": [2]}) == ("a", "b")
    assert entry_names({"names": ["state"], "shape": [8]}) is None
    assert entry_names({"names": None, "shape": [2]}) is None


def test_unnamed_entries_are_taken_by_position_only_on_request():
    feature = {"names": ["state"], "shape": [3]}
    assert order("state", ("x", "y", "z"), feature, {}, positional=True) == [0, 1, 2]
    with pytest.raises(DatasetError, match="does not name its 3 entries; say 'positional'"):
        order("state", ("x", "y", "z"), feature, {}, positional=False)
    with pytest.raises(DatasetError, match="has 3 entries, expected 2"):
        order("state", ("x", "y"), feature, {}, positional=True)


def test_a_missing_joint_is_named():
    with pytest.raises(DatasetError, match="no entry 'left_joint3'; it has: left_joint1"):
        order("state", JOINT_NAMES, layout.vector_feature(["left_joint1", "left_joint2"]), {}, positional=False)


def test_a_dataset_with_other_names_is_read_as_ours(tmp_path):
    theirs = joints("{arm}_j{n}", first=0)[::-1]
    root = make_v3(tmp_path, names=theirs, cameras=("top", "right", "left"))
    dataset = LeRobotDataset(root)
    assert np.array_equal(dataset.state[:12], vectors(0, 12)[layout.STATE][:, ::-1])
    seen = next(dataset.pictures(1, "left_wrist"))
    assert np.abs(seen.astype(int) - picture(2, 1, 0)).max() < 8  # 'left' was written as the third camera


def test_a_written_name_map(tmp_path):
    mapped = NameMap.from_config(
        {"cameras": {"front": "observation.images.top"}, "state": {"a": "left_joint2"}, "action": {"b": "right_joint7"}}
    )
    spec = DatasetSpec(cameras=("front",), state_names=("a", "left_joint1"), action_names=("b",))
    dataset = LeRobotDataset(make_v3(tmp_path), spec, mapped)
    expected = vectors(0, 12)
    assert np.array_equal(dataset.state[:12], expected[layout.STATE][:, [1, 0]])
    assert np.array_equal(dataset.action[:12], expected[layout.ACTION][:, [13]])
    with pytest.raises(ValueError, match="no setting 'camera' of a name map; allowed: cameras, state"):
        NameMap.from_config({"camera": {}})
