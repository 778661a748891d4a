"""Parameters of camera_sync, and the configurations they make."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vag_policy.nodes.parameters import Param, ParameterError
from vag_policy.observation.observation import JOINT_SOURCE
from vag_policy.observation.stacking import FITS, StackConfig
from vag_policy.observation.sync_config import SyncConfig
from vag_policy.robots.yam import GRIPPER_INDICES, JOINT_NAMES, STROKE

_AGE = (0.001, 1e9)

PARAMETERS = (
    Param(
        "cameras",
        ("top", "left_wrist", "right_wrist"),
        "camera names, left to right in the stacked image; each is a topic namespace",
    ),
    Param(
        "reference_camera",
        "",
        "camera whose stamps the others are matched to, best the one that arrives last; empty: the first",
    ),
    Param(
        "transport",
        "raw",
        "raw: <camera>/image_raw; compressed: <camera>/image_raw/compressed (JPEG or PNG)",
        choices=("raw", "compressed"),
    ),
    Param("tile_width", 224, "width of one camera in the stacked image, pixels", range=(8, 4096)),
    Param("tile_height", 168, "height of the stacked image, pixels", range=(8, 4096)),
    Param("fit", "stretch", "what a camera of another aspect ratio than its tile's gets", choices=FITS),
    Param("rate", 0.0, "Observations a second, of the nearest reference frames; 0: all of them", range=(0.0, 1e3)),
    Param("slop", 0.05, "how far a source may be from the reference stamp, inclusive, s", range=(0.0, 10.0)),
    Param("max_wait", 0.02, "how long a reference frame waits for nearer partners, s", range=(0.0, 1.0)),
    Param("max_age", 0.3, "how old a frame may be by the node's clock, inclusive, s", range=_AGE),
    Param("camera_max_ages", (), "max_age camera by camera, where they differ, s", range=_AGE, element=float),
    Param("joint_max_age", 0.2, "how old a joint position may be by the node's clock, inclusive, s", range=_AGE),
    Param(
        "frozen_after",
        0.0,
        "refuse a camera whose picture stands still for this long, s; 0: never (normal in a simulation)",
        range=(0.0, 3600.0),
    ),
    Param("joints", JOINT_NAMES, "joint names, in the order of the state"),
    Param("driver_joint_names", (), "the drivers' names of the same joints, where they are not ours", element=str),
    Param(
        "gripper_joints",
        tuple(JOINT_NAMES[index] for index in GRIPPER_INDICES),
        "those of the joints that are grippers, reported 0 (closed) .. 1 (open); [''] for none",
    ),
    Param(
        "gripper_stroke",
        STROKE,
        "a gripper's position in joint_states when open, closed being 0: metres, of either sign; 1.0 where it is 0..1",
        range=(-10.0, 10.0),
    ),
)


def sync_config(values: Mapping[str, Any]) -> SyncConfig:
    """What the synchroniser needs.

    Raises:
        ParameterError: names are doubled, missing or unknown.
    """
    cameras = values["cameras"]
    ages = values["camera_max_ages"]
    if ages and len(ages) != len(cameras):
        raise ParameterError(f"camera_max_ages has {len(ages)} numbers for cameras {', '.join(cameras)}; one for each")
    ages = {name: _ns(age) for name, age in zip(cameras, ages, strict=False)}
    try:
        return SyncConfig(
            cameras=cameras,
            reference=values["reference_camera"] or cameras[0],
            joints=_names_at_driver(values),
            slop_ns=_ns(values["slop"]),
            max_age_ns={**ages, JOINT_SOURCE: _ns(values["joint_max_age"])},
            default_max_age_ns=_ns(values["max_age"]),
            max_wait_ns=_ns(values["max_wait"]),
            period_ns=_ns(1.0 / values["rate"]) if values["rate"] else 0,
            frozen_ns=_ns(values["frozen_after"]),
        )
    except ValueError as error:
        raise ParameterError(str(error)) from error


def stack_config(values: Mapping[str, Any]) -> StackConfig:
    """How cameras are stacked.

    Raises:
        ParameterError: a camera is named twice.
    """
    try:
        return StackConfig(values["cameras"], (values["tile_width"], values["tile_height"]), values["fit"])
    except ValueError as error:
        raise ParameterError(str(error)) from error


def gripper_columns(values: Mapping[str, Any]) -> list[int]:
    """Which entries of the state are grippers.

    Raises:
        ParameterError: a gripper is not among the joints, or the stroke is 0.
    """
    if not values["gripper_stroke"]:
        raise ParameterError("gripper_stroke is 0; it is a gripper's position when open, closed being 0")
    grippers = [name for name in values["gripper_joints"] if name]
    unknown = [name for name in grippers if name not in values["joints"]]
    if unknown:
        raise ParameterError(f"gripper_joints {', '.join(unknown)} not among the joints: {', '.join(values['joints'])}")
    return [values["joints"].index(name) for name in grippers]


def _names_at_driver(values: Mapping[str, Any]) -> tuple[str, ...]:
    """What ``joint_states`` calls the joints."""
    theirs, ours = values["driver_joint_names"], values["joints"]
    if theirs and len(theirs) != len(ours):
        raise ParameterError(
            f"driver_joint_names has {len(theirs)} names, {', '.join(theirs)}; one for each of {', '.join(ours)}"
        )
    return theirs or ours


def _ns(seconds: float) -> int:
    return round(seconds * 1e9)
