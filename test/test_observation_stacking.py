"""The stacked image against an area filter written out as matrices."""

import numpy as np
import pytest

from vag_policy.observation.assembly import Assembler
from vag_policy.observation.image_codec import ImageError, RawFrame
from vag_policy.observation.stacking import StackConfig, fit_tile, resize, stack
from vag_policy.observation.synchronizer import Match


def raw(rgb, encoding="rgb8"):
    return RawFrame(encoding, *rgb.shape[:2], rgb.shape[1] * 3, False, np.ascontiguousarray(rgb).tobytes())


def noise(height, width, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)


def area_matrix(source, target):
    """(target, source): how much of each source pixel an output pixel covers."""
    edges = np.arange(target + 1) * source / target
    low = np.maximum(edges[:-1, None], np.arange(source))
    high = np.minimum(edges[1:, None], np.arange(source) + 1)
    return np.maximum(high - low, 0) * target / source


def area(rgb, width, height):
    rows, columns = area_matrix(rgb.shape[0], height), area_matrix(rgb.shape[1], width)
    return np.einsum("ih,hwc,jw->ijc", rows, rgb.astype(float), columns, optimize=True)


YAM = StackConfig(("top", "left_wrist", "right_wrist"), (224, 168))
LIBERO = StackConfig(("agentview", "wrist"), (224, 224))


@pytest.mark.parametrize(
    ("config", "source", "size"), [(YAM, (480, 640), (672, 168)), (LIBERO, (256, 256), (448, 224))]
)
def test_each_tile_is_the_area_mean_of_its_camera(config, source, size):
    images = {name: noise(*source, seed) for seed, name in enumerate(reversed(config.cameras))}
    stacked = stack({name: raw(image) for name, image in images.items()}, config)
    assert config.size == size and stacked.shape == (size[1], size[0], 3)
    width, height = config.tile
    for index, name in enumerate(config.cameras):
        tile = stacked[:, index * width : (index + 1) * width]
        assert np.abs(tile - area(images[name], width, height)).max() <= 0.51


def test_cameras_may_differ_in_size_and_encoding():
    config = StackConfig(("a", "b"), (10, 8))
    red = np.broadcast_to(np.array([255, 0, 0], np.uint8), (30, 40, 3))
    stacked = stack({"b": raw(red[:16, :20]), "a": raw(red[..., ::-1], "bgr8"), "other": raw(red)}, config)
    assert (stacked == red[0, 0]).all()


def test_writes_into_a_given_array():
    frames = {name: raw(noise(20, 30, 3)) for name in YAM.cameras}
    out = np.zeros((168, 672, 3), np.uint8)
    assert stack(frames, YAM, out) is out
    assert np.array_equal(out, stack(frames, YAM))
    with pytest.raises(ValueError, match="out must be"):
        stack(frames, YAM, out[:, :100])


def test_crop_takes_the_centre_and_pad_keeps_everything():
    wide = noise(30, 80)
    assert np.abs(fit_tile(wide, 10, 10, "crop") - area(wide[:, 25:55], 10, 10)).max() <= 0.51
    tall = noise(80, 30)
    assert np.abs(fit_tile(tall, 10, 10, "crop") - area(tall[25:55], 10, 10)).max() <= 0.51
    padded = fit_tile(noise(20, 40, 1), 10, 9, "pad")
    assert np.abs(padded[2:7] - area(noise(20, 40, 1), 10, 5)).max() <= 0.51
    assert not padded[:2].any() and not padded[7:].any()
    assert np.abs(fit_tile(wide, 10, 10, "stretch") - area(wide, 10, 10)).max() <= 0.51


@pytest.mark.parametrize("how", ["stretch", "crop", "pad"])
@pytest.mark.parametrize("shape", [(1, 1), (1, 500), (500, 1), (3, 7)])
def test_extreme_shapes_still_fill_the_tile(how, shape):
    assert fit_tile(noise(*shape), 13, 11, how).shape == (11, 13, 3)


def test_resize_shrinks_by_area_even_when_the_other_side_grows():
    columns = np.zeros((2, 40, 3), np.uint8)
    columns[:, ::4] = 200  # a linear filter would pick or miss them
    assert np.abs(resize(columns, 10, 6).astype(int) - 50).max() <= 1
    same = noise(5, 6)
    assert resize(same, 6, 5) is same


def test_faults_name_the_camera():
    frames = {name: raw(noise(4, 4)) for name in ("top", "right_wrist")}
    with pytest.raises(ValueError, match="no frame of camera left_wrist; there are: right_wrist, top"):
        stack(frames, YAM)
    frames["left_wrist"] = RawFrame("16UC1", 4, 4, 8, False, bytes(32))
    with pytest.raises(ImageError, match="^left_wrist: encoding '16UC1' is depth"):
        stack(frames, YAM)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (((), (1, 1)), "at least one camera"),
        ((("a", "b", "a"), (1, 1)), "camera a is named more than once in a, b, a"),
        ((("a",), (0, 4)), "at least 1x1 pixels, got 0x4"),
        ((("a",), (4, 4), "zoom"), "fit is 'zoom'; allowed: stretch, crop, pad"),
    ],
)
def test_bad_layouts(arguments, words):
    with pytest.raises(ValueError, match=words):
        StackConfig(*arguments)


FRAMES = {"a": raw(noise(4, 4, 1)), "b": raw(noise(4, 4, 2))}
MATCH = Match(
    1000, {"a": "A", "b": "B"}, np.array([1.0, 0.02]), (990, 1010), {"a": 1000, "b": 1004, "joint_states": 990}
)


def assembler(reads, fault=None):
    def read(payload):
        reads.append(payload)
        return fault or FRAMES[payload.lower()]

    layout = StackConfig(("a", "b"), (4, 4))
    return Assembler(layout, ("elbow", "gripper"), read, lambda positions: positions * [1, 50])


def test_a_match_becomes_an_observation():
    observation = assembler([]).assemble(MATCH)
    assert np.array_equal(observation.image, np.hstack([noise(4, 4, 1), noise(4, 4, 2)]))
    assert observation.state.dtype == np.float32 and observation.state.tolist() == [1.0, 1.0]
    assert observation.age_ns == {"a": 0, "b": -4, "joint_states": 10}
    assert (observation.stamp_ns, observation.camera_names, observation.state_names) == (
        1000,
        ("a", "b"),
        ("elbow", "gripper"),
    )


def test_a_frame_prepared_early_is_not_decoded_again_but_another_is():
    reads = []
    made = assembler(reads)
    made.prepare("b", 1004, "B")
    made.prepare("a", 900, "B")  # an older frame of a, which the match does not use
    assert np.array_equal(made.assemble(MATCH).image, np.hstack([noise(4, 4, 1), noise(4, 4, 2)]))
    assert reads == ["B", "B", "A"]


def test_what_cannot_be_prepared_fails_when_it_is_needed():
    made = assembler([], RawFrame("hsv24", 4, 4, 12, False, bytes(48)))
    made.prepare("a", 1000, "A")
    with pytest.raises(ImageError, match="a: unknown encoding 'hsv24'"):
        made.assemble(MATCH)
