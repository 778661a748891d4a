"""A node's command line with words that ROS does not take: one sentence, exit code 2."""

import signal

import pytest
from rclpy.node import Node
from ros_process import claim_domain
from std_msgs.msg import String

from vag_policy.entry import STOP_SIGNALS
from vag_policy.nodes.common import LATEST, publisher, run, subscribe
from vag_policy.nodes.parameters import Param, declare

DOMAIN = claim_domain()
PARAMETERS = (
    Param("topic", "chatter", "topic to listen to"),
    Param("names", ("a",), "some names"),
    Param("rate", 10.0, "a rate"),
)


class Listener(Node):
    def __init__(self) -> None:
        super().__init__("listener")
        values = declare(self, PARAMETERS)
        subscribe(self, String, values["topic"], lambda _: None, LATEST)
        publisher(self, String, "out", LATEST)
        raise AssertionError("nothing was wrong")


@pytest.fixture
def said(monkeypatch, capfd, tmp_path):
    """What the node says when it is run with these arguments, in a folder with broken parameter files."""
    monkeypatch.setenv("ROS_DOMAIN_ID", str(DOMAIN))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "broken.yaml").write_text("a: [")
    (tmp_path / "list.yaml").write_text("- 1")
    (tmp_path / "flat.yaml").write_text("listener: {rate: 1.0}")
    (tmp_path / "mixed.yaml").write_text("/**/listener:\n  ros__parameters:\n    names: [a, 3]\n")
    before = [(number, signal.getsignal(number)) for number in STOP_SIGNALS]

    def say(*arguments: str) -> str:
        assert run(Listener, ["--ros-args", *arguments]) == 2
        text = capfd.readouterr().err
        assert "Traceback" not in text
        (fatal,) = [line for line in text.splitlines() if line.startswith("[FATAL]")]
        return fatal

    yield say
    for number, handler in before:
        signal.signal(number, handler)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("-r", "__ns:=bad"), "cannot read '-r __ns:=bad'; allowed: -r FROM:=TO, where names have letters"),
        (("-r", "__ns:=/1bad"), "cannot read '-r __ns:=/1bad'; allowed: -r FROM:=TO"),
        (("-r", "__node:=a b"), "cannot read '-r __node:=a b'; allowed: -r FROM:=TO"),
        (("-r", "chatter:=/a/"), "cannot read '-r chatter:=/a/'; allowed: -r FROM:=TO"),
        (("-r", "chatter"), "cannot read '-r chatter'; allowed: -r FROM:=TO"),
        (("-p", "rate"), "cannot read '-p rate'; allowed: -p NAME:=VALUE"),
        (("-p", "rate:=[1,"), "cannot read '-p rate:=[1,'; allowed: -p NAME:=VALUE"),
        (("-p", "topic:="), "cannot read '-p topic:='; allowed: -p NAME:=VALUE"),
        (("-p", "rate:=fast"), "parameter 'rate' must be double, got string 'fast'"),
        (("-p", "rate:=1"), "parameter 'rate' must be double such as 1.0, got integer 1"),
        (("-p", "names:=3"), "parameter 'names' must be string_array, got integer 3"),
        (("-p", "rat:=1.0"), "listener has no parameter 'rat'; it has: names, rate, topic"),
        (("-p", "use_sim_time:=maybe"), "parameter 'use_sim_time' must be bool, got string 'maybe'"),
        (("-p", "topic:=a b"), "Invalid topic name: topic name must not contain characters other than alphanumerics"),
        (("--params-file", "none.yaml"), "cannot read '--params-file none.yaml' (Error opening YAML file)"),
        (("--params-file", "broken.yaml"), "cannot read '--params-file broken.yaml' ("),
        (("--params-file", "list.yaml"), "cannot read '--params-file list.yaml' ("),
        (("--params-file", "flat.yaml"), "cannot read '--params-file flat.yaml' ("),
        (("--params-file", "mixed.yaml"), "with lists of one type"),
        (("--log-level", "loud"), "cannot read '--log-level loud'; allowed: debug, info, warn, error or fatal"),
        (("--nonsense",), "unknown ROS arguments '--nonsense'"),
        (("-p", "qos_overrides./chatter.subscription.depth:=x"), "must be integer, got string 'x'"),
        (("-p", "qos_overrides./chatter.subscription.reliability:=x"), "QoS of 'chatter': Unexpected QoS override"),
        (("-p", "qos_overrides./out.publisher.history:=x"), "allowed in qos_overrides: depth (0 or more)"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_what_is_wrong_is_one_sentence(arguments, words, said):
    assert words in said(*arguments)


def test_a_domain_that_is_none(said, monkeypatch):
    monkeypatch.setenv("ROS_DOMAIN_ID", "kitchen")
    assert "ROS_DOMAIN_ID is not an integral number" in said()
