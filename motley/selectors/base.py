"""The two halves of every selector: :class:`SelectionRule`, pure, for authors; :class:`Selector`, the one shell users hold.

A rule is a frozen dataclass of options and a handful of functions of (options, state, ask). ``select`` changes nothing;
only ``observe`` moves state. The shell keeps the state, makes the generators, and enforces once what would otherwise be
repeated in every rule:

* ids arrive in any order and reach the rule sorted; a duplicate is refused;
* a non-finite signal never reaches a rule: it becomes NaN, which means absent (selectors-baselines 0.3.2);
* the signals of a late, dropped or rejected client never reach a rule (0.3.7);
* a cohort that breaks the contract is refused with :class:`~motley.core.errors.ContractError`.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import ClassVar, Generic, Literal, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from motley.core import codec
from motley.core.arrays import Ids
from motley.core.errors import CodecError, ConfigError, ContractError
from motley.core.keys import Key
from motley.core.paper import Paper
from motley.core.records import Cohort, Outcome, Report, Reports, SelectionContext, SignalRequirements
from motley.core.table import ClientTable
from motley.selectors.catalogue import CATALOGUE

__all__ = ["SelectionRule", "Selector"]

S = TypeVar("S")
_SILENT = (Outcome.LATE, Outcome.DROPPED, Outcome.REJECTED)


def _rising(ids: Ids) -> bool:
    return bool((ids[1:] > ids[:-1]).all())


class SelectionRule(ABC, Generic[S]):
    """Whom to ask. Subclasses are frozen dataclasses of options; variants of one paper are a ``Literal`` option.

    ``upload_visibility`` says whether the rule needs something of each single upload (``"each"``) or nothing that secure aggregation
    would forbid (``"sum"``). ``deterministic`` declares that seeds do not matter, ``takes_fewer`` that a cohort may be smaller
    than ``size`` announces, down to nobody: an abandoned round.
    """

    paper: ClassVar[Paper]
    upload_visibility: ClassVar[Literal["sum", "each"]] = "sum"
    deterministic: ClassVar[bool] = False
    takes_fewer: ClassVar[bool] = False

    def needs(self) -> SignalRequirements:
        """What must be measured and sent; follows the options."""
        return SignalRequirements()

    def provides(self) -> frozenset[str]:
        """Which columns of :class:`~motley.core.records.Cohort` a weighting (``"weights"``, ``"scores"``) and an allocator
        (``"scores"``, ``"upload_ratio"``) may count on."""
        return frozenset()

    @abstractmethod
    def init(self) -> S:
        """The state before anything was observed: a frozen dataclass of numbers, arrays and ClientTables."""

    def size(self, round: int, m: int, available: int) -> int:
        """How many clients this rule takes; FLASH's first round is everybody."""
        return min(m, available)

    def candidates(self, state: S, context: SelectionContext) -> Ids:
        """Whom to measure before the choice; default nobody."""
        return np.zeros(0, np.int64)

    @abstractmethod
    def select(self, state: S, context: SelectionContext) -> Cohort:
        """The cohort: a function of the arguments alone. ``ask.m`` is already ``size(...)``."""

    def observe(self, state: S, round: int, reports: Reports) -> S:
        """The next state. Called once after a probe (outcome ``PROBED``), once for enrolments (``ENROLLED``, round 0), and
        exactly once per round after the server step, also without reports. In a round whose cohort was a rehearsal, a second
        time with outcome ``PROBED`` before the last call (see :class:`~motley.core.records.Cohort`)."""
        return state


class Selector(Generic[S]):
    """A rule, its state and a seed: what users hold, in a simulation, on its own, or in a deployment.

    Parameters
    ----------
    rule: the options.
    seed: any integer; same seed, same choices.
    horizon: planned rounds; rules that anneal towards the end refuse None.

    Raises
    ------
    ConfigError: the rule needs the horizon and none was given.

    Example
    -------
    >>> from motley.selectors.uniform import Uniform
    >>> selector = Selector(Uniform(), seed=0)
    >>> cohort = selector.select(1, [4, 8, 15, 16, 23, 42], m=2)
    >>> len(cohort.ids), set(cohort.ids.tolist()) <= {4, 8, 15, 16, 23, 42}
    (2, True)
    """

    def __init__(self, rule: SelectionRule[S], seed: int = 0, horizon: int | None = None) -> None:
        if rule.needs().horizon and horizon is None:
            raise ConfigError(
                f"{type(rule).__name__} anneals towards the last round and must know it; "
                "pass horizon=..., or set stop = { rounds = ... }",
                key="stop.rounds",
            )
        self.rule = rule
        self.seed = seed
        self.horizon = horizon
        self.state: S = rule.init()

    def _ask(self, purpose: str, round: int, available_ids: ArrayLike, m: int, dispatch: int) -> SelectionContext:
        ids = np.atleast_1d(np.asarray(available_ids, dtype=np.int64))
        ids = ids if _rising(ids) else np.sort(ids)
        if not _rising(ids):
            raise ContractError("the same client is available twice")
        if m < 0:
            raise ConfigError(f"got m = {m}; expected a cohort size of at least 0", key="cohort")
        rng = Key(self.seed).fold(purpose, round, dispatch).numpy()
        return SelectionContext(round, dispatch, ids, self.rule.size(round, m, len(ids)), rng, self.horizon)

    def probe(self, round: int, available_ids: ArrayLike, m: int, dispatch: int = 0) -> Ids:
        """Ids to measure before :meth:`select` (sorted); report what was measured to :meth:`observe` as ``PROBED``."""
        context = self._ask("probe", round, available_ids, m, dispatch)
        if not len(context.available) or not context.m:
            return np.zeros(0, np.int64)
        ids = self.rule.candidates(self.state, context)
        ids = ids if _rising(ids) else np.sort(ids)
        self._check_within(ids, context)
        return ids

    def select(self, round: int, available_ids: ArrayLike, m: int, dispatch: int = 0) -> Cohort:
        """The cohort of this round; calling it twice gives the same answer twice."""
        context = self._ask("select", round, available_ids, m, dispatch)
        if not len(context.available) or not context.m:
            return Cohort(np.zeros(0, np.int64))
        cohort = self.rule.select(self.state, context)
        self._check_within(cohort.ids, context)
        if len(cohort.ids) > context.m:
            raise ContractError(f"{type(self.rule).__name__} announced {context.m} clients and chose {len(cohort.ids)}")
        for name in ("weights", "multiplicity", "scores", "local_steps", "upload_ratio", "lr_scale"):
            column = getattr(cohort, name)
            if column is not None and len(column) != len(cohort.ids):
                raise ContractError(f"{type(self.rule).__name__}: {name} has {len(column)} entries for {len(cohort.ids)} ids")
        law, there = cohort.probabilities, len(context.available)
        if law is not None and len(law) != there:
            raise ContractError(f"{type(self.rule).__name__}: probabilities has {len(law)} entries for {there} available")
        return cohort

    def observe(self, round: int, reports: Reports | Iterable[Report]) -> None:
        """Take in what was learned; order of the reports does not matter."""
        if not isinstance(reports, Reports):
            reports = Reports.from_rows(reports)
        if not _rising(reports.ids):
            reports = reports[np.argsort(reports.ids)]
        silent = np.isin(reports.outcome, [int(o) for o in _SILENT])
        clean = {}
        for name, value in reports.signals.items():
            if len(value) and not value.strides[0] and not silent.any() and np.isfinite(value[0]).all():
                clean[name] = value  # one row repeated: it stays so
                continue
            bad = ~np.isfinite(value)
            bad[silent] = True
            clean[name] = np.where(bad, np.nan, value) if bad.any() else value
        self.state = self.rule.observe(self.state, round, dataclasses.replace(reports, signals=clean))

    def _check_within(self, ids: Ids, context: SelectionContext) -> None:
        if ids is context.available:
            return
        name = type(self.rule).__name__
        if not _rising(ids) and not _rising(np.sort(ids)):
            raise ContractError(f"{name} chose a client twice")
        at = np.minimum(np.searchsorted(context.available, ids), len(context.available) - 1)
        if not (context.available[at] == ids).all():
            raise ContractError(f"{name} chose a client that is not available")

    def to_bytes(self) -> bytes:
        """Options, state, seed and horizon; no pickle, readable by the next version or refused by name."""
        options = {f.name: getattr(self.rule, f.name) for f in dataclasses.fields(self.rule)}  # type: ignore[arg-type]
        saved = {"rule": type(self.rule).__qualname__, "options": options, "state": codec.encode(self.state)}
        return codec.encode({**saved, "seed": self.seed, "horizon": self.horizon})

    @classmethod
    def from_bytes(cls, data: bytes, rule: type[SelectionRule[S]] | None = None) -> Selector[S]:
        """The selector again. A rule of your own is named by its class; ours are found by name.

        Raises
        ------
        CodecError: truncated or foreign bytes, a rule that is not known here, or one with other options than here.
        """
        saved = codec.decode(data)
        if not isinstance(saved, dict) or set(saved) != {"rule", "options", "state", "seed", "horizon"}:
            raise CodecError("these bytes are not of a selector")
        names = {target.partition(":")[2]: name for name, target in CATALOGUE.targets.items()}
        kind = rule or (CATALOGUE.get(names[saved["rule"]]) if saved["rule"] in names else None)
        if kind is None or kind.__qualname__ != saved["rule"]:
            raise CodecError(f"these bytes hold the rule {saved['rule']!r}, which is not known here; pass rule=YourRule")
        known = {f.name for f in dataclasses.fields(kind)}
        if set(saved["options"]) != known:
            raise CodecError(
                f"{kind.__name__} was written with options {sorted(saved['options'])}, it has {sorted(known)} here"
            )
        selector: Selector[S] = cls(kind(**saved["options"]), saved["seed"], saved["horizon"])
        selector.state = codec.decode(saved["state"], ClientTable, type(selector.state))
        return selector
