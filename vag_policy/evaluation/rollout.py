"""One episode in simulated time: the simulator, the observation path, a policy and the executor, as the graph has them.

What ROS does between the nodes is a schedule here: joint states and pictures come at their rates, commands go out at
theirs, and a chunk arrives ``latency_ns`` after the instant its observation shows. No clock is read but to measure how
long things take, so the same trial always gives the same episode.
"""

from __future__ import annotations

import copy
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vag_policy.evaluation.referee import HOLD_NS, Referee
from vag_policy.evaluation.trials import Trial
from vag_policy.execution.arbiter import Arbiter
from vag_policy.execution.rig import Rig
from vag_policy.observation.assembly import Assembler
from vag_policy.observation.image_codec import RawFrame
from vag_policy.observation.observation import JOINT_SOURCE, Observation
from vag_policy.observation.stacking import StackConfig
from vag_policy.observation.synchronizer import Match
from vag_policy.policy import Plan, Policy, PolicyError
from vag_policy.robots import yam
from vag_policy.robots.pacing import FrameSchedule
from vag_policy.robots.trajectory import TrajectoryFollower
from vag_policy.robots.yam_sim import Sim, SimConfig, from_metres
from vag_policy.robots.yam_world import OVERVIEW
from vag_policy.serving.session import PlanningSession, SessionConfig, Ticket

SECOND_NS = 1_000_000_000
GREY = 128
_START_NS = SECOND_NS  # stamps of 0 mean "no time"
_NEVER = 2**63


@dataclass(frozen=True)
class LoopConfig:
    """How the loop runs; durations in nanoseconds.

    Attributes:
        sim: the world.
        joint_state_ns: from one joint state to the next; a whole number of physics steps.
        camera_ns: from one picture to the next.
        layout: how pictures are stacked.
        rig: the arms as the executor sees them.
        arbiter: the executor, new; every episode gets a copy.
        command_ns: from one command to the next.
        time_from_start_ns: when a commanded point is to be reached.
        session: when the policy replans.
        latency_ns: from the instant an observation shows to the arrival of the chunk made from it.
        limit_ns: longest episode.
        hold_ns: for how long the task has to be done to count.
        blank: whether the policy sees grey instead of pictures.
    """

    sim: SimConfig
    joint_state_ns: int
    camera_ns: int
    layout: StackConfig
    rig: Rig
    arbiter: Arbiter
    command_ns: int
    time_from_start_ns: int
    session: SessionConfig
    latency_ns: int = SECOND_NS // 5
    limit_ns: int = 25 * SECOND_NS
    hold_ns: int = HOLD_NS
    blank: bool = False

    def __post_init__(self) -> None:
        for name in ("joint_state_ns", "camera_ns", "command_ns", "time_from_start_ns", "limit_ns"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be positive, got {getattr(self, name)}")
        if min(self.latency_ns, self.hold_ns) < 0:
            raise ValueError("latency_ns and hold_ns must not be negative")
        if self.session.mode != self.arbiter.config.policy.mode:
            raise ValueError(
                f"the policy's mode is '{self.session.mode}' and the executor's '{self.arbiter.config.policy.mode}'"
            )


@dataclass(frozen=True)
class Replanned:
    """A plan, when the observation behind it was taken, and the phase the simulator was in then."""

    time_ns: int
    phase: str
    plan: Plan
    plan_ms: float


@dataclass
class Episode:
    """What happened.

    Attributes:
        trial: which one.
        success, reason, lifted: see ``referee.Verdict``; a policy that could not go on ends the episode, and
            ``reason`` is "policy error: " and its words.
        duration_ns: simulated time, up to when the task had been done, or the limit.
        replans: in order.
        refused: chunks the executor refused, by cause.
        misses, clamped: ticks without a chunk that was due, and joint targets changed by a limit.
        spent_s: real seconds by part: ``physics``, ``control``, ``referee``, ``render``, ``plan``.
        pictures: of every replan, where they were asked for: the view from outside and the policy's, (H, W, 3) uint8.
    """

    trial: Trial
    success: bool = False
    reason: str = ""
    lifted: bool = False
    duration_ns: int = 0
    replans: list[Replanned] = field(default_factory=list)
    refused: Counter[str] = field(default_factory=Counter)
    misses: int = 0
    clamped: int = 0
    spent_s: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    pictures: list[tuple[NDArray[np.uint8], NDArray[np.uint8]]] = field(default_factory=list)


class Rollout:
    """Runs episodes one after the other with one policy in one world.

    Args:
        config: how.
        sim: a world made from ``config.sim``.
        policy: who acts.

    Raises:
        ValueError: the policy wants other cameras or pictures than the loop gives.
    """

    def __init__(self, config: LoopConfig, sim: Sim, policy: Policy) -> None:
        if policy.image_size != config.layout.size or policy.camera_names != config.layout.cameras:
            raise ValueError(
                f"the policy sees {', '.join(policy.camera_names)} at {policy.image_size}, "
                f"the loop stacks {', '.join(config.layout.cameras)} at {config.layout.size}"
            )
        self.config, self.sim, self.policy = config, sim, policy

    def run(self, trial: Trial, pictures: bool = False) -> Episode:
        """One episode from the scene's reset to success or the time limit.

        Raises:
            ValueError: the scene cannot have this task.
        """
        self.policy.reset()
        self.sim.reset(trial.seed, trial.instruction)
        return _Run(self.config, self.sim, self.policy, trial, pictures).finish()


class _Run:
    """The state of one episode."""

    def __init__(self, config: LoopConfig, sim: Sim, policy: Policy, trial: Trial, pictures: bool) -> None:
        self._config, self._sim, self._policy = config, sim, policy
        self._episode, self._keep_pictures = Episode(trial), pictures
        self._arbiter = copy.deepcopy(config.arbiter)
        self._session = PlanningSession(config.session, first_episode=trial.index)
        self._session.begin(trial.instruction)
        self._referee = Referee(sim, config.hold_ns)
        self._frames = FrameSchedule(config.camera_ns)
        start = config.rig.to_driver(sim.joint_positions())
        places = {(arm, kind): _places(arm, kind) for arm in yam.ARMS for kind in ("arm", "gripper")}
        self._followers = [
            (part, TrajectoryFollower([yam.JOINT_NAMES[i] for i in part], start[part], _START_NS))
            for part in places.values()
        ]
        self._assembler = Assembler(config.layout, yam.JOINT_NAMES, lambda frame: frame, from_metres)
        self._steps = round(config.joint_state_ns / config.sim.timestep_ns)
        self._world_ns = _START_NS
        self._ready: NDArray[np.float64] | None = None
        self._pending: tuple[Ticket, Plan] | None = None
        self._policy_error = ""
        self._arrival_ns = _NEVER

    def finish(self) -> Episode:
        """Run to the end."""
        config, end_ns = self._config, _START_NS + self._config.limit_ns
        world_ns, command_ns, now_ns = _START_NS, _START_NS, _START_NS
        while now_ns < end_ns and not self._referee.success and not self._policy_error:
            now_ns = min(world_ns, command_ns, self._arrival_ns)
            if now_ns == world_ns:
                self._world(now_ns)
                world_ns += config.joint_state_ns
            if now_ns == self._arrival_ns:
                self._arrive(now_ns)
            if now_ns == command_ns:
                self._command(now_ns)
                command_ns += config.command_ns
        return self._conclude(now_ns)

    def _world(self, now_ns: int) -> None:
        """Simulate up to now, then let out what sensors say."""
        with self._spent("physics"):
            if now_ns > self._world_ns:
                desired = np.empty(len(yam.JOINT_NAMES))
                for part, follower in self._followers:
                    desired[part] = follower.desired(now_ns)
                self._sim.step(from_metres(desired), self._steps)
                self._world_ns = now_ns
            positions = self._sim.joint_state().position
        with self._spent("control"):
            self._arbiter.joints(yam.JOINT_NAMES, positions.tolist(), now_ns, now_ns)
        if self._frames.take(now_ns, False):
            with self._spent("referee"):
                self._referee.look(now_ns)
            if self._pending is None and self._session.due(now_ns, now_ns):
                self._replan(now_ns)

    def _replan(self, now_ns: int) -> None:
        with self._spent("render"):
            observation = self._observe(now_ns)
        ticket = self._session.admit(observation, now_ns)
        if ticket is None:
            return
        start = time.perf_counter()
        try:
            with self._spent("plan"):
                plan = self._policy.plan(observation, ticket.instruction, ticket.episode)
        except PolicyError as error:
            self._policy_error = f"policy error: {error}"
            return
        plan_ms = 1e3 * (time.perf_counter() - start)
        self._episode.replans.append(Replanned(now_ns - _START_NS, self._referee.phase(), plan, plan_ms))
        if self._keep_pictures:
            self._episode.pictures.append((self._sim.render(OVERVIEW), observation.image))
        self._pending, self._arrival_ns = (ticket, plan), now_ns + self._config.latency_ns

    def _observe(self, now_ns: int) -> Observation:
        cameras, stamps = self._config.layout.cameras, {}
        self._sim.capture(cameras)
        frames = {name: _frame(self._sim.draw(name), self._config.blank) for name in cameras}
        positions = self._sim.joint_state().position
        stamps = dict.fromkeys((*cameras, JOINT_SOURCE), now_ns)
        joints = (now_ns,) * len(yam.JOINT_NAMES)
        return self._assembler.assemble(Match(now_ns, frames, positions, joints, stamps))

    def _arrive(self, now_ns: int) -> None:
        assert self._pending is not None
        ticket, plan = self._pending
        self._pending, self._arrival_ns = None, _NEVER
        self._session.commit(ticket, plan, now_ns, lambda plan: self._take(plan, now_ns))

    def _take(self, plan: Plan, now_ns: int) -> None:
        refusal = self._arbiter.chunk(plan, now_ns - plan.observation_stamp_ns, now_ns)
        if refusal is not None:
            self._episode.refused[refusal.cause] += 1

    def _command(self, now_ns: int) -> None:
        """Send the command that is due, then make the next, as the command node does."""
        with self._spent("control"):
            if self._ready is not None:
                for part, follower in self._followers:
                    times = (self._config.time_from_start_ns,)
                    follower.command(follower.names, self._ready[None, part], times, self._world_ns)
            if not self._arbiter.armed:
                self._arbiter.arm(now_ns)
            command = self._arbiter.tick(now_ns + self._config.command_ns)
            self._ready = None if command is None else self._config.rig.to_driver(command)

    def _conclude(self, now_ns: int) -> Episode:
        episode, verdict, tally = self._episode, self._referee.verdict(), self._arbiter.tally
        episode.success, episode.reason, episode.lifted = verdict.success, verdict.reason, verdict.lifted
        if self._policy_error:
            episode.success, episode.reason = False, self._policy_error
        episode.duration_ns = now_ns - _START_NS
        episode.misses, episode.clamped = tally.misses, tally.clamped
        return episode

    @contextmanager
    def _spent(self, part: str) -> Iterator[None]:
        start = time.perf_counter()
        try:
            yield
        finally:
            self._episode.spent_s[part] += time.perf_counter() - start


def _places(arm: str, kind: str) -> NDArray[np.intp]:
    names = yam.arm_joint_names(arm) if kind == "arm" else (yam.gripper_joint_name(arm),)
    return np.array([yam.JOINT_NAMES.index(name) for name in names], np.intp)


def _frame(picture: NDArray[np.uint8], blank: bool) -> RawFrame:
    height, width, _ = picture.shape
    pixels: Any = np.full_like(picture, GREY) if blank else picture
    return RawFrame("rgb8", height, width, 3 * width, False, pixels.reshape(-1))
