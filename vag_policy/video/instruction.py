"""Instructions as embeddings: hashed words for small models, a cache on disk for the 7B encoder's.

An embedding depends on the instruction alone, so a robot that reads it from disk need not hold the encoder.
"""

from __future__ import annotations

import hashlib
import json
import re
import shlex
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from vag_policy.video.presets import TextConfig

REASON1_MODEL = "nvidia/Cosmos-Reason1-7B"
REASON1_SYSTEM_PROMPT = "You are a helpful assistant who will provide prompts to an image generator."
"""System turn of the chat template Predict2.5 was trained with."""

_WORD = re.compile(r"\w+")


class InstructionEncoder(Protocol):
    """Turns an instruction into what ``VideoBackbone.text`` projects."""

    def encode(self, text: str) -> Tensor:
        """(tokens, width) of a floating-point type.

        Raises:
            ValueError: the text is empty or has no embedding; the message says what to do.
        """

    def null(self) -> Tensor:
        """The embedding of no instruction: zeros of the same shape."""


class WordEncoder:
    """One row a word, without weights: the word's code plus its position's, both hashed.

    A code is +-1 in every channel, drawn from SHAKE-256 of the word (or of the position): the same in every process
    and on every machine, nearly orthogonal between words, of unit variance like Reason1's embeddings. Row i is
    (code(word i) + code(position i)) / sqrt 2. Cross-attention does not see the order of rows, so without the position
    code "red cube on blue" and "blue cube on red" would be one instruction; as a sum, a word also stays recognisable
    wherever it stands. Case and punctuation are dropped; rows past the last word are zero.
    """

    def __init__(self, config: TextConfig) -> None:
        self.config = config

    def encode(self, text: str) -> Tensor:
        """(tokens, width) float32.

        Raises:
            ValueError: no word in ``text``, or more words than rows.
        """
        words = _WORD.findall(text.lower())
        if not words:
            raise ValueError(f"instruction {text!r} holds no word")
        if len(words) > self.config.tokens:
            raise ValueError(
                f"instruction {text!r} has {len(words)} words, the model takes at most {self.config.tokens}"
            )
        rows = self.null()
        for position, word in enumerate(words):
            rows[position] = self._code(f"word:{word}") + self._code(f"position:{position}")
        return rows / 2**0.5

    def null(self) -> Tensor:
        """(tokens, width) float32 zeros."""
        return torch.zeros(self.config.tokens, self.config.width)

    def _code(self, name: str) -> Tensor:
        width = self.config.width
        digest = hashlib.shake_256(name.encode()).digest(-(-width // 8))
        bits = np.unpackbits(np.frombuffer(digest, dtype=np.uint8), count=width)
        return torch.from_numpy(bits.astype(np.float32) * 2 - 1)


class EmbeddingCache:
    """A folder of embeddings, one safetensors file an instruction; ``python -m vag_policy.video.reason1`` fills it.

    A file is named by the hash of the model, its system prompt and the instruction, and says in its header which they
    were: an embedding made by another model or prompt is never taken for this one's. Only safetensors is read, so
    nothing in the folder can run code.
    """

    def __init__(
        self,
        folder: Path,
        config: TextConfig,
        model: str = REASON1_MODEL,
        system_prompt: str = REASON1_SYSTEM_PROMPT,
    ) -> None:
        self.folder = Path(folder)
        self.config = config
        self.model = model
        self.system_prompt = system_prompt

    def path(self, text: str) -> Path:
        """Where the embedding of ``text`` lives, made or not."""
        return self.folder / f"{hashlib.sha256(self._identity(text).encode()).hexdigest()}.safetensors"

    def encode(self, text: str) -> Tensor:
        """(tokens, width), in the type it was stored in.

        Raises:
            ValueError: the text is empty, its embedding is not in the folder, or the file is not what it should be.
        """
        path = self.path(text)
        if not path.is_file():
            folder, words = shlex.quote(str(self.folder)), shlex.quote(text)
            raise ValueError(
                f"no embedding of {text!r} in {self.folder}; make it where the encoder is: "
                f"python -m vag_policy.video.reason1 --encoder MODEL_FOLDER --cache {folder} {words}"
            )
        try:
            with safe_open(path, framework="pt") as file:
                identity = (file.metadata() or {}).get("identity")
                embedding = file.get_tensor("embedding")
        except (SafetensorError, OSError) as error:
            raise ValueError(f"{path} (instruction {text!r}) is not a readable embedding: {error}") from error
        if identity != self._identity(text):
            raise ValueError(f"{path} was made for {identity}, not for {self._identity(text)}")
        self._check(embedding, f"{path} (instruction {text!r})")
        return embedding

    def store(self, text: str, embedding: Tensor) -> Path:
        """Write the embedding (tokens, width) of ``text``; a reader sees the whole file or none.

        Raises:
            ValueError: the text is empty, or another shape or type.
        """
        self._check(embedding, f"the embedding of {text!r}")
        path = self.path(text)
        self.folder.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_suffix(".part")
        save_file({"embedding": embedding.contiguous()}, unfinished, metadata={"identity": self._identity(text)})
        unfinished.replace(path)
        return path

    def null(self) -> Tensor:
        """(tokens, width) float32 zeros."""
        return torch.zeros(self.config.tokens, self.config.width)

    def _identity(self, text: str) -> str:
        if not text.strip():
            raise ValueError("the instruction is empty")
        return json.dumps({"model": self.model, "system_prompt": self.system_prompt, "text": text}, sort_keys=True)

    def _check(self, embedding: Tensor, what: str) -> None:
        expected = (self.config.tokens, self.config.width)
        if tuple(embedding.shape) != expected or not embedding.is_floating_point():
            raise ValueError(
                f"{what} is {tuple(embedding.shape)} {embedding.dtype}, expected {expected} of a floating-point type"
            )
        if not torch.isfinite(embedding).all():
            raise ValueError(f"{what} holds numbers that are not finite")


def instruction_encoder(config: TextConfig, cache: Path | None = None) -> InstructionEncoder:
    """The encoder a preset's text needs; ``cache`` is the folder of embeddings for ``cosmos_reason1``.

    Raises:
        ValueError: ``cosmos_reason1`` without a folder.
    """
    if config.kind == "words":
        return WordEncoder(config)
    if cache is None:
        raise ValueError(f"text of kind {config.kind!r} is read from a folder of embeddings, and none is given")
    return EmbeddingCache(cache, config)
