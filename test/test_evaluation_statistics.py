"""Intervals, correlations and comparisons against an independent implementation."""

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from vag_policy.evaluation.ratio_analysis import against_success, by_phase
from vag_policy.evaluation.statistics import bootstrap, compare, pearson, ranks, spearman, wilson


@given(st.integers(1, 400).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))), st.sampled_from((0.8, 0.95)))
@settings(max_examples=50, deadline=None)
def test_wilson_interval_is_scipys(counts, confidence):
    successes, trials = counts
    reference = stats.binomtest(successes, trials).proportion_ci(confidence, method="wilson")
    ours = wilson(successes, trials, confidence)
    assert (ours.value, ours.low, ours.high) == pytest.approx((successes / trials, *reference), abs=1e-12)


def test_no_trial_says_nothing_and_impossible_counts_are_refused():
    nothing = wilson(0, 0)
    assert math.isnan(nothing.value) and (nothing.low, nothing.high) == (0.0, 1.0)
    for bad in ((-1, 4), (5, 4)):
        with pytest.raises(ValueError, match="successes must be 0..trials"):
            wilson(*bad)


VALUES = st.lists(st.integers(-5, 5), min_size=3, max_size=40)


@given(VALUES, st.integers(0, 2**31))
@settings(max_examples=50, deadline=None)
def test_correlations_are_scipys(x, seed):
    y = np.random.default_rng(seed).integers(-3, 3, len(x))
    assert ranks(x) == pytest.approx(stats.rankdata(x))
    if np.ptp(x) and np.ptp(y):
        assert spearman(x, y) == pytest.approx(stats.spearmanr(x, y).statistic, abs=1e-9)
        assert pearson(np.greater(x, np.mean(x)), y) == pytest.approx(
            stats.pointbiserialr(np.greater(x, np.mean(x)), y).statistic, abs=1e-9
        )
    else:
        assert math.isnan(spearman(x, y))


def test_bootstrap_interval_of_a_mean_is_near_the_normal_one():
    values = np.random.default_rng(1).normal(3.0, 2.0, 200)
    found = bootstrap(lambda v: float(np.mean(v)), values)
    half = 1.96 * values.std(ddof=1) / math.sqrt(200)
    assert found.value == pytest.approx(values.mean())
    assert (found.low, found.high) == pytest.approx((values.mean() - half, values.mean() + half), abs=0.15 * half)
    assert found == bootstrap(lambda v: float(np.mean(v)), values), "the same data give the same interval"
    with pytest.raises(ValueError, match="one length"):
        bootstrap(lambda a, b: 0.0, [1.0], [1.0, 2.0])


def test_bootstrap_keeps_rows_together():
    x = np.arange(30.0)
    found = bootstrap(pearson, x, 2 * x)
    assert (found.value, found.low, found.high) == pytest.approx((1.0, 1.0, 1.0))


def test_a_paired_comparison_sees_what_separate_intervals_do_not():
    second = np.array([False] * 30 + [True] * 30)
    first = second.copy()
    first[:12] = True  # the same but for twelve episodes, all to the first's advantage
    found = compare(first, second)
    assert (found.only_first, found.only_second) == (12, 0)
    assert found.difference.value == pytest.approx(0.2) and found.difference.low > 0.05
    assert found.p == pytest.approx(stats.binomtest(0, 12).pvalue)
    assert wilson(int(first.sum()), 60).low < wilson(int(second.sum()), 60).high
    assert compare(first, first).p == 1.0
    with pytest.raises(ValueError, match="same episodes"):
        compare([True], [True, False])


def episode(success, *replans):
    """Replans as (phase, TR, scale); TR_0 is 2."""
    entries = [
        {"seconds": float(i), "phase": phase, "ratio": [ratio, ratio], "baseline": [2.0, 2.0], "scale": [scale, 0.0]}
        for i, (phase, ratio, scale) in enumerate(replans)
    ]
    return {"success": success, "replans": [*entries, {"seconds": 99.0, "phase": "grasp"}]}  # one without a trace


def test_ratio_by_phase_counts_an_episode_once():
    records = [
        episode(True, ("approach", 2.0, 0.0), ("approach", 4.0, 1.0), ("grasp", 1.0, 0.0)),
        episode(False, ("approach", 2.0, 0.0), ("grasp", 2.0, 0.0), ("grasp", 2.0, 0.0), ("grasp", 2.0, 0.0)),
    ]
    found = by_phase(records)
    assert list(found) == ["approach", "grasp"]
    assert found["grasp"]["replans"] == 4 and found["grasp"]["episodes"] == 2
    assert found["grasp"]["ratio"].value == pytest.approx((1.0 + 2.0) / 2)
    assert found["approach"]["ratio"].value == pytest.approx((3.0 + 2.0) / 2)
    assert found["approach"]["relative"].value == pytest.approx(2.0), "the replan that sets TR_0 says nothing of it"
    assert found["approach"]["guided"].value == 1.0 and found["grasp"]["guided"].value == 0.0


def test_ratio_against_success():
    rng = np.random.default_rng(0)
    records = []
    for i in range(60):
        success = bool(i % 2)
        records.append(episode(success, ("approach", 2.0, 0.0), ("grasp", 3.0 - success + 0.2 * rng.normal(), 0.0)))
    found = against_success(records)
    assert set(found) == {"all", "approach", "grasp"}
    grasp = found["grasp"]["point_biserial"]
    assert grasp.value < -0.8 and grasp.high < -0.7
    assert math.isnan(found["approach"]["spearman"].value), "a constant goes with nothing"
    assert found["all"]["episodes"] == 60


def test_episodes_without_traces_give_no_analysis():
    records = [{"success": True, "replans": [{"seconds": 0.0, "phase": "approach", "plan_ms": 1.0}]}]
    assert by_phase(records) == {} and against_success(records) == {}
    json.dumps(by_phase(records))
