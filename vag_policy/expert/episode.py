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
from vag_policy.expert.style import Style
from vag_policy.robots import yam
from vag_policy.robots.yam_sim import Sim

VERSION = 1
"""Grows whenever the same seed and style give another demonstration; datasets remember it."""
FPS = 30
LONGEST_S = 20.0
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
    sim.reset(seed, task)
    targets = sim.joint_positions()
    try:
        demonstrator = Demonstrator(sim, kinematics, style, rng)
    except UnreachableError as error:
        raise GiveUpError(str(error)) from error
    targets = _go_to_start(sim, demonstrator, style)
    if style.start != "rest":
        demonstrator = Demonstrator(sim, kinematics, style, rng)
    noise = SmoothNoise(style.noise, 1.0 / FPS, rng)
    start_ns, offset = sim.time_ns, np.zeros(yam.ARM_DOF)
    for index in range(round(LONGEST_S * FPS)):
        time = index / FPS
        try:
            demonstrator.decide(time)
        except UnreachableError as error:
            raise GiveUpError(str(error)) from error
        command = demonstrator.command(time)
        targets[demonstrator.slot] = command.label
        yield Frame(
            sim.joint_positions().astype(np.float32),
            targets.astype(np.float32),
            command.phase,
            demonstrator.imitate(time),
        )
        if demonstrator.done:
            return
        before, offset = offset, noise.step(_NOISE_SCALE[command.phase])
        _advance(sim, demonstrator, targets, start_ns, index, (before, offset))
    raise GiveUpError(f"not done after {LONGEST_S} s")


def _advance(
    sim: Sim, demonstrator: Demonstrator, targets: NDArray[np.float64], start_ns: int, index: int, noise: tuple
) -> None:
    """Run the world from frame ``index`` to the next."""
    slot, before, after = demonstrator.slot, *noise
    executed = targets.copy()
    step_ns = sim.config.timestep_ns
    for part in range(_SUBSTEPS):
        now = (index + part / _SUBSTEPS) / FPS
        executed[slot] = demonstrator.command(now).executed
        executed[slot][: yam.ARM_DOF] += before + (after - before) * part / _SUBSTEPS
        until_ns = start_ns + round((index * _SUBSTEPS + part + 1) * 1_000_000_000 / FPS / _SUBSTEPS)
        sim.step(executed, max(1, round((until_ns - sim.time_ns) / step_ns)))


def _go_to_start(sim: Sim, demonstrator: Demonstrator, style: Style) -> NDArray[np.float64]:
    """Drive the arms that do not start at rest to where they start; return the targets (14,)."""
    home = {
        arm: style.start == "home" or style.start == ("working_home" if arm == demonstrator.arm else "other_home")
        for arm in yam.ARMS
    }
    goal = np.concatenate([yam.HOME if home[arm] else yam.REST for arm in yam.ARMS])
    starts = sim.joint_positions()
    courses = []
    for index, arm in enumerate(yam.ARMS):
        course = Course(starts[index * 7 : index * 7 + 7])
        if home[arm]:
            course.move("start", goal[index * 7 : index * 7 + 6])
            course.rest("start", 0.5)
        courses.append(course)
    for tick in range(round(max(course.end for course in courses) * 100)):
        sim.step(np.concatenate([course.at(tick / 100) for course in courses]), round(1e7 / sim.config.timestep_ns))
    return goal
