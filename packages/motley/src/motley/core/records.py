"""Records exchanged between selection rules and the round loop: reports, contexts, cohorts,
requirements and the table of signals.

Reports are stored as columns: a million of them cost milliseconds. :class:`Report` is one row, for
users and tests. Absent numbers are NaN.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from types import MappingProxyType
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from typing_extensions import override

from motley.core.arrays import Floats, Ids
from motley.core.errors import ConfigError, ContractError, suggest


class Outcome(enum.IntEnum):
    """The outcome of a client in a round."""

    ENROLLED = 0
    PROBED = 1
    ACCEPTED = 2
    LATE = 3
    DROPPED = 4
    # non-finite, of the wrong shape, or part of a refused step; its traffic is counted
    REJECTED = 5
    REHEARSED = 6  # trained and measured, but the server model does not change

    @classmethod
    @override
    def _missing_(cls, value: object) -> Outcome:
        """Return the outcome with this name, in small letters as in tables (``Outcome("late")``);
        refuse anything else."""
        names = {outcome.name.lower(): outcome for outcome in cls}
        if isinstance(value, str) and value.lower() in names:
            return names[value.lower()]
        near = suggest(value.lower(), names) if isinstance(value, str) else ""
        raise ConfigError(f"got {value!r}{near}; expected one of: {', '.join(names)}", "outcome")


When = Literal["enrolled", "probed", "reported"]


@dataclass(frozen=True, slots=True)
class Signal:
    """A quantity that a selection rule may ask for about a client; docs/signals.md is generated
    from these.

    ``when``: the occasions at which it is available: ``enrolled``, ``probed``, ``reported``.
    ``follows``: what of a client it tells: its ``data``, the number of its samples alone (``size``;
    seconds only where local work is counted in epochs), or nothing that is not public. ``single``:
    whether it is made of one client's gradient or update, which secure aggregation would hide.
    """

    kind: Literal["learning", "system", "channel", "enrolment"]
    when: tuple[When, ...]
    shape: str
    model: str
    data: str
    mode: str
    text: str
    follows: Literal["data", "size", "public"] = "data"
    single: bool = False

    @property
    def scalar(self) -> bool:
        """Whether it is one number."""
        return self.shape == "scalar"


_CLIENT: tuple[When, ...] = ("probed", "reported")
_PLANNER: tuple[When, ...] = ("enrolled", "probed")
NoiseLaw = Literal["laplace", "gaussian", "gumbel"]
"""The law of the noise that a client, or of ``gumbel`` the server, adds to a signal."""
HISTOGRAM = "label_histogram"
"""The signal of the numbers of samples by class, sent once a run."""
CONTRIBUTION = "contribution"
"""The signal that a rule makes of all uploads of a server step together."""
SIGNALS: Mapping[str, Signal] = MappingProxyType(
    {
        "loss": Signal(
            kind="learning",
            when=_CLIENT,
            shape="scalar",
            model="received",
            data="training samples of the client",
            mode="eval",
            text="mean per-sample loss of the received model; probed: on the given number of "
            "batches; reported: mean over the local steps, while the model is trained",
        ),
        "arrival_loss": Signal(
            kind="learning",
            when=("reported",),
            shape="scalar",
            model="received",
            data="all training samples",
            mode="eval",
            text="mean per-sample loss of the received model before training (ActiveFL)",
        ),
        "loss_rms": Signal(
            kind="learning",
            when=("reported",),
            shape="scalar",
            model="local, while training",
            data="training batches",
            mode="train",
            text="root mean square of the per-sample losses during training (Oort)",
        ),
        "robust_loss": Signal(
            kind="learning",
            when=_CLIENT,
            shape="scalar",
            model="received",
            data="training samples",
            mode="eval",
            text="mean noise-robust loss (FLASH), its pseudo labels the received model's own "
            "softmax; reported: before training, on all of them",
        ),
        "val_loss": Signal(
            kind="learning",
            when=_CLIENT,
            shape="scalar",
            model="received",
            data="validation samples",
            mode="eval",
            text="mean loss of the task (not the algorithm's) on the client's validation part, "
            "with the client's own labels; reported: before training; needs "
            "`split.validation`",
        ),
        "test_loss": Signal(
            kind="learning",
            when=("probed",),
            shape="scalar",
            model="received",
            data="test samples",
            mode="eval",
            text="mean loss of the task on the client's own test part, for comparisons that are "
            "published so: it looks at "
            'test data; needs `split.test = "client"`',
        ),
        "grad_norm": Signal(
            kind="learning",
            when=_CLIENT,
            shape="scalar",
            model="received",
            data="training samples",
            mode="eval",
            text="norm of the mean gradient; reported: before training, on all of them",
            single=True,
        ),
        "gradient": Signal(
            kind="learning",
            when=_CLIENT,
            shape="[D]",
            model="received",
            data="training samples",
            mode="eval",
            text="mean gradient; reported: the pseudo-gradient `-update / (steps * lr)`, computed "
            "from the upload",
            single=True,
        ),
        "gradient_sketch": Signal(
            kind="learning",
            when=_CLIENT,
            shape="[256]",
            model="received",
            data="training samples",
            mode="eval",
            text="random projection of `gradient`, both probed and reported",
            single=True,
        ),
        "max_grad_norm": Signal(
            kind="learning",
            when=("reported",),
            shape="scalar",
            model="local, while training",
            data="training batches",
            mode="train",
            text="largest norm of a batch's mean gradient during training, before correction and "
            "clipping",
            single=True,
        ),
        "update_norm": Signal(
            kind="learning",
            when=("reported",),
            shape="scalar",
            model="after training",
            data="-",
            mode="-",
            text="Euclidean norm of the update (its square is HeteRo-Select v1's u_k)",
            single=True,
        ),
        "uplink_mbps": Signal(
            kind="system",
            when=_PLANNER,
            shape="scalar",
            model="-",
            data="-",
            mode="-",
            text="the client's uplink in this round, megabits a second",
            follows="public",
        ),
        "download_estimate_s": Signal(
            kind="system",
            when=_PLANNER,
            shape="scalar",
            model="-",
            data="-",
            mode="-",
            text="seconds to download the whole model in this round",
            follows="public",
        ),
        "compute_estimate_s": Signal(
            kind="system",
            when=_PLANNER,
            shape="scalar",
            model="-",
            data="-",
            mode="-",
            text="seconds for the full local work, by the device model",
            follows="size",
        ),
        "upload_estimate_s": Signal(
            kind="system",
            when=_PLANNER,
            shape="scalar",
            model="-",
            data="-",
            mode="-",
            text="seconds to upload a whole update in this round",
            follows="public",
        ),
        "sketch": Signal(
            kind="channel",
            when=("reported",),
            shape="[64]",
            model="after training",
            data="-",
            mode="-",
            text="random projection of the decoded update",
            single=True,
        ),
        "last_layer": Signal(
            kind="channel",
            when=("enrolled", "reported"),
            shape="[d]",
            model="after training",
            data="-",
            mode="-",
            text="weights and bias of the last linear layer after training, from the model sent "
            "and the decoded update; enrolled: those of the initial model, the same for all",
            single=True,
        ),
        "output_bias": Signal(
            kind="channel",
            when=("reported",),
            shape="[C]",
            model="after training",
            data="-",
            mode="-",
            text="what the decoded update adds to the bias of the last linear layer",
            single=True,
        ),
        "cosine": Signal(
            kind="channel",
            when=("reported",),
            shape="scalar",
            model="after training",
            data="-",
            mode="-",
            text="cosine between the decoded update and the moving average `0.9 old + 0.1 new` of "
            "the aggregated updates of earlier rounds; absent in the first",
            single=True,
        ),
        "last_update_cosine": Signal(
            kind="channel",
            when=("probed",),
            shape="scalar",
            model="at the choice",
            data="-",
            mode="-",
            text="cosine between the client's last decoded update, which the server keeps, and the "
            "moving average `0.9 old + 0.1 new` of the aggregated updates until now; absent before "
            "its first",
            single=True,
        ),
        CONTRIBUTION: Signal(
            kind="channel",
            when=("reported",),
            shape="scalar",
            model="at the server, of any of the step's uploads",
            data="validation samples of the server",
            mode="eval",
            text="what the rule makes of all uploads of a server step together "
            "(`contributions`): GreedyFed's Shapley value; needs `split.server`",
            single=True,
        ),
        "label_histogram": Signal(
            kind="enrolment",
            when=("enrolled",),
            shape="[C]",
            model="-",
            data="the client's own training labels (noisy)",
            mode="-",
            text="counts per class, 32 bits each, sent once",
        ),
        "num_examples": Signal(
            kind="enrolment",
            when=("enrolled",),
            shape="scalar",
            model="-",
            data="training samples",
            mode="-",
            text="their number, sent once",
            follows="size",
        ),
    }
)
"""All signals that a rule may ask for, with their definitions."""


@dataclass(frozen=True, slots=True)
class Report:
    """One client's report: a row of :class:`Reports`. Absent numbers are NaN; times in seconds,
    sizes in bits."""

    id: int
    outcome: Outcome = Outcome.ACCEPTED
    version: float = np.nan
    num_examples: float = np.nan
    local_steps: float = np.nan
    staleness: float = np.nan
    download_s: float = np.nan
    compute_s: float = np.nan
    upload_s: float = np.nan
    bits_up: float = np.nan
    bits_down: float = np.nan
    signals: Mapping[str, float | Floats] = field(default_factory=dict)


def _rising(ids: Ids) -> bool:
    return bool((ids[1:] > ids[:-1]).all())


def _at(column: NDArray[Any], at: Any) -> NDArray[Any]:
    """Return ``column[at]``; a single number if the column repeats one number."""
    return np.asarray(column[0] if len(column) and column.strides == (0,) else column[at])


def _column(values: NDArray[Any], n: int) -> NDArray[Any]:
    """Return a read-only view of values as ``[n]``; a single number is repeated, which needs no
    memory.

    As ``np.broadcast_to``, whose checks cost more than the rest of a small round's reports.
    """
    if values.ndim == 0:
        view: NDArray[Any] = np.ndarray(
            (n,), values.dtype, np.ascontiguousarray(values).data, 0, (0,)
        )
    elif values.shape == (n,):
        if not values.flags.writeable:
            return values
        view = values.view()
    else:
        return np.broadcast_to(values, (n,))
    view.flags.writeable = False
    return view


@lru_cache(maxsize=256)
def _absent(n: int) -> NDArray[np.float64]:
    """Return the one read-only column ``[n]`` of absent numbers."""
    return _column(np.asarray(np.nan), n)


def _codes(outcomes: Any) -> NDArray[np.int8]:
    """Return outcomes, given as numbers or names, as numbers."""
    codes = outcomes if isinstance(outcomes, np.ndarray) else np.asarray(outcomes, dtype=object)
    if codes.dtype.kind not in "iu":
        codes = np.array([Outcome(outcome) for outcome in codes.ravel()], dtype=np.int64).reshape(
            codes.shape
        )
    if codes.size and not (codes.min() >= 0 and codes.max() < len(Outcome)):
        Outcome(int(codes.min() if codes.min() < 0 else codes.max()))  # which refuses it
    return codes.astype(np.int8, copy=False)


_NUMBERS = tuple(f.name for f in fields(Report) if f.name not in ("id", "outcome", "signals"))


@dataclass(frozen=True)
class Reports:
    """Reports of n clients as columns.

    Parameters
    ----------
    ids: int64 ``[n]``, distinct.
    outcome: int8 ``[n]``, values of :class:`Outcome` (a single value is broadcast); their names
    will do. version ..
    bits_down: float64 ``[n]`` or None if all are absent; seconds and bits.
    signals: name -> ``[n]`` or ``[n, d]`` float64; NaN means absent.

    Raises
    ------
    ContractError: columns of unequal length, or ids repeated. ConfigError: no such outcome.
    """

    distinct: ClassVar[bool] = True

    ids: Ids
    outcome: NDArray[np.int8]
    version: Floats = None  # type: ignore[assignment]  # filled below
    num_examples: Floats = None  # type: ignore[assignment]
    local_steps: Floats = None  # type: ignore[assignment]
    staleness: Floats = None  # type: ignore[assignment]
    download_s: Floats = None  # type: ignore[assignment]
    compute_s: Floats = None  # type: ignore[assignment]
    upload_s: Floats = None  # type: ignore[assignment]
    bits_up: Floats = None  # type: ignore[assignment]
    bits_down: Floats = None  # type: ignore[assignment]
    signals: Mapping[str, Floats] = field(default_factory=dict)

    def __post_init__(self) -> None:
        put = object.__setattr__
        ids = np.atleast_1d(np.asarray(self.ids, dtype=np.int64))
        n = len(ids)
        put(self, "ids", ids)
        put(self, "outcome", _column(_codes(self.outcome), n))
        if self.distinct and not _rising(ids) and not _rising(np.sort(ids)):
            raise ContractError("a client reports twice in one set of reports")
        for name in _NUMBERS:
            value = getattr(self, name)
            column = _absent(n) if value is None else _column(np.asarray(value, dtype=float), n)
            put(self, name, column)
        signals = {
            name: np.asarray(value, dtype=np.float64) for name, value in self.signals.items()
        }
        for name, value in signals.items():
            if value.shape[:1] != (n,):
                raise ContractError(
                    f"signal {name!r} has shape {value.shape}; expected [{n}] or [{n}, d]"
                )
        put(self, "signals", signals)

    @classmethod
    def empty(cls) -> Reports:
        """Return reports of no clients."""
        return cls(np.zeros(0, np.int64), np.zeros(0, np.int8))

    @classmethod
    def from_rows(cls, rows: Iterable[Report]) -> Reports:
        """Return the reports with these rows; a signal that a row does not have is NaN there."""
        rows = list(rows)
        if not rows:
            return cls.empty()
        names = sorted({name for row in rows for name in row.signals})
        signals = {}
        for name in names:
            shapes = {np.shape(row.signals[name]) for row in rows if name in row.signals}
            if len(shapes) > 1:
                raise ContractError(
                    f"signal {name!r} comes in several shapes: "
                    f"{', '.join(map(str, sorted(shapes)))}"
                )
            blank = np.full(shapes.pop(), np.nan)
            signals[name] = np.stack(
                [np.asarray(row.signals.get(name, blank), dtype=np.float64) for row in rows]
            )
        return cls(
            np.array([row.id for row in rows]),
            _codes([row.outcome for row in rows]),
            **{
                name: np.array([getattr(row, name) for row in rows], dtype=np.float64)
                for name in _NUMBERS
            },
            signals=signals,
        )

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, which: ArrayLike | slice) -> Reports:
        """Return the reports at these positions (slice, mask or indices)."""
        at: Any = which if isinstance(which, slice) else np.asarray(which)
        return Reports(
            self.ids[at],
            _at(self.outcome, at),
            **{name: _at(getattr(self, name), at) for name in _NUMBERS},
            signals={name: value[at] for name, value in self.signals.items()},
        )

    def keep(self, columns: Collection[str]) -> Reports:
        """Return the reports with these columns and what the server knows itself; the other numbers
        are absent."""
        gone = [
            name
            for name in _NUMBERS
            if name not in columns and name not in ("version", "staleness", "bits_down")
        ]
        absent: Any = dict.fromkeys(gone)
        return replace(self, **absent)

    def of(self, *outcomes: Outcome) -> Reports:
        """Return the reports with one of these outcomes."""
        wanted = np.zeros(len(self), dtype=bool)
        for outcome in outcomes:
            wanted |= self.outcome == int(outcome)
        return self if wanted.all() else self[wanted]

    def signal(self, name: str) -> Floats:
        """Return the column of one signal; NaN if no client sent it."""
        value = self.signals.get(name)
        return np.full(len(self), np.nan) if value is None else value

    def rows(self) -> Iterator[Report]:
        """Yield one :class:`Report` per client."""
        for i in range(len(self)):
            yield Report(
                int(self.ids[i]),
                Outcome(int(self.outcome[i])),
                **{name: float(getattr(self, name)[i]) for name in _NUMBERS},
                signals={
                    name: float(v[i]) if v.ndim == 1 else v[i] for name, v in self.signals.items()
                },
            )

    @classmethod
    def concat(cls, parts: Sequence[Reports]) -> Reports:
        """Return several sets of reports in one; clients must differ."""
        parts = [part for part in parts if len(part)]
        if not parts:
            return cls.empty()
        names = sorted({name for part in parts for name in part.signals})
        signals = {}
        for name in names:
            tail = next(part.signals[name].shape[1:] for part in parts if name in part.signals)
            columns = [
                part.signals[name] if name in part.signals else np.full((len(part), *tail), np.nan)
                for part in parts
            ]
            signals[name] = np.concatenate(columns)
        return cls(
            np.concatenate([part.ids for part in parts]),
            np.concatenate([part.outcome for part in parts]),
            **{name: np.concatenate([getattr(part, name) for part in parts]) for name in _NUMBERS},
            signals=signals,
        )


@dataclass(frozen=True, slots=True)
class SelectionContext:
    """The circumstances of one choice, passed to a selection rule.

    Parameters
    ----------
    draw: number of the draw, from 1. Where the server waits for its cohort it is the number of
        the round; under ``buffered`` and ``asynchronous`` every selection has a number of its own,
        ahead of the column ``round`` of tables, which counts server steps.
    dispatch: number of the first client dispatched by this choice, from 0.
    available: ids of the available clients, int64 ``[K_A]``, sorted, distinct.
    m: cohort size wanted, already clipped to ``[0, K_A]`` by the rule's own ``size``.
    rng: random generator of this choice alone; draws from it affect no other choice.
    step: number of the server step that comes next, from 1: what is compared with ``horizon``.
    horizon: planned number of server steps, or None when the run has no planned end.
    """

    draw: int
    dispatch: int
    available: Ids
    m: int
    rng: np.random.Generator
    step: int
    horizon: int | None = None


@dataclass(frozen=True, slots=True)
class JointUploads:
    """The accepted uploads of one server step, for a rule that compares what any of them together
    would have made of the server's model.

    Parameters
    ----------
    clients: ids int64 ``[n]``, in the order of the uploads; a client that delivered twice is there
    twice.
    loss: positions of some uploads, distinct -> the mean loss, on the server's validation samples,
    of the model that the server would have made of these alone; of none: of the model before the
    step. A call costs an evaluation.
    rng: random generator of this step alone.
    """

    clients: Ids
    loss: Callable[[Collection[int]], float]
    rng: np.random.Generator


class Draw(NamedTuple):
    """How a rule draws cohorts from all available clients without a look at data.

    Parameters
    ----------
    scheme: a coin for each client (``poisson``), or a fixed number ``without_replacement``.
    rate: expected share of clients drawn.
    largest: most clients of a Poisson cohort; None: no limit.
    """

    scheme: Literal["poisson", "without_replacement"]
    rate: float
    largest: int | None = None


@dataclass(frozen=True, slots=True)
class Cohort:
    """The clients chosen for a round, with optional columns ``[len(ids)]`` in the order of ``ids``
    for joint methods.

    Parameters
    ----------
    ids: ids of the chosen clients, int64, distinct, in the order of choice.
    weights: raw coefficients on updates; need not sum to 1 and are never renormalized unless
    ``weights = "selector_ratio"``.
    multiplicity: how often each client was drawn with replacement; it trains once and counts so
    often, unless weights are given.
    scores: normalized informativeness, for an allocator or a weighting that uses it.
    local_steps: number of local steps instead of the experiment's (PyramidFL).
    upload_ratio: share of the update to send (PyramidFL); used by the allocator ``from_selector``.
    lr_scale: factor on the local learning rate (HeteRo-Select v2, published variant).
    rehearsal: whether the cohort trains and is billed as usual, but the resulting model is
    discarded (FedCor); see below.
    notes: diagnostics for the tables; names with a common prefix (``component.value``,
    ``component.fairness``) share a plot.
    client_notes: the same for each chosen client, by name, for the table ``choices``.
    probabilities: of a rule that draws by explicit probabilities, those of all available clients in
        the first draw, up to a factor, ``[K_A]`` in the order of ``SelectionContext.available``.
        For diagnostics only.

    Rehearsals
    ----------
    A rehearsal is a round of its own (it counts in ``stop.rounds``, schedules and ``round``). A
    rule is called in this order:

    1. ``observe(t, ...)`` with outcome ``PROBED``: the candidates at the server's model, as in any
       round that probes.
    2. ``select`` returns a cohort with ``rehearsal = True``; it trains, and the server's update
       rule makes a model of its uploads.
    3. ``observe(t, ...)`` with outcome ``PROBED`` *again*, with the same ``t``: the candidates of
       1, the signals of ``needs().probed`` on the same samples, measured at the rehearsed model. A
       rule distinguishes the two by its state, or by ``version``, which is absent in the second.
       Billed and timed like any probe, with a download of the rehearsed model by every candidate.
       Left out when nobody was probed in 1 or no upload was accepted.
    4. ``observe(t, ...)`` with the cohort's own reports, outcome ``REHEARSED`` for accepted
       uploads. Model, server state and client states are then as before; only time has passed and
       bits were sent.

    So ``y_k`` of a client is its loss in 3 minus its loss in 1. In other rounds, the loss after the
    step is that of the next round's probe.
    """

    ids: Ids
    weights: Floats | None = None
    multiplicity: Ids | None = None
    scores: Floats | None = None
    local_steps: Ids | None = None
    upload_ratio: Floats | None = None
    lr_scale: Floats | None = None
    rehearsal: bool = False
    notes: Mapping[str, float] = field(default_factory=dict)
    client_notes: Mapping[str, Floats] = field(default_factory=dict)
    probabilities: Floats | None = None

    def columns(self) -> dict[str, Floats | Ids]:
        """Return the columns that are there, by name."""
        names = ("weights", "multiplicity", "scores", "local_steps", "upload_ratio", "lr_scale")
        values = {name: getattr(self, name) for name in names} | dict(self.client_notes)
        return {name: column for name, column in values.items() if column is not None}


@dataclass(frozen=True, slots=True)
class SignalRequirements:
    """The signals that a selection rule needs; checked when the experiment is built, and billed as
    traffic.

    Parameters
    ----------
    enrolled: signals reported once, before round 1 (``label_histogram``, ``num_examples``,
    estimates of the planner).
    probed: signal -> number of batches it is measured on before the choice (None: all local
    training data).
    reported: signals that clients send with their update.
    horizon: whether the rule must know the number of planned rounds.
    columns: what it uses of every report beside signals: names of :class:`Report`'s numbers.
    """

    enrolled: frozenset[str] = frozenset()
    probed: Mapping[str, int | None] = field(default_factory=dict)
    reported: frozenset[str] = frozenset()
    horizon: bool = False
    columns: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        for name in (*self.enrolled, *self.probed, *self.reported):
            if name not in SIGNALS:
                raise ContractError(f"unknown signal {name!r}; known: {', '.join(sorted(SIGNALS))}")
        for name in self.columns - set(_NUMBERS):
            raise ContractError(f"unknown column of reports {name!r}; known: {', '.join(_NUMBERS)}")
