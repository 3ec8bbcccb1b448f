"""The shell: what it enforces once, so that no rule has to."""

import dataclasses
import hashlib
import struct
from dataclasses import dataclass

import numpy as np
import pytest

from motley.core.codec import decode, encode
from motley.core.errors import CodecError, ConfigError, ContractError
from motley.core.records import Cohort, Outcome, Report, Reports
from motley.selectors import CATALOGUE, build
from motley.selectors.power_of_choice import PowerOfChoice
from motley.selectors.selector import SelectionRule, Selector
from motley.selectors.uniform import Uniform


@dataclass(frozen=True)
class Observed:
    """The reports observed last."""

    reports: Reports | None = None


@dataclass(frozen=True)
class Scripted(SelectionRule[Observed]):
    """Returns the given cohort, keeps the last reports."""

    answer: tuple = ()
    asked: tuple = ()
    weights: tuple | None = None
    paper = Uniform.paper

    def init(self):
        return Observed()

    def candidates(self, state, context):
        return np.array(self.asked, dtype=np.int64)

    def select(self, state, context):
        return Cohort(
            np.array(self.answer, dtype=np.int64),
            None if self.weights is None else np.array(self.weights),
        )

    def observe(self, state, draw, reports):
        return Observed(reports)


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (Scripted((1, 1)), "Scripted chose a client twice"),
        (Scripted((1, 9)), "Scripted chose a client that is not available"),
        (Scripted((1, -1)), "not available"),
        (Scripted((1, 2, 3)), "Scripted announced 2 clients and chose 3"),
        (Scripted((1, 2), weights=(1.0,)), "weights has 1 entries for 2 ids"),
    ],
)
def test_a_cohort_that_breaks_the_contract_is_refused(rule, message):
    with pytest.raises(ContractError, match=message):
        Selector(rule).select(1, [1, 2, 3, 4], 2)


def test_probes_are_checked_and_sorted():
    assert Selector(Scripted(asked=(3, 1))).probe(1, [1, 2, 3], 1).tolist() == [1, 3]
    with pytest.raises(ContractError, match="not available"):
        Selector(Scripted(asked=(7,))).probe(1, [1, 2, 3], 1)


def test_arguments_of_select_are_checked():
    with pytest.raises(ContractError, match="the same client is available twice"):
        Selector(Uniform()).select(1, [3, 4, 3], 1)
    with pytest.raises(
        ConfigError, match="cohort: got m = -1; expected a cohort size of at least 0"
    ):
        Selector(Uniform()).select(1, [3, 4], -1)
    assert len(Selector(Uniform()).select(1, [], 3).ids) == 0
    assert len(Selector(Uniform()).select(1, [1, 2], 0).ids) == 0


def test_non_finite_and_unusable_signals_never_reach_a_rule():
    selector = Selector(Scripted())
    outcome = np.array(
        [Outcome.ACCEPTED, Outcome.LATE, Outcome.DROPPED, Outcome.REJECTED, Outcome.PROBED], np.int8
    )
    signals = {
        "loss": np.array([np.inf, 1, 2, 3, 4.0]),
        "sketch": np.array([[1, np.nan], [1, 1], [1, 1], [1, 1], [-np.inf, 7]]),
    }
    selector.observe(1, Reports([4, 0, 1, 2, 3], outcome, signals=signals))
    observed = selector.state.reports
    assert observed.ids.tolist() == [0, 1, 2, 3, 4]  # sorted
    np.testing.assert_array_equal(observed.signal("loss"), [np.nan, np.nan, np.nan, 4, np.nan])
    np.testing.assert_array_equal(observed.signal("sketch")[3:], [[np.nan, 7], [1, np.nan]])
    assert signals["loss"][0] == np.inf  # the caller's arrays are left alone


def test_single_reports_are_accepted():
    selector = Selector(Scripted())
    selector.observe(1, [Report(9, signals={"loss": 1.0}), Report(2)])
    assert selector.state.reports.ids.tolist() == [2, 9]
    np.testing.assert_array_equal(selector.state.reports.signal("loss"), [np.nan, 1])


def test_same_seed_same_choice_and_each_round_and_dispatch_its_own():
    def chosen(seed, round, dispatch):
        return tuple(Selector(Uniform(), seed).select(round, range(1000), 5, dispatch).ids.tolist())

    assert chosen(0, 1, 0) == chosen(0, 1, 0)
    assert len({chosen(0, 1, 0), chosen(1, 1, 0), chosen(0, 2, 0), chosen(0, 1, 1)}) == 4
    assert len(chosen(-5, 1, 0)) == 5


def test_bytes_of_ours_and_of_your_own():
    selector = Selector(PowerOfChoice(d=3, ties="lowest_id"), 7, 40)
    selector.observe(1, Reports([5], Outcome.PROBED, signals={"loss": [1.0]}))
    again = Selector.from_bytes(selector.to_bytes())
    assert (again.rule, again.seed, again.horizon) == (selector.rule, 7, 40)
    assert again.state.get("loss", [5]).tolist() == [1.0]
    own = Selector(Mine(share=0.25), 1)
    assert Selector.from_bytes(own.to_bytes(), Mine).rule == Mine(share=0.25)
    with pytest.raises(
        CodecError,
        match="these bytes hold the rule 'Mine', which is not known here; pass rule=YourRule",
    ):
        Selector.from_bytes(own.to_bytes())
    with pytest.raises(CodecError, match="hold the rule 'PowerOfChoice'"):
        Selector.from_bytes(selector.to_bytes(), Mine)
    with pytest.raises(CodecError, match="these bytes do not hold a selector"):
        Selector.from_bytes(encode({"seed": 1}))
    older = {**decode(selector.to_bytes()), "options": {"d": 3, "ties": "lowest_id"}}
    assert Selector.from_bytes(encode(older)).rule == selector.rule  # what came later is as it was
    renamed = {**decode(selector.to_bytes()), "options": {"e": 3}}
    with pytest.raises(
        CodecError,
        match=r"PowerOfChoice was written with options \['e'\], it has \['d', 'measured', "
        r"'sampling', 'ties', 'variant'\] here",
    ):
        Selector.from_bytes(encode(renamed))
    with pytest.raises(CodecError, match="truncated or changed"):
        Selector.from_bytes(selector.to_bytes()[:-1])


def sealed(header):
    """Bytes of the codec around any header, with a sound checksum."""
    raw = struct.pack("<4sHI", b"MTLY", 1, len(header)) + header
    return raw + hashlib.blake2b(raw, digest_size=16).digest()


def test_bytes_of_nobody_are_refused_in_a_sentence():
    """Deep nesting, in the selector's bytes and in those of its state, and values of other types
    than to_bytes writes."""
    sound = decode(Selector(PowerOfChoice(d=3), 7, 40).to_bytes())
    deep = sealed(b"[" * 100_000)
    for data in (deep, encode({**sound, "state": deep})):
        with pytest.raises(
            CodecError, match="values inside each other, 100000 brackets deep; expected at most 200"
        ):
            Selector.from_bytes(data)
    for change in (
        {"state": 3},
        {"options": 1.5},
        {"rule": []},
        {"options": {**sound["options"], "d": "x"}},
        {"defence": True},
    ):
        with pytest.raises(CodecError, match="these bytes do not hold a selector: "):
            Selector.from_bytes(encode({**sound, **change}))


@dataclass(frozen=True)
class Mine(Uniform):
    share: float = 0.5


def test_catalogue():
    assert CATALOGUE.names() == sorted(CATALOGUE.builtin)
    for name in CATALOGUE.builtin:
        rule = build(name, horizon=10).rule
        assert dataclasses.is_dataclass(rule)
        assert rule.paper.bibtex().startswith("@inproceedings{")
    with pytest.raises(
        ConfigError, match=r"got 'power_of_choise' \(did you mean 'power_of_choice'\?\)"
    ):
        build("power_of_choise")


@pytest.mark.parametrize("option", [{"seed": 1.5}, {"seed": "3"}, {"seed": None}, {"seed": True}])
def test_a_seed_that_is_no_whole_number_is_refused(option):
    """Before, 1.2 and 1.7 were the same seed, 1."""
    with pytest.raises(ConfigError, match=r"seed: got .*; expected a whole number"):
        build("uniform", **option)


def test_a_horizon_that_is_no_whole_number_is_refused():
    with pytest.raises(ConfigError, match="horizon: got '50'; expected a whole number"):
        build("hetero_select", horizon="50")


def test_numpy_s_whole_numbers_are_seeds():
    chosen = [build("uniform", seed=seed).select(1, range(9), 3).ids for seed in (3, np.int64(3))]
    np.testing.assert_array_equal(*chosen)
