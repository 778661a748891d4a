"""YAML from users."""

import pytest

from vag_policy import yaml_text


def test_what_cannot_be_read_is_named(tmp_path):
    binary = tmp_path / "binary"
    binary.write_bytes(b"\x80\x81")
    for path, why in ((tmp_path, "Is a directory"), (tmp_path / "none", "No such file"), (binary, "not a text file")):
        with pytest.raises(ValueError, match=f"{path}.*{why}.*a YAML file is wanted"):
            yaml_text.read(path)


@pytest.mark.parametrize(
    "text", ["a: [", "a: b: c", "'", "{", "@", "a:\n\t- b", "!!int x", "!nothing 3", "*alias", "\x00"]
)
def test_what_is_no_yaml_is_one_line_that_names_it(text):
    with pytest.raises(ValueError, match="^the value is not YAML") as refused:
        yaml_text.parse(text, "the value")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("value", [True, 3, 0.5, "text", [1, 2], ["a"], [True], [0.1]])
def test_values_of_parameters(value):
    assert yaml_text.parameter(value, "x") == value


@pytest.mark.parametrize("value", [None, {}, {"a": 1}, [], [1, "a"], [1, True], [None], [[1]], b"x"])
def test_what_no_parameter_can_be(value):
    with pytest.raises(
        ValueError, match="^x is .*; allowed: true or false, a number, a text, or a list of one of these"
    ):
        yaml_text.parameter(value, "x")
