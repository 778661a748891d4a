"""How evenly joint_command sends, while the policy infers flat out on the same cores.

Fake drivers send three 640x480 cameras at 30 Hz and joint states at 100 Hz; camera_sync makes Observations and the
policy node (preset tiny, async, no pause between replans) turns every one it can into a chunk. The drivers note when
each command was written, by the DDS source timestamp, so their own scheduling does not count; of the four topics (arm
and gripper, left and right) the worst counts.

Ours: joint_command in a process of its own, as ``joint_command_node`` starts it. Baseline: the same node as a timer in
the policy's process, on one single-threaded executor with it (inference has its own thread in both).

    python benchmarks/jitter.py [--json] [--seconds 12] [--rate 100]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

CAMERAS = ("top", "left_wrist", "right_wrist")
NODES = {
    "camera_sync": {},  # tiles of the size that the preset wants
    "policy": {"preset": "tiny", "mode": "async", "min_replan_period": 0.0, "guidance": "adaptive"},
    # the priority is what config/yam.yaml asks for; it is granted to root, or where limits.conf says so
    "joint_command": {"mode": "async", "arm_on_start": True, "displaced": "rehold", "realtime_priority": 50},
}
TOPICS = tuple(f"{arm}_{part}_controller/joint_trajectory" for arm in ("left", "right") for part in ("arm", "gripper"))
PATIENCE_S = 90.0


def drivers(path: str) -> None:
    """Play cameras and arms until told to stop; write when every command and chunk was written."""
    import array

    import numpy as np
    import rclpy
    from rclpy.qos import qos_profile_sensor_data
    from rclpy.signals import SignalHandlerOptions
    from sensor_msgs.msg import Image, JointState
    from std_msgs.msg import String
    from trajectory_msgs.msg import JointTrajectory
    from vag_interfaces.msg import ActionChunk

    from vag_policy.robots import yam

    rclpy.init(signal_handler_options=SignalHandlerOptions.NO)
    node = rclpy.create_node("drivers")
    noise = np.random.default_rng(0)
    images = {}
    for name in CAMERAS:
        image = Image(height=480, width=640, encoding="rgb8", step=1920)
        image.header.frame_id = f"{name}_camera_optical_frame"
        image.data = array.array("B", noise.integers(0, 255, 921_600, np.uint8).tobytes())
        images[node.create_publisher(Image, f"{name}/image_raw", qos_profile_sensor_data)] = image
    states = node.create_publisher(JointState, "joint_states", qos_profile_sensor_data)
    instruction = node.create_publisher(String, "instruction", 1)
    pose = dict(zip(yam.JOINT_NAMES, yam.POSES["home"], strict=True))
    pose |= {yam.gripper_joint_name(arm): yam.STROKE for arm in yam.ARMS}
    written: dict[str, list[int]] = {topic: [] for topic in (*TOPICS, "action_chunk")}

    def see() -> None:
        for publisher, image in images.items():
            image.header.stamp = node.get_clock().now().to_msg()
            publisher.publish(image)

    def feel() -> None:
        message = JointState(name=list(pose), position=[float(p) for p in pose.values()])
        message.header.stamp = node.get_clock().now().to_msg()
        states.publish(message)

    def listen(topic: str) -> None:
        def commanded(message: JointTrajectory, info: dict) -> None:
            written[topic].append(info["source_timestamp"])
            for name, position in zip(message.joint_names, message.points[0].positions, strict=True):
                pose[name] += 0.2 * (position - pose[name])

        node.create_subscription(JointTrajectory, topic, commanded, 200)

    for topic in TOPICS:
        listen(topic)
    chunks = written["action_chunk"]
    node.create_subscription(ActionChunk, "action_chunk", lambda _, info: chunks.append(info["source_timestamp"]), 50)
    node.create_timer(1 / 30, see)
    node.create_timer(0.01, feel)
    node.create_timer(0.5, lambda: instruction.publish(String(data="put the red cube in the bowl")))
    alive = False
    with contextlib.suppress(KeyboardInterrupt):
        while True:
            rclpy.spin_once(node, timeout_sec=0.2)
            if not alive and len(chunks) >= 3 and all(len(stamps) >= 3 for stamps in written.values()):
                alive = True
                Path(f"{path}.alive").touch()
    Path(path).write_text(json.dumps(written))
    rclpy.try_shutdown()


def together() -> None:
    """The baseline: policy and joint_command on one executor."""
    import rclpy
    from rclpy.executors import SingleThreadedExecutor
    from rclpy.parameter import Parameter
    from rclpy.signals import SignalHandlerOptions

    from vag_policy.nodes.joint_command_node import JointCommand
    from vag_policy.nodes.policy_node import PolicyNode

    def overrides(name: str) -> list[Parameter]:
        # no real-time priority: it would raise inference, too, above everything else
        extra = {"rate": float(os.environ["JITTER_RATE"]), "realtime_priority": 0} if name == "joint_command" else {}
        return [Parameter(key, value=value) for key, value in (NODES[name] | extra).items()]

    rclpy.init(signal_handler_options=SignalHandlerOptions.NO)
    executor = SingleThreadedExecutor()
    nodes = [PolicyNode(parameter_overrides=overrides("policy"))]
    nodes.append(JointCommand(parameter_overrides=overrides("joint_command")))
    for node in nodes:
        executor.add_node(node)
    with contextlib.suppress(KeyboardInterrupt):
        while True:
            executor.spin_once(timeout_sec=0.1)
    os._exit(0)  # whatever inference is still doing


@contextlib.contextmanager
def process(command: list[str], log: Path) -> Iterator[subprocess.Popen]:
    """A child that is interrupted and waited for at the end."""
    environment = {**os.environ}
    environment.pop("_ROS_WHEELS_BOOTSTRAP_COMPLETE", None)
    with log.open("w") as output:
        # a session of its own, as bringup starts every node
        child = subprocess.Popen(
            [sys.executable, *command], stdout=output, stderr=output, env=environment, start_new_session=True
        )
    try:
        yield child
    finally:
        child.send_signal(signal.SIGINT)
        try:
            child.wait(10)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def cpu_seconds(path: str) -> float:
    """CPU time in /proc/stat (all of the machine, not idle) or in /proc/<pid>/stat."""
    fields = Path(path).read_text().splitlines()[0].rpartition(")")[2].split()
    ticks = [*fields[1:4], *fields[6:8]] if path == "/proc/stat" else fields[11:13]
    return sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")


def node_command(name: str, rate: float) -> list[str]:
    from vag_policy.video.presets import video_preset

    width, height = video_preset(NODES["policy"]["preset"]).image_size
    extra = {
        "joint_command": {"rate": rate},
        "camera_sync": {"tile_width": width // len(CAMERAS), "tile_height": height},
    }
    values = NODES[name] | extra.get(name, {})
    settings = [word for key, value in values.items() for word in ("-p", f"{key}:={json.dumps(value)}")]
    return ["-m", f"vag_policy.nodes.{name}_node", "--ros-args", *settings]


def measure(variant: str, rate: float, seconds: float) -> dict[str, float]:
    """One run; jitter is |period - nominal| between two commands, milliseconds."""
    import numpy as np

    commands = {"drivers": [__file__, "--role", "drivers"], "camera_sync": node_command("camera_sync", rate)}
    if variant == "ours":
        commands |= {name: node_command(name, rate) for name in ("policy", "joint_command")}
    else:
        commands["together"] = [__file__, "--role", "together"]
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        commands["drivers"].append(str(folder / "written"))
        children = {n: stack.enter_context(process(c, folder / f"{n}.log")) for n, c in commands.items()}

        def log_of(child: str) -> str:
            lines = (folder / f"{child}.log").read_text().splitlines()
            return "\n".join([f"{child}:", *lines[-8:]])

        def check() -> None:
            for child, running in children.items():
                if running.poll() is not None:
                    raise SystemExit(f"ended with {running.returncode}: {log_of(child)}")

        alive, give_up = folder / "written.alive", time.monotonic() + PATIENCE_S
        while not alive.exists():
            check()
            if time.monotonic() > give_up:
                logs = "\n".join(map(log_of, children))
                raise SystemExit(f"{variant}: no chunks and commands after {PATIENCE_S:g} s\n{logs}")
            time.sleep(0.1)
        time.sleep(2.0)  # past the ramp
        stats = ["/proc/stat", *(f"/proc/{child.pid}/stat" for child in children.values())]
        begin, cpu = time.time_ns(), list(map(cpu_seconds, stats))
        time.sleep(seconds)
        end, cpu = time.time_ns(), [cpu_seconds(path) - before for path, before in zip(stats, cpu, strict=True)]
        check()
        stack.close()
        written = json.loads((folder / "written").read_text())
    in_window = {topic: [t for t in stamps if begin <= t < end] for topic, stamps in written.items()}
    chunks = len(in_window.pop("action_chunk"))
    fewest = min(map(len, in_window.values()))
    if fewest < 0.5 * rate * seconds or not chunks:
        raise SystemExit(f"{variant}: {fewest} commands and {chunks} chunks in {seconds} s")
    # every topic by itself, and the worst of them
    jitter = [np.abs(np.diff(np.sort(stamps)) / 1e6 - 1e3 / rate) for stamps in in_window.values()]
    return {
        "p99_ms": round(max(float(np.percentile(j, 99)) for j in jitter), 3),
        "median_ms": round(max(float(np.median(j)) for j in jitter), 3),
        "max_ms": round(max(float(j.max()) for j in jitter), 3),
        "commands": fewest,
        "replans_per_second": round(chunks / seconds, 2),
        "foreign_cores": round((cpu[0] - sum(cpu[1:])) / seconds, 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    parser.add_argument("--seconds", type=float, default=12.0, help="measured time of each of the two runs")
    parser.add_argument("--rate", type=float, default=100.0, help="commands a second")
    parser.add_argument("--role", nargs="+", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.role:
        drivers(arguments.role[1]) if arguments.role[0] == "drivers" else together()
        return
    from vag_policy.processes import private_domain

    os.environ["JITTER_RATE"] = str(arguments.rate)
    results = {}
    with private_domain() as domain:
        os.environ["ROS_DOMAIN_ID"] = str(domain)
        for variant in ("ours", "baseline"):
            results[variant] = result = measure(variant, arguments.rate, arguments.seconds)
            print(
                f"{variant:8s}: |period - {1e3 / arguments.rate:g} ms| median {result['median_ms']} ms, p99 "
                f"{result['p99_ms']} ms, max {result['max_ms']} ms over {result['commands']} commands, beside "
                f"{result['replans_per_second']} replans/s (other programs took {result['foreign_cores']} cores)",
                flush=True,
            )
    ours, baseline = results["ours"], results["baseline"]
    summary = {**ours, "rate": arguments.rate, **{f"baseline_{key}": value for key, value in baseline.items()}}
    summary["ratio"] = round(baseline["p99_ms"] / ours["p99_ms"], 2)
    print(f"p99 against the baseline in the policy's process: {summary['ratio']} times smaller")
    if arguments.json:
        print(json.dumps(summary))


if __name__ == "__main__":
    main()
