"""FedCG: selection and coupling; its program is tested in
tests/motley/core/test_upload_ratios.py."""

import numpy as np
import pytest

from motley.core.errors import ConfigError
from motley.core.records import Outcome, Reports
from motley.selectors import build
from motley.selectors.divfl import DivFL
from motley.selectors.fedcg import FedCG
from motley.selectors.selector import Selector


def probe(selector, t, ids, compute_s, upload_s):
    signals = {
        "compute_estimate_s": np.asarray(compute_s, float),
        "upload_estimate_s": np.asarray(upload_s, float),
    }
    selector.observe(t, Reports(np.asarray(ids), Outcome.PROBED, signals=signals))


def report(selector, t, ids, vectors):
    vectors = np.asarray(vectors, float)[:, None]
    selector.observe(t, Reports(np.asarray(ids), Outcome.ACCEPTED, signals={"gradient": vectors}))


def selector_of(rule, vectors, compute_s, upload_s, t=2):
    ids = 10 * np.arange(len(vectors))
    selector = Selector(rule)
    report(selector, t - 1, ids, vectors)
    probe(selector, t, ids, compute_s, upload_s)
    return selector, ids


def test_estimates_beyond_reason_are_bounded():
    """Two of 1.7e308 seconds do not overflow their sum: the client counts as one of 10^15 seconds,
    slow, and not as a dead link."""
    selector, ids = selector_of(
        FedCG(vectors="gradient"), [0.0, 1, 2], [1.0, 1.7e308, 1], [1.0, 1.7e308, 1]
    )
    cohort = selector.select(2, ids, 3)
    assert sorted(cohort.ids.tolist()) == ids.tolist()
    assert np.isfinite(cohort.upload_ratio).all()
    assert np.isfinite(list(cohort.notes.values())).all()


def test_the_cohort_is_divfls_and_the_ratios_follow_the_ids():
    """Positions 3, 1, 6 of the line of docs/methods/selectors.md#divfl, with u = 10, 10 and 30
    seconds and no local work. Budget 0.5: T / 10 + T / 10 + T / 30 = 1.5, T = 45 / 7, ratios (9,
    9, 3) / 14."""
    line = [0.0, 1, 3, 10, 12, 13, 20]
    rule = FedCG(budget=0.5, vectors="gradient")
    selector, ids = selector_of(rule, line, np.zeros(7), [10.0, 10, 10, 10, 10, 10, 30])
    cohort = selector.select(2, ids, 3)
    assert cohort.ids.tolist() == [30, 10, 60]
    np.testing.assert_allclose(cohort.upload_ratio, np.array([9, 9, 3]) / 14)
    assert cohort.notes["finish_s"] == pytest.approx(45 / 7)
    assert cohort.notes["mean_ratio"] == pytest.approx(0.5)
    other = Selector(DivFL(vectors="gradient"))
    report(other, 1, ids, line)
    assert other.select(2, ids, 3).ids.tolist() == cohort.ids.tolist()


def test_speed_alone_does_not_choose_by_default():
    line = [0.0, 1, 3, 10, 12, 13, 20]
    slow = np.where(np.arange(7) == 3, 1e4, 1.0)
    selector, ids = selector_of(FedCG(vectors="gradient"), line, slow, np.ones(7))
    assert selector.select(2, ids, 3).ids[0] == 30


def test_time_aware_leaves_out_slow_clients():
    """Values 0, 10, 11, 12, 30; the one at 11 takes 100 s, the others 1 s; uploads take 1 s, budget
    0.5. Diversity alone takes 11 first (11 + 1 + 0 + 1 + 19 = 32 left), then 30 (13 left). T0
    solves clip(T - 100) + clip(T - 1) = 1: T0 = 2, at which 11 has sent nothing; 100.01 > 3, so it
    is dropped. Left are 0, 10, 12, 30 to cover all five: 10 leaves 10 + 0 + 1 + 2 + 20 = 33, 12
    leaves 12 + 2 + 1 + 0 + 18 = 33: a tie, then 30; 13 or 15 left. Now T* = T0 = 1.5."""
    values = [0.0, 10, 11, 12, 30]
    compute = [1.0, 1, 100, 1, 1]
    rule = {"budget": 0.5, "vectors": "gradient", "ties": "lowest_id"}
    plain, ids = selector_of(FedCG(**rule), values, compute, np.ones(5))
    cohort = plain.select(2, ids, 2)
    assert cohort.ids.tolist() == [20, 40]
    assert cohort.notes["finish_s"] == pytest.approx(100.01)
    aware, _ = selector_of(FedCG(time_aware=True, **rule), values, compute, np.ones(5))
    cohort = aware.select(2, ids, 2)
    assert cohort.ids.tolist() == [10, 40]
    assert cohort.notes["finish_s"] == pytest.approx(1.5)
    assert cohort.notes["runs"] == 2
    np.testing.assert_allclose(cohort.upload_ratio, [0.5, 0.5])


def test_the_m_fastest_always_stay():
    """Four of five are hopeless beside the fifth, but five are asked for."""
    compute = [1.0, 100, 200, 300, 400]
    selector, ids = selector_of(
        FedCG(time_aware=True, vectors="gradient"), [0.0, 1, 2, 3, 4], compute, np.ones(5)
    )
    for m in range(1, 6):
        assert len(selector.select(2, ids, m).ids) == m


def test_dropping_by_t_star_itself_would_change_nothing():
    """Why T0 and not T*: every pick is in time by its own T*, and picks from fewer candidates that
    hold them are the same."""
    rng = np.random.default_rng(0)
    for _ in range(20):
        values = rng.normal(size=30)
        compute = rng.exponential(5, 30)
        upload = rng.exponential(5, 30)
        selector, ids = selector_of(
            FedCG(vectors="gradient", ties="lowest_id"), values, compute, upload
        )
        cohort = selector.select(2, ids, 6)
        stay = ids[compute + 0.01 * upload <= 1.5 * cohort.notes["finish_s"]]
        assert np.isin(cohort.ids, stay).all()
        assert selector.select(2, stay, 6).ids.tolist() == cohort.ids.tolist()


def test_all_clients_train_in_round_one_with_start_everybody():
    ids = np.arange(9)
    for start, expected in (("everybody", 9), ("unknown", 3)):
        selector = Selector(FedCG(start=start))
        probe(selector, 1, ids, np.ones(9), np.ones(9))
        assert len(selector.select(1, ids, 3).ids) == expected
        assert len(selector.select(2, ids, 3).ids) == 3


def test_a_dead_link_is_not_available():
    """B_k = 0 is an infinite upload, which reaches a rule as absent: not a candidate in this round,
    and one again when it lives."""
    selector, ids = selector_of(
        FedCG(vectors="gradient"), [0.0, 1, 2], np.ones(3), [1.0, np.inf, 1.0]
    )
    assert sorted(selector.select(2, ids, 3).ids.tolist()) == [0, 20]
    probe(selector, 3, ids, np.ones(3), np.ones(3))
    assert len(selector.select(3, ids, 3).ids) == 3
    probe(selector, 4, ids, np.ones(3), np.full(3, -1.0))
    assert len(selector.select(4, ids, 3).ids) == 0


def test_without_any_probe_the_budget_is_sent():
    cohort = Selector(FedCG(start="unknown")).select(1, np.arange(5), 2)
    assert cohort.upload_ratio.tolist() == [0.2, 0.2]
    assert cohort.notes["finish_s"] == 0


def test_estimates_are_those_of_this_round():
    """The uplink is drawn anew each round: the ratios follow the last probe."""
    selector, ids = selector_of(
        FedCG(budget=0.5, vectors="gradient"), [0.0, 9], np.zeros(2), [1.0, 9.0]
    )
    for t, upload_s in ((2, [1.0, 9.0]), (3, [9.0, 1.0])):
        probe(selector, t, ids, np.zeros(2), upload_s)
        cohort = selector.select(t, ids, 2)
        by_id = cohort.upload_ratio[np.argsort(cohort.ids)]
        np.testing.assert_allclose(by_id, np.array(upload_s[::-1]) / 10)


def test_needs_cost_nothing():
    needs = FedCG().needs()
    assert set(needs.probed) == {"compute_estimate_s", "upload_estimate_s"}
    assert needs.reported == {"gradient_sketch"}


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"budget": 1.2}, r"got budget = 1.2; expected a mean ratio in \(0, 1\]"),
        ({"budget": 0.0}, "got budget = 0.0"),
        ({"least": 0.0}, "got least = 0.0"),
        ({"least": 0.3}, "least = 0.3, budget = 0.2; expected a smallest ratio not above the mean"),
        ({"time_aware": 1}, "selector.time_aware: got 1"),
    ],
)
def test_bad_options(record, message):
    with pytest.raises(ConfigError, match=message):
        build({"name": "fedcg", **record})
