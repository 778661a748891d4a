"""Nodes as processes: started, seen to die, stopped, and never left behind."""

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from ros_process import PATIENCE_S, claim_domain

from vag_policy import processes
from vag_policy.bringup import BringupError, NodeSpec
from vag_policy.processes import Graph, private_domain


def test_a_log_folder_that_cannot_be_written_is_said(tmp_path):
    (tmp_path / "file").touch()
    for folder in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(BringupError, match=f"cannot write the nodes' output to {folder}"), Graph((), folder):
            pass


def test_private_domains_differ_while_held_and_are_free_again():
    with private_domain() as first, private_domain() as second:
        assert first != second and {first, second} <= set(range(1, 100))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 23700 + first))


def test_processes_start_are_seen_to_die_and_are_stopped(tmp_path):
    good = NodeSpec("recorder", "recorder_node", parameters={"output": str(tmp_path / "bag")})
    bad = NodeSpec("second", "recorder_node", parameters={"outptu": "typo"})
    with Graph((good, bad), tmp_path / "logs", environment={"ROS_DOMAIN_ID": str(claim_domain())}) as running:
        deadline = time.monotonic() + 20
        while "second" not in running.dead() or not (tmp_path / "bag").exists():
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert running.dead() == {"second": 2}
        assert "has no parameter 'outptu'; it has: exclude, output, topics" in running.epitaph("second")
        pid = running.process("recorder").pid
        codes = running.stop()
    assert codes["recorder"] == 0, "a stop is a clean exit"
    assert (tmp_path / "bag/metadata.yaml").exists()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_stop_before_a_node_has_started_is_clean(tmp_path):
    specs = (NodeSpec("recorder", "recorder_node", parameters={"output": str(tmp_path / "bag")}),)
    with Graph(specs, tmp_path, environment={"ROS_DOMAIN_ID": str(claim_domain())}) as running:
        codes = running.stop()  # long before its imports are done
    assert codes == {"recorder": 0} and running.log_of("recorder") == ""


STUBBORN = """
import signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT, signal.SIGTERM])
print("here", flush=True)
signal.sigwait([signal.SIGINT, signal.SIGTERM])
while sys.argv[1] == "stubborn":
    signal.sigwait([signal.SIGINT, signal.SIGTERM])
"""


def test_a_node_with_nothing_to_lose_is_not_waited_for_and_what_is_waited_for_is_said(tmp_path, monkeypatch):
    def command(spec, *_):
        return [sys.executable, "-c", STUBBORN, spec.name]

    monkeypatch.setattr(processes, "arguments", command)
    monkeypatch.setattr(processes, "_TELL_EVERY_S", 0.4)
    specs, said = [NodeSpec(name, "none") for name in ("stubborn", "joint_command")], []
    with Graph(specs, tmp_path) as running:
        wait_until(lambda: all("here" in running.log_of(spec.name) for spec in specs), "the nodes to run")
        codes = running.stop(patience_s=60.0, say=said.append, nothing_to_lose={"stubborn"})
    assert codes == {"stubborn": -9, "joint_command": 0}
    assert said[0] == "stopping joint_command, so that the arms hold, then the others"
    assert said[1] == "waiting for stubborn to end" and said[-1] == "stubborn does not end: it is ended by force"


STARTER = """
import sys, time
from pathlib import Path
from vag_policy.bringup import NodeSpec
from vag_policy.processes import Graph
folder = Path(sys.argv[1])
with Graph((NodeSpec("recorder", "recorder_node", parameters={"output": str(folder / "bag")}),), folder) as running:
    print(running.process("recorder").pid, flush=True)
    time.sleep(60)
"""


def test_nodes_stop_cleanly_when_their_starter_is_killed(tmp_path):
    environment = {**os.environ, "ROS_DOMAIN_ID": str(claim_domain())}
    environment.pop("_ROS_WHEELS_BOOTSTRAP_COMPLETE", None)
    command = [sys.executable, "-c", STARTER, str(tmp_path)]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as starter:
        node = int(starter.stdout.readline())
        wait_until(lambda: (tmp_path / "bag").exists(), "the node to run")
        starter.kill()
    wait_until(lambda: not alive(node), "the node to end")
    assert (tmp_path / "bag/metadata.yaml").exists(), "it was stopped, not killed"


def wait_until(condition, what):
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"waited for {what}"
        time.sleep(0.05)


def alive(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
