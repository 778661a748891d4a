"""Reason1 embeddings against the pipeline's own, with a small random encoder."""

from __future__ import annotations

import types

import pytest
import torch
from diffusers.pipelines.cosmos.pipeline_cosmos2_5_predict import Cosmos2_5_PredictBasePipeline
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration

from vag_policy.video import reason1
from vag_policy.video.instruction import EmbeddingCache
from vag_policy.video.presets import TextConfig
from vag_policy.video.reason1 import reason1_embedding

TEXT = TextConfig(kind="cosmos_reason1", tokens=32, width=3 * 16)
TEMPLATE = (
    "{% for m in messages %}<s> {{ m.role }} {% for c in m.content %}{{ c.text }} {% endfor %}</s> {% endfor %}"
    "{% if add_generation_prompt %}<s> assistant{% endif %}"
)


@pytest.fixture(scope="module")
def encoder():
    torch.manual_seed(0)
    text = {
        "vocab_size": 64,
        "hidden_size": 16,
        "intermediate_size": 32,
        "num_hidden_layers": 3,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "rope_scaling": {"type": "mrope", "mrope_section": [1, 1, 2]},
    }
    vision = {"depth": 1, "hidden_size": 16, "num_heads": 2, "intermediate_size": 16, "out_hidden_size": 16}
    return Qwen2_5_VLForConditionalGeneration(Qwen2_5_VLConfig(text_config=text, vision_config=vision)).eval()


@pytest.fixture(scope="module")
def tokenizer():
    words = ["<unk>", "<pad>", "<s>", "</s>", "system", "user", "put", "the", "red", "cube", "on", "blue"]
    core = Tokenizer(models.WordLevel({word: index for index, word in enumerate(words)}, unk_token="<unk>"))
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=core, unk_token="<unk>", pad_token="<pad>", chat_template=TEMPLATE)


def pipeline_embedding(encoder, tokenizer, text, tokens):
    pipeline = types.SimpleNamespace(text_encoder=encoder, tokenizer=tokenizer, _execution_device="cpu")
    return Cosmos2_5_PredictBasePipeline._get_prompt_embeds(pipeline, text, max_sequence_length=tokens)


@torch.no_grad()
def test_embedding_is_the_pipelines(encoder, tokenizer):
    embedding = reason1_embedding(encoder, tokenizer, "put the red cube on the blue cube", tokens=32)
    assert embedding.shape == (TEXT.tokens, TEXT.width)
    expected = pipeline_embedding(encoder, tokenizer, "put the red cube on the blue cube", 32)
    assert torch.equal(embedding, expected[0])
    per_layer = embedding.view(32, 3, 16)
    torch.testing.assert_close(per_layer.mean(-1), torch.zeros(32, 3), rtol=0, atol=1e-5)
    torch.testing.assert_close(per_layer.std(-1), torch.ones(32, 3), rtol=1e-4, atol=1e-4)
    assert not torch.allclose(embedding, reason1_embedding(encoder, tokenizer, "put the blue cube", tokens=32))


def test_too_long_a_conversation_is_refused(encoder, tokenizer):
    with pytest.raises(ValueError, match=r"'put .*' takes \d+ tokens with its prompt, the limit is 32"):
        reason1_embedding(encoder, tokenizer, "put the " * 20, tokens=32)


def test_command_fills_a_cache_once(encoder, tokenizer, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(reason1, "COSMOS_TEXT", TEXT)
    encoder.save_pretrained(tmp_path / "encoder")
    tokenizer.save_pretrained(tmp_path / "tokenizer")
    arguments = ["--encoder", f"{tmp_path}/encoder", "--tokenizer", f"{tmp_path}/tokenizer"]
    arguments += ["--cache", f"{tmp_path}/cache", "--device", "cpu", "put the red cube", "put the blue cube"]
    reason1.main(arguments)
    cache = EmbeddingCache(tmp_path / "cache", TEXT)
    for text in ("put the red cube", "put the blue cube"):
        stored = cache.encode(text)
        assert stored.dtype == torch.bfloat16 and stored.shape == (32, 48)
    half = Qwen2_5_VLForConditionalGeneration.from_pretrained(tmp_path / "encoder", dtype=torch.bfloat16)
    with torch.no_grad():
        expected = pipeline_embedding(half, tokenizer, "put the blue cube", 32)
    assert torch.equal(stored, expected[0])

    capsys.readouterr()
    reason1.main(arguments[:4] + ["--cache", f"{tmp_path}/cache", "put the red cube"])
    assert "nothing to do" in capsys.readouterr().out
