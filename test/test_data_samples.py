"""The frame cache holds what the live graph would see, and samples put clip, state, actions and task together."""

import pickle
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from lerobot_maker import CAMERAS, TASKS, make_v3, vectors

from vag_policy.data.clips import ClipConfig
from vag_policy.data.frame_cache import build_cache
from vag_policy.data.lerobot_reader import LeRobotDataset
from vag_policy.data.names import DatasetError
from vag_policy.data.samples import Samples
from vag_policy.data.video import VideoError
from vag_policy.observation.image_codec import RawFrame
from vag_policy.observation.stacking import StackConfig, stack

STACK = StackConfig(CAMERAS, (16, 12))
CLIP = ClipConfig(frames=4, skip=3, horizon=5, stride=1)


def marked(episode, length):
    """Frames 6 and 7 of every episode are mistakes."""
    return ~np.isin(np.arange(length), (6, 7))


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    return LeRobotDataset(make_v3(tmp_path_factory.mktemp("v3"), extra={"imitate": ("bool", marked)}))


@pytest.fixture(scope="module")
def caches(dataset, tmp_path_factory):
    folder = tmp_path_factory.mktemp("cache")
    return {every: build_cache(dataset, STACK, folder, every, workers=1 + every % 3) for every in (1, 3)}


def live(dataset, episode, frame):
    """The stacked picture as camera_sync makes it from messages."""
    pictures = {name: list(dataset.pictures(episode, name, frame, 1))[0] for name in CAMERAS}
    frames = {name: RawFrame("rgb8", 24, 32, 96, False, p.tobytes()) for name, p in pictures.items()}
    return stack(frames, STACK)


def test_cached_frames_equal_the_live_ones(dataset, caches):
    for episode, length in enumerate((12, 15)):
        stored = caches[1].frames(episode, np.arange(length))
        assert stored.shape == (length, 12, 48, 3) and stored.dtype == np.uint8
        for frame in range(length):
            assert np.array_equal(stored[frame], live(dataset, episode, frame))


def test_every_third_frame(dataset, caches):
    stored = caches[3].frames(1, np.array([0, 3, 12, 14]))
    for picture, frame in zip(stored, (0, 3, 12, 12), strict=True):
        assert np.array_equal(picture, live(dataset, 1, frame))
    with pytest.raises(IndexError):
        caches[3].frames(0, np.array([12]))


def test_a_cache_is_built_once_and_named_after_dataset_and_layout(dataset, caches):
    folder, seen = caches[1].path.parent, []
    again = build_cache(dataset, STACK, folder, 1, progress=lambda *a: seen.append(a))
    assert again.path == caches[1].path and not seen
    assert caches[1].path != caches[3].path
    other = build_cache(dataset, StackConfig(CAMERAS, (8, 6)), folder, 3)
    assert other.path not in {cache.path for cache in caches.values()}
    left = {path.suffix for path in folder.iterdir()}
    assert left == {".frames", ".lock"}


def test_a_cache_survives_pickling(caches):
    cache = caches[1]
    copy = pickle.loads(pickle.dumps(cache))
    assert len(pickle.dumps(cache)) < 2000
    assert np.array_equal(copy.frames(0, np.arange(3)), cache.frames(0, np.arange(3)))


def test_a_broken_video_stops_the_build_and_the_rest_is_not_done_again(tmp_path):
    dataset = LeRobotDataset(make_v3(tmp_path / "v3"))
    path, _ = dataset.episodes[1].videos["observation.images.top"]
    whole = path.read_bytes()
    size = len(whole)
    path.write_bytes(whole[: size // 2] + b"\0" * (size - size // 2))
    with pytest.raises(VideoError, match="file-001.mp4"):
        build_cache(dataset, STACK, tmp_path / "cache")
    path.write_bytes(whole)
    seen = []
    cache = build_cache(dataset, STACK, tmp_path / "cache", progress=lambda *a: seen.append(a))
    assert seen == [(2, 2)]
    assert np.array_equal(cache.frames(1, np.array([14]))[0], live(dataset, 1, 14))


def test_samples_start_on_good_stored_frames(dataset, caches):
    assert Samples(dataset, caches[1], CLIP).frames.tolist() == [f for f in range(27) if f not in (6, 7, 18, 19)]
    # stored: 0 3 6 9 and 12 + 0 3 6 9 12; the sixth of each is a mistake
    assert Samples(dataset, caches[3], CLIP).frames.tolist() == [0, 3, 9, 12, 15, 21, 24]


def test_a_sample(dataset, caches):
    samples = Samples(dataset, caches[3], CLIP)
    sample = samples[4]
    expected = vectors(1, 15)
    assert sample.frame == 15 and sample.task == TASKS[1]
    assert np.array_equal(sample.state, expected["observation.state"][3])
    assert np.array_equal(sample.actions, expected["action"][3:8])
    assert sample.actions_valid.tolist() == [True, True, True, False, False]  # frames 6 and 7 are mistakes
    assert sample.clip_valid.all()
    for picture, frame in zip(sample.clip, (3, 6, 9, 12), strict=True):
        assert np.array_equal(picture, live(dataset, 1, frame))


def test_a_sample_at_the_end(dataset, caches):
    sample = Samples(dataset, caches[3], CLIP)[6]
    action = vectors(1, 15)["action"]
    assert np.array_equal(sample.actions, action[[12, 13, 14, 14, 14]])
    assert sample.actions_valid.tolist() == [True, True, True, False, False]
    assert sample.clip_valid.tolist() == [True, False, False, False]


def test_what_does_not_fit_is_refused(dataset, caches, tmp_path):
    with pytest.raises(DatasetError, match="every 4th frame, the cache stores every 3th"):
        Samples(dataset, caches[3], ClipConfig(frames=4, skip=4, horizon=5))
    with pytest.raises(DatasetError, match="the cache holds 2 episodes, the dataset 1"):
        Samples(LeRobotDataset(make_v3(tmp_path, lengths=(12,))), caches[3], CLIP)
    with pytest.raises(ValueError, match="camera 'belly' is not among the dataset's: top"):
        build_cache(dataset, StackConfig(("belly",), (8, 6)), tmp_path)


def documented() -> str:
    """The script in doc/data.md."""
    text = (Path(__file__).resolve().parent.parent / "doc/data.md").read_text()
    return re.search(r"```python\n(.*?)```", text, re.DOTALL)[1]


@pytest.mark.parametrize("workers", [1, 2])
def test_the_documented_script_runs_and_never_waits_for_itself(tmp_path, workers):
    make_v3(tmp_path / "demos")
    script = tmp_path / "script.py"
    script.write_text(documented().replace("every=3", f"every=3, workers={workers}"))
    ended = subprocess.run([sys.executable, script], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    if workers == 1:
        assert (ended.returncode, ended.stderr) == (0, "")
        assert ended.stdout == "9 (17, 64, 288, 3) (50, 14) put the red cube in the blue bowl\n"
    else:  # it has no guard
        assert ended.returncode == 1 and 'needs `if __name__ == "__main__":`' in ended.stderr
