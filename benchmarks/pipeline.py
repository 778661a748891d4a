"""Cameras to Observation, between real processes over DDS, against the node one would write by hand.

A publisher process sends three 640x480 rgb8 cameras at 30 Hz and joint_states at 200 Hz; camera_sync or the baseline
(baseline_sync.py) makes Observations; a listener process receives them. Per run: reference frames without an
Observation (``lost``), milliseconds from the last camera's stamp (its publish time) to the Observation's arrival at
the listener, and the node's CPU seconds (all threads) per second, read from /proc.

    python benchmarks/pipeline.py [--json] [--seconds 5] [--rounds 2]
"""

from __future__ import annotations

import argparse
import array
import json
import math
import os
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
CAMERAS = ("top", "left_wrist", "right_wrist")
JOINTS = tuple(f"{arm}_joint{number}" for arm in ("left", "right") for number in range(1, 8))
WARM_UP_S = 1.5
NODES = {
    "camera_sync": [sys.executable, "-m", "vag_policy.nodes.camera_sync_node"],
    "baseline": [sys.executable, str(HERE / "baseline_sync.py")],
}


@dataclass
class Result:
    """Runs of one node, pooled: reference frames sent and without an Observation, latencies in ms, seconds."""

    sent: int = 0
    lost: int = 0
    latencies_ms: list[float] = field(default_factory=list)
    cpu_s: float = 0.0
    wall_s: float = 0.0

    @property
    def cpu(self) -> float:
        """CPU seconds per second."""
        return self.cpu_s / self.wall_s

    def percentile(self, percent: float) -> float:
        """A percentile of the latency, ms."""
        ordered = sorted(self.latencies_ms)
        return ordered[min(len(ordered) - 1, math.ceil(percent / 100 * len(ordered)) - 1)]


def publish(path: str) -> None:
    """Send cameras and joint states until told to stop; write every reference stamp to ``path``."""
    import numpy as np
    import rclpy
    from rclpy.qos import qos_profile_sensor_data
    from rclpy.serialization import serialize_message
    from rclpy.signals import SignalHandlerOptions
    from sensor_msgs.msg import Image, JointState

    rclpy.init(signal_handler_options=SignalHandlerOptions.NO)
    node = rclpy.create_node("cameras")
    noise = np.random.default_rng(0)
    sources = []
    for name in CAMERAS:
        image = Image(height=480, width=640, encoding="rgb8", step=1920)
        image.header.frame_id = f"{name}_camera_optical_frame"
        image.data = array.array("B", noise.integers(0, 255, 921_600, np.uint8).tobytes())
        publisher = node.create_publisher(Image, f"{name}/image_raw", qos_profile_sensor_data)
        sources.append((publisher, bytearray(serialize_message(image))))
    joints = node.create_publisher(JointState, "joint_states", qos_profile_sensor_data)
    joint_state = bytearray(serialize_message(JointState(name=JOINTS, position=[0.01] * len(JOINTS))))

    def send(publisher: rclpy.publisher.Publisher, message: bytearray) -> int:
        now = time.time_ns()
        struct.pack_into("<iI", message, 4, now // 1_000_000_000, now % 1_000_000_000)
        publisher.publish(bytes(message))
        return now

    stamps = []
    next_frame = next_joints = time.monotonic()
    try:
        while True:
            now = time.monotonic()
            if now >= next_frame:
                stamps.append([send(*source) for source in sources][0])
                next_frame = max(next_frame + 1 / 30, now)  # a camera skips what it missed
            if now >= next_joints:
                send(joints, joint_state)
                next_joints = max(next_joints + 0.005, now - 0.02)
            time.sleep(max(0.0, min(next_frame, next_joints) - time.monotonic()))
    except KeyboardInterrupt:
        Path(path).write_text(json.dumps(stamps))
    rclpy.try_shutdown()


def listen(path: str) -> None:
    """Receive Observations until told to stop; write (stamp, last camera's stamp, arrival) to ``path``."""
    import rclpy
    from rclpy.executors import SingleThreadedExecutor
    from rclpy.signals import SignalHandlerOptions
    from vag_interfaces.msg import Observation

    rclpy.init(signal_handler_options=SignalHandlerOptions.NO)
    node = rclpy.create_node("listener")
    rows = []

    def received(message: Observation) -> None:
        now = time.time_ns()
        stamps = [stamp.sec * 1_000_000_000 + stamp.nanosec for stamp in message.source_stamps]
        rows.append((stamps[0], max(stamps[: len(CAMERAS)]), now))
        if len(rows) == 1:
            Path(f"{path}.started").touch()

    node.create_subscription(Observation, "observation", received, 10)
    executor = SingleThreadedExecutor()
    executor.add_node(node)
    try:
        while True:
            executor.spin_once(timeout_sec=0.2)
    except KeyboardInterrupt:
        Path(path).write_text(json.dumps(rows))
    rclpy.try_shutdown()


@contextmanager
def process(command: list[str], **options: int) -> Iterator[subprocess.Popen]:
    """A child that is interrupted and waited for at the end."""
    child = subprocess.Popen(command, **options)
    try:
        yield child
    finally:
        child.send_signal(signal.SIGINT)
        try:
            child.wait(10)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def wait_for(path: Path, node: str) -> None:
    """Wait for a file that the listener makes at the first Observation."""
    end = time.monotonic() + 30
    while not path.exists():
        if time.monotonic() > end:
            raise SystemExit(f"{node} made no Observation in 30 s")
        time.sleep(0.05)


def cpu_seconds(pid: int) -> float:
    """User and system time of a process, all threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(node: str, rate: float, seconds: float, result: Result) -> None:
    """One run of ``node`` at ``rate`` Observations a second (0: all), added to ``result``."""
    me = [sys.executable, __file__]
    with tempfile.TemporaryDirectory() as folder:
        sent, got = f"{folder}/sent", f"{folder}/got"
        command = [*NODES[node], "--ros-args", "-p", f"rate:={rate}", "--log-level", "error"]
        with (
            process([*me, "--role", "publish", sent]),
            process([*me, "--role", "listen", got]),
            process(command) as child,
        ):
            wait_for(Path(f"{got}.started"), node)
            time.sleep(WARM_UP_S)
            begin, cpu, wall = time.time_ns(), cpu_seconds(child.pid), time.monotonic()
            time.sleep(seconds)
            end, cpu, wall = time.time_ns(), cpu_seconds(child.pid) - cpu, time.monotonic() - wall
            if child.poll() is not None:
                raise SystemExit(f"{node} died with exit code {child.returncode}")
            time.sleep(0.5)
        references = [stamp for stamp in json.loads(Path(sent).read_text()) if begin <= stamp < end]
        rows = [row for row in json.loads(Path(got).read_text()) if begin <= row[0] < end]
    result.sent += len(references)
    result.lost += len(set(references) - {row[0] for row in rows})
    result.latencies_ms += [(arrival - last) / 1e6 for _, last, arrival in rows]
    result.cpu_s += cpu
    result.wall_s += wall


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    parser.add_argument("--seconds", type=float, default=5.0, help="measured time of each run")
    parser.add_argument("--rounds", type=int, default=2, help="rounds of four runs: each node at 30 and at 10 Hz")
    parser.add_argument("--role", nargs=2, metavar=("ROLE", "FILE"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.role:
        {"publish": publish, "listen": listen}[arguments.role[0]](arguments.role[1])
        return
    from vag_policy.processes import private_domain

    results = {(node, rate): Result() for rate in (0.0, 10.0) for node in NODES}
    with private_domain() as domain:
        os.environ["ROS_DOMAIN_ID"] = str(domain)
        # Rounds alternate between the nodes, so that a busy minute on the machine hits both.
        for _ in range(arguments.rounds):
            for (node, rate), result in results.items():
                measure(node, rate, arguments.seconds, result)
    for (node, rate), result in results.items():
        lost = f", {result.lost} of {result.sent} reference frames without one" if rate == 0 else ""
        print(
            f"{node:12s} {'30 Hz' if rate == 0 else '10 Hz'}: {len(result.latencies_ms)} Observations{lost}, ", end=""
        )
        print(f"latency median {result.percentile(50):.1f} ms, p99 {result.percentile(99):.1f} ms, ", end="")
        print(f"CPU {100 * result.cpu:.1f} % of a core")
    ours, theirs = results["camera_sync", 0.0], results["baseline", 0.0]
    ours_slow, theirs_slow = results["camera_sync", 10.0], results["baseline", 10.0]
    summary = {
        "lost": ours.lost,
        "sent": ours.sent,
        "median_ms": round(ours.percentile(50), 2),
        "p99_ms": round(ours.percentile(99), 2),
        "cpu_ratio": round(ours.cpu / theirs.cpu, 3),
        "cpu_ratio_10hz": round(ours_slow.cpu / theirs_slow.cpu, 3),
        "cpu_percent": round(100 * ours.cpu, 1),
        "cpu_percent_10hz": round(100 * ours_slow.cpu, 1),
        "baseline_lost": theirs.lost,
        "baseline_median_ms": round(theirs.percentile(50), 2),
        "baseline_p99_ms": round(theirs.percentile(99), 2),
        "baseline_cpu_percent": round(100 * theirs.cpu, 1),
        "baseline_cpu_percent_10hz": round(100 * theirs_slow.cpu, 1),
        "load_average": round(os.getloadavg()[0], 1),
    }
    print(
        f"CPU against the baseline: {summary['cpu_ratio']} at 30 Hz, {summary['cpu_ratio_10hz']} at 10 Hz "
        f"(load average {summary['load_average']})"
    )
    if arguments.json:
        print(json.dumps(summary))


if __name__ == "__main__":
    main()
