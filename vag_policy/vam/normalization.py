"""Between robot units and the unit scale of the networks."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from vag_policy.vam.presets import VamPreset


@dataclass(frozen=True)
class Normalization:
    """(x - mean) / std for every entry of state and actions.

    Mean and standard deviation of the training set, as in pi0: the flow starts from a unit normal, and this gives its
    targets unit variance. (Quantile scaling is the same map with the quantiles' middle and half distance.)

    Attributes:
        state_mean, state_std: one for each state name, in robot units.
        action_mean, action_std: one for each action name, in robot units.
    """

    state_mean: tuple[float, ...]
    state_std: tuple[float, ...]
    action_mean: tuple[float, ...]
    action_std: tuple[float, ...]

    def __post_init__(self) -> None:
        for field in fields(self):
            object.__setattr__(self, field.name, tuple(float(value) for value in getattr(self, field.name)))
        for kind in ("state", "action"):
            mean, std = getattr(self, f"{kind}_mean"), getattr(self, f"{kind}_std")
            if len(mean) != len(std):
                raise ValueError(f"{kind}_mean has {len(mean)} entries, {kind}_std {len(std)}")
            if not np.isfinite(mean).all():
                raise ValueError(f"{kind}_mean must be finite, got {mean}")
            if not (np.isfinite(std).all() and min(std) > 0):
                raise ValueError(f"{kind}_std must be finite and positive, got {std}")

    def check(self, preset: VamPreset) -> None:
        """Raise ValueError unless there is one entry for every state and action name of ``preset``."""
        for kind, names in (("state", preset.state_names), ("action", preset.action_names)):
            count = len(getattr(self, f"{kind}_mean"))
            if count != len(names):
                raise ValueError(f"normalization has {count} {kind} entries, preset {preset.name!r} has {len(names)}")

    def normalize_state(self, state: NDArray[np.floating]) -> NDArray[np.float32]:
        """(D,) in robot units -> (D,) float32."""
        return ((state - np.array(self.state_mean)) / np.array(self.state_std)).astype(np.float32)

    def denormalize_actions(self, actions: NDArray[np.floating]) -> NDArray[np.float64]:
        """(A_H, A_D) of unit scale -> (A_H, A_D) float64 in robot units."""
        return actions.astype(np.float64) * np.array(self.action_std) + np.array(self.action_mean)
