"""The contract of every selection rule, as one function: :func:`check_selector`.

A small synthetic federation is played against the rule. It provides whatever the rule's ``needs()`` names, so a rule of your
own is tested by one line:

>>> from motley.selectors.uniform import Uniform
>>> check_selector(Uniform())

Each point of the contract is a function of its own below, named in :data:`CHECKS`; a failure is an ``AssertionError`` that
begins with the point's name. Rules are played with small populations, so the whole suite takes milliseconds per rule.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from motley.core.arrays import Floats, Ids
from motley.core.errors import ConfigError
from motley.core.keys import Key
from motley.core.records import SIGNALS, Cohort, Outcome, Reports
from motley.core.table import ClientTable
from motley.selectors.base import SelectionRule, Selector

__all__ = ["CHECKS", "Federation", "assert_same_cohort", "assert_same_state", "check_selector"]


@dataclass(frozen=True)
class Federation:
    """A made-up federation: every number is a function of (seed, signal, round, client), so any part can be replayed.

    Parameters
    ----------
    clients: population N; ids are ``0, 3, 6, ...``, so that positions and ids are told apart.
    m: cohort size. horizon: planned rounds. seed: of the federation, not of the selector.
    classes: entries of a label histogram. width: entries of any other vector signal.
    """

    clients: int = 12
    m: int = 4
    horizon: int = 20
    seed: int = 0
    classes: int = 3
    width: int = 5

    @property
    def ids(self) -> Ids:
        """All ids, sorted."""
        return 3 * np.arange(self.clients, dtype=np.int64)

    def signal(self, name: str, round: int, ids: Ids) -> Floats:
        """Values of one signal, ``[n]`` or ``[n, d]``: positive; whole numbers where counts are meant."""
        key = Key(self.seed).fold("signal", name, round)
        if name == "label_histogram":
            return np.floor(50.0 * key.uniform(ids, self.classes))
        if SIGNALS[name].shape != "scalar":
            return key.normal(ids, self.width)
        if name == "num_examples":
            return 1.0 + np.floor(100.0 * key.uniform(ids)[:, 0])
        return 0.1 + key.exponential(ids)[:, 0]

    def reports(self, names: Sequence[str], round: int, ids: Ids, outcome: Outcome | NDArray[np.int8]) -> Reports:
        """What these clients send, whatever became of them; times, steps and sizes included."""
        key = Key(self.seed).fold("numbers", round)
        seconds = key.exponential(ids, 3).T
        return Reports(
            ids,
            np.asarray(outcome),
            version=np.full(len(ids), round - 1.0),
            num_examples=self.signal("num_examples", 0, ids),
            local_steps=np.full(len(ids), 5.0),
            staleness=np.zeros(len(ids)),
            download_s=seconds[0],
            compute_s=seconds[1],
            upload_s=seconds[2],
            bits_up=np.full(len(ids), 3200.0),
            bits_down=np.full(len(ids), 3200.0),
            signals={name: self.signal(name, round, ids) for name in names},
        )

    def selector(self, rule: SelectionRule[Any], seed: int = 0) -> Selector[Any]:
        """The rule's selector, with everybody enrolled."""
        selector = Selector(rule, seed, self.horizon)
        self.enrol(selector, self.ids)
        return selector

    def enrol(self, selector: Selector[Any], ids: Ids) -> None:
        """Enrol these clients, if the rule wants to know anything of them."""
        names = sorted(selector.rule.needs().enrolled)
        if names:
            selector.observe(0, self.reports(names, 0, ids, Outcome.ENROLLED))

    def bench(self, selector: Selector[Any], round: int, available: Ids, m: int | None = None) -> Ids:
        """Probe, measure, and tell the selector; returns whom it probed."""
        asked = selector.probe(round, available, self.m if m is None else m)
        if len(asked):
            selector.observe(round, self.reports(sorted(selector.rule.needs().probed), round, asked, Outcome.PROBED))
        return asked

    def play(
        self,
        selector: Selector[Any],
        rounds: Sequence[int],
        outcome: Callable[[int, Ids], NDArray[np.int8]] | None = None,
        available: Callable[[int], Ids] | None = None,
    ) -> list[Cohort]:
        """Whole rounds: probe, choice, reports with these outcomes (default: all accepted). The cohorts, in order."""
        cohorts = []
        for t in rounds:
            there = self.ids if available is None else available(t)
            asked = self.bench(selector, t, there)
            cohort = selector.select(t, there, self.m)
            became = np.full(len(cohort.ids), Outcome.ACCEPTED) if outcome is None else outcome(t, cohort.ids)
            self.land(selector, t, asked, cohort, became.astype(np.int8))
            cohorts.append(cohort)
        return cohorts

    def land(self, selector: Selector[Any], round: int, asked: Ids, cohort: Cohort, became: NDArray[np.int8]) -> None:
        """Tell the selector what became of a cohort; after a rehearsal, first what ``asked`` measures at the rehearsed model."""
        needs, back = selector.rule.needs(), became == Outcome.ACCEPTED
        if cohort.rehearsal and back.any():
            became = np.where(back, Outcome.REHEARSED, became).astype(np.int8)
            if len(asked):
                again = {name: self.signal(name, -round, asked) for name in needs.probed}
                selector.observe(round, Reports(asked, np.full(len(asked), Outcome.PROBED, np.int8), signals=again))
        selector.observe(round, self.reports(sorted(needs.reported), round, cohort.ids, became))


def check_selector(rule: SelectionRule[Any], federation: Federation | None = None) -> None:
    """Play the whole contract against a rule.

    Parameters
    ----------
    rule: the options to check. federation: the clients it meets; the default has 12 of them, 4 a round, for 20 rounds.

    Raises
    ------
    AssertionError: names the point of the contract that is broken. Errors of the rule itself pass through.
    """
    for name, check in CHECKS.items():
        try:
            check(rule, federation or Federation())
        except AssertionError as error:
            raise AssertionError(f"{type(rule).__name__}: {name}: {error}") from error


def assert_same_cohort(one: Cohort, other: Cohort) -> None:
    """Both answers are equal in every field, bit for bit."""
    for f in dataclasses.fields(Cohort):
        a, b = getattr(one, f.name), getattr(other, f.name)
        same = np.array_equal(a, b) if isinstance(a, np.ndarray) else a == b or repr(a) == repr(b)
        _require(same, f"{f.name} differs: {a} and {b}")


def assert_same_state(one: object, other: object, where: str = "state") -> None:
    """Both states are equal bit for bit (NaN equals NaN), through dataclasses, tables, mappings and sequences."""
    _require(type(one) is type(other), f"{where} is a {type(one).__name__} here and a {type(other).__name__} there")
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        _require(np.array_equal(one, other, equal_nan=one.dtype.kind == "f"), f"{where} differs")
    elif dataclasses.is_dataclass(one) and not isinstance(one, type):
        for f in dataclasses.fields(one):
            assert_same_state(getattr(one, f.name), getattr(other, f.name), f"{where}.{f.name}")
    elif isinstance(one, dict) and isinstance(other, dict):
        _require(one.keys() == other.keys(), f"{where} has other keys")
        for key in one:
            assert_same_state(one[key], other[key], f"{where}[{key!r}]")
    elif isinstance(one, tuple | list) and isinstance(other, tuple | list):
        _require(len(one) == len(other), f"{where} has another length")
        for i, (a, b) in enumerate(zip(one, other, strict=True)):
            assert_same_state(a, b, f"{where}[{i}]")
    else:
        _require(one == other or (one != one and other != other), f"{where} differs: {one} and {other}")


def _require(kept: Any, message: str) -> None:
    """An assertion that also holds under ``python -O``."""
    if not kept:
        raise AssertionError(message)


def _sizes(rule: SelectionRule[Any], world: Federation) -> None:
    few = world.ids[:3]
    cases = [(world.ids, m) for m in (0, 1, world.clients - 1, world.clients, world.clients + 5)]
    cases += [(few, world.m), (few[:0], world.m)]
    for t, (available, m) in enumerate(cases, start=1):
        selector = world.selector(rule)
        world.bench(selector, t, available, m)
        cohort = selector.select(t, available, m)
        size = rule.size(t, m, len(available)) if m and len(available) else 0
        got = int(cohort.multiplicity.sum()) if cohort.multiplicity is not None else len(cohort.ids)
        fits = got <= size if rule.takes_fewer else got == size
        _require(fits, f"{got} clients where {size} were announced (m = {m}, {len(available)} available)")
        _require(np.isin(cohort.ids, available).all(), "a client that is not available")
        _require(len(np.unique(cohort.ids)) == len(cohort.ids), "a client twice")


def _columns(rule: SelectionRule[Any], world: Federation) -> None:
    for cohort in world.play(world.selector(rule), range(1, 6)):
        for name in sorted(rule.provides()):
            _require(getattr(cohort, name) is not None, f"it says it gives {name}, and does not")
        for name in ("weights", "multiplicity", "scores", "local_steps", "upload_ratio", "lr_scale"):
            column = getattr(cohort, name)
            _require(column is None or (len(column) == len(cohort.ids) and np.isfinite(column).all()), f"{name} is {column}")
        _require(all(np.isfinite(value) for value in cohort.notes.values()), f"notes are {cohort.notes}")


def _twice(rule: SelectionRule[Any], world: Federation) -> None:
    selector = world.selector(rule)
    world.play(selector, range(1, 4))
    world.bench(selector, 4, world.ids)
    before = selector.to_bytes()
    assert_same_cohort(selector.select(4, world.ids, world.m), selector.select(4, world.ids, world.m))
    _require(np.array_equal(selector.probe(4, world.ids, world.m), selector.probe(4, world.ids, world.m)), "probe differs")
    _require(selector.to_bytes() == before, "probe or select moved the state")


def _order(rule: SelectionRule[Any], world: Federation) -> None:
    forward, backward = world.selector(rule), world.selector(rule)
    for t in range(1, 5):
        asked = world.bench(forward, t, world.ids)
        other = backward.probe(t, world.ids[::-1], world.m)
        _require(np.array_equal(asked, other), "whom it probes depends on the order of the ids")
        if len(other):
            backward.observe(t, world.reports(sorted(rule.needs().probed), t, other[::-1], Outcome.PROBED))
        cohort = forward.select(t, world.ids, world.m)
        assert_same_cohort(cohort, backward.select(t, world.ids[::-1], world.m))
        reports = world.reports(sorted(rule.needs().reported), t, cohort.ids, Outcome.ACCEPTED)
        forward.observe(t, reports)
        backward.observe(t, list(reports.rows())[::-1])
    assert_same_state(forward.state, backward.state)


def _rows(rule: SelectionRule[Any], world: Federation) -> None:
    columns, rows = world.selector(rule), world.selector(rule)
    names = sorted(rule.needs().reported)
    for t in (1, 2):
        world.bench(columns, t, world.ids)
        world.bench(rows, t, world.ids)
        reports = world.reports(names, t, columns.select(t, world.ids, world.m).ids, Outcome.ACCEPTED)
        columns.observe(t, reports)
        rows.observe(t, list(reports.rows()))
    assert_same_state(columns.state, rows.state)


def _unseen(rule: SelectionRule[Any], world: Federation) -> None:
    selector = world.selector(rule)
    world.play(selector, range(1, 4))
    newcomers = world.ids[-1] + 1 + np.arange(5, dtype=np.int64)  # never enrolled
    world.play(selector, range(4, 7), available=lambda t: np.concatenate([world.ids[::2], newcomers]))
    world.enrol(selector, newcomers)
    world.play(selector, range(7, 9), available=lambda t: newcomers)  # everybody else vanished
    world.play(selector, range(9, 11))  # and came back


def _nobody_enrolled(rule: SelectionRule[Any], world: Federation) -> None:
    world.play(Selector(rule, 0, world.horizon), range(1, 4))


def _silent(rule: SelectionRule[Any], world: Federation) -> None:
    for outcome in (Outcome.DROPPED, Outcome.LATE, Outcome.REJECTED):
        told, untold = world.selector(rule), world.selector(rule)
        names = sorted(rule.needs().reported)
        for t in (1, 2, 3):
            for selector in (told, untold):
                world.bench(selector, t, world.ids)
            cohort = told.select(t, world.ids, world.m)
            assert_same_cohort(cohort, untold.select(t, world.ids, world.m))
            told.observe(t, world.reports(names, t, cohort.ids, outcome))
            untold.observe(t, world.reports([], t, cohort.ids, outcome))
        assert_same_state(told.state, untold.state, f"state after signals of {outcome.name.lower()} clients")
        world.play(told, range(4, 6))


def _empty(rule: SelectionRule[Any], world: Federation) -> None:
    selector = world.selector(rule)
    world.play(selector, (1, 2))
    _require(len(selector.probe(3, [], world.m)) == 0, "somebody probed where nobody is available")
    _require(len(selector.select(3, [], world.m).ids) == 0, "somebody chosen where nobody is available")
    selector.observe(3, [])
    selector.observe(4, Reports.empty())
    world.play(selector, (5, 6))


def _non_finite(rule: SelectionRule[Any], world: Federation) -> None:
    selector = world.selector(rule)
    needs = rule.needs()
    for t in range(1, 8):
        poison = (np.nan, np.inf, -np.inf)[t % 3]
        asked = selector.probe(t, world.ids, world.m)
        if len(asked):
            selector.observe(t, _poisoned(world.reports(sorted(needs.probed), t, asked, Outcome.PROBED), poison, t))
        cohort = selector.select(t, world.ids, world.m)
        _is_sound(cohort)
        reports = world.reports(sorted(needs.reported), t, cohort.ids, Outcome.ACCEPTED)
        selector.observe(t, _poisoned(reports, poison, t))
    everything = world.reports(sorted(needs.reported), 8, world.ids, Outcome.ACCEPTED)
    selector.observe(8, _poisoned(everything, np.nan, 8, every=1))
    _is_sound(world.play(selector, (9,))[0])


def _poisoned(reports: Reports, poison: float, round: int, every: int = 2) -> Reports:
    """The reports with every second value of every signal replaced."""
    bad = np.arange(len(reports)) % every == round % every
    signals = {name: np.where(bad.reshape(-1, *[1] * (v.ndim - 1)), poison, v) for name, v in reports.signals.items()}
    return dataclasses.replace(reports, signals=signals)


def _is_sound(cohort: Cohort) -> None:
    for name in ("weights", "scores"):
        column = getattr(cohort, name)
        _require(column is None or np.isfinite(column).all(), f"{name} is {column} after a non-finite signal")


def _bytes(rule: SelectionRule[Any], world: Federation) -> None:
    selector = world.selector(rule)
    world.play(selector, range(1, 5))
    again = Selector.from_bytes(selector.to_bytes(), type(rule))
    _require(again.rule == rule, "other options after a round trip")
    _require((again.seed, again.horizon) == (selector.seed, selector.horizon), "another seed or horizon after a round trip")
    assert_same_state(again.state, selector.state)
    _require(again.to_bytes() == selector.to_bytes(), "other bytes after a round trip")


def _resume(rule: SelectionRule[Any], world: Federation) -> None:
    whole = world.selector(rule)
    expected = world.play(whole, range(1, 9), _mixed)
    for stop in (1, 4, 7):
        selector = world.selector(rule)
        world.play(selector, range(1, stop + 1), _mixed)
        selector = Selector.from_bytes(selector.to_bytes(), type(rule))
        asked = world.bench(selector, stop + 1, world.ids)
        selector = Selector.from_bytes(selector.to_bytes(), type(rule)) if len(asked) else selector  # between probe and choice
        cohort = selector.select(stop + 1, world.ids, world.m)
        assert_same_cohort(cohort, expected[stop])
        world.land(selector, stop + 1, asked, cohort, _mixed(stop + 1, cohort.ids))
        for cohort, other in zip(world.play(selector, range(stop + 2, 9), _mixed), expected[stop + 1 :], strict=True):
            assert_same_cohort(cohort, other)
        assert_same_state(selector.state, whole.state)


def _mixed(round: int, ids: Ids) -> NDArray[np.int8]:
    """Most are accepted, some are late, dropped or rejected."""
    kinds = np.array([Outcome.ACCEPTED] * 4 + [Outcome.LATE, Outcome.DROPPED, Outcome.REJECTED], dtype=np.int8)
    return np.asarray(kinds[(ids + round) % len(kinds)])


def _values(rule: SelectionRule[Any], world: Federation) -> None:
    selector = world.selector(rule)
    world.play(selector, (1,))
    old = selector.state
    kept = Selector.from_bytes(selector.to_bytes(), type(rule)).state
    world.play(selector, range(2, 6))
    assert_same_state(old, kept, "an old state, changed by a later observe")


def _seeds(rule: SelectionRule[Any], world: Federation) -> None:
    def cohorts(seed: int) -> list[list[int]]:
        return [cohort.ids.tolist() for cohort in world.play(world.selector(rule, seed), range(1, world.horizon + 1))]

    first = cohorts(0)
    _require(first == cohorts(0), "the same seed chose others")
    different = any(cohorts(seed) != first for seed in (1, 2, 3))
    if rule.deterministic:
        _require(not different, "declared deterministic, but the seed matters")
    else:
        _require(different, "the seed does not matter, but the rule is not declared deterministic")


def _horizon(rule: SelectionRule[Any], world: Federation) -> None:
    if not rule.needs().horizon:
        return
    try:
        Selector(rule, 0)
    except ConfigError:
        return
    raise AssertionError("needs the horizon, but did not refuse to go without")


def _declared(rule: SelectionRule[Any], world: Federation) -> None:
    params = vars(type(rule)).get("__dataclass_params__")
    _require(params is not None and params.frozen, "a rule is a frozen dataclass of options")
    _require(rule.paper.key, "a rule names its paper")
    state = rule.init()
    _require(dataclasses.is_dataclass(state), "a state is a frozen dataclass")
    _require(type(state) is not ClientTable, "a state is a dataclass of its own: its columns are documented there")


CHECKS: dict[str, Callable[[SelectionRule[Any], Federation], None]] = {
    "options and state are frozen dataclasses": _declared,
    "distinct, available, as many as announced": _sizes,
    "one finite number per chosen client": _columns,
    "select changes nothing": _twice,
    "order of ids and reports is irrelevant": _order,
    "rows and columns of reports are the same": _rows,
    "unseen and vanishing clients": _unseen,
    "nobody enrolled": _nobody_enrolled,
    "signals of silent clients are not used": _silent,
    "empty rounds": _empty,
    "non-finite signals": _non_finite,
    "bytes round trip": _bytes,
    "resume in mid-run": _resume,
    "states are values": _values,
    "seeds matter": _seeds,
    "horizon": _horizon,
}
"""The points of the contract: what is checked, and how."""
