"""Who moves the arms: emergency stop over teleop over home over policy over hold.

Every source's target goes through one ``Motion``, so the command is continuous across every change of source. To hold
is to brake within the limits and then to stay at that *command*. Latching the measured pose instead would lose the
sag under gravity once more with every hold, and the arms would creep down; the lead limit keeps the two close.

After anything that interrupts a policy (a stop, silence of the joints, teleop, home, a broken chunk) its chunk is
gone, and the next one must come from a later observation and passes the start check again.

While nobody knows where the arms will come to rest there is no ``Motion`` at all, and so no command.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from vag_policy.execution.admission import Refusal
from vag_policy.execution.displacement import DisplacementWatch
from vag_policy.execution.feedback import Feedback
from vag_policy.execution.limits import JointLimits, Vector, breaches, names_of
from vag_policy.execution.motion import SECOND_NS, Motion, Step, advance, at_rest, brake
from vag_policy.execution.policy_source import ARRIVED, PolicySource
from vag_policy.execution.seam import Move, move_duration_ns
from vag_policy.execution.settings import ArbiterConfig, Tally
from vag_policy.execution.teleop_source import TeleopSource
from vag_policy.observation.naming import some_joints
from vag_policy.policy import Plan

STOPPED, DISARMED, HOLD, RAMP, POLICY, TELEOP, HOME = "stopped", "disarmed", "hold", "ramp", "policy", "teleop", "home"
# Share of the velocity limit that a move home may use.
_HOME_SHARE = 0.5


class Arbiter:
    """Turns what comes in into one safe command a tick. Not thread-safe. All times are one steady clock.

    Args:
        limits: of the rig's joints.
        feedback: the measured pose of the same joints.
        config: see there.
        home: (N,) the home pose.
        checked: (N,) the joints that distances are judged by (not the grippers).
    """

    def __init__(
        self, limits: JointLimits, feedback: Feedback, config: ArbiterConfig, home: Vector, checked: np.ndarray
    ) -> None:
        self.limits = limits
        self.feedback = feedback
        self.config = config
        self.tally = Tally()
        self.policy = PolicySource(limits, config.policy, checked)
        self.armed = False
        self.stop_reason = ""
        """Why the emergency stop is latched; empty where it is not."""
        self.mode, self.reason = DISARMED, "not armed yet"
        self.fault = False
        """Whether the arms are held because something is wrong, rather than because nobody moves them."""
        takeover_ns = max(config.policy.ramp_ns, 1)
        self._teleop = TeleopSource(limits, config.teleop_timeout_ns, takeover_ns, config.teleop_tolerance)
        self._home_pose = np.clip(home, limits.lower, limits.upper)
        self._home: Move | None = None
        self._displacement = DisplacementWatch(limits, config, checked)
        self._motion: Motion | None = None
        self._idle_reason, self._idle_fault = self.reason, False
        self._stale = False
        self._ticked_ns: int | None = None

    # What comes in

    def joints(self, names: Sequence[str], positions: Sequence[float], stamp_ns: int, now_ns: int) -> str:
        """Take in a joint state; return why it, or a part of it, was not used, or an empty string."""
        news = self.feedback.update(names, positions, stamp_ns, now_ns)
        if news.fault:
            self.tally.refuse_states(news.fault)
        if news.went_back:
            self.time_went_back("joint_states", now_ns)
        self._on_displaced(self._displacement.jumped(news.jumped), now_ns)
        return news.fault

    def chunk(self, plan: Plan, age_ns: int, now_ns: int) -> Refusal | None:
        """Take in a plan whose observation is ``age_ns`` old; return why it was refused, or None."""
        refusal = self._closed(now_ns)
        if refusal is None:
            assert self._motion is not None
            refusal = self.policy.offer(plan, age_ns, self._motion.position, self.feedback.position, now_ns)
        if refusal is not None:
            self.refuse(refusal, now_ns)
        else:
            self.tally.chunks += 1
        return refusal

    def refuse(self, refusal: Refusal, now_ns: int) -> None:
        """Count a refused chunk; a broken one says that the policy is not to be trusted: hold."""
        self.tally.refused[refusal.cause] += 1
        if refusal.broken:
            self._interrupt(f"chunk refused: {refusal.text}", now_ns, fault=True)

    def flush(self, reason: str, now_ns: int) -> None:
        """Stop executing the current chunk: the policy was stopped."""
        self.policy.flush(now_ns)
        self._idle_reason, self._idle_fault = reason, False

    def teleop(self, names: Sequence[str], positions: Sequence[float], now_ns: int) -> str:
        """Follow an operator's target; return why not, or an empty string."""
        fault = self._teleop.fault(names, positions)
        if not fault and (self.stop_reason or not self.armed or self._stale or self._motion is None):
            fault = f"the arms are {self.mode}: {self.reason}"
        if fault:
            self.tally.refused["teleop"] += 1
            return fault
        assert self._motion is not None
        if not self._teleop.engaged:
            self._interrupt("teleop", now_ns)
        self._teleop.update(names, positions, self._motion.position, now_ns)
        return ""

    def time_went_back(self, source: str, now_ns: int) -> None:
        """Forget what was planned: the stamps of ``source`` jumped backwards."""
        self._interrupt(f"time went back in {source}", now_ns, fault=True)
        self.policy.admission.forget()

    # What operators ask for; each returns why it was refused, or an empty string

    def arm(self, now_ns: int) -> str:
        """Allow motion. The command starts where the arms are, or where it was left if they are still there."""
        if self.stop_reason:
            return f"the emergency stop is latched ({self.stop_reason}): reset it first"
        silent = self.feedback.stale(now_ns)
        if silent:
            return f"no joint_states of {some_joints(silent, self.limits.names)}"
        measured, outside = self.feedback.position, self._displacement.outside(self.feedback.position)
        if outside.any():
            return f"{self.limits.named(outside)} measured outside the limits at {measured[outside].round(3)}"
        if self.armed:
            return ""
        start = self._displacement.start(self._motion, measured)
        if start is None:
            return "the arms are elsewhere, and the command is still braking: try again when it stands"
        self._motion = start
        self.armed, self._stale = True, False
        # The numbers of chunks begin anew, or one absurd episode would lock out every other for good.
        self.policy.admission.forget()
        self._interrupt("no chunk yet", now_ns)
        return ""

    def disarm(self, now_ns: int, reason: str = "disarmed") -> str:
        """Brake, then send nothing more."""
        self.armed = False
        self._displacement.wait_no_more()
        self._interrupt(reason, now_ns)
        return ""

    def emergency_stop(self, reason: str, now_ns: int) -> str:
        """Brake and hold, until ``reset_stop``."""
        self.stop_reason = self.stop_reason or reason
        self._displacement.wait_no_more()
        self._interrupt(f"stopped: {self.stop_reason}", now_ns, fault=True)
        return ""

    def reset_stop(self, now_ns: int) -> str:
        """Release the emergency stop. It leaves the arms disarmed: a reset alone must not start a motion."""
        if not self.stop_reason:
            return (
                f"no emergency stop is latched: nothing to reset, the arms stay {'armed' if self.armed else 'disarmed'}"
            )
        self.stop_reason = ""
        return self.disarm(now_ns, "emergency stop reset: arm to go on")

    def home(self, now_ns: int) -> str:
        """Move slowly to the home pose, and end the policy's episode."""
        closed = self._closed(now_ns)
        if closed is not None and closed.cause != "home":
            return closed.text
        assert self._motion is not None
        self.policy.end_episode()
        self._interrupt("home", now_ns)
        start = self._motion.position
        duration_ns = move_duration_ns(self._home_pose - start, self.limits, self.config.home_ns, _HOME_SHARE)
        self._home = Move(start, self._home_pose, now_ns, duration_ns)
        return ""

    # What goes out

    @property
    def silent(self) -> bool:
        """Whether the arms are held because a joint is silent."""
        return self._stale

    @property
    def moving(self) -> bool:
        """Whether the command is in motion."""
        return self._motion is not None and not self._motion.at_rest

    @property
    def sending(self) -> bool:
        """Whether a tick may send anything now.

        To arms that are silent a standing command is not repeated: they hold it. A driver that is started again, with
        the arms fallen meanwhile, could take it before it is heard of where they are.
        """
        return self._motion is not None and (self.armed and not self._stale or self.moving)

    @property
    def command(self) -> Vector | None:
        """(N,) the last command; None before the first."""
        return None if self._motion is None else self._motion.position

    def tick(self, now_ns: int) -> Vector | None:
        """(N,) the command to send now; None when nothing may be sent (disarmed, or the pose is not known yet)."""
        elapsed_ns = 0 if self._ticked_ns is None else now_ns - self._ticked_ns
        self._ticked_ns = now_ns
        self._watch(now_ns)
        target, self.mode, self.reason, self.fault = self._choose(now_ns)
        if self._motion is None or not self.sending:
            return None
        longest_ns = self.config.longest_step_ns
        if target is None:
            step = brake(self._motion, elapsed_ns, self.limits, longest_ns)
        else:
            measured = self.feedback.position
            step = advance(self._motion, target, measured, elapsed_ns, self.limits, longest_ns)
        self._send(step, now_ns)
        return self._motion.position

    def _choose(self, now_ns: int) -> tuple[Vector | None, str, str, bool]:
        """The target, the mode, why, and whether that is a fault."""
        if self.stop_reason:
            return None, STOPPED, self.stop_reason, True
        if not self.armed or self._stale or self._motion is None:
            return None, HOLD if self.armed else DISARMED, self._idle_reason, self._idle_fault
        if self._teleop.engaged:
            return self._teleop.target(now_ns), TELEOP, "an operator moves the arms", False
        if self._home is not None:
            return self._home.target(now_ns), HOME, "on the way home", False
        target = self.policy.target(self._motion.position, now_ns)
        due = self.policy.due(now_ns)
        silence_ns = self.config.policy.silence_ns
        silent = self.policy.silent_ns(now_ns) > silence_ns
        self.tally.misses += due and not silent  # a policy that has been silent for long is not late but gone
        if target is not None:
            return (target, RAMP, "to the first action", False) if self.policy.ramping else (target, POLICY, "", False)
        if not due:
            return None, HOLD, self._idle_reason, self._idle_fault
        if silent:
            return None, HOLD, f"no new chunk for over {silence_ns / SECOND_NS:g} s", False
        return None, HOLD, "chunk executed", False

    def _watch(self, now_ns: int) -> None:
        if self._teleop.engaged and self._teleop.silent(now_ns):
            self._interrupt("teleop let go", now_ns)
        if self._home is not None and self._home.over(now_ns) and self._near(self._home.goal):
            self._interrupt("at home", now_ns)
        expired = None if self._motion is None else self.policy.expire(self._motion.position, now_ns)
        if expired is not None:
            self.refuse(expired, now_ns)
            self._idle_reason, self._idle_fault = f"chunk dropped at the end of its ramp: {expired.text}", False
        silent = self.feedback.stale(now_ns) if self.armed else []
        if silent:
            self._interrupt(f"no joint_states of {some_joints(silent, self.limits.names)}", now_ns, fault=True)
        elif self._stale and self.armed:
            self._on_return(now_ns)
        self._stale = bool(silent)
        if self._displacement.waiting and not silent:
            self._settle(now_ns)
        elif self.armed and not silent and self._motion is not None:
            self._on_displaced(self._displacement.left_command(self._motion.position, self.feedback.position), now_ns)

    def _on_return(self, now_ns: int) -> None:
        if self._motion is None:
            return
        self._interrupt("joint_states are back: waiting for a chunk" if self.tally.chunks else "no chunk yet", now_ns)
        self._on_displaced(self._displacement.moved_in_silence(self._motion.position, self.feedback.position), now_ns)

    def _on_displaced(self, text: str, now_ns: int) -> None:
        """An arm is elsewhere: holding the old command would swing it, jumping to a doubtful pose might too.

        So nothing is sent, which a driver answers by holding: until an operator has looked or, where the arms may be
        re-held, until they stand.

        Args:
            text: which arm; nothing happens where it is empty.
            now_ns: now.
        """
        if not text:
            return
        rehold = self.config.displaced == "rehold"
        if self._motion is not None:  # to brake is to send, too
            self._motion = None if rehold else at_rest(self._motion.position)
        if not self.armed:
            return
        if rehold and not self.stop_reason and not self._displacement.outside(self.feedback.position).any():
            reason = self._displacement.wait_until_still(text, self.feedback.position, now_ns)
            self._interrupt(reason, now_ns, fault=True)
        else:
            self.emergency_stop(text, now_ns)
            self.armed = False

    def _settle(self, now_ns: int) -> None:
        """Take over from the measured pose once it stands still, as arming does."""
        outside = self._displacement.outside(self.feedback.position)
        if outside.any():
            self.emergency_stop(f"{self.limits.named(outside)} came to rest outside the limits", now_ns)
            self.armed = False
        elif self._displacement.still(self.feedback.position, self.feedback.heard_ns, now_ns):
            self._displacement.wait_no_more()
            self._motion = at_rest(self.feedback.position)
            self._interrupt("the arms stand where they were found: waiting for a chunk", now_ns)
        else:
            self._interrupt(self._displacement.waiting, now_ns, fault=True)

    def _near(self, goal: Vector) -> bool:
        return self._motion is not None and bool((np.abs(self._motion.position - goal) < ARRIVED).all())

    def _closed(self, now_ns: int) -> Refusal | None:
        """Why no policy may move the arms now."""
        if self.stop_reason:
            return Refusal("stopped", f"the emergency stop is latched ({self.stop_reason})")
        if not self.armed:
            return Refusal("disarmed", "the arms are not armed")
        if self._displacement.waiting:
            return Refusal("displaced", self._displacement.waiting)
        silent = self.feedback.stale(now_ns)
        if silent or self._motion is None:
            return Refusal("no_feedback", f"no joint_states of {some_joints(silent, self.limits.names)}")
        if self._teleop.engaged:
            return Refusal("teleop", "an operator moves the arms")
        return Refusal("home", "the arms are on the way home") if self._home is not None else None

    def _interrupt(self, reason: str, now_ns: int, fault: bool = False) -> None:
        self.policy.flush(now_ns)
        self._teleop.let_go()
        self._home = None
        self._idle_reason, self._idle_fault = reason, fault

    def _send(self, step: Step, now_ns: int) -> None:
        assert self._motion is not None
        bad = breaches(self._motion.position, step.motion.position, step.dt, self.limits)
        if bad:
            self.tally.violations += 1
            self._motion = at_rest(self._motion.position)
            self.emergency_stop(f"a command for {', '.join(bad)} failed the last check and was not sent", now_ns)
            return
        self._motion = step.motion
        self.tally.commands += 1
        for kind, mask in step.clamped.items():
            if mask.any():
                self.tally.clamps.setdefault(kind, Counter()).update(names_of(self.limits.names, mask))
