"""The video model at its three sizes: configuration only, no weights and no torch.

``yam`` and ``libero`` are Cosmos-Predict2.5-2B; ``tiny`` is the same classes with small numbers, for a CPU.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

LATENT_FRAMES = (5, 9, 24)
"""Latent frames a rollout may have: 17, 33 and 93 video frames (paper, horizon sweep)."""

SIGMA_STEPS = 6
"""Points of the noise grid (paper, appendix: inference)."""

TEXT_KINDS = ("cosmos_reason1", "words")
TOKENIZER_KINDS = ("wan", "patch")

PATCH_VALUES = 8 * 8 * 3
"""Values of one image patch that a latent pixel stands for."""

WAN_LATENTS_MEAN = (
    -0.7571, -0.7089, -0.9113, 0.1075, -0.1745, 0.9653, -0.1517, 1.5508,
    0.4134, -0.0715, 0.5517, -0.3632, -0.1922, -0.9497, 0.2503, -0.2921,
)  # fmt: skip
WAN_LATENTS_STD = (
    2.8184, 1.4541, 2.3275, 2.6558, 1.2196, 1.7708, 2.6052, 2.0743,
    3.2687, 2.1526, 2.8652, 1.5579, 1.6382, 1.1253, 2.8251, 1.9160,
)  # fmt: skip
"""Per-channel statistics of the Wan 2.1 VAE; a standard deviation, not its inverse."""


def check_latent_frames(frames: int) -> int:
    """Return ``frames`` if a rollout may have that many latent frames.

    Raises:
        ValueError: it may not; the message lists the allowed values.
    """
    if frames not in LATENT_FRAMES:
        raise ValueError(f"latent frames must be one of {', '.join(map(str, LATENT_FRAMES))}, got {frames}")
    return frames


def check_range(what: str, value: float | tuple[float, ...], low: float, high: float) -> None:
    """Raise ValueError unless ``value``, or everything in it, is ``low`` .. ``high``; NaN is not."""
    for one in value if isinstance(value, tuple) else (value,):
        if not low <= one <= high:
            raise ValueError(f"{what} must be {low:g}..{high:g}, got {one}")


def video_frames(latent_frames: int) -> int:
    """Video frames that ``latent_frames`` stand for: the first alone, then four each."""
    return 1 + 4 * (latent_frames - 1)


# Far beyond any model, and still no work to build: what is outside is a damaged or malicious file.
_BACKBONE_RANGES = {
    "in_channels": (3, 4096),
    "num_attention_heads": (1, 1024),
    "attention_head_dim": (12, 4096),
    "num_layers": (1, 1000),
    "mlp_ratio": (0.01, 100.0),
    "text_embed_dim": (1, 2**20),
    "adaln_lora_dim": (1, 2**20),
    "max_size": (1, 4096),
    "patch_size": (1, 64),
    "rope_scale": (0.001, 1000.0),
    "crossattn_proj_in_channels": (1, 2**20),
}
_TOKENIZER_RANGES = {
    "base_dim": (1, 4096),
    "z_dim": (1, 4096),
    "dim_mult": (1, 64),
    "num_res_blocks": (1, 100),
    "latents_mean": (-1e6, 1e6),
    "latents_std": (1e-6, 1e6),
    "chroma_gain": (1e-3, 1e3),
}


@dataclass(frozen=True)
class BackboneConfig:
    """Size of a ``CosmosTransformer3DModel``; field names are diffusers'. Defaults: Cosmos-Predict2.5-2B.

    ``in_channels`` counts the latents, the condition mask and the padding mask. The padding mask is given as an
    ordinary channel (``concat_padding_mask=False``): the weights are the same, and diffusers' own way of adding it
    needs torchvision inside ``forward``. ``learned_positions`` adds the library's learnable position embedding, as
    Cosmos 1 had it; Predict2.5 has rotary positions only, from which a small model learns places slowly.
    ``preconditioned`` adds a skip connection around the network, see ``video.backbone.precondition``; Predict2.5 has
    none.
    """

    in_channels: int = 18
    out_channels: int = 16
    num_attention_heads: int = 16
    attention_head_dim: int = 128
    num_layers: int = 28
    mlp_ratio: float = 4.0
    text_embed_dim: int = 1024
    adaln_lora_dim: int = 256
    max_size: tuple[int, int, int] = (128, 240, 240)
    patch_size: tuple[int, int, int] = (1, 2, 2)
    rope_scale: tuple[float, float, float] = (1.0, 3.0, 3.0)
    crossattn_proj_in_channels: int = 100352
    learned_positions: bool = False
    preconditioned: bool = False

    def __post_init__(self) -> None:
        for name in ("max_size", "patch_size", "rope_scale"):  # JSON brings lists
            object.__setattr__(self, name, tuple(getattr(self, name)))
        if self.in_channels != self.out_channels + 2:
            raise ValueError(
                f"in_channels must be out_channels + 2 (condition mask, padding mask) = {self.out_channels + 2}, "
                f"got {self.in_channels}"
            )
        if self.patch_size[0] != 1:
            raise ValueError(f"patch_size must be 1 in time (noise levels are per latent frame), got {self.patch_size}")
        if self.attention_head_dim % 2 or self.attention_head_dim < 12:
            raise ValueError(
                f"attention_head_dim must be even and at least 12 (rotary axes), got {self.attention_head_dim}"
            )
        for name, (low, high) in _BACKBONE_RANGES.items():
            check_range(name, getattr(self, name), low, high)

    @property
    def width(self) -> int:
        """Channels of a token."""
        return self.num_attention_heads * self.attention_head_dim

    def kwargs(self) -> dict[str, Any]:
        """Keyword arguments of ``CosmosTransformer3DModel``."""
        library = asdict(self)
        learned = library.pop("learned_positions")
        library.pop("preconditioned")
        return library | {
            "concat_padding_mask": False,
            "extra_pos_embed_type": "learnable" if learned else None,
            "use_crossattn_projection": True,
            "encoder_hidden_states_channels": self.text_embed_dim,
        }


@dataclass(frozen=True)
class TokenizerConfig:
    """A video tokenizer: 4x in time, 8x in space. Defaults: the Wan 2.1 VAE of Predict2.5.

    Attributes:
        kind: ``wan``: an ``AutoencoderKLWan``; ``patch``: a linear codec of 8x8 patches, fitted to data in seconds,
            whose statistics are part of its weights.
        z_dim: latent channels.
        base_dim, dim_mult, num_res_blocks, temperal_downsample: size of the VAE, diffusers' names; ``wan`` only.
        latents_mean, latents_std: statistics of the VAE's latents; ``wan`` only, empty for ``patch``.
        chroma_gain: weight of colour against brightness in what the codec keeps; ``patch`` only.
    """

    base_dim: int = 96
    z_dim: int = 16
    dim_mult: tuple[int, ...] = (1, 2, 4, 4)
    num_res_blocks: int = 2
    temperal_downsample: tuple[bool, ...] = (False, True, True)
    latents_mean: tuple[float, ...] = WAN_LATENTS_MEAN
    latents_std: tuple[float, ...] = WAN_LATENTS_STD
    kind: str = "wan"
    chroma_gain: float = 2.5

    def __post_init__(self) -> None:
        for name in ("dim_mult", "temperal_downsample", "latents_mean", "latents_std"):  # JSON brings lists
            object.__setattr__(self, name, tuple(getattr(self, name)))
        if self.kind not in TOKENIZER_KINDS:
            raise ValueError(f"unknown tokenizer kind {self.kind!r}; allowed: {', '.join(TOKENIZER_KINDS)}")
        if self.kind == "patch":
            self._check_patch()
            return
        if len(self.temperal_downsample) != 3 or sum(self.temperal_downsample) != 2:
            raise ValueError(
                "temperal_downsample must halve space three times and time twice (8x space, 4x time): three flags, "
                f"two of them true, got {self.temperal_downsample}"
            )
        if len(self.dim_mult) != 4:
            raise ValueError(f"dim_mult must have four stages, got {self.dim_mult}")
        for name in ("latents_mean", "latents_std"):
            if len(getattr(self, name)) != self.z_dim:
                raise ValueError(f"{name} must have z_dim={self.z_dim} entries, got {len(getattr(self, name))}")
        self._check_ranges()

    def _check_ranges(self) -> None:
        for name, (low, high) in _TOKENIZER_RANGES.items():
            check_range(name, getattr(self, name), low, high)

    def _check_patch(self) -> None:
        if not 1 <= self.z_dim <= PATCH_VALUES:
            raise ValueError(f"z_dim must be 1..{PATCH_VALUES} (values of a patch), got {self.z_dim}")
        if self.latents_mean or self.latents_std:
            raise ValueError("latents_mean and latents_std must be empty: a patch codec's weights hold its statistics")
        self._check_ranges()

    def kwargs(self) -> dict[str, Any]:
        """Keyword arguments of ``AutoencoderKLWan`` (which wants lists)."""
        ours = ("kind", "chroma_gain")
        return {name: list(v) if isinstance(v, tuple) else v for name, v in asdict(self).items() if name not in ours}


@dataclass(frozen=True)
class TextConfig:
    """What an instruction embedding is.

    Attributes:
        kind: ``cosmos_reason1`` (the 7B encoder's hidden states, read from an embedding cache) or ``words``
            (computed on the spot from hashed words).
        tokens: rows of an embedding.
        width: channels of a row.
    """

    kind: str
    tokens: int
    width: int

    def __post_init__(self) -> None:
        if self.kind not in TEXT_KINDS:
            raise ValueError(f"unknown text kind {self.kind!r}; allowed: {', '.join(TEXT_KINDS)}")
        check_range("text tokens", self.tokens, 1, 2**16)
        check_range("text width", self.width, 1, 2**20)


COSMOS_TEXT = TextConfig(kind="cosmos_reason1", tokens=512, width=100352)


@dataclass(frozen=True)
class VideoPreset:
    """A video model and the images it sees.

    Attributes:
        name: key in ``VIDEO_PRESETS``.
        cameras: camera names in stacking order, left to right.
        image_size: (width, height) in pixels of the stacked image; multiples of 8, the cameras share the width.
        backbone, tokenizer, text: sizes of the three parts.
        feature_block: the block features are read after, 1-indexed (the paper's k).
        sigma_index: grid point features are read at (2 is sigma .883, the paper's best).
        latent_frames: T of an ordinary rollout.
        video_fps: frames a second of the video the model was trained on.
    """

    name: str
    cameras: tuple[str, ...]
    image_size: tuple[int, int]
    feature_block: int
    backbone: BackboneConfig = field(default_factory=BackboneConfig)
    tokenizer: TokenizerConfig = field(default_factory=TokenizerConfig)
    text: TextConfig = COSMOS_TEXT
    sigma_index: int = 2
    latent_frames: int = 5
    video_fps: int = 10

    def __post_init__(self) -> None:
        for name in ("cameras", "image_size"):  # JSON brings lists
            object.__setattr__(self, name, tuple(getattr(self, name)))
        width, height = self.image_size
        if not self.cameras or len(set(self.cameras)) != len(self.cameras):
            raise ValueError(f"cameras must be distinct names, at least one, got {self.cameras}")
        check_range("image_size", self.image_size, 8, 8192)
        if width % 8 or height % 8 or width % len(self.cameras):
            raise ValueError(
                f"image_size must be multiples of 8 and its width divisible by {len(self.cameras)} cameras, "
                f"got {width}x{height}"
            )
        if not 1 <= self.feature_block <= self.backbone.num_layers:
            raise ValueError(f"feature_block must be 1..{self.backbone.num_layers}, got {self.feature_block}")
        if not 0 <= self.sigma_index < SIGMA_STEPS:
            raise ValueError(f"sigma_index must be 0..{SIGMA_STEPS - 1}, got {self.sigma_index}")
        check_latent_frames(self.latent_frames)
        check_range("video_fps", self.video_fps, 1, 1000)
        if self.tokenizer.z_dim != self.backbone.out_channels:
            raise ValueError(
                f"the tokenizer makes {self.tokenizer.z_dim} channels, the backbone takes {self.backbone.out_channels}"
            )
        if self.text.width != self.backbone.crossattn_proj_in_channels:
            raise ValueError(
                f"text is {self.text.width} wide, the backbone projects {self.backbone.crossattn_proj_in_channels}"
            )

    @property
    def latent_size(self) -> tuple[int, int]:
        """(width, height) of the latents: pixels / 8."""
        return self.image_size[0] // 8, self.image_size[1] // 8

    @property
    def grid(self) -> tuple[int, int]:
        """(rows, columns) of DiT tokens in one latent frame, after padding the latents to the patch."""
        _, patch_h, patch_w = self.backbone.patch_size
        width, height = self.latent_size
        return -(-height // patch_h), -(-width // patch_w)

    @property
    def tokens_per_frame(self) -> int:
        """DiT tokens in one latent frame."""
        return self.grid[0] * self.grid[1]


YAM_CAMERAS = ("top", "left_wrist", "right_wrist")

VIDEO_PRESETS = {
    preset.name: preset
    for preset in (
        VideoPreset(name="yam", cameras=YAM_CAMERAS, image_size=(672, 168), feature_block=20),
        VideoPreset(name="libero", cameras=("agentview", "wrist"), image_size=(448, 224), feature_block=20),
        VideoPreset(
            name="tiny",
            cameras=YAM_CAMERAS,
            image_size=(288, 64),
            feature_block=3,
            backbone=BackboneConfig(
                in_channels=50,
                out_channels=48,
                num_attention_heads=2,
                attention_head_dim=64,
                num_layers=5,
                text_embed_dim=128,
                adaln_lora_dim=32,
                max_size=(24, 8, 36),
                rope_scale=(1.0, 1.0, 1.0),
                crossattn_proj_in_channels=256,
                learned_positions=True,
                preconditioned=True,
            ),
            tokenizer=TokenizerConfig(kind="patch", z_dim=48, latents_mean=(), latents_std=()),
            text=TextConfig(kind="words", tokens=24, width=256),
        ),
    )
}


def video_preset(name: str) -> VideoPreset:
    """Look up a preset by name.

    Raises:
        ValueError: no such preset; the message lists the names.
    """
    try:
        return VIDEO_PRESETS[name]
    except KeyError:
        raise ValueError(f"unknown video preset {name!r}; allowed: {', '.join(sorted(VIDEO_PRESETS))}") from None
