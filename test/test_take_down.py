"""A process ends, however the middleware behaves."""

import signal

from ros_process import NodeProcess, Probe, claim_domain

DOMAIN = claim_domain()
HANGING = """
import ctypes
from rclpy.node import Node
from vag_policy.nodes import common

class Hanging(Node):
    def __init__(self):
        super().__init__("hanging")

    def destroy_node(self):
        ctypes.PyDLL(None).sleep(600)  # as a destructor in C++: it keeps the interpreter's lock

common.TAKE_DOWN_S = 0.5
common.main_of(Hanging)()
"""


def test_a_middleware_that_does_not_let_go_cannot_keep_a_process_and_is_shown(tmp_path):
    with NodeProcess(["-c", HANGING], tmp_path, DOMAIN) as process, Probe(DOMAIN) as probe:
        probe.wait(lambda: "hanging" in probe.node.get_node_names(), "the node")
        assert process.stop(signal.SIGINT) == 1
        assert "Timeout" in process.log()
        assert "in destroy_node" in process.log()
