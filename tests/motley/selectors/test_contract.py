"""Every rule keeps the contract: a new rule joins by one row."""

import dataclasses
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

from motley.core.records import Cohort, Outcome
from motley.selectors import CATALOGUE
from motley.selectors.active_fl import ActiveFL
from motley.selectors.adasample import AdaSample
from motley.selectors.clustered_sampling import ClusteredSampling
from motley.selectors.delta import DELTA
from motley.selectors.divfl import DivFL
from motley.selectors.fedcbs import FedCBS
from motley.selectors.fedcg import FedCG
from motley.selectors.fedcor import FedCor
from motley.selectors.fedcs import FedCS
from motley.selectors.fedcvr_bolt import FedCvrBolt
from motley.selectors.fedstas import FedSTaS
from motley.selectors.feel import FEEL
from motley.selectors.flash import FLASH
from motley.selectors.greedyfed import GreedyFed
from motley.selectors.hetero_select import HeteroSelect
from motley.selectors.hetero_select_v1 import HeteroSelectV1
from motley.selectors.hics_fl import HiCSFL
from motley.selectors.linucb import LinUCB
from motley.selectors.neural_bandit import NeuralBandit
from motley.selectors.oort import Oort
from motley.selectors.poisson import Poisson
from motley.selectors.power_of_choice import PowerOfChoice
from motley.selectors.pyramidfl import PyramidFL
from motley.selectors.restless_bandit import RestlessBandit
from motley.selectors.tifl import TiFL
from motley.selectors.ucb1 import UCB1
from motley.selectors.uniform import Uniform
from motley.testing.selectors import CHECKS, SyntheticFederation, check_selector

RULES = [
    Uniform(),
    Uniform(unbiased=True),
    Uniform("weighted_wr"),
    Uniform("weighted_wor"),
    Uniform("weighted_wor", unbiased=True),
    Poisson(),
    Poisson(rate=0.5, largest=4),
    PowerOfChoice(),
    PowerOfChoice(d=1),
    PowerOfChoice("cpow_d", d=6),
    PowerOfChoice("rpow_d"),
    PowerOfChoice("adapow_d"),
    PowerOfChoice(measured="test_loss"),
    PowerOfChoice(sampling="uniform"),
    ClusteredSampling(),
    HiCSFL(),
    HiCSFL(temperature=1.0, groups=3),
    ClusteredSampling("sizes"),
    DivFL(),
    DivFL("ideal", coefficients="clusters"),
    DivFL(start="random"),
    DivFL(vectors="gradient", greedy="stochastic"),
    FedCG(),
    FedCG(time_aware=True),
    FedCG(start="unknown", vectors="gradient"),
    FedCor(),
    FedCor(warmup=2, interval=3, dimension=3, first_iterations=20, iterations=5),
    FedCor(warmup=0, interval=1, history=0, measured="val_loss", first_iterations=5, iterations=5),
    FedCBS(),
    FedCBS(beta=3.0, exploration=0.0),
    FedSTaS(),
    FedSTaS(strata=2, every=3),
    FedSTaS(probe="last_report"),
    FedSTaS(spread="variance", standardise=True),
    FedCS(),
    FedCS(deadline=3.0),
    FedCS(deadline=4.0, share=0.5),
    FedCS(deadline=5.0, fill=True, share=0.7),
    Oort(),
    Oort(batch_size=10, blacklist=2, pacer="paper", window=2, norm_pool="code"),
    Oort(split="oort", exploration_min=0.5),
    Oort(form="raw", explore="speed", late="mean", widen=2, threshold=100.0),
    PyramidFL(),
    PyramidFL(batch_size=10, beta=0.5, window=2),
    TiFL(),
    TiFL(tiers=2, interval=2, retier=3, credits=4),
    HeteroSelect(),
    HeteroSelect("sketch"),
    HeteroSelect(lr="score_adaptive", as_published="code"),
    HeteroSelect("sketch", w_direction=0.0),
    HeteroSelect(w_value=0.0),
    FedCvrBolt(),
    FedCvrBolt(warm_up=0),
    FedCvrBolt(warm_up=1, seen_mean="kept", compare=2),
    FedCvrBolt(warm_up=1, similarity="gaussian", rho="regression", beta=0.0, recluster_every=2),
    FedCvrBolt(warm_up=1, similarity="cosine", rho="cosine", literal_means=True),
    FedCvrBolt(warm_up=1, clustering="scikit_learn", covariance="ones", step="shifted", compare=2),
    FedCvrBolt(
        warm_up=1,
        clustering="scikit_learn",
        covariance="ones",
        step="constant",
        rho="cosine",
        literal_means=True,
        whole=0,
        coordinates=2,
        among=3,
    ),
    FedCvrBolt(warm_up=1, exact_up_to=0, landmarks=4, coordinates=3, whole=3, memory_mb=1e-4),
    HeteroSelectV1(),
    HeteroSelectV1(probe="last_report", strategy="exploitative"),
    HeteroSelectV1("multiplicative"),
    HeteroSelectV1("multiplicative", probe="last_report"),
    ActiveFL(),
    ActiveFL(alpha1=0.8, alpha2=1.0, alpha3=0.0),
    ActiveFL(cold_start="unseen_low"),
    ActiveFL(alpha2=1.0, valuation="mean"),
    ActiveFL(alpha1=0.8, alpha2=1.0, alpha3=0.0, valuation="mean", refresh="all"),
    ActiveFL(0.0, 1.0, 0.0, valuation="mean", refresh="all", drawn=6, floor=1e-8),
    AdaSample(),
    AdaSample(c0=1.0, refresh=2),
    AdaSample(pilots=True, pilot_rounds=3),
    AdaSample(pilots=True, pilot_rounds=2, refresh=3),
    DELTA(),
    DELTA(b=1.0, vector="gradient", probe_batches=1),
    DELTA(form="leaf"),
    DELTA(form="cifar10"),
    FEEL(),
    FEEL(rho=1.0, scaled=False, cap=10.0),
    FEEL(norm_source="stale"),
    FLASH(),
    FLASH(probe="last_report", tau="seconds"),
    FLASH(tau="round_seconds", drop="duration", schedule="analysis"),
    FLASH(first_round="cohort", drop="val_loss", schedule="constant", g=0),
    GreedyFed(),
    GreedyFed("exponential", values="exact", ties="lowest_id"),
    GreedyFed("exponential", alpha=0.0, until="each", truncation=0.0),
    LinUCB(),
    LinUCB(disjoint=True, schedule="analysis"),
    LinUCB(probe="last_report", schedule="algorithm", drop="reward"),
    LinUCB(first_round="cohort", tau="mean"),
    UCB1(),
    UCB1(tau="seconds", first_round="cohort"),
    UCB1(tau="mean"),
    RestlessBandit(),
    RestlessBandit(first_round="all", tau="seconds"),
    RestlessBandit("filter"),
    RestlessBandit("filter", stay=(0.9, 0.8), sigma=1.0),
    NeuralBandit(hidden=20),  # 100 take ten times as long
    NeuralBandit(hidden=8, buffer=2, probe="last_report", first_round="all"),
]

pytestmark = pytest.mark.usefixtures("clustered_once")


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_rule_keeps_the_contract(rule):
    check_selector(rule)


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_probabilities_are_those_that_are_noted(rule):
    """Whoever notes the largest or the spread of its probabilities gives them, of all available,
    and they are the same."""
    world = SyntheticFederation()
    available = {t: world.ids[: 12 - t % 3] for t in range(1, 9)}
    cohorts = world.play(world.selector(rule), list(available), available=available.get)
    for t, cohort in enumerate(cohorts, 1):
        p = cohort.probabilities
        assert (p is not None) == (isinstance(rule, Uniform) or "max_probability" in cohort.notes)
        if p is not None:
            assert p.shape == (len(available[t]),)
            assert (p >= 0).all()
            assert p.sum() > 0
        if "max_probability" in cohort.notes:
            assert p.max() == pytest.approx(cohort.notes["max_probability"], rel=1e-12)
            assert p.std() / p.mean() == pytest.approx(
                cohort.notes["cv_probability"], rel=1e-9, abs=1e-12
            )


@dataclass(frozen=True)
class Twins(SyntheticFederation):
    """Four kinds of clients: those of a kind report the same, but for the last bits of computed
    numbers, which are ``shaken``."""

    clients: int = 12
    m: int = 6
    shaken: int = 0

    def signal(self, name, round, ids):
        out = super().signal(name, round, np.asarray(ids) // 3 % 4)
        if not self.shaken or name in ("num_examples", "label_histogram"):
            return out
        rng = np.random.default_rng([self.shaken, abs(round), len(ids), len(name)])
        return out * (1 + rng.integers(-8, 9, out.shape) * 2.0**-52)


# scikit-learn's eigenvectors of equal models are arbitrary
STEADY = [rule for rule in RULES if getattr(rule, "clustering", "") != "scikit_learn"]


@pytest.mark.parametrize("rule", STEADY, ids=str)
def test_the_last_bits_of_reports_change_no_choice(rule):
    """Engines agree beyond rounding alone: what they tell of equal clients may differ in it."""
    plain, shaken = Twins(), Twins(shaken=1)
    cohorts, others = (each.play(each.selector(rule), range(1, 7)) for each in (plain, shaken))
    for cohort, other in zip(cohorts, others, strict=True):
        assert cohort.ids.tolist() == other.ids.tolist()  # in the order of the draws


def test_every_rule_of_the_catalogue_has_a_row():
    assert {type(rule) for rule in RULES} >= {CATALOGUE.get(name) for name in CATALOGUE.builtin}


# ---- the suite itself: each broken rule below must be caught, by the check that is there for it
# ----


@dataclass(frozen=True)
class TakesFirst(Uniform):
    """Positions instead of ids."""

    def select(self, state, context):
        return Cohort(np.arange(context.m))


@dataclass(frozen=True)
class TakesTooFew(Uniform):
    def select(self, state, context):
        return Cohort(context.available[: max(context.m - 1, 0)])


@dataclass(frozen=True)
class IgnoresSeed(Uniform):
    def select(self, state, context):
        return Cohort(context.available[: context.m])


@dataclass(frozen=True)
class ClaimsNoSeed(Uniform):
    deterministic: ClassVar[bool] = True


@dataclass(frozen=True)
class Remembers(Uniform):
    """Keeps a generator outside of the state."""

    log: list = dataclasses.field(default_factory=list)

    def select(self, state, context):
        self.log.append(1)
        return Cohort(np.roll(context.available, len(self.log))[: context.m])


@dataclass(frozen=True)
class TrustsTheLate(PowerOfChoice):
    """Counts the bits of a client that was dropped as its loss."""

    def observe(self, state, draw, reports):
        late = reports.of(Outcome.LATE)
        return state.put(late.ids, {"loss": np.full(len(late), len(reports.signals))})


@dataclass(frozen=True)
class CountsCalls(GreedyFed):
    """Contributions that depend on the calls before."""

    log: list = dataclasses.field(default_factory=list)

    def contributions(self, uploads):
        self.log.append(1)
        return super().contributions(uploads) + len(self.log)


@dataclass(frozen=True)
class Mutates(PowerOfChoice):
    """Writes into the old state's arrays."""

    def observe(self, state, draw, reports):
        state = super().observe(state, draw, reports)
        for column in state.columns.values():
            column += 1.0
        return state


BROKEN = [
    (TakesFirst(), "not available"),
    (TakesTooFew(), "were announced"),
    (IgnoresSeed(), "seed does not matter"),
    (ClaimsNoSeed(), "the seed matters"),
    (Remembers(), "differs"),
    (TrustsTheLate("rpow_d"), "signals of clients without an accepted update"),
    (CountsCalls(), "the same uploads give other numbers"),
    (Mutates(), "changed by a later observe"),
]


@pytest.mark.parametrize(("rule", "message"), BROKEN, ids=lambda value: type(value).__name__)
def test_broken_rules_are_caught(rule, message):
    with pytest.raises(Exception, match=message):
        check_selector(rule)


def test_each_requirement_has_a_name_that_the_error_states():
    assert len(CHECKS) >= 12
    with pytest.raises(
        AssertionError, match="TakesTooFew: distinct, available, as many as announced"
    ):
        check_selector(TakesTooFew())
