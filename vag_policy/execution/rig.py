"""The rig as the executor sees it: its joints, what they may do, and the drivers' names and units for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from vag_policy.execution.limits import JointLimits, Vector
from vag_policy.robots import yam

UNITS = ("metres", "normalised")


@dataclass(frozen=True)
class Rig:
    """A rig of YAM arms.

    Attributes:
        arms: its arms, in the order of states and actions.
        velocity: of an arm joint, rad/s.
        acceleration: of an arm joint, rad/s2.
        lead: how far an arm joint's command may be from its measured position, rad.
        gripper_velocity: full strokes a second.
        gripper_acceleration: strokes/s2.
        home: one arm's home pose: six joints in rad, gripper 0..1.
        command_units: of gripper commands, ``metres`` of one finger or ``normalised`` 0..1.
        state_units: of grippers in joint states.
        stroke: travel of one finger from closed to open, metres; negative where a driver counts downwards.
        driver_names: the drivers' names of all joints; empty where they are ours.

    Raises:
        ValueError: an unknown arm or unit, a home pose outside the limits, or a pose or list of names of the wrong
            length; the message names the joint and what is allowed.
    """

    arms: tuple[str, ...] = yam.ARMS
    velocity: float = 1.0
    acceleration: float = 10.0
    lead: float = 0.15
    gripper_velocity: float = 1.0
    gripper_acceleration: float = 10.0
    home: tuple[float, ...] = tuple(yam.HOME.tolist())
    command_units: str = "metres"
    state_units: str = "metres"
    stroke: float = yam.STROKE
    driver_names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.arms or len(set(self.arms)) != len(self.arms):
            raise ValueError(f"arms are '{', '.join(self.arms)}'; allowed: {', '.join(yam.ARMS)}, each once")
        self._check_home()
        for units in (self.command_units, self.state_units):
            if units not in UNITS:
                raise ValueError(f"gripper units are '{units}'; allowed: {', '.join(UNITS)}")
        if self.stroke == 0.0:
            raise ValueError("the stroke of a gripper must not be 0")
        if self.driver_names and len(set(self.driver_names)) != len(self.names):
            raise ValueError(
                f"driver names must be {len(self.names)} different names, for {', '.join(self.names)}; "
                f"got {', '.join(self.driver_names)}"
            )

    def _check_home(self) -> None:
        if len(self.home) != yam.ARM_DOF + 1:
            raise ValueError(
                f"a home pose has {yam.ARM_DOF + 1} numbers (six joints, gripper), got {len(self.home)}: {self.home}"
            )
        for name in self.names:
            place = yam.JOINT_NAMES.index(name)
            value, lower, upper = self.home[place % len(self.home)], yam.LOWER[place], yam.UPPER[place]
            if not lower <= value <= upper:  # so that NaN is refused, too
                raise ValueError(f"the home pose of {name} is {value}; allowed: {lower:g} to {upper:g}")

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The N joints: per arm 1..6 and the gripper."""
        return tuple(name for arm in self.arms for name in (*yam.arm_joint_names(arm), yam.gripper_joint_name(arm)))

    @cached_property
    def names_at_driver(self) -> tuple[str, ...]:
        """The drivers' names of the same joints."""
        return self.driver_names or self.names

    @cached_property
    def grippers(self) -> np.ndarray:
        """(N,) which joints are grippers."""
        return np.array([name == yam.gripper_joint_name(arm) for arm in self.arms for name in self._of(arm)])

    @cached_property
    def home_pose(self) -> Vector:
        """(N,) the home pose of all arms."""
        return np.tile(np.array(self.home), len(self.arms))

    @cached_property
    def limits(self) -> JointLimits:
        """What the joints may do. A gripper may lead by its whole stroke: that is how it grips."""
        places = [yam.JOINT_NAMES.index(name) for name in self.names]

        def of(arm: float, gripper: float) -> Vector:
            return np.where(self.grippers, gripper, arm)

        return JointLimits(
            names=self.names,
            lower=yam.LOWER[places],
            upper=yam.UPPER[places],
            velocity=of(self.velocity, self.gripper_velocity),
            acceleration=of(self.acceleration, self.gripper_acceleration),
            lead=of(self.lead, 1.0),
        )

    def places(self, arm: str) -> Sequence[int]:
        """Where the joints of ``arm`` are among ``names``, the gripper last."""
        return [self.names.index(name) for name in self._of(arm)]

    def from_driver(self, raw: Vector) -> Vector:
        """(N,) positions as drivers report them in rad and 0..1."""
        if self.state_units == "normalised":
            return np.where(self.grippers, np.clip(raw, 0.0, 1.0), raw)
        return np.where(self.grippers, yam.gripper_from_metres(raw, self.stroke), raw)

    def to_driver(self, command: Vector) -> Vector:
        """(N,) positions in rad and 0..1 as drivers take them."""
        if self.command_units == "normalised":
            return command
        return np.where(self.grippers, yam.gripper_to_metres(command, self.stroke), command)

    @staticmethod
    def _of(arm: str) -> tuple[str, ...]:
        return (*yam.arm_joint_names(arm), yam.gripper_joint_name(arm))
