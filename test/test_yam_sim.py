import os
import subprocess
import sys
import threading

import numpy as np
import pytest
from yam_scripted import Script, pick_and_place

from vag_policy.robots import gl, yam
from vag_policy.robots.yam_items import SCENE_COLOURS
from vag_policy.robots.yam_parts import rig_tree
from vag_policy.robots.yam_rig import RigGeometry
from vag_policy.robots.yam_scene import SceneConfig
from vag_policy.robots.yam_sim import VIEWS, Sim, SimConfig, from_metres, to_metres

OUTSTRETCHED = np.tile([0.0, 3.1, 3.1, 0.0, 0.0, 0.0, 0.3], 2)


@pytest.fixture(scope="module")
def sim():
    sim = Sim(SimConfig(width=160, height=120))
    yield sim
    sim.close()


def test_a_state_that_was_seen_elsewhere_can_be_shown():
    small = SimConfig(width=160, height=120)
    seen, shown = Sim(small), Sim(small)
    seen.reset(5)
    pose = yam.POSES["home"] + 0.05
    pose[list(yam.GRIPPER_INDICES)] = (0.3, 0.8)
    seen.step(pose, 400)
    shown.reset(8)
    shown.place(seen.joint_positions(), seen.object_poses())
    np.testing.assert_allclose(shown.joint_positions(), seen.joint_positions(), atol=1e-9)
    for name, item in seen.object_poses().items():
        np.testing.assert_array_equal(shown.object_poses()[name], item)
    assert (shown.render("overview") != seen.render("overview")).any(axis=2).mean() < 0.005
    shown.place(yam.POSES["rest"], {})
    np.testing.assert_allclose(shown.joint_positions(), yam.POSES["rest"], atol=1e-9)
    with pytest.raises(ValueError, match="no item 'red_ball'; this scene has: blue_bowl"):
        shown.place(pose, {"red_ball": np.zeros(7)})
    seen.close()
    shown.close()


def test_a_seed_gives_the_same_world_to_the_last_bit(sim):
    sim.reset(5)
    poses, pictures = sim.object_poses(), [sim.render(view) for view in VIEWS]
    instruction = sim.instruction
    sim.step(OUTSTRETCHED, 50)
    sim.reset(6)
    other, other_picture = sim.object_poses(), sim.render("top")
    assert sim.reset(5) == instruction
    for name, pose in sim.object_poses().items():
        np.testing.assert_array_equal(pose, poses[name])
        assert np.abs(pose[:2] - other[name][:2]).max() > 1e-3
    for view, picture in zip(VIEWS, pictures, strict=True):
        np.testing.assert_array_equal(sim.render(view), picture)
    assert (other_picture != pictures[0]).any(axis=2).mean() > 0.01


def test_two_simulators_run_alike():
    a, b = Sim(SimConfig()), Sim(SimConfig())
    for world in (a, b):
        world.reset(2)
        world.step(OUTSTRETCHED, 200)
    np.testing.assert_array_equal(a.data.qpos, b.data.qpos)


def test_reset_counts_scenes_and_time_never_goes_back(sim):
    sim.reset(1)
    scene, now = sim.scene, sim.time_ns
    sim.step(yam.POSES["rest"], 5)
    assert sim.time_ns == now + 5 * sim.config.timestep_ns
    sim.reset(1)
    assert (sim.scene, sim.time_ns) == (scene + 1, now + 5 * sim.config.timestep_ns)


def test_a_refused_reset_leaves_the_scene(sim):
    instruction, scene = sim.reset(4), sim.scene
    with pytest.raises(ValueError, match="no task 'fly' in this scene"):
        sim.reset(5, "fly")
    assert (sim.instruction, sim.scene, sim.seed) == (instruction, scene, 4)
    assert sim.reset(4, "put the red cube in the wooden tray") == "put the red cube in the wooden tray"


def test_it_starts_at_rest_and_items_lie_still(sim):
    sim.reset(0)
    np.testing.assert_allclose(sim.joint_positions(), yam.POSES["rest"], atol=1e-9)
    before = sim.object_poses()
    sim.step(yam.POSES["rest"], 500)
    np.testing.assert_allclose(sim.joint_positions(), yam.POSES["rest"], atol=2e-3)
    for name, pose in sim.object_poses().items():
        np.testing.assert_allclose(pose[:3], before[name][:3], atol=1e-3, err_msg=name)
    assert not sim.success()


def test_an_outstretched_arm_is_held_without_drift(sim):
    """15 Nm hang on joint 2: gravity is carried within the motor's torque, and the error stays small."""
    sim.reset(0)
    sim.step(OUTSTRETCHED, 1500)
    first = sim.joint_positions()
    sim.step(OUTSTRETCHED, 1000)
    np.testing.assert_allclose(sim.joint_positions(), OUTSTRETCHED, atol=0.012)  # kp 10 against friction .1 Nm
    np.testing.assert_allclose(sim.joint_positions(), first, atol=1e-3)
    assert np.abs(sim.joint_positions() - OUTSTRETCHED).max() <= np.abs(first - OUTSTRETCHED).max()
    effort = dict(zip(yam.JOINT_NAMES, sim.joint_state().effort, strict=True))
    assert 12.0 < abs(effort["left_joint2"]) < 17.0
    assert 5.0 < abs(effort["left_joint3"]) < 8.0


def test_the_motors_torque_is_the_limit():
    sim = Sim(SimConfig())
    peaks = np.array([*(joint.motor.peak for joint in yam.ARM_JOINTS), yam.FINGER_FORCE] * 2)
    worst = np.zeros(14)
    for target in (OUTSTRETCHED, yam.POSES["rest"]):
        for _ in range(100):
            sim.step(target, 2)
            worst = np.maximum(worst, np.abs(sim.joint_state().effort))
    assert (worst <= peaks + 1e-9).all()
    assert worst[1] == pytest.approx(27.0), "a jump of 3 rad takes all that the motor has"
    # with 10 Nm the same arm cannot be held: gravity compensation has no torque of its own
    sim.model.jnt_actfrcrange[sim.model.joint("left_joint2").id] = (-10.0, 10.0)
    sim.reset(0)
    start = OUTSTRETCHED.copy()
    sim.data.qpos[sim._qpos] = to_metres(start)
    sim.step(start, 500)
    assert abs(start[1] - sim.joint_positions()[1]) > 0.03
    assert abs(start[8] - sim.joint_positions()[8]) < 0.01


def test_joint_states_report_metres_and_positions_openings(sim):
    sim.reset(0)
    target = yam.POSES["rest"].copy()
    target[[6, 13]] = 0.5, 0.0
    sim.step(target, 1000)
    np.testing.assert_allclose(sim.joint_state().position[[6, 13]], [0.02375, 0.0], atol=2e-4)
    np.testing.assert_allclose(sim.joint_positions()[[6, 13]], [0.5, 0.0], atol=5e-3)
    for name in ("left_joint7", "right_joint7"):
        follower = sim.data.joint(f"{name}_mimic").qpos[0]
        assert follower == pytest.approx(sim.data.joint(name).qpos[0], abs=2e-4)
    np.testing.assert_allclose(to_metres(from_metres(sim.joint_state().position))[6], 0.02375, atol=2e-4)


@pytest.mark.parametrize("targets", [np.zeros(13), np.full(14, np.nan), np.array([np.inf] + [0.0] * 13)])
def test_targets_that_are_no_targets_are_refused(sim, targets):
    sim.reset(0)
    with pytest.raises(ValueError, match="targets must be 14 finite numbers"):
        sim.step(targets, 1)


def camera_pixel(sim: Sim, name: str, point: np.ndarray) -> np.ndarray:
    """Where a camera should see a world point, by the tree's frames and the camera's intrinsics alone."""
    camera = sim.config.rig.camera(name)
    positions = dict(zip(yam.JOINT_NAMES, sim.joint_state().position, strict=True))
    optical = rig_tree(sim.config.rig).poses(positions)[camera.optical_frame]
    ray = camera.intrinsics(sim.config.width, sim.config.height) @ (optical[:3, :3].T @ (point - optical[:3, 3]))
    return ray[:2] / ray[2]


def check_sight(sim: Sim, camera: str) -> None:
    """The yellow cube's outline in a picture is the outline of its projected corners."""
    picture = sim.render(camera).astype(int)
    red, green, blue = np.moveaxis(picture, 2, 0)
    rows, columns = np.nonzero((red > 90) & (green > 0.7 * red) & (blue < 0.35 * red))
    corners = np.array([(x, y, z) for x in (-0.022, 0.022) for y in (-0.022, 0.022) for z in (0.0, 0.044)])
    cube = sim.data.body("yellow_cube")
    pixels = np.array([camera_pixel(sim, camera, cube.xpos + cube.xmat.reshape(3, 3) @ c) for c in corners])
    expected = np.clip([pixels.min(axis=0), pixels.max(axis=0)], 0, [sim.config.width - 1, sim.config.height - 1])
    seen = np.array([[columns.min(), rows.min()], [columns.max(), rows.max()]])
    np.testing.assert_allclose(seen, expected, atol=1.5)  # a corner's tip covers no pixel's centre
    np.testing.assert_allclose(seen.mean(axis=0), expected.mean(axis=0), atol=0.6)


@pytest.mark.parametrize("spacing", [0.61, 0.80])
def test_pictures_show_an_object_where_the_optical_frames_say(spacing):
    scene = SceneConfig(objects=("yellow_cube",), containers=("wooden_tray",))
    sim = Sim(SimConfig(rig=RigGeometry(spacing=spacing), scene=scene))
    for seed in (0, 1):
        sim.reset(seed)
        check_sight(sim, "top")
        cube = sim.object_poses()["yellow_cube"]
        arm = scene.arms_reaching(sim.config.rig, *cube[:2])[0]
        script = Script(sim, arm)
        script.move((*cube[:2], 0.15), 0.3, 1.5)
        script.hold(0.3)
        check_sight(sim, f"{arm}_wrist")
    sim.close()


def test_objects_keep_their_colours_in_small_pictures():
    """At 84x63, about what the smallest policy sees, the task's object still has its own hue."""
    sim = Sim(SimConfig(width=84, height=63))
    names = ("red", "green", "blue", "yellow", "purple")
    hues = {name: np.array(SCENE_COLOURS[name]) / np.linalg.norm(SCENE_COLOURS[name]) for name in names}
    for seed in range(12):
        sim.reset(seed)
        item = sim.config.scene.find_task(sim.instruction).item
        top = sim.object_poses()[item.name][:3] + [0.0, 0.0, item.height]
        column, row = np.rint(camera_pixel(sim, "top", top)).astype(int)
        pixel = sim.render("top")[row, column].astype(float)
        nearest = max(hues, key=lambda name: pixel @ hues[name] / np.linalg.norm(pixel))
        assert nearest == item.words.split()[0], (seed, pixel)
    sim.close()


def test_a_frame_is_of_one_instant_however_late_it_is_drawn(sim):
    sim.reset(0)
    sim.capture()
    now = sim.render("overview")
    sim.capture()
    sim.step(OUTSTRETCHED, 300)
    late = [sim.draw(camera) for camera in ("top", "left_wrist")]
    sim.reset(0)
    np.testing.assert_array_equal(late, [sim.render(camera) for camera in ("top", "left_wrist")])
    np.testing.assert_array_equal(now, sim.render("overview"))


@pytest.mark.parametrize("seed,arm", [(0, "right"), (3, "left")])
def test_a_scripted_arm_can_do_the_task(seed, arm):
    sim = Sim(SimConfig())
    sim.reset(seed)
    assert not sim.success()
    lifted = pick_and_place(sim, arm)
    assert lifted > 0.08, "the object must be carried, not pushed"
    assert sim.success()
    assert sim.task_state().success
    sim.reset(seed)
    assert not sim.success()


def test_success_needs_rest_release_and_the_right_place(sim):
    sim.reset(0, "put the red cube in the blue bowl")
    bowl = sim.object_poses()["blue_bowl"]
    cube = sim.data.joint("red_cube")
    cube.qpos[:3] = bowl[:3] + [0, 0, 0.01]
    sim.step(yam.POSES["rest"], 300)
    assert sim.success()
    cube.qvel[:3] = [0, 0, 0.5]
    assert not sim.success(), "it is moving"
    cube.qvel[:3] = 0
    sim.reset(0, "put the green cube in the blue bowl")
    sim.data.joint("red_cube").qpos[:3] = sim.object_poses()["blue_bowl"][:3] + [0, 0, 0.01]
    sim.step(yam.POSES["rest"], 300)
    assert not sim.success(), "that is another cube"
    assert sim.task_state().object_names == tuple(sim.object_poses())


def test_success_needs_the_gripper_to_let_go():
    scene = SceneConfig(objects=("red_cube",), containers=("green_plate",))
    sim = Sim(SimConfig(scene=scene))
    sim.reset(0)
    cube, plate = sim.object_poses()["red_cube"], sim.object_poses()["green_plate"]
    arm = (
        set(scene.arms_reaching(sim.config.rig, *cube[:2])) & set(scene.arms_reaching(sim.config.rig, *plate[:2]))
    ).pop()
    script, yaw = Script(sim, arm), 2 * np.arctan2(cube[6], cube[3])
    for place, height, seconds in ((cube, 0.14, 1.5), (cube, 0.018, 0.9)):
        script.move((*place[:2], height), yaw, seconds)
    script.grip(0.0)
    for place, height, seconds in ((cube, 0.14, 0.9), (plate, 0.14, 1.5), (plate, 0.028, 0.9)):
        script.move((*place[:2], height), yaw, seconds)
    script.hold(0.5)
    held = sim.object_poses()["red_cube"]
    assert np.linalg.norm(held[:2] - plate[:2]) < 0.02
    assert not sim.success(), "it is over the plate, but held"
    script.grip(0.8)
    script.move((*plate[:2], 0.14), yaw, 0.9)
    assert sim.success()


def test_pictures_belong_to_one_thread(sim):
    sim.render("top")
    caught = []

    def other() -> None:
        try:
            sim.render("top")
        except RuntimeError as error:
            caught.append(str(error))

    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    assert caught == ["a renderer may be used only by the thread that made it"]


def test_unknown_cameras_and_bad_configurations_are_named(sim):
    with pytest.raises(
        ValueError, match="no camera 'front'; the simulator has: top, left_wrist, right_wrist, overview"
    ):
        sim.render("front")
    with pytest.raises(ValueError, match="no start pose 'up'; there are: rest, home"):
        SimConfig(start_pose="up")
    with pytest.raises(ValueError, match="image size is 8x240; allowed: 16x16 to 1280x960"):
        SimConfig(width=8)
    with pytest.raises(ValueError, match="timestep is 10 ns; allowed"):
        SimConfig(timestep_ns=10)


def test_a_forgotten_close_is_quiet():
    script = "from vag_policy.robots.yam_sim import Sim; print(Sim().render('top').shape)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "(240, 320, 3)\n", "")


def test_opengl_is_chosen_once(monkeypatch):
    chosen = {"MUJOCO_GL": "osmesa"}
    assert gl.choose(chosen) == "osmesa", "the user's word counts"
    monkeypatch.setattr(gl, "_egl_works", lambda: True)
    assert gl.choose(fresh := {}) == "egl" == fresh["MUJOCO_GL"]
    monkeypatch.setattr(gl, "_egl_works", lambda: False)
    monkeypatch.setattr(gl, "_loads", lambda *names: object())
    assert gl.choose({}) == "osmesa"
    monkeypatch.setattr(gl, "_loads", lambda *names: None)
    assert gl.choose({}) == "disable"


def test_without_opengl_physics_runs_and_pictures_say_what_to_install():
    script = """
from vag_policy.robots.yam_sim import Sim
sim = Sim()
sim.step(sim.joint_positions(), 3)
try:
    sim.render("top")
except RuntimeError as error:
    print(error)
"""
    environment = {**os.environ, "MUJOCO_GL": "disable"}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, env=environment)
    assert (done.returncode, done.stderr) == (0, "")
    assert "no headless OpenGL" in done.stdout and "apt-get install -y libegl1" in done.stdout
