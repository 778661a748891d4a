"""The feature cache: bounded, rotating, and the same again after a restart."""

from __future__ import annotations

import pytest
import torch
from training_support import make_maker, make_objective, make_stage

from vag_policy.training.batches import Place
from vag_policy.training.config import FeatureCacheConfig
from vag_policy.training.feature_cache import FeatureCache

STAGE = make_stage("head", batch=4, action_draws=2)
CONFIG = FeatureCacheConfig(shards=3, shard_samples=8, reuse=2)  # a new shard every 4 steps of 4 samples


class Features:
    """Makes shards of real features, and remembers which."""

    def __init__(self):
        self.maker, self.objective, self.made = make_maker(), make_objective(), []

    def __call__(self, number):
        self.made.append(number)
        batch = self.maker.shard(number, CONFIG.shard_samples, Place(0, 1, 0), STAGE)
        latents = torch.randn(batch.video_noise.shape, generator=torch.Generator().manual_seed(number))
        return batch, self.objective(batch, latents, STAGE, features_only=True)["features"]


def run(cache, steps):
    return [cache.batch(Place(0, 1, step), STAGE) for step in steps]


def flat(items):
    return [torch.cat([f.flatten(), b.sigma, b.actions.flatten(), b.action_noise.flatten()]) for b, f in items]


def test_it_rotates_within_its_bounds(tmp_path):
    features = Features()
    cache = FeatureCache(CONFIG, tmp_path / "cache", features, local=4)
    size = 0
    for step in range(30):
        cache.batch(Place(0, 1, step), STAGE)
        files = sorted(path.name for path in (tmp_path / "cache").iterdir())
        assert files == [f"shard_{number:06d}.safetensors" for number in range(step // 4, step // 4 + 3)]
        size = max(size, sum(path.stat().st_size for path in (tmp_path / "cache").iterdir()))
    assert features.made == list(range(10))  # each made once
    one = features(0)
    sample = one[1][0].numel() * 2 + one[0].actions[0].numel() * 4
    assert size < 3 * 8 * (sample + 200) + 3 * 2000
    cache.clear()
    assert not (tmp_path / "cache").exists()


def test_room_is_made_before_a_shard_is_written(tmp_path):
    counts = []
    features = Features()

    def make(number):
        counts.append(len(list(tmp_path.iterdir())))
        return features(number)

    run(FeatureCache(CONFIG, tmp_path, make, local=4), range(9))
    assert max(counts) == CONFIG.shards - 1


def test_batches_are_what_was_computed_with_fresh_action_noise(tmp_path):
    features = Features()
    cache = FeatureCache(CONFIG, tmp_path, features, local=4)
    shards = [features(number) for number in range(3)]
    stored = torch.cat([shard[1] for shard in shards]).bfloat16()
    sigmas = torch.cat([shard[0].sigma for shard in shards])
    actions = torch.cat([shard[0].actions for shard in shards])
    noises, drawn = [], set()
    for batch, found in run(cache, range(4)):
        for row in range(4):
            (index,) = torch.nonzero(sigmas == batch.sigma[row]).flatten().tolist()
            assert torch.equal(found[row], stored[index])
            assert torch.equal(batch.actions[row], actions[index])
            drawn.add(index)
        assert batch.action_noise.shape[0] == batch.action_time.shape[0] == 8
        noises.append(batch.action_noise)
    assert len(drawn) > 8 and not torch.equal(noises[0], noises[1])
    assert sigmas.unique().numel() == 24  # every sample at a level of its own


def test_a_restart_computes_what_is_missing_and_goes_on_the_same(tmp_path):
    whole = flat(run(FeatureCache(CONFIG, tmp_path / "one", Features(), local=4), range(14)))
    features = Features()
    cache = FeatureCache(CONFIG, tmp_path / "two", features, local=4)
    run(cache, range(9))
    (tmp_path / "two/shard_000003.safetensors").unlink()
    (tmp_path / "two/shard_000004.part").write_bytes(b"cut short by a kill")
    again = Features()
    resumed = flat(run(FeatureCache(CONFIG, tmp_path / "two", again, local=4), range(9, 14)))
    assert again.made == [3, 5]
    assert all(torch.equal(one, other) for one, other in zip(whole[9:], resumed, strict=True))
    elsewhere = flat(run(FeatureCache(CONFIG, tmp_path / "three", Features(), local=4), range(9, 14)))
    assert all(torch.equal(one, other) for one, other in zip(whole[9:], elsewhere, strict=True))


def test_bounds_are_checked():
    with pytest.raises(ValueError, match="shards is 0"):
        FeatureCacheConfig(shards=0)
