"""Rig files: what they may hold, and what is said of anything else."""

import pytest

from vag_policy.bringup import BringupError
from vag_policy.rig_file import load_rig


def test_an_unknown_rig_is_an_error_that_lists_what_is_known():
    with pytest.raises(BringupError, match="no rig 'nope'; known: i2rt, ros2_control, or the path of a .yaml file"):
        load_rig("nope")


def test_an_empty_file_is_the_usual_rig(tmp_path):
    file = tmp_path / "plain.yaml"
    file.touch()
    rig = load_rig(str(file))
    assert (rig.description, rig.base_spacing, rig.remappings, rig.parameters) == ("plain", 0.61, {}, {})


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"remappings: [", "is not YAML in line 1"),
        (b"a:\n\t- b", "is not YAML in line 2"),
        (b"\xff\xfe", "is not a text file"),
        (b"- 1", r"holds \[1\]; allowed: description, base_spacing, remappings, parameters"),
        (b"just text", "holds 'just text'; allowed: description"),
        (b"remapings: {}", "unknown remapings; allowed: description, base_spacing"),
        (b"1: 2", "unknown 1; allowed: description"),
        (b"base_spacing: abc", "base_spacing is 'abc'; allowed: a number of metres"),
        (b"base_spacing: true", "base_spacing is True; allowed: a number of metres"),
        (b"base_spacing:", "base_spacing is None; allowed: a number of metres"),
        (b"base_spacing: [0.6]", r"base_spacing is \[0.6\]; allowed: a number of metres"),
        (b"base_spacing: .nan", "base spacing is nan m; allowed: 0.3 to 1.5 m"),
        (b"base_spacing: .inf", "base spacing is inf m; allowed: 0.3 to 1.5 m"),
        (b"base_spacing: -0.61", "base spacing is -0.61 m; allowed: 0.3 to 1.5 m"),
        (b"base_spacing: 61", "base spacing is 61.0 m; allowed: 0.3 to 1.5 m"),
        (b"remappings: [a]", r"remappings is \['a'\]; allowed: a group of NODE"),
        (b"remappings: {cameras: {a: b}}", "remappings of 'cameras'; allowed: camera_sync, policy"),
        (b"remappings: {camera_sync: a}", "remappings of camera_sync is 'a'; allowed: a group of NAME: VALUE"),
        (b"remappings: {camera_sync: {joint_states: 3}}", "joint_states: 3 is no topic name; allowed: letters"),
        (b"remappings: {camera_sync: {joint_states: }}", "joint_states: None is no topic name"),
        (b"remappings: {camera_sync: {joint_states: /a b}}", "'/a b' is no topic name; allowed: letters"),
        (b"remappings: {camera_sync: {joint_states: /a/}}", "'/a/' is no topic name"),
        (b"remappings: {camera_sync: {3: /a}}", "3 is no topic name"),
        (b"parameters: 3", "parameters is 3; allowed: a group of NODE"),
        (b"parameters: {yam_sim: {seed: 1}}", "parameters of 'yam_sim'; allowed: camera_sync"),
        (b"parameters: {policy: [1]}", r"parameters of policy is \[1\]; allowed: a group"),
        (b"parameters: {policy: {seed: {a: 1}}}", "seed is {'a': 1}; allowed: true or false, a number"),
        (b"parameters: {policy: {seed: }}", "seed is None; allowed: true or false, a number"),
        (b"parameters: {policy: {3: 1}}", "3 is no parameter name"),
    ],
)
def test_what_is_wrong_in_a_rig_file_is_one_sentence_that_names_file_and_thing(content, words, tmp_path):
    file = tmp_path / "rig.yaml"
    file.write_bytes(content)
    with pytest.raises(BringupError, match=words) as refused:
        load_rig(str(file))
    assert str(file) in str(refused.value) and "\n" not in str(refused.value)
