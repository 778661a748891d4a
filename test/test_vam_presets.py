"""Presets: the paper's numbers, and what a configuration refuses."""

from dataclasses import replace

import pytest

from vag_policy.vam.model import describe
from vag_policy.vam.presets import PRESETS, GuidanceConfig, HeadConfig, override, preset


def test_published_numbers():
    yam, libero = preset("yam"), preset("libero")
    assert (yam.action_horizon, yam.execute, yam.euler_steps, yam.tr_layer) == (50, 30, 10, 15)
    assert (libero.action_horizon, libero.execute, libero.period_ns) == (17, 10, 100_000_000)
    assert (len(yam.state_names), len(yam.action_names)) == (14, 14)
    assert (len(libero.state_names), len(libero.action_names)) == (8, 7)
    assert yam.video.feature_block == libero.video.feature_block == 20
    guidance = yam.guidance
    assert (guidance.w_lang, guidance.w_plan, guidance.s_max, guidance.plan_frames) == (0.1, 0.3, 2.0, 24)


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_describe_counts_real_modules(name):
    numbers = describe(name)
    expected = {
        "yam": {"tokens_per_frame": 462, "video_tokens": 2310, "backbone_parameters": 2_059_174_912},
        "libero": {"tokens_per_frame": 98, "video_tokens": 490, "backbone_parameters": 2_059_174_912},
        "tiny": {"tokens_per_frame": preset("tiny").tokens_per_frame, "video_tokens": preset("tiny").video_tokens},
    }[name]
    assert {key: numbers[key] for key in expected} == expected
    assert numbers["sigma_grid"] == [1.0, 0.95266, 0.88321, 0.77143, 0.56165, 0.02441]
    head = numbers["head_parameters"]
    assert head < 3e6 if name == "tiny" else 427e6 < head < 441e6  # 311 M + 116 M + projections


def test_unknown_preset_lists_the_known_ones():
    with pytest.raises(ValueError, match="unknown preset 'yamm'; allowed: libero, tiny, yam"):
        preset("yamm")


def test_override_reaches_nested_fields_and_leaves_the_preset_alone():
    changed = override(
        preset("tiny"), {"guidance.mode": "flat", "guidance.w_lang": 1, "video.sigma_index": 0, "execute": 5}
    )
    assert (changed.guidance.mode, changed.guidance.w_lang) == ("flat", 1)
    assert (changed.video.sigma_index, changed.execute) == (0, 5)
    assert preset("tiny").guidance.mode == "none"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"guidance.mod": "flat"}, "unknown setting 'mod' of GuidanceConfig; its fields: mode, w_lang"),
        ({"guidance": "flat"}, "unknown setting 'guidance' of VamPreset"),
        ({"execute.x": 1}, "unknown setting 'execute.x'"),
        ({"guidance.mode": "loud"}, "unknown guidance mode 'loud'; allowed: none, flat, adaptive"),
        ({"guidance.baseline": "max"}, "unknown guidance baseline 'max'; allowed: per_step, mean"),
        ({"guidance.null_branch": "x"}, "unknown null_branch 'x'; allowed: features, rollout"),
        ({"guidance.w_plan": -0.1}, "guidance w_plan must be 0..1000, got -0.1"),
        ({"guidance.s_max": float("nan")}, "setting 's_max' must be float, got nan"),
        ({"guidance.s_max": 1e18}, r"guidance s_max must be 0..1000, got 1e\+18"),
        ({"guidance.plan_frames": 6}, "latent frames must be one of 5, 9, 24, got 6"),
        ({"head.prefix_mode": "lazy"}, "unknown prefix_mode 'lazy'; allowed: per_step, cached"),
        ({"head.group": 4}, r"a grid of \(14, 28\) tokens cannot be grouped by 4x4"),
        ({"head.video_width": 64}, "the head takes features 64 wide, the backbone makes 2048"),
        ({"head.layers": 0}, "head layers must be 1..1000, got 0"),
        ({"head.head_dim": 33}, "must be even"),
        ({"head.frames": 6}, "a rollout of 5 latent frames is shorter than the head's 6"),
        ({"tr_layer": 19}, "TR layers must be 1..18, got 19"),
        ({"tr_extra_layers": [0]}, "TR layers must be 1..18, got 0"),
        ({"execute": 18}, "execute must be 1..action_horizon, got 18 of 17"),
        ({"execute": "5"}, "setting 'execute' must be int, got '5'"),
        ({"execute": True}, "setting 'execute' must be int, got True"),
        ({"euler_steps": 0}, "euler_steps must be 1..1000, got 0"),
        ({"period_ns": 10**18}, "period_ns must be 100000..6e"),
        ({"action_horizon": 10**9, "execute": 5}, "action_horizon must be 1..10000, got 1000000000"),
        ({"tr_extra_layers": ["one"]}, r"setting 'tr_extra_layers' must be tuple\[int, ...\], got \['one'\]"),
        ({"state_names": [1, 2]}, r"setting 'state_names' must be tuple\[str, ...\]"),
        ({"video.image_size": (448,)}, r"setting 'image_size' must be tuple\[int, int\]"),
        ({"video.backbone.num_layers": -3}, "num_layers must be 1..1000, got -3"),
        ({"state_names": ("a", "a")}, "state_names must be 1..32 distinct names"),
        ({"action_names": tuple(map(str, range(33)))}, "action_names must be 1..32 distinct names"),
    ],
)
def test_refused_settings_say_what_is_allowed(changes, message):
    with pytest.raises(ValueError, match=message):
        override(preset("libero"), changes)


def test_measured_layers_contain_the_monitored_one():
    assert preset("yam").layers == (15,)
    assert replace(preset("yam"), tr_extra_layers=(18, 1, 15)).layers == (1, 15, 18)


def test_defaults_are_the_papers_expert():
    assert (HeadConfig().layers, HeadConfig().width, HeadConfig().heads, HeadConfig().head_dim) == (18, 1024, 8, 256)
    assert HeadConfig().prefix_mode == "per_step"
    assert GuidanceConfig().mode == "none"
