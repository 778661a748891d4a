"""What measuring the Temporal Ratio costs: one Euler step of the action head with the tap over one without.

The head is the yam preset's, in full by default (18 layers, width 1024, 2310 video tokens, 50 actions). The baseline is
the same head on the same inputs in the same run; the three kinds of step (no tap, the monitored layer, every layer)
take turns, and each overhead is the median over rounds of the ratio within a round. Times are the process's CPU time,
so that other load on the machine is not counted.

``cached`` is the stricter prefix mode: its step is tens of times shorter, the tap's work the same.
"""

from __future__ import annotations

import argparse
import json
import time

import numpy as np
import torch

from vag_policy.vam.action_head import ActionHead, Prefix
from vag_policy.vam.presets import PREFIX_MODES, override, preset

LIMIT = 0.05


def make_head(layers: int, prefix_mode: str) -> tuple[ActionHead, Prefix]:
    """A random yam head and its video prefix. Random keys and values: a step's time does not depend on them."""
    settings = preset("yam")
    config = override(settings.head, {"layers": layers, "prefix_mode": prefix_mode})
    head = ActionHead(config).eval()
    head.draw_modulation()
    shape = (1, settings.video_tokens, config.head_dim)
    keys_values = tuple((torch.randn(shape), torch.randn(shape)) for _ in range(layers))
    tokens = torch.randn(1, settings.video_tokens, config.width)
    return head, Prefix(tokens, config.frames, settings.grid, keys_values if prefix_mode == "cached" else None)


@torch.inference_mode()
def measure(head: ActionHead, prefix: Prefix, tr_layer: int, rounds: int) -> dict[str, np.ndarray]:
    """(rounds,) CPU seconds of a step without tap, with it at ``tr_layer``, and at every layer."""
    settings, every = preset("yam"), tuple(range(1, head.config.layers + 1))
    actions = torch.randn(1, settings.action_horizon, head.config.pad)
    state = torch.randn(1, len(settings.state_names))
    kinds = {"plain": (), "monitored": (tr_layer,), "all": every}

    def step(layers: tuple[int, ...]) -> float:
        begin = time.process_time()
        tap = head.tap(prefix, layers, layers[-1]) if layers else None
        head.velocity(actions, torch.tensor([0.5]), state, prefix, tap)
        if tap is not None:
            assert bool(tap.mass.isfinite().all())  # read, as the policy does
        return time.process_time() - begin

    seconds: dict[str, list[float]] = {kind: [] for kind in kinds}
    for index in range(-1, rounds):
        order = list(kinds)[index % 3 :] + list(kinds)[: index % 3]
        for kind in order:
            elapsed = step(kinds[kind])
            if index >= 0:  # the first round warms up
                seconds[kind].append(elapsed)
    return {kind: np.array(values) for kind, values in seconds.items()}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--layers", type=int, default=preset("yam").head.layers, help="head layers (default: all 18)")
    parser.add_argument("--prefix-mode", choices=PREFIX_MODES, default="cached")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="print one JSON object last")
    options = parser.parse_args()

    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    head, prefix = make_head(options.layers, options.prefix_mode)
    tr_layer = min(preset("yam").tr_layer, options.layers)
    print(
        f"head of the yam preset: {options.layers} of 18 layers, width {head.config.width}, "
        f"{prefix.tokens.shape[1]} video tokens ({options.prefix_mode}), {preset('yam').action_horizon} actions, "
        f"float32, {options.threads} thread(s), {options.rounds} rounds",
        flush=True,
    )
    seconds = measure(head, prefix, tr_layer, options.rounds)
    overhead = {kind: float(np.median(seconds[kind] / seconds["plain"]) - 1) for kind in ("monitored", "all")}
    for kind, name in (("plain", "no tap"), ("monitored", f"layer {tr_layer}"), ("all", "every layer")):
        ratio = "" if kind == "plain" else f"  {overhead[kind]:+.2%}"
        print(f"{name:12} {np.median(seconds[kind]) * 1e3:9.1f} ms CPU a step{ratio}")
    print(f"limit at the monitored layer: {LIMIT:+.0%}")
    if options.json:
        result = {
            "overhead": round(overhead["monitored"], 5),
            "overhead_all_layers": round(overhead["all"], 5),
            "limit": LIMIT,
            "step_cpu_ms": {kind: round(float(np.median(values)) * 1e3, 3) for kind, values in seconds.items()},
            "layers": options.layers,
            "tr_layer": tr_layer,
            "prefix_mode": options.prefix_mode,
            "video_tokens": prefix.tokens.shape[1],
            "rounds": options.rounds,
            "threads": options.threads,
        }
        print(json.dumps(result))


if __name__ == "__main__":
    main()
