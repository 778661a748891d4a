"""The tokenizer that a configuration asks for."""

from __future__ import annotations

from vag_policy.video.patch_tokenizer import PatchTokenizer
from vag_policy.video.presets import TokenizerConfig
from vag_policy.video.tokenizer import Tokenizer, VideoTokenizer


def make_tokenizer(config: TokenizerConfig) -> Tokenizer:
    """A new tokenizer of ``config.kind``."""
    return PatchTokenizer(config) if config.kind == "patch" else VideoTokenizer(config)
