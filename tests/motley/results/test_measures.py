"""Every measure on tables small enough to work out by hand; the working is beside the number."""

import sys
from dataclasses import astuple
from math import isnan, sqrt
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from motley.core.errors import ConfigError
from motley.results import measures as m

sys.path.insert(0, str(Path(__file__).parent))
import fake


def evaluations(scope="global", accuracy=(0.2, 0.5, 0.4)):
    n = len(accuracy)
    return fake.table(
        "evaluations",
        round=list(range(1, n + 1)),
        time_s=[10.0 * (i + 1) for i in range(n)],
        total_bits=[1e6 * (i + 1) for i in range(n)],
        total_up_paper_bits=[4e5 * (i + 1) for i in range(n)],
        scope=[scope] * n,
        client=[-1] * n,
        loss=[1.0 - a if a is not None else None for a in accuracy],
        accuracy=list(accuracy),
    )


def test_a_curve_is_of_all_clients_together():
    rows = evaluations("client")
    rows = rows.set_column(rows.column_names.index("client"), rows.field("client"), [[0, 1, 2]])
    with pytest.raises(ConfigError, match="got the scope 'client', which has a figure for each cl"):
        m.curve(fake.run(evaluations=rows), scope="client")


def test_the_headline_stands_in_one_place():
    assert m.headline_scope(fake.run({"split": {"test": "client"}})) == "mean"
    assert m.headline_scope(fake.run({"split": {"test": "global"}})) == "global"
    both = fake.run({"split": {"test": "client"}}, evaluations=evaluations("global"))
    assert len(m.curve(both).x) == 0  # a global row is not the mean over clients
    only_mean = fake.run({"split": {"test": "global"}}, evaluations=evaluations("mean"))
    assert m.curve(only_mean).y.tolist() == [0.2, 0.5, 0.4]


@pytest.mark.parametrize(
    ("axis", "x"),
    [
        ("round", [1, 2, 3]),
        ("seconds", [10, 20, 30]),
        ("bits", [1e6, 2e6, 3e6]),
        ("paper_bits", [4e5, 8e5, 12e5]),
    ],
)
def test_curves_on_every_axis(axis, x):
    got = m.curve(fake.run(evaluations=evaluations()), axis)
    assert got.x.tolist() == x
    assert got.y.tolist() == [0.2, 0.5, 0.4]


def test_evaluations_without_a_number_are_left_out():
    assert m.curve(fake.run(evaluations=evaluations(accuracy=(0.2, None, 0.4)))).x.tolist() == [
        1,
        3,
    ]


def test_unknown_axis():
    with pytest.raises(
        ConfigError,
        match="drawn against one of round, selections, seconds, paper_seconds, bits, paper_bits, "
        "got 'epochs'",
    ):
        m.curve(fake.run(evaluations=evaluations()), "epochs")


def test_the_metric_is_the_tasks():
    run = fake.run(task={"metric": "loss"}, evaluations=evaluations())
    assert m.metric_of(run) == ("loss", False)
    np.testing.assert_allclose(m.curve(run).y, [0.8, 0.5, 0.6])


def over_rounds(y, every=1):
    """A curve with one value after every so many rounds."""
    return m.Curve(every * np.arange(1.0, len(y) + 1), np.asarray(y, float))


@pytest.mark.parametrize(("count", "stable"), [(18, False), (19, True), (20, True)])
def test_stable_needs_ten_evaluations_past_half_of_the_run(count, stable):
    """Of 20 evaluations 11 .. 20 are past half of the run (round 100 of 200), and of 19 those from
    10 on (round 95 of 190); of 18 only 10 .. 18, which are nine. The mean of the last ten is there
    either way."""
    y = [0.0] * (count - 10) + [0.5] * 9 + [0.6]
    found = m.ends(over_rounds(y, every=10))
    assert found.last_ten == pytest.approx(0.51)
    assert found.stable == pytest.approx(0.51) if stable else isnan(found.stable)


def test_ends():
    """Twelve values 0.1 .. 1.1 then 0.9: the mean of the last ten is that of 0.3 .. 1.1 (sum 6.3)
    and 0.9: 7.2 / 10. Their squared distances from it sum to .1764 + .1024 + .0484 + .0144 +
    .0004 + .0064 + .0324 + .0784 + .1444 + .0324 = .636: sqrt(.636 / 9)."""
    y = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 0.9]
    got = m.ends(over_rounds(y))
    assert (got.final, got.peak) == (0.9, 1.1)
    assert got.last_ten == pytest.approx(0.72)
    assert got.drop == pytest.approx(0.2)
    assert got.deviation == pytest.approx((0.636 / 9) ** 0.5)
    # the best loss is the least; the end is 0.5 worse
    losses = m.ends(over_rounds([3.0, 1.0, 1.5]), higher_is_better=False)
    assert (losses.peak, losses.drop) == (1.0, 0.5)
    assert isnan(m.ends(over_rounds([])).final)
    assert isnan(m.ends(over_rounds([0.5])).deviation)


def test_round_0_never_counts():
    """A loss that grows from 1 (untrained) over 3 and 2 to 2.5: the best is 2, the mean 7.5 / 3,
    the deviation sqrt((.25 + .25) / 2), the end 0.5 worse than the best."""
    losses = fake.table(
        "evaluations",
        round=[0, 1, 2, 3],
        scope=["global"] * 4,
        time_s=[0.0, 1.0, 2.0, 3.0],
        loss=[1.0, 3, 2, 2.5],
    )
    run = fake.run(task={"metric": "loss"}, evaluations=losses)
    assert m.ends_of(run) == m.Ends(
        2.5, 2.0, pytest.approx(float("nan"), nan_ok=True), 0.5, last_ten=2.5, deviation=0.5
    )
    assert m.curve(run).y.tolist() == [1.0, 3.0, 2.0, 2.5]  # curves start at the untrained model
    # it had been there
    assert m.to_target(m.curve(run, "seconds"), 1.5, higher_is_better=False) == m.Censored(
        0.0, True
    )
    alone = fake.run(
        evaluations=fake.table(
            "evaluations",
            round=[0, 0],
            scope=["global", "client"],
            client=[-1, 0],
            accuracy=[0.1, 0.2],
        )
    )
    assert all(isnan(value) for value in astuple(m.ends_of(alone)))
    assert m.client_metric(alone).tolist() == []
    assert m.by_group(alone, "domain") == {}
    rows = fake.table(
        "metrics", round=[0], scope=["pooled"], client=[-1], metric=["auroc"], value=[0.5]
    )
    assert isnan(m.pooled(fake.run(metrics=rows), "auroc").value)


def test_the_untrained_model_may_have_cost_bits():
    """Clients sent 48 bytes to enrol before round 1: on the axis of bits the untrained model does
    not lie at 0, and is no trained one for that."""
    found = fake.table(
        "evaluations",
        round=[0, 1, 2],
        scope=["global"] * 3,
        total_bits=[384.0, 8e6, 16e6],
        accuracy=[0.1, 0.5, 0.6],
    )
    run = fake.run(evaluations=found)
    assert m.curve(run, "bits").y.tolist() == [0.1, 0.5, 0.6]
    after = m.curve(run, "bits", untrained=False)
    assert (after.x.tolist(), after.y.tolist()) == ([8e6, 16e6], [0.5, 0.6])


def with_validation(test, held, rounds=None, every=1, **config):
    """A run with a test and a validation accuracy (both common) at each of these rounds."""
    rounds = list(range(len(test))) if rounds is None else rounds
    columns = {
        "round": rounds * 2,
        "scope": ["global"] * len(test) + ["validation"] * len(test),
        "time_s": [0.0] * 2 * len(test),
        "client": [-1] * 2 * len(test),
        "accuracy": [*test, *held],
    }
    return fake.run(
        {"evaluate": {"every": every}, **config}, evaluations=fake.table("evaluations", **columns)
    )


def test_the_best_round_by_validation_is_the_first_and_never_round_0():
    """Validation is best at round 0 (untrained), then equally at rounds 2 and 3, of which the first
    counts: its test accuracy is 0.4, though round 3 has the better one."""
    assert m.by_validation(with_validation([0.1, 0.2, 0.4, 0.5], [0.9, 0.3, 0.8, 0.8])) == 0.4
    losses = with_validation([0.1, 0.2, 0.4, 0.5], [0.9, 0.3, 0.8, 0.8])
    lower = losses.tables["evaluations"].rename_columns(
        [
            {"loss": "accuracy", "accuracy": "loss"}.get(n, n)
            for n in losses.tables["evaluations"].column_names
        ]
    )
    # the least, at round 1
    assert m.by_validation(fake.run(task={"metric": "loss"}, evaluations=lower)) == 0.2
    assert isnan(m.by_validation(fake.run(evaluations=evaluations())))


def test_a_last_round_that_was_not_asked_for_does_not_compete():
    """Every second round is evaluated, and the last, 5, because the run ended there: its validation
    is best and does not count."""
    run = with_validation([0.1, 0.2, 0.3, 0.9], [0.1, 0.5, 0.4, 0.9], rounds=[0, 2, 4, 5], every=2)
    assert m.by_validation(run) == 0.2


def test_the_mean_over_clients_decides_where_it_is_the_headline():
    rows = fake.table(
        "evaluations",
        round=[1, 2] * 3,
        version=[1, 2] * 3,
        time_s=[1.0, 2.0] * 3,
        scope=["mean"] * 2 + ["validation"] * 2 + ["validation_mean"] * 2,
        accuracy=[0.3, 0.4, 0.9, 0.1, 0.1, 0.9],
    )
    assert m.by_validation(fake.run({"split": {"test": "client"}}, evaluations=rows)) == 0.4


def test_targets_are_censored_not_dropped():
    along = m.Curve(np.array([10.0, 20.0, 30.0]), np.array([0.2, 0.5, 0.4]))
    assert m.to_target(along, 0.5) == m.Censored(20.0, True)
    assert m.to_target(along, 0.6) == m.Censored(30.0, False)
    assert m.to_target(along, 0.3, higher_is_better=False) == m.Censored(10.0, True)
    assert not m.to_target(m.Curve(np.empty(0), np.empty(0)), 0.5).reached
    assert str(m.target_spread([m.Censored(20.0, True), m.Censored(30.0, False)])) == "> 25"
    assert str(m.target_spread([m.Censored(20.0, True), m.Censored(30.0, True)])) == "25"
    assert not m.target_spread([]).reached


def test_fairness_by_hand():
    """Eleven clients 0.0 .. 1.0: mean 0.5, the worst tenth is ceil(1.1) = 2 of them (0.0, 0.1), the
    best (0.9, 1.0), the variance 10 * 0.01."""
    got = m.fairness([*np.arange(11)[::-1] / 10, np.nan])
    assert got.mean == pytest.approx(0.5)
    assert got.worst_decile == pytest.approx(0.05)
    assert got.variance == pytest.approx(0.1)
    assert got.best_decile == pytest.approx(0.95)
    losses = m.fairness(np.arange(11) / 10, higher_is_better=False)
    assert (losses.worst_decile, losses.best_decile) == pytest.approx((0.95, 0.05))
    assert isnan(m.fairness([]).mean)


def test_clients_are_taken_at_their_last_evaluation_in_order_of_id():
    rows = fake.table(
        "evaluations",
        round=[1, 1, 2, 2, 3],
        scope=["client"] * 4 + ["global"],
        client=[0, 1, 1, 0, -1],
        accuracy=[0.1, 0.2, 0.3, 0.4, 0.5],
    )
    assert m.client_metric(fake.run(evaluations=rows)).tolist() == [0.4, 0.3]
    assert m.client_metric(fake.run(evaluations=evaluations())).tolist() == []


def test_participation_by_hand():
    """Clients 0..3 with 3, 0, 1, 0 accepted (client 3 was late): mean 1, variance (4 + 1 + 0 + 1)/4
    = 1.5;
    Gini: sorted 0 0 1 3, 2 (3*1 + 4*3) / (4*4) - 5/4 = 0.625."""
    clients = fake.table(
        "clients",
        round=[1, 1, 2, 2, 3],
        client=[0, 2, 0, 3, 0],
        outcome=["accepted", "accepted", "accepted", "late", "accepted"],
    )
    federation = fake.table("federation", client=[0, 1, 2, 3])
    got = m.participation(fake.run(clients=clients, federation=federation))
    assert got.counts.tolist() == [3, 0, 1, 0]
    assert got.std == pytest.approx(sqrt(1.5))
    assert got.gini == pytest.approx(0.625)
    assert m.participation(fake.run({"population": 5}, clients=clients)).counts.tolist() == [
        3,
        0,
        1,
        0,
        0,
    ]


@given(st.lists(st.integers(0, 50), min_size=1, max_size=40))
def test_gini_is_scale_free_and_bounded(counts):
    g = m.gini(counts)
    assert -1e-12 <= g < 1
    assert m.gini([7 * c for c in counts]) == pytest.approx(g, abs=1e-12)


def test_gini_ends():
    assert m.gini([2, 2, 2]) == pytest.approx(0)
    assert m.gini([0, 0, 0]) == 0
    assert m.gini([0, 0, 0, 9]) == pytest.approx(0.75)  # 1 - 1/n


def test_costs_by_hand():
    rounds = fake.table(
        "rounds",
        round=[1, 2],
        selections=[3, 7],
        time_s=[5.0, 9.0],
        paper_s=[3.5, 7.0],
        total_bits=[100.0, 220.0],
        total_up_paper_bits=[40.0, 80.0],
        down_bits=[50.0, 50.0],
        up_bits=[40.0, 40.0],
        probe_down_bits=[10.0, None],
        probe_up_bits=[None, 30.0],
        selected=[2, 2],  # one of them is in flight at the end
    )
    clients = fake.table(
        "clients",
        client=[0, 1, 2],
        outcome=["accepted", "rejected", "late"],
        local_steps=[4, 5, None],
    )
    got = m.costs(
        fake.run(
            rounds=rounds,
            clients=clients,
            timings=fake.table("timings", round=[1, 2], wall_s=[0.5, 0.25]),
        )
    )
    assert got == m.Costs(2, 7, 9.0, 7.0, 220.0, 80.0, 100.0, 80.0, 40.0, 9, 4, 1, 1, 0, 1, 0.75)


def test_seeds_by_hand():
    """1, 2, 6: mean 3, sample variance (4 + 1 + 9)/2 = 7."""
    got = m.spread([1, 2, np.nan, 6])
    assert (got.mean, got.std, got.n) == (3.0, pytest.approx(sqrt(7)), 3)
    assert isnan(m.spread([1]).std)


def test_paired_interval_by_hand():
    """Differences 1, 2, 3: mean 2, s = 1, t(2, 97.5%) = 4.302653, half width 4.302653 / sqrt 3 =
    2.484138."""
    got = m.paired([11, 22, 33], [10, 20, 30])
    assert got.n == 3
    np.testing.assert_allclose(
        [got.mean, got.low, got.high], [2, 2 - 2.4841377, 2 + 2.4841377], rtol=1e-7
    )
    assert isnan(m.paired([1], [2]).low)
    # two runs that differ by one of 90 test samples each tell nothing about a third
    alike = m.paired([81 / 90, 76 / 90], [80 / 90, 75 / 90], m.level_together(9))
    assert (alike.mean, alike.n) == (pytest.approx(1 / 90), 2)
    assert isnan(alike.low)
    assert isnan(alike.high)
    with pytest.raises(ConfigError, match="same seeds on both sides, got 2 and 1"):
        m.paired([1, 2], [1])
    with pytest.raises(ConfigError, match="between 0 and 1, got 95"):
        m.paired([1, 2], [1, 2], 95)


def test_steps_and_bands_by_hand():
    """Evaluations at 0, 10, 20 and at 5, 15: they overlap from 5 to 15, on the grid 5, 10, 15."""
    a = m.Curve(np.array([0.0, 10.0, 20.0]), np.array([1.0, 2.0, 3.0]))
    b = m.Curve(np.array([5.0, 15.0]), np.array([3.0, 6.0]))
    np.testing.assert_equal(m.stepwise(b, [0, 5, 14, 15, 99]), [np.nan, 3, 3, 6, 6])
    got = m.band([a, b])
    assert got.x.tolist() == [5, 10, 15]
    assert got.mean.tolist() == [2.0, 2.5, 4.0]  # (1+3)/2, (2+3)/2, (2+6)/2
    np.testing.assert_allclose(got.high - got.mean, [sqrt(2), sqrt(0.5), sqrt(8)])
    alone = m.band([a])
    assert (alone.low == alone.mean).all()
    assert m.band([]).n == 0


def test_concentration_is_read_from_the_notes():
    notes = ['{"cv_probability": 0.5, "tau": 1.0}', None, '{"tau": 1.0}', '{"cv_probability": 2.0}']
    along = m.concentration(fake.run(rounds=fake.table("rounds", round=[1, 2, 3, 4], notes=notes)))
    assert along.x.tolist() == [1.0, 4.0]
    assert along.y.tolist() == [0.5, 2.0]
    assert len(m.concentration(fake.run()).x) == 0


def test_participation_says_when_everybody_had_been_asked():
    """Three clients, taken in rounds 1: {0, 1}, 2: {0}, 3: {0, 2}: everybody after round 3; before
    it never."""

    def taken(pairs):
        rounds, who = zip(*pairs, strict=True)
        clients = fake.table(
            "clients", round=list(rounds), client=list(who), outcome=["accepted"] * len(who)
        )
        return m.participation(
            fake.run(clients=clients, federation=fake.table("federation", client=[0, 1, 2]))
        )

    pairs = [(1, 0), (1, 1), (2, 0), (3, 0), (3, 2)]
    assert (taken(pairs).seen, taken(pairs).all_seen) == (3, 3.0)
    assert taken(pairs[:3]).seen == 2
    assert isnan(taken(pairs[:3]).all_seen)


def test_figures_by_domain_are_of_the_last_evaluation():
    """Clients 0, 1, 2 in domains 1, 0, 1: round 2 has .2, .4, .8, so domain 0 has .4 and domain 1
    the mean of .2 and .8."""
    rows = fake.table(
        "evaluations",
        round=[1, 1, 1, 2, 2, 2],
        scope=["client"] * 6,
        client=[0, 1, 2, 2, 1, 0],
        accuracy=[0.0, 0.0, 0.0, 0.8, 0.4, 0.2],
    )
    federation = fake.table("federation", client=[0, 1, 2], domain=[1, 0, 1], cluster=[0, 0, 0])
    run = fake.run(evaluations=rows, federation=federation)
    assert m.by_group(run, "domain") == pytest.approx({0: 0.4, 1: 0.5})
    assert m.by_group(run, "cluster") == pytest.approx({0: 1.4 / 3})
    assert m.by_group(fake.run(), "domain") == {}


def _clients(scope: str, accuracy: list[float], loss: list[float]) -> dict[str, list]:
    count = len(accuracy)
    return {
        "round": [2] * count,
        "scope": [scope] * count,
        "client": list(range(count)),
        "accuracy": accuracy,
        "loss": loss,
    }


def test_gains_by_hand():
    """Own .9 .5 .7 .8 against .6 .5 .9 .1 of local training; client 3 has too few test samples.
    Gains .3, 0, -.2: one client is better off and one counts half, 1.5 of 3. Over the shared model,
    .4 .4 .6: gains .5, .1, .1."""
    rows = [
        _clients("client", [0.9, 0.5, 0.7, 0.8], [1.0, 2.0, 3.0, 4.0]),
        _clients("shared_client", [0.4, 0.4, 0.6, 0.9], [2.0] * 4),
    ]
    both = {name: [value for row in rows for value in row[name]] for name in rows[0]}
    federation = fake.table("federation", client=[0, 1, 2, 3], num_test=[20, 30, 40, 19])
    run = fake.run(evaluations=fake.table("evaluations", **both), federation=federation)
    local = fake.run(
        evaluations=fake.table("evaluations", **_clients("client", [0.6, 0.5, 0.9, 0.1], [1.0] * 4))
    )
    got = m.gains(run, local)
    assert (got.share, got.clients, got.left_out) == (0.5, 3, 1)
    assert (got.median, got.worst) == (0.0, pytest.approx(-0.2))
    beside = m.gains(run)
    assert (beside.share, beside.median) == (1.0, pytest.approx(0.1))
    assert m.gains(run, metric="loss").share == 0.5  # 1, 0 and -1: less is better
    assert m.gains(run, local, least=10).left_out == 0
    with pytest.raises(
        ConfigError, match="the same clients in the run and in its own shared model, got 4 and 0"
    ):
        m.gains(local)


def test_intervals_that_hold_together_are_each_at_a_higher_level():
    """Bonferroni: 1 - .05 / 9 of nine."""
    assert m.level_together(9) == pytest.approx(1 - 0.05 / 9)
    assert m.level_together(1) == m.level_together(0) == pytest.approx(0.95)


def test_a_verdict_is_that_of_bonferronis_adjusted_p_value():
    """An interval excludes zero just where p, times the number of comparisons, is below .05."""
    from scipy.stats import ttest_1samp

    rng = np.random.default_rng(5)
    decided = []
    for differences in rng.normal(1.0, 0.5, (200, 5)):
        one = m.paired(differences, np.zeros(5), m.level_together(9))
        decided.append(not one.low <= 0 <= one.high)
        assert decided[-1] == (9 * ttest_1samp(differences, 0.0).pvalue < 0.05)
    assert 50 < sum(decided) < 150
