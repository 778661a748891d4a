"""The log of episodes on a graph: what it counts, what it calls a violation, and when a run counts as whole."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

from vag_policy.evaluation.episode_log import (
    SECOND_NS,
    Attempt,
    EpisodeLog,
    FrameSample,
    JointBounds,
    Replan,
    Story,
    TaskSample,
    failures,
)
from vag_policy.evaluation.moments import moments
from vag_policy.evaluation.pictures import contact_sheet, demo_picture, plot_temporal_ratio
from vag_policy.policy import Trace
from vag_policy.robots import yam
from vag_policy.robots.yam_sim import Sim

BOUNDS = JointBounds({"a": -1.0, "g": 0.0}, {"a": 1.0, "g": 0.0475}, {"a": 1.5, "g": 0.05})
MS = SECOND_NS // 1000
FIRST = Attempt("put the red cube in the blue bowl", "id", 1000, 0, 10 * SECOND_NS, True, "")
SECOND = Attempt("put the blue cube on the green plate", "ood", 10000, 12 * SECOND_NS, 17 * SECOND_NS, False, "dropped")


def trace(ratio: float, scale: float = 0.0, head_ms: float = 20.0) -> Trace:
    return Trace(
        layers=(3,),
        monitored_layer=3,
        attention=np.ones((10, 1, 5), np.float32),
        attention_grid=np.ones((5, 2, 6), np.float32),
        ratio=np.full(10, ratio),
        baseline=np.full(10, 2.0),
        guidance_scale=np.full(10, scale),
        guidance="adaptive",
        branches=("null",) if scale else (),
        stage_ms={"encode": 1.0, "head": head_ms},
        solver_index=2,
        sigma=0.883,
    )


def replan(stamp_ns: int, of: Trace) -> Replan:
    return Replan(stamp_ns, stamp_ns - 200 * MS, of)


def log_of_good_episodes() -> EpisodeLog:
    """Ten seconds of an episode, two without, five of another; 30 observations a second, but 10 in between."""
    log = EpisodeLog(BOUNDS, cameras=("top", "left_wrist"))
    for i in range(300):
        log.add_observation(i * SECOND_NS // 30, 20 * MS)
    for i in range(20):
        log.add_observation(10 * SECOND_NS + (i + 1) * 100 * MS - 1, 900 * MS)
    for i in range(150):
        log.add_observation(12 * SECOND_NS + i * SECOND_NS // 30, 20 * MS)
    for i in range(15):
        stamp = SECOND_NS * (i if i < 10 else i + 2)
        log.replans.append(replan(stamp, trace(2.0 + 0.1 * i, scale=0.1 * (i > 5), head_ms=20.0 + i)))
        log.frames.append(FrameSample(stamp, np.full((8, 24, 3), 15 * i, np.uint8), {}))
        log.tasks.append(TaskSample(stamp, i == 9, "", "approach", {}))
    log.replans.append(replan(11 * SECOND_NS, trace(9.9)))  # of nothing that is shown
    log.status = SimpleNamespace(
        mode="policy", reason="", queue_depth=3, commands=9, misses=1, clamps=2, rejected=0, limit_violations=0
    )
    for i in range(1000):
        log.add_command(i * 10 * MS, ["a", "g"], [0.5 * np.sin(i / 100), 0.02])
    return log


def test_a_command_to_the_rig_is_one_however_many_messages_carry_it():
    log = EpisodeLog(BOUNDS)
    for i in range(5):
        log.add_command(i * 10 * MS, ["a"], [0.0])
        log.add_command(i * 10 * MS, ["g"], [0.01])
    log.add_command(50 * MS, ["a"], [0.0])
    assert log.commands == 6 and log.commanded_ns == 50 * MS


def test_the_numbers_of_good_episodes():
    summary = log_of_good_episodes().summary([FIRST, SECOND], [])
    assert summary["success"] == 0.5 and summary["seconds"] == 15.0
    assert summary["observation_hz"] == pytest.approx(30.0), "what comes between two episodes counts for nothing"
    assert summary["observation_age_ms"] == {"min": 20.0, "median": 20.0, "max": 20.0}
    assert summary["replans"] == 15 and summary["commands"] == 1000
    assert summary["replan_ms"]["median"] == pytest.approx(28.0)
    assert summary["replan_ms"]["p95"] == pytest.approx(np.percentile(np.arange(21.0, 36.0), 95), abs=0.01)
    assert summary["replan_ms"]["stages"] == {"encode": 1.0, "head": 27.0}
    assert summary["tr"] == {"min": 2.0, "median": 2.7, "max": 3.4}
    assert summary["branches"] == ["null"] and summary["guidance"] == "adaptive"
    assert summary["limit_violations"] == 0 and failures(summary) == []
    told = {"instruction": FIRST.instruction, "split": "id", "seed": 1000, "success": True, "reason": ""}
    assert summary["episodes"][0] == {**told, "seconds": 10.0, "replans": 10}
    told = {"instruction": SECOND.instruction, "split": "ood", "seed": 10000, "success": False, "reason": "dropped"}
    assert summary["episodes"][1] == {**told, "seconds": 5.0, "replans": 5}
    json.dumps(summary, allow_nan=False)


def test_success_does_not_decide_whether_every_stage_ran():
    log = log_of_good_episodes()
    assert failures(log.summary([SECOND], [])) == []


@pytest.mark.parametrize(
    ("break_it", "reason"),
    [
        (lambda log: log.observations.__setitem__(slice(200, 300), [11 * SECOND_NS] * 100), "at 23.33 Hz, below 25"),
        (lambda log: log.replans.clear(), "the policy never replanned"),
        (lambda log: log.replans.__delitem__(slice(10, 15)), "the policy never replanned in episode 2"),
        (lambda log: setattr(log, "commands", 0), "no command reached the arms"),
        (lambda log: log.add_command(11 * SECOND_NS, ["a"], [1.2]), "a at 1.2000, outside -1.0000 .. 1.0000"),
        (lambda log: log.replans.append(replan(SECOND_NS, trace(np.nan))), "not finite"),
        (lambda log: setattr(log.status, "limit_violations", 1), "1 commands outside limits"),
    ],
)
def test_a_stage_that_did_not_run_is_named(break_it, reason):
    log = log_of_good_episodes()
    break_it(log)
    found = failures(log.summary([FIRST, SECOND], []))
    assert len(found) in (1, 2) and any(reason in text for text in found)


def test_a_run_without_an_episode_is_no_good_one():
    summary = log_of_good_episodes().summary([], [])
    assert (summary["success"], summary["episodes"], summary["observation_hz"]) == (None, [], 0.0)
    assert "the policy never replanned" in failures(summary)


def test_a_dead_node_is_named():
    summary = log_of_good_episodes().summary([FIRST], ["policy (-9)"])
    assert failures(summary) == ["nodes died: policy (-9)"]


def test_speed_is_judged_over_time_and_not_by_late_messages():
    log = EpisodeLog(BOUNDS)
    for i in range(100):  # 1.2 rad/s, every other message 8 ms late
        log.add_command(i * 10 * MS + 8 * MS * (i % 2), ["a"], [-0.9 + 0.012 * i])
    assert log.violations == []
    fast = EpisodeLog(BOUNDS)
    for i in range(60):  # 3 rad/s
        fast.add_command(i * 10 * MS, ["a"], [-0.9 + 0.03 * i])
    assert "a at" in fast.violations[0] and "over 1.500" in fast.violations[0]


@pytest.mark.parametrize("placed", [True, False])
def test_arms_that_were_placed_elsewhere_did_not_move_there(placed):
    log = EpisodeLog(BOUNDS)
    for i in range(60):
        log.add_command(i * 10 * MS, ["a"], [0.9])
    if placed:
        log.arms_were_placed()
    for i in range(60):
        log.add_command((90 + i) * 10 * MS, ["a"], [-0.9])
    assert bool(log.violations) is not placed


# What is shown of an episode


def story(phases: str, attempt: Attempt = FIRST, **changes) -> Story:
    """Phases by their first letters, one every half second, and a frame 0.1 s after each of them."""
    names = {"a": "approach", "g": "grasp", "c": "carry", "p": "place", "r": "retreat"}
    items = Sim().object_poses()
    joints = dict(zip(yam.JOINT_NAMES, yam.POSES["home"], strict=True))
    tasks = [TaskSample(i * 500 * MS, False, "", names[letter], items) for i, letter in enumerate(phases)]
    pictures = np.random.default_rng(0).integers(0, 255, (len(phases), 8, 36, 3), np.uint8)
    frames = [FrameSample(i * 500 * MS + 100 * MS, picture, joints) for i, picture in enumerate(pictures)]
    replans = [replan(i * SECOND_NS, trace(2.0 + 0.1 * i, 0.05 * i)) for i in range(1, 8)]
    return Story(attempt, changes.get("frames", frames), changes.get("tasks", tasks), changes.get("replans", replans))


def test_phases_are_stretches():
    seen = story("aaggaccp").phases()
    assert [(name, start // MS, end // MS) for name, start, end in seen] == [
        ("approach", 0, 1000),
        ("grasp", 1000, 2000),
        ("approach", 2000, 2500),
        ("carry", 2500, 3500),
        ("place", 3500, 10_000),
    ]


@pytest.mark.parametrize(
    ("phases", "labels", "seconds"),
    [
        ("aaaaaggggcccccccpprrr", ["start", "grasp", "carry", "end"], [0.0, 4.5, 6.0, 10.0]),
        ("aaggaaaagggccpaccccrr", ["start", "grasp", "carry", "end"], [0.0, 5.5, 8.5, 10.0]),
        ("aaaaaaaaggaaaaaaaaaaa", ["start", "grasp", "approach", "end"], [0.0, 5.0, 7.5, 10.0]),
        ("aaaaaaaaaaaaaaaaaaaaa", ["start", "approach", "approach", "end"], [0.0, 3.5, 6.5, 10.0]),
        ("aaaaaaaaccccaaaaaaaaa", ["start", "approach", "carry", "end"], [0.0, 2.5, 5.0, 10.0]),
        ("a", ["start", "approach", "approach", "end"], [0.0, 0.0, 0.0, 0.0]),
    ],
)
def test_four_moments_tell_an_episode(phases, labels, seconds):
    told = moments(story(phases))
    assert [moment.label for moment in told] == labels
    times = [moment.stamp_ns / SECOND_NS for moment in told]
    assert times == sorted(times) and times == pytest.approx(seconds, abs=0.26)
    for moment in told:
        assert abs(moment.frame.stamp_ns - moment.stamp_ns) <= 100 * MS, "what the policy saw just then"


@pytest.mark.parametrize("missing", ["frames", "tasks"])
def test_an_episode_that_nobody_saw_cannot_be_told(missing):
    with pytest.raises(ValueError, match="nothing was seen of the episode 'put the red cube in the blue bowl'"):
        moments(story("aaa", **{missing: []}))


def test_pictures_are_written_and_show_something(tmp_path):
    from matplotlib.image import imread

    failed = story("aaaaaaaaaa", SECOND)
    shown = [story("aaaaaggggcccccccpprrr"), Story(SECOND, failed.frames, failed.tasks, [])]
    plot_temporal_ratio(shown, tmp_path / "tr.png")
    contact_sheet(shown, ("top", "left_wrist"), tmp_path / "sheet.png")
    demo_picture(shown, tmp_path / "demo.png")
    plot_temporal_ratio(shown[:1] * 9, tmp_path / "many.png")
    heights = {}
    for name in ("tr", "sheet", "demo", "many"):
        pixels = imread(tmp_path / f"{name}.png")
        heights[name] = pixels.shape[0]
        assert pixels.shape[0] > 200 and pixels[..., :3].std() > 0.05
    assert heights["many"] < 3.5 * heights["tr"], "at most six episodes, or nothing can be seen"
    for draw in (plot_temporal_ratio, demo_picture, lambda stories, path: contact_sheet(stories, (), path)):
        with pytest.raises(ValueError, match="no episode was run"):
            draw([], tmp_path / "none.png")
    with pytest.raises(ValueError, match="no stacked frame"):
        contact_sheet([Story(FIRST, [], [], [])], (), tmp_path / "none.png")
    assert not (tmp_path / "none.png").exists()
