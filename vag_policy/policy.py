"""The seam between policy families and everything that runs them: Observation in, Plan out.

Both families implement ``Policy``; execution and the nodes know only what is here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from vag_policy.observation.observation import Observation


class PolicyError(ValueError):
    """An observation, instruction or checkpoint that a policy cannot use."""


@dataclass(frozen=True)
class Trace:
    """What went on inside one replan. S Euler steps, L measured head layers, T latent frames.

    Attributes:
        layers: the L measured head layers, 1-indexed.
        monitored_layer: the layer TR is read from, 1-indexed; one of ``layers``.
        attention: (S, L, T) float32, attention mass of the action tokens on each latent frame,
            summed over action queries and heads.
        attention_grid: (T, rows, columns) float32, the same mass at ``monitored_layer`` token by token,
            mean over Euler steps.
        ratio: (S,) float64, TR_i = mass on frames >= 1 over mass on frame 0, at ``monitored_layer``.
        baseline: (S,) float64, TR_0 of the episode's first replan.
        guidance_scale: (S,) float64, s_i.
        guidance: ``none``, ``flat`` or ``adaptive``.
        branches: the guidance branches that ran, of ``null`` and ``plan``.
        stage_ms: milliseconds per stage, in the order they ran.
        solver_index: index on the sigma grid at which features were read.
        sigma: the noise level there.
    """

    layers: tuple[int, ...]
    monitored_layer: int
    attention: NDArray[np.float32]
    attention_grid: NDArray[np.float32]
    ratio: NDArray[np.float64]
    baseline: NDArray[np.float64]
    guidance_scale: NDArray[np.float64]
    guidance: str
    branches: tuple[str, ...]
    stage_ms: Mapping[str, float]
    solver_index: int
    sigma: float


@dataclass(frozen=True)
class Plan:
    """A chunk of absolute joint targets for one episode.

    Attributes:
        observation_stamp_ns: stamp of the observation the plan was made from; action i is meant for
            ``observation_stamp_ns + i * period_ns``.
        episode: the episode the plan belongs to.
        replan: 0 for the first plan of an episode.
        instruction: the words the plan follows.
        actions: (A_H, A_D) float64; radians, grippers 0 (closed) .. 1 (open).
        names: A_D joint names.
        period_ns: nanoseconds between two actions.
        execute: how many actions to execute before the next plan is due; 1 .. A_H.
        trace: what went on inside, or None for a policy without one.
    """

    observation_stamp_ns: int
    episode: int
    replan: int
    instruction: str
    actions: NDArray[np.float64]
    names: tuple[str, ...]
    period_ns: int
    execute: int
    trace: Trace | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        if self.actions.ndim != 2 or self.actions.shape[1] != len(self.names):
            raise ValueError(f"actions have shape {self.actions.shape} for {len(self.names)} joint names")
        if not 1 <= self.execute <= len(self.actions):
            raise ValueError(f"execute must be 1..{len(self.actions)} (the horizon), got {self.execute}")
        if self.period_ns <= 0:
            raise ValueError(f"period_ns must be positive, got {self.period_ns}")


@runtime_checkable
class Policy(Protocol):
    """A policy family's face to the rest of the system."""

    @property
    def camera_names(self) -> tuple[str, ...]:
        """Cameras in stacking order."""

    @property
    def state_names(self) -> tuple[str, ...]:
        """Names of ``Observation.state``, in order."""

    @property
    def action_names(self) -> tuple[str, ...]:
        """Names of the columns of ``Plan.actions``."""

    @property
    def image_size(self) -> tuple[int, int]:
        """(width, height) in pixels of the stacked image."""

    def plan(self, observation: Observation, instruction: str, episode: int) -> Plan:
        """Decide the next actions.

        A new ``episode`` number starts a new episode: its first plan sets the TR baseline.

        Raises:
            PolicyError: the observation's names or image size are not the policy's, a state is not finite,
                or the instruction cannot be embedded.
        """

    def reset(self) -> None:
        """Forget the current episode (TR baseline, replan count)."""
