"""The real policy node around a policy of a few lines, run as a process by test_policy_node.py.

What the policy does is in its instruction: ``sleep 1.5``, ``raise MemoryError``, ``refuse``, ``nan``; anything else
moves the joints by what the image shows.
"""

from __future__ import annotations

import builtins
import threading
import time
from functools import partial

import numpy as np

from vag_policy.nodes.policy_loader import check_names
from vag_policy.nodes.policy_node import PolicyNode, run_process
from vag_policy.policy import Plan, PolicyError, Trace

NAMES = ("left_joint1", "left_joint2")
CAMERAS = ("top", "left_wrist")
SIZE = (32, 8)
EXECUTE, HORIZON, PERIOD_NS = 5, 8, 20_000_000
STEPS, FRAMES = 2, 3


class SmallPolicy:
    camera_names = CAMERAS
    state_names = NAMES
    action_names = NAMES
    image_size = SIZE

    def __init__(self) -> None:
        self.guidance = {"mode": "none", "w_lang": 0.1}
        self.threads = set()
        self.reset()

    def reset(self) -> None:
        self.episode, self.replan, self.baseline = None, 0, None

    def set_guidance(self, changes) -> None:
        self.guidance.update(changes)

    def plan(self, observation, instruction: str, episode: int) -> Plan:
        self.threads.add(threading.current_thread().name)
        assert self.threads == {"policy"}, f"touched by threads {self.threads}"
        if episode != self.episode:
            self.episode, self.replan, self.baseline = episode, 0, None
        word, _, argument = instruction.partition(" ")
        if word == "sleep":
            time.sleep(float(argument))
        elif word == "raise":
            raise getattr(builtins, argument)("as told")
        elif word == "refuse":
            raise PolicyError(f"no embedding of '{instruction}'")
        ratio = np.full(STEPS, 0.5 + observation.image.mean() / 255.0)
        self.baseline = ratio if self.baseline is None else self.baseline
        left, right = (half.mean() / 255.0 for half in np.split(observation.image, 2, axis=1))
        actions = np.tile([left, right], (HORIZON, 1)) * np.linspace(0.1, 1.0, HORIZON)[:, None]
        if word == "nan":
            actions[3, 1] = np.nan
        plan = Plan(
            observation_stamp_ns=observation.stamp_ns,
            episode=episode,
            replan=self.replan,
            instruction=instruction,
            actions=actions,
            names=NAMES,
            period_ns=PERIOD_NS,
            execute=EXECUTE,
            trace=Trace(
                layers=(1,),
                monitored_layer=1,
                attention=np.ones((STEPS, 1, FRAMES), np.float32),
                attention_grid=np.ones((FRAMES, 2, 4), np.float32),
                ratio=ratio,
                baseline=self.baseline,
                guidance_scale=np.full(STEPS, self.guidance["w_lang"]),
                guidance=self.guidance["mode"],
                branches=(),
                stage_ms={"look": 1.0, "decide": 2.0},
                solver_index=2,
                sigma=0.5,
            ),
        )
        self.replan += 1
        return plan

    def imagine(self, observation, instruction: str, episode: int, replan: int):
        frames = 1 + 4 * (FRAMES - 1)
        return np.stack([np.full_like(observation.image, 10 * index) for index in range(frames)])


def load(values, log_warning) -> SmallPolicy:
    check_names(values, CAMERAS, NAMES)
    kind, _, seconds = values["checkpoint"].partition(" ")
    if kind == "slow":
        time.sleep(float(seconds or 1.0))
    elif values["checkpoint"]:
        raise PolicyError(f"no checkpoint in {values['checkpoint']}")
    return SmallPolicy()


if __name__ == "__main__":
    run_process(partial(PolicyNode, load))
