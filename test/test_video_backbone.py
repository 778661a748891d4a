"""The backbone against diffusers' own forward: exact, early exit included."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch.nn import functional
from video_reference import SMALL_BACKBONE, install_resize, library_transformer, published_transformer

from vag_policy.video.attention import attend
from vag_policy.video.backbone import VideoBackbone, precondition
from vag_policy.video.presets import BackboneConfig

CONFIG = BackboneConfig(**SMALL_BACKBONE)
TOKENS = 6


@pytest.fixture(scope="module")
def backbone():
    torch.manual_seed(0)
    return VideoBackbone(CONFIG).eval()


def make_inputs(height=6, width=8, frames=5, batch=1, seed=0):
    generator = torch.Generator().manual_seed(seed)
    latents = torch.randn(batch, 16, frames, height, width, generator=generator)
    anchor = torch.randn(batch, 16, 1, height, width, generator=generator)
    embedding = torch.randn(batch, TOKENS, CONFIG.crossattn_proj_in_channels, generator=generator)
    return latents, anchor, embedding


def library_inputs(latents, anchor, sigma):
    """What ``forward`` is given for the same call: 16 channels, the two masks, per-frame timesteps."""
    hidden = torch.cat([anchor, latents[:, :, 1:]], dim=2)
    masks = torch.zeros(latents.shape[0], 2, *latents.shape[2:])
    masks[:, 0, 0] = 1
    timestep = torch.full((latents.shape[0], 1, latents.shape[2], 1, 1), sigma)
    timestep[:, :, 0] = 1e-4
    return {"hidden_states": hidden, "condition_mask": masks, "timestep": timestep}


@torch.no_grad()
def test_velocity_is_forward_exactly(backbone):
    latents, anchor, embedding = make_inputs(batch=2)
    expected = library_transformer(backbone.transformer)(
        **library_inputs(latents, anchor, 0.3), encoder_hidden_states=embedding, return_dict=False
    )[0]
    assert torch.equal(backbone.velocity(latents, anchor, 0.3, backbone.text(embedding)), expected)


@torch.no_grad()
def test_eighteen_channels_are_the_published_model(backbone, monkeypatch):
    install_resize(monkeypatch)
    published = published_transformer(backbone.transformer)
    ours, theirs = backbone.transformer.state_dict(), published.state_dict()
    assert list(ours) == list(theirs)
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)

    latents, anchor, embedding = make_inputs()
    inputs = library_inputs(latents, anchor, 0.3)
    inputs["condition_mask"] = inputs["condition_mask"][:, :1]
    padding_mask = torch.zeros(1, 1, 48, 64)
    expected = published(**inputs, padding_mask=padding_mask, encoder_hidden_states=embedding, return_dict=False)[0]
    assert torch.equal(backbone.velocity(latents, anchor, 0.3, backbone.text(embedding)), expected)


@torch.no_grad()
@pytest.mark.parametrize("block", [1, 2, 4])
def test_features_are_a_hooked_full_run_exactly(backbone, block):
    latents, anchor, embedding = make_inputs()
    seen = {}
    library = library_transformer(backbone.transformer)
    library.transformer_blocks[block - 1].register_forward_hook(lambda module, args, output: seen.update(hidden=output))
    library(**library_inputs(latents, anchor, 0.8), encoder_hidden_states=embedding)
    features = backbone.features(latents, anchor, 0.8, backbone.text(embedding), block)
    assert features.shape == (1, 5, 3, 4, CONFIG.width)
    assert torch.equal(features.flatten(1, 3), seen["hidden"])


@torch.no_grad()
def test_features_run_no_later_block(backbone):
    latents, anchor, embedding = make_inputs()
    ran = []
    handles = [
        block.register_forward_hook(lambda module, args, output, index=index: ran.append(index))
        for index, block in enumerate(backbone.transformer.transformer_blocks, start=1)
    ]
    handles.append(backbone.transformer.norm_out.register_forward_hook(lambda *_: ran.append("norm_out")))
    backbone.features(latents, anchor, 0.8, backbone.text(embedding), block=2)
    for handle in handles:
        handle.remove()
    assert ran == [1, 2]


@torch.no_grad()
def test_text_is_projected_once_and_reused(backbone):
    latents, anchor, embedding = make_inputs()
    calls = []
    handle = backbone.transformer.crossattn_proj.register_forward_hook(lambda *_: calls.append(1))
    text = backbone.text(embedding)
    first = backbone.velocity(latents, anchor, 0.3, text)
    again = backbone.velocity(latents, anchor, 0.3, text)
    assert len(calls) == 1
    recomputed = backbone.velocity(latents, anchor, 0.3, backbone.text(embedding.clone()))
    handle.remove()
    assert torch.equal(first, again)
    assert torch.equal(first, recomputed)
    assert not torch.allclose(first, backbone.velocity(latents, anchor, 0.3, backbone.text(embedding * 2)))


@torch.no_grad()
def test_null_text_projects_to_gelu_of_the_bias(backbone):
    null = backbone.text(torch.zeros(1, TOKENS, CONFIG.crossattn_proj_in_channels))
    bias = backbone.transformer.crossattn_proj[0].bias
    torch.testing.assert_close(null, functional.gelu(bias).expand(1, TOKENS, -1))
    assert null.abs().max() > 0


@torch.no_grad()
def test_order_of_rows_alone_is_invisible(backbone):
    """Why an encoder must bind words to positions: cross-attention has none."""
    latents, anchor, embedding = make_inputs()
    straight = backbone.velocity(latents, anchor, 0.3, backbone.text(embedding))
    reversed_rows = backbone.velocity(latents, anchor, 0.3, backbone.text(embedding.flip(1)))
    torch.testing.assert_close(straight, reversed_rows, rtol=1e-4, atol=1e-5)


@torch.no_grad()
@pytest.mark.parametrize(("height", "width"), [(5, 8), (6, 7), (5, 7)])
def test_odd_latents_are_padded_with_their_edge_and_cropped(backbone, height, width):
    latents, anchor, embedding = make_inputs(height, width)
    text = backbone.text(embedding)
    velocity = backbone.velocity(latents, anchor, 0.3, text)
    assert velocity.shape == latents.shape

    rows = [*range(height), *([height - 1] if height % 2 else [])]
    columns = [*range(width), *([width - 1] if width % 2 else [])]
    padded = library_inputs(latents[..., rows, :][..., columns], anchor[..., rows, :][..., columns], 0.3)
    padded["condition_mask"][:, 1, :, height:, :] = 1
    padded["condition_mask"][:, 1, :, :, width:] = 1
    expected = backbone.transformer(**padded, encoder_hidden_states=embedding, return_dict=False)[0]
    assert torch.equal(velocity, expected[..., :height, :width])
    assert backbone.features(latents, anchor, 0.3, text, 1).shape == (1, 5, 3, 4, CONFIG.width)


@torch.no_grad()
def test_noise_level_per_sample(backbone):
    latents, anchor, embedding = make_inputs(batch=2)
    text = backbone.text(embedding)
    both = backbone.velocity(latents, anchor, torch.tensor([0.2, 0.9]), text)
    for index, sigma in enumerate((0.2, 0.9)):
        one = slice(index, index + 1)
        alone = backbone.velocity(latents[one], anchor[one], sigma, text[one])
        torch.testing.assert_close(both[one], alone, rtol=1e-5, atol=1e-5)


@torch.no_grad()
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_timesteps_stay_float32_and_outputs_have_their_types(dtype):
    torch.manual_seed(0)
    backbone = VideoBackbone(CONFIG).eval().to(dtype)
    latents, anchor, embedding = make_inputs(height=5)
    seen = {}
    backbone.transformer.time_embed.time_proj.register_forward_hook(
        lambda module, args, output: seen.update(timestep=args[0])
    )
    text = backbone.text(embedding)
    velocity = backbone.velocity(latents, anchor, 0.95266, text)
    assert seen["timestep"].dtype == torch.float32
    assert seen["timestep"].tolist() == pytest.approx([1e-4, *[0.95266] * 4], rel=1e-6)
    assert velocity.dtype == torch.float32 and text.dtype == dtype
    assert backbone.features(latents, anchor, 0.5, text, 1).dtype == dtype
    backbone.velocity(latents, anchor, 0.95266, text, anchor_timestep=None)
    assert seen["timestep"].tolist() == pytest.approx([0.95266], rel=1e-6)


def test_nothing_is_read_back_to_the_host():
    """A meta tensor has no values, so any ``.item()``, branch on data or copy to the host would raise."""
    with torch.device("meta"):
        backbone = VideoBackbone(CONFIG)
        latents, anchor = torch.empty(1, 16, 5, 5, 8), torch.empty(1, 16, 1, 5, 8)
        text = backbone.text(torch.empty(1, TOKENS, CONFIG.crossattn_proj_in_channels))
    assert backbone.velocity(latents, anchor, 0.5, text).device.type == "meta"
    assert backbone.features(latents, anchor, 0.5, text, 2).shape == (1, 5, 3, 4, CONFIG.width)


def test_gradients_reach_every_block(backbone):
    latents, anchor, embedding = make_inputs()
    backbone.velocity(latents, anchor, 0.5, backbone.text(embedding)).square().mean().backward()
    assert all(p.grad is not None and p.grad.abs().max() > 0 for p in backbone.parameters())
    backbone.zero_grad(set_to_none=True)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"latents": torch.zeros(1, 17, 5, 6, 8)}, r"latents must be \(B, 16, T, h, w\)"),
        ({"latents": torch.zeros(1, 16, 6, 8)}, r"latents must be \(B, 16, T, h, w\)"),
        ({"anchor": torch.zeros(1, 16, 1, 6, 7)}, "anchor must be"),
        ({"anchor": torch.zeros(2, 16, 1, 6, 8)}, "anchor must be"),
        ({"text": torch.zeros(1, TOKENS, 256)}, r"text must be \(1, tokens, 128\) as text\(\) returns it"),
        ({"block": 0}, "block must be 1..4, got 0"),
        ({"block": 5}, "block must be 1..4, got 5"),
    ],
)
def test_wrong_arguments_are_named(backbone, change, message):
    latents, anchor, embedding = make_inputs()
    arguments = {"latents": latents, "anchor": anchor, "text": backbone.text(embedding), "block": 1, "sigma": 0.5}
    with pytest.raises(ValueError, match=message):
        backbone.features(**(arguments | change))


def test_embedding_of_another_width_is_named(backbone):
    with pytest.raises(ValueError, match=r"\(B, tokens, 256\), got \(1, 6, 128\)"):
        backbone.text(torch.zeros(1, TOKENS, 128))


@torch.no_grad()
@pytest.mark.parametrize("shard", ["10GB", "300KB"])
def test_published_folder_loads(backbone, tmp_path, shard):
    published_transformer(backbone.transformer).save_pretrained(tmp_path, max_shard_size=shard)
    assert (len(list(tmp_path.glob("*.safetensors"))) > 1) == (shard == "300KB")
    loaded = VideoBackbone.from_pretrained(tmp_path, CONFIG).eval()
    latents, anchor, embedding = make_inputs()
    expected = backbone.velocity(latents, anchor, 0.3, backbone.text(embedding))
    assert torch.equal(loaded.velocity(latents, anchor, 0.3, loaded.text(embedding)), expected)
    assert all(p.requires_grad for p in loaded.parameters())
    half = VideoBackbone.from_pretrained(tmp_path, CONFIG, dtype=torch.bfloat16)
    assert {p.dtype for p in half.parameters()} == {torch.bfloat16}


def test_folder_of_another_model_is_named(backbone, tmp_path):
    with pytest.raises(ValueError, match=r"no model in .*absent.*config.json"):
        VideoBackbone.from_pretrained(tmp_path / "absent", CONFIG)
    backbone.transformer.save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="num_layers=4, the preset needs 5"):
        VideoBackbone.from_pretrained(tmp_path, replace(CONFIG, num_layers=5))
    weights = tmp_path / "diffusion_pytorch_model.safetensors"
    state = load_file(weights)
    save_file({name: tensor for name, tensor in state.items() if name != "proj_out.weight"}, weights)
    with pytest.raises(ValueError, match=r"do not fit(.|\n)*proj_out.weight"):
        VideoBackbone.from_pretrained(tmp_path, CONFIG)


@pytest.mark.parametrize("sigma", [0.02, 0.5, 0.883, 1.0])
def test_preconditioning_gives_the_flow_and_asks_for_unit_variance(sigma):
    generator = torch.Generator().manual_seed(0)
    clean, noise = (torch.randn(1, 16, 5, 40, 40, generator=generator, dtype=torch.float64) for _ in range(2))
    latents = (1 - sigma) * clean + sigma * noise
    wanted = (sigma * clean - (1 - sigma) * noise) / ((1 - sigma) ** 2 + sigma**2) ** 0.5
    assert wanted.std() == pytest.approx(1.0, abs=0.01)
    assert (wanted * latents).mean().abs() < 0.01  # nothing left that the latents say linearly
    torch.testing.assert_close(precondition(wanted, latents, torch.tensor([sigma])), noise - clean, rtol=0, atol=1e-6)


@torch.no_grad()
def test_small_models_additions_do_what_they_say():
    latents, anchor, embedding = make_inputs(batch=2)
    torch.manual_seed(0)
    plain = VideoBackbone(replace(CONFIG, learned_positions=True, max_size=(5, 6, 8))).eval()
    for axis in "thw":
        torch.nn.init.normal_(plain.transformer.get_parameter(f"learnable_pos_embed.pos_emb_{axis}"))
    text, sigma = plain.text(embedding), torch.tensor([0.3, 0.9])
    expected = library_transformer(plain.transformer)(
        **library_inputs(latents, anchor, 0.3), encoder_hidden_states=embedding, return_dict=False
    )[0]
    torch.testing.assert_close(plain.velocity(latents, anchor, 0.3, text), expected)
    skipping = VideoBackbone(replace(plain.config, preconditioned=True)).eval()
    skipping.load_state_dict(plain.state_dict())
    output = plain.velocity(latents, anchor, sigma, text)
    wanted = precondition(output, latents, sigma)
    torch.testing.assert_close(skipping.velocity(latents, anchor, sigma, text), wanted)
    both, features = skipping.velocity_and_features(latents, anchor, sigma, text, 2)
    assert torch.equal(both, skipping.velocity(latents, anchor, sigma, text))
    assert torch.equal(features, plain.features(latents, anchor, sigma, text, 2))


def test_checkpointed_gradients_are_the_same(backbone):
    latents, anchor, embedding = make_inputs()

    def gradients(checkpointing):
        backbone.gradient_checkpointing = checkpointing
        backbone.zero_grad()
        backbone.velocity(latents, anchor, 0.4, backbone.text(embedding)).square().mean().backward()
        return {name: parameter.grad.clone() for name, parameter in backbone.named_parameters()}

    try:
        kept, recomputed = gradients(False), gradients(True)
    finally:
        backbone.gradient_checkpointing = False
        backbone.zero_grad()
    assert all(torch.equal(kept[name], recomputed[name]) for name in kept)


@torch.no_grad()
def test_products_stand_in_for_the_fused_kernel_in_low_precision():
    query, key, value = (torch.randn(2, 3, 40, 16, generator=torch.Generator().manual_seed(i)) for i in range(3))
    expected = functional.scaled_dot_product_attention(query, key, value)
    assert torch.equal(attend(query, key, value), expected)
    with torch.autocast("cpu", torch.bfloat16):
        low = attend(query, key, value)
    assert low.dtype == torch.bfloat16
    torch.testing.assert_close(low.float(), expected, rtol=0.05, atol=0.02)


def test_masks_are_refused(backbone):
    attention = backbone.transformer.transformer_blocks[0].attn1
    with pytest.raises(ValueError, match="takes no mask"):
        attention(torch.zeros(1, 4, CONFIG.width), attention_mask=torch.ones(1, 1, 4))
