"""The parameters of joint_command, and what they make of the executor."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vag_policy.execution.admission import AdmissionConfig
from vag_policy.execution.arbiter import Arbiter
from vag_policy.execution.feedback import Feedback
from vag_policy.execution.motion import SECOND_NS
from vag_policy.execution.policy_source import MODES, START_CHECKS, PolicyConfig
from vag_policy.execution.rig import UNITS, Rig
from vag_policy.execution.settings import DISPLACED, ArbiterConfig
from vag_policy.nodes.arm_outputs import INTERFACES, OutputConfig
from vag_policy.nodes.parameters import Param
from vag_policy.robots import yam

PARAMETERS = (
    Param("arms", yam.ARMS, "the arms of the rig, in the order of states and actions"),
    Param("rate", 100.0, "commands a second", (10.0, 500.0)),
    Param("mode", "blocking", "hold while the policy thinks, or run on while it does (async)", choices=MODES),
    Param("arm_on_start", False, "arm as soon as every joint is heard, without a call of ~/arm"),
    # Motion
    Param("velocity", 1.0, "highest speed of an arm joint, rad/s", (0.05, 3.0)),
    Param("acceleration", 10.0, "highest acceleration of an arm joint, rad/s2", (0.5, 50.0)),
    Param("lead", 0.15, "how far a command may be ahead of the measured joint, rad", (0.01, 1.0)),
    Param("gripper_velocity", 1.0, "highest speed of a gripper, full strokes a second", (0.05, 1.0)),
    Param("gripper_acceleration", 10.0, "highest acceleration of a gripper, strokes/s2", (0.5, 50.0)),
    Param("home_pose", tuple(yam.HOME.tolist()), "where ~/home moves an arm: six joints in rad, gripper 0..1"),
    Param("home_time", 3.0, "shortest move home, s", (0.5, 30.0)),
    # Chunks
    Param(
        "start_check", "ramp", "an episode's first action far from the pose: go slowly or refuse", choices=START_CHECKS
    ),
    Param("start_threshold", 0.2, "what is far, rad", (0.01, 3.0)),
    Param("ramp_time", 1.0, "shortest ramp to the first action of an episode, s", (0.0, 10.0)),
    Param("fade", 0.2, "fade from one chunk to the next, s", (0.01, 2.0)),
    Param("grace", 0.5, "async: how long a chunk runs on while the next is late, s", (0.0, 5.0)),
    Param("max_observation_age", 3.0, "oldest observation whose chunk is executed, s", (0.1, 60.0)),
    Param("range_tolerance", 10.0, "rad beyond its limits from which an action is garbage, not clamped", (0.0, 100.0)),
    Param("teleop_tolerance", 1.0, "the same for an operator's target, which is refused, rad", (0.0, 100.0)),
    # Watchdogs
    Param("feedback_timeout", 0.2, "silence of a joint after which the arms hold, s", (0.02, 2.0)),
    Param("command_timeout", 1.0, "silence of the policy after which it is reported, s", (0.1, 60.0)),
    Param("teleop_timeout", 0.5, "silence of the operator after which the arms hold, s", (0.05, 5.0)),
    Param(
        "displaced",
        "stop",
        "an arm found elsewhere than sent: latch the stop, or hold where it comes to rest",
        choices=DISPLACED,
    ),
    Param("displacement", 0.2, "how far elsewhere, rad", (0.05, 3.0)),
    # Drivers
    Param("command_interface", "trajectory", "JointTrajectory or Float64MultiArray (forward)", choices=INTERFACES),
    Param("time_from_start", 0.03, "when a trajectory's point is to be reached, s", (0.001, 1.0)),
    Param("gripper_in_arm", False, "send the gripper as the seventh joint of its arm's message"),
    Param("gripper_units", "metres", "unit of gripper commands: one finger's metres, or 0..1", choices=UNITS),
    Param("gripper_state_units", "metres", "unit of grippers in joint_states", choices=UNITS),
    Param("stroke", yam.STROKE, "travel of a finger from closed to open, m; may be negative", (-0.2, 0.2)),
    Param("driver_joint_names", (), "the drivers' names of all joints, where they are not ours", element=str),
    # Process
    Param("nice", 0, "scheduling niceness to ask for; ignored where not permitted", (-20, 19)),
    Param("realtime_priority", 0, "SCHED_FIFO priority to ask for, 0: none; ignored where not permitted", (0, 99)),
)

# A tick that comes later than so many periods does not make up for the time.
_LONGEST_STEP = 4.0


def nanoseconds(seconds: float) -> int:
    """Seconds as integer nanoseconds."""
    return int(seconds * SECOND_NS)


def make_rig(values: Mapping[str, Any]) -> Rig:
    """The rig that parameter values describe.

    Raises:
        ValueError: they contradict one another.
    """
    return Rig(
        arms=values["arms"],
        velocity=values["velocity"],
        acceleration=values["acceleration"],
        lead=values["lead"],
        gripper_velocity=values["gripper_velocity"],
        gripper_acceleration=values["gripper_acceleration"],
        home=values["home_pose"],
        command_units=values["gripper_units"],
        state_units=values["gripper_state_units"],
        stroke=values["stroke"],
        driver_names=values["driver_joint_names"],
    )


def make_arbiter(rig: Rig, values: Mapping[str, Any]) -> Arbiter:
    """The arbiter of ``rig``, with its feedback."""
    policy = PolicyConfig(
        mode=values["mode"],
        grace_ns=nanoseconds(values["grace"]),
        fade_ns=nanoseconds(values["fade"]),
        start_check=values["start_check"],
        start_threshold=values["start_threshold"],
        ramp_ns=nanoseconds(values["ramp_time"]),
        silence_ns=nanoseconds(values["command_timeout"]),
        admission=AdmissionConfig(nanoseconds(values["max_observation_age"]), values["range_tolerance"]),
    )
    config = ArbiterConfig(
        policy=policy,
        teleop_timeout_ns=nanoseconds(values["teleop_timeout"]),
        teleop_tolerance=values["teleop_tolerance"],
        home_ns=nanoseconds(values["home_time"]),
        longest_step_ns=nanoseconds(_LONGEST_STEP / values["rate"]),
        displaced=values["displaced"],
        displacement=values["displacement"],
    )
    feedback = Feedback(
        rig.names_at_driver,
        nanoseconds(values["feedback_timeout"]),
        values["displacement"],
        # An arm may swing back past its command: twice the commanded speed is still an arm.
        2.0 * rig.limits.velocity,
        rig.from_driver,
    )
    return Arbiter(rig.limits, feedback, config, rig.home_pose, ~rig.grippers)


def make_output_config(values: Mapping[str, Any]) -> OutputConfig:
    """What the drivers expect."""
    return OutputConfig(values["command_interface"], values["gripper_in_arm"], nanoseconds(values["time_from_start"]))
