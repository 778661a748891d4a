"""Guidance of the action velocity by two counterfactuals, scaled by the Temporal Ratio (paper, algorithm 3).

``v = v_cond + s_i * w_lang * (v_cond - v_null) + s_i * w_plan * (v_plan - v_cond)``

The null branch sees the video features without the instruction, the plan branch those of a longer rollout. Neither is
computed before some s_i is positive, nor when its weight is zero.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from torch import Tensor

from vag_policy.vam.action_head import Prefix
from vag_policy.vam.presets import GuidanceConfig

MIN_BASELINE = 1e-9
"""Floor of TR_0: an episode that began without any attention on the future still has a finite scale."""


class Branch:
    """The prefix of a counterfactual, computed when first asked for."""

    def __init__(self, compute: Callable[[], Prefix]) -> None:
        self._compute = compute
        self._prefix: Prefix | None = None

    @property
    def ran(self) -> bool:
        """Whether the prefix has been computed."""
        return self._prefix is not None

    @property
    def prefix(self) -> Prefix:
        """The prefix; the first call computes it."""
        if self._prefix is None:
            self._prefix = self._compute()
        return self._prefix


def guidance_scale(config: GuidanceConfig, ratio: float, baseline: float | None) -> float:
    """s_i of one Euler step.

    Args:
        config: mode and upper bound.
        ratio: TR_i.
        baseline: TR_0, or None in the episode's first replan, which sets it: then an adaptive s_i is 0.
    """
    if config.mode == "none":
        return 0.0
    if config.mode == "flat":
        return 1.0
    if baseline is None:
        return 0.0
    return min(max(ratio / max(baseline, MIN_BASELINE) - 1.0, 0.0), config.s_max)


def guide(
    config: GuidanceConfig,
    scale: float,
    conditional: Tensor,
    branches: Mapping[str, Branch],
    velocity: Callable[[Prefix], Tensor],
) -> Tensor:
    """Guide one Euler step's velocity.

    Args:
        config: the two weights.
        scale: s_i.
        conditional: v_cond.
        branches: ``null`` and ``plan``.
        velocity: the head's velocity of the same noisy actions on another prefix.

    Returns:
        the guided velocity, shaped like ``conditional``.
    """
    guided = conditional
    if scale > 0 and config.w_lang > 0:
        guided = guided + scale * config.w_lang * (conditional - velocity(branches["null"].prefix))
    if scale > 0 and config.w_plan > 0:
        guided = guided + scale * config.w_plan * (velocity(branches["plan"].prefix) - conditional)
    return guided
