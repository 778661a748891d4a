"""The operator's commands against a graph that has nothing but their services."""

import threading

import pytest
import rclpy
from rclpy.executors import SingleThreadedExecutor
from rclpy.signals import SignalHandlerOptions
from ros_process import claim_domain
from std_msgs.msg import Bool
from std_srvs.srv import Trigger
from vag_interfaces.srv import ResetScene

from vag_policy import cli
from vag_policy.nodes import operator_client

DOMAIN = claim_domain()
NAMES = ("arm", "disarm", "emergency_stop", "reset_stop", "home")


class Graph:
    """joint_command's and yam_sim's services below /rig; ``refusal`` is why they refuse."""

    def __init__(self) -> None:
        self.asked: list[object] = []
        self.pressed = self.refusal = ""
        self._context = rclpy.Context()
        rclpy.init(context=self._context, domain_id=DOMAIN, signal_handler_options=SignalHandlerOptions.NO)
        self._node = rclpy.create_node("services", namespace="rig", context=self._context)
        for name in NAMES:
            self._node.create_service(Trigger, f"joint_command/{name}", self._answer(name))
        self._node.create_service(ResetScene, "yam_sim/reset", self._reset)
        self._node.create_subscription(Bool, "/deaf/emergency_stop", self._press, 10)
        self._executor = SingleThreadedExecutor(context=self._context)
        self._executor.add_node(self._node)
        self._thread = threading.Thread(target=self._executor.spin)
        self._thread.start()

    def stop(self) -> None:
        self._executor.shutdown()
        self._thread.join()
        self._node.destroy_node()
        self._context.try_shutdown()

    def _press(self, message: Bool) -> None:
        self.pressed += "!" * message.data

    def _answer(self, name: str):
        def answer(_request, response):
            self.asked.append(name)
            response.success, response.message = not self.refusal, self.refusal or f"{name} it is"
            return response

        return answer

    def _reset(self, request, response):
        self.asked.append((request.seed, request.task))
        response.success, response.message = not self.refusal, self.refusal
        response.seed, response.instruction = 7, "put it back"
        return response


@pytest.fixture(scope="module")
def running():
    graph = Graph()
    yield graph
    graph.stop()


@pytest.fixture
def graph(running, monkeypatch):
    monkeypatch.setenv("ROS_DOMAIN_ID", str(DOMAIN))
    running.asked.clear()
    running.refusal = running.pressed = ""
    return running


def vag(monkeypatch, *arguments: str) -> int:
    monkeypatch.setattr("sys.argv", ["vag", *arguments])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    return ended.value.code


@pytest.mark.parametrize(
    ("arguments", "asked", "words"),
    [
        (("arm",), "arm", "arm it is"),
        (("disarm",), "disarm", "disarm it is"),
        (("estop",), "emergency_stop", "emergency_stop it is"),
        (("reset-stop",), "reset_stop", "reset_stop it is"),
        (("home",), "home", "home it is"),
        (("reset",), (-1, ""), "scene of seed 7: put it back"),
        (("reset", "--seed", "3", "--task", "put"), (3, "put"), "scene of seed 7: put it back"),
    ],
)
def test_an_operator_is_answered_or_refused(graph, arguments, asked, words, monkeypatch, capsys):
    assert vag(monkeypatch, *arguments, "--namespace", "/rig/") == 0
    assert capsys.readouterr() == (f"{words}\n", "")
    graph.refusal = "not now"
    assert vag(monkeypatch, *arguments, "--namespace", "rig") == 1
    assert capsys.readouterr() == ("", "refused: not now\n")
    assert graph.asked == [asked, asked]


@pytest.mark.parametrize(("command", "service"), [("arm", "joint_command/arm"), ("reset", "yam_sim/reset")])
def test_a_graph_that_is_not_there_is_one_sentence(graph, command, service, monkeypatch, capsys):
    monkeypatch.setattr(operator_client, "ANSWER_S", 0.5)
    assert vag(monkeypatch, command) == 2
    node = service.partition("/")[0]
    words = f"vag: no {node} answers on /{service} in ROS domain {DOMAIN}, within 0.5 s\n"
    assert capsys.readouterr() == ("", words)


def test_an_emergency_stop_is_heard_where_nobody_answers(graph, monkeypatch, capsys):
    monkeypatch.setattr(operator_client, "ANSWER_S", 2.0)
    assert vag(monkeypatch, "estop", "--namespace", "deaf") == 2
    assert "no joint_command answers on /deaf/joint_command/emergency_stop" in capsys.readouterr().err
    assert len(graph.pressed) > 3
