"""What a person who waits for a graph is told."""

from vag_policy.milestones import ACTIVE, ARMED, HEARD, LOADING, OBSERVING, SECOND_NS, Milestones

START = 1_000 * SECOND_NS
LOADS = ("policy", LOADING + "the checkpoint /weights")


def milestones() -> Milestones:
    return Milestones(START, 'vag run "fold the towel"', "vag arm")


def at(seconds: float) -> int:
    return START + round(seconds * SECOND_NS)


def test_it_is_said_what_loads_when_all_is_ready_and_what_to_do_then():
    story = milestones()
    assert story.new([], at(0.2)) == []
    assert story.new([LOADS], at(1.0)) == ["  1.0 s: the policy is loading the checkpoint /weights ..."]
    others = [("joint_command", HEARD), ("joint_command", ARMED), ("camera_sync", OBSERVING)]
    assert story.new(others, at(2.0)) == []
    assert story.loading
    assert story.new([("policy", "policy loaded in 9.0 s"), ("policy", ACTIVE)], at(10.25)) == [
        " 10.2 s: ready with the checkpoint /weights",
        ' 10.2 s: publish an instruction or type, in another shell: vag run "fold the towel"',
    ]
    assert not story.loading
    assert story.new([("policy", ACTIVE)], at(1000)) == [], "once"


def test_a_policy_without_training_and_arms_that_are_disarmed_are_said():
    story = milestones()
    story.new([("policy", LOADING + "random weights of preset 'tiny'")], at(1))
    said = story.new([("policy", ACTIVE), ("joint_command", HEARD), ("camera_sync", OBSERVING)], at(5))
    assert said[0].endswith("ready with random weights of preset 'tiny' (untrained: everything is real but the skill)")
    assert said[1] == "  5.0 s: the arms are disarmed; in another shell, this lets them move: vag arm"


def test_what_is_missing_is_said_less_and_less_often():
    story = milestones()
    loaded = story.new([LOADS, ("policy", ACTIVE)], at(3))
    observations, joints = "observations (cameras and joints together)", "the position of every joint"
    assert loaded[1] == f"  3.0 s: the policy is loaded; still waiting for {observations}, {joints}"
    told = [second for second in range(4, 300) if story.new([("tr_monitor", ACTIVE)], at(second))]
    assert told == [15, 30, 60, 120, 240]
    assert story.new([("joint_command", HEARD)], at(480)) == [f"480.0 s: still waiting for {observations}"]
