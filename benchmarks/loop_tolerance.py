"""How precise must a policy be? The scripted expert through the evaluation loop, with errors added to its chunks.

Run: python benchmarks/loop_tolerance.py --episodes 22 --json
"""

from __future__ import annotations

import argparse
import dataclasses
import json

import numpy as np

from vag_policy.bringup import share_directory
from vag_policy.cli_eval import graph_parameters, loop_config
from vag_policy.data.splits import load_split
from vag_policy.evaluation.expert_policy import ExpertPolicy
from vag_policy.evaluation.rollout import LoopConfig, Rollout
from vag_policy.evaluation.statistics import wilson
from vag_policy.evaluation.trials import trials
from vag_policy.observation.observation import Observation
from vag_policy.policy import Plan
from vag_policy.robots import yam
from vag_policy.robots.yam_sim import Sim

ARM_JOINTS = [i for i in range(len(yam.JOINT_NAMES)) if i not in yam.GRIPPER_INDICES]
KINDS = ("chunk", "action")


class ErringExpert(ExpertPolicy):
    """Adds a normal error to every arm joint: the same for a whole chunk, or another for every action."""

    kind, deviation = "chunk", 0.0

    def plan(self, observation: Observation, instruction: str, episode: int) -> Plan:
        plan = super().plan(observation, instruction, episode)
        rng = np.random.default_rng((episode, plan.replan, 7))
        actions = plan.actions.copy()
        rows = 1 if self.kind == "chunk" else len(actions)
        actions[:, ARM_JOINTS] += rng.normal(0.0, self.deviation, (rows, len(ARM_JOINTS)))
        return dataclasses.replace(plan, actions=actions)


def measure(config: LoopConfig, episodes: int, deviations: list[float]) -> dict[str, dict[str, dict[str, float]]]:
    """Success with its interval, by kind of error and standard deviation."""
    sim = Sim(config.sim)
    policy = ErringExpert(sim, config.layout.cameras, config.layout.size)
    rollout = Rollout(config, sim, policy)
    chosen = trials(load_split(share_directory("config", "splits") / "yam_sim.yaml"), "id", episodes)
    found: dict[str, dict[str, dict[str, float]]] = {}
    for policy.kind in KINDS:
        for policy.deviation in deviations:
            share = wilson(sum(rollout.run(trial).success for trial in chosen), episodes)
            found.setdefault(policy.kind, {})[f"{policy.deviation:g}"] = dataclasses.asdict(share)
            print(f"{policy.deviation:g} rad, by {policy.kind}: {100 * share.value:.0f} %", flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--episodes", type=int, default=22)
    parser.add_argument("--deviations", type=float, nargs="+", default=[0.01, 0.02, 0.03, 0.05], help="rad")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    values = graph_parameters("yam_sim", None, "expert", [])
    found = measure(loop_config(values, 25.0, 0.2, False), arguments.episodes, arguments.deviations)
    if arguments.json:
        print(json.dumps(found))


if __name__ == "__main__":
    main()
