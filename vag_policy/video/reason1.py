"""Make instruction embeddings with Cosmos-Reason1-7B and store them, on a machine that holds the encoder.

    python -m vag_policy.video.reason1 --encoder text_encoder --tokenizer tokenizer --cache embeddings "fold the towel"

The folders are those of Predict2.5 in diffusers layout.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoTokenizer, PreTrainedTokenizerBase, Qwen2_5_VLForConditionalGeneration

from vag_policy.video.instruction import REASON1_MODEL, REASON1_SYSTEM_PROMPT, EmbeddingCache
from vag_policy.video.presets import COSMOS_TEXT


def conversation(text: str, system_prompt: str = REASON1_SYSTEM_PROMPT) -> list[dict[str, Any]]:
    """The two turns the encoder reads."""
    return [
        {"role": role, "content": [{"type": "text", "text": words}]}
        for role, words in (("system", system_prompt), ("user", text))
    ]


@torch.no_grad()
def reason1_embedding(
    encoder: Qwen2_5_VLForConditionalGeneration,
    tokenizer: PreTrainedTokenizerBase,
    text: str,
    tokens: int = COSMOS_TEXT.tokens,
    system_prompt: str = REASON1_SYSTEM_PROMPT,
) -> Tensor:
    """Hidden states of every layer, each standardised over its channels, side by side.

    Padding up to ``tokens`` is encoded like the rest and not masked, as in training.

    Returns:
        (tokens, layers * hidden size) in the encoder's dtype: 512 x 100352 for Reason1 (28 x 3584).

    Raises:
        ValueError: the conversation is longer than ``tokens`` (the pipeline would cut it silently).
    """
    encoded: Any = tokenizer.apply_chat_template(
        conversation(text, system_prompt),
        tokenize=True,
        return_dict=True,
        add_generation_prompt=False,
        padding="max_length",
        max_length=tokens,
        truncation=False,
    )
    ids = torch.tensor([encoded["input_ids"]], device=encoder.device)
    if ids.shape[1] > tokens:
        raise ValueError(f"instruction {text!r} takes {ids.shape[1]} tokens with its prompt, the limit is {tokens}")
    layers = encoder(ids, output_hidden_states=True).hidden_states[1:]
    return torch.cat([_standardised(layer[0]) for layer in layers], dim=-1)


def _standardised(hidden: Tensor) -> Tensor:
    return (hidden - hidden.mean(dim=-1, keepdim=True)) / (hidden.std(dim=-1, keepdim=True) + 1e-8)


def main(arguments: list[str] | None = None) -> None:
    """Command line: embed every instruction that is not in the cache yet."""
    parser = argparse.ArgumentParser(prog="python -m vag_policy.video.reason1", description=__doc__)
    parser.add_argument("text", nargs="+", help="instructions, one argument each")
    parser.add_argument("--encoder", type=Path, required=True, help="folder of the encoder's weights")
    parser.add_argument("--tokenizer", type=Path, help="folder of its tokenizer (default: the encoder's)")
    parser.add_argument("--cache", type=Path, required=True, help="folder the embeddings go to")
    parser.add_argument("--model", default=REASON1_MODEL, help="the encoder's name, part of every key")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args(arguments)

    cache = EmbeddingCache(options.cache, COSMOS_TEXT, model=options.model)
    missing = [text for text in options.text if not cache.path(text).is_file()]
    if not missing:
        print(f"nothing to do: {len(options.text)} embeddings are in {options.cache}")
        return
    tokenizer = AutoTokenizer.from_pretrained(options.tokenizer or options.encoder, local_files_only=True)
    encoder = Qwen2_5_VLForConditionalGeneration.from_pretrained(
        options.encoder, dtype=torch.bfloat16, local_files_only=True, use_safetensors=True
    ).to(options.device)
    for text in missing:
        print(cache.store(text, reason1_embedding(encoder, tokenizer, text, cache.config.tokens).cpu()))


if __name__ == "__main__":
    main()
