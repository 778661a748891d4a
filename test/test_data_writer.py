"""What is written is LeRobot v3.0: against the layout that lerobot 0.4 to 0.6 reads and writes."""

import json

import av
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from lerobot_maker import CAMERAS, TASKS, make_v3, vectors

from vag_policy.data.lerobot_writer import new_file
from vag_policy.data.statistics import describe, describe_pictures, merge


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return make_v3(tmp_path_factory.mktemp("v3"))


def test_files_lie_where_lerobot_looks(root):
    found = {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}
    expected = {"meta/info.json", "meta/stats.json", "meta/tasks.parquet", "meta/episodes/chunk-000/file-000.parquet"}
    for number in range(2):
        expected.add(f"data/chunk-000/file-{number:03d}.parquet")
        expected |= {f"videos/observation.images.{c}/chunk-000/file-{number:03d}.mp4" for c in CAMERAS}
    assert found == expected


def test_info(root):
    info = json.loads((root / "meta/info.json").read_text())
    features = info.pop("features")
    assert info == {
        "codebase_version": "v3.0",
        "robot_type": "yam_bimanual",
        "total_episodes": 2,
        "total_frames": 27,
        "total_tasks": 2,
        "chunks_size": 1000,
        "data_files_size_in_mb": 100,
        "video_files_size_in_mb": 200,
        "fps": 30,
        "splits": {"train": "0:2"},
        "data_path": "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet",
        "video_path": "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4",
    }
    assert features["action"]["dtype"] == "float32" and features["action"]["shape"] == [14]
    assert features["action"]["names"][:2] == ["left_joint1", "left_joint2"]
    assert features["observation.images.top"]["shape"] == [24, 32, 3]
    assert features["timestamp"] == {"dtype": "float32", "shape": [1], "names": None}
    assert set(features) >= {"frame_index", "episode_index", "index", "task_index"}


def test_rows(root):
    table = pq.read_table(root / "data/chunk-000/file-001.parquet")
    assert table.schema.field("action").type == pa.list_(pa.float32(), 14)
    assert table["frame_index"].to_pylist() == list(range(15))
    assert table["index"].to_pylist() == list(range(12, 27))
    assert set(table["episode_index"].to_pylist()) == {1} and set(table["task_index"].to_pylist()) == {1}
    assert table.schema.field("timestamp").type == pa.float32()
    assert np.allclose(table["timestamp"].to_numpy(), np.arange(15) / 30, atol=1e-6)
    assert np.array_equal(table["action"].to_pylist(), vectors(1, 15)["action"])


def test_episode_table(root):
    rows = pq.read_table(root / "meta/episodes/chunk-000/file-000.parquet").to_pylist()
    assert [row["episode_index"] for row in rows] == [0, 1]
    second = rows[1]
    assert second["tasks"] == [TASKS[1]] and second["length"] == 15
    assert (second["dataset_from_index"], second["dataset_to_index"]) == (12, 27)
    assert (second["data/chunk_index"], second["data/file_index"]) == (0, 1)
    assert (second["meta/episodes/chunk_index"], second["meta/episodes/file_index"]) == (0, 0)
    for camera in CAMERAS:
        key = f"videos/observation.images.{camera}"
        assert (second[f"{key}/chunk_index"], second[f"{key}/file_index"]) == (0, 1)
        assert second[f"{key}/from_timestamp"] == 0.0 and second[f"{key}/to_timestamp"] == pytest.approx(0.5)
    assert second["stats/action/count"] == [15.0] and len(second["stats/action/q99"]) == 14


def test_tasks_have_the_index_that_pandas_reads(root):
    table = pq.read_table(root / "meta/tasks.parquet")
    assert dict(zip(table["task"].to_pylist(), table["task_index"].to_pylist(), strict=True)) == {
        t: i for i, t in enumerate(TASKS)
    }
    assert json.loads(table.schema.metadata[b"pandas"])["index_columns"] == ["task"]


def test_videos_are_h264_at_exact_times(root):
    with av.open(str(root / "videos/observation.images.top/chunk-000/file-001.mp4")) as container:
        stream = container.streams.video[0]
        assert (stream.codec_context.name, stream.pix_fmt, stream.width, stream.height) == ("h264", "yuv420p", 32, 24)
        times = [frame.pts * frame.time_base for frame in container.decode(stream)]
    assert [float(time * 30) for time in times] == list(range(15))


def test_statistics(root):
    stats = json.loads((root / "meta/stats.json").read_text())
    values = np.concatenate([vectors(0, 12)["action"], vectors(1, 15)["action"]]).astype(np.float64)
    assert stats["action"]["count"] == [27.0]
    for name, expected in (
        ("mean", values.mean(0)),
        ("std", values.std(0)),
        ("min", values.min(0)),
        ("max", values.max(0)),
    ):
        assert np.allclose(stats["action"][name], expected, rtol=1e-9)


def test_merged_statistics_are_those_of_the_whole():
    rng = np.random.default_rng(0)
    parts = [rng.normal(size=(n, 3)) * n for n in (2, 30, 7)]
    merged, whole = merge([describe(part) for part in parts]), describe(np.concatenate(parts))
    for name in ("min", "max", "mean", "std", "count"):
        assert np.allclose(merged[name], whole[name], rtol=1e-12)
    assert (merged["q01"] <= whole["q01"] + 1e-12).all() and (merged["q99"] >= whole["q99"] - 1e-12).all()
    with pytest.raises(ValueError, match="no episode"):
        merge([])


def test_picture_statistics_are_by_colour_in_unit_range():
    pixels = np.array([[0, 255, 51], [255, 255, 51]], np.uint8)
    found = describe_pictures(pixels, 1)
    assert found["mean"].shape == (3, 1, 1) and np.allclose(found["mean"].ravel(), [0.5, 1.0, 0.2])
    assert found["count"].tolist() == [1.0]


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path):
    path = tmp_path / "deep/file.txt"
    with new_file(path) as temporary:
        temporary.write_text("first")
    with pytest.raises(RuntimeError), new_file(path) as temporary:
        temporary.write_text("half")
        raise RuntimeError
    assert path.read_text() == "first" and [p.name for p in path.parent.iterdir()] == ["file.txt"]


def test_a_column_of_the_wrong_shape_is_refused(tmp_path):
    def cut(_, columns):
        columns["action"] = columns["action"][:, :13]

    with pytest.raises(ValueError, match=r"column 'action' must be \(12, 14\), got \(12, 13\)"):
        make_v3(tmp_path, change=cut)
