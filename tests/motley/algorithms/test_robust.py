"""Robust aggregators on five updates, one of them far away (docs/methods/algorithms.md#robust)."""

from __future__ import annotations

import pytest
import torch

from motley.algorithms.aggregators.mean import Mean
from motley.algorithms.aggregators.robust import Krum, Median, MultiKrum, NormBound, TrimmedMean
from motley.algorithms.parts import Part, Upload, aggregate
from motley.experiments.build import build
from motley.experiments.config import Experiment

DELTAS = [(0.0, 0.0), (1.0, 0.0), (0.0, 1.0), (1.0, 1.0), (10.0, 10.0)]


def uploads(deltas=DELTAS):
    variances = [0.5 + i for i in range(len(deltas))]
    return [
        Upload(
            {
                "delta": Part(torch.tensor(d), "mean"),
                "buffers": Part(torch.tensor([v]), "convex"),
                "counters": Part(torch.tensor([i]), "max"),
            },
            1.0,
        )
        for i, (d, v) in enumerate(zip(deltas, variances, strict=True))
    ]


@pytest.mark.parametrize(
    ("rule", "want"),
    [
        (Mean(), (2.4, 2.4)),
        (Median(), (1.0, 1.0)),
        (TrimmedMean(0.2), (2 / 3, 2 / 3)),  # of 0 0 1 1 10 the ends go: (0 + 1 + 1) / 3
        (Krum(1), (0.0, 0.0)),  # scores (2, 2, 2, 2, 343): the first of the tied
        (MultiKrum(1, 4), (0.5, 0.5)),
        (MultiKrum(1), (0.5, 0.5)),  # all but f
    ],
    ids=str,
)
def test_five_updates(rule, want):
    assert aggregate(rule, uploads(), "weight")["delta"].tolist() == pytest.approx(want)


def test_krum_scores_by_hand():
    """M = 5, f = 1: the two nearest others. Corners of the unit square have two neighbours at
    distance 1: 1 + 1. The far one is nearest to (1, 1), 81 + 81 = 162, then to (1, 0) or (0, 1),
    81 + 100 = 181: 343."""
    assert Krum(1).scores(torch.tensor(DELTAS).double()).tolist() == [2, 2, 2, 2, 343]
    assert Krum(2).least == 7


def test_an_even_count_takes_the_mean_of_the_two_middle_values():
    """torch.median would take the lower one: (0, 0) instead of (.5, .5)."""
    assert aggregate(Median(), uploads(DELTAS[:4]), "weight")["delta"].tolist() == [0.5, 0.5]


def test_trimming_counts_decimals_as_they_are_meant():
    """.07 of 100 is 7.000000000000001 and .29 of 100 is 28.999999999999996 in binary: 7 and 29 go
    at either end."""
    values = [(float(i) ** 2,) for i in range(100)]
    for trim, cut in ((0.07, 7), (0.29, 29)):
        want = sum(i**2 for i in range(cut, 100 - cut)) / (100 - 2 * cut)
        assert aggregate(TrimmedMean(trim), uploads(values), "weight")[
            "delta"
        ].item() == pytest.approx(want)


@pytest.mark.parametrize(
    ("aggregator", "reason"),
    [
        (
            {"name": "trimmed_mean"},
            "TrimmedMean is the plain mean here, for trim = 0.1 leaves out none of 6 uploads; "
            "write trim = 0.17",
        ),
        (
            {"name": "multi_krum", "k": 9},
            "MultiKrum is the plain mean here, for k = 9 averages all of 6 uploads; write at most "
            "k = 5",
        ),
    ],
    ids=["trimmed_mean", "multi_krum"],
)
def test_a_rule_that_leaves_nobody_out_is_told(aggregator, reason):
    keys = {"task": "quadratic", "population": 6, "cohort": 6, "partition": "by_writer"}
    keys |= {"stop": {"rounds": 1}, "weights": "uniform"}
    with pytest.warns(UserWarning, match=reason):
        build(Experiment(**keys, aggregator=aggregator))


def test_rules_that_leave_somebody_out():
    assert TrimmedMean(0.17).is_mean_of(6) is None
    assert TrimmedMean(0.0).is_mean_of(6) is None  # asked for
    assert "ask more clients" in TrimmedMean(0.4).is_mean_of(2)
    assert [MultiKrum(1, k).is_mean_of(6) for k in (None, 5)] == [None, None]


def test_norm_bound_shortens_the_long_only():
    """(10, 10) has length 14.142: bounded at 2 it becomes (1.41421, 1.41421); the others stay."""
    total = aggregate(NormBound(2.0), uploads(), "weight")["delta"]
    assert total.tolist() == pytest.approx([(2 + 2**0.5) / 5] * 2, rel=1e-6)


def test_buffers_go_the_same_way_and_counters_are_the_largest():
    assert aggregate(Median(), uploads(), "weight")["buffers"].item() == 2.5
    assert aggregate(Krum(1), uploads(), "weight")["buffers"].item() == 0.5
    assert aggregate(Median(), uploads(), "weight")["counters"].item() == 4


def test_sizes_do_not_count():
    heavy = [u._replace(weight=1000.0) if i == 4 else u for i, u in enumerate(uploads())]
    for rule in (Median(), TrimmedMean(0.2), Krum(1), MultiKrum(1), NormBound(2.0)):
        assert torch.equal(
            aggregate(rule, heavy, "weight")["delta"], aggregate(rule, uploads(), "weight")["delta"]
        )


def test_too_few_for_krum_fold_to_nothing():
    """f = 1 needs five: with four the model stays, rather than an update that nobody can vouch
    for."""
    assert aggregate(Krum(1), uploads(DELTAS[:4]), "weight") == {}


def test_nothing_to_fold():
    for rule in (Median(), TrimmedMean(), Krum(), NormBound(1.0)):
        assert aggregate(rule, [], "weight") == {}
