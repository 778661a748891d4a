"""Reading LeRobot datasets, and refusing broken ones with the file and the frame."""

import json

import cv2
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from lerobot_maker import CAMERAS, TASKS, make_v2, make_v3, picture, vectors

from vag_policy.data import lerobot_format as layout
from vag_policy.data.lerobot_reader import DatasetSpec, LeRobotDataset
from vag_policy.data.names import DatasetError, NameMap
from vag_policy.data.video import VideoError, read_frames

MAKERS = {"v3.0": make_v3, "v2.1": make_v2, "images": lambda root: make_v2(root, images=True)}


@pytest.mark.parametrize("maker", MAKERS.values(), ids=MAKERS)
def test_every_layout_gives_the_same_numbers_and_pictures(tmp_path, maker):
    dataset = LeRobotDataset(maker(tmp_path))
    assert dataset.fps == 30 and len(dataset) == 27 and dataset.starts.tolist() == [0, 12, 27]
    for key, values in ((layout.STATE, dataset.state), (layout.ACTION, dataset.action)):
        assert np.array_equal(values, np.concatenate([vectors(0, 12)[key], vectors(1, 15)[key]]))
    assert [dataset.task(frame) for frame in (0, 11, 12, 26)] == [TASKS[0], TASKS[0], TASKS[1], TASKS[1]]
    assert dataset.locate(11) == (0, 11) and dataset.locate(12) == (1, 0)
    for number, camera in enumerate(CAMERAS):
        for episode, length in enumerate((12, 15)):
            pictures = list(dataset.pictures(episode, camera))
            expected = [picture(number, episode, frame) for frame in range(length)]
            assert len(pictures) == length
            assert np.abs(np.array(pictures).astype(int) - expected).max() < 8
    part = list(dataset.pictures(1, "top", start=5, count=2))
    assert [abs(int(p[0, 0, 2]) - 20 - 10 * f) < 8 for p, f in zip(part, (5, 6), strict=True)] == [True, True]


def test_several_episodes_in_one_file(tmp_path):
    root = make_v3(tmp_path)
    paths = sorted((root / "data/chunk-000").glob("*.parquet"))
    pq.write_table(pa.concat_tables([pq.read_table(path) for path in paths]), paths[0])
    paths[1].unlink()
    edit_episodes(root, lambda row: row | {"data/file_index": 0})
    assert np.array_equal(
        LeRobotDataset(root).state, np.concatenate([vectors(0, 12)[layout.STATE], vectors(1, 15)[layout.STATE]])
    )


def test_other_columns_are_at_hand(tmp_path):
    extra = {"phase": ("string", lambda e, n: np.array(["approach"] * (n - 1) + ["grasp"]))}
    dataset = LeRobotDataset(make_v3(tmp_path, extra=extra))
    assert dataset.column("phase").tolist() == ["approach"] * 11 + ["grasp"] + ["approach"] * 14 + ["grasp"]
    with pytest.raises(DatasetError, match="no feature 'reward'; there are: observation.state"):
        dataset.column("reward")


def test_frames_beyond_the_end(tmp_path):
    dataset = LeRobotDataset(make_v3(tmp_path))
    with pytest.raises(IndexError):
        dataset.locate(27)


def edit_info(root, change):
    path = root / "meta/info.json"
    info = json.loads(path.read_text())
    change(info)
    path.write_text(json.dumps(info))


def edit_episodes(root, change):
    path = root / layout.EPISODES.format(chunk_index=0, file_index=0)
    pq.write_table(pa.Table.from_pylist([change(row) for row in pq.read_table(path).to_pylist()]), path)


def edit_data(root, episode, change):
    path = root / layout.DATA.format(chunk_index=0, file_index=episode)
    columns = pq.read_table(path).to_pydict()
    change(columns)
    pq.write_table(pa.table(columns), path)


def put(key, frame, entry, value):
    def change(columns):
        columns[key][frame][entry] = value

    return change


def put_time(columns):
    columns["timestamp"] = [t + (0.02 if i >= 9 else 0.0) for i, t in enumerate(columns["timestamp"])]


def drop_frame(columns):
    for values in columns.values():
        del values[4]


def swap_frames(columns):
    columns["frame_index"][3:5] = [4, 3]


def cut_rows(columns):
    for key in (layout.STATE, layout.ACTION):
        columns[key] = [row[:13] for row in columns[key]]


BROKEN = {
    "fps": (lambda root: edit_info(root, lambda i: i.update(fps=50)), r"has 50 frames a second, expected 30"),
    "version": (
        lambda root: edit_info(root, lambda i: i.update(codebase_version="v1.6")),
        r"info.json: version 'v1.6'.*v3.0, v2.1",
    ),
    "no fps": (lambda root: edit_info(root, lambda i: i.pop("fps")), r"info.json has no 'fps'"),
    "episodes": (
        lambda root: edit_info(root, lambda i: i.update(total_episodes=9)),
        r"counts 9 episodes, the table has 2",
    ),
    "NaN state": (
        lambda root: edit_data(root, 1, put(layout.STATE, 7, 2, float("nan"))),
        r"file-001.parquet: 'observation.state' of episode 1, frame 7, entry 2 is nan",
    ),
    "infinite action": (
        lambda root: edit_data(root, 0, put(layout.ACTION, 3, 13, float("inf"))),
        r"file-000.parquet: 'action' of episode 0, frame 3, entry 13 is inf",
    ),
    "times": (
        lambda root: edit_data(root, 1, put_time),
        r"file-001.parquet: frame 9 of episode 1 is at 0.3200 s, expected 0.3000 s",
    ),
    "dropped frame": (
        lambda root: edit_data(root, 0, drop_frame),
        r"file-000.parquet: episode 0 has 11 frames, the episode table says 12",
    ),
    "swapped frames": (lambda root: edit_data(root, 0, swap_frames), r"not numbered in order at 3 \(frame_index 4\)"),
    "dims": (lambda root: edit_data(root, 0, cut_rows), r"'observation.state' has shape \(12, 13\), info.json says 14"),
    "ragged": (
        lambda root: edit_data(root, 0, lambda c: c[layout.STATE][5].pop()),
        r"file-000.parquet: 'observation.state' has shape \(12,\)",
    ),
    "no column": (lambda root: edit_data(root, 0, lambda c: c.pop("action")), r"file-000.parquet.*'?action"),
    "task": (
        lambda root: edit_data(root, 1, lambda c: c.update(task_index=[5] * 15)),
        r"file-001.parquet: task 5 of episode 1",
    ),
    "no data file": (lambda root: (root / "data/chunk-000/file-001.parquet").unlink(), r"file-001.parquet is missing"),
    "damaged data file": (
        lambda root: (root / "data/chunk-000/file-001.parquet").write_bytes(b"PAR1 no"),
        r"file-001.parquet cannot be read",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("spoil", "word"), BROKEN.values(), ids=BROKEN)
def test_broken_numbers_are_refused(tmp_path, spoil, word):
    root = make_v3(tmp_path)
    spoil(root)
    with pytest.raises(DatasetError, match=word):
        LeRobotDataset(root)


def test_no_dataset_at_all(tmp_path):
    with pytest.raises(DatasetError, match=r"no LeRobot dataset here: cannot read .*info.json"):
        LeRobotDataset(tmp_path)


def test_wrong_cameras_and_joints(tmp_path):
    root = make_v3(tmp_path)
    names = LeRobotDataset(root).names
    with pytest.raises(DatasetError, match="no pictures 'observation.images.belly' for camera 'belly'; it has: obs"):
        LeRobotDataset(root, DatasetSpec(cameras=("belly",)), names)
    with pytest.raises(DatasetError, match="observation.state has no entry 'left_joint8'"):
        LeRobotDataset(root, DatasetSpec(state_names=("left_joint8",)), names)


def video_of(root, episode=1):
    return root / layout.VIDEO.format(video_key="observation.images.top", chunk_index=0, file_index=episode)


def test_a_truncated_video_is_refused(tmp_path):
    root = make_v3(tmp_path)
    dataset, path = LeRobotDataset(root), video_of(root)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(VideoError, match=r"videos/observation.images.top/chunk-000/file-001.mp4: cannot read frame 0"):
        list(dataset.pictures(1, "top"))


def test_a_video_that_ends_early_is_refused_at_the_frame(tmp_path):
    root = make_v3(tmp_path)
    dataset, path = LeRobotDataset(root), video_of(root)
    path.write_bytes(video_of(root, 0).read_bytes())  # 12 frames where 15 should be
    with pytest.raises(VideoError, match=r"file-001.mp4: truncated: it ends before frame 12 of 15"):
        list(dataset.pictures(1, "top"))


def test_a_missing_video_is_refused(tmp_path):
    root = make_v3(tmp_path)
    dataset = LeRobotDataset(root)
    video_of(root).unlink()
    with pytest.raises(VideoError, match=r"file-001.mp4: cannot read frame 0 of 15"):
        list(dataset.pictures(1, "top"))


def test_a_video_at_another_rate_is_refused(tmp_path):
    root = make_v3(tmp_path)
    with pytest.raises(VideoError, match=r"off the grid of 25 frames a second"):
        list(read_frames(video_of(root), 0, 15, fps=25))


def test_a_damaged_image_is_refused_with_its_frame(tmp_path):
    root = make_v2(tmp_path, images=True)
    path = root / "data/chunk-000/episode_000001.parquet"
    columns = pq.read_table(path).to_pydict()
    columns["observation.images.top"][4] = {"bytes": b"no picture", "path": None}
    pq.write_table(pa.table(columns), path)
    with pytest.raises(DatasetError, match=r"episode_000001.parquet: 'observation.images.top' of frame 4"):
        list(LeRobotDataset(root).pictures(1, "top"))


def test_libero_as_it_is_published(tmp_path):
    """physical-intelligence/libero: v2.0, 10 fps, pictures in Parquet, vectors without a name for each entry."""
    root = tmp_path
    shapes = {"image": [24, 32, 3], "wrist_image": [24, 32, 3], "state": [8], "actions": [7]}
    names = {"state": ["state"], "actions": ["actions"]}
    features = {
        key: {"dtype": "float32" if key in names else "image", "shape": shape, "names": names.get(key)}
        for key, shape in shapes.items()
    }
    info = {
        "codebase_version": "v2.0", "robot_type": "panda", "total_episodes": 1, "chunks_size": 1000, "fps": 10,
        "data_path": "data/chunk-{episode_chunk:03d}/episode_{episode_index:06d}.parquet", "features": features,
    }  # fmt: skip
    (root / "meta").mkdir()
    (root / "data/chunk-000").mkdir(parents=True)
    (root / "meta/info.json").write_text(json.dumps(info))
    (root / "meta/tasks.jsonl").write_text('{"task_index": 0, "task": "pick up the butter"}\n')
    (root / "meta/episodes.jsonl").write_text('{"episode_index": 0, "tasks": ["pick up the butter"], "length": 6}\n')
    state, actions = np.arange(48.0).reshape(6, 8), np.arange(42.0).reshape(6, 7)
    png = [{"bytes": cv2.imencode(".png", picture(0, 0, frame)[..., ::-1])[1].tobytes()} for frame in range(6)]
    table = {
        "image": png, "wrist_image": png[::-1], "state": pa.array(state.tolist(), pa.list_(pa.float32())),
        "actions": pa.array(actions.tolist(), pa.list_(pa.float32())), "timestamp": np.arange(6) / 10,
        "frame_index": np.arange(6), "episode_index": np.zeros(6, int), "task_index": np.zeros(6, int),
    }  # fmt: skip
    pq.write_table(pa.table(table), root / "data/chunk-000/episode_000000.parquet")
    spec = DatasetSpec(("agentview", "wrist"), tuple("abcdefgh"), tuple("xyzrpqg"), fps=10)
    where = {"agentview": "image", "wrist": "wrist_image"}
    mapped = NameMap(cameras=where, state_feature="state", action_feature="actions", positional=True)
    dataset = LeRobotDataset(root, spec, mapped)
    assert np.array_equal(dataset.state, state) and np.array_equal(dataset.action, actions)
    assert np.array_equal(list(dataset.pictures(0, "wrist"))[0], picture(0, 0, 5))
    with pytest.raises(DatasetError, match="state does not name its 8 entries; say 'positional'"):
        LeRobotDataset(root, spec, NameMap(cameras=where, state_feature="state", action_feature="actions"))
