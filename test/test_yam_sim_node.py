"""The simulator node as a process, over real DDS."""

import math
import time

import numpy as np
import pytest
from builtin_interfaces.msg import Duration, Time
from diagnostic_msgs.msg import DiagnosticArray
from rclpy.qos import DurabilityPolicy, QoSProfile, qos_profile_sensor_data
from ros_process import NodeProcess, Probe, claim_domain, status_of, values_of
from rosgraph_msgs.msg import Clock
from scipy.spatial.transform import Rotation
from sensor_msgs.msg import CameraInfo, Image, JointState
from std_msgs.msg import String
from tf2_msgs.msg import TFMessage
from trajectory_msgs.msg import JointTrajectory, JointTrajectoryPoint
from vag_interfaces.msg import TaskState
from vag_interfaces.srv import ResetScene

from vag_policy.evaluation.referee import Referee
from vag_policy.nodes.messages import ns_from_stamp
from vag_policy.nodes.sim_messages import task_state_to_msg
from vag_policy.robots import yam
from vag_policy.robots.yam_model import urdf
from vag_policy.robots.yam_rig import CAMERA_NAMES, RigGeometry
from vag_policy.robots.yam_sim import Sim

DOMAIN, SECOND_DOMAIN, THIRD_DOMAIN = claim_domain(), claim_domain(), claim_domain()
MODULE = ["-m", "vag_policy.nodes.yam_sim_node"]
LATCHED = QoSProfile(depth=1, durability=DurabilityPolicy.TRANSIENT_LOCAL)
START = ["put the green cube in the wooden tray", "put the red cube on the green plate"]


class Rig:
    """The running node and everything it says."""

    def __init__(self, process: NodeProcess, probe: Probe) -> None:
        self.process, self.probe = process, probe
        collect = probe.collect
        self.images = {name: collect(Image, f"{name}/image_raw", qos_profile_sensor_data) for name in CAMERA_NAMES}
        self.infos = {
            name: collect(CameraInfo, f"{name}/camera_info", qos_profile_sensor_data) for name in CAMERA_NAMES
        }
        self.joints = collect(JointState, "joint_states", qos_profile_sensor_data)
        self.tasks = collect(TaskState, "task_state", LATCHED)
        self.frames = collect(TFMessage, "/tf", 100)
        self.fixed = collect(TFMessage, "/tf_static", LATCHED)
        self.descriptions = collect(String, "robot_description", LATCHED)
        self.diagnostics = collect(DiagnosticArray, "/diagnostics")
        self.commands = {
            name: probe.node.create_publisher(JointTrajectory, f"{name}_controller/joint_trajectory", 1)
            for name in ("left_arm", "left_gripper", "right_arm", "right_gripper")
        }

    def send(self, group: str, names, positions, seconds: float = 0.3, stamp_ns: int = 0) -> None:
        publisher = self.commands[group]
        self.probe.wait(publisher.get_subscription_count, f"{group}'s controller")
        duration = Duration(sec=int(seconds), nanosec=int(seconds % 1 * 1e9))
        point = JointTrajectoryPoint(positions=[float(p) for p in positions], time_from_start=duration)
        message = JointTrajectory(joint_names=list(names), points=[point])
        message.header.stamp = Time(sec=stamp_ns // 10**9, nanosec=stamp_ns % 10**9)
        publisher.publish(message)

    def positions(self) -> dict[str, float]:
        self.probe.wait(lambda: self.joints, "joint states")
        newest = self.joints[-1]
        return dict(zip(newest.name, newest.position, strict=True))

    def reset(self, seed: int, task: str = "") -> ResetScene.Response:
        return self.probe.call(ResetScene, "yam_sim/reset", ResetScene.Request(seed=seed, task=task))

    def wait_for_log(self, text: str) -> None:
        self.probe.wait(lambda: text in self.process.log(), f"'{text}' in the log:\n{self.process.log()}")


@pytest.fixture(scope="module")
def rig(tmp_path_factory):
    folder = tmp_path_factory.mktemp("yam_sim")
    with NodeProcess(MODULE, folder, DOMAIN, {"seed": 3}) as process, Probe(DOMAIN) as probe:
        rig = Rig(process, probe)
        for name in CAMERA_NAMES:
            probe.wait(lambda name=name: rig.images[name], f"an image of {name}\n{process.log()}")
        yield rig
        assert process.stop() == 0, process.log()
        assert "Traceback" not in process.log()


def test_cameras_arrive_by_name_with_frames_and_at_their_rate(rig):
    for images in (*rig.images.values(), *rig.infos.values()):
        images.clear()
    rig.probe.wait(lambda: all(len(images) > 40 for images in rig.images.values()), "40 images of every camera")
    for name, images in rig.images.items():
        first = images[0]
        assert (first.encoding, first.width, first.height, first.step) == ("rgb8", 320, 240, 960)
        assert len(first.data) == 320 * 240 * 3
        assert first.header.frame_id == f"{name}_camera_optical_frame"
        stamps = np.array([ns_from_stamp(image.header.stamp) for image in images])
        assert (np.diff(stamps) > 0).all()
        periods = np.diff(stamps) * 30 / 1e9
        assert np.median(np.abs(periods - np.rint(periods))) < 0.05, "evenly spaced, a skipped one aside"
        assert np.median(periods) < 2.05
        assert np.asarray(first.data).std() > 10, "not a black picture"
    common = set.intersection(*({ns_from_stamp(i.header.stamp) for i in images} for images in rig.images.values()))
    assert len(common) > 25, "the three cameras look at the same instants"


def test_camera_infos_belong_to_the_images(rig):
    geometry = RigGeometry()
    for name in CAMERA_NAMES:
        info = rig.probe.wait(lambda name=name: rig.infos[name], "camera info")[-1]
        rig.probe.wait(
            lambda name=name, info=info: any(i.header.stamp == info.header.stamp for i in rig.images[name]),
            "the image of a camera info",
        )
        assert info.header.frame_id == f"{name}_camera_optical_frame"
        np.testing.assert_allclose(np.reshape(info.k, (3, 3)), geometry.camera(name).intrinsics(320, 240))
        np.testing.assert_allclose(np.reshape(info.p, (3, 4))[:, :3], np.reshape(info.k, (3, 3)))
        assert (info.width, info.height, info.distortion_model) == (320, 240, "plumb_bob")


def test_joint_states_carry_fourteen_names_at_their_rate(rig):
    rig.joints.clear()
    rig.probe.wait(lambda: len(rig.joints) > 80, "80 joint states")
    first, last = rig.joints[0], rig.joints[-1]
    assert tuple(first.name) == yam.JOINT_NAMES
    assert len(first.position) == len(first.velocity) == len(first.effort) == 14
    stamps = [ns_from_stamp(state.header.stamp) for state in rig.joints]
    assert (np.diff(stamps) > 0).all()
    assert np.median(np.diff(stamps)) == pytest.approx(1e9 / 120, rel=0.2)
    assert abs(time.time_ns() - stamps[-1]) < 5e9, "stamped with the system's time"
    assert max(abs(effort) for effort in last.effort) > 1.0, "the arms bear their weight"


def test_frames_on_tf_are_the_joint_states_kinematics(rig):
    rig.reset(3)
    home = yam.HOME[:6] + [0.4, 0.1, 0, -0.3, 0.5, 0.2]
    rig.send("left_arm", yam.arm_joint_names("left"), home, 0.5)
    rig.probe.wait(lambda: abs(rig.positions()["left_joint1"] - 0.4) < 0.02, "the arm to turn")

    def matching():
        states = {ns_from_stamp(state.header.stamp): state for state in rig.joints[-100:]}
        for message in reversed(rig.frames):
            stamp = ns_from_stamp(message.transforms[0].header.stamp)
            if stamp in states:
                return states[stamp], message.transforms
        return None

    state, moving = rig.probe.wait(matching, "tf and joint states of one stamp")
    parents = {t.child_frame_id: t for t in (*rig.probe.wait(lambda: rig.fixed, "static tf")[0].transforms, *moving)}

    def pose_in_world(frame: str) -> np.ndarray:
        pose = np.eye(4)
        while frame != "world":
            transform = parents[frame].transform
            step = np.eye(4)
            step[:3, 3] = transform.translation.x, transform.translation.y, transform.translation.z
            turn = transform.rotation
            step[:3, :3] = Rotation.from_quat([turn.x, turn.y, turn.z, turn.w]).as_matrix()
            pose, frame = step @ pose, parents[frame].header.frame_id
        return pose

    positions = dict(zip(state.name, state.position, strict=True))
    for arm in yam.ARMS:
        q = [positions[name] for name in yam.arm_joint_names(arm)]
        base = yam.transform(RigGeometry().base_xyz(arm))
        np.testing.assert_allclose(pose_in_world(f"{arm}_tcp"), base @ yam.forward_kinematics(q), atol=1e-9)
        finger = pose_in_world(f"{arm}_right_finger_link")[:3, 3] - pose_in_world(f"{arm}_left_finger_link")[:3, 3]
        assert np.linalg.norm(finger) == pytest.approx(2 * positions[f"{arm}_joint7"], abs=1e-9)
    top = pose_in_world("top_camera_optical_frame")
    np.testing.assert_allclose(top[:3, 2], [math.cos(math.radians(60)), 0, -math.sin(math.radians(60))], atol=1e-9)


def test_description_is_the_rigs_urdf(rig):
    assert rig.probe.wait(lambda: rig.descriptions, "robot_description")[0].data == urdf(RigGeometry())


def test_trajectories_move_the_arm_and_the_gripper_by_name(rig):
    rig.reset(3)
    names = yam.arm_joint_names("right")
    target = dict(zip(names, [0.3, 0.6, 0.7, -0.2, 0.1, -0.4], strict=True))
    shuffled = sorted(target, reverse=True)
    rig.send("right_arm", shuffled, [target[name] for name in shuffled], 0.5)
    rig.send("right_gripper", ["right_joint7"], [0.01], 0.5)

    def arrived():
        now = rig.positions()
        arm = all(abs(now[name] - value) < 0.02 for name, value in target.items())
        return arm and abs(now["right_joint7"] - 0.01) < 5e-4

    rig.probe.wait(arrived, f"the arm to arrive, it is at {rig.positions()}")
    now = rig.positions()
    assert all(abs(now[name]) < 0.01 for name in yam.arm_joint_names("left")), "the other arm stayed"
    assert now["left_joint7"] == pytest.approx(yam.STROKE, abs=1e-3)
    time.sleep(1.2)  # more than a second without a command: it holds
    assert arrived()


@pytest.mark.parametrize(
    "names,positions,stamp_ns,why",
    [
        (yam.arm_joint_names("left"), [0.5, math.nan, 0.5, 0, 0, 0], 0, "joint 'left_joint2' is told to go to nan"),
        (yam.arm_joint_names("right"), [0.5] * 6, 0, "no joint 'right_joint1' here; expected: left_joint1"),
        (yam.arm_joint_names("left")[:5], [0.5] * 5, 0, "joint 'left_joint6' is missing"),
        (yam.arm_joint_names("left"), [0.5] * 5, 0, "point 0 has 5 positions for 6 joints"),
        (yam.arm_joint_names("left"), [0.5] * 6, 10**15, "the trajectory's end is past; leave its header's stamp at 0"),
    ],
)
def test_nonsense_is_refused_by_name_and_the_arm_holds(rig, names, positions, stamp_ns, why):
    rig.reset(3)
    rig.send("left_arm", names, positions, 0.2, stamp_ns)
    rig.wait_for_log(f"left_arm_controller: trajectory refused, holding: {why}")
    time.sleep(0.3)
    assert all(abs(rig.positions()[name]) < 0.01 for name in yam.arm_joint_names("left"))


def scene_of(rig: Rig, seed: int) -> tuple[TaskState, dict[str, bytes]]:
    """The first task state and the first pictures of a new scene: those of the reset's own stamp."""
    before = rig.probe.wait(lambda: rig.tasks, "a task state")[-1].scene
    response = rig.reset(seed)
    assert response.success, response.message
    state = rig.probe.wait(lambda: next((t for t in rig.tasks if t.scene == before + 1), None), "the new scene")
    assert (state.seed, state.instruction) == (response.seed, response.instruction)

    def first_pictures():
        found = {
            name: bytes(image.data)
            for name, images in rig.images.items()
            for image in images[-60:]
            if image.header.stamp == state.header.stamp
        }
        return found if len(found) == len(CAMERA_NAMES) else None

    return state, rig.probe.wait(first_pictures, "the scene's first pictures")


def test_reset_by_seed_is_deterministic(rig):
    first, pictures = scene_of(rig, 7)
    rig.send("left_arm", yam.arm_joint_names("left"), yam.HOME[:6], 0.2)
    time.sleep(0.3)
    other, other_pictures = scene_of(rig, 8)
    again, same_pictures = scene_of(rig, 7)
    assert again.object_names == first.object_names
    assert again.object_poses == first.object_poses != other.object_poses
    assert same_pictures == pictures != other_pictures
    assert first.header.frame_id == "world"
    assert (first.success, first.reason, first.phase) == (False, "never grasped", "approach")
    next_one, _ = scene_of(rig, -1)
    assert next_one.seed == 8, "a negative seed is the next one"


def test_the_task_state_is_the_referee_s():
    sim = Sim()
    sim.reset(7, "put the red cube in the blue bowl")
    referee = Referee(sim)

    def said(now_ms: int) -> TaskState:
        referee.look(now_ms * 1_000_000)
        return task_state_to_msg(sim.task_state(), referee.verdict(), referee.phase(), 5)

    before = said(0)
    assert (before.success, before.reason, before.phase) == (False, "never grasped", "approach")
    cube, bowl = (sim.model.joint(name).qposadr[0] for name in ("red_cube", "blue_bowl"))
    sim.data.qpos[cube : cube + 3] = (*sim.data.qpos[bowl : bowl + 2], 0.012)
    sim.step(yam.POSES["rest"], 150)
    assert (said(100).success, said(300).phase) == (False, "retreat"), "in its place, but not for 0.3 s yet"
    after = said(450)
    assert (after.success, after.reason, after.phase) == (True, "", "retreat")
    assert (after.instruction, after.seed, ns_from_stamp(after.header.stamp)) == (sim.instruction, 7, 5)


def test_reset_takes_a_task_and_refuses_an_unknown_one(rig):
    for task in START:
        response = rig.reset(1, task)
        assert (response.success, response.instruction) == (True, task)
    response = rig.reset(2, "put the sun in the bowl")
    assert not response.success
    assert "no task 'put the sun in the bowl'" in response.message and "red cube" in response.message
    assert (response.instruction, response.seed) == (START[-1], 1), "the old scene stays"


def test_diagnostics_measure_the_pace(rig):
    rig.diagnostics.clear()
    status = rig.probe.wait(lambda: status_of(rig.diagnostics, "yam_sim: simulation"), "diagnostics")
    values = values_of(status)
    assert float(values["real_time_factor"]) == pytest.approx(1.0, abs=0.2)
    assert int(values["frames_taken"]) > 0
    commands = rig.probe.wait(lambda: status_of(rig.diagnostics, "yam_sim: commands"), "diagnostics")
    assert int(values_of(commands)["refused"]) >= 0


def test_simulated_time_other_spacing_and_other_rates(tmp_path):
    parameters = {
        "publish_clock": True,
        "base_spacing": 0.8,
        "joint_state_rate": 50.0,
        "tf_rate": 0.0,
        "start_pose": "home",
        "image_width": 64,
        "image_height": 48,
        "objects": "[red_cube]",
    }
    with NodeProcess(MODULE, tmp_path, SECOND_DOMAIN, parameters) as process, Probe(SECOND_DOMAIN) as probe:
        rig = Rig(process, probe)
        clocks = probe.collect(Clock, "/clock", qos_profile_sensor_data)
        probe.wait(lambda: len(clocks) > 20 and rig.images["top"] and len(rig.joints) > 20, f"life\n{process.log()}")
        stamps = [ns_from_stamp(clock.clock) for clock in clocks]
        assert stamps[0] > 0
        assert set(np.diff(stamps)) == {20_000_000}
        assert ns_from_stamp(rig.joints[-1].header.stamp) % 20_000_000 == 0
        assert 0 < ns_from_stamp(rig.images["top"][0].header.stamp) < 60e9
        assert rig.positions()["left_joint2"] == pytest.approx(yam.HOME[1], abs=0.01)
        assert probe.wait(lambda: rig.descriptions, "description")[0].data == urdf(RigGeometry(spacing=0.8))
        task = probe.wait(lambda: rig.tasks, "task state")[-1]
        assert set(task.object_names) == {"red_cube", "blue_bowl", "green_plate", "wooden_tray"}
        assert not rig.frames and not rig.fixed
        assert process.stop() == 0, process.log()


@pytest.mark.parametrize(
    "parameters,why",
    [
        ({"objects": "[red_ball]"}, "no object 'red_ball'; a scene has: red_cube"),
        ({"task": "dance"}, "no task 'dance' in this scene"),
        ({"camera_rate": 0.0}, "parameter 'camera_rate' is 0.0; allowed: 1.0 to 60.0"),
        ({"base_spaceing": 0.8}, "has no parameter 'base_spaceing'"),
    ],
)
def test_bad_parameters_end_the_node_with_a_reason(tmp_path, parameters, why):
    with NodeProcess(MODULE, tmp_path, THIRD_DOMAIN, parameters) as process:
        assert process.wait() == 2
        assert why in process.log()
        assert "Traceback" not in process.log()


def test_a_machine_that_cannot_render_is_told_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setenv("MUJOCO_GL", "disable")
    with NodeProcess(MODULE, tmp_path, THIRD_DOMAIN) as process:
        assert process.wait() == 2
        assert "no headless OpenGL" in process.log()
        assert "Traceback" not in process.log()
