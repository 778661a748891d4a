"""URDF and MJCF against the tables and against each other."""

import math
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from vag_policy.robots import yam
from vag_policy.robots.yam_model import main, mjcf, urdf, xacro
from vag_policy.robots.yam_parts import quaternion_from_rotation, rig_tree
from vag_policy.robots.yam_rig import BASE_SPACINGS, RigGeometry
from vag_policy.robots.yam_sim import mujoco

ROOT = Path(__file__).resolve().parent.parent
RNG = np.random.default_rng(1)
SPACINGS = (0.61, 0.80)


def floats(text: str) -> np.ndarray:
    return np.array([float(word) for word in text.split()])


class UrdfChain:
    """A URDF read by nothing of ours: the poses of its links at given joint positions."""

    def __init__(self, document: str) -> None:
        self.root = ElementTree.fromstring(document)
        self.joints = {joint.get("name"): joint for joint in self.root.iter("joint")}

    def poses(self, positions: dict[str, float]) -> dict[str, np.ndarray]:
        found = {"world": np.eye(4)}
        waiting = list(self.joints.values())
        while waiting:
            joint = waiting.pop(0)
            parent, child = joint.find("parent").get("link"), joint.find("child").get("link")
            if parent not in found:
                waiting.append(joint)
                continue
            found[child] = found[parent] @ self.step(joint, positions)
        return found

    def step(self, joint: ElementTree.Element, positions: dict[str, float]) -> np.ndarray:
        origin, mimic, kind = joint.find("origin"), joint.find("mimic"), joint.get("type")
        pose = np.eye(4)
        pose[:3, 3] = floats(origin.get("xyz"))
        turn = Rotation.from_euler("xyz", floats(origin.get("rpy")))
        name = joint.get("name") if mimic is None else mimic.get("joint")
        if kind == "revolute":
            turn = turn * Rotation.from_rotvec(floats(joint.find("axis").get("xyz")) * positions[name])
        elif kind == "prismatic":
            pose[:3, 3] += turn.apply(floats(joint.find("axis").get("xyz")) * positions[name])
        pose[:3, :3] = turn.as_matrix()
        return pose


def random_positions() -> dict[str, float]:
    lower, upper, _ = yam.command_bounds()
    return {name: float(RNG.uniform(lower[name], upper[name])) for name in yam.JOINT_NAMES}


def mujoco_poses(model: mujoco.MjModel, positions: dict[str, float]) -> dict[str, np.ndarray]:
    data = mujoco.MjData(model)
    for name, value in positions.items():
        data.joint(name).qpos = value
        if name.endswith("joint7"):
            data.joint(f"{name}_mimic").qpos = value
    mujoco.mj_kinematics(model, data)
    mujoco.mj_camlight(model, data)
    poses = {}
    for index in range(model.nbody):
        body = data.body(index)
        poses[body.name] = yam.transform(body.xpos, body.xmat.reshape(3, 3))
    poses["cameras"] = {
        model.camera(i).name: yam.transform(data.cam_xpos[i], data.cam_xmat[i].reshape(3, 3)) for i in range(model.ncam)
    }
    return poses


@pytest.fixture(scope="module", params=SPACINGS)
def models(request):
    rig = RigGeometry(spacing=request.param)
    return rig, UrdfChain(urdf(rig)), mujoco.MjModel.from_xml_string(mjcf(rig))


def test_all_frames_agree_between_urdf_mjcf_and_tree(models):
    rig, chain, model = models
    for _ in range(10):
        positions = random_positions()
        ours, theirs, simulated = rig_tree(rig).poses(positions), chain.poses(positions), mujoco_poses(model, positions)
        assert set(ours) == set(theirs) == set(simulated) - {"cameras"}
        for name, pose in theirs.items():
            np.testing.assert_allclose(ours[name], pose, atol=1e-9, err_msg=name)
            np.testing.assert_allclose(simulated[name], pose, atol=1e-9, err_msg=name)


def test_tool_centre_points_are_the_tables_kinematics(models):
    rig, chain, _ = models
    for arm in yam.ARMS:
        positions = random_positions()
        q = [positions[name] for name in yam.arm_joint_names(arm)]
        expected = yam.transform(rig.base_xyz(arm)) @ yam.forward_kinematics(q)
        np.testing.assert_allclose(chain.poses(positions)[f"{arm}_tcp"], expected, atol=1e-9)


def test_base_spacing_reaches_both_files(models):
    rig, chain, model = models
    for poses in (chain.poses(random_positions()), mujoco_poses(model, random_positions())):
        apart = poses["left_base_link"][:3, 3] - poses["right_base_link"][:3, 3]
        np.testing.assert_allclose(apart, [0, rig.spacing, 0], atol=1e-12)


def test_cameras_look_where_the_table_says(models):
    rig, chain, model = models
    positions = random_positions()
    poses, cameras = chain.poses(positions), mujoco_poses(model, positions)["cameras"]
    assert set(cameras) == {camera.name for camera in rig.cameras}
    for camera in rig.cameras:
        link, optical = poses[camera.link], poses[camera.optical_frame]
        # REP-105: the optical z is the link's x, optical x is the link's -y, optical y is the link's -z
        np.testing.assert_allclose(
            optical[:3, :3], link[:3, :3] @ np.array([[0, 0, 1], [-1, 0, 0], [0, -1, 0]]), atol=1e-9
        )
        np.testing.assert_allclose(optical[:3, 3], link[:3, 3], atol=1e-12)
        # MuJoCo looks along -z with y up
        np.testing.assert_allclose(cameras[camera.name][:3, :3], optical[:3, :3] @ np.diag([1, -1, -1]), atol=1e-9)
        np.testing.assert_allclose(cameras[camera.name][:3, 3], optical[:3, 3], atol=1e-9)
        assert model.camera(camera.name).fovy[0] == pytest.approx(math.degrees(camera.fovy))
    down = poses["top_camera_optical_frame"][:3, 2]
    np.testing.assert_allclose(down, [math.cos(math.radians(60)), 0, -math.sin(math.radians(60))], atol=1e-9)


def test_limits_equal_the_table(models):
    _, chain, model = models
    for arm in yam.ARMS:
        for name, joint in zip(yam.arm_joint_names(arm), yam.ARM_JOINTS, strict=True):
            limit, simulated = chain.joints[name].find("limit"), model.joint(name)
            assert (float(limit.get("lower")), float(limit.get("upper"))) == (joint.lower, joint.upper)
            assert (float(limit.get("effort")), float(limit.get("velocity"))) == (
                joint.motor.peak,
                joint.motor.velocity,
            )
            np.testing.assert_allclose(simulated.range, [joint.lower, joint.upper])
            np.testing.assert_allclose(model.jnt_actfrcrange[simulated.id], [-joint.motor.peak, joint.motor.peak])
            np.testing.assert_allclose(model.actuator(name).ctrlrange, [joint.lower, joint.upper])
            assert simulated.armature[0] == pytest.approx(joint.motor.armature)
        for name in (f"{arm}_joint7", f"{arm}_joint7_mimic"):
            limit = chain.joints[name].find("limit")
            assert (float(limit.get("lower")), float(limit.get("upper"))) == (0.0, 0.0475)
            np.testing.assert_allclose(model.joint(name).range, [0.0, 0.0475])
        mimic = chain.joints[f"{arm}_joint7_mimic"].find("mimic")
        assert (mimic.get("joint"), mimic.get("multiplier")) == (f"{arm}_joint7", "1")


def test_masses_and_inertias_equal_the_table(models):
    _, chain, model = models
    for arm in yam.ARMS:
        table = {f"{arm}_base_link": yam.BASE_INERTIAL}
        table |= {f"{arm}_link{n}": inertial for n, inertial in enumerate(yam.LINK_INERTIALS, start=1)}
        table |= {f"{arm}_{finger.side}_finger_link": finger.inertial for finger in yam.FINGERS}
        for name, inertial in table.items():
            written, body = chain.root.find(f"link[@name='{name}']/inertial"), model.body(name)
            assert float(written.find("mass").get("value")) == inertial.mass
            np.testing.assert_allclose(floats(written.find("origin").get("xyz")), inertial.com, atol=1e-12)
            assert body.mass[0] == pytest.approx(inertial.mass)
            np.testing.assert_allclose(body.ipos, inertial.com, atol=1e-12)
            tensor = np.diag([inertial.ixx, inertial.iyy, inertial.izz])
            tensor[0, 2] = tensor[2, 0] = inertial.ixz
            turn = Rotation.from_quat(body.iquat, scalar_first=True).as_matrix()
            np.testing.assert_allclose(turn @ np.diag(body.inertia) @ turn.T, tensor, atol=1e-9)
    masses = [float(m.get("value")) for m in chain.root.iter("mass")]
    assert sum(masses) == pytest.approx(model.body_mass.sum())
    one_arm = 0.8737 + 0.1012 + 1.4691 + 0.9826 + 0.4622 + 0.4033 + 0.5532 + 2 * 0.071
    assert sum(masses) == pytest.approx(2 * one_arm)


def test_fingers_open_away_from_each_other(models):
    _, chain, _ = models
    closed = dict.fromkeys(yam.JOINT_NAMES, 0.0)
    opened = {**closed, "left_joint7": 0.0475}
    for side, sign in (("left", 1), ("right", -1)):
        name = f"left_{side}_finger_link"
        moved = chain.poses(opened)[name][:3, 3] - chain.poses(closed)[name][:3, 3]
        np.testing.assert_allclose(moved, [0, sign * 0.0475, 0], atol=1e-12)


def test_actuators_stand_in_the_order_of_states(models):
    model = models[2]
    assert tuple(model.actuator(i).name for i in range(model.nu)) == yam.JOINT_NAMES


@pytest.mark.parametrize("writer,name", [(urdf, "yam_bimanual.urdf"), (xacro, "yam_bimanual.urdf.xacro")])
def test_committed_file_is_what_the_generator_writes(writer, name):
    rebuild = f"python -m vag_policy.robots.yam_model --{writer.__name__} --out urdf/{name}"
    assert (ROOT / "urdf" / name).read_text() == writer(RigGeometry()), f"run: {rebuild}"


@pytest.mark.parametrize("spacing", BASE_SPACINGS)
def test_xacro_with_an_argument_is_the_urdf_of_that_spacing(spacing):
    """Substituted here by hand, since xacro comes with apt only."""
    document = xacro(RigGeometry())
    lines = [line for line in document.splitlines() if "xacro:arg" not in line and "xacro:property" not in line]
    text = "\n".join(lines).replace(' xmlns:xacro="http://www.ros.org/wiki/xacro"', "")
    text = re.sub(r"\$\{(-?)spacing / 2\}", lambda match: f"{match[1]}{spacing / 2:.12g}", text)
    assert ElementTree.canonicalize(text, strip_text=True) == ElementTree.canonicalize(
        urdf(RigGeometry(spacing=spacing)), strip_text=True
    )


def test_urdf_is_a_sound_tree():
    root = ElementTree.fromstring(urdf(RigGeometry()))
    links = [link.get("name") for link in root.findall("link")]
    children = [joint.find("child").get("link") for joint in root.findall("joint")]
    assert len(set(links)) == len(links)
    assert set(children) == set(links) - {"world"}
    assert len(set(children)) == len(children)
    materials = {material.get("name") for material in root.findall("material")}
    assert {m.get("name") for m in root.iter("material")} <= materials
    assert {geometry[0].tag for geometry in root.iter("geometry")} <= {"box", "cylinder", "sphere"}
    for joint in root.findall("joint"):
        assert (joint.get("type") == "fixed") == (joint.find("limit") is None)


def test_command_line_writes_and_refuses(tmp_path, capsys):
    out = tmp_path / "rig.xml"
    main(["--mjcf", "--spacing", "0.8", "--out", str(out)])
    assert out.read_text() == mjcf(RigGeometry(spacing=0.8))
    main(["--urdf"])
    assert capsys.readouterr().out == urdf(RigGeometry())
    with pytest.raises(SystemExit):
        main(["--urdf", "--spacing", "80"])
    assert "allowed: 0.3 to 1.5 m" in capsys.readouterr().err


def test_quaternions_equal_scipys_up_to_half_a_turn():
    angles = [0.0, 1e-9, 1.0, math.pi - 1e-9, math.pi]
    for axis in np.vstack([np.eye(3), RNG.normal(size=(5, 3))]):
        for angle in angles:
            turn = Rotation.from_rotvec(axis / np.linalg.norm(axis) * angle)
            ours = quaternion_from_rotation(turn.as_matrix())
            assert abs(ours @ turn.as_quat(scalar_first=True)) == pytest.approx(1.0)
            assert ours[0] >= 0
