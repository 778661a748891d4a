"""The real policy node around motions that were made before, run as a process by test_demo.py.

The motion is the scripted expert's, recorded in the evaluation's loop for the same scene, so that a demo has something
to succeed with. Usage: demo_policy.py FILE, with FILE what ``record`` wrote.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from vag_policy.entry import begin
from vag_policy.evaluation.trials import Trial
from vag_policy.nodes.policy_node import PolicyNode, run_process
from vag_policy.policy import Plan, Trace
from vag_policy.robots import yam

HORIZON, EXECUTE = 50, 30
NEAR = 0.1
ARMS = [i for i in range(len(yam.JOINT_NAMES)) if i not in yam.GRIPPER_INDICES]


def record(trial: Trial, path: Path) -> None:
    """Let the expert do ``trial``, and write the course it took to ``path``."""
    from vag_policy import cli_eval
    from vag_policy.evaluation.expert_policy import ExpertPolicy
    from vag_policy.evaluation.rollout import Rollout
    from vag_policy.robots.yam_sim import Sim

    config = cli_eval.loop_config(cli_eval.graph_parameters("yam_sim", None, "expert", []), 25.0, 0.2, False)
    sim = Sim(config.sim)
    policy = ExpertPolicy(sim, config.layout.cameras, config.layout.size)
    episode = Rollout(config, sim, policy).run(trial)
    sim.close()
    assert episode.success
    plans = [replanned.plan for replanned in episode.replans]
    np.savez(
        path,
        course=np.concatenate([plan.actions[: plan.execute] for plan in plans]),
        period_ns=plans[0].period_ns,
        cameras=config.layout.cameras,
        size=config.layout.size,
    )


class Recorded:
    """Goes along the recorded course, from its start in every episode; where the arms fell behind, from there on."""

    state_names = action_names = yam.JOINT_NAMES

    def __init__(self, path: str) -> None:
        recorded = np.load(path)
        self.camera_names = tuple(recorded["cameras"].tolist())
        self.image_size = tuple(recorded["size"].tolist())
        self._course, self._period_ns = recorded["course"], int(recorded["period_ns"])
        self.reset()

    def reset(self) -> None:
        self._episode = self._replan = self._place = -1

    def set_guidance(self, changes) -> None:
        pass

    def plan(self, observation, instruction: str, episode: int) -> Plan:
        if episode != self._episode:
            self._episode, self._replan, self._place = episode, -1, 0
        self._replan += 1
        far = np.abs(self._course - observation.state)[:, ARMS].max(axis=1)
        if far[self._place] > NEAR:  # a chunk was not executed, or not to its end
            first = max(self._place - 2 * EXECUTE, 0)
            self._place = first + int(far[first : self._place + 1].argmin())
        places = np.minimum(self._place + np.arange(HORIZON), len(self._course) - 1)
        self._place = int(places[EXECUTE])
        return Plan(
            observation_stamp_ns=observation.stamp_ns,
            episode=episode,
            replan=self._replan,
            instruction=instruction,
            actions=self._course[places],
            names=self.action_names,
            period_ns=self._period_ns,
            execute=EXECUTE,
            trace=_trace(1.0 + 0.1 * (self._replan % 3)),
        )


def _trace(ratio: float) -> Trace:
    return Trace(
        layers=(1,),
        monitored_layer=1,
        attention=np.ones((2, 1, 3), np.float32),
        attention_grid=np.ones((3, 2, 9), np.float32),
        ratio=np.full(2, ratio),
        baseline=np.full(2, 1.0),
        guidance_scale=np.full(2, ratio - 1.0),
        guidance="adaptive",
        branches=(),
        stage_ms={"rollout": 2.0, "head": 1.0},
        solver_index=2,
        sigma=0.883,
    )


if __name__ == "__main__":
    begin(0)
    path = sys.argv.pop(1)
    run_process(lambda: PolicyNode(load=lambda values, log: Recorded(path)))
