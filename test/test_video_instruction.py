"""Hashed words and the embedding cache."""

from __future__ import annotations

import hashlib
import itertools
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from vag_policy.video.backbone import VideoBackbone
from vag_policy.video.instruction import EmbeddingCache, WordEncoder, instruction_encoder
from vag_policy.video.presets import TextConfig, video_preset

WORDS = TextConfig(kind="words", tokens=8, width=64)
CACHED = TextConfig(kind="cosmos_reason1", tokens=4, width=6)
SENTENCE = "put the red cube on the blue one"


def digest(embedding):
    return hashlib.sha256(embedding.numpy().tobytes()).hexdigest()


# ---- words


def test_shape_scale_and_padding():
    rows = WordEncoder(WORDS).encode("pick up the cube")
    assert rows.shape == (8, 64) and rows.dtype == torch.float32
    assert rows[4:].abs().max() == 0
    assert torch.all(rows[:4].abs().sum(1) > 0)
    assert rows[:4].square().mean().sqrt() == pytest.approx(1.0, abs=0.15)


def test_null_is_zeros_of_the_same_shape():
    encoder = WordEncoder(WORDS)
    assert torch.equal(encoder.null(), torch.zeros_like(encoder.encode("go")))


def test_the_same_in_every_process_and_on_every_machine():
    ours = digest(WordEncoder(WORDS).encode(SENTENCE))
    assert ours == "5a4c662c87e29e7db4a7229ddf19c23dc22820aff2af555c9f7fe0f645859850"
    code = (
        "import hashlib; from vag_policy.video.instruction import WordEncoder;"
        "from vag_policy.video.presets import TextConfig;"
        f"e = WordEncoder(TextConfig('words', 8, 64)).encode({SENTENCE!r});"
        "print(hashlib.sha256(e.numpy().tobytes()).hexdigest())"
    )
    environment = os.environ | {"PYTHONHASHSEED": "12345"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split()[-1] == ours


def test_case_and_punctuation_do_not_matter():
    encoder = WordEncoder(WORDS)
    assert torch.equal(encoder.encode("Pick up the cube!"), encoder.encode("  pick up, the CUBE"))


def test_words_and_positions_are_told_apart():
    encoder = WordEncoder(TextConfig("words", 4, 256))
    rows = [encoder.encode(word)[0] for word in ("red", "blue", "cube", "bowl", "plate")]
    for a, b in itertools.combinations(rows, 2):
        # Both share the position's code (half of the square norm) and little more.
        assert torch.dot(a, b) / a.norm() / b.norm() < 0.75
    first, second = encoder.encode("red red")[:2]
    cosine = torch.dot(first, second) / first.norm() / second.norm()
    assert 0.25 < cosine < 0.75  # the same word elsewhere: recognisable, not the same


def test_order_of_words_matters_as_a_set_of_rows():
    """Cross-attention sees a set: it must not be the same set in another order."""
    encoder = WordEncoder(WORDS)
    one, other = encoder.encode("red cube on blue"), encoder.encode("blue cube on red")

    def as_set(rows):
        return sorted(map(tuple, rows.tolist()))

    assert as_set(one) != as_set(other)


@torch.no_grad()
def test_order_of_words_reaches_the_video_features():
    preset = video_preset("tiny")
    torch.manual_seed(0)
    backbone, encoder = VideoBackbone(preset.backbone).eval(), WordEncoder(preset.text)
    channels = preset.backbone.out_channels
    latents, anchor = torch.randn(1, channels, 5, 4, 4), torch.randn(1, channels, 1, 4, 4)

    def features(text):
        return backbone.features(latents, anchor, 0.8, backbone.text(encoder.encode(text)[None]), 3)

    one = features("put the red cube on the blue plate")
    assert torch.equal(one, features("Put the red cube on the blue plate."))
    swapped = (one - features("put the blue cube on the red plate")).abs().max()
    assert swapped > 1e-3
    # Far above what rounding of a mere permutation of rows does.
    permuted = backbone.text(encoder.encode("put the red cube on the blue plate")[None].flip(1))
    assert swapped > 100 * (one - backbone.features(latents, anchor, 0.8, permuted, 3)).abs().max()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "holds no word"),
        ("  ?! ", "holds no word"),
        ("a b c d e f g h i", "'a b c d e f g h i' has 9 words, the model takes at most 8"),
    ],
)
def test_text_without_an_embedding_is_named(text, message):
    with pytest.raises(ValueError, match=message):
        WordEncoder(WORDS).encode(text)


def test_the_longest_libero_instruction_fits_tiny():
    longest = "put the white mug on the left plate and put the yellow and white mug on the right plate"
    assert WordEncoder(video_preset("tiny").text).encode(longest)[17].abs().max() > 0


# ---- cache


@pytest.fixture
def cache(tmp_path):
    return EmbeddingCache(tmp_path / "embeddings", CACHED)


def test_hit_returns_what_was_stored(cache):
    for dtype in (torch.float32, torch.bfloat16):
        embedding = torch.randn(4, 6).to(dtype)
        path = cache.store("fold the towel", embedding)
        assert path == cache.path("fold the towel") and path.parent == cache.folder
        assert torch.equal(EmbeddingCache(cache.folder, CACHED).encode("fold the towel"), embedding)
    assert [file.name for file in cache.folder.iterdir()] == [path.name]
    assert torch.equal(cache.null(), torch.zeros(4, 6))


def test_miss_names_the_text_the_folder_and_the_command(cache):
    cache.store("fold the towel", torch.zeros(4, 6))
    with pytest.raises(ValueError) as caught:
        cache.encode("fold the towel's edge")
    message = str(caught.value)
    assert "fold the towel's edge" in message and str(cache.folder) in message
    assert "python -m vag_policy.video.reason1" in message


def test_another_text_model_or_prompt_is_another_embedding(cache):
    cache.store("fold the towel", torch.zeros(4, 6))
    others = [
        (cache, "fold the towel."),
        (EmbeddingCache(cache.folder, CACHED, model="another/encoder"), "fold the towel"),
        (EmbeddingCache(cache.folder, CACHED, system_prompt="Be brief."), "fold the towel"),
    ]
    for other, text in others:
        with pytest.raises(ValueError, match="no embedding of"):
            other.encode(text)


def tampered(shape=(4, 6), dtype=torch.float32, name="embedding", identity=None):
    def write(cache, path):
        metadata = {"identity": cache._identity("fold the towel") if identity is None else identity}
        save_file({name: torch.zeros(shape, dtype=dtype)}, path, metadata=metadata)

    return write


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (tampered(shape=(4, 5)), r"is \(4, 5\) torch.float32, expected \(4, 6\)"),
        (tampered(shape=(1, 4, 6)), r"expected \(4, 6\)"),
        (tampered(dtype=torch.int64), "torch.int64, expected"),
        (tampered(name="weights"), "not a readable embedding"),
        (tampered(identity="{}"), "was made for {}, not for"),
        (lambda cache, path: save_file({"embedding": torch.zeros(4, 6)}, path), "was made for None"),
        (lambda cache, path: path.write_bytes(path.read_bytes()[:-1]), "not a readable embedding"),
        (lambda cache, path: path.write_bytes(b""), "not a readable embedding"),
    ],
)
def test_tampered_file_is_refused_by_name(cache, write, message):
    path = cache.store("fold the towel", torch.zeros(4, 6))
    write(cache, path)
    with pytest.raises(ValueError, match=message) as caught:
        cache.encode("fold the towel")
    assert path.name in str(caught.value)


class Bomb:
    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self):
        return (self.target.touch, ())


@pytest.mark.parametrize("writer", ["pickle", "torch"])
def test_pickles_are_never_opened(cache, tmp_path, writer):
    mark = tmp_path / "executed"
    path = cache.store("fold the towel", torch.zeros(4, 6))
    with path.open("wb") as file:
        pickle.dump(Bomb(mark), file) if writer == "pickle" else torch.save(Bomb(mark), file)
    with pytest.raises(ValueError, match="not a readable embedding"):
        cache.encode("fold the towel")
    assert not mark.exists()
    pickle.loads(pickle.dumps(Bomb(mark)))  # it would have gone off
    assert mark.exists()


def test_store_refuses_what_encode_would(cache):
    with pytest.raises(ValueError, match=r"expected \(4, 6\)"):
        cache.store("fold the towel", torch.zeros(4, 7))
    with pytest.raises(ValueError, match="floating-point"):
        cache.store("fold the towel", torch.zeros(4, 6, dtype=torch.int32))
    with pytest.raises(ValueError, match="not finite"):
        cache.store("fold the towel", torch.full((4, 6), float("nan")))
    assert not cache.folder.exists()


def test_empty_text_is_refused(cache):
    for text in ("", "  "):
        with pytest.raises(ValueError, match="empty"):
            cache.encode(text)


def test_encoder_of_a_preset(tmp_path):
    assert isinstance(instruction_encoder(video_preset("tiny").text), WordEncoder)
    encoder = instruction_encoder(video_preset("yam").text, tmp_path)
    assert isinstance(encoder, EmbeddingCache) and encoder.null().shape == (512, 100352)
    with pytest.raises(ValueError, match="folder of embeddings"):
        instruction_encoder(video_preset("yam").text)
