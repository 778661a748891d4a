"""Checkpoints: a bit-equal round trip, and errors that name the file and the tensor."""

import copy
import json
import shutil

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from vam_support import INSTRUCTION, SMALL_LIBERO, make_observation, weights_equal

from vag_policy import checkpoint
from vag_policy.policy import PolicyError
from vag_policy.vam.normalization import Normalization
from vag_policy.vam.policy import VamPolicy
from vag_policy.vam.presets import override, preset
from vag_policy.video.instruction import EmbeddingCache
from vag_policy.video.presets import TextConfig


@pytest.fixture(scope="module")
def policy():
    return checkpoint.random_policy("tiny", seed=3)


@pytest.fixture(scope="module")
def saved(policy, tmp_path_factory):
    return checkpoint.save(policy, tmp_path_factory.mktemp("saved"))


@pytest.fixture
def folder(saved, tmp_path):
    """A copy to damage."""
    return shutil.copytree(saved, tmp_path / "copy")


def test_a_round_trip_is_bit_equal(policy, saved):
    state = torch.random.get_rng_state()
    loaded = checkpoint.load(saved, seed=3)
    assert torch.equal(torch.random.get_rng_state(), state)  # no weight is drawn only to be replaced
    assert weights_equal(loaded.model, policy.model)
    assert loaded.preset == policy.preset and loaded.normalization == policy.normalization
    observation = make_observation(policy)
    policy.reset()
    expected, found = (one.plan(observation, INSTRUCTION, 0) for one in (policy, loaded))
    np.testing.assert_array_equal(found.actions, expected.actions)
    np.testing.assert_array_equal(found.trace.attention, expected.trace.attention)
    assert sorted(path.name for path in saved.iterdir()) == [
        "backbone.safetensors",
        "head.safetensors",
        "manifest.json",
        "tokenizer.safetensors",
    ]


def test_the_preset_is_known_without_the_weights(policy, folder):
    for path in folder.glob("*.safetensors"):
        path.unlink()
    assert checkpoint.stored_preset(folder) == policy.preset
    edit_manifest(folder, lambda m: m["preset"].update(name="yammy"))
    with pytest.raises(PolicyError, match="unknown preset 'yammy'"):
        checkpoint.stored_preset(folder)


def test_saving_over_a_checkpoint_replaces_it(policy, folder):
    other = checkpoint.random_policy("tiny", seed=4)
    assert not weights_equal(other.model.head, policy.model.head)
    before = checkpoint.load(folder)
    checkpoint.save(other, folder)
    assert weights_equal(checkpoint.load(folder).model, other.model)
    assert weights_equal(before.model, policy.model)  # one that is in use does not change
    checkpoint.save(before, folder)
    assert weights_equal(checkpoint.load(folder).model, policy.model)


def test_overrides_and_dtype(saved):
    overrides = {"guidance.mode": "flat", "guidance.plan_frames": 5, "video.sigma_index": 1, "tr_extra_layers": [1]}
    loaded = checkpoint.load(saved, dtype=torch.bfloat16, overrides=overrides)
    assert {parameter.dtype for parameter in loaded.model.parameters()} == {torch.bfloat16}
    plan = loaded.plan(make_observation(loaded), INSTRUCTION, 0)
    assert np.isfinite(plan.actions).all()
    assert plan.trace.guidance == "flat" and plan.trace.branches == ("null", "plan")
    assert plan.trace.layers == (1, loaded.preset.tr_layer) and plan.trace.solver_index == 1
    with pytest.raises(PolicyError, match="unknown setting 'guidanse'.*its fields: name, video, head"):
        checkpoint.load(saved, overrides={"guidanse": "flat"})
    with pytest.raises(PolicyError, match=r"head.safetensors: tensor layers.\d+.mlp_norm.plain_scale is missing"):
        checkpoint.load(saved, overrides={"head.layers": loaded.preset.head.layers + 1})


def test_bfloat16_computes_what_float32_does(saved):
    full, half = (checkpoint.load(saved, dtype=dtype) for dtype in (torch.float32, torch.bfloat16))
    a, b = (one.plan(make_observation(one), INSTRUCTION, 0) for one in (full, half))
    spread = np.array(full.normalization.action_std)
    assert np.abs((a.actions - b.actions) / spread).max() < 0.2
    np.testing.assert_allclose(a.trace.ratio, b.trace.ratio, rtol=0.05)


def test_random_policies_are_their_seeds(policy):
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    assert weights_equal(checkpoint.random_policy("tiny", seed=3).model, policy.model)
    assert torch.equal(torch.random.get_rng_state(), before)
    with pytest.raises(ValueError, match="unknown preset 'big'; allowed: libero, tiny, yam"):
        checkpoint.random_policy("big")
    with pytest.raises(ValueError, match="seed must not be negative"):
        VamPolicy(policy.model, policy.encoder, policy.normalization, seed=-1)


def test_pretrained_video_weights_are_taken_from_a_diffusers_folder(tmp_path):
    cache = EmbeddingCache(tmp_path / "instructions", TextConfig("cosmos_reason1", tokens=6, width=48))
    cache.store(INSTRUCTION, torch.randn(6, 48))
    trained = checkpoint.random_policy("libero", overrides=SMALL_LIBERO, embeddings=cache.folder).model
    trained.backbone.transformer.save_pretrained(tmp_path / "transformer")
    trained.tokenizer.vae.save_pretrained(tmp_path / "vae")
    options = {"overrides": SMALL_LIBERO, "embeddings": cache.folder}
    started = checkpoint.random_policy("libero", seed=8, video_weights=tmp_path, **options)
    assert weights_equal(started.model.backbone, trained.backbone)
    assert weights_equal(started.model.tokenizer, trained.tokenizer)
    assert not weights_equal(started.model.head, trained.head)
    # A published VAE states its own latent statistics; only a random one's are measured.
    assert started.preset.video.tokenizer == override(preset("libero"), SMALL_LIBERO).video.tokenizer
    assert np.isfinite(started.plan(make_observation(started), INSTRUCTION, 0).actions).all()
    with pytest.raises(ValueError, match="no model in"):
        checkpoint.random_policy("libero", video_weights=tmp_path / "elsewhere", **options)


def test_instruction_embeddings_live_in_the_checkpoint(tmp_path):
    cache = EmbeddingCache(tmp_path / "saved" / "instructions", TextConfig("cosmos_reason1", tokens=6, width=48))
    cache.store(INSTRUCTION, torch.randn(6, 48))
    policy = checkpoint.random_policy("libero", overrides=SMALL_LIBERO, embeddings=cache.folder)
    checkpoint.save(policy, tmp_path / "saved")
    loaded = checkpoint.load(tmp_path / "saved")
    plan = loaded.plan(make_observation(loaded), INSTRUCTION, 0)
    np.testing.assert_array_equal(plan.actions, policy.plan(make_observation(policy), INSTRUCTION, 0).actions)
    with pytest.raises(PolicyError, match="no embedding of 'fly'"):
        loaded.plan(make_observation(loaded), "fly", 0)


def edit_manifest(folder, edit):
    path = folder / "manifest.json"
    manifest = json.loads(path.read_text())
    edit(manifest)
    path.write_text(json.dumps(manifest))


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (
            lambda m: m["preset"].update(name="yammy"),
            "manifest.json: unknown preset 'yammy'; allowed: libero, tiny, yam",
        ),
        (lambda m: m.update(format=99), "manifest.json: format is 99, this version reads 1"),
        (lambda m: m.update(family="other"), "manifest.json: family is 'other', this version reads 'vam'"),
        (lambda m: m.pop("normalization"), "manifest.json: normalization is missing"),
        (lambda m: m["preset"].pop("tr_layer"), "preset: field tr_layer is missing"),
        (lambda m: m["preset"]["head"].update(depth=4), "preset.head: unknown field depth; allowed: frames, group"),
        (lambda m: m["preset"]["head"].update(layers="4"), "preset.head.layers must be <class 'int'>, got '4'"),
        (lambda m: m["preset"]["head"].update(layers=True), "preset.head.layers must be <class 'int'>, got True"),
        (lambda m: m["preset"]["video"].update(cameras="top"), "preset.video.cameras must be .*got 'top'"),
        (lambda m: m["preset"]["guidance"].update(mode="x"), "preset.guidance: unknown guidance mode 'x'"),
        (lambda m: m.update(preset=[1]), r"preset must be an object, got \[1\]"),
        (lambda m: m["preset"]["head"].update(layers=-4), "preset.head: head layers must be 1..1000, got -4"),
        (lambda m: m["preset"]["head"].update(width=10**18), "preset.head: head width must be 1..65536, got 1000000"),
        (lambda m: m["preset"].update(period_ns=10**18), "manifest.json: preset: period_ns must be 100000..6e"),
        (lambda m: m["preset"]["guidance"].update(w_plan=float("nan")), "guidance.w_plan must be .*float.*, got nan"),
        (lambda m: m["preset"].update(tr_extra_layers=["1"]), r"preset.tr_extra_layers must be tuple\[int, ...\], got"),
        (lambda m: m["preset"]["video"].update(image_size=[288]), r"video.image_size must be tuple\[int, int\], got"),
        (lambda m: m["preset"]["video"]["backbone"].update(max_size=[10**400] * 3), "video.backbone: max_size must be"),
        (
            lambda m: m["preset"]["video"]["backbone"].update(num_layers=1000, num_attention_heads=64),
            "head takes features 128 wide, the backbone makes 4096",
        ),
        (lambda m: m["normalization"].update(state_mean=[]), "normalization: state_mean has 0 entries, state_std 14"),
        (lambda m: m["normalization"].update(state_mean=[1e18] * 14), "state_mean must be finite, at most 1e.06"),
        (lambda m: m["normalization"].update(action_std=[-1.0] * 14), "action_std must be finite and positive, 1e-06"),
        (lambda m: m["normalization"].update(action_std="wide"), "normalization.action_std must be tuple.*got 'wide'"),
        (
            lambda m: m["normalization"].update(state_mean=[10**400] * 14),
            "normalization.state_mean must be tuple|normalization: ",
        ),
        (
            lambda m: m["normalization"].update(action_std=[0.0] * 14),
            "normalization: action_std must be finite and pos",
        ),
        (
            lambda m: m["normalization"].update(state_mean=[0.0]),
            "normalization: state_mean has 1 entries, state_std 14",
        ),
        (
            lambda m: m["normalization"].update(state_mean=[0.0], state_std=[1.0]),
            "manifest.json: normalization has 1 state entries, preset 'tiny' has 14",
        ),
    ],
)
def test_a_wrong_manifest_is_named(folder, edit, message):
    edit_manifest(folder, edit)
    with pytest.raises(PolicyError, match=message):
        checkpoint.load(folder)


def leaves(value, path=()):
    """The place of everything in a JSON object."""
    for key, inner in value.items():
        yield (*path, key)
        if isinstance(inner, dict):
            yield from leaves(inner, (*path, key))
        elif isinstance(inner, list) and inner:
            yield (*path, key, 0)


def test_whatever_stands_in_a_manifest_is_used_or_refused(folder):
    """No value in any place may come out as another error than PolicyError."""
    manifest = json.loads((folder / "manifest.json").read_text())
    refused = 0
    for path in leaves(manifest["preset"]):
        for value in (-1, 10**18, 1e18, "x", None, {}, [[1]], True, float("nan"), 10**400):
            changed = copy.deepcopy(manifest)
            place = changed["preset"]
            for key in path[:-1]:
                place = place[key]
            place[path[-1]] = value
            (folder / "manifest.json").write_text(json.dumps(changed))
            try:
                checkpoint.stored_preset(folder)
            except PolicyError as error:
                refused += 1
                assert "manifest.json: " in str(error)
    assert refused > 400


def test_sizes_that_no_machine_holds_are_a_named_error(saved, monkeypatch):
    def build(settings):
        raise RuntimeError("can't allocate memory: you tried to allocate 4 TB")

    monkeypatch.setattr(checkpoint, "VamModel", build)
    with pytest.raises(
        PolicyError, match="manifest.json: no model can be made of this preset: RuntimeError: can't all"
    ):
        checkpoint.load(saved)


@pytest.mark.parametrize("text", ["{", "[]", "\xff", "[" * 100_000, "9" * 10_000, " " * 5_000_000])
def test_a_manifest_that_is_no_json_object(folder, text):
    (folder / "manifest.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(PolicyError, match=r"manifest.json (is not readable|must hold a JSON object|has 5000000)"):
        checkpoint.load(folder)


def test_a_folder_without_manifest(tmp_path):
    for folder in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(PolicyError, match=f"no checkpoint in {folder}: manifest.json is missing"):
            checkpoint.load(folder)


def edit_tensors(path, edit):
    tensors = load_file(path)
    edit(tensors)
    save_file(tensors, path)


@pytest.mark.parametrize("network", checkpoint.NETWORKS)
def test_wrong_weights_name_file_and_tensor(folder, network):
    path = folder / f"{network}.safetensors"
    intact = path.read_bytes()
    name = sorted(load_file(path))[0]
    shape = tuple(load_file(path)[name].shape)

    edit_tensors(path, lambda tensors: tensors.pop(name))
    with pytest.raises(PolicyError) as missing:
        checkpoint.load(folder)
    assert str(path) in str(missing.value) and f"tensor {name} is missing, expected {shape}" in str(missing.value)

    path.write_bytes(intact)
    edit_tensors(path, lambda tensors: tensors.update({name: torch.zeros(2, 3)}))
    with pytest.raises(PolicyError) as wrong:
        checkpoint.load(folder)
    assert str(path) in str(wrong.value)
    assert f"tensor {name} has shape (2, 3), expected {shape}" in str(wrong.value)

    path.write_bytes(intact)
    edit_tensors(path, lambda tensors: tensors.update({"lora.weight": torch.zeros(1)}))
    with pytest.raises(PolicyError, match="tensor lora.weight belongs to no part of the model"):
        checkpoint.load(folder)

    path.write_bytes(intact)
    dtype = load_file(path)[name].dtype
    for value in (float("nan"), float("inf"), float("-inf")):
        edit_tensors(path, lambda tensors, value=value: tensors[name].view(-1)[-1:].fill_(value))
        with pytest.raises(PolicyError) as infinite:
            checkpoint.load(folder)
        assert f"{path}: tensor {name} holds {value}, allowed: finite numbers" in str(infinite.value)
        path.write_bytes(intact)
    edit_tensors(path, lambda tensors: tensors.update({name: tensors[name].to(torch.int32)}))
    with pytest.raises(PolicyError, match=f"tensor {name} is of torch.int32, expected something like {dtype}"):
        checkpoint.load(folder)
    path.write_bytes(intact)
    edit_tensors(path, lambda tensors: tensors[name].view(-1)[-1:].fill_(1e38))
    with pytest.raises(PolicyError, match=f"tensor {name} holds .*at most 65504"):
        checkpoint.load(folder, dtype=torch.float16)

    path.write_bytes(intact)
    for size in (0, 5, len(intact) // 2, len(intact) - 1):
        path.write_bytes(intact[:size])
        with pytest.raises(PolicyError, match=f"{network}.safetensors is not a readable safetensors file"):
            checkpoint.load(folder)

    path.unlink()
    with pytest.raises(PolicyError, match=f"weights file .*{network}.safetensors is missing"):
        checkpoint.load(folder)


@pytest.mark.parametrize("suffix", ["pt", "bin", "ckpt", "pkl"])
def test_pickles_are_never_read(folder, suffix, monkeypatch):
    def forbidden(*args, **kwargs):
        raise AssertionError("a pickle was opened")

    monkeypatch.setattr(torch, "load", forbidden)
    torch.save({"x": torch.zeros(1)}, folder / f"head.{suffix}")
    (folder / "head.safetensors").unlink()
    with pytest.raises(
        PolicyError, match=rf"head.safetensors is missing \(found head.{suffix}; only safetensors is read"
    ):
        checkpoint.load(folder)
    (folder / f"head.{suffix}").rename(folder / "head.safetensors")
    with pytest.raises(PolicyError, match="head.safetensors is not a readable safetensors file"):
        checkpoint.load(folder)


def test_normalization_round_trip_and_units():
    normalization = Normalization((1.0, -2.0), (0.5, 4.0), (0.0, 10.0), (2.0, 0.1))
    state = normalization.normalize_state(np.array([2.0, 2.0], np.float32))
    assert state.tolist() == [2.0, 1.0] and state.dtype == np.float32
    actions = normalization.denormalize_actions(np.array([[1.0, -1.0]], np.float32))
    np.testing.assert_allclose(actions, [[2.0, 9.9]])
    assert actions.dtype == np.float64
    with pytest.raises(ValueError, match="preset 'tiny' has 14"):
        normalization.check(preset("tiny"))
    with pytest.raises(ValueError, match="action_mean must be finite"):
        Normalization((0.0,), (1.0,), (float("inf"),), (1.0,))
