"""How often a log says the same thing."""

from vag_policy.nodes.repeats import SECOND_NS, Repeats
from vag_policy.observation.naming import some_joints


def test_the_same_sentence_is_said_once_a_period_and_counted():
    repeats = Repeats(30 * SECOND_NS)
    said = [repeats.filtered(f"top is {second}.25 s late", second * SECOND_NS) for second in range(0, 91, 2)]
    assert [text for text in said if text] == [
        "top is 0.25 s late",
        "top is 30.25 s late (14 more times in the last 30 s)",
        "top is 60.25 s late (14 more times in the last 30 s)",
        "top is 90.25 s late (14 more times in the last 30 s)",
    ]
    assert repeats.filtered("top is silent", 91 * SECOND_NS) == "top is silent"
    assert repeats.filtered("top is 1 s late", 91 * SECOND_NS) == ""


def test_sentences_without_end_need_no_memory_without_end():
    repeats = Repeats()
    for number in range(1000):
        repeats.filtered("x" * number, 0)
    assert len(repeats._said) <= 100


def test_joints_are_named_unless_they_are_all_of_them():
    joints = tuple(f"joint{number}" for number in range(14))
    assert some_joints(joints, joints, "joint ") == "all 14 joints"
    assert some_joints(joints[:2], joints, "joint ") == "joint joint0, joint1"
    assert some_joints(("a",), ("a",), "joint ") == "joint a"
