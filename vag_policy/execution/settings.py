"""How the arms are watched and moved, and what is counted on the way."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from vag_policy.execution.motion import SECOND_NS
from vag_policy.execution.policy_source import PolicyConfig

DISPLACED = ("stop", "rehold")


@dataclass(frozen=True)
class ArbiterConfig:
    """How the arms are watched and moved.

    Attributes:
        policy: how chunks are executed.
        teleop_timeout_ns: silence after which an operator has let go.
        teleop_tolerance: how far beyond its limits an operator may ask a joint to go, rad and strokes; what is farther
            is refused. A leader arm is never far outside, other than the output of a network.
        home_ns: the shortest move home.
        longest_step_ns: a tick later than this does not make up for the time.
        range_tolerance: how far outside its limits a joint may measure when the arms are armed, rad.
        displaced: what to do when an arm is found elsewhere than it was commanded (its feedback jumped, it moved while
            there was none, or it left its command): latch the emergency stop (``stop``: a motor was lost, an encoder
            lost its zero), or hold it where it comes to rest (``rehold``: simulators that are reset).
        displacement: how far elsewhere, rad; on top of the lead for an arm that leaves its command.
        settle_ns: how long an arm to be re-held has to stand still before anything is sent again.
    """

    policy: PolicyConfig = field(default_factory=PolicyConfig)
    teleop_timeout_ns: int = SECOND_NS // 2
    teleop_tolerance: float = 1.0
    home_ns: int = 3 * SECOND_NS
    longest_step_ns: int = SECOND_NS // 25
    range_tolerance: float = 0.1
    displaced: str = "stop"
    displacement: float = 0.2
    settle_ns: int = 3 * SECOND_NS // 10

    def __post_init__(self) -> None:
        if self.displaced not in DISPLACED:
            raise ValueError(f"displaced is '{self.displaced}'; allowed: {', '.join(DISPLACED)}")
        if min(self.teleop_timeout_ns, self.longest_step_ns, self.settle_ns) <= 0 or self.home_ns < 0:
            raise ValueError("teleop_timeout_ns, longest_step_ns and settle_ns must be positive, home_ns not negative")
        if not (min(self.range_tolerance, self.teleop_tolerance) >= 0.0 and self.displacement > 0.0):
            raise ValueError("range_tolerance and teleop_tolerance must not be negative, displacement must be positive")


@dataclass
class Tally:
    """What has been counted since the start."""

    commands: int = 0
    chunks: int = 0
    misses: int = 0
    violations: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    states_refused: int = 0
    states_fault: str = ""
    clamps: dict[str, Counter[str]] = field(default_factory=dict)

    def refuse_states(self, fault: str) -> None:
        """Count joint_states of which something was not used."""
        self.states_refused, self.states_fault = self.states_refused + 1, fault

    @property
    def clamped(self) -> int:
        """Joint targets changed by a limit; the acceleration limit, which shapes every motion, is counted apart."""
        return sum(sum(joints.values()) for kind, joints in self.clamps.items() if kind != "acceleration")
