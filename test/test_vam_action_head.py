"""The head against a plainly written one: tokens, mask, velocity, Euler steps, caching, attention mass."""

from dataclasses import replace

import pytest
import torch
from vam_reference import ReferenceHead, prefix_lm_mask

from vag_policy.vam.action_head import ActionHead
from vag_policy.vam.layers import Rope, Span
from vag_policy.vam.presets import HeadConfig, preset
from vag_policy.vam.temporal_ratio import AttentionTap, temporal_ratio

SMALL = {"layers": 3, "width": 16, "heads": 2, "head_dim": 8, "mlp": 24, "pad": 6, "video_width": 5}
FRAMES, ROWS, COLUMNS, ACTIONS, SIGMA = 3, 2, 4, 4, 0.88321
MODES = ("per_step", "cached")


def make_head(mode: str, group: int = 1, seed: int = 0) -> tuple[ActionHead, ReferenceHead]:
    """A head with every parameter random (the modulations start at zero otherwise), and its reference."""
    generator = torch.Generator().manual_seed(seed)
    head = ActionHead(HeadConfig(**SMALL, group=group, prefix_mode=mode)).double()
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.copy_(0.4 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    reference = ReferenceHead(
        head.state_dict(), SMALL["layers"], SMALL["heads"], SMALL["head_dim"], group, mode == "cached"
    )
    return head, reference


def make_inputs(seed: int = 1, state: int = 5):
    generator = torch.Generator().manual_seed(seed)
    draw = lambda *shape: torch.randn(*shape, generator=generator, dtype=torch.float64)  # noqa: E731
    return draw(ACTIONS, SMALL["pad"]), draw(state), draw(FRAMES, ROWS, COLUMNS, SMALL["video_width"])


def level(value: float) -> torch.Tensor:
    return torch.tensor([value], dtype=torch.float64)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("group", [1, 2])
def test_velocity_equals_the_reference(mode, group):
    head, reference = make_head(mode, group)
    actions, state, features = make_inputs()
    for time in (1.0, 0.3):
        found = head.velocity(actions[None], level(time), state[None], head.prefix(features[None], level(SIGMA)))
        expected, _ = reference.velocity(actions, time, state, features, SIGMA)
        assert expected.abs().mean() > 0.05
        torch.testing.assert_close(found[0], expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-3), (torch.bfloat16, 0.1)])
def test_narrow_types_stay_close_to_the_reference(mode, dtype, tolerance):
    head, reference = make_head(mode)
    actions, state, features = make_inputs()
    expected, attention = reference.velocity(actions, 0.7, state, features, SIGMA)
    head = head.to(dtype)
    prefix = head.prefix(features[None].to(dtype), level(SIGMA).float())
    tap = head.tap(prefix, (3,), 3)
    found = head.velocity(actions[None].to(dtype), level(0.7).float(), state[None].to(dtype), prefix, tap)
    assert found.dtype == dtype and tap.mass.dtype == torch.float32
    assert (found[0].double() - expected).norm() < tolerance * expected.norm()
    mass = reference.frame_mass(attention[2], FRAMES, ACTIONS)
    assert (tap.mass[0, 0] - mass).norm() < tolerance * mass.norm()


def test_the_mask_is_the_written_out_table():
    table = """
        1 1 1 . . . .
        1 1 1 . . . .
        1 1 1 . . . .
        1 1 1 1 . . .
        1 1 1 1 1 1 1
        1 1 1 1 1 1 1
        1 1 1 1 1 1 1
    """
    written = torch.tensor([[mark == "1" for mark in line.split()] for line in table.split("\n") if line.strip()])
    assert torch.equal(prefix_lm_mask(3, 3), written)
    # The production layer has no mask: what each row depends on is read off its Jacobian.
    head, _ = make_head("per_step")
    layer, spans = head.layers[0], (Span(3, 3), Span(1, 4), Span(3, 7))
    x = torch.randn(7, SMALL["width"], generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    rope = Rope.of(0, 7, SMALL["head_dim"], x)
    condition = torch.ones(1, SMALL["width"], dtype=torch.float64)
    jacobian = torch.autograd.functional.jacobian(lambda rows: layer(rows[None], condition, rope, spans)[0][0], x)
    sees = jacobian.abs().sum(dim=(1, 3)) > 0
    assert torch.equal(sees, written)


@pytest.mark.parametrize("mode", MODES)
def test_ten_euler_steps_equal_the_reference_recomputed_at_every_step(mode):
    head, reference = make_head(mode)
    actions, state, features = make_inputs()
    prefix = head.prefix(features[None], level(SIGMA))
    found = expected = recomputed = actions
    for step in range(10):
        time = 1 - step / 10
        found = found - head.velocity(found[None], level(time), state[None], prefix)[0] / 10
        fresh = head.prefix(features[None], level(SIGMA))
        recomputed = recomputed - head.velocity(recomputed[None], level(time), state[None], fresh)[0] / 10
        expected = expected - reference.velocity(expected, time, state, features, SIGMA)[0] / 10
    torch.testing.assert_close(found, recomputed, rtol=0, atol=1e-12)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)


def test_cached_keys_and_values_equal_those_of_rows_run_beside_the_suffix():
    head, _ = make_head("cached")
    _, _, features = make_inputs()
    prefix = head.prefix(features[None], level(SIGMA))
    video = prefix.tokens.shape[1]
    x, rope = prefix.tokens, Rope.of(0, video, SMALL["head_dim"], prefix.tokens)
    for layer, (key, value) in zip(head.layers, prefix.keys_values, strict=True):
        normed, _ = layer.attention_norm(x, None)
        for found, expected in zip((key, value), layer.keys_values(normed, rope), strict=True):
            torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
        if layer is not head.layers[-1]:
            x, _ = layer(x, None, rope, (Span(video, video),))


def test_the_prefix_modes_differ_in_more_than_speed():
    actions, state, features = make_inputs()
    outputs = {}
    for mode in MODES:
        head, _ = make_head(mode)
        weights = make_head("cached")[0].state_dict()  # the same weights in both
        head.load_state_dict({name: weights[name] for name in head.state_dict()})
        prefix = head.prefix(features[None], level(SIGMA))
        assert (prefix.keys_values is None) == (mode == "per_step")
        outputs[mode] = head.velocity(actions[None], level(0.5), state[None], prefix)
    assert (outputs["per_step"] - outputs["cached"]).abs().max() > 0.01


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("group", [1, 2])
def test_attention_mass_and_ratio_equal_full_attention_at_every_layer(mode, group):
    head, reference = make_head(mode, group)
    actions, state, features = make_inputs()
    prefix = head.prefix(features[None], level(SIGMA))
    layers = tuple(range(1, SMALL["layers"] + 1))
    tap = head.tap(prefix, layers, 2)
    tapped = head.velocity(actions[None], level(0.4), state[None], prefix, tap)
    plain = head.velocity(actions[None], level(0.4), state[None], prefix)
    torch.testing.assert_close(tapped, plain, rtol=1e-12, atol=1e-12)  # measuring changes nothing
    _, attention = reference.velocity(actions, 0.4, state, features, SIGMA)
    for index, full in enumerate(attention):
        expected = reference.frame_mass(full, FRAMES, ACTIONS)
        torch.testing.assert_close(tap.mass[0, index], expected, rtol=1e-6, atol=1e-6)
        ratio = expected[1:].sum() / expected[0]
        assert temporal_ratio(tap.mass[0, index]).item() == pytest.approx(ratio.item(), rel=1e-6)
    rows, columns = ROWS // group, COLUMNS // group
    assert tap.token_mass.shape == (1, FRAMES, rows, columns)
    per_key = attention[1][:, -ACTIONS:].sum(dim=(0, 1))[: FRAMES * rows * columns]
    torch.testing.assert_close(tap.token_mass[0].flatten(), per_key, rtol=1e-6, atol=1e-6)


def test_a_tap_records_only_the_layers_it_wants():
    head, _ = make_head("cached")
    actions, state, features = make_inputs()
    prefix = head.prefix(features[None], level(SIGMA))
    every = head.tap(prefix, (1, 2, 3), 3)
    one = head.tap(prefix, (3,), 3)
    for tap in (every, one):
        head.velocity(actions[None], level(0.4), state[None], prefix, tap)
    assert one.mass.shape == (1, 1, FRAMES)
    torch.testing.assert_close(one.mass[0, 0], every.mass[0, 2], rtol=1e-12, atol=0)
    with pytest.raises(ValueError, match="grid_layer 4 is not among the measured layers"):
        AttentionTap((1, 2), 4, FRAMES, (ROWS, COLUMNS))
    with pytest.raises(ValueError, match="no head pass"):
        _ = AttentionTap((1,), 1, FRAMES, (ROWS, COLUMNS)).token_mass


def test_temporal_ratio_of_hand_made_masses():
    masses = torch.tensor([[1.0, 1.0, 2.0], [4.0, 1.0, 1.0]])
    assert temporal_ratio(masses).tolist() == [3.0, 0.5]
    assert temporal_ratio(torch.tensor([0.0, 1.0])).isfinite()
    with pytest.raises(ValueError, match="at least one imagined frame"):
        temporal_ratio(torch.tensor([1.0]))


def test_tokens_know_their_noise_level_and_the_velocity_its_time():
    head, _ = make_head("per_step")
    actions, state, features = make_inputs()
    clean, noisy = (head.prefix(features[None], level(sigma)) for sigma in (0.02441, 1.0))
    assert (clean.tokens - noisy.tokens).abs().max() > 0.01
    early, late = (head.velocity(actions[None], level(time), state[None], clean) for time in (1.0, 0.1))
    assert (early - late).abs().max() > 0.01


def test_a_new_head_is_the_identity_in_every_sublayer_until_modulation_is_drawn():
    torch.manual_seed(0)
    head = ActionHead(HeadConfig(**SMALL))
    actions, state, features = (tensor.float() for tensor in make_inputs())

    def velocity(seen):
        prefix = head.prefix(seen[None], torch.tensor([SIGMA]))
        return head.velocity(actions[None], torch.tensor([0.5]), state[None], prefix)

    assert torch.equal(velocity(features), velocity(features + 1))
    head.draw_modulation()
    assert (velocity(features) - velocity(2 * features**2)).abs().max() > 1e-4


@pytest.mark.parametrize(("name", "per_frame", "total"), [("yam", 462, 2310), ("libero", 98, 490)])
def test_token_counts(name, per_frame, total):
    settings = preset(name)
    assert (settings.tokens_per_frame, settings.video_tokens) == (per_frame, total)
    with torch.device("meta"):
        head = ActionHead(settings.head)
        features = torch.empty(1, 5, *settings.video.grid, settings.head.video_width)
        prefix = head.prefix(features, torch.empty(1))
        assert prefix.tokens.shape == (1, total, 1024)
        assert prefix.grid == settings.grid and prefix.grid[0] * prefix.grid[1] == per_frame
        actions = torch.empty(1, settings.action_horizon, 32)
        velocity = head.velocity(actions, torch.empty(1), torch.empty(1, len(settings.state_names)), prefix)
    assert velocity.shape == (1, settings.action_horizon, 32)


def test_head_parameters_of_the_paper():
    with torch.device("meta"):
        head = ActionHead(preset("yam").head)
    counts = {name: parameter.numel() for name, parameter in head.named_parameters()}
    core = sum(
        count for name, count in counts.items() if name.split(".")[-2] in {"q", "k", "v", "o", "gate", "up", "down"}
    )
    adaptive = sum(count for name, count in counts.items() if ".modulation." in name)
    assert core == 18 * (1024 * 2048 + 2 * 1024 * 256 + 2048 * 1024 + 3 * 1024 * 4096) == 311_427_072
    assert adaptive == 37 * (1024 * 3072 + 3072) == 116_505_600


def test_wrong_shapes_are_named():
    head, _ = make_head("cached", group=2)
    actions, state, features = make_inputs()
    prefix = head.prefix(features[None], level(SIGMA))
    with pytest.raises(ValueError, match=r"features must be \(B, T, rows, columns, 5\), got \(1, 3, 2, 4, 4\)"):
        head.prefix(features[None, ..., :4], level(SIGMA))
    with pytest.raises(ValueError, match="1x4 features cannot be grouped by 2x2"):
        head.prefix(features[None, :, :1], level(SIGMA))
    with pytest.raises(ValueError, match=r"sigma must be \(1,\)"):
        head.prefix(features[None], torch.tensor(0.5))
    with pytest.raises(ValueError, match=r"actions must be \(1, A_H, 6\), got \(1, 4, 5\)"):
        head.velocity(actions[None, :, :5], level(1.0), state[None], prefix)
    with pytest.raises(ValueError, match=r"time must be \(1,\)"):
        head.velocity(actions[None], torch.tensor(1.0), state[None], prefix)
    with pytest.raises(ValueError, match=r"state must be \(1, at most 6\), got \(1, 7\)"):
        head.velocity(actions[None], level(1.0), torch.zeros(1, 7, dtype=torch.float64), prefix)


@pytest.mark.parametrize("mode", MODES)
def test_a_short_prefix_leaves_state_and_actions_their_places(mode):
    """Frames that are left out count as if they were there and nobody looked at them."""
    head, reference = make_head(mode)
    actions, state, features = make_inputs()
    first = head.prefix(features[None, :1], level(SIGMA))
    per_frame = first.tokens.shape[1]
    found = head.velocity(actions[None], level(0.5), state[None], replace(first, positions=FRAMES * per_frame))[0]
    expected, _ = reference.velocity(actions, 0.5, state, features[:1], SIGMA, gap=(FRAMES - 1) * per_frame)
    without, _ = reference.velocity(actions, 0.5, state, features[:1], SIGMA)
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)
    assert not torch.allclose(found, without, atol=1e-6)
