"""The two parts of every selector: the rule that authors write, :class:`SelectionRule`, and its
user's handle, :class:`Selector`.

A rule is a frozen dataclass of options with a few pure functions of (options, state, context).
``select`` changes nothing; only ``observe`` returns a new state. The :class:`Selector` keeps the
state, makes the random generators, and checks once what every rule would otherwise have to check:

* ids may come in any order and reach the rule sorted; a repeated id is refused;
* a non-finite signal reaches the rule as NaN, which means absent
  (docs/methods/selectors.md#non-finite);
* the signals of a late, dropped or rejected client never reach the rule
  (docs/methods/selectors.md#dropouts);
* with a :class:`~motley.selectors.defence.Defence`, implausible numbers are cut, and clients that
  were asked too often are held back;
* a cohort that breaks the contract is refused with :class:`~motley.core.errors.ContractError`.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from numbers import Integral
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from motley.core import codec
from motley.core.arrays import Floats, Ids
from motley.core.components import declares, overrides
from motley.core.errors import CodecError, ConfigError, ContractError
from motley.core.keys import Key
from motley.core.paper import Paper
from motley.core.records import (
    CONTRIBUTION,
    SIGNALS,
    Cohort,
    Draw,
    JointUploads,
    Outcome,
    Report,
    Reports,
    SelectionContext,
    SignalRequirements,
)
from motley.core.table import ClientTable
from motley.core.untrusted import printable, shortened
from motley.selectors.catalogue import CATALOGUE
from motley.selectors.defence import Defence

S = TypeVar("S")
_UNUSABLE = (Outcome.LATE, Outcome.DROPPED, Outcome.REJECTED)
_IS_UNUSABLE = np.array([outcome in _UNUSABLE for outcome in Outcome])  # by its number


def _has_default(field: dataclasses.Field[Any]) -> bool:
    missing = dataclasses.MISSING
    return field.default is not missing or field.default_factory is not missing


def _ascending(ids: Ids) -> bool:
    return bool((ids[1:] > ids[:-1]).all())


def _spread(p: Floats, offered: Ids, available_ids: ArrayLike) -> Floats:
    """Return the probabilities of all available clients, 0 for those that the defence did not
    offer."""
    available = np.sort(np.atleast_1d(np.asarray(available_ids, dtype=np.int64)))
    out = np.zeros(len(available))
    out[np.searchsorted(available, offered)] = p
    return out


class SelectionRule(ABC, Generic[S]):
    """A client-selection method: a frozen dataclass of options whose methods are pure functions of
    state and context.

    To write a rule, subclass it with a dataclass of options, name its ``paper``, and implement
    ``init`` and ``select``; override the other methods where the rule needs them. The state S is a
    :class:`~motley.core.table.ClientTable`, or a frozen dataclass where there is more to remember
    than columns about clients. Variants of one paper are a ``Literal`` option. In each round a rule
    is called in this order: ``size``, ``candidates`` (clients to probe), ``observe`` (probe
    results), ``select``, ``observe`` (the cohort's reports).

    Class attributes
    ----------------
    paper: the publication that defines the rule.
    deterministic: whether the seed has no influence on the cohorts.
    takes_fewer: whether a cohort may be smaller than ``size`` announces, even empty: an abandoned
    round.
    """

    paper: ClassVar[Paper]
    deterministic: ClassVar[bool] = False
    takes_fewer: ClassVar[bool] = False

    @property
    def single_signals(self) -> tuple[str, ...]:
        """The signals it needs that are made of one client's gradient or update, sorted: secure
        aggregation, which reveals only sums of uploads, shows none of them."""
        needs = self.needs()
        wanted = SIGNALS.keys() & {*needs.probed, *needs.reported}
        return tuple(sorted(name for name in wanted if SIGNALS[name].single))

    @property
    def asks_contributions(self) -> bool:
        """Whether it compares the uploads of a server step with each other
        (:meth:`contributions`)."""
        return CONTRIBUTION in self.needs().reported

    def needs(self) -> SignalRequirements:
        """Return the signals that clients must measure and send, given the options; by default
        none."""
        return SignalRequirements()

    def provides(self) -> frozenset[str]:
        """Return which columns of :class:`~motley.core.records.Cohort` the rule always fills.

        A client weighting may rely on ``"weights"`` or ``"scores"``, an upload allocator on
        ``"scores"`` or ``"upload_ratio"``.
        """
        return frozenset()

    def draw(self, m: int, population: int) -> Draw | None:
        """Return how the rule draws m of all clients, if no report and no size of a client enters;
        None if one does."""
        return None

    def known_draw(self, m: int, population: int) -> Draw | None:
        """Return :meth:`draw`; None where a subclass chooses otherwise and does not say how."""
        declared = declares(self, "draw", "select", "candidates", "size", "needs")
        return self.draw(m, population) if declared else None

    def known_top_m(self) -> str | None:
        """Return :meth:`top_m`; None where a subclass chooses otherwise and does not say how."""
        return self.top_m() if declares(self, "top_m", "select", "candidates", "needs") else None

    def top_m(self) -> str | None:
        """Return the probed signal whose m largest values among the candidates are the cohort, each
        value used in no other choice; None if the rule chooses otherwise. Gumbel noise is defined
        for such rules alone (docs/privacy-details.md#signals)."""
        return None

    def private_with(self) -> str:
        """Return the options that would spare the rule numbers which the server makes of clear
        uploads; empty if none would."""
        return ""

    @abstractmethod
    def init(self) -> S:
        """Return the state before any observation: a ClientTable, or a frozen dataclass of numbers,
        arrays and ClientTables."""

    def size(self, draw: int, m: int, available: int) -> int:
        """Return how many clients ``select`` will take when m are wanted, at most ``available``; by
        default ``min(m, available)``."""
        return min(m, available)

    def candidates(self, state: S, context: SelectionContext) -> Ids:
        """Return the ids of the clients to probe before the choice; by default none."""
        return np.zeros(0, np.int64)

    @abstractmethod
    def select(self, state: S, context: SelectionContext) -> Cohort:
        """Return the cohort, a function of the arguments alone; ``context.m`` is already
        ``size(...)``."""

    def contributions(self, uploads: JointUploads) -> Floats:
        """Return the signal ``contribution`` of each upload of a server step, ``[n]``, made of all
        of them together; NaN: it has none. Called in each step with an accepted upload where
        ``needs().reported`` names that signal; the number reaches :meth:`observe` with the
        reports."""
        raise ContractError(
            f"{type(self).__name__} asks the signal {CONTRIBUTION!r} and does not say what it is; "
            "write contributions"
        )

    def observe(self, state: S, draw: int, reports: Reports) -> S:
        """Return the next state, given new reports; by default the state does not change.

        Called after enrolments (outcome ``ENROLLED``, round 0), after a probe (``PROBED``), and
        exactly once per round after the server step, also without reports. After a rehearsal it is
        called a second time with ``PROBED`` before that last call (see
        :class:`~motley.core.records.Cohort`). ``draw`` is that of
        :class:`~motley.core.records.SelectionContext`: it counts draws, and under ``buffered`` and
        ``asynchronous`` not server steps.
        """
        return state


class Selector(Generic[S]):
    """A selection rule with its state and seed: the object users hold in a simulation, on its own,
    or in a deployment.

    Once per round call :meth:`probe` and report the measurements of the clients it returns to
    :meth:`observe`; call :meth:`select` for the cohort; report what the cohort sent back to
    :meth:`observe`, also if nothing came back.

    Parameters
    ----------
    rule: the selection method and its options.
    seed: any integer; the same seed and reports give the same cohorts.
    horizon: planned number of rounds; required by rules that anneal towards the last round.
    defence: how far clients are believed; None: in everything that is finite.

    Attributes
    ----------
    asks_candidates: whether the rule may name clients to probe.
    state: of the rule.
    memory: of the defence, empty without one.

    Raises
    ------
    ConfigError: the rule needs the horizon and none was given; seed or horizon is no whole number.

    Example
    -------
    >>> from motley.selectors.uniform import Uniform
    >>> selector = Selector(Uniform(), seed=0)
    >>> cohort = selector.select(1, [4, 8, 15, 16, 23, 42], m=2)
    >>> len(cohort.ids), set(cohort.ids.tolist()) <= {4, 8, 15, 16, 23, 42}
    (2, True)
    """

    def __init__(
        self,
        rule: SelectionRule[S],
        seed: int = 0,
        horizon: int | None = None,
        defence: Defence | None = None,
    ) -> None:
        needs = rule.needs()
        if needs.horizon and horizon is None:
            raise ConfigError(
                f"{type(rule).__name__} anneals towards the last round and must know it; "
                "pass horizon=..., or set stop = { rounds = ... }",
                key="stop.rounds",
            )
        for name, value in (("seed", seed), ("horizon", 1 if horizon is None else horizon)):
            if isinstance(value, bool) or not isinstance(value, Integral):
                raise ConfigError(f"got {value!r}; expected a whole number", key=name)
        self.rule = rule
        self.seed = int(seed)
        self.horizon = horizon
        self.defence = defence
        self.asks_candidates = overrides(rule, SelectionRule, "candidates")
        # a rule that does not ask for it does not depend on it
        self._told_horizon = horizon if needs.horizon else None
        self.state: S = rule.init()
        self.memory = ClientTable({}) if defence is None else defence.init()

    def _context(
        self,
        purpose: str,
        draw: int,
        available_ids: ArrayLike,
        m: int,
        dispatch: int,
        step: int | None,
    ) -> SelectionContext:
        ids = np.atleast_1d(np.asarray(available_ids, dtype=np.int64))
        ids = ids if _ascending(ids) else np.sort(ids)
        if not _ascending(ids):
            raise ContractError("the same client is available twice")
        if m < 0:
            raise ConfigError(f"got m = {m}; expected a cohort size of at least 0", key="cohort")
        if self.defence is not None:
            ids = self.defence.offered(self.memory, ids, m)
        rng = Key(self.seed).fold(purpose, draw, dispatch).numpy()
        size = self.rule.size(draw, m, len(ids))
        now = draw if step is None else step
        return SelectionContext(
            draw=draw,
            dispatch=dispatch,
            available=ids,
            m=size,
            rng=rng,
            step=now,
            horizon=self._told_horizon,
        )

    def probe(
        self,
        draw: int,
        available_ids: ArrayLike,
        m: int,
        dispatch: int = 0,
        step: int | None = None,
    ) -> Ids:
        """Return the ids of the clients to probe before :meth:`select`, sorted; report their
        signals as ``PROBED``. Arguments as of :meth:`select`."""
        context = self._context("probe", draw, available_ids, m, dispatch=dispatch, step=step)
        if not len(context.available) or not context.m:
            return np.zeros(0, np.int64)
        ids = self.rule.candidates(self.state, context)
        ids = ids if _ascending(ids) else np.sort(ids)
        self._check_within(ids, context)
        return ids

    def select(
        self,
        draw: int,
        available_ids: ArrayLike,
        m: int,
        dispatch: int = 0,
        step: int | None = None,
    ) -> Cohort:
        """Return the cohort of this round, and of this dispatch where there are several; a second
        call returns the same.

        A server that replaces clients one by one numbers its calls: ``draw`` is then not its
        number of steps, and it gives the number of the ``step`` that comes next beside it, towards
        which rules anneal (None: the round)."""
        context = self._context("select", draw, available_ids, m, dispatch=dispatch, step=step)
        if not len(context.available) or not context.m:
            return Cohort(np.zeros(0, np.int64))
        cohort = self.rule.select(self.state, context)
        self._check_within(cohort.ids, context)
        if len(cohort.ids) > context.m:
            raise ContractError(
                f"{type(self.rule).__name__} announced {context.m} clients and chose "
                f"{len(cohort.ids)}"
            )
        for name, column in cohort.columns().items():
            if len(column) != len(cohort.ids):
                raise ContractError(
                    f"{type(self.rule).__name__}: {name} has {len(column)} entries for "
                    f"{len(cohort.ids)} ids"
                )
        p = cohort.probabilities
        available = len(context.available)
        if p is not None and len(p) != available:
            raise ContractError(
                f"{type(self.rule).__name__}: probabilities has {len(p)} entries for {available} "
                "available"
            )
        if p is None or self.defence is None:
            return cohort
        return dataclasses.replace(
            cohort, probabilities=_spread(p, context.available, available_ids)
        )

    def observe(self, draw: int, reports: Reports | Iterable[Report]) -> None:
        """Update the state from reports, in any order."""
        if not isinstance(reports, Reports):
            reports = Reports.from_rows(reports)
        if not _ascending(reports.ids):
            reports = reports[np.argsort(reports.ids)]
        unusable = _IS_UNUSABLE[reports.outcome]
        clean = {}
        for name, value in reports.signals.items():
            if (
                len(value)
                and not value.strides[0]
                and not unusable.any()
                and np.isfinite(value[0]).all()
            ):
                clean[name] = value  # one row repeated: no copy is made
                continue
            bad = ~np.isfinite(value)
            bad[unusable] = True
            clean[name] = np.where(bad, np.nan, value) if bad.any() else value
        reports = dataclasses.replace(reports, signals=clean)
        if self.defence is not None:
            self.memory, reports = self.defence.believed(self.memory, reports)
        self.state = self.rule.observe(self.state, draw, reports)

    def _check_within(self, ids: Ids, context: SelectionContext) -> None:
        if ids is context.available:
            return
        name = type(self.rule).__name__
        if not _ascending(ids) and not _ascending(np.sort(ids)):
            raise ContractError(f"{name} chose a client twice")
        at = np.minimum(np.searchsorted(context.available, ids), len(context.available) - 1)
        if not (context.available[at] == ids).all():
            raise ContractError(f"{name} chose a client that is not available")

    def save(self) -> dict[str, bytes]:
        """Return what evolves: the state of the rule and the memory of the defence."""
        return {"state": codec.encode(self.state), "memory": codec.encode(self.memory)}

    def restore(self, saved: Mapping[str, bytes]) -> None:
        """Take over what :meth:`save` returned.

        Raises
        ------
        CodecError: the state of a rule of another kind.
        """
        self.memory = codec.decode(saved["memory"], ClientTable)
        self.state = codec.decode(saved["state"], ClientTable, type(self.state))

    def to_bytes(self) -> bytes:
        """Return options, state, seed, horizon and defence as bytes, without pickle."""
        options = {f.name: getattr(self.rule, f.name) for f in dataclasses.fields(self.rule)}  # type: ignore[arg-type]
        saved: dict[str, object] = {
            "rule": type(self.rule).__qualname__,
            "options": options,
            "state": self.save()["state"],
            "seed": self.seed,
            "horizon": self.horizon,
        }
        if self.defence is not None:
            saved |= {
                "defence": dataclasses.asdict(self.defence),
                "memory": self.save()["memory"],
            }
        return codec.encode(saved)

    @classmethod
    def from_bytes(cls, data: bytes, rule: type[SelectionRule[S]] | None = None) -> Selector[S]:
        """Return the selector that :meth:`to_bytes` stored; pass ``rule`` for a rule that is not in
        the catalogue.

        Raises
        ------
        CodecError: truncated or foreign bytes, a rule that is not known here, or one whose options
        differ here.
        """
        try:
            return cls._restored(codec.decode(data), rule)
        except (TypeError, ValueError, KeyError) as error:
            # sound bytes around values of other types
            why = shortened(printable(str(error)), 200)
            raise CodecError(f"these bytes do not hold a selector: {why}") from error

    @classmethod
    def _restored(cls, saved: Any, rule: type[SelectionRule[S]] | None) -> Selector[S]:
        if not isinstance(saved, dict) or set(saved) - {"defence", "memory"} != {
            "rule",
            "options",
            "state",
            "seed",
            "horizon",
        }:
            raise CodecError("these bytes do not hold a selector")
        names = {target.partition(":")[2]: name for name, target in CATALOGUE.targets.items()}
        kind = rule or (CATALOGUE.get(names[saved["rule"]]) if saved["rule"] in names else None)
        if kind is None or kind.__qualname__ != saved["rule"]:
            raise CodecError(
                f"these bytes hold the rule {saved['rule']!r}, which is not known here; pass "
                "rule=YourRule"
            )
        options = {f.name for f in dataclasses.fields(kind)}
        # an option that came later has its default, under which nothing changes
        needed = {f.name for f in dataclasses.fields(kind) if not _has_default(f)}
        if not needed <= set(saved["options"]) <= options:
            raise CodecError(
                f"{kind.__name__} was written with options {sorted(saved['options'])}, it has "
                f"{sorted(options)} here"
            )
        defence = Defence(**saved["defence"]) if "defence" in saved else None
        selector: Selector[S] = cls(
            kind(**saved["options"]), saved["seed"], saved["horizon"], defence
        )
        memory = codec.encode(selector.memory) if defence is None else saved["memory"]
        selector.restore({"state": saved["state"], "memory": memory})
        return selector
