"""One demonstration from reset to success: the expert drives the simulator at 30 Hz, frame by frame."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vag_policy.expert.course import Course
from vag_policy.expert.demonstrator import Demonstrator, GiveUpError
from vag_policy.expert.kinematics import Kinematics, UnreachableError
from vag_policy.expert.noise import SmoothNoise
from vag_policy.expert.scene_view import arm_slot
from vag_policy.expert.style import Style
from vag_policy.robots import yam
from vag_policy.robots.yam_sim import Sim

VERSION = 1
"""Grows whenever the same seed and style give another demonstration; datasets remember it."""
FPS = 30
LONGEST_S = 20.0
SECOND_NS = 1_000_000_000
_TICK_NS = 10_000_000
_SUBSTEPS = 3  # a command is brought up to date at about 100 Hz, as the command node does

_NOISE_SCALE = {
    "approach": 1.0, "descend": 0.15, "grasp": 0.0, "lift": 0.4, "carry": 1.0, "place": 0.1, "retreat": 0.7,
}  # fmt: skip
"""How much execution noise does no harm, by phase."""


@dataclass(frozen=True, eq=False)
class Frame:
    """One instant of a demonstration.

    Attributes:
        state: (14,) measured joints in ``JOINT_NAMES`` order, rad, grippers 0 (closed) .. 1 (open).
        action: (14,) the joint targets in force at this instant, as the expert wants them: without execution noise.
        phase: of the working arm.
        imitate: False where the expert errs on purpose.
    """

    state: NDArray[np.float32]
    action: NDArray[np.float32]
    phase: str
    imitate: bool


def demonstrate(
    sim: Sim, kinematics: Kinematics, seed: int, task: str = "", style: Style | None = None
) -> Iterator[Frame]:
    """Reset ``sim`` to ``seed`` and do ``task`` (empty: the seed's own), yielding a frame every 1/30 s.

    While a frame is being looked at the simulator stands at its instant, so that pictures can be taken. The iterator
    ends when the task is done; whether it is a success is ``sim.success()``.

    Raises:
        ValueError: a negative seed or an unknown task.
        GiveUpError: the demonstration cannot succeed any more.
    """
    style, rng = style or Style(), np.random.default_rng((seed, 1))
    if sim.config.start_pose != "rest":
        raise ValueError(f"demonstrations start from a simulator at rest, not at {sim.config.start_pose}")
    sim.reset(seed, task)
    try:
        yield from _frames(sim, kinematics, style, rng)
    except UnreachableError as error:
        raise GiveUpError(str(error)) from error


def _frames(sim: Sim, kinematics: Kinematics, style: Style, rng: np.random.Generator) -> Iterator[Frame]:
    demonstrator = Demonstrator(sim, kinematics, style, rng)
    targets = _go_to_start(sim, demonstrator.arm, style.start)
    if style.start != "rest":
        demonstrator = Demonstrator(sim, kinematics, style, rng)
    noise = SmoothNoise(style.noise, 1.0 / FPS, rng)
    start_ns, offset = sim.time_ns, np.zeros(yam.ARM_DOF)
    for index in range(round(LONGEST_S * FPS)):
        time = index / FPS
        demonstrator.decide(time)
        command = demonstrator.command(time)
        targets[demonstrator.slot] = command.label
        state, action = sim.joint_positions().astype(np.float32), targets.astype(np.float32)
        yield Frame(state, action, command.phase, demonstrator.imitate(time))
        if demonstrator.done:
            return
        before, offset = offset, noise.step(_NOISE_SCALE[command.phase])
        for part in range(_SUBSTEPS):
            executed = targets.copy()
            executed[demonstrator.slot] = demonstrator.command((index + part / _SUBSTEPS) / FPS).executed
            executed[demonstrator.slot][: yam.ARM_DOF] += before + (offset - before) * part / _SUBSTEPS
            until_ns = start_ns + round((index * _SUBSTEPS + part + 1) * SECOND_NS / FPS / _SUBSTEPS)
            sim.step(executed, max(1, round((until_ns - sim.time_ns) / sim.config.timestep_ns)))
    raise GiveUpError(f"not done after {LONGEST_S} s")


def _go_to_start(sim: Sim, working: str, start: str) -> NDArray[np.float64]:
    """Drive the arms that do not start at rest to where they start; return the targets (14,)."""
    goal, courses, here = sim.joint_positions(), [], sim.joint_positions()
    for arm in yam.ARMS:
        slot = arm_slot(arm)
        goal[slot] = yam.REST
        course = Course(here[slot])
        if start in ("home", "working_home" if arm == working else "other_home"):
            goal[slot] = yam.HOME
            course.move("start", yam.HOME[: yam.ARM_DOF])
            course.rest("start", 0.5)
        courses.append(course)
    steps = _TICK_NS // sim.config.timestep_ns
    for tick in range(round(max(course.end for course in courses) * SECOND_NS / _TICK_NS)):
        time = tick * _TICK_NS / SECOND_NS
        sim.step(np.concatenate([course.at(time) for course in courses]), steps)
    return goal
