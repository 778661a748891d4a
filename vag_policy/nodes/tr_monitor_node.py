"""tr_monitor: the policy's Temporal Ratio as numbers, markers and a heat map, from its traces."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from rclpy.node import Node
from rclpy.subscription import Subscription
from sensor_msgs.msg import Image
from vag_interfaces.msg import PolicyTrace, TemporalRatio, TemporalRatioLayers, TemporalRatioPhase
from visualization_msgs.msg import MarkerArray

from vag_policy.monitoring.heat_map import render
from vag_policy.monitoring.image_history import ImageHistory
from vag_policy.monitoring.monitor import Monitor, Reading
from vag_policy.monitoring.phase import PhaseConfig
from vag_policy.nodes.bounded import subscribe_bounded
from vag_policy.nodes.common import (
    ERROR,
    LATEST,
    OK,
    SENSOR,
    STALE,
    Diagnostics,
    main_of,
    publisher,
    steady_timer,
    subscribe,
)
from vag_policy.nodes.messages import duration_from_ns, image_from_msg, image_to_msg, ns_from_stamp, trace_from_msg
from vag_policy.nodes.parameters import Param, ParameterError, declare
from vag_policy.nodes.tr_markers import describe, markers
from vag_policy.policy import Trace

_MAX_TRACE_BYTES = 4 * 1024**2  # one of the largest model has 0.1 MB

PARAMETERS = (
    Param("cameras", ("top", "left_wrist", "right_wrist"), "cameras of stacked/image, left to right, for labels"),
    Param("gripper_frames", ("left_tcp", "right_tcp"), "frames that get a marker"),
    Param("marker_offset", (-0.05, 0.0, 0.08), "where a marker stands in its gripper frame, metres", range=(-2.0, 2.0)),
    Param("threshold", 0.05, "the phase changes when TR / TR_0 - 1 passes +- this", range=(0.0, 10.0)),
    Param("smoothing", 0.5, "weight of the newest replan in the phase's moving average", range=(0.01, 1.0)),
    Param("image_history", 96, "stacked images kept while a replan is under way", range=(1, 10000)),
    Param("stale_after", 5.0, "seconds without a trace after which the ratio is stale", range=(0.1, 3600.0)),
)


class TrMonitor(Node):
    """Turns every ``policy_trace`` into what a person or a plot can read."""

    def __init__(self, **options: Any) -> None:
        super().__init__("tr_monitor", **options)
        self._values = declare(self, PARAMETERS)
        if len(self._values["marker_offset"]) != 3:
            raise ParameterError(f"parameter 'marker_offset' needs x, y, z, got {self._values['marker_offset']}")
        self._monitor = Monitor(PhaseConfig(self._values["threshold"], self._values["smoothing"]))
        self._images: ImageHistory[Image] = ImageHistory(self._values["image_history"])
        self._reading: Reading | None = None
        self._fault = ""
        self._last_trace_s: float | None = None
        self._counts = {"traces": 0, "rejected": 0, "restarts": 0}
        self._ratio = publisher(self, TemporalRatio, "temporal_ratio", LATEST)
        self._layers = publisher(self, TemporalRatioLayers, "temporal_ratio/per_layer", LATEST)
        self._phase = publisher(self, TemporalRatioPhase, "temporal_ratio/phase", LATEST)
        self._markers = publisher(self, MarkerArray, "temporal_ratio/markers", LATEST)
        self._attention = publisher(self, Image, "temporal_ratio/attention/image", LATEST)
        self._image_subscription: Subscription | None = None
        subscribe_bounded(self, PolicyTrace, "policy_trace", self._on_trace, LATEST, _MAX_TRACE_BYTES, self._reject)
        steady_timer(self, 0.5, self._follow_listeners)
        self._diagnostics = Diagnostics(self, "policy", {"temporal ratio": self._check})

    def _on_trace(self, message: PolicyTrace) -> None:
        try:
            trace = trace_from_msg(message)
        except ValueError as error:
            self._reject(str(error))
            return
        self._last_trace_s = time.monotonic()
        self._counts["traces"] += 1
        self._take(message, trace)

    def _reject(self, reason: str) -> None:
        self._last_trace_s = time.monotonic()
        self._counts["traces"] += 1
        self._counts["rejected"] += 1
        self._fault = f"a trace is not usable: {reason}"

    def _take(self, message: PolicyTrace, trace: Trace) -> None:
        reading = self._monitor.update(ns_from_stamp(message.header.stamp), message.episode, trace)
        self._reading, self._fault = reading, reading.summary.fault()
        if reading.restarted:
            self._counts["restarts"] += 1
            self.get_logger().info(f"starting anew: {reading.restarted}")
        self._publish_numbers(message, reading)
        self._publish_markers(reading)
        if self._attention.get_subscription_count():
            self._publish_heat_map(message, trace, reading)

    def _publish_numbers(self, message: PolicyTrace, reading: Reading) -> None:
        header, summary = message.header, reading.summary
        self._ratio.publish(
            TemporalRatio(
                header=header,
                episode=message.episode,
                replan=message.replan,
                ratio=summary.ratio,
                baseline=summary.baseline,
                relative=summary.relative,
                guidance_scale=summary.guidance_scale,
            )
        )
        self._layers.publish(TemporalRatioLayers(header=header, layers=message.layers, ratio=reading.layers.tolist()))
        phase = reading.phase
        self._phase.publish(
            TemporalRatioPhase(header=header, phase=int(phase), name=phase.name, relative=reading.relative)
        )

    def _publish_markers(self, reading: Reading) -> None:
        lifetime = duration_from_ns(int(self._values["stale_after"] * 1e9))
        frames, offset = self._values["gripper_frames"], self._values["marker_offset"]
        self._markers.publish(markers(reading, frames, offset, lifetime, self.get_name()))

    def _publish_heat_map(self, message: PolicyTrace, trace: Trace, reading: Reading) -> None:
        stamp_ns = ns_from_stamp(message.header.stamp)
        found = self._images.nearest(stamp_ns)
        if found is None:
            return  # the first image is still on its way
        title = f"{describe(reading)}   layer {trace.monitored_layer}   replan {message.replan}"
        if found[0] != stamp_ns:
            title += f"   (image {(found[0] - stamp_ns) / 1e9:+.2f} s)"
        try:
            picture = render(image_from_msg(found[1]), trace.attention_grid, title, self._values["cameras"])
        except ValueError as error:
            self._fault = f"no heat map: {error}"
            return
        self._attention.publish(image_to_msg(picture, stamp_ns, message.header.frame_id))

    def _follow_listeners(self) -> None:
        """Take images only while somebody looks at the heat map: camera_sync then makes them only as long."""
        wanted = self._attention.get_subscription_count() > 0
        if wanted and self._image_subscription is None:
            self._image_subscription = subscribe(self, Image, "stacked/image", self._on_image, SENSOR)
        elif not wanted and self._image_subscription is not None:
            self.destroy_subscription(self._image_subscription)
            self._image_subscription = None
            self._images.clear()

    def _on_image(self, message: Image) -> None:
        self._images.add(ns_from_stamp(message.header.stamp), message)

    def _check(self) -> tuple[bytes, str, Mapping[str, Any]]:
        values: dict[str, Any] = dict(self._counts)
        if self._reading is not None:
            summary = self._reading.summary
            values |= {"ratio": summary.ratio, "baseline": summary.baseline, "relative": summary.relative}
            values |= {"guidance_scale": summary.guidance_scale, "phase": self._reading.phase.name}
        if self._last_trace_s is None:
            return STALE, "no policy_trace yet", values
        silent_s = time.monotonic() - self._last_trace_s
        if silent_s > self._values["stale_after"]:
            return STALE, f"no policy_trace for {silent_s:.0f} s", values
        if self._fault or self._reading is None:
            return ERROR, self._fault, values
        return OK, describe(self._reading), values


main = main_of(TrMonitor)

if __name__ == "__main__":
    main()
