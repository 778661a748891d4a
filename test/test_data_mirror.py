"""The mirror image of a sample is what the mirrored world would have given."""

import numpy as np
import pytest

from vag_policy.data.mirror import Mirror, MirroredSamples
from vag_policy.data.samples import Sample
from vag_policy.robots.yam import JOINT_NAMES, forward_kinematics
from vag_policy.robots.yam_rig import CAMERA_NAMES
from vag_policy.robots.yam_sim import Sim

MIRROR = Mirror(CAMERA_NAMES, JOINT_NAMES, JOINT_NAMES)
POSE = np.array([0.3, 0.9, 0.8, -0.4, 0.2, 0.5, 0.6, -0.1, 0.5, 0.6, 0.3, 0.1, -0.2, 1.0], np.float32)


def sample(task="put the red cube in the blue bowl"):
    rng = np.random.default_rng(0)
    clip = rng.integers(0, 256, (3, 4, 12, 3), np.uint8)
    actions = rng.normal(size=(5, 14)).astype(np.float32)
    return Sample(clip, np.ones(3, bool), POSE, actions, np.ones(5, bool), task, 7)


def test_the_other_arm_reaches_the_mirrored_point():
    mirrored = MIRROR.state(POSE)
    for arm, other in ((slice(0, 6), slice(7, 13)), (slice(7, 13), slice(0, 6))):
        pose, image = forward_kinematics(POSE[arm]), forward_kinematics(mirrored[other])
        np.testing.assert_allclose(image[:3, 3], pose[:3, 3] * (1, -1, 1), atol=1e-6)
        np.testing.assert_allclose(image[:3, 0], pose[:3, 0] * (1, -1, 1), atol=1e-6)  # along the fingers
        np.testing.assert_allclose(image[:3, 1], -pose[:3, 1] * (1, -1, 1), atol=1e-6)  # across them
    assert mirrored[6] == POSE[13] and mirrored[13] == POSE[6]


def test_cameras_see_the_mirrored_scene():
    """Up to the light, which comes from one side."""
    sim = Sim()
    sim.reset(5)
    items = sim.object_poses()
    sim.place(POSE, items)
    stacked = np.concatenate([sim.render(camera) for camera in CAMERA_NAMES], axis=1)
    sim.place(MIRROR.state(POSE), {name: pose * (1, -1, 1, 1, -1, 1, -1) for name, pose in items.items()})
    image = np.concatenate([sim.render(camera) for camera in CAMERA_NAMES], axis=1)
    sim.close()

    def differing(a, b):
        return (np.abs(a.astype(int) - b).max(axis=-1) > 60).mean()

    assert differing(MIRROR.pictures(stacked), image) < 0.01
    assert differing(stacked, image) > 0.1


def test_samples_come_once_each_way():
    original = sample()
    both = MirroredSamples([original, sample("put it on the plate")], MIRROR)
    assert len(both) == 4 and both[0] is original
    image = both[2]
    assert image.task == original.task and image.frame == original.frame
    back = MIRROR.sample(image)
    for name in ("clip", "state", "actions"):
        assert np.array_equal(getattr(back, name), getattr(original, name)), name
        assert not np.array_equal(getattr(image, name), getattr(original, name)), name
    np.testing.assert_array_equal(image.actions[:, 0], -original.actions[:, 7])  # left joint 1 is right joint 1 turned
    np.testing.assert_array_equal(image.actions[:, 1], original.actions[:, 8])
    with pytest.raises(IndexError):
        both[4]


def test_what_has_no_mirror_image_is_refused():
    with pytest.raises(ValueError, match="camera 'right_wrist'; there are: top, left_wrist"):
        Mirror(CAMERA_NAMES[:2], JOINT_NAMES, JOINT_NAMES)
    with pytest.raises(ValueError, match="not delta_x"):
        Mirror(CAMERA_NAMES, JOINT_NAMES, ("delta_x",))
    with pytest.raises(ValueError, match="joint 'right_joint1'"):
        Mirror(CAMERA_NAMES, JOINT_NAMES[:7], JOINT_NAMES)
    with pytest.raises(ValueError, match="words name a side"):
        MIRROR.sample(sample("put the cube in the Left bowl"))
