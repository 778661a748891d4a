"""Between robot units and the unit scale of the networks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vag_policy.vam.presets import VamPreset

# Robot units beyond these are no robot's, and would overflow in the networks' float32.
_LARGEST, _SMALLEST_STD = 1e6, 1e-6


@dataclass(frozen=True)
class Normalization:
    """(x - mean) / std for every entry of state and actions.

    Mean and standard deviation of the training set, as in pi0: the flow starts from a unit normal, and this gives its
    targets unit variance. (Quantile scaling is the same map with the quantiles' middle and half distance.)

    Attributes:
        state_mean, state_std: one for each state name, in robot units.
        action_mean, action_std: one for each action name, in robot units.
        relative_actions: for each action name, whether the network gives the action as a difference from the state
            entry of the same name (openpi's delta actions); empty: none does. Plans hold absolute targets either way.
        step_scale: for each step of a chunk, what multiplies ``action_std`` of relative actions there; empty: 1. They
            grow along the chunk, and on one scale a flow would hardly resolve the first ones.
    """

    state_mean: tuple[float, ...]
    state_std: tuple[float, ...]
    action_mean: tuple[float, ...]
    action_std: tuple[float, ...]
    relative_actions: tuple[bool, ...] = ()
    step_scale: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        for name in ("state_mean", "state_std", "action_mean", "action_std", "step_scale"):
            object.__setattr__(self, name, tuple(float(value) for value in getattr(self, name)))
        object.__setattr__(self, "relative_actions", tuple(self.relative_actions))
        for kind in ("state", "action"):
            mean, std = getattr(self, f"{kind}_mean"), getattr(self, f"{kind}_std")
            if len(mean) != len(std):
                raise ValueError(f"{kind}_mean has {len(mean)} entries, {kind}_std {len(std)}")
            if not mean:
                raise ValueError(f"{kind}_mean and {kind}_std must not be empty")
            if not (np.abs(mean) <= _LARGEST).all():
                raise ValueError(f"{kind}_mean must be finite, at most {_LARGEST:g} in size, got {mean}")
            if not ((np.array(std) >= _SMALLEST_STD) & (np.array(std) <= _LARGEST)).all():
                raise ValueError(f"{kind}_std must be finite and positive, {_SMALLEST_STD:g}..{_LARGEST:g}, got {std}")
        if not all(_SMALLEST_STD <= value <= _LARGEST for value in self.step_scale):
            raise ValueError(f"step_scale must be {_SMALLEST_STD:g}..{_LARGEST:g} everywhere, got {self.step_scale}")
        if self.relative_actions and len(self.relative_actions) != len(self.action_mean):
            raise ValueError(
                f"relative_actions has {len(self.relative_actions)} entries, action_mean {len(self.action_mean)}"
            )

    def check(self, preset: VamPreset) -> None:
        """Raise ValueError unless there is one entry for every state and action name of ``preset``."""
        for kind, names in (("state", preset.state_names), ("action", preset.action_names)):
            count = len(getattr(self, f"{kind}_mean"))
            if count != len(names):
                raise ValueError(f"normalization has {count} {kind} entries, preset {preset.name!r} has {len(names)}")
        if self.step_scale and len(self.step_scale) != preset.action_horizon:
            raise ValueError(
                f"step_scale has {len(self.step_scale)} steps, preset {preset.name!r} has {preset.action_horizon}"
            )
        relative = zip(preset.action_names, self.relative_actions, strict=False)  # no flags: none is relative
        missing = [name for name, flag in relative if flag and name not in preset.state_names]
        if missing:
            raise ValueError(f"relative actions {', '.join(missing)} are no state entries of preset {preset.name!r}")

    def reference(self, state: NDArray[np.floating], preset: VamPreset) -> NDArray[np.float64]:
        """(D,) state in robot units -> (A_D,) what each action is counted from: its state entry, or 0."""
        flags = self.relative_actions or (False,) * len(preset.action_names)
        pairs = zip(preset.action_names, flags, strict=True)
        return np.array([state[preset.state_names.index(name)] if flag else 0.0 for name, flag in pairs], np.float64)

    def normalize_state(self, state: NDArray[np.floating]) -> NDArray[np.float32]:
        """(D,) in robot units -> (D,) float32."""
        return ((state - np.array(self.state_mean)) / np.array(self.state_std)).astype(np.float32)

    def normalize_actions(
        self, actions: NDArray[np.floating], reference: NDArray[np.float64] | float = 0.0
    ) -> NDArray[np.float32]:
        """(A_H, A_D) in robot units, counted from ``reference`` -> (A_H, A_D) float32 of unit scale."""
        return ((actions - reference - np.array(self.action_mean)) / self._action_scale()).astype(np.float32)

    def normalize_distant(
        self, action: NDArray[np.floating], reference: NDArray[np.float64] | float = 0.0
    ) -> NDArray[np.float32]:
        """(A_D,) an action at no particular step, in robot units -> (A_D,) float32 in units of ``action_std``."""
        return ((action - reference - np.array(self.action_mean)) / np.array(self.action_std)).astype(np.float32)

    def denormalize_actions(
        self, actions: NDArray[np.floating], reference: NDArray[np.float64] | float = 0.0
    ) -> NDArray[np.float64]:
        """(A_H, A_D) of unit scale -> (A_H, A_D) float64 in robot units; the inverse of ``normalize_actions``."""
        return actions.astype(np.float64) * self._action_scale() + np.array(self.action_mean) + reference

    def _action_scale(self) -> NDArray[np.float64]:
        """(A_D,) or (A_H, A_D) robot units for one unit of an action."""
        std = np.array(self.action_std)
        if not self.step_scale or not any(self.relative_actions):
            return std
        return np.where(self.relative_actions, np.array(self.step_scale)[:, None] * std, std)
