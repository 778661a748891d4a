"""The scripted expert behind the face of a policy: what the loop itself costs, as an upper bound for policies."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from vag_policy.expert.demonstrator import Demonstrator, GiveUpError
from vag_policy.expert.kinematics import Kinematics, UnreachableError
from vag_policy.expert.style import Style
from vag_policy.observation.observation import Observation
from vag_policy.policy import Plan
from vag_policy.robots import yam
from vag_policy.robots.yam_sim import Sim

_SETTLE = 2  # plans that only stand still: the executor ramps to the first, and is done with it when the second is


class ExpertPolicy:
    """A ``vag_policy.policy.Policy`` that plans on the simulator's state and never looks at the observation.

    It shows its course chunk by chunk, and replans where a chunk's ``execute`` actions end, so it needs an executor
    that holds meanwhile (mode ``blocking``). Where the expert would give up, it stands still.

    Args:
        sim: the world it acts in.
        camera_names, image_size: of the observations it is given.
        horizon, execute, period_ns: of its plans.
    """

    def __init__(
        self,
        sim: Sim,
        camera_names: tuple[str, ...],
        image_size: tuple[int, int],
        horizon: int = 50,
        execute: int = 30,
        period_ns: int = 33_333_333,
    ) -> None:
        self.camera_names, self.image_size = camera_names, image_size
        self.state_names = self.action_names = yam.JOINT_NAMES
        self._sim, self._kinematics = sim, Kinematics(sim.config.rig)
        self._horizon, self._execute, self._period_ns = horizon, execute, period_ns
        self.reset()

    def reset(self) -> None:
        """Forget the current episode."""
        self._demonstrator: Demonstrator | None = None
        self._targets = np.zeros(0)
        self._episode, self._replan, self._time = -1, 0, 0.0

    def plan(self, observation: Observation, instruction: str, episode: int) -> Plan:
        """The next part of the expert's course. See ``vag_policy.policy.Policy.plan``."""
        if episode != self._episode:
            self.reset()
            self._episode, self._targets = episode, self._sim.joint_positions()
        actions, execute = self._next()
        plan = Plan(
            observation_stamp_ns=observation.stamp_ns,
            episode=episode,
            replan=self._replan,
            instruction=instruction,
            actions=actions,
            names=self.action_names,
            period_ns=self._period_ns,
            execute=execute,
        )
        self._replan += 1
        return plan

    def _next(self) -> tuple[NDArray[np.float64], int]:
        """Actions (A_H, 14), and how many of them to execute."""
        still = np.tile(self._targets, (self._horizon, 1))
        if self._replan < _SETTLE:
            return still, self._execute if self._replan == 0 else 1
        try:
            demonstrator = self._look()
        except (GiveUpError, UnreachableError):
            return still, self._execute
        period = self._period_ns / 1e9
        times = self._time + period * np.arange(self._horizon)
        actions, arm = still, demonstrator.slot
        actions[:, arm] = [demonstrator.command(float(time)).label for time in times]
        left = math.ceil((demonstrator.ends - self._time) / period) + 1
        execute = min(max(left, 1), self._execute)
        self._time += execute * period
        self._targets = actions[execute - 1].copy()
        return actions, execute

    def _look(self) -> Demonstrator:
        """The demonstrator, with a course for what the world is like now."""
        if self._demonstrator is None:
            rng = np.random.default_rng((self._sim.seed, 1))
            self._demonstrator = Demonstrator(self._sim, self._kinematics, Style(), rng)
        self._demonstrator.decide(self._time)
        return self._demonstrator
