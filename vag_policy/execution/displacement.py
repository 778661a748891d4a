"""Arms that are elsewhere than they were sent: how that is noticed, and where commands may begin again."""

from __future__ import annotations

import numpy as np

from vag_policy.execution.limits import JointLimits, Mask, Vector, names_of
from vag_policy.execution.motion import Motion, at_rest
from vag_policy.execution.settings import ArbiterConfig
from vag_policy.execution.settling import Settling

# A gripper that nothing holds is closer than this to its command, strokes.
_FOLLOWS = 0.1


class DisplacementWatch:
    """Compares the measured pose with the command. Poses are (N,) in rad and 0..1; times are one steady clock.

    Args:
        limits: of the rig's joints.
        config: what is far, and how long arms have to stand.
        checked: (N,) the joints that distances are judged by (not the grippers, which may hold something).
    """

    def __init__(self, limits: JointLimits, config: ArbiterConfig, checked: np.ndarray) -> None:
        self._limits = limits
        self._config = config
        self._checked = checked
        self._settling: Settling | None = None

    @property
    def waiting(self) -> str:
        """Why displaced arms are waited for to stand; empty where they are not."""
        return "" if self._settling is None else self._settling.reason

    def jumped(self, names: tuple[str, ...]) -> str:
        """What is wrong where joints ``names`` moved farther between two messages than an arm can, or nothing."""
        far = [name for name in names if name in names_of(self._limits.names, self._checked)]
        return f"{', '.join(far)} jumped between two joint_states" if far else ""

    def moved_in_silence(self, command: Vector, measured: Vector) -> str:
        """What is wrong with the pose after a silence, or nothing."""
        away = self._away(command, measured, self._config.displacement)
        return f"{self._limits.named(away)} moved while joint_states were silent" if away.any() else ""

    def left_command(self, command: Vector, measured: Vector) -> str:
        """Which arm leaves its command (its motor is lost, and it falls or is pushed while it talks on), or nothing.

        A command is never sent farther than the lead from the arm, so beyond that it is the arm that has moved.
        """
        away = self._away(command, measured, self._limits.lead + self._config.displacement)
        return f"{self._limits.named(away)} does not follow: away from the command" if away.any() else ""

    def outside(self, measured: Vector) -> Mask:
        """(N,) which measured joints are where no joint can be."""
        tolerance = self._config.range_tolerance
        return (measured < self._limits.lower - tolerance) | (measured > self._limits.upper + tolerance)

    def wait_until_still(self, text: str, measured: Vector, now_ns: int) -> str:
        """Begin to wait; return ``text`` with what is waited for."""
        self._settling = Settling(f"{text}: silent until the arms stand", measured, now_ns, self._config.settle_ns)
        return self.waiting

    def wait_no_more(self) -> None:
        """The arms stand, or it does not matter any more whether they do."""
        self._settling = None

    def still(self, measured: Vector, heard_ns: int, now_ns: int) -> bool:
        """Whether the arms that are waited for stand; ``heard_ns``: as for ``Settling.settled``."""
        return self._settling is not None and self._settling.settled(measured, heard_ns, now_ns)

    def start(self, motion: Motion | None, measured: Vector) -> Motion | None:
        """Where commands may begin; None where the last one still moves, and the arms are not with it.

        An arm that is still there goes on from the command it was left with, or it would sag a little with every
        arming. A gripper that something holds open begins where it stands, or it would go on closing on that.
        """
        if motion is None:
            return at_rest(measured)
        away = self._away(motion.position, measured, self._config.displacement)
        if motion.at_rest:
            away |= ~self._checked & (np.abs(motion.position - measured) > _FOLLOWS)
            return at_rest(np.where(away, measured, motion.position))
        return None if away.any() else motion

    def _away(self, command: Vector, measured: Vector, distance: Vector | float) -> Mask:
        return (np.abs(command - measured) > distance) & self._checked
