"""Dataclasses become messages, and messages dataclasses: the one place."""

from __future__ import annotations

import array

import numpy as np
from builtin_interfaces.msg import Duration, Time
from numpy.typing import NDArray
from sensor_msgs.msg import Image
from vag_interfaces.msg import ActionChunk, PolicyTrace
from vag_interfaces.msg import Observation as ObservationMsg

from vag_policy.observation.observation import Observation
from vag_policy.policy import Plan, Trace

SECOND_NS = 1_000_000_000

MAX_TEXT = 2_000
"""Characters of an instruction. Here and below: beyond what any policy makes, and no work for those who receive it."""
MAX_JOINTS = 1_000
MAX_HORIZON = 10_000
_MAX_TRACE = {"steps": 1_000, "layers": 1_000, "latent_frames": 64, "grid_height": 1_024, "grid_width": 1_024}
_MAX_STAGES = 100


def stamp_from_ns(nanoseconds: int) -> Time:
    """Nanoseconds since the epoch as a Time message."""
    return Time(sec=nanoseconds // SECOND_NS, nanosec=nanoseconds % SECOND_NS)


def duration_from_ns(nanoseconds: int) -> Duration:
    """Nanoseconds as a Duration message; negative ones have a negative sec and a positive nanosec."""
    return Duration(sec=nanoseconds // SECOND_NS, nanosec=nanoseconds % SECOND_NS)


def ns_from_stamp(stamp: Time | Duration) -> int:
    """A Time or Duration message as nanoseconds."""
    return stamp.sec * SECOND_NS + stamp.nanosec


def byte_array(data: NDArray | bytes | memoryview) -> array.array:
    """Bytes in the one type that rclpy takes without touching every element (a NumPy array costs 51 ms an image)."""
    out = array.array("B")
    out.frombytes(memoryview(data).cast("B"))
    return out


def image_to_msg(image: NDArray[np.uint8], stamp_ns: int, frame_id: str) -> Image:
    """(H, W, 3) uint8 RGB as an rgb8 Image."""
    message = Image(height=image.shape[0], width=image.shape[1], encoding="rgb8", step=image.shape[1] * 3)
    message.header.stamp = stamp_from_ns(stamp_ns)
    message.header.frame_id = frame_id
    message.data = byte_array(np.ascontiguousarray(image))
    return message


def image_from_msg(message: Image) -> NDArray[np.uint8]:
    """(H, W, 3) uint8 RGB, a view on the message's bytes.

    Raises:
        ValueError: not a dense rgb8 image, which is what this package publishes.
    """
    if message.encoding != "rgb8" or message.step != message.width * 3:
        raise ValueError(f"expected a dense rgb8 image, got {message.encoding} with step {message.step}")
    if len(message.data) != message.height * message.step or not message.data:
        raise ValueError(f"an image of {message.width}x{message.height} rgb8 has {len(message.data)} bytes")
    return np.frombuffer(message.data, np.uint8).reshape(message.height, message.width, 3)


def observation_to_msg(observation: Observation, frame_id: str) -> ObservationMsg:
    """An Observation as a message, stamped with its reference stamp."""
    message = ObservationMsg(
        image=image_to_msg(observation.image, observation.stamp_ns, frame_id),
        camera_names=list(observation.camera_names),
        state_names=list(observation.state_names),
        state=_floats(observation.state),
        source_names=list(observation.source_stamp_ns),
        source_stamps=[stamp_from_ns(ns) for ns in observation.source_stamp_ns.values()],
        source_ages=[duration_from_ns(observation.age_ns[name]) for name in observation.source_stamp_ns],
    )
    message.header = message.image.header
    return message


def observation_from_msg(message: ObservationMsg) -> Observation:
    """The Observation in a message. The image is a view on the message's bytes.

    Raises:
        ValueError: the image is not a dense rgb8 image, or lengths disagree.
    """
    if not len(message.source_names) == len(message.source_stamps) == len(message.source_ages):
        raise ValueError("an Observation's source_names, source_stamps and source_ages must be of one length")
    return Observation(
        stamp_ns=ns_from_stamp(message.header.stamp),
        image=image_from_msg(message.image),
        camera_names=tuple(message.camera_names),
        state=np.frombuffer(message.state, np.float32),
        state_names=tuple(message.state_names),
        source_stamp_ns={
            name: ns_from_stamp(stamp) for name, stamp in zip(message.source_names, message.source_stamps, strict=True)
        },
        age_ns={name: ns_from_stamp(age) for name, age in zip(message.source_names, message.source_ages, strict=True)},
    )


def plan_to_msg(plan: Plan, frame_id: str = "") -> ActionChunk:
    """A Plan as a message; its trace travels apart (``trace_to_msg``)."""
    message = ActionChunk(
        episode=plan.episode,
        replan=plan.replan,
        instruction=plan.instruction,
        joint_names=list(plan.names),
        period=duration_from_ns(plan.period_ns),
        horizon=len(plan.actions),
        execute=plan.execute,
        actions=array.array("d", np.ascontiguousarray(plan.actions, np.float64).tobytes()),
    )
    message.header.stamp = stamp_from_ns(plan.observation_stamp_ns)
    message.header.frame_id = frame_id
    return message


def plan_from_msg(message: ActionChunk) -> Plan:
    """The Plan in a message, without a trace.

    Raises:
        ValueError: the lengths disagree, or are absurd, or execute or the period are out of range.
    """
    columns = len(message.joint_names)
    _check_most("a chunk's horizon", message.horizon, MAX_HORIZON)
    _check_most("a chunk's number of joints", columns, MAX_JOINTS)
    _check_most("an instruction's number of characters", len(message.instruction), MAX_TEXT)
    if columns == 0 or len(message.actions) != message.horizon * columns:
        raise ValueError(
            f"a chunk of {message.horizon} actions for {columns} joints needs {message.horizon * columns} numbers, "
            f"got {len(message.actions)}"
        )
    return Plan(
        observation_stamp_ns=ns_from_stamp(message.header.stamp),
        episode=message.episode,
        replan=message.replan,
        instruction=message.instruction,
        actions=np.array(message.actions, np.float64).reshape(message.horizon, columns),
        names=tuple(message.joint_names),
        period_ns=ns_from_stamp(message.period),
        execute=message.execute,
    )


def trace_to_msg(plan: Plan, frame_id: str = "") -> PolicyTrace:
    """The trace of ``plan`` as a message.

    Raises:
        ValueError: the plan has no trace.
    """
    trace = plan.trace
    if trace is None:
        raise ValueError("the plan has no trace")
    message = PolicyTrace(
        episode=plan.episode,
        replan=plan.replan,
        instruction=plan.instruction,
        layers=list(trace.layers),
        monitored_layer=trace.monitored_layer,
        latent_frames=trace.attention.shape[2],
        attention=_floats(trace.attention),
        grid_height=trace.attention_grid.shape[1],
        grid_width=trace.attention_grid.shape[2],
        attention_grid=_floats(trace.attention_grid),
        ratio=_floats(trace.ratio),
        baseline=_floats(trace.baseline),
        guidance_scale=_floats(trace.guidance_scale),
        guidance=trace.guidance,
        branches=list(trace.branches),
        stages=list(trace.stage_ms),
        stage_ms=_floats(np.array(list(trace.stage_ms.values()), np.float32)),
        solver_index=trace.solver_index,
        sigma=trace.sigma,
    )
    message.header.stamp = stamp_from_ns(plan.observation_stamp_ns)
    message.header.frame_id = frame_id
    return message


def trace_from_msg(message: PolicyTrace) -> Trace:
    """The Trace in a message.

    Raises:
        ValueError: the lengths disagree, or are absurd.
    """
    steps, layers, frames = len(message.ratio), len(message.layers), message.latent_frames
    sizes = (steps, layers, frames, message.grid_height, message.grid_width)
    for (name, most), size in zip(_MAX_TRACE.items(), sizes, strict=True):
        _check_most(f"a trace's {name}", size, most)
    _check_most("a trace's number of stages", len(message.stages), _MAX_STAGES)
    _check_most("an instruction's number of characters", len(message.instruction), MAX_TEXT)
    attention = np.array(message.attention, np.float32)
    grid = np.array(message.attention_grid, np.float32)
    if attention.size != steps * layers * frames:
        raise ValueError(f"a trace of {steps} steps, {layers} layers, {frames} frames has {attention.size} attentions")
    if grid.size != frames * message.grid_height * message.grid_width:
        raise ValueError(f"a trace's attention_grid has {grid.size} numbers, not frames x rows x columns")
    if len(message.baseline) != steps or len(message.guidance_scale) != steps:
        raise ValueError("a trace's ratio, baseline and guidance_scale must be of one length")
    if len(message.stages) != len(message.stage_ms):
        raise ValueError("a trace's stages and stage_ms must be of one length")
    return Trace(
        layers=tuple(message.layers),
        monitored_layer=message.monitored_layer,
        attention=attention.reshape(steps, layers, frames),
        attention_grid=grid.reshape(frames, message.grid_height, message.grid_width),
        ratio=np.array(message.ratio, np.float64),
        baseline=np.array(message.baseline, np.float64),
        guidance_scale=np.array(message.guidance_scale, np.float64),
        guidance=message.guidance,
        branches=tuple(message.branches),
        stage_ms=dict(zip(message.stages, map(float, message.stage_ms), strict=True)),
        solver_index=message.solver_index,
        sigma=message.sigma,
    )


def _check_most(what: str, size: int, most: int) -> None:
    if size > most:
        raise ValueError(f"{what} is {size}, allowed: at most {most}")


def _floats(values: NDArray) -> array.array:
    return array.array("f", np.ascontiguousarray(values, np.float32).tobytes())
