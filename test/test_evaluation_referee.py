"""The referee against the expert's own account of what it does, and against scenes put together by hand."""

import numpy as np
import pytest

from vag_policy.evaluation.referee import PHASES, REASONS, Referee
from vag_policy.expert.episode import demonstrate
from vag_policy.expert.kinematics import Kinematics
from vag_policy.robots import yam
from vag_policy.robots.yam_sim import Sim

MS = 1_000_000
INSTRUCTION = "put the red cube in the blue bowl"
# What the expert calls its strokes, in the referee's words: the paper's four phases.
OF_EXPERT = {
    "approach": "approach",
    "descend": "grasp",
    "grasp": "grasp",
    "lift": "carry",
    "carry": "carry",
    "place": "place",
    "retreat": "retreat",
}


@pytest.fixture(scope="module")
def sim():
    return Sim()


def put(sim, name, xyz):
    """Put an item somewhere, standing still, and let it settle with the arms at rest."""
    address = sim.model.joint(name).qposadr[0]
    sim.data.qpos[address : address + 7] = (*xyz, 1.0, 0.0, 0.0, 0.0)
    sim.data.qvel[:] = 0.0
    sim.step(yam.POSES["rest"], 150)


def above(sim, container, height=0.012):
    return (*sim.object_poses()[container][:2], height)


def judge(sim, *moves, hold_ms=0):
    """What the referee says after items were moved, one after the other."""
    sim.reset(7, INSTRUCTION)
    referee, now = Referee(sim, hold_ms * MS), 0
    referee.look(0)
    for name, place in moves:
        put(sim, name, place if isinstance(place, tuple) else above(sim, place))
        now += 100 * MS
        referee.look(now)
    return referee


ASIDE = (0.55, -0.3, 0.002)


def lift(sim, referee, name, now=50 * MS):
    address = sim.model.joint(name).qposadr[0]
    sim.data.qpos[address + 2] += 0.1
    referee.look(now)


def test_the_referee_sees_the_phases_that_the_expert_goes_through(sim):
    kinematics = Kinematics(sim.config.rig)
    agreed, seen = [], []
    for seed in (100_020, 100_021):
        referee = None
        for frame in demonstrate(sim, kinematics, seed, INSTRUCTION):
            referee = referee or Referee(sim, 300 * MS)
            seen.append(referee.phase())
            agreed.append(seen[-1] == OF_EXPERT[frame.phase])
    assert np.mean(agreed) > 0.85
    assert set(seen) == set(PHASES)
    assert [seen.index(phase) for phase in PHASES] == sorted(seen.index(phase) for phase in PHASES)


def test_success_is_one_that_lasts(sim):
    referee = judge(sim, ("red_cube", "blue_bowl"), hold_ms=300)
    assert sim.success() and not referee.success
    for now in range(200, 400, 50):
        assert not referee.look(now * MS)
    assert referee.look(400 * MS) and referee.verdict().success and referee.verdict().reason == ""


def test_a_moment_out_of_place_starts_the_time_anew(sim):
    referee = judge(sim, ("red_cube", "blue_bowl"), hold_ms=300)
    put(sim, "red_cube", ASIDE)
    referee.look(200 * MS)
    put(sim, "red_cube", above(sim, "blue_bowl"))
    assert not referee.look(300 * MS) and not referee.look(590 * MS) and referee.look(600 * MS)


def test_reasons(sim):
    assert judge(sim).verdict().reason == "never grasped"
    for other, place, reason in (
        ("green_cube", None, "wrong object"),
        ("red_cube", ASIDE, "dropped"),
        ("red_cube", "green_plate", "wrong place"),
    ):
        referee = judge(sim)
        lift(sim, referee, other)
        if place is not None:
            put(sim, other, place if isinstance(place, tuple) else above(sim, place))
        verdict = referee.verdict()
        assert (verdict.success, verdict.reason) == (False, reason)
        assert verdict.lifted == (other == "red_cube")
        assert reason in REASONS


def test_in_place_but_not_for_long_enough_is_a_time_out(sim):
    assert judge(sim, ("red_cube", "blue_bowl"), hold_ms=300).verdict().reason == "time out"
