"""Pointing at where a hand will be, against MuJoCo's own camera."""

from __future__ import annotations

import math

import numpy as np
import pytest

from vag_policy.robots import yam
from vag_policy.robots.yam_pointing import NOWHERE, Pointer
from vag_policy.robots.yam_rig import RigGeometry
from vag_policy.robots.yam_sim import Sim, SimConfig

TILE = (96, 64)
WORKING = {"left": (-0.2, 1.4, 1.2, -0.4, 0.1, 0.3, 1.0), "right": (0.3, 1.5, 1.3, -0.5, 0.0, 0.0, 1.0)}


@pytest.fixture(scope="module")
def sim():
    return Sim(SimConfig())


@pytest.mark.parametrize("arm", yam.ARMS)
def test_the_pixel_is_where_the_simulators_camera_sees_the_fingertips(sim, arm):
    start = yam.POSES["rest"]
    goal = start.copy()
    begin = yam.JOINT_NAMES.index(yam.arm_joint_names(arm)[0])
    goal[begin : begin + 7] = WORKING[arm]
    sim.place(goal, {})
    camera = sim.data.camera("top")
    # MuJoCo's camera looks along -z, y up; its picture is 4:3 and stretched to the tile.
    x, y, z = camera.xmat.reshape(3, 3).T @ (sim.data.body(f"{arm}_tcp").xpos - camera.xpos)
    focal = 0.5 / math.tan(math.radians(sim.model.camera("top").fovy[0]) / 2)
    expected = (TILE[0] * (0.5 + focal * 3 / 4 * x / -z), TILE[1] * (0.5 - focal * y / -z))
    pointer = Pointer(sim.config.rig, "top", yam.JOINT_NAMES, TILE)
    assert pointer.pixel(start, goal) == pytest.approx(expected, abs=0.02)


def test_the_arm_that_has_farther_to_go_is_meant_and_names_decide_the_order():
    start = np.array(yam.POSES["rest"])
    goal = start.copy()
    goal[:7], goal[7:14] = WORKING["left"], start[7:14] + 0.01
    names = yam.JOINT_NAMES
    there = Pointer(RigGeometry(), "top", names, TILE).pixel(start, goal)
    assert there[0] < TILE[0] / 2  # the left arm stands on the picture's left
    order = np.arange(14)[::-1]
    swapped = Pointer(RigGeometry(), "top", [names[i] for i in order], TILE)
    assert swapped.pixel(start[order], goal[order]) == pytest.approx(there)


def test_what_is_not_in_the_picture_is_nowhere():
    start = np.array(yam.POSES["rest"])
    goal = start.copy()
    goal[:6] = (3.0, 1.4, 1.2, 0.0, 0.0, 0.0)  # turned to the back
    assert Pointer(RigGeometry(), "top", yam.JOINT_NAMES, TILE).pixel(start, goal) == NOWHERE


def test_a_moving_or_unknown_camera_and_a_missing_joint_are_refused_by_name():
    with pytest.raises(ValueError, match="camera 'left_wrist' moves with left_link6"):
        Pointer(RigGeometry(), "left_wrist", yam.JOINT_NAMES, TILE)
    with pytest.raises(ValueError, match="no camera 'front'"):
        Pointer(RigGeometry(), "front", yam.JOINT_NAMES, TILE)
    with pytest.raises(ValueError, match="pointing needs joint 'left_joint2'"):
        Pointer(RigGeometry(), "top", [n for n in yam.JOINT_NAMES if n != "left_joint2"], TILE)
