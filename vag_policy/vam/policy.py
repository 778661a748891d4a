"""The video-action policy: Observation in, Plan with Trace out.

A replan imagines the future behind the current image (``rollout``), reads the video model's hidden states half way
(``features``), and lets the action head flow from noise to a chunk. Its noise is drawn from (seed, episode, replan), so
that a replan can be repeated.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vag_policy.observation.observation import Observation
from vag_policy.policy import Plan, PolicyError, Trace
from vag_policy.vam.action_head import Prefix
from vag_policy.vam.guidance import Branch
from vag_policy.vam.inputs import named_state, stacked_image
from vag_policy.vam.model import VamModel
from vag_policy.vam.noise import seeded_normal
from vag_policy.vam.normalization import Normalization
from vag_policy.vam.presets import override
from vag_policy.vam.sampler import Chunk, sample_chunk
from vag_policy.vam.timing import StageClock
from vag_policy.video.instruction import InstructionEncoder

_VIDEO_NOISE, _ACTION_NOISE, _LONGER_VIDEO_NOISE = range(3)


@dataclass
class _Episode:
    """What one episode remembers. Replaced, never cleared, so that a reset during a replan is not undone by it."""

    number: int
    stamp_ns: int
    replan: int = 0
    baseline: NDArray[np.float64] | None = None


class VamPolicy:
    """A ``vag_policy.policy.Policy``.

    Args:
        model: networks; put in evaluation mode here.
        encoder: turns instructions into embeddings.
        normalization: robot units <-> unit scale.
        seed: of all noise.

    Raises:
        ValueError: ``normalization`` does not fit the model's preset, or a negative seed.
    """

    def __init__(
        self, model: VamModel, encoder: InstructionEncoder, normalization: Normalization, seed: int = 0
    ) -> None:
        normalization.check(model.preset)
        if seed < 0:
            raise ValueError(f"seed must not be negative, got {seed}")
        self.model = model.eval()
        self.preset = model.preset
        self.encoder = encoder
        self.normalization = normalization
        self.seed = seed
        self._episode: _Episode | None = None
        self._text: tuple[str, Tensor] | None = None
        self._null_text: Tensor | None = None

    @property
    def camera_names(self) -> tuple[str, ...]:
        """Cameras in stacking order."""
        return self.preset.video.cameras

    @property
    def state_names(self) -> tuple[str, ...]:
        """Names of the state entries the policy reads."""
        return self.preset.state_names

    @property
    def action_names(self) -> tuple[str, ...]:
        """Names of the columns of ``Plan.actions``."""
        return self.preset.action_names

    @property
    def image_size(self) -> tuple[int, int]:
        """(width, height) in pixels of the stacked image."""
        return self.preset.video.image_size

    def reset(self) -> None:
        """Forget the current episode (TR baseline, replan count); may be called while a plan is being made."""
        self._episode = None

    def set_guidance(self, changes: Mapping[str, Any]) -> None:
        """Change fields of the preset's ``GuidanceConfig``, from the next plan on. Call it between plans.

        Raises:
            ValueError: a field does not exist or a value is not allowed; nothing is changed.
        """
        self.preset = override(self.preset, {f"guidance.{name}": value for name, value in changes.items()})

    @torch.inference_mode()
    def plan(self, observation: Observation, instruction: str, episode: int) -> Plan:
        """Decide the next actions. See ``vag_policy.policy.Policy.plan``.

        An observation older than the last one (a bag that starts again) begins the episode anew. An observation that
        is refused leaves the episode as it was.

        Raises:
            PolicyError: a camera or state entry is missing, an image size is wrong, a state is not finite, the
                instruction cannot be embedded, or the networks' output is not finite.
        """
        image = stacked_image(observation, self.camera_names, self.image_size)
        measured = named_state(observation, self.state_names)
        state = self.normalization.normalize_state(measured)
        current = self._current_episode(episode, observation.stamp_ns)
        model, clock = self.model, StageClock(self.model.synchronize)
        with clock.stage("text"):
            text = self._project(instruction)
        with clock.stage("encode"):
            anchor = model.encode(image)
        with clock.stage("rollout"):
            noise = self._noise(current, _VIDEO_NOISE, model.noise_shape(self.preset.video.latent_frames))
            latents = model.rollout(anchor, text, noise)
        with clock.stage("features"):
            features = model.features(latents, anchor, text)
        branches = {
            "null": Branch(lambda: self._null_prefix(clock, anchor, noise, latents)),
            "plan": Branch(lambda: self._plan_prefix(clock, current, anchor, noise, text)),
        }
        with clock.stage("head"):
            chunk = self._sample(current, model.prefix(features), state, branches)
        actions = self._robot_actions(chunk, measured)
        plan = Plan(
            observation_stamp_ns=observation.stamp_ns,
            episode=episode,
            replan=current.replan,
            instruction=instruction,
            actions=actions,
            names=self.action_names,
            period_ns=self.preset.period_ns,
            execute=self.preset.execute,
            trace=self._trace(chunk, clock, branches),
        )
        current.baseline = chunk.baseline
        current.replan += 1
        current.stamp_ns = observation.stamp_ns
        return plan

    @torch.inference_mode()
    def imagine(
        self, observation: Observation, instruction: str, episode: int = 0, replan: int = 0, frames: int | None = None
    ) -> NDArray[np.uint8]:
        """The future that the plan of the same observation, episode and replan followed, as pictures.

        Args:
            observation, instruction, episode: as for ``plan``.
            replan: ``Plan.replan``.
            frames: latent frames T; the preset's by default.

        Returns:
            (1 + 4 (T - 1), H, W, 3) uint8 RGB at ``preset.video.video_fps``; the first one is the current image as the
            tokenizer sees it.

        Raises:
            PolicyError: as for ``plan``.
            ValueError: ``frames`` is not allowed.
        """
        image = stacked_image(observation, self.camera_names, self.image_size)
        text = self._project(instruction)
        shape = self.model.noise_shape(self.preset.video.latent_frames)
        key = _Episode(episode, observation.stamp_ns, replan)
        noise = self._extended(key, self._noise(key, _VIDEO_NOISE, shape), frames or shape[2])
        return self.model.imagine(self.model.encode(image), text, noise)

    def _current_episode(self, number: int, stamp_ns: int) -> _Episode:
        if number < 0:
            raise PolicyError(f"episode must not be negative, got {number}")
        current = self._episode
        if current is None or current.number != number or stamp_ns < current.stamp_ns:
            current = self._episode = _Episode(number, stamp_ns)
        return current

    def _project(self, instruction: str) -> Tensor:
        """The instruction as cross-attention sees it; kept while the instruction stands."""
        if self._text is None or self._text[0] != instruction:
            try:
                embedding = self.encoder.encode(instruction)
            except ValueError as error:
                raise PolicyError(str(error)) from error
            self._text = (instruction, self.model.backbone.text(embedding[None]))
        return self._text[1]

    def _null(self) -> Tensor:
        if self._null_text is None:
            self._null_text = self.model.backbone.text(self.encoder.null()[None])
        return self._null_text

    def _null_prefix(self, clock: StageClock, anchor: Tensor, noise: Tensor, latents: Tensor) -> Prefix:
        """Features without the instruction, see ``GuidanceConfig.null_branch``."""
        with clock.stage("null"):
            if self.preset.guidance.null_branch == "rollout":
                latents = self.model.rollout(anchor, self._null(), noise)
            return self.model.prefix(self.model.features(latents, anchor, self._null()))

    def _plan_prefix(self, clock: StageClock, current: _Episode, anchor: Tensor, noise: Tensor, text: Tensor) -> Prefix:
        """Features of a longer rollout, cut to the head's frames. It starts from the same noise, continued."""
        with clock.stage("plan"):
            noise = self._extended(current, noise, self.preset.guidance.plan_frames)
            latents = self.model.rollout(anchor, text, noise)
            return self.model.prefix(self.model.features(latents, anchor, text))

    def _sample(
        self, current: _Episode, prefix: Prefix, state: NDArray[np.float32], branches: dict[str, Branch]
    ) -> Chunk:
        preset = self.preset
        return sample_chunk(
            self.model.head,
            prefix,
            torch.from_numpy(state)[None].to(self.model.device),
            self._noise(current, _ACTION_NOISE, (1, preset.action_horizon, preset.head.pad)),
            steps=preset.euler_steps,
            layers=preset.layers,
            tr_layer=preset.tr_layer,
            guidance=preset.guidance,
            branches=branches,
            baseline=current.baseline,
        )

    def _robot_actions(self, chunk: Chunk, state: NDArray[np.float32]) -> NDArray[np.float64]:
        actions = chunk.actions[:, : len(self.action_names)].cpu().numpy()
        bad = int(np.size(actions) - np.isfinite(actions).sum())
        if bad:
            raise PolicyError(f"the network's chunk is not finite: {bad} of {actions.size} values")
        return self.normalization.denormalize_actions(actions, self.normalization.reference(state, self.preset))

    def _trace(self, chunk: Chunk, clock: StageClock, branches: dict[str, Branch]) -> Trace:
        return Trace(
            layers=self.preset.layers,
            monitored_layer=self.preset.tr_layer,
            attention=chunk.attention,
            attention_grid=chunk.attention_grid,
            ratio=chunk.ratio,
            baseline=chunk.baseline,
            guidance_scale=chunk.guidance_scale,
            guidance=self.preset.guidance.mode,
            branches=tuple(name for name, branch in branches.items() if branch.ran),
            stage_ms=clock.stage_ms,
            solver_index=self.preset.video.sigma_index,
            sigma=self.model.sigma,
        )

    def _extended(self, current: _Episode, noise: Tensor, frames: int) -> Tensor:
        """Video noise cut or continued to ``frames`` latent frames."""
        missing = frames - noise.shape[2]
        if missing <= 0:
            return noise[:, :, :frames]
        more = self._noise(current, _LONGER_VIDEO_NOISE, self.model.noise_shape(missing))
        return torch.cat([noise, more], dim=2)

    def _noise(self, current: _Episode, stream: int, shape: tuple[int, ...]) -> Tensor:
        noise = seeded_normal((self.seed, current.number, current.replan, stream), shape)
        return noise.to(self.model.device)
