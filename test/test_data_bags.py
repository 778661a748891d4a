"""Recorded bags become datasets: exact frames from irregular stamps, gaps told, the same pixels as live."""

import json

import cv2
import numpy as np
import pytest
from rosbags.typesys import Stores, get_typestore
from typer.testing import CliRunner

from vag_policy import cli
from vag_policy.data.bag_convert import ConvertConfig, convert
from vag_policy.data.bag_streams import BagTopics
from vag_policy.data.bag_writer import BagError, BagWriter, TopicQos, add_type
from vag_policy.data.inspection import inspect
from vag_policy.data.lerobot_reader import LeRobotDataset
from vag_policy.data.resample import gaps, grid, in_order, interpolate, nearest
from vag_policy.observation.image_codec import ImageError
from vag_policy.robots.yam import JOINT_NAMES, STROKE

CAMERAS = ("top", "left_wrist", "right_wrist")
START = 1_700_000_000_000_000_000
WIDTH, HEIGHT = 32, 24
TASK = "put the red cube in the blue bowl"

# --- numbers


def test_the_grid_is_exact_and_does_not_drift():
    stamps = grid(START, START + 100_000_000_000, 30)
    assert len(stamps) == 3001 and stamps[3000] - START == 100_000_000_000
    assert (stamps[:4] - START).tolist() == [0, 33_333_333, 66_666_667, 100_000_000]
    assert len(grid(5, 4, 30)) == 0 and grid(5, 5, 30).tolist() == [5]


def test_nearest():
    stamps = np.array([10, 20, 40])
    assert nearest(stamps, np.array([0, 14, 15, 16, 30, 31, 99])).tolist() == [0, 0, 0, 1, 1, 2, 2]
    assert nearest(np.array([10]), np.array([0, 50])).tolist() == [0, 0]


def test_interpolation_at_epoch_times():
    stamps = START + np.array([0, 10, 30])
    values = np.array([[0.0, 1.0], [1.0, 1.0], [3.0, 5.0]])
    wanted = START + np.array([-5, 5, 20, 99])
    assert interpolate(stamps, values, wanted).tolist() == [[0, 1], [0.5, 1], [2, 3], [3, 5]]


def test_gaps_and_order():
    stamps = np.array([0, 30, 61, 200, 230])
    assert [(gap.start_ns, gap.length_ns) for gap in gaps(stamps, 50)] == [(61, 139)]
    assert in_order(stamps) and not in_order(np.array([0, 30, 30])) and not in_order(np.array([0, 30, 20]))


# --- bags


class Recording:
    """A bag of a moving rig: every picture and every joint says when it was taken."""

    def __init__(self, path, seconds=2.0, encoding="bgr8", compressed=(), silent=None, stamp_zero=False, jitter=True):
        self.store = get_typestore(Stores.ROS2_JAZZY)
        types = ("sensor_msgs/msg/Image", "sensor_msgs/msg/CompressedImage", "sensor_msgs/msg/JointState")
        for name in (*types, "std_msgs/msg/String", "trajectory_msgs/msg/JointTrajectory"):
            add_type(self.store, name)
        self.rng = np.random.default_rng(0)
        with BagWriter(path) as self.bag:
            messages = []
            for number, camera in enumerate(CAMERAS):
                period = 1 / 30 if camera != "right_wrist" else 1 / 10
                for n in range(int(seconds / period) + 1):
                    time = n * period + (self.rng.uniform(-0.004, 0.004) if jitter and n else 0.0)
                    if silent and camera == silent[0] and silent[1] < time < silent[2]:
                        continue
                    message = self.image(number, time, encoding, camera in compressed, stamp_zero)
                    topic = f"/{camera}/image_raw" + ("/compressed" if camera in compressed else "")
                    messages.append((time, topic, message))
            for n in range(int(seconds * 100) + 1):
                half = 7 * (n % 2)
                names = JOINT_NAMES[half : half + 7][::-1]  # one arm a message, last joint first
                messages.append((n / 100, "/joint_states", self.joints(names, n / 100, stamp_zero)))
            messages += self.extra()
            for time, topic, message in sorted(messages, key=lambda entry: entry[0]):
                if topic not in self.bag.counts:
                    self.bag.add_topic(topic, message.__msgtype__, TopicQos())
                self.bag.write(topic, START + round(time * 1e9), self.store.serialize_cdr(message, message.__msgtype__))

    def extra(self):
        return [(0.0, "/instruction", self.text(TASK))]

    def header(self, time, zero=False):
        ns = 0 if zero else START + round(time * 1e9)
        stamp = self.store.types["builtin_interfaces/msg/Time"](sec=ns // 10**9, nanosec=ns % 10**9)
        return self.store.types["std_msgs/msg/Header"](stamp=stamp, frame_id="x")

    def image(self, number, time, encoding, compressed, zero):
        pixels = np.full((HEIGHT, WIDTH, 3), (60 * number, 40, min(250, 20 + 100 * time)), np.uint8)[..., ::-1]  # BGR
        header = self.header(time, zero)
        if compressed:
            data = cv2.imencode(".png", pixels)[1].ravel()
            return self.store.types["sensor_msgs/msg/CompressedImage"](header=header, format="png", data=data)
        return self.store.types["sensor_msgs/msg/Image"](
            header=header, height=HEIGHT, width=WIDTH, encoding=encoding, is_bigendian=0, step=3 * WIDTH,
            data=pixels.reshape(-1),
        )  # fmt: skip

    def joints(self, names, time, zero=False):
        values = [STROKE * time / 4 if name.endswith("7") else JOINT_NAMES.index(name) + time for name in names]
        return self.store.types["sensor_msgs/msg/JointState"](
            header=self.header(time, zero), name=list(names), position=np.array(values), velocity=np.array([]),
            effort=np.array([]),
        )  # fmt: skip

    def text(self, data):
        return self.store.types["std_msgs/msg/String"](data=data)

    def trajectory(self, time):
        types = self.store.types
        duration = types["builtin_interfaces/msg/Duration"](sec=0, nanosec=33_000_000)
        point = types["trajectory_msgs/msg/JointTrajectoryPoint"](
            positions=np.array([100.0 + time] * 14), velocities=np.array([]), accelerations=np.array([]),
            effort=np.array([]), time_from_start=duration,
        )  # fmt: skip
        header = self.header(time, zero=True)  # commands carry stamp 0: the time recorded counts
        return types["trajectory_msgs/msg/JointTrajectory"](
            header=header, joint_names=list(JOINT_NAMES), points=[point]
        )


def run(bag, out, topics=None, **config):
    return convert([bag], out, topics or BagTopics(), ConvertConfig(**config))


def expected_state(times):
    columns = [times / 4 if name.endswith("7") else index + times for index, name in enumerate(JOINT_NAMES)]
    return np.stack(columns, axis=1)


def test_irregular_streams_become_exact_frames(tmp_path):
    Recording(tmp_path / "bag", compressed=("left_wrist",))
    result = run(tmp_path / "bag", tmp_path / "out")
    dataset = LeRobotDataset(tmp_path / "out")
    assert not inspect(tmp_path / "out").problems
    assert result.episodes == 1 and len(dataset) == result.frames
    assert dataset.task(0) == TASK
    # The first frame is that of the last stream to begin: the right arm's joints come 10 ms after the rest, and
    # do not count; all cameras begin at 0.
    times = np.arange(len(dataset)) / 30
    state = expected_state(times)
    state[0, 7:] = expected_state(np.array([0.01]))[0, 7:]
    assert np.allclose(dataset.state, state, atol=1e-5)
    assert np.allclose(dataset.action[:-1], dataset.state[1:]) and np.array_equal(dataset.action[-1], dataset.state[-1])
    for number, camera in enumerate(CAMERAS):
        pictures = np.array(list(dataset.pictures(0, camera)))
        assert np.abs(pictures[:, 5, 5, 0].astype(int) - 60 * number).max() < 8  # RGB from BGR
        shown = (pictures[:, 5, 5, 2].astype(float) - 20) / 100
        late = 0.062 if camera == "right_wrist" else 0.022  # half a period and the jitter, and H.264
        assert np.abs(shown - times).max() < late + 0.06
    # the slow camera is told, the others are within a frame and a half
    assert set(result.silences) == {"/right_wrist/image_raw"}
    assert result.silences["/right_wrist/image_raw"].count >= 18
    assert 0.09 < result.silences["/right_wrist/image_raw"].longest_s < 0.12


def test_messages_without_a_stamp_count_from_when_they_were_recorded(tmp_path):
    Recording(tmp_path / "bag", stamp_zero=True)
    run(tmp_path / "bag", tmp_path / "out")
    assert np.allclose(LeRobotDataset(tmp_path / "out").state[10], expected_state(np.array([10 / 30]))[0], atol=1e-5)


def test_commands_become_actions(tmp_path):
    class Commanded(Recording):
        def extra(self):
            return [*super().extra(), *((n / 50, "/command", self.trajectory(n / 50)) for n in range(101))]

    Commanded(tmp_path / "bag")
    run(tmp_path / "bag", tmp_path / "out", BagTopics(commands=("/command",)))
    action = LeRobotDataset(tmp_path / "out").action
    assert np.allclose(action[:, 0], 100 + np.arange(len(action)) / 30, atol=1e-4)
    assert (action[:, 6] == 1.0).all()  # 100 m of finger is as open as it gets


def test_instructions_cut_a_bag_into_episodes(tmp_path):
    class Several(Recording):
        def extra(self):
            texts = ((0.3, "do a"), (0.8, "do a"), (1.0, "do b"), (1.5, ""), (1.7, "do c"))
            return [(time, "/instruction", self.text(text)) for time, text in texts]

    Several(tmp_path / "bag", jitter=False)
    result = run(tmp_path / "bag", tmp_path / "out")
    dataset = LeRobotDataset(tmp_path / "out")
    assert [dataset.task(int(start)) for start in dataset.starts[:-1]] == ["do a", "do b", "do c"]
    assert [episode.length for episode in dataset.episodes] == [22, 16, 10] and result.episodes == 3
    assert np.allclose(dataset.state[22], expected_state(np.array([1.0]))[0], atol=1e-5)
    for position, start in enumerate((0.3, 1.0, 1.7)):
        shown = [(int(picture[5, 5, 2]) - 20) / 100 for picture in dataset.pictures(position, "top")]
        assert abs(shown[0] - start) < 0.08 and shown[-1] > shown[0] + 0.2


def test_an_episode_with_a_long_gap_is_left_out_and_told(tmp_path):
    Recording(tmp_path / "bag", silent=("top", 0.5, 1.0))
    with pytest.raises(BagError, match=r"no episode could be made: .*/top/image_raw is silent for 0.5\d\d s from 0.4"):
        run(tmp_path / "bag", tmp_path / "out")
    result = run(tmp_path / "bag", tmp_path / "more", longest_gap_s=0.6)
    assert result.episodes == 1 and result.silences["/top/image_raw"].longest_s > 0.5


def test_what_is_missing_is_named(tmp_path):
    Recording(tmp_path / "bag")
    bag, out = tmp_path / "bag", tmp_path / "out"
    for topics, word in (
        (BagTopics(cameras={"top": "/nose"}), r"no topic '/nose'; it has: /instruction, /joint_states"),
        (BagTopics(cameras={"top": "/joint_states"}), "topic '/joint_states' is sensor_msgs/msg/JointState; expected"),
        (BagTopics(joints={"left_joint3": "arm_3"}), "joint 'arm_3' is in no message; there are: left_joint1"),
    ):
        with pytest.raises(BagError, match=word):
            run(bag, out, topics)
    with pytest.raises(BagError, match=r"nothing.* is not a readable bag"):
        run(tmp_path / "nothing", out)
    out.mkdir()
    (out / "mine").touch()
    with pytest.raises(BagError, match="is not empty and is not overwritten"):
        run(bag, out)
    with pytest.raises(ValueError, match="no setting 'camera' of a bag; allowed: cameras, joint_states"):
        BagTopics.from_config({"camera": {}})


def test_a_bag_without_instruction_needs_a_task(tmp_path):
    class Silent(Recording):
        def extra(self):
            return []

    Silent(tmp_path / "bag")
    with pytest.raises(BagError, match="no instruction on '/instruction'; say what is done"):
        run(tmp_path / "bag", tmp_path / "out")
    run(tmp_path / "bag", tmp_path / "out", task="wave")
    assert LeRobotDataset(tmp_path / "out").task(0) == "wave"


def test_a_looped_bag_and_an_unknown_encoding_are_refused(tmp_path):
    class Looped(Recording):
        def header(self, time, zero=False):
            return super().header(time % 1.0, zero)

    Looped(tmp_path / "looped")
    with pytest.raises(BagError, match=r"image_raw jumps backwards in time"):
        run(tmp_path / "looped", tmp_path / "out")
    Recording(tmp_path / "odd", encoding="cmyk8")
    with pytest.raises(ImageError, match="cmyk8"):
        run(tmp_path / "odd", tmp_path / "out")


def test_the_command(tmp_path):
    Recording(tmp_path / "bag")
    topics = tmp_path / "topics.yaml"
    topics.write_text(json.dumps({"joint_states": ["/joint_states"]}))
    arguments = ["data", "from-bag", str(tmp_path / "bag"), "--out", str(tmp_path / "out"), "--topics", str(topics)]
    result = CliRunner().invoke(cli.app, arguments)
    assert result.exit_code == 0, result.output
    assert "1 episodes, 61 frames at 30 a second" in result.output or "1 episodes, 60 frames" in result.output
    assert "gaps: /right_wrist/image_raw: " in result.output
