"""The scripted expert: its kinematics, its smooth courses, its manners, and that it does the tasks."""

import numpy as np
import pytest

from vag_policy.execution.motion import advance, at_rest
from vag_policy.execution.rig import Rig
from vag_policy.expert.course import ARM_SPEED, GRIPPER_SPEED, Course, progress
from vag_policy.expert.demonstrator import PHASES, GiveUpError
from vag_policy.expert.episode import FPS, demonstrate
from vag_policy.expert.kinematics import Kinematics, UnreachableError
from vag_policy.expert.noise import Deviation, SmoothNoise
from vag_policy.expert.scene_view import grasp_yaw, working_arm
from vag_policy.expert.style import MISTAKES, PLAIN, STARTS, Style, Variety
from vag_policy.robots import yam
from vag_policy.robots.yam_items import OBJECTS
from vag_policy.robots.yam_rig import RigGeometry
from vag_policy.robots.yam_sim import Sim, SimConfig

SEED = 100_000


@pytest.fixture(scope="module")
def sim():
    return Sim()


@pytest.fixture(scope="module")
def kinematics(sim):
    return Kinematics(sim.config.rig)


# --- kinematics


@pytest.mark.parametrize("spacing", [0.61, 0.80])
@pytest.mark.parametrize("arm", yam.ARMS)
def test_the_gripper_points_down_where_it_should(arm, spacing):
    rig = RigGeometry(spacing=spacing)
    solver = Kinematics(rig)
    for offset, yaw in (((0.2, 0.1, 0.02), 0.3), ((0.35, -0.05, 0.125), -0.4), ((0.3, 0.0, 0.05), 0.0)):
        target = np.add(rig.base_xyz(arm), offset)
        pose = yam.forward_kinematics(solver.solve(arm, target, yaw))
        assert np.allclose(pose[:3, 3] + rig.base_xyz(arm), target, atol=3e-4)
        assert np.allclose(pose[:3, 0], (0, 0, -1), atol=3e-3)  # x of the tool: down
        assert np.allclose(pose[:3, 1], (-np.sin(yaw), np.cos(yaw), 0), atol=3e-3)  # y: where the fingers close


def test_what_is_out_of_reach_is_said(kinematics):
    with pytest.raises(UnreachableError, match=r"the left arm cannot point its gripper down at \(0.9, 0.0, 0.1\) m"):
        kinematics.solve("left", (0.9, 0.0, 0.1), 0.0)


# --- courses


def test_progress_is_the_integral_of_smooth_ramps():
    for ramp in (0.15, 0.35, 0.5):
        x = np.linspace(0, 1, 2001)
        u = np.minimum(np.minimum(x, 1 - x) / ramp, 1)
        speed = (3 * u**2 - 2 * u**3) / (1 - ramp)
        integral = np.concatenate([[0], np.cumsum((speed[1:] + speed[:-1]) / 2 * np.diff(x))])
        assert np.allclose([progress(value, ramp) for value in x], integral, atol=1e-6)
    assert progress(-1.0, 0.35) == 0.0 and progress(2.0, 0.35) == 1.0


def a_course():
    course = Course(yam.REST, pace=0.9)
    course.move("out", [0.5, 1.5, 1.4, -1.4, 0.0, 0.3])
    course.move("down", [0.5, 1.7, 1.5, -1.4, 0.0, 0.3])
    course.grip("close", 0.0)
    course.move("up", [0.5, 1.5, 1.4, -1.4, 0.0, 0.3])
    course.move("away", [-0.5, 1.2, 1.4, -1.2, 0.0, 0.0])
    return course


def test_a_course_is_smooth_fast_enough_and_never_too_fast():
    course, dt = a_course(), 1e-3
    path = np.array([course.at(time) for time in np.arange(0, course.end + 0.1, dt)])
    speed = np.diff(path, axis=0) / dt
    assert (np.abs(speed).max(axis=0) <= np.append(0.9 * ARM_SPEED, GRIPPER_SPEED) + 1e-9).all()
    assert np.abs(speed).max() > 0.89 * ARM_SPEED.max()  # the joint that takes longest uses what it may
    assert np.abs(np.diff(speed, axis=0) / dt).max() < 15.0  # rad/s2
    assert np.allclose(path[0], yam.REST) and np.allclose(path[-1], course.goal)


def test_via_points_are_passed_without_a_stop_but_a_grip_is_waited_for():
    course, dt = a_course(), 1e-3
    times = np.arange(0, course.end, dt)
    speed = np.abs(np.diff([course.at(time)[:6] for time in times], axis=0)).max(axis=1) / dt
    phases = np.array([course.phase(time) for time in times[1:]])
    begun = np.argmax(phases == "down")
    assert speed[begun - 20 : begun + 200].min() > 0.1
    assert speed[phases == "close"].min() < 1e-9
    assert list(dict.fromkeys(phases)) == ["out", "down", "close", "up", "away"]


def test_a_course_without_strokes_has_no_phase():
    with pytest.raises(ValueError, match="no phases"):
        Course(yam.REST).phase(0.0)


# --- noise and style


def test_noise_is_as_large_as_asked_slow_and_fades():
    noise = SmoothNoise(0.04, 1 / FPS, np.random.default_rng(0))
    values = np.array([noise.step(1.0) for _ in range(20_000)])
    assert 0.02 < values.std() < 0.05 and abs(values.mean()) < 0.002
    assert np.abs(np.diff(values, axis=0)).max() * FPS < 0.8  # rad/s
    faded = [np.abs(noise.step(0.0)).max() for _ in range(60)]
    assert faded[0] > 1e-3 and faded[-1] < 1e-4


def test_a_deviation_comes_in_smoothly():
    deviation = Deviation(np.array([0.1] * 6), 1.0, 2.0)
    assert [deviation.at(time)[0] for time in (0.5, 1.5, 3.0)] == pytest.approx([0.0, 0.05, 0.1])


def test_variety_draws_what_it_says():
    variety = Variety()
    styles = [variety.draw(np.random.default_rng(seed)) for seed in range(2000)]

    def share(test):
        return np.mean([test(style) for style in styles])

    assert share(lambda s: s.noise > 0) == pytest.approx(variety.noisy, abs=0.04)
    assert share(lambda s: s.mistake.startswith("miss")) == pytest.approx(variety.misses, abs=0.04)
    assert share(lambda s: s.mistake == "drop") == pytest.approx(variety.drops, abs=0.02)
    assert share(lambda s: s.start != "rest") == pytest.approx(variety.elsewhere, abs=0.03)
    assert {s.mistake for s in styles} == set(MISTAKES) and {s.start for s in styles} == set(STARTS)
    assert all(PLAIN.draw(np.random.default_rng(seed)).noise == 0 for seed in range(20))


@pytest.mark.parametrize("wrong", [{"pace": 2.0}, {"noise": 1.0}, {"mistake": "sneeze"}, {"start": "bed"}])
def test_unknown_styles_are_refused(wrong):
    with pytest.raises(ValueError, match=str(next(iter(wrong.values())))):
        Style(**wrong)


# --- what is seen


def test_a_cube_is_grasped_by_the_faces_nearest_to_the_hand():
    cube = OBJECTS[0]
    for yaw in np.linspace(-3, 3, 25):
        turned = grasp_yaw(cube, yam.axis_angle((0, 0, 1), yaw), natural=0.2)
        assert abs(turned - 0.2) <= np.pi / 4 + 1e-9
        assert np.isclose(np.sin(2 * (turned - yaw)) ** 2, 0.0, atol=1e-9)  # a whole number of quarter turns
    assert grasp_yaw(cube, yam.axis_angle((1, 0, 0), np.pi / 2), 0.2) is not None  # on another face
    assert grasp_yaw(cube, yam.axis_angle((1, 0, 0), 0.6), 0.2) is None  # leaning
    can = next(item for item in OBJECTS if item.name == "purple_can")
    assert grasp_yaw(can, np.eye(3), 0.2) == 0.2
    assert grasp_yaw(can, yam.axis_angle((1, 0, 0), np.pi / 2), 0.2) is None


def test_the_nearer_arm_works_if_it_reaches_both(sim):
    scene, rig = sim.config.scene, sim.config.rig
    for seed in range(SEED, SEED + 200):
        sim.reset(seed)
        task, poses = scene.find_task(sim.instruction), sim.object_poses()
        arm = working_arm(sim, task)
        for item in (task.item, task.container):
            assert arm in scene.arms_reaching(rig, *poses[item.name][:2])
        x, y = poses[task.item.name][:2]
        far = {name: np.hypot(x, y - rig.base_xyz(name)[1]) for name in yam.ARMS}
        other = next(name for name in yam.ARMS if name != arm)
        both = all(other in scene.arms_reaching(rig, *poses[item.name][:2]) for item in (task.item, task.container))
        assert far[arm] <= far[other] or not both


# --- whole demonstrations


def perform(sim, kinematics, seed, style, task=""):
    frames = list(demonstrate(sim, kinematics, seed, task, style))
    return (
        np.array([frame.state for frame in frames]),
        np.array([frame.action for frame in frames]),
        [frame.phase for frame in frames],
        np.array([frame.imitate for frame in frames]),
    )


@pytest.fixture(scope="module")
def plain(sim, kinematics):
    found = perform(sim, kinematics, SEED, Style())
    assert sim.success()
    return found


def test_a_plain_demonstration(sim, plain):
    state, action, phases, imitate = plain
    assert 6.0 <= len(phases) / FPS <= 10.0
    assert tuple(dict.fromkeys(phases)) == PHASES
    assert imitate.all()
    start = yam.POSES["rest"]
    assert np.allclose(state[0], start, atol=0.02) and np.allclose(action[0], start, atol=0.02)
    moved = np.ptp(action, axis=0) > 1e-6
    assert moved[:6].any() != moved[7:13].any()  # one arm works, the other stays where it is
    assert np.ptp(state, axis=0)[~moved].max() < 0.02
    assert (action >= yam.LOWER - 1e-6).all() and (action <= yam.UPPER + 1e-6).all()


def test_the_command_node_follows_a_demonstration_without_clamping(plain):
    state, action, *_ = plain
    limits = Rig(velocity=yam.COMMAND_VELOCITY).limits
    motion, step_ns = at_rest(action[0].astype(float)), 10_000_000
    times, clamped = np.arange(len(action)) / FPS, dict.fromkeys(("finite", "position", "lead"), 0)
    for now in np.arange(0.0, times[-1], step_ns * 1e-9):
        target = np.array([np.interp(now, times, column) for column in action.T])
        measured = np.array([np.interp(now, times, column) for column in state.T])
        step = advance(motion, target, measured, step_ns, limits, 40_000_000)
        motion = step.motion
        for kind in clamped:
            clamped[kind] += int(step.clamped[kind].sum())
        assert np.abs(motion.position - target)[~Rig().grippers].max() < 0.01
    assert not any(clamped.values()), clamped


def test_replayed_actions_do_the_task(sim, plain):
    _, action, *_ = plain
    sim.reset(SEED)
    step_ns = sim.config.timestep_ns
    for index in range(len(action) - 1):
        for part in range(3):
            target = action[index] + (action[index + 1] - action[index]) * part / 3
            end_ns = round((3 * index + part + 1) * 1e9 / FPS / 3)
            begin_ns = round((3 * index + part) * 1e9 / FPS / 3)
            sim.step(target, round(end_ns / step_ns) - round(begin_ns / step_ns))
    assert sim.success()


STYLES = [
    Style(noise=0.04),
    Style(mistake="miss_side"),
    Style(mistake="miss_high", noise=0.02),
    Style(mistake="drop"),
    Style(start="home", pace=0.85),
    Style(start="other_home"),
    Style(start="working_home"),
]


@pytest.mark.parametrize("style", STYLES, ids=lambda s: f"{s.mistake}-{s.start}-{s.noise}")
def test_every_manner_succeeds(sim, kinematics, plain, style):
    state, action, phases, imitate = perform(sim, kinematics, SEED + 4, style)
    assert sim.success()
    assert imitate.all() == (style.mistake == "none")
    tries = sum(a != "grasp" and b == "grasp" for a, b in zip(phases, phases[1:], strict=False))
    assert tries == (1 if style.mistake == "none" else 2)
    started = np.ptp(np.abs(state[0] - yam.POSES["rest"])) > 0.5
    assert started == (style.start != "rest")
    good = imitate[1:] & imitate[:-1]
    speed = np.abs(np.diff(action, axis=0))[good] * FPS
    assert speed.max() < yam.COMMAND_VELOCITY  # labels are free of noise and jumps
    assert np.abs(np.diff(action, n=2, axis=0)).max() < 0.03 or style.mistake != "none"


def test_noise_moves_the_arm_but_not_the_labels(sim, kinematics):
    clean_state, clean_action, *_ = perform(sim, kinematics, SEED + 2, Style())
    noisy_state, noisy_action, *_ = perform(sim, kinematics, SEED + 2, Style(noise=0.05))
    early = slice(0, 40)  # before the first decision that depends on where the arm is
    assert np.allclose(clean_action[early], noisy_action[early], atol=1e-6)
    assert np.abs(clean_state[early] - noisy_state[early]).max() > 0.02


def test_the_same_seed_gives_the_same_demonstration(sim, kinematics):
    first = perform(sim, kinematics, SEED + 6, Style(noise=0.03))
    second = perform(sim, kinematics, SEED + 6, Style(noise=0.03))
    assert np.array_equal(first[0], second[0]) and np.array_equal(first[1], second[1])


def test_every_task_can_be_asked_for(sim, kinematics):
    """One scene, every object and every container at least once."""
    wanted = [
        "put the yellow cube in the wooden tray",
        "put the purple can on the green plate",
        "put the blue cube in the blue bowl",
    ]
    for offset, text in enumerate(wanted):
        perform(sim, kinematics, SEED + 20 + offset, Style(), text)
        assert sim.instruction == text and sim.success()


def test_an_object_that_cannot_be_had_is_given_up(sim, kinematics):
    frames = demonstrate(sim, kinematics, SEED, "", Style())
    next(frames)
    item = sim.config.scene.find_task(sim.instruction).item.name
    address = sim.model.joint(item).qposadr[0]
    sim.data.qpos[address : address + 3] = (0.3, 2.0, -0.7)  # fell off the table
    with pytest.raises(GiveUpError, match="cannot point its gripper down"):
        list(frames)


def test_a_simulator_that_starts_elsewhere_is_refused(kinematics):
    with pytest.raises(ValueError, match="from a simulator at rest, not at home"):
        next(demonstrate(Sim(SimConfig(start_pose="home")), kinematics, SEED))
