"""tr_monitor as a process over real DDS, fed with hand-made traces."""

from __future__ import annotations

import array
import math
import signal
import subprocess
import sys
from itertools import count

import numpy as np
import pytest
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus
from ros_process import NodeProcess, Probe, claim_domain, status_of, values_of
from sensor_msgs.msg import Image
from vag_interfaces.msg import PolicyTrace, TemporalRatio, TemporalRatioLayers, TemporalRatioPhase
from visualization_msgs.msg import Marker, MarkerArray

from vag_policy.nodes.messages import image_from_msg, image_to_msg, stamp_from_ns, trace_to_msg
from vag_policy.policy import Plan, Trace

DOMAIN, OTHER_DOMAIN = claim_domain(), claim_domain()
MODULE = ["-m", "vag_policy.nodes.tr_monitor_node"]
FRAMES, ROWS, COLUMNS = 5, 5, 18
WIDTH, HEIGHT = 288, 72
T0 = 1_700_000_000_000_000_000
_replans = count()


def trace_message(
    stamp_ns: int, episode: int = 1, ratio: float = 1.0, baseline: float = 1.0, hot=(2, 7)
) -> PolicyTrace:
    """A trace with TR ``ratio`` at its only step, and all attention on token ``hot`` of the current frame."""
    grid = np.full((FRAMES, ROWS, COLUMNS), 1e-3, np.float32)
    grid[0, 2, 7] = 1.0
    attention = np.ones((1, 2, FRAMES), np.float32)
    attention[:, 1, 1:] = ratio / (FRAMES - 1)
    trace = Trace(
        layers=(2, 3),
        monitored_layer=3,
        attention=attention,
        attention_grid=grid,
        ratio=np.array([ratio]),
        baseline=np.array([baseline]),
        guidance_scale=np.array([0.5]),
        guidance="adaptive",
        branches=(),
        stage_ms={},
        solver_index=2,
        sigma=0.883,
    )
    plan = Plan(stamp_ns, episode, next(_replans), "go", np.zeros((1, 1)), ("joint",), 1, 1, trace)
    return trace_to_msg(plan, "top_camera_optical_frame")


def current_frame(heat_map: Image) -> np.ndarray:
    """Grey levels of the current frame in a heat map: below a bar of 22 rows and a gap of 2, twice as large."""
    return image_from_msg(heat_map).astype(float).mean(axis=2)[24 : 24 + 2 * HEIGHT]


class Watcher(Probe):
    def __init__(self) -> None:
        super().__init__(DOMAIN)
        self.ratios = self.collect(TemporalRatio, "temporal_ratio")
        self.layers = self.collect(TemporalRatioLayers, "temporal_ratio/per_layer")
        self.phases = self.collect(TemporalRatioPhase, "temporal_ratio/phase")
        self.markers = self.collect(MarkerArray, "temporal_ratio/markers")
        self.diagnostics = self.collect(DiagnosticArray, "/diagnostics")
        self._traces = self.node.create_publisher(PolicyTrace, "policy_trace", 10)
        self.images = self.node.create_publisher(Image, "stacked/image", 10)

    def ready(self) -> None:
        self.wait(self._traces.get_subscription_count, "a listener of policy_trace")
        for topic in ("temporal_ratio", "temporal_ratio/per_layer", "temporal_ratio/phase", "temporal_ratio/markers"):
            self.wait(lambda topic=topic: self.node.count_publishers(topic), topic)

    def send(self, message: PolicyTrace) -> tuple[TemporalRatio, TemporalRatioLayers, TemporalRatioPhase, MarkerArray]:
        """Publish a trace and return the four messages it leads to."""
        lists = (self.ratios, self.layers, self.phases, self.markers)
        before = [len(received) for received in lists]
        self._traces.publish(message)
        self.wait(lambda: all(len(r) > n for r, n in zip(lists, before, strict=True)), "numbers and markers")
        return tuple(received[-1] for received in lists)

    def status(self, level: bytes) -> DiagnosticStatus:
        start = len(self.diagnostics)

        def found():
            status = status_of(self.diagnostics[start:], "tr_monitor: temporal ratio")
            return status if status is not None and status.level == level else None

        return self.wait(found, f"a status of level {level!r}")


@pytest.fixture(scope="module")
def watcher(tmp_path_factory):
    parameters = {"threshold": 0.1, "smoothing": 1.0, "cameras": ["a", "b", "c"], "gripper_frames": ["left_tcp"]}
    with NodeProcess(MODULE, tmp_path_factory.mktemp("monitor"), DOMAIN, parameters) as node, Watcher() as watcher:
        watcher.ready()
        assert "no policy_trace yet" in watcher.status(DiagnosticStatus.STALE).message
        yield watcher
        assert node.stop(signal.SIGINT) == 0, node.log()
        assert "Traceback" not in node.log()


def test_it_starts_without_torch_and_mujoco():
    heavy = "{'torch', 'mujoco', 'diffusers'}"
    code = f"import sys, vag_policy.nodes.tr_monitor_node; print(sorted({heavy} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_a_trace_becomes_numbers(watcher):
    message = trace_message(T0, episode=5, ratio=1.5, baseline=1.2)
    ratio, layers, phase, _ = watcher.send(message)
    for received in (ratio, layers, phase):
        assert received.header == message.header
    assert (ratio.episode, ratio.replan, ratio.guidance_scale) == (5, message.replan, 0.5)
    assert ratio.ratio == pytest.approx(1.5)
    assert ratio.baseline == pytest.approx(1.2)
    assert ratio.relative == pytest.approx(0.25)
    assert list(layers.layers) == [2, 3]
    assert list(layers.ratio) == pytest.approx([4.0, 1.5])
    assert (phase.phase, phase.name) == (TemporalRatioPhase.PLANNING, "PLANNING")
    status = watcher.status(DiagnosticStatus.OK)
    assert "TR 1.50" in status.message
    assert float(values_of(status)["relative"]) == pytest.approx(0.25, abs=1e-3)


def test_markers_stand_by_the_gripper_and_grow_with_the_ratio(watcher):
    heights = []
    for step, ratio in enumerate((0.5, 1.0, 1.5)):
        markers = watcher.send(trace_message(T0 + step, episode=6, ratio=ratio))[3].markers
        bar = next(m for m in markers if m.type == Marker.CUBE)
        text = next(m for m in markers if m.type == Marker.TEXT_VIEW_FACING)
        assert {bar.header.frame_id, text.header.frame_id} == {"left_tcp"}
        assert bar.frame_locked and text.frame_locked
        assert f"TR {ratio:.2f}" in text.text
        heights.append(bar.scale.z)
    assert heights == pytest.approx([0.03, 0.06, 0.09])


def test_a_new_episode_and_a_backward_stamp_start_anew(watcher):
    high, even = {"ratio": 2.0}, {"ratio": 1.0}
    assert watcher.send(trace_message(T0, 7, **high))[2].name == "PLANNING"
    assert watcher.send(trace_message(T0 + 1, 7, **even))[2].name == "PLANNING"  # held
    assert watcher.send(trace_message(T0 + 2, 8, **even))[2].name == "UNKNOWN"
    assert watcher.send(trace_message(T0 + 3, 8, ratio=0.5))[2].name == "PRECISE"
    assert watcher.send(trace_message(T0 - 10**9, 8, **even))[2].name == "UNKNOWN"
    assert int(values_of(watcher.status(DiagnosticStatus.OK))["restarts"]) >= 2


def test_a_ratio_that_is_missing_or_not_finite_is_an_error(watcher):
    ratio, _, phase, markers = watcher.send(trace_message(T0, 9, ratio=math.nan))
    assert math.isnan(ratio.ratio)
    assert phase.name == "UNKNOWN"
    assert {m.action for m in markers.markers if m.type == Marker.CUBE} == {Marker.DELETE}
    assert "TR is nan" in watcher.status(DiagnosticStatus.ERROR).message
    missing = trace_message(T0 + 1, 9)
    missing.ratio = missing.baseline = missing.guidance_scale = missing.attention = []
    watcher.send(missing)
    assert "no TR" in watcher.status(DiagnosticStatus.ERROR).message
    watcher.send(trace_message(T0 + 2, 9))
    watcher.status(DiagnosticStatus.OK)


def test_a_trace_that_contradicts_itself_is_rejected_by_name(watcher):
    broken = trace_message(T0 + 3, 9)
    broken.latent_frames = 4
    watcher._traces.publish(broken)
    status = watcher.status(DiagnosticStatus.ERROR)
    assert "4 frames" in status.message
    assert int(values_of(status)["rejected"]) == 1


def test_an_absurd_trace_is_refused_by_name_and_costs_nothing(watcher):
    rejected = int(values_of(watcher.status(DiagnosticStatus.ERROR))["rejected"])
    endless = trace_message(T0 + 4, 9)
    endless.latent_frames, endless.attention, endless.attention_grid = 0, [], []
    endless.grid_height = endless.grid_width = 65_535
    heavy = trace_message(T0 + 5, 9)
    heavy.attention_grid = array.array("f", bytes(4 * 2_000_000))
    wordy = trace_message(T0 + 6, 9)
    wordy.instruction = "x" * 1_000_000
    cases = ((endless, "grid_height is 65535"), (heavy, "bytes on 'policy_trace'"), (wordy, "characters is 1000000"))
    for count_, (message, words) in enumerate(cases, start=1):
        watcher._traces.publish(message)
        status = watcher.wait(
            lambda words=words: (s := watcher.status(DiagnosticStatus.ERROR)) and words in s.message and s, words
        )
        assert int(values_of(status)["rejected"]) == rejected + count_
    assert "TR 1.00" in watcher.send(trace_message(T0 + 7, 9))[3].markers[1].text


def test_the_heat_map_is_made_while_somebody_looks(watcher):
    assert watcher.node.count_subscribers("stacked/image") == 0, "camera_sync would make images for nobody"
    pictures: list[Image] = []
    looking = watcher.node.create_subscription(Image, "temporal_ratio/attention/image", pictures.append, 10)
    watcher.wait(watcher.images.get_subscription_count, "a listener of stacked/image")
    for step, level in enumerate((0, 60, 255)):
        image = np.full((HEIGHT, WIDTH, 3), level, np.uint8)
        watcher.images.publish(image_to_msg(image, T0 + step * 10**8, "top_camera_optical_frame"))

    def drawn_over_its_own_image() -> bool:
        """Send the trace again until the images, which may still be on their way, are there."""
        watcher.send(trace_message(T0 + 10**8, 10))
        return bool(pictures) and 30 < current_frame(pictures[-1])[64:84, 300:].mean() < 90

    watcher.wait(drawn_over_its_own_image, "a heat map over the image of the trace's stamp, which is of grey 60")
    assert pictures[-1].header.stamp == stamp_from_ns(T0 + 10**8)
    assert pictures[-1].width == 2 * WIDTH
    now = current_frame(pictures[-1])
    hot = now[66:94, 226:254]  # token (2, 7), 32 pixels a token
    assert hot.mean() > 2 * now[64:].mean()
    watcher.node.destroy_subscription(looking)
    watcher.wait(lambda: watcher.images.get_subscription_count() == 0, "stacked/image left alone again")


def test_silence_is_stale(tmp_path):
    with NodeProcess(MODULE, tmp_path, OTHER_DOMAIN, {"stale_after": 0.2}) as node, Probe(OTHER_DOMAIN) as probe:
        diagnostics = probe.collect(DiagnosticArray, "/diagnostics")
        traces = probe.node.create_publisher(PolicyTrace, "policy_trace", 10)
        probe.wait(traces.get_subscription_count, "a listener")
        traces.publish(trace_message(T0))
        status = probe.wait(
            lambda: (
                (s := status_of(diagnostics, "temporal ratio")) is not None and "no policy_trace for" in s.message and s
            ),
            "a stale status",
        )
        assert status.level == DiagnosticStatus.STALE
        assert node.stop(signal.SIGTERM) == 0, node.log()


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"smoothing": 0.0}, ("smoothing", "0.01 to 1.0")),
        ({"marker_offset": [0.0, 1.0]}, ("marker_offset", "x, y, z")),
    ],
)
def test_a_bad_parameter_ends_the_process_with_2(tmp_path, parameters, words):
    with NodeProcess(MODULE, tmp_path, OTHER_DOMAIN, parameters) as node:
        assert node.wait() == 2, node.log()
        for word in words:
            assert word in node.log()
