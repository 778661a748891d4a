"""From chunks to a target: judge each chunk, ramp to the first of an episode, hand over from one to the next."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from vag_policy.execution.admission import Admission, AdmissionConfig, Refusal, far_joints
from vag_policy.execution.chunk_queue import Chunk, ChunkQueue
from vag_policy.execution.limits import JointLimits, Vector
from vag_policy.execution.motion import SECOND_NS
from vag_policy.execution.seam import Move, Seam, move_duration_ns
from vag_policy.policy import Plan

# A ramp or a move has arrived when the command is this close, rad.
ARRIVED = 0.02

# An observation of the arms this close to the end of a ramp is as good as one of its end, rad.
_NEAR = 0.05

MODES = ("blocking", "async")
START_CHECKS = ("ramp", "refuse")


@dataclass(frozen=True)
class PolicyConfig:
    """How chunks are executed.

    Attributes:
        mode: ``blocking`` holds after ``execute`` actions; ``async`` runs on for ``grace_ns`` while it waits.
        grace_ns: see ``mode``.
        fade_ns: length of the fade from one chunk to the next.
        start_check: an episode's first action far from the measured pose is reached by a slow ``ramp``, or the chunk
            is ``refuse``d.
        start_threshold: what is far, rad; grippers are not checked, their speed is bound to a full stroke a second.
        ramp_ns: the shortest ramp.
        silence_ns: after how long without a chunk the policy counts as silent.
        admission: which chunks are taken at all.
    """

    mode: str = "blocking"
    grace_ns: int = SECOND_NS // 2
    fade_ns: int = SECOND_NS // 5
    start_check: str = "ramp"
    start_threshold: float = 0.2
    ramp_ns: int = SECOND_NS
    silence_ns: int = SECOND_NS
    admission: AdmissionConfig = field(default_factory=AdmissionConfig)

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise ValueError(f"mode is '{self.mode}'; allowed: {', '.join(MODES)}")
        if self.start_check not in START_CHECKS:
            raise ValueError(f"start_check is '{self.start_check}'; allowed: {', '.join(START_CHECKS)}")
        if min(self.grace_ns, self.ramp_ns) < 0 or min(self.fade_ns, self.silence_ns) <= 0:
            raise ValueError("grace_ns and ramp_ns must not be negative, fade_ns and silence_ns must be positive")
        if not self.start_threshold > 0.0:
            raise ValueError(f"start_threshold must be positive, got {self.start_threshold}")


class PolicySource:
    """The policy's target over time. All times are one steady clock.

    Args:
        limits: of the rig's joints.
        config: how to execute.
        checked: (N,) which joints the start threshold is for (not the grippers).
    """

    def __init__(self, limits: JointLimits, config: PolicyConfig, checked: np.ndarray) -> None:
        self.config = config
        self.admission = Admission(limits, config.admission)
        self._limits = limits
        self._threshold = np.where(checked, config.start_threshold, np.inf)
        self._queue = ChunkQueue(config.grace_ns if config.mode == "async" else 0)
        self._seam: Seam | None = None
        self._ramp: Move | None = None
        self._waiting: Chunk | None = None  # the newest chunk, to be played at the ramp's end
        self._observed_ns = 0  # when the observation was made that it comes from
        self._check_start = True
        self._dry_since_ns: int | None = None
        self.episode = 0
        """The episode of the last chunk taken; 0 before the first, and where that episode was ended here."""

    @property
    def ramping(self) -> bool:
        """Whether the arms are still on their way to the first action."""
        return self._ramp is not None

    def offer(self, plan: Plan, age_ns: int, command: Vector, measured: Vector, now_ns: int) -> Refusal | None:
        """Take the plan, or say why not.

        Args:
            plan: the plan as it came.
            age_ns: age of its observation.
            command: (N,) the command now.
            measured: (N,) the pose now.
            now_ns: now.
        """
        chunk = self.admission.judge(plan, age_ns, now_ns)
        if isinstance(chunk, Refusal):
            return chunk
        if self._check_start or plan.episode != self.admission.episode:
            refusal = self._start(chunk, command, measured, now_ns)
        else:
            refusal = self._hand_over(chunk, now_ns - age_ns, command, now_ns)
        if refusal is None:
            self.admission.admit(plan)
            self.episode = plan.episode
            self._dry_since_ns, self._observed_ns = None, now_ns - age_ns
        return refusal

    def expire(self, command: Vector, now_ns: int) -> Refusal | None:
        """Drop a chunk that has become too old by the end of its ramp, and say so.

        Where the ramp has arrived the next chunk goes on from there. Where something has held it up so long, it is
        given up, too: whatever the arms push against, they do for a chunk that is never played.
        """
        if self._ramp is None or not self._ramp.over(now_ns):
            return None
        refusal = self.admission.too_old(now_ns - self._observed_ns)
        if refusal is None:
            return None
        if self._arrived(self._ramp, command):
            self._ramp = self._waiting = None
        else:
            self.flush(now_ns)
        self._dry_since_ns = now_ns
        return refusal

    @staticmethod
    def _arrived(ramp: Move, command: Vector) -> bool:
        return bool(np.abs(command - ramp.goal).max() <= ARRIVED)

    def _start(self, chunk: Chunk, command: Vector, measured: Vector, now_ns: int) -> Refusal | None:
        first = chunk.actions[0]
        far = far_joints(first, measured, self._threshold, self._limits)
        if far and self.config.start_check == "refuse":
            text = f"its first action is over {self.config.start_threshold:g} rad from the pose of {', '.join(far)}"
            return Refusal("far_start", text, broken=True)
        self.flush(now_ns)
        goal = np.clip(first, self._limits.lower, self._limits.upper)
        duration_ns = move_duration_ns(goal - command, self._limits, self.config.ramp_ns)
        self._ramp, self._waiting = Move(command, goal, now_ns, duration_ns), chunk
        self._check_start = False
        # A chunk that saw the arms far from the ramp's end would take them back there.
        self.admission.require_after(self._ramp.near_goal_ns(_NEAR, np.isfinite(self._threshold)))
        return None

    def _hand_over(self, chunk: Chunk, observed_ns: int, command: Vector, now_ns: int) -> Refusal | None:
        if self._ramp is not None:
            self._waiting = chunk  # it saw the arms nearer the ramp's end than the one before it
            return None
        first = self._queue.first_position(chunk, observed_ns, now_ns)
        if first >= len(chunk.actions):
            return Refusal("late", f"all of its {len(chunk.actions)} actions are past")
        if self._queue.exhausted(now_ns):
            self._seam = Seam(np.stack([command, command]), now_ns, self.config.fade_ns)
        else:
            self._seam = Seam.across(self._course, now_ns, self.config.fade_ns)
        self._queue.start(chunk, first, now_ns)
        return None

    def _course(self, time_ns: int) -> Vector:
        target = self._queue.target(time_ns)
        return target if self._seam is None else self._seam.blend(target, time_ns)

    def target(self, command: Vector, now_ns: int) -> Vector | None:
        """(N,) where the policy wants the arms now; None when there is nothing to execute.

        A ramp lasts until the command (N,) has arrived, however a limit may have slowed it.
        """
        if self._ramp is not None and self._waiting is not None:
            if not self._ramp.over(now_ns) or not self._arrived(self._ramp, command):
                return self._ramp.target(now_ns)
            first = np.clip(self._waiting.actions[0], self._limits.lower, self._limits.upper)
            if np.abs(first - self._ramp.goal).max() > ARRIVED:  # a later chunk may begin beside the goal
                self._seam = Seam(np.stack([command, command]), now_ns, self.config.fade_ns)
            self._queue.start(self._waiting, 0.0, now_ns)
            self._ramp = self._waiting = None
        if self._queue.exhausted(now_ns):
            if self._dry_since_ns is None and not self._queue.empty:
                self._dry_since_ns = now_ns
            return None
        return self._course(now_ns)

    def depth(self, now_ns: int) -> int:
        """Actions left to execute."""
        return self._queue.depth(now_ns) if self._waiting is None else self._waiting.execute

    def due(self, now_ns: int) -> bool:
        """Whether a chunk should be there by now and is not."""
        return not self._queue.empty and self._queue.depth(now_ns) == 0

    def silent_ns(self, now_ns: int) -> int:
        """For how long there has been nothing to execute in a running episode."""
        return 0 if self._dry_since_ns is None else now_ns - self._dry_since_ns

    def end_episode(self) -> None:
        """Take no more of the episode: the policy needs a new one to go on."""
        self.admission.end_episode()
        self.episode = 0

    def flush(self, now_ns: int) -> None:
        """Drop the chunk and whatever it was doing: the next one is a new start, from an observation after now."""
        self._queue.flush(now_ns)
        self._seam = self._ramp = self._waiting = None
        self._check_start = True
        self._dry_since_ns = None
        self.admission.require_after(now_ns)
