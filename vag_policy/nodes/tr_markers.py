"""The Temporal Ratio as RViz markers: a bar and a line of text beside each gripper."""

from __future__ import annotations

from collections.abc import Sequence

from builtin_interfaces.msg import Duration
from geometry_msgs.msg import Point, Vector3
from std_msgs.msg import ColorRGBA
from visualization_msgs.msg import Marker, MarkerArray

from vag_policy.monitoring.monitor import Reading
from vag_policy.monitoring.phase import Phase

BAR_HEIGHT = 0.12
"""Metres of a bar at twice the baseline or more; half of it is the baseline, nothing is no attention on the future."""

_BAR_WIDTH = 0.015
_TEXT_HEIGHT = 0.025
_COLOURS = {
    Phase.UNKNOWN: (0.6, 0.6, 0.6),
    Phase.PLANNING: (0.2, 0.5, 1.0),
    Phase.PRECISE: (1.0, 0.55, 0.1),
}


def describe(reading: Reading) -> str:
    """TR, its baseline, how far it is from it, the phase and the guidance scale, in one line."""
    summary = reading.summary
    return (
        f"TR {summary.ratio:.2f}   TR_0 {summary.baseline:.2f}   {summary.relative:+.0%}   "
        f"{reading.phase.name}   s {summary.guidance_scale:.2f}"
    )


def markers(
    reading: Reading, frames: Sequence[str], offset: Sequence[float], lifetime: Duration, namespace: str
) -> MarkerArray:
    """A bar and a text for each of ``frames``, ``offset`` metres from it. A faulty ratio gives the text alone.

    Stamped 0, so that RViz draws them where the gripper is now.
    """
    array = MarkerArray()
    for index, frame in enumerate(frames):
        fill = 0.0 if reading.summary.fault() else min(max((reading.summary.relative + 1.0) / 2.0, 0.02), 1.0)
        text = _marker(Marker.TEXT_VIEW_FACING, 2 * index + 1, frame, offset, reading.phase, lifetime, namespace)
        text.pose.position.z += BAR_HEIGHT + _TEXT_HEIGHT
        text.scale = Vector3(z=_TEXT_HEIGHT)
        text.text = f"TR {reading.summary.ratio:.2f} ({reading.summary.relative:+.0%}) {reading.phase.name}"
        bar = _marker(Marker.CUBE, 2 * index, frame, offset, reading.phase, lifetime, namespace)
        bar.action = Marker.ADD if fill else Marker.DELETE
        bar.pose.position.z += fill * BAR_HEIGHT / 2
        bar.scale = Vector3(x=_BAR_WIDTH, y=_BAR_WIDTH, z=fill * BAR_HEIGHT)
        array.markers += [bar, text]
    return array


def _marker(
    kind: int, number: int, frame: str, offset: Sequence[float], phase: Phase, lifetime: Duration, namespace: str
) -> Marker:
    marker = Marker(type=kind, id=number, ns=namespace, action=Marker.ADD, frame_locked=True, lifetime=lifetime)
    marker.header.frame_id = frame
    marker.pose.position = Point(x=offset[0], y=offset[1], z=offset[2])
    red, green, blue = _COLOURS[phase]
    marker.color = ColorRGBA(r=red, g=green, b=blue, a=0.9)
    return marker
