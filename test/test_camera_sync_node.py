"""camera_sync as a real process over DDS: three fake cameras, two joint publishers."""

import array
import threading
import time
from dataclasses import dataclass, field

import cv2
import numpy as np
import pytest
from builtin_interfaces.msg import Time
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus
from rclpy.qos import QoSProfile, ReliabilityPolicy
from ros_process import NodeProcess, Probe, claim_domain, status_of, values_of
from rosgraph_msgs.msg import Clock
from sensor_msgs.msg import CompressedImage, Image, JointState
from vag_interfaces.msg import Observation as ObservationMsg

from vag_policy.bringup import graph
from vag_policy.nodes.camera_sync_parameters import PARAMETERS, gripper_columns, stack_config, sync_config
from vag_policy.nodes.joint_command_parameters import PARAMETERS as COMMAND_PARAMETERS
from vag_policy.nodes.joint_command_parameters import make_rig
from vag_policy.nodes.messages import ns_from_stamp, observation_from_msg
from vag_policy.nodes.parameters import ParameterError
from vag_policy.rig_file import load_rig

DOMAIN = claim_domain()
NODE = ["-m", "vag_policy.nodes.camera_sync_node"]
CAMERAS = ("top", "left_wrist", "right_wrist")
NAMES = {arm: [f"{arm}_joint{number}" for number in range(1, 8)] for arm in ("left", "right")}
BEST_EFFORT = QoSProfile(depth=5, reliability=ReliabilityPolicy.BEST_EFFORT)
RELIABLE = QoSProfile(depth=5, reliability=ReliabilityPolicy.RELIABLE)
RED, GREEN, BLUE = (255, 0, 0), (0, 255, 0), (0, 0, 255)


def flat(colour, height=48, width=64):
    return np.broadcast_to(np.array(colour, np.uint8), (height, width, 3))


def uyvy(y, u, v, height=48, width=64):
    return np.tile(np.array([u, y, v, y], np.uint8), (height, width // 2))


def image(encoding, pixels):
    rows = np.ascontiguousarray(pixels).reshape(pixels.shape[0], -1)
    message = Image(encoding=encoding, height=rows.shape[0], width=64, step=rows.shape[1])
    message.data = array.array("B", rows.tobytes())
    return message


@dataclass
class Rig:
    """Publishes in a thread of its own, 30 times a second; a test changes what and when."""

    probe: Probe
    images: dict = field(default_factory=dict)
    joints: list = field(default_factory=list)
    offset_ns: int = 0
    zero: set = field(default_factory=set)
    frozen: dict = field(default_factory=dict)

    def __post_init__(self):
        node = self.probe.node
        # one publisher of each reliability: both must match
        qos = dict(zip(CAMERAS, (BEST_EFFORT, RELIABLE, BEST_EFFORT), strict=True))
        self.publishers = {name: node.create_publisher(Image, f"{name}/image_raw", qos[name]) for name in CAMERAS}
        self.jpegs = {
            name: node.create_publisher(CompressedImage, f"{name}/image_raw/compressed", qos[name]) for name in CAMERAS
        }
        self.joint_publishers = [node.create_publisher(JointState, "joint_states", q) for q in (RELIABLE, BEST_EFFORT)]
        self.usual()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def usual(self):
        """Everything as it should be: each camera red in an encoding of its own, each arm's joints apart."""
        self.images = {
            "top": image("rgb8", flat(RED)),
            "left_wrist": image("bgr8", flat(RED)[..., ::-1]),
            "right_wrist": image("uyvy", uyvy(81, 90, 240)),
        }
        for name in CAMERAS[:2]:
            self.images[name].header.frame_id = f"{name}_lens"
        left = JointState(name=NAMES["left"][::-1], position=[0.0475, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1])
        left.velocity = [float("nan")] * 7
        right = JointState(name=["lift", *NAMES["right"]], position=[9.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 0.02375])
        self.joints = [left, right]
        self.offset_ns, self.zero, self.frozen = 0, set(), {}

    def _stamp(self, source, message):
        now = time.time_ns() + self.offset_ns
        now = 0 if source in self.zero else self.frozen.get(source, now)
        message.header.stamp = Time(sec=now // 10**9, nanosec=now % 10**9)

    def _run(self):
        while not self._stopping.wait(1 / 30):
            for publisher, message in zip(self.joint_publishers, list(self.joints), strict=False):
                self._stamp("joint_states", message)
                publisher.publish(message)
            for name, message in list(self.images.items()):
                self._stamp(name, message)
                (self.publishers if isinstance(message, Image) else self.jpegs)[name].publish(message)

    def stop(self):
        self._stopping.set()
        self._thread.join()


@pytest.fixture(scope="module")
def probe():
    with Probe(DOMAIN) as probe:
        yield probe


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    parameters = {"max_age": 0.5, "joint_max_age": 0.5}
    with NodeProcess(NODE, tmp_path_factory.mktemp("camera_sync"), DOMAIN, parameters) as process:
        yield process
        assert process.stop() == 0, process.log()


@pytest.fixture(scope="module")
def topics(probe):
    return {
        "observation": probe.collect(ObservationMsg, "observation"),
        "diagnostics": probe.collect(DiagnosticArray, "/diagnostics", 50),
    }


@pytest.fixture(scope="module")
def shared_rig(probe, node, topics):
    rig = Rig(probe)
    yield rig
    rig.stop()


@pytest.fixture
def rig(shared_rig, topics, probe):
    """The rig, working: Observations come."""
    shared_rig.usual()
    topics["observation"].clear()
    probe.wait(lambda: len(topics["observation"]) > 3, "Observations of a healthy rig")
    topics["observation"].clear()
    topics["diagnostics"].clear()
    return shared_rig


def wait_for_status(probe, topics, name, level, *words):
    def found():
        status = status_of(topics["diagnostics"], f"camera_sync: {name}")
        return status is not None and status.level == level and all(word in status.message for word in words) and status

    return probe.wait(found, f"{name} to be {level} with {words}, last {status_of(topics['diagnostics'], name)}")


def assert_silence(topics, seconds=0.3):
    """In-flight Observations may still come; then none does."""
    time.sleep(0.2)
    topics["observation"].clear()
    time.sleep(seconds)
    assert topics["observation"] == []


def test_red_from_every_camera_and_joints_by_name(rig, probe, topics):
    message = probe.wait(lambda: topics["observation"] and topics["observation"][-1], "an Observation")
    observation = observation_from_msg(message)
    assert observation.image.shape == (168, 672, 3)
    assert np.abs(observation.image.astype(int) - RED).max() <= 2
    assert observation.camera_names == CAMERAS
    assert observation.state_names == (*NAMES["left"], *NAMES["right"])
    wanted = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 0.5]
    assert np.allclose(observation.state, wanted, atol=1e-6)
    assert message.header.frame_id == message.image.header.frame_id == "top_lens"
    assert list(observation.source_stamp_ns) == [*CAMERAS, "joint_states"]
    assert observation.source_stamp_ns["top"] == observation.stamp_ns == ns_from_stamp(message.image.header.stamp)
    for name, stamp in observation.source_stamp_ns.items():
        assert observation.age_ns[name] == observation.stamp_ns - stamp
        assert abs(observation.age_ns[name]) <= 50_000_000


def test_cameras_are_routed_by_name(rig, probe, topics):
    for name, colour in zip(CAMERAS, (GREEN, BLUE, RED), strict=True):
        rig.images[name] = image("rgb8", flat(colour))
    rig.images["top"].header.frame_id = ""

    def tiles():
        pixels = topics["observation"] and observation_from_msg(topics["observation"][-1]).image
        return len(pixels) and [tuple(pixels[84, 112 + 224 * index]) for index in range(3)] == [GREEN, BLUE, RED]

    probe.wait(tiles, "each colour in its camera's tile")
    assert topics["observation"][-1].header.frame_id == "top_camera_optical_frame"  # never an empty one


def test_no_reference_frame_is_lost_and_stamps_rise(rig, probe, topics):
    probe.wait(lambda: len(topics["observation"]) >= 30, "a second of Observations")
    stamps = [ns_from_stamp(message.header.stamp) for message in topics["observation"]]
    steps = np.diff(stamps)
    assert (steps > 0).all() and np.median(steps) < 45_000_000


def test_a_missing_camera_is_named_and_nothing_comes_out(rig, probe, topics):
    del rig.images["right_wrist"]
    wait_for_status(probe, topics, "right_wrist", DiagnosticStatus.STALE, "/right_wrist/image_raw: silent for")
    wait_for_status(probe, topics, "observations", DiagnosticStatus.ERROR, "right_wrist: nearest frame is")
    assert_silence(topics)
    assert status_of(topics["diagnostics"], "camera_sync: left_wrist").level in (
        DiagnosticStatus.OK,
        DiagnosticStatus.WARN,
    )


def test_a_missing_reference_camera_is_named(rig, probe, topics):
    del rig.images["top"]
    wait_for_status(probe, topics, "top", DiagnosticStatus.STALE, "silent for")
    wait_for_status(probe, topics, "observations", DiagnosticStatus.STALE, "no frame of top")
    assert_silence(topics)


def test_a_frozen_camera_is_named_and_nothing_comes_out(rig, probe, topics):
    rig.frozen["left_wrist"] = time.time_ns()
    wait_for_status(probe, topics, "left_wrist", DiagnosticStatus.STALE, "frozen", "repeats one stamp")
    assert_silence(topics)


def test_missing_joints_are_named(rig, probe, topics):
    rig.joints = rig.joints[:1]
    wait_for_status(probe, topics, "joint_states", DiagnosticStatus.STALE, *NAMES["right"])
    wait_for_status(probe, topics, "observations", DiagnosticStatus.ERROR, "joint right_joint1, right_joint2")
    assert_silence(topics)


def test_a_position_that_is_not_a_number_is_refused_by_name(rig, probe, topics):
    rig.joints[1].position[3] = float("nan")
    wait_for_status(probe, topics, "observations", DiagnosticStatus.ERROR, "position of joint right_joint3 is nan")
    assert_silence(topics)


def test_an_unknown_encoding_is_an_error_that_lists_the_known_ones(rig, probe, topics):
    rig.images["left_wrist"] = image("hsv24", flat(RED))
    wait_for_status(
        probe, topics, "observations", DiagnosticStatus.ERROR, "left_wrist: unknown encoding 'hsv24'", "yuv422_yuy2"
    )
    assert_silence(topics)
    rig.images["left_wrist"] = image("16UC1", np.zeros((48, 64, 2), np.uint8))
    wait_for_status(probe, topics, "observations", DiagnosticStatus.ERROR, "left_wrist: encoding '16UC1' is depth")


def test_messages_without_a_stamp_are_dropped_with_one_warning(rig, probe, topics, node):
    rig.zero.add("right_wrist")
    status = wait_for_status(probe, topics, "right_wrist", DiagnosticStatus.WARN, "stamp 0 dropped")
    assert int(values_of(status)["without stamp"]) > 0
    probe.wait(lambda: "stamp 0 dropped" in node.log(), f"a warning in\n{node.log()}")
    topics["diagnostics"].clear()
    wait_for_status(probe, topics, "right_wrist", DiagnosticStatus.WARN, "stamp 0 dropped")
    assert_silence(topics)
    assert node.log().count("stamp 0 dropped") == 1


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda left: left.position.pop(), "7 joints are named, 6 positions given"),
        (lambda left: left.name.__setitem__(0, "left_joint6"), "joint left_joint6 is named more than once"),
        (lambda left: left.name.extend(f"j{k}" for k in range(1000)), "1007 joints are named, allowed: at most 1000"),
    ],
)
def test_joint_states_that_contradict_themselves_are_named(rig, probe, topics, change, words):
    change(rig.joints[0])
    status = wait_for_status(probe, topics, "joint_states", DiagnosticStatus.WARN, "malformed", words)
    assert int(values_of(status)["malformed"]) > 0
    assert_silence(topics)


def test_stamps_from_the_future_are_named_and_not_counted_as_lost(rig, probe, topics):
    before = int(values_of(wait_for_status(probe, topics, "top", DiagnosticStatus.OK))["lost"])
    rig.frozen["top"] = time.time_ns() + 3_600_000_000_000
    status = wait_for_status(probe, topics, "top", DiagnosticStatus.WARN, "ahead of this node's clock dropped")
    assert int(values_of(status)["from the future"]) > 0
    assert_silence(topics)
    rig.frozen = {}
    probe.wait(lambda: len(topics["observation"]) > 3, "Observations again")
    topics["diagnostics"].clear()
    status = wait_for_status(probe, topics, "top", DiagnosticStatus.OK)
    assert int(values_of(status)["lost"]) < before + 300


@pytest.mark.parametrize("loop", [1, 2])
def test_stamps_that_jump_back_are_forgotten_and_observations_go_on(rig, probe, topics, node, loop):
    jumps = node.log().count("went back")
    rig.offset_ns = -200_000_000
    before = time.time_ns()
    probe.wait(lambda: len(topics["observation"]) > 40, "Observations after the jump")
    stamps = [ns_from_stamp(message.header.stamp) for message in topics["observation"]]
    assert (np.diff(stamps[-20:]) > 0).all()
    assert before - 400_000_000 < stamps[-1] < time.time_ns() - 150_000_000
    assert node.log().count("went back") == jumps + 1


def test_old_frames_are_refused_with_what_to_do(rig, probe, topics):
    rig.offset_ns = -3_600_000_000_000
    wait_for_status(probe, topics, "observations", DiagnosticStatus.ERROR, "old by this node's clock", "use_sim_time")
    assert_silence(topics)


def test_the_stacked_image_is_there_for_whoever_asks(rig, probe, topics):
    images = probe.collect(Image, "stacked/image", BEST_EFFORT)
    probe.wait(lambda: len(images) > 2, "stacked images")
    assert (images[-1].width, images[-1].height, images[-1].encoding) == (672, 168, "rgb8")
    assert tuple(images[-1].data[:3]) == RED


def another_node(tmp_path, parameters, suffix=""):
    """A second camera_sync in a namespace, on the same cameras and joints."""
    command = [*NODE, "--ros-args", "-r", "__ns:=/second", "-r", "/second/joint_states:=/joint_states"]
    for topic in (f"{name}/image_raw{suffix}" for name in CAMERAS):
        command += ["-r", f"/second/{topic}:=/{topic}"]
    return NodeProcess(command, tmp_path, DOMAIN, parameters)


def test_compressed_cameras_at_a_low_rate(rig, probe, tmp_path):
    jpeg = cv2.imencode(".jpg", flat(BLUE)[..., ::-1])[1].tobytes()
    for name in CAMERAS:
        rig.images[name] = CompressedImage(format="png", data=array.array("B", jpeg))  # mislabelled
    rig.joints[1].position[7] = -0.02375  # some drivers count downwards
    parameters = {
        "cameras": ["right_wrist", "top"],
        "transport": "compressed",
        "rate": 10.0,
        "tile_width": 32,
        "tile_height": 20,
        "joints": ["right_joint7", "left_joint1"],
        "gripper_joints": ["right_joint7"],
        "gripper_stroke": -0.0475,
    }
    with another_node(tmp_path, parameters, "/compressed") as second:
        received = probe.collect(ObservationMsg, "/second/observation")
        probe.wait(lambda: len(received) > 15, f"Observations of compressed cameras; {second.log()}")
        observation = observation_from_msg(received[-1])
        assert observation.image.shape == (20, 64, 3) and np.abs(observation.image.astype(int) - BLUE).max() <= 3
        assert observation.camera_names == ("right_wrist", "top")
        assert np.allclose(observation.state, [0.5, 0.1])
        steps = np.diff([ns_from_stamp(message.header.stamp) for message in received[5:]])
        assert 80_000_000 < np.median(steps) < 120_000_000


def test_a_driver_with_names_of_its_own(rig, probe, tmp_path):
    parameters = {
        "joints": ["right_joint7", "left_joint1"],
        "driver_joint_names": ["grip", "base"],
        "gripper_joints": ["right_joint7"],
    }
    rig.joints[1] = JointState(name=["base", "elbow", "grip"], position=[0.3, 9.0, 0.02375])
    with another_node(tmp_path, parameters) as second:
        received = probe.collect(ObservationMsg, "/second/observation")
        probe.wait(lambda: received, f"Observations with a driver's names; {second.log()}")
        assert list(received[-1].state_names) == ["right_joint7", "left_joint1"]
        assert np.allclose(received[-1].state, [0.5, 0.3])


def test_simulated_time_is_waited_for(rig, probe, topics, tmp_path):
    """A bag, played: stamps of another day, and a clock that starts late."""
    rig.offset_ns = -3_600_000_000_000
    with another_node(tmp_path, {"use_sim_time": True}):
        received = probe.collect(ObservationMsg, "/second/observation")

        def waits():
            status = status_of(topics["diagnostics"], "second/camera_sync: observations")
            return status is not None and "nothing publishes /clock" in status.message

        probe.wait(waits, "the node to ask for /clock")
        assert received == []
        clock = probe.node.create_publisher(Clock, "/clock", 1)

        def tick():
            now = time.time_ns() + rig.offset_ns
            clock.publish(Clock(clock=Time(sec=now // 10**9, nanosec=now % 10**9)))
            return len(received) > 3

        probe.wait(tick, "Observations once the clock runs")
        probe.node.destroy_publisher(clock)
        assert abs(ns_from_stamp(received[-1].header.stamp) - time.time_ns() - rig.offset_ns) < 2_000_000_000


def test_a_bad_parameter_ends_the_node_with_a_reason(tmp_path):
    process = NodeProcess(NODE, tmp_path, DOMAIN, {"reference_camera": "rear"})
    assert process.wait() == 2
    assert "reference 'rear' is not a camera; cameras: top, left_wrist, right_wrist" in process.log()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"cameras": ("top", "top")}, "camera top is named more than once"),
        ({"camera_max_ages": (0.1, 0.2)}, "camera_max_ages has 2 numbers for cameras top, left_wrist, right_wrist"),
        ({"joints": ("a", "b", "a")}, "joint a is named more than once"),
        ({"gripper_joints": ("hand",)}, "gripper_joints hand not among the joints: left_joint1"),
        ({"gripper_stroke": 0.0}, "gripper_stroke is 0"),
        ({"driver_joint_names": ("a", "b")}, "driver_joint_names has 2 names, a, b; one for each of left_joint1"),
        ({"driver_joint_names": ("a",) * 14}, "joint a is named more than once"),
    ],
)
def test_bad_parameters_say_what_is_allowed(change, words):
    values = {param.name: param.default for param in PARAMETERS} | change
    with pytest.raises(ParameterError, match=words):
        sync_config(values), stack_config(values), gripper_columns(values)


def test_parameters_become_configurations():
    values = {param.name: param.default for param in PARAMETERS}
    config = sync_config(values | {"rate": 10.0, "camera_max_ages": (0.1, 0.2, 0.3), "reference_camera": "left_wrist"})
    assert (config.reference, config.period_ns, config.slop_ns) == ("left_wrist", 100_000_000, 50_000_000)
    assert [config.age_limit(name) for name in (*CAMERAS, "joint_states")] == [100e6, 200e6, 300e6, 200e6]
    assert stack_config(values).size == (672, 168)
    assert gripper_columns(values) == [6, 13]
    assert gripper_columns(values | {"gripper_joints": ("",)}) == []


def test_a_rig_file_says_a_drivers_names_once_for_both_who_read_them(tmp_path):
    file = tmp_path / "rig.yaml"
    names = [f"axis_{k}" for k in range(14)]
    file.write_text(
        f"parameters:\n  camera_sync: {{driver_joint_names: &names {names}}}\n"
        "  joint_command: {driver_joint_names: *names}\n"
    )
    nodes = {spec.name: spec.parameters for spec in graph("yam", load_rig(str(file)))}
    assert nodes["camera_sync"]["driver_joint_names"] == nodes["joint_command"]["driver_joint_names"] == names
    values = {param.name: param.default for param in PARAMETERS} | {"driver_joint_names": tuple(names)}
    commands = {param.name: param.default for param in COMMAND_PARAMETERS} | {"driver_joint_names": tuple(names)}
    assert sync_config(values).joints == make_rig(commands).names_at_driver == tuple(names)
