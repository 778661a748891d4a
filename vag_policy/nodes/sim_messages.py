"""A simulator's dataclasses as messages, and its commands back."""

from __future__ import annotations

import array
from collections.abc import Sequence

import numpy as np
from geometry_msgs.msg import Point, Pose, Quaternion
from numpy.typing import NDArray
from sensor_msgs.msg import CameraInfo, JointState
from trajectory_msgs.msg import JointTrajectory
from vag_interfaces.msg import TaskState as TaskStateMsg

from vag_policy.evaluation.referee import Verdict
from vag_policy.nodes.messages import ns_from_stamp, stamp_from_ns
from vag_policy.robots.yam_rig import Camera
from vag_policy.robots.yam_sim import JointState as SimJointState
from vag_policy.robots.yam_sim import TaskState


def camera_info_to_msg(camera: Camera, width: int, height: int) -> CameraInfo:
    """A camera without distortion; the stamp is the caller's."""
    k = camera.intrinsics(width, height)
    message = CameraInfo(width=width, height=height, distortion_model="plumb_bob", d=[0.0] * 5)
    message.header.frame_id = camera.optical_frame
    message.k = k.ravel()
    message.r = np.eye(3).ravel()
    message.p = np.hstack([k, np.zeros((3, 1))]).ravel()
    return message


def joint_state_to_msg(names: Sequence[str], state: SimJointState, stamp_ns: int) -> JointState:
    """Joint positions, velocities and efforts by name; rad and Nm, metres and N for grippers."""
    message = JointState(name=list(names))
    message.header.stamp = stamp_from_ns(stamp_ns)
    message.position, message.velocity, message.effort = map(_doubles, (state.position, state.velocity, state.effort))
    return message


def task_state_to_msg(state: TaskState, verdict: Verdict, phase: str, stamp_ns: int) -> TaskStateMsg:
    """The truth about the task, and what a referee says of it; poses in the world frame."""
    message = TaskStateMsg(
        instruction=state.instruction,
        success=verdict.success,
        reason=verdict.reason,
        phase=phase,
        scene=state.scene,
        seed=state.seed,
        object_names=list(state.object_names),
        object_poses=[_pose(pose) for pose in state.object_poses],
    )
    message.header.stamp = stamp_from_ns(stamp_ns)
    message.header.frame_id = "world"
    return message


def trajectory_from_msg(message: JointTrajectory) -> tuple[list[str], list[array.array], list[int], int]:
    """Names, positions a point, times from start and the header's stamp (0: on arrival), in nanoseconds.

    Raises:
        ValueError: a point has not one position a joint.
    """
    for number, point in enumerate(message.points):
        if len(point.positions) != len(message.joint_names):
            raise ValueError(
                f"point {number} has {len(point.positions)} positions for {len(message.joint_names)} joints"
            )
    times = [ns_from_stamp(point.time_from_start) for point in message.points]
    positions = [point.positions for point in message.points]
    return list(message.joint_names), positions, times, ns_from_stamp(message.header.stamp)


def _doubles(values: NDArray[np.float64]) -> array.array:
    return array.array("d", np.ascontiguousarray(values, np.float64).tobytes())


def _pose(pose: NDArray[np.float64]) -> Pose:
    x, y, z, qw, qx, qy, qz = map(float, pose)
    return Pose(position=Point(x=x, y=y, z=z), orientation=Quaternion(w=qw, x=qx, y=qy, z=qz))
