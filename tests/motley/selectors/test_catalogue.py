"""What every rule of the catalogue must do, whatever its paper
(docs/methods/selectors.md#contract), beyond the contract suite."""

import dataclasses
import warnings

import numpy as np
import pytest

from motley.core.records import SIGNALS, Outcome, Reports
from motley.core.table import ClientTable
from motley.selectors import Selector
from motley.selectors.active_fl import ActiveFL
from motley.selectors.adasample import AdaSample
from motley.selectors.feel import FEEL
from motley.selectors.power_of_choice import PowerOfChoice
from motley.selectors.uniform import Uniform
from motley.testing.selectors import SyntheticFederation, assert_same_cohort, assert_same_state
from tests.motley.selectors.test_contract import RULES

pytestmark = pytest.mark.usefixtures("clustered_once")


@pytest.mark.slow
@pytest.mark.parametrize("rule", RULES, ids=str)
def test_fifty_rounds_repeat(rule):
    """15.2: the same seed and reports, the same 50 cohorts, also with the ids in another order in
    each round."""
    world = SyntheticFederation(horizon=50)
    once = world.selector(rule)
    again = world.selector(rule)

    def lost(t, ids):
        return np.where((ids + t) % 10 < 3, Outcome.DROPPED, Outcome.ACCEPTED)

    def shuffled(t):
        return np.random.default_rng(t).permutation(world.ids)

    pairs = zip(
        world.play(once, range(1, 51), lost),
        world.play(again, range(1, 51), lost, shuffled),
        strict=True,
    )
    for first, second in pairs:
        assert_same_cohort(first, second)
    assert_same_state(once.state, again.state)


# ---- 15.3, and further: numbers at both ends of the floats, in every signal, time and size ----

EXTREMES = {
    "zero": [0.0],
    "huge": [1e308],
    "negative": [-1e308],
    "tiny": [5e-324],
    "nothing": [np.nan],
}
EXTREMES["all of them"] = [1e308, 1.0, -1e308, 0.0, np.nan, 5e-324]
WORLDS = {
    "one client": (lambda t: np.arange(1), 3),
    "everybody": (lambda t: 7 * np.arange(6), 6),
    "everybody new": (lambda t: 7 * np.arange(6) + 1000 * t, 3),
    "some vanish": (lambda t: 7 * np.arange(t % 2, 12, 2), 3),
}


def tables(value):
    """All arrays of numbers in a state."""
    if isinstance(value, np.ndarray):
        yield value
    elif isinstance(value, dict):
        for part in value.values():
            yield from tables(part)
    elif dataclasses.is_dataclass(value):
        for f in dataclasses.fields(value):
            yield from tables(getattr(value, f.name))


def measured(names, values, n, t):
    """Each client with another one of the values, shifted from round to round."""
    column = np.take(values, np.arange(n) + t, mode="wrap")
    wide = {
        name: np.repeat(column[:, None], 5, axis=1) if SIGNALS[name].shape != "scalar" else column
        for name in names
    }
    return {"num_examples": column, "local_steps": np.full(n, 5.0), "signals": wide}


QUICK = [("one client", "all of them"), ("everybody new", "all of them"), ("some vanish", "huge")]
ALL = [(world, values) for world in WORLDS for values in EXTREMES]


@pytest.mark.parametrize(
    "cases", [QUICK, pytest.param(ALL, marks=pytest.mark.slow)], ids=["quick", "all"]
)
@pytest.mark.parametrize("rule", RULES, ids=str)
def test_no_number_breaks_a_rule(rule, cases):
    """No warning, nothing infinite in the state, finite coefficients, and as many clients as
    announced."""
    for world, extreme in cases:
        (available, m), values = WORLDS[world], EXTREMES[extreme]
        selector = Selector(rule, 0, 6)
        needs = rule.needs()
        seen = np.zeros(0, np.int64)
        for t in range(1, 7):
            ids = available(t)
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                fresh = np.setdiff1d(ids, seen)
                selector.observe(
                    0,
                    Reports(
                        fresh, Outcome.ENROLLED, **measured(needs.enrolled, values, len(fresh), t)
                    ),
                )
                asked = selector.probe(t, ids, m)
                selector.observe(
                    t,
                    Reports(asked, Outcome.PROBED, **measured(needs.probed, values, len(asked), t)),
                )
                cohort = selector.select(t, ids, m)
                back = Outcome.REHEARSED if cohort.rehearsal else Outcome.ACCEPTED
                told = measured(needs.reported, values, len(cohort.ids), t)
                seconds = dict.fromkeys(
                    ("download_s", "compute_s", "upload_s", "bits_up"), told["num_examples"]
                )
                selector.observe(
                    t,
                    Reports(
                        cohort.ids,
                        np.where(cohort.ids % 2, Outcome.DROPPED, back),
                        **told,
                        **seconds,
                    ),
                )
            seen = np.union1d(seen, ids)
            got = len(cohort.ids) if cohort.multiplicity is None else int(cohort.multiplicity.sum())
            assert got == rule.size(t, m, len(ids)) or rule.takes_fewer
            for name in ("weights", "scores", "local_steps", "upload_ratio"):
                assert getattr(cohort, name) is None or np.isfinite(getattr(cohort, name)).all(), (
                    name
                )
            assert np.isfinite(list(cohort.notes.values())).all()
            assert not any(np.isinf(array).any() for array in tables(selector.state))


# ---- 15.4: who did not report ----

MOVES = {
    "AdaSample": {"q"},  # solved for everybody
    "TiFL": {"tier"},  # grouped anew
    # annealed whoever was sent out; trained on everybody
    "FedCor": {"alpha", "changes", "embedding"},
    # predicted from the others; clustered anew
    "FedCvrBolt": {"mean", "variance", "weighted", "label"},
    "RestlessBandit": {"u"},  # one system of equations for all
}
"""What is estimated of everybody at once, and so may move for a client that was sent out and did
not report."""


def rows(state, ids):
    """Every column of every table at these ids."""
    if isinstance(state, ClientTable):
        return {name: state.get(name, ids) for name in state.columns}
    parts = (
        [getattr(state, f.name) for f in dataclasses.fields(state)]
        if dataclasses.is_dataclass(state)
        else []
    )
    return {name: column for part in parts for name, column in rows(part, ids).items()}


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_drop_outs_leave_the_state_of_non_reporters(rule):
    """15.4: about 30% of each cohort drop out; of what is known of such a client only the count of
    its selections moves."""
    world = SyntheticFederation(horizon=12)
    selector = world.selector(rule)
    needs = rule.needs()
    for t in range(1, 13):
        asked = world.probe(selector, t, world.ids)
        cohort = selector.select(t, world.ids, world.m)
        became = np.where((cohort.ids // 3 + t) % 10 < 3, Outcome.DROPPED, Outcome.ACCEPTED).astype(
            np.int8
        )
        silent = cohort.ids[became == Outcome.DROPPED]
        before = rows(selector.state, silent)
        world.finish(selector, t, asked, cohort, became)
        after = rows(selector.state, silent)
        for name in before.keys() - {"count"} - MOVES.get(type(rule).__name__, set()):
            if not (cohort.rehearsal and name in needs.probed):
                np.testing.assert_array_equal(
                    after[name], before[name], err_msg=f"{name} in round {t}"
                )


# ---- 15.5: nobody is preferred where all are alike ----

FAIR = [
    Uniform(),
    Uniform("weighted_wr"),
    Uniform("weighted_wor"),
    PowerOfChoice(),
    PowerOfChoice("cpow_d", d=9),
    PowerOfChoice("rpow_d"),
    ActiveFL(),
    ActiveFL(alpha1=0.8, alpha2=1.0, alpha3=0.0),
    ActiveFL(cold_start="unseen_low"),
    FEEL(),
    FEEL(norm_source="stale"),
    AdaSample(),
    AdaSample(c0=2.0),
    AdaSample(pilots=True),
]


def alike(names, n):
    return {name: np.ones((n, 5) if SIGNALS[name].shape != "scalar" else n) for name in names}


@pytest.mark.parametrize("draws", [300, pytest.param(20000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("rule", FAIR, ids=str)
def test_equal_signals_choose_everybody_equally_often(rule, draws):
    """Within 4 standard errors of m / K, multiplicity counted; draws with replacement vary by m (1
    / K)(1 - 1 / K)."""
    ids = 3 * np.arange(10) + 1
    m = 4
    selector = Selector(rule, 5, draws)
    needs = rule.needs()
    counts = np.zeros(10)
    selector.observe(
        0,
        Reports(
            ids, Outcome.ENROLLED, num_examples=np.full(10, 7.0), signals=alike(needs.enrolled, 10)
        ),
    )
    for t in range(1, draws + 1):
        asked = selector.probe(t, ids, m)
        if len(asked):
            selector.observe(
                t, Reports(asked, Outcome.PROBED, signals=alike(needs.probed, len(asked)))
            )
        cohort = selector.select(t, ids, m)
        at = np.searchsorted(ids, cohort.ids)
        counts[at] += 1 if cohort.multiplicity is None else cohort.multiplicity
        if t == 1:
            told = {
                "local_steps": np.ones(10),
                "compute_s": np.ones(10),
                "signals": alike(needs.reported, 10),
            }
            selector.observe(t, Reports(ids, Outcome.ACCEPTED, **told))
    again = isinstance(rule, AdaSample) or rule == Uniform("weighted_wr")
    variance = m * 0.1 * 0.9 if again else 0.4 * 0.6
    assert (abs(counts / draws - 0.4) < 4 * np.sqrt(variance / draws)).all()


# ---- needs ----


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_needs_can_be_had_on_the_occasion(rule):
    """Every signal a rule names exists, and can be had when it is asked for; who probes nothing
    asks nobody."""
    needs = rule.needs()
    for when, names in (
        ("enrolled", needs.enrolled),
        ("probed", needs.probed),
        ("reported", needs.reported),
    ):
        for name in names:
            assert when in SIGNALS[name].when, name
    if not needs.probed:
        world = SyntheticFederation()
        selector = world.selector(rule)
        assert all(not len(selector.probe(t, world.ids, world.m)) for t in range(1, 4))
