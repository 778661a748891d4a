"""Keyframes: where the arms are when a gripper next changes."""

import numpy as np

from vag_policy.data.keyframes import next_keyframes


def test_the_next_change_of_either_gripper_within_the_episode():
    left = [1, 1, 0.6, 0.4, 0, 0, 0.9, 1] + [1, 1, 1]
    right = [1, 1, 1, 1, 1, 0, 0, 0] + [0, 0.2, 0.1]
    grippers, starts = np.array([left, right]).T, np.array([0, 8, 11])
    good = np.ones(11, bool)
    # the left one closes at 3 and opens at 6, the right one closes at 5; the second episode changes nothing
    assert next_keyframes(grippers, starts, good).tolist() == [3, 3, 3, 5, 5, 6, 7, 7, 10, 10, 10]
    good[5] = False  # that was a mistake
    assert next_keyframes(grippers, starts, good).tolist() == [3, 3, 3, 6, 6, 6, 7, 7, 10, 10, 10]


def test_an_episode_of_one_frame():
    assert next_keyframes(np.ones((1, 2)), np.array([0, 1]), np.ones(1, bool)).tolist() == [0]
