"""Dataclasses survive the trip through a serialised message."""

from __future__ import annotations

import numpy as np
import pytest
from builtin_interfaces.msg import Duration, Time
from rclpy.serialization import deserialize_message, serialize_message
from sensor_msgs.msg import Image
from vag_interfaces.msg import ActionChunk, PolicyTrace, TemporalRatioPhase

from vag_policy.monitoring.phase import Phase
from vag_policy.nodes import messages
from vag_policy.observation.observation import JOINT_SOURCE, Observation
from vag_policy.policy import Plan, Trace

STAMP_NS = 1_733_000_000_123_456_789


def over_the_wire(message):
    return deserialize_message(serialize_message(message), type(message))


def make_observation(state_dtype=np.float32) -> Observation:
    rng = np.random.default_rng(0)
    return Observation(
        stamp_ns=STAMP_NS,
        image=rng.integers(0, 256, (6, 9, 3), np.uint8),
        camera_names=("top", "left_wrist", "right_wrist"),
        state=np.array([0.1, -2.5, 3e-8], state_dtype),
        state_names=("left_joint1", "left_joint2", "left_joint7"),
        source_stamp_ns={"top": STAMP_NS, "left_wrist": STAMP_NS - 5_000_000, JOINT_SOURCE: STAMP_NS + 2_000_000_001},
        age_ns={"top": 0, "left_wrist": 5_000_000, JOINT_SOURCE: -2_000_000_001},
    )


def make_trace() -> Trace:
    rng = np.random.default_rng(1)
    return Trace(
        layers=(3, 15),
        monitored_layer=15,
        attention=rng.random((10, 2, 5), np.float32),
        attention_grid=rng.random((5, 3, 4), np.float32),
        ratio=np.linspace(0.5, 1.5, 10),
        baseline=np.full(10, 0.25),
        guidance_scale=np.zeros(10),
        guidance="adaptive",
        branches=("null", "plan"),
        stage_ms={"encode": 1.5, "rollout": 20.25},
        solver_index=2,
        sigma=0.5,
    )


def make_plan(trace: Trace | None = None) -> Plan:
    return Plan(
        observation_stamp_ns=STAMP_NS,
        episode=2**40 + 1,
        replan=3,
        instruction="pick up the red cube",
        actions=np.random.default_rng(2).normal(size=(4, 2)),
        names=("left_joint1", "left_joint7"),
        period_ns=33_333_333,
        execute=3,
        trace=trace,
    )


def test_observation_survives():
    before = make_observation()
    after = messages.observation_from_msg(
        over_the_wire(messages.observation_to_msg(before, "top_camera_optical_frame"))
    )
    np.testing.assert_array_equal(after.image, before.image)
    np.testing.assert_array_equal(after.state, before.state)
    assert after.state.dtype == np.float32
    for name in ("stamp_ns", "camera_names", "state_names", "source_stamp_ns", "age_ns"):
        assert getattr(after, name) == getattr(before, name), name


def test_observation_message_says_which_frame_and_when():
    message = messages.observation_to_msg(make_observation(), "top_camera_optical_frame")
    for header in (message.header, message.image.header):
        assert header.frame_id == "top_camera_optical_frame"
        assert messages.ns_from_stamp(header.stamp) == STAMP_NS
    assert message.image.encoding == "rgb8"
    assert bytes(message.image.data[:3]) == bytes(make_observation().image[0, 0])


def test_a_float64_state_is_converted_not_reinterpreted():
    after = messages.observation_from_msg(messages.observation_to_msg(make_observation(np.float64), "top"))
    np.testing.assert_array_equal(after.state, make_observation().state)


def test_image_of_a_view_is_dense():
    image = np.arange(5 * 8 * 3, dtype=np.uint8).reshape(5, 8, 3)
    message = messages.image_to_msg(image[:, ::2], STAMP_NS, "frame")
    assert (message.width, message.step, len(message.data)) == (4, 12, 60)
    np.testing.assert_array_equal(np.frombuffer(message.data, np.uint8).reshape(5, 4, 3), image[:, ::2])


@pytest.mark.parametrize(
    ("field", "value", "word"),
    [
        ("encoding", "bgr8", "dense rgb8"),
        ("step", 30, "dense rgb8"),
        ("height", 7, "9x7 rgb8 has 162 bytes"),
        ("height", 0, "9x0 rgb8"),
    ],
)
def test_observation_with_a_bad_image_is_refused(field, value, word):
    message = messages.observation_to_msg(make_observation(), "top")
    setattr(message.image, field, value)
    with pytest.raises(ValueError, match=word):
        messages.observation_from_msg(message)


def test_an_image_without_pixels_is_refused():
    with pytest.raises(ValueError, match="0x0"):
        messages.image_from_msg(Image(encoding="rgb8"))


def test_observation_with_lengths_that_disagree_is_refused():
    message = messages.observation_to_msg(make_observation(), "top")
    message.source_names = message.source_names[:-1]
    with pytest.raises(ValueError, match="one length"):
        messages.observation_from_msg(message)
    message = messages.observation_to_msg(make_observation(), "top")
    message.state_names = ["left_joint1"]
    with pytest.raises(ValueError, match="1 names"):
        messages.observation_from_msg(message)


def test_plan_survives():
    before = make_plan()
    message = over_the_wire(messages.plan_to_msg(before, "top"))
    assert isinstance(message, ActionChunk)
    after = messages.plan_from_msg(message)
    np.testing.assert_array_equal(after.actions, before.actions)
    for name in ("observation_stamp_ns", "episode", "replan", "instruction", "names", "period_ns", "execute"):
        assert getattr(after, name) == getattr(before, name), name


def test_actions_are_row_major():
    message = messages.plan_to_msg(make_plan())
    assert message.horizon == 4
    assert list(message.actions[:2]) == list(make_plan().actions[0])


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"horizon": 5}, "needs 10 numbers, got 8"),
        ({"joint_names": []}, "0 joints"),
        ({"execute": 0}, "execute"),
        ({"execute": 5}, "execute"),
        ({"period": Duration()}, "period"),
    ],
)
def test_chunk_that_contradicts_itself_is_refused(changes, word):
    message = messages.plan_to_msg(make_plan())
    for field, value in changes.items():
        setattr(message, field, value)
    with pytest.raises(ValueError, match=word):
        messages.plan_from_msg(message)


def test_trace_survives():
    before = make_trace()
    message = over_the_wire(messages.trace_to_msg(make_plan(before), "top"))
    assert isinstance(message, PolicyTrace)
    assert (message.episode, message.replan, message.latent_frames) == (2**40 + 1, 3, 5)
    after = messages.trace_from_msg(message)
    for name in ("attention", "attention_grid"):
        np.testing.assert_array_equal(getattr(after, name), getattr(before, name))
    for name in ("ratio", "baseline", "guidance_scale"):  # float32 on the wire
        np.testing.assert_allclose(getattr(after, name), getattr(before, name), rtol=1e-6)
    for name in ("layers", "monitored_layer", "guidance", "branches", "stage_ms", "solver_index", "sigma"):
        assert getattr(after, name) == getattr(before, name), name
    assert list(after.stage_ms) == list(before.stage_ms)


def test_plan_without_a_trace_has_no_trace_message():
    with pytest.raises(ValueError, match="no trace"):
        messages.trace_to_msg(make_plan())


@pytest.mark.parametrize("field", ["attention", "attention_grid", "baseline", "guidance_scale", "stages", "ratio"])
def test_trace_that_contradicts_itself_is_refused(field):
    message = messages.trace_to_msg(make_plan(make_trace()))
    setattr(message, field, getattr(message, field)[:-1])
    with pytest.raises(ValueError, match=r"a trace"):
        messages.trace_from_msg(message)


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("grid_height", 65_535, "grid_height is 65535, allowed: at most 1024"),
        ("grid_width", 2**32 - 1, "grid_width is 4294967295, allowed: at most 1024"),
        ("latent_frames", 65, "latent_frames is 65, allowed: at most 64"),
        ("layers", [1] * 1_001, "layers is 1001"),
        ("ratio", [1.0] * 1_001, "steps is 1001"),
        ("stages", ["x"] * 101, "stages is 101"),
        ("instruction", "x" * 2_000_000, "characters is 2000000, allowed: at most 2000"),
    ],
)
def test_an_absurd_trace_is_refused_before_anything_is_done_with_it(field, value, words):
    message = messages.trace_to_msg(make_plan(make_trace()))
    message.latent_frames, message.attention, message.attention_grid = 0, [], []  # products agree: all are 0
    setattr(message, field, value)
    with pytest.raises(ValueError, match=words):
        messages.trace_from_msg(message)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"horizon": 2_000_000, "actions": [0.0] * 10}, "horizon is 2000000, allowed: at most 10000"),
        ({"joint_names": ["x"] * 1_001}, "joints is 1001, allowed: at most 1000"),
        ({"instruction": "x" * 2_001}, "characters is 2001"),
    ],
)
def test_an_absurd_chunk_is_refused_before_anything_is_done_with_it(changes, words):
    message = messages.plan_to_msg(make_plan())
    for field, value in changes.items():
        setattr(message, field, value)
    with pytest.raises(ValueError, match=words):
        messages.plan_from_msg(message)


@pytest.mark.parametrize("nanoseconds", [0, 1, 999_999_999, 1_000_000_000, STAMP_NS])
def test_stamps_are_exact(nanoseconds):
    assert messages.ns_from_stamp(messages.stamp_from_ns(nanoseconds)) == nanoseconds


@pytest.mark.parametrize("nanoseconds", [-1, -1_000_000_000, -2_000_000_001, 7])
def test_negative_durations_are_exact(nanoseconds):
    duration = messages.duration_from_ns(nanoseconds)
    assert messages.ns_from_stamp(duration) == nanoseconds
    assert 0 <= duration.nanosec < 1_000_000_000


def test_stamp_types():
    assert messages.stamp_from_ns(1_500_000_000) == Time(sec=1, nanosec=500_000_000)


def test_phases_are_the_messages_constants():
    assert {phase.name: phase.value for phase in Phase} == {
        name: getattr(TemporalRatioPhase, name) for name in ("UNKNOWN", "PLANNING", "PRECISE")
    }
