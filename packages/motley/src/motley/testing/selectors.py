"""Contract suite of selection rules: :func:`check_selector` checks everything that a rule must
guarantee.

A small synthetic federation runs rounds with the rule and provides the signals that ``needs()``
names, so a rule of your own is tested by one line:

>>> from motley.selectors.uniform import Uniform
>>> check_selector(Uniform())

Each requirement is one function below, named in :data:`CHECKS`; a failure is an ``AssertionError``
that begins with that name. Populations are small, so the whole suite takes milliseconds per rule.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from motley.core.arrays import Floats, Ids
from motley.core.errors import ConfigError
from motley.core.keys import Key
from motley.core.records import SIGNALS, Cohort, JointUploads, Outcome, Reports
from motley.selectors.selector import SelectionRule, Selector


@dataclass(frozen=True)
class SyntheticFederation:
    """A made-up federation: every number is a function of (seed, signal, round, client), so any
    part can be repeated.

    Parameters
    ----------
    clients: population N; ids are ``0, 3, 6, ...``, so that positions are not ids.
    m: cohort size.
    horizon: planned rounds.
    seed: seed of the federation, not of the selector.
    classes: entries of a label histogram.
    width: entries of any other vector signal.
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
        """Return the values of one signal, ``[n]`` or ``[n, d]``: scalars are positive, counts are
        whole numbers."""
        width = self.classes if name == "label_histogram" else self.width
        ids = np.ascontiguousarray(ids, dtype=np.int64)
        return _signal(self.seed, name, round, ids=ids.tobytes(), width=width).copy()

    def reports(
        self, names: Sequence[str], round: int, ids: Ids, outcome: Outcome | NDArray[np.int8]
    ) -> Reports:
        """Return the reports of these clients with these signals, times, steps and sizes."""
        seconds = _seconds(self.seed, round, np.ascontiguousarray(ids, dtype=np.int64).tobytes())
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
        """Return a selector of the rule with all clients enrolled."""
        selector = Selector(rule, seed, self.horizon)
        self.enrol(selector, self.ids)
        return selector

    def enrol(self, selector: Selector[Any], ids: Ids) -> None:
        """Report these clients' enrolment signals, if the rule needs any."""
        names = sorted(selector.rule.needs().enrolled)
        if names:
            selector.observe(0, self.reports(names, 0, ids, Outcome.ENROLLED))

    def probe(
        self, selector: Selector[Any], round: int, available: Ids, m: int | None = None
    ) -> Ids:
        """Report the signals of the clients that the selector probes; return their ids."""
        probed = selector.probe(round, available, self.m if m is None else m)
        if len(probed):
            selector.observe(
                round,
                self.reports(sorted(selector.rule.needs().probed), round, probed, Outcome.PROBED),
            )
        return probed

    def play(
        self,
        selector: Selector[Any],
        rounds: Sequence[int],
        outcome: Callable[[int, Ids], NDArray[np.int8]] | None = None,
        available: Callable[[int], Ids] | None = None,
    ) -> list[Cohort]:
        """Run whole rounds (probe, choice, reports with these outcomes, by default all accepted);
        return the cohorts in order."""
        cohorts = []
        for t in rounds:
            ids = self.ids if available is None else available(t)
            probed = self.probe(selector, t, ids)
            cohort = selector.select(t, ids, self.m)
            if outcome is None:
                outcomes = np.full(len(cohort.ids), Outcome.ACCEPTED)
            else:
                outcomes = outcome(t, cohort.ids)
            self.finish(
                selector, round=t, probed=probed, cohort=cohort, outcomes=outcomes.astype(np.int8)
            )
            cohorts.append(cohort)
        return cohorts

    def finish(
        self,
        selector: Selector[Any],
        round: int,
        probed: Ids,
        cohort: Cohort,
        outcomes: NDArray[np.int8],
    ) -> None:
        """Report a cohort's outcomes; after a rehearsal first the signals of the ``probed`` at the
        rehearsed model."""
        needs = selector.rule.needs()
        accepted = outcomes == Outcome.ACCEPTED
        if cohort.rehearsal and accepted.any():
            outcomes = np.where(accepted, Outcome.REHEARSED, outcomes).astype(np.int8)
            if len(probed):
                again = {name: self.signal(name, -round, probed) for name in needs.probed}
                selector.observe(
                    round,
                    Reports(probed, np.full(len(probed), Outcome.PROBED, np.int8), signals=again),
                )
        selector.observe(round, self.reports(sorted(needs.reported), round, cohort.ids, outcomes))


# the same rounds are played for each requirement and rule


@lru_cache(maxsize=10_000)
def _signal(seed: int, name: str, round: int, ids: bytes, width: int) -> Floats:
    """Return a signal of the clients of these int64 ids, ``[n]`` or ``[n, width]``."""
    clients = np.frombuffer(ids, np.int64)
    key = Key(seed).fold("signal", name, round)
    if name == "label_histogram":
        return np.floor(50.0 * key.uniform(clients, width))
    if SIGNALS[name].shape != "scalar":
        return key.normal(clients, width)
    if name == "num_examples":
        return 1.0 + np.floor(100.0 * key.uniform(clients)[:, 0])
    return 0.1 + key.exponential(clients)[:, 0]


@lru_cache(maxsize=10_000)
def _seconds(seed: int, round: int, ids: bytes) -> Floats:
    """Return the seconds of download, computation and upload, read-only ``[3, n]``."""
    key = Key(seed).fold("numbers", round)
    seconds = key.exponential(np.frombuffer(ids, np.int64), 3).T
    seconds.flags.writeable = False
    return seconds


class _Strict(SyntheticFederation):
    """The same federation whose clients report only the columns that the rule names."""

    @override
    def selector(self, rule: SelectionRule[Any], seed: int = 0) -> Selector[Any]:
        object.__setattr__(self, "columns", rule.needs().columns)
        return super().selector(rule, seed)

    @override
    def reports(
        self, names: Sequence[str], round: int, ids: Ids, outcome: Outcome | NDArray[np.int8]
    ) -> Reports:
        columns: frozenset[str] = vars(self)["columns"]
        return super().reports(names, round, ids, outcome).keep(columns)


def check_selector(rule: SelectionRule[Any], federation: SyntheticFederation | None = None) -> None:
    """Check the whole contract with one rule.

    Parameters
    ----------
    rule: the rule with the options to check.
    federation: its clients; by default 12 of them, 4 a round, for 20 rounds.

    Raises
    ------
    AssertionError: names the requirement that is violated. Errors of the rule itself pass through.
    """
    for name, check in CHECKS.items():
        try:
            check(rule, federation or SyntheticFederation())
        except AssertionError as error:
            raise AssertionError(f"{type(rule).__name__}: {name}: {error}") from error


def assert_same_cohort(first: Cohort, second: Cohort) -> None:
    """Require that two cohorts are equal in every field, bit for bit."""
    assert_same_state(first, second, "cohort")


def assert_same_state(first: object, second: object, where: str = "state") -> None:
    """Require that two states are equal bit for bit (NaN equals NaN), in dataclasses, tables,
    mappings and sequences."""
    _require(
        type(first) is type(second),
        f"{where} is a {type(first).__name__} here and a {type(second).__name__} there",
    )
    if isinstance(first, np.ndarray) and isinstance(second, np.ndarray):
        _require(
            np.array_equal(first, second, equal_nan=first.dtype.kind == "f"), f"{where} differs"
        )
    elif dataclasses.is_dataclass(first) and not isinstance(first, type):
        for f in dataclasses.fields(first):
            assert_same_state(getattr(first, f.name), getattr(second, f.name), f"{where}.{f.name}")
    elif isinstance(first, dict) and isinstance(second, dict):
        _require(first.keys() == second.keys(), f"{where} has other keys")
        for key in first:
            assert_same_state(first[key], second[key], f"{where}[{key!r}]")
    elif isinstance(first, tuple | list) and isinstance(second, tuple | list):
        _require(len(first) == len(second), f"{where} has another length")
        for i, (a, b) in enumerate(zip(first, second, strict=True)):
            assert_same_state(a, b, f"{where}[{i}]")
    else:
        _require(
            first == second or (first != first and second != second),
            f"{where} differs: {first} and {second}",
        )


def _require(condition: Any, message: str) -> None:
    """Raise AssertionError unless the condition holds, also under ``python -O``."""
    if not condition:
        raise AssertionError(message)


def _sizes(rule: SelectionRule[Any], federation: SyntheticFederation) -> None:
    few = federation.ids[:3]
    cases = [
        (federation.ids, m)
        for m in (0, 1, federation.clients - 1, federation.clients, federation.clients + 5)
    ]
    cases += [(few, federation.m), (few[:0], federation.m)]
    for t, (available, m) in enumerate(cases, start=1):
        selector = federation.selector(rule)
        federation.probe(selector, t, available, m)
        cohort = selector.select(t, available, m)
        size = rule.size(t, m, len(available)) if m and len(available) else 0
        chosen = (
            int(cohort.multiplicity.sum()) if cohort.multiplicity is not None else len(cohort.ids)
        )
        fits = chosen <= size if rule.takes_fewer else chosen == size
        _require(
            fits,
            f"{chosen} clients where {size} were announced (m = {m}, {len(available)} available)",
        )
        _require(np.isin(cohort.ids, available).all(), "a client that is not available")
        _require(len(np.unique(cohort.ids)) == len(cohort.ids), "a client twice")


def _columns(rule: SelectionRule[Any], federation: SyntheticFederation) -> None:
    for cohort in federation.play(federation.selector(rule), range(1, 6)):
        for name in sorted(rule.provides()):
            _require(
                getattr(cohort, name) is not None,
                f"provides() names {name}, but the cohort has none",
            )
        for name, column in cohort.columns().items():
            _require(
                len(column) == len(cohort.ids) and bool(np.isfinite(column).all()),
                f"{name} is {column}",
            )
        _require(
            all(np.isfinite(value) for value in cohort.notes.values()), f"notes are {cohort.notes}"
        )


def _undeclared(rule: SelectionRule[Any], federation: SyntheticFederation) -> None:
    used = rule.needs().columns
    strict = _Strict(**vars(federation))
    strict_cohorts = strict.play(strict.selector(rule), range(1, 8))
    for cohort, strict_cohort in zip(
        federation.play(federation.selector(rule), range(1, 8)), strict_cohorts, strict=True
    ):
        same = np.array_equal(cohort.ids, strict_cohort.ids)
        _require(
            same, f"uses columns of reports that needs() does not name (columns = {sorted(used)})"
        )


def _twice(rule: SelectionRule[Any], federation: SyntheticFederation) -> None:
    selector = federation.selector(rule)
    federation.play(selector, range(1, 4))
    federation.probe(selector, 4, federation.ids)
    before = selector.to_bytes()
    assert_same_cohort(
        selector.select(4, federation.ids, federation.m),
        selector.select(4, federation.ids, federation.m),
    )
    _require(
        np.array_equal(
            selector.probe(4, federation.ids, federation.m),
            selector.probe(4, federation.ids, federation.m),
        ),
        "probe differs",
    )
    _require(selector.to_bytes() == before, "probe or select changed the state")


def _order(rule: SelectionRule[Any], federation: SyntheticFederation) -> None:
    forward = federation.selector(rule)
    backward = federation.selector(rule)
    for t in range(1, 5):
        probed = federation.probe(forward, t, federation.ids)
        reversed_probed = backward.probe(t, federation.ids[::-1], federation.m)
        _require(
            np.array_equal(probed, reversed_probed),
            "the probed clients depend on the order of the ids",
        )
        if len(reversed_probed):
            backward.observe(
                t,
                federation.reports(
                    sorted(rule.needs().probed), t, reversed_probed[::-1], Outcome.PROBED
                ),
            )
        cohort = forward.select(t, federation.ids, federation.m)
        assert_same_cohort(cohort, backward.select(t, federation.ids[::-1], federation.m))
        reports = federation.reports(sorted(rule.needs().reported), t, cohort.ids, Outcome.ACCEPTED)
        forward.observe(t, reports)
        backward.observe(t, list(reports.rows())[::-1])
    assert_same_state(forward.state, backward.state)


def _rows(rule: SelectionRule[Any], federation: SyntheticFederation) -> None:
    columns = federation.selector(rule)
    rows = federation.selector(rule)
    names = sorted(rule.needs().reported)
    for t in (1, 2):
        federation.probe(columns, t, federation.ids)
        federation.probe(rows, t, federation.ids)
        reports = federation.reports(
            names, t, columns.select(t, federation.ids, federation.m).ids, Outcome.ACCEPTED
        )
        columns.observe(t, reports)
        rows.observe(t, list(reports.rows()))
    assert_same_state(columns.state, rows.state)


def _unseen(rule: SelectionRule[Any], federation: SyntheticFederation) -> None:
    selector = federation.selector(rule)
    federation.play(selector, range(1, 4))
    newcomers = federation.ids[-1] + 1 + np.arange(5, dtype=np.int64)  # never enrolled
    federation.play(
        selector, range(4, 7), available=lambda t: np.concatenate([federation.ids[::2], newcomers])
    )
    federation.enrol(selector, newcomers)
    federation.play(selector, range(7, 9), available=lambda t: newcomers)  # all others are away
    federation.play(selector, range(9, 11))  # and available again


def _nobody_enrolled(rule: SelectionRule[Any], federation: SyntheticFederation) -> None:
    federation.play(Selector(rule, 0, federation.horizon), range(1, 4))


def _unusable(rule: SelectionRule[Any], federation: SyntheticFederation) -> None:
    for outcome in (Outcome.DROPPED, Outcome.LATE, Outcome.REJECTED):
        full = federation.selector(rule)
        bare = federation.selector(rule)
        names = sorted(rule.needs().reported)
        for t in (1, 2, 3):
            for selector in (full, bare):
                federation.probe(selector, t, federation.ids)
            cohort = full.select(t, federation.ids, federation.m)
            assert_same_cohort(cohort, bare.select(t, federation.ids, federation.m))
            full.observe(t, federation.reports(names, t, cohort.ids, outcome))
            bare.observe(t, federation.reports([], t, cohort.ids, outcome))
        assert_same_state(
            full.state, bare.state, f"state after signals of {outcome.name.lower()} clients"
        )
        federation.play(full, range(4, 6))


def _empty(rule: SelectionRule[Any], federation: SyntheticFederation) -> None:
    selector = federation.selector(rule)
    federation.play(selector, (1, 2))
    _require(
        len(selector.probe(3, [], federation.m)) == 0, "a client is probed though none is available"
    )
    _require(
        len(selector.select(3, [], federation.m).ids) == 0,
        "a client is chosen though none is available",
    )
    selector.observe(3, [])
    selector.observe(4, Reports.empty())
    federation.play(selector, (5, 6))


def _non_finite(rule: SelectionRule[Any], federation: SyntheticFederation) -> None:
    selector = federation.selector(rule)
    needs = rule.needs()
    for t in range(1, 8):
        poison = (np.nan, np.inf, -np.inf)[t % 3]
        probed = selector.probe(t, federation.ids, federation.m)
        if len(probed):
            selector.observe(
                t,
                _poisoned(
                    federation.reports(sorted(needs.probed), t, probed, Outcome.PROBED), poison, t
                ),
            )
        cohort = selector.select(t, federation.ids, federation.m)
        _require_finite(cohort)
        reports = federation.reports(sorted(needs.reported), t, cohort.ids, Outcome.ACCEPTED)
        selector.observe(t, _poisoned(reports, poison, t))
    everything = federation.reports(sorted(needs.reported), 8, federation.ids, Outcome.ACCEPTED)
    selector.observe(8, _poisoned(everything, np.nan, 8, every=1))
    _require_finite(federation.play(selector, (9,))[0])


def _poisoned(reports: Reports, poison: float, round: int, every: int = 2) -> Reports:
    """Return the reports with every second value of every signal replaced."""
    bad = np.arange(len(reports)) % every == round % every
    signals = {
        name: np.where(bad.reshape(-1, *[1] * (v.ndim - 1)), poison, v)
        for name, v in reports.signals.items()
    }
    return dataclasses.replace(reports, signals=signals)


def _require_finite(cohort: Cohort) -> None:
    for name in ("weights", "scores"):
        column = getattr(cohort, name)
        _require(
            column is None or np.isfinite(column).all(),
            f"{name} is {column} after a non-finite signal",
        )


def _bytes(rule: SelectionRule[Any], federation: SyntheticFederation) -> None:
    selector = federation.selector(rule)
    federation.play(selector, range(1, 5))
    again = Selector.from_bytes(selector.to_bytes(), type(rule))
    _require(again.rule == rule, "other options after a round trip")
    _require(
        (again.seed, again.horizon) == (selector.seed, selector.horizon),
        "another seed or horizon after a round trip",
    )
    assert_same_state(again.state, selector.state)
    _require(again.to_bytes() == selector.to_bytes(), "other bytes after a round trip")


def _resume(rule: SelectionRule[Any], federation: SyntheticFederation) -> None:
    uninterrupted = federation.selector(rule)
    expected = []
    stops = {}
    for t in range(1, 9):
        expected += federation.play(uninterrupted, (t,), _mixed)
        if t in (1, 4, 7):
            stops[t] = uninterrupted.to_bytes()
    for stop, stood in stops.items():
        selector = Selector.from_bytes(stood, type(rule))
        probed = federation.probe(selector, stop + 1, federation.ids)
        # between probe and choice
        selector = Selector.from_bytes(selector.to_bytes(), type(rule)) if len(probed) else selector
        cohort = selector.select(stop + 1, federation.ids, federation.m)
        assert_same_cohort(cohort, expected[stop])
        federation.finish(
            selector,
            round=stop + 1,
            probed=probed,
            cohort=cohort,
            outcomes=_mixed(stop + 1, cohort.ids),
        )
        for cohort, expected_cohort in zip(
            federation.play(selector, range(stop + 2, 9), _mixed), expected[stop + 1 :], strict=True
        ):
            assert_same_cohort(cohort, expected_cohort)
        assert_same_state(selector.state, uninterrupted.state)


def _mixed(round: int, ids: Ids) -> NDArray[np.int8]:
    """Return outcomes: most clients are accepted, some are late, dropped or rejected."""
    kinds = np.array(
        [Outcome.ACCEPTED] * 4 + [Outcome.LATE, Outcome.DROPPED, Outcome.REJECTED], dtype=np.int8
    )
    return np.asarray(kinds[(ids + round) % len(kinds)])


def _values(rule: SelectionRule[Any], federation: SyntheticFederation) -> None:
    selector = federation.selector(rule)
    federation.play(selector, (1,))
    old = selector.state
    copy = Selector.from_bytes(selector.to_bytes(), type(rule)).state
    federation.play(selector, range(2, 6))
    assert_same_state(old, copy, "an old state, changed by a later observe")


def _seeds(rule: SelectionRule[Any], federation: SyntheticFederation) -> None:
    rounds = range(1, federation.horizon + 1)

    def cohorts(seed: int) -> Iterator[list[int]]:
        selector = federation.selector(rule, seed)
        return (federation.play(selector, [t])[0].ids.tolist() for t in rounds)

    first = list(cohorts(0))
    _require(first == list(cohorts(0)), "the same seed gives other cohorts")
    different = any(
        ids != other_ids
        for seed in (1, 2, 3)
        for ids, other_ids in zip(first, cohorts(seed), strict=True)
    )
    if rule.deterministic:
        _require(not different, "declared deterministic, but the seed matters")
    else:
        _require(different, "the seed does not matter, but the rule is not declared deterministic")


def _horizon(rule: SelectionRule[Any], federation: SyntheticFederation) -> None:
    if not rule.needs().horizon:
        return
    try:
        Selector(rule, 0)
    except ConfigError:
        return
    raise AssertionError("needs the horizon, but a selector without one is accepted")


def _contributions(rule: SelectionRule[Any], federation: SyntheticFederation) -> None:
    if not rule.asks_contributions:
        return
    size = federation.signal("num_examples", 0, federation.ids)

    def values(count: int) -> Floats:
        """Return what the rule makes of the uploads of so many clients, of which larger ones help
        more."""
        rng = Key(federation.seed).fold("contributions").numpy()
        uploads = JointUploads(
            federation.ids[:count],
            lambda members: float(np.exp(-size[list(members)].sum() / 100)),
            rng,
        )
        return np.asarray(rule.contributions(uploads))

    for count in (1, federation.m):
        first = values(count)
        _require(
            first.shape == (count,) and bool(np.isfinite(first).all()),
            f"{count} uploads have the contributions {first}",
        )
        _require(np.array_equal(first, values(count)), "the same uploads give other numbers")


def _declared(rule: SelectionRule[Any], federation: SyntheticFederation) -> None:
    params = vars(type(rule)).get("__dataclass_params__")
    _require(params is not None and params.frozen, "a rule is a frozen dataclass of options")
    _require(rule.paper.key, "a rule names its paper")
    _require(
        dataclasses.is_dataclass(rule.init()), "a state is a ClientTable or a frozen dataclass"
    )


CHECKS: dict[str, Callable[[SelectionRule[Any], SyntheticFederation], None]] = {
    "options and state are frozen dataclasses": _declared,
    "distinct, available, as many as announced": _sizes,
    "one finite number per chosen client": _columns,
    "select changes nothing": _twice,
    "order of ids and reports is irrelevant": _order,
    "rows and columns of reports are the same": _rows,
    "unseen and vanishing clients": _unseen,
    "nobody enrolled": _nobody_enrolled,
    "signals of clients without an accepted update are not used": _unusable,
    "empty rounds": _empty,
    "non-finite signals": _non_finite,
    "bytes round trip": _bytes,
    "resume in mid-run": _resume,
    "states are values": _values,
    "seeds matter": _seeds,
    "horizon": _horizon,
    "columns that needs() does not name are not used": _undeclared,
    "contributions are a function of the uploads": _contributions,
}
"""The requirements of the contract: name -> check."""
