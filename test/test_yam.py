import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.linalg import expm

from vag_policy.robots import yam
from vag_policy.robots.yam_rig import CAMERA_NAMES, RigGeometry

RNG = np.random.default_rng(0)


def random_joints() -> np.ndarray:
    return RNG.uniform(yam.LOWER[:6], yam.UPPER[:6])


def product_of_exponentials(q: np.ndarray) -> np.ndarray:
    """An independent formulation: screws in the base frame at zero, in which all frames are parallel."""
    pose, place = np.eye(4), np.zeros(3)
    for joint, angle in zip(yam.ARM_JOINTS, q, strict=True):
        place = place + joint.origin
        axis = np.array(joint.axis, float)
        screw = np.zeros((4, 4))
        screw[:3, :3] = np.cross(axis, np.eye(3)).T
        screw[:3, 3] = -np.cross(axis, place)
        pose = pose @ expm(screw * angle)
    zero = np.eye(4)
    zero[:3, 3] = place + [yam.TCP_OFFSET, 0, 0]
    return pose @ zero


def test_names_are_in_the_order_of_states_and_actions():
    assert tuple(f"{arm}_joint{n}" for arm in ("left", "right") for n in range(1, 8)) == yam.JOINT_NAMES
    assert yam.GRIPPER_INDICES == (6, 13)
    assert CAMERA_NAMES == ("top", "left_wrist", "right_wrist")
    with pytest.raises(ValueError, match="no arm 'middle'; the rig has: left, right"):
        yam.arm_joint_names("middle")


def test_forward_kinematics_equals_the_product_of_exponentials():
    for _ in range(50):
        q = random_joints()
        np.testing.assert_allclose(yam.forward_kinematics(q), product_of_exponentials(q), atol=1e-12)


def test_forward_kinematics_of_poses_worked_out_by_hand():
    zero = yam.forward_kinematics(np.zeros(6))
    np.testing.assert_allclose(zero[:3, 3], [0.02 - 0.264 + 0.245 + 0.074 + 0.0356 + 0.14465, 0, 0.1735], atol=1e-12)
    np.testing.assert_allclose(zero[:3, :3], np.eye(3), atol=1e-12)
    # the home pose lifts the upper arm by 60 degrees and leaves forearm and gripper level
    home = yam.forward_kinematics([0, math.pi / 3, math.pi / 3, 0, 0, 0])
    x = 0.02 - 0.264 * 0.5 + 0.245 + 0.074 + 0.0356 + 0.14465
    np.testing.assert_allclose(home[:3, 3], [x, 0, 0.1135 + 0.264 * math.sqrt(3) / 2 + 0.06], atol=1e-12)
    np.testing.assert_allclose(home[:3, :3], np.eye(3), atol=1e-12)
    # joint 1 turns the whole arm to the left
    turned = yam.forward_kinematics([math.pi / 2, 0, 0, 0, 0, 0])
    np.testing.assert_allclose(turned[:3, 3], [0, zero[0, 3], zero[2, 3]], atol=1e-12)


def test_jacobian_equals_finite_differences():
    for _ in range(10):
        q, step = random_joints(), 1e-6
        numeric = np.empty((6, 6))
        for index in range(6):
            ahead, behind = q.copy(), q.copy()
            ahead[index] += step
            behind[index] -= step
            a, b = yam.forward_kinematics(ahead), yam.forward_kinematics(behind)
            turn = (a[:3, :3] - b[:3, :3]) / (2 * step) @ yam.forward_kinematics(q)[:3, :3].T
            numeric[:3, index] = (a[:3, 3] - b[:3, 3]) / (2 * step)
            numeric[3:, index] = turn[2, 1], turn[0, 2], turn[1, 0]
        np.testing.assert_allclose(yam.jacobian(q), numeric, atol=1e-7)


@pytest.mark.parametrize("q", [np.zeros(5), np.array([0, 0, math.nan, 0, 0, 0])])
def test_kinematics_refuses_what_is_no_arm(q):
    with pytest.raises(ValueError, match="six|6 finite"):
        yam.forward_kinematics(q)


def test_gripper_one_is_open():
    assert yam.gripper_to_metres(1.0) == pytest.approx(0.0475)
    assert yam.gripper_to_metres(0.0) == 0.0
    assert yam.gripper_from_metres(0.0475) == pytest.approx(1.0)
    np.testing.assert_allclose(yam.gripper_to_metres([-1, 0.5, 2]), [0, 0.02375, 0.0475])
    np.testing.assert_allclose(yam.gripper_from_metres([-0.01, 0.02375, 1]), [0, 0.5, 1])
    assert yam.gripper_to_metres(0.5, stroke=0.04) == pytest.approx(0.02)


@given(st.floats(0, 1))
def test_gripper_round_trip(opening):
    assert yam.gripper_from_metres(yam.gripper_to_metres(opening)) == pytest.approx(opening, abs=1e-12)


def test_poses_are_within_limits_and_constants_cannot_be_changed():
    for name, pose in yam.POSES.items():
        assert pose.shape == (14,), name
        assert (pose >= yam.LOWER).all(), name
        assert (pose <= yam.UPPER).all(), name
    with pytest.raises(ValueError, match="read-only"):
        yam.LOWER[0] = 1.0


def test_command_bounds_are_in_a_drivers_units():
    lower, upper, velocity = yam.command_bounds()
    assert set(lower) == set(upper) == set(velocity) == set(yam.JOINT_NAMES)
    assert (lower["right_joint1"], upper["right_joint1"]) == (-2.61799, 3.14159)
    assert upper["left_joint7"] == yam.STROKE
    assert velocity["left_joint7"] == pytest.approx(yam.STROKE / 1.0)
    assert all(velocity[name] <= yam.DM4340.velocity for name in velocity)


@pytest.mark.parametrize("spacing", [0.61, 0.62, 0.80])
def test_bases_are_spacing_apart_and_the_top_camera_is_midway(spacing):
    rig = RigGeometry(spacing=spacing)
    left, right = np.array(rig.base_xyz("left")), np.array(rig.base_xyz("right"))
    np.testing.assert_allclose(right - left, [0, -spacing, 0])
    np.testing.assert_allclose(np.array(rig.camera("top").xyz) - left, [-0.166, -spacing / 2, 0.954])


def test_rig_refuses_nonsense_and_says_what_is_allowed():
    with pytest.raises(ValueError, match=r"spacing is 61 m; allowed: 0.3 to 1.5 m \(rigs in use: 0.61, 0.62, 0.80\)"):
        RigGeometry(spacing=61)
    with pytest.raises(ValueError, match="spacing is nan"):
        RigGeometry(spacing=math.nan)
    with pytest.raises(ValueError, match="no camera 'wrist'; the rig has: top, left_wrist, right_wrist"):
        RigGeometry().camera("wrist")
    with pytest.raises(ValueError, match="wrist_fovy is 58"):
        RigGeometry(wrist_fovy=58)


def test_intrinsics_give_the_field_of_view_back():
    camera = RigGeometry().camera("left_wrist")
    k = camera.intrinsics(640, 480)
    assert 2 * math.atan(240 / k[1, 1]) == pytest.approx(math.radians(58))
    assert k[0, 0] == k[1, 1]
    assert (k[0, 2], k[1, 2]) == (319.5, 239.5)
