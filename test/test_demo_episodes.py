"""The episodes of a demo, against a graph of a few lines: how they begin, end and fail."""

import io
import time
from types import SimpleNamespace

import pytest
from rich.console import Console

from vag_policy import demo_episodes
from vag_policy.demo_episodes import Stage, result_table, run_episodes
from vag_policy.evaluation.episode_log import EpisodeLog, JointBounds, TaskSample
from vag_policy.evaluation.trials import Trial
from vag_policy.nodes.demo_client import RefusedError

PLAN = (("id", Trial(0, "put the red cube in the blue bowl", 1000)), ("ood", Trial(1, "stand still", 10000)))
STATUS = SimpleNamespace(mode="hold", reason="no chunk yet", queue_depth=0, misses=0, clamps=0)


class Client:
    """Answers as a graph would; ``asked`` is what it was asked for."""

    def __init__(self, log, **answers):
        self.log, self.asked = log, []
        self.arm_answers = answers.get("arm", [""])
        self.refuse, self.ends, self.success = answers.get("refuse"), answers.get("ends"), answers.get("success", False)
        self.scene_is_seen = answers.get("scene_is_seen", True)
        self.started_ns = 0

    @property
    def observed_ns(self):
        return time.time_ns() if self.scene_is_seen else 0

    def _ask(self, what):
        self.asked.append(what)
        if what.split()[0] == self.refuse:
            raise RefusedError(f"{what} refused")

    def disarm(self):
        self._ask("disarm")

    def arm(self):
        self._ask("arm")
        return self.arm_answers.pop(0) if len(self.arm_answers) > 1 else self.arm_answers[0]

    def reset_scene(self, seed, instruction):
        self._ask(f"reset {seed} {instruction}")
        self.log.tasks.append(TaskSample(time.time_ns(), False, "never grasped", "approach", {}))

    def start_episode(self, instruction, seconds):
        self._ask(f"start {seconds:g} {instruction}")
        self.started_ns = time.time_ns()
        if self.success:
            self.log.tasks.append(TaskSample(self.started_ns + 1000, True, "", "retreat", {}))

    def end_episode(self):
        self._ask("end")

    def result(self):
        return self.ends


def stage(dead=(), **answers):
    log = EpisodeLog(JointBounds({}, {}, {}))
    log.status = STATUS
    log.observation_age_ns.append(0)
    log.tasks.append(TaskSample(time.time_ns(), True, "", "retreat", {}))  # of what was done before
    running = SimpleNamespace(dead=lambda: dict(dead))
    return Stage(Console(file=io.StringIO(), width=200), running, Client(log, **answers), log)


def said(of: Stage) -> str:
    return of.console.file.getvalue()


@pytest.fixture(autouse=True)
def no_patience(monkeypatch):
    monkeypatch.setattr(demo_episodes, "_PATIENCE_S", 0.2)
    monkeypatch.setattr(demo_episodes, "_QUIET_NS", 20_000_000)


def test_every_episode_is_placed_run_and_ended():
    here = stage(success=True)
    attempts, faults = run_episodes(here, PLAN, 25.0)
    one = ["disarm", "reset 1000 put the red cube in the blue bowl", "arm"]
    two = ["disarm", "reset 10000 stand still", "arm"]
    starts = ["start 25 put the red cube in the blue bowl", "start 25 stand still"]
    assert here.client.asked == [*one, starts[0], "end", *two, starts[1], "end"]
    assert faults == [] and [attempt.success for attempt in attempts] == [True, True]
    assert [(a.split, a.seed) for a in attempts] == [("id", 1000), ("ood", 10000)]
    assert all(attempt.end_ns > attempt.start_ns for attempt in attempts)
    assert "episode 2/2, ood, scene 10000: stand still" in said(here) and "done after" in said(here)


@pytest.mark.parametrize(
    ("answers", "reason"),
    [
        ({"ends": (True, "9 replans")}, "never grasped"),
        ({"ends": (False, "no plan was made: no observation came")}, "no plan was made: no observation came"),
        ({"ends": None}, "the policy does not end the episode"),
    ],
)
def test_an_episode_that_fails_says_why_and_the_next_one_runs(answers, reason):
    here = stage(**answers)
    attempts, faults = run_episodes(here, PLAN, 0.1)
    assert [(attempt.success, attempt.reason) for attempt in attempts] == [(False, reason)] * 2
    assert faults == [] and f"not done after {attempts[0].seconds:.1f} s: {reason}" in said(here)


def test_nothing_goes_on_without_a_node():
    attempts, faults = run_episodes(stage(dead={"policy": -9}), PLAN, 5.0)
    assert [attempt.reason for attempt in attempts] == ["policy died"]
    assert faults == ["1 of 2 episodes ran"]


@pytest.mark.parametrize(
    ("answers", "reason"),
    [
        ({"refuse": "disarm"}, "disarm refused"),
        ({"refuse": "reset"}, "reset 1000 put the red cube in the blue bowl refused"),
        ({"refuse": "start"}, "start 5 put the red cube in the blue bowl refused"),
        ({"scene_is_seen": False}, "no observation of the new scene came"),
        ({"arm": ["no joint_states of left_joint1"]}, "joint_command would not arm: no joint_states of left_joint1"),
    ],
)
def test_what_a_node_refuses_ends_the_demo_with_its_reason(answers, reason):
    assert run_episodes(stage(**answers), PLAN, 5.0) == ([], [f"episode 1: {reason}", "0 of 2 episodes ran"])


def test_arms_that_still_brake_are_asked_again():
    here = stage(success=True, arm=["the command is still braking", "the command is still braking", ""])
    attempts, faults = run_episodes(here, PLAN[:1], 5.0)
    assert len(attempts) == 1 and not faults and here.client.asked.count("arm") == 3


def test_the_scene_is_not_reset_under_a_command():
    here = stage(success=True)
    here.log.commanded_ns = time.time_ns() + 10**12
    assert run_episodes(here, PLAN, 5.0)[1][0].endswith("joint_command is disarmed and goes on commanding")
    assert here.client.asked == ["disarm"]


def test_the_results_are_a_table():
    console = Console(file=io.StringIO(), width=110)
    episode = {"instruction": "put the purple can on the green plate", "split": "ood", "seed": 10000, "seconds": 9.87}
    console.print(result_table([{**episode, "success": True, "replans": 12, "reason": ""}]))
    console.print(result_table([{**episode, "success": False, "replans": 12, "reason": "never grasped"}]))
    text = console.file.getvalue()
    for words in ("put the purple can on the green plate", "10000", "9.9", "12", "done", "never grasped"):
        assert words in text
