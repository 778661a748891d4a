"""The parameters of yam_sim, and the world they describe."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from vag_policy.nodes.parameters import Param
from vag_policy.robots import yam
from vag_policy.robots.yam_rig import BASE_SPACINGS, RigGeometry
from vag_policy.robots.yam_scene import SceneConfig
from vag_policy.robots.yam_sim import SimConfig

PARAMETERS = (
    Param("seed", 0, "scene to start with", range=(0, 2**31 - 1)),
    Param("task", "", "instruction to start with; empty: drawn from the seed"),
    Param("objects", SceneConfig().objects, "objects on the table"),
    Param("containers", SceneConfig().containers, "containers on the table"),
    Param("start_pose", "rest", "where the arms start", choices=tuple(yam.POSES)),
    Param("base_spacing", BASE_SPACINGS[0], "metres between the arms' bases", range=(0.3, 1.5)),
    Param("image_width", 320, "pixels", range=(16, 1280)),
    Param("image_height", 240, "pixels", range=(16, 960)),
    Param("camera_rate", 30.0, "images a second of every camera", range=(1.0, 60.0)),
    Param(
        "joint_state_rate",
        120.0,
        "joint states a second; camera_rate times n spaces frames evenly",
        range=(30.0, 200.0),
    ),
    Param("tf_rate", 30.0, "frames a second on /tf; 0: none, another node publishes them", range=(0.0, 200.0)),
    Param("publish_clock", False, "publish /clock, and stamp everything with simulated time"),
)

MAX_STEP_NS = 2_100_000
"""Longest physics step."""


def sim_config(values: Mapping[str, Any]) -> tuple[SimConfig, int]:
    """The world that parameter values describe, and nanoseconds between two joint states.

    Raises:
        ValueError: no such world.
    """
    period_ns = round(1e9 / values["joint_state_rate"])
    config = SimConfig(
        rig=RigGeometry(spacing=values["base_spacing"]),
        scene=SceneConfig(objects=values["objects"], containers=values["containers"]),
        width=values["image_width"],
        height=values["image_height"],
        timestep_ns=period_ns // math.ceil(period_ns / MAX_STEP_NS),
        start_pose=values["start_pose"],
    )
    return config, period_ns
