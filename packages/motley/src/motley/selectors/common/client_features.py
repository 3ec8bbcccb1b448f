"""Client features and rewards as FLASH defines them: the training data of the bandit rules.

Reference: docs/methods/flash.md#bandit.

    r_t(i) = |L^t - L^(t-1)| / tau(i)                                        reward
    x_t(i) = [ L^t / L^1,  CE^t(V_i) / CE^1(V_i),  tau(i),  r_(t-1)(i) ]     features, a context

``L`` is a loss of the client's own evaluations: :class:`ContextualBandit` takes the noise-robust
loss, probed or reported; :func:`loss_rewards` takes the loss of the received model before training,
and needs no features. ``CE(V_i)`` is the loss on the client's validation part. ``tau(i)`` is the
duration of the last round, its longest download to upload: :data:`Tau`.

* READING ``measured_on``: FLASH's Algorithm 1 measures contexts on the model w^t that round t's
  participants receive, lines 9 to 17, before it aggregates; ``"received"`` does so, and the cohort
  of round t + 1 is chosen by them. The default, ``"produced"``, measures the model that round t
  made of w^t, which is one round newer.
* r_t(i) is 0 before the second evaluation in :class:`ContextualBandit`, and absent in
  :func:`loss_rewards`.
* A loss that is not a number changes nothing; a ratio without a positive first loss is absent.
* INTERPRETATION-D an unknown duration counts as the mean of those known (1 second while none is).
* INTERPRETATION-D ratios and rewards beyond :data:`LARGEST`, of runs that diverge, count as it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple, TypeVar, get_args

import numpy as np
from typing_extensions import override

from motley.core.arrays import Floats, Ids
from motley.core.errors import ConfigError
from motley.core.records import Outcome, Reports, SelectionContext, SignalRequirements
from motley.core.table import ClientTable
from motley.selectors.common.client_signals import DURATIONS, measured_s
from motley.selectors.common.sampling import Ties
from motley.selectors.selector import SelectionRule

S = TypeVar("S")
Tau = Literal["round", "round_seconds", "mean", "seconds"]
"""``"round"``: the last round's duration, that of its slowest client, over the mean of all clients'
last durations (no unit); one number for everybody. ``"round_seconds"``: the same in seconds.
``"mean"``: the client's own last duration over the mean of all clients' (no unit). ``"seconds"``:
the same in seconds."""
Probe = Literal["all", "last_report"]
MeasuredOn = Literal["produced", "received"]
"""``"produced"``: a context is measured on the model that the last round produced.
``"received"``: on the model that the last round's participants received, before aggregation."""
FirstRound = Literal["all", "cohort"]
"""Round 1 takes everybody, as FLASH does, or m clients at random."""
Feature = Literal["robust_loss", "val_loss", "duration", "reward"]
Drop = Literal["none", "robust_loss", "val_loss", "duration", "reward"]
LARGEST = 1e3
SHORTEST = 1e-15
"""Seconds below it count as it: a share of the mean duration stays above 0."""


def first_round_size(first_round: FirstRound, round: int, m: int, available: int) -> int:
    """Return the cohort's size, where round 1 may take every available client."""
    return available if first_round == "all" and round == 1 and m else min(m, available)


def reward_columns() -> dict[str, float]:
    """Return the defaults of the columns of :func:`loss_rewards`.

    ``loss`` and ``duration`` are a client's last known ones, ``round`` is the round of that
    duration.
    """
    return {"loss": np.nan, "duration": np.nan, "round": 0.0}


def loss_rewards(
    clients: ClientTable, round: int, accepted: Reports, signal: str, tau: Tau
) -> tuple[ClientTable, Floats]:
    """Return the table with this round's losses and durations, and the reporters' rewards ``[n]``;
    NaN where there is none."""
    clients = _put_durations(clients, round, accepted)
    loss = accepted.signal(signal)
    rewards = _rewards(clients, accepted.ids, loss, tau)
    return clients.put(accepted.ids, {"loss": loss}), rewards


def scaled_durations(clients: ClientTable, ids: Ids, tau: Tau) -> Floats:
    """Return tau of these clients, ``[n]``, positive; 1 for each while no duration is known."""
    seconds = clients.get("duration", clients.ids)
    present = ~np.isnan(seconds)
    if not present.any():
        return np.ones(len(ids))
    mean = float(seconds.mean() if present.all() else seconds[present].mean())
    if tau in ("round", "round_seconds"):
        when = clients.get("round", clients.ids)
        longest = seconds[present & (when == when[present].max())].max()
        return np.full(len(ids), longest / mean if tau == "round" else longest)
    own = clients.get("duration", ids)
    missing = np.isnan(own)
    own = np.where(missing, mean, own) if missing.any() else own
    return own / mean if tau == "mean" else own


def _put_durations(clients: ClientTable, round: int, accepted: Reports) -> ClientTable:
    if not len(accepted):
        return clients
    seconds = measured_s(accepted)
    # nothing is divided by 0
    seconds = np.where(seconds > 0, np.maximum(seconds, SHORTEST), np.nan)
    return clients.put(
        accepted.ids,
        {"duration": seconds, "round": np.where(np.isnan(seconds), np.nan, float(round))},
    )


def _rewards(clients: ClientTable, ids: Ids, loss: Floats, tau: Tau) -> Floats:
    with np.errstate(over="ignore"):  # an infinite change is as good as a large one
        out = loss - clients.get("loss", ids)
        np.abs(out, out=out)
        out /= scaled_durations(clients, ids, tau)
    return np.asarray(np.clip(out, -LARGEST, LARGEST, out=out))  # NaN stays


class TrainingPairs(NamedTuple):
    """New training data of a bandit: features ``x`` ``[n, d]`` and ``rewards`` ``[n]`` of clients
    that took part."""

    ids: Ids
    x: Floats
    rewards: Floats


@dataclass(frozen=True)
class ContextualBandit(SelectionRule[S]):
    """Options, measurements and features of every rule that learns rewards from client features.

    Parameters
    ----------
    tau: the duration in the features and the reward: the last round's, or each client's own, see
    :data:`Tau`.
    probe: ``"all"``: every available client evaluates the model before the choice;
    ``"last_report"``: only the cohort does.
    probe_batches: batches that a probe measures the robust loss on (``probe = "all"``); None is all
    training data.
    drop: one feature to leave out, as in FLASH's ablations.
    first_round: ``"all"``, or ``"cohort"``: m clients at random.
    ties: ``"random"``, or ``"lowest_id"`` for tests.
    measured_on: the model whose losses are a client's context, see :data:`MeasuredOn`.
    """

    tau: Tau = "round"
    probe: Probe = "all"
    probe_batches: int | None = None
    drop: Drop = "none"
    first_round: FirstRound = "all"
    ties: Ties = "random"
    measured_on: MeasuredOn = "produced"

    absent: ClassVar[float] = 0.0
    """The value of a feature whose ratio is not known."""

    def __post_init__(self) -> None:
        if self.probe_batches is not None and self.probe_batches < 1:
            raise ConfigError(
                f"got probe_batches = {self.probe_batches}; expected at least 1, or none for all "
                "training data"
            )
        if self.probe_batches is not None and self.probe == "last_report":
            raise ConfigError(
                "probe = 'last_report' measures nothing before the choice; leave probe_batches out"
            )
        if self.measured_on == "received" and self.probe == "last_report":
            raise ConfigError(
                "probe = 'last_report' takes losses of the received model as it is; leave "
                "measured_on out"
            )

    @property
    def feature_names(self) -> tuple[Feature, ...]:
        """The names of the features, in order."""
        return tuple(name for name in get_args(Feature) if name != self.drop)

    @override
    def needs(self) -> SignalRequirements:
        losses = frozenset(
            {"robust_loss"} if self.drop == "val_loss" else {"robust_loss", "val_loss"}
        )
        if self.probe == "last_report":
            return SignalRequirements(reported=losses, columns=DURATIONS)
        return SignalRequirements(
            probed={
                name: self.probe_batches if name == "robust_loss" else None
                for name in sorted(losses)
            },
            columns=DURATIONS,
        )

    @override
    def size(self, draw: int, m: int, available: int) -> int:
        return first_round_size(self.first_round, draw, m, available)

    @override
    def candidates(self, state: S, context: SelectionContext) -> Ids:
        measures = self.probe == "all" and (context.draw > 1 or self.measured_on == "received")
        return context.available if measures else np.zeros(0, np.int64)

    def feature_columns(self) -> dict[str, float]:
        """Return the defaults of the columns: those of :func:`reward_columns`, where ``loss`` is
        the robust one, and

        ``val``, the last validation loss; ``first_loss`` and ``first_val``, the client's first
        ones; ``reward`` and ``before``, of its last evaluation and of the one before; ``due``, 1 if
        it took part and was not measured since.

        With ``measured_on = "received"`` also ``x_NAME`` and ``scored_NAME`` for each feature, of
        its last evaluation and of the one before, by which the next cohort is chosen.
        """
        first = {"first_loss": np.nan, "val": np.nan, "first_val": np.nan}
        columns = reward_columns() | first | {"reward": 0.0, "before": 0.0, "due": 0.0}
        if self.measured_on == "produced":
            return columns
        unknown = {"robust_loss": self.absent, "val_loss": self.absent, "duration": 1.0}
        return columns | {
            f"{time}_{name}": unknown.get(name, 0.0)
            for time in ("x", "scored")
            for name in self.feature_names
        }

    def measured(self, reports: Reports) -> Reports:
        """Return the reports that carry the losses."""
        return reports.of(Outcome.ACCEPTED if self.probe == "last_report" else Outcome.PROBED)

    def update_features(
        self, clients: ClientTable, round: int, reports: Reports
    ) -> tuple[ClientTable, TrainingPairs]:
        """Return the table after these reports, and the new training pairs."""
        enrolled = reports.of(Outcome.ENROLLED)
        accepted = reports.of(Outcome.ACCEPTED)
        clients = clients.grow(enrolled.ids) if len(enrolled) else clients
        if self.measured_on == "received":
            return self._update_received(clients, round, accepted, self.measured(reports))
        if len(accepted):
            clients = _put_durations(clients, round, accepted).put(accepted.ids, {"due": 1.0})
        measured = self.measured(reports)
        if not len(measured):
            return clients, TrainingPairs(
                measured.ids, np.zeros((0, len(self.feature_names))), np.zeros(0)
            )
        clients = self._measure(clients, measured)
        ids = measured.ids
        present = ~np.isnan(measured.signal("robust_loss"))
        took_part = ids[present & (clients.get("due", ids) > 0)]
        clients = clients.put(took_part, {"due": 0.0}) if len(took_part) else clients
        return clients, TrainingPairs(
            took_part, self.features(clients, took_part), clients.get("reward", took_part)
        )

    def _update_received(
        self, clients: ClientTable, round: int, accepted: Reports, measured: Reports
    ) -> tuple[ClientTable, TrainingPairs]:
        """Return the table after reports of a round's model: who took part is learnt from with the
        context of that model, by which the next cohort is chosen.

        INTERPRETATION-D a client that is measured again while it is under way counts with its
        newest context.
        """
        known = accepted.ids[~np.isnan(clients.get("loss", accepted.ids))]
        pairs = TrainingPairs(
            known, self._columns(clients, known, "x"), clients.get("reward", known)
        )
        clients = _put_durations(clients, round, accepted)
        if len(measured):
            ids = measured.ids
            last = {f"scored_{name}": clients.get(f"x_{name}", ids) for name in self.feature_names}
            clients = self._measure(clients.put(ids, last), measured)
            now = self._present_features(clients, ids).T
            clients = clients.put(
                ids,
                {f"x_{name}": row for name, row in zip(self.feature_names, now, strict=True)},
            )
        return clients, pairs

    def _columns(self, clients: ClientTable, ids: Ids, time: str) -> Floats:
        """Return features that were kept under ``time``, ``x`` or ``scored``, ``[n, d]``."""
        kept = [clients.get(f"{time}_{name}", ids) for name in self.feature_names]
        return np.array(kept).reshape(len(kept), len(ids)).T

    def _measure(self, clients: ClientTable, measured: Reports) -> ClientTable:
        """Return the table after an evaluation: losses, first losses and rewards."""
        ids = measured.ids
        loss = measured.signal("robust_loss")
        val = measured.signal("val_loss")
        present = ~np.isnan(loss)
        rewards = _rewards(clients, ids, loss, self.tau)
        rewards[present & np.isnan(rewards)] = 0.0
        before = np.where(present, clients.get("reward", ids), np.nan)
        for name, value in (("first_loss", loss), ("first_val", val)):
            new = np.isnan(clients.get(name, ids)) & ~np.isnan(value)
            clients = clients.put(ids[new], {name: value[new]}) if new.any() else clients
        return clients.put(ids, {"loss": loss, "val": val, "reward": rewards, "before": before})

    def features(self, clients: ClientTable, ids: Ids) -> Floats:
        """Return the features by which these clients are chosen, ``[n, d]``."""
        if self.measured_on == "received":
            return self._columns(clients, ids, "scored")
        return self._present_features(clients, ids)

    def _present_features(self, clients: ClientTable, ids: Ids) -> Floats:
        """Return the features by the newest evaluations, ``[n, d]``."""
        get = clients.get
        # the clients' values of one feature lie together in memory
        out = np.empty((len(self.feature_names), len(ids)))
        for row, name in zip(out, self.feature_names, strict=True):
            if name == "robust_loss":
                row[:] = self._ratio(get("loss", ids), get("first_loss", ids))
            elif name == "val_loss":
                row[:] = self._ratio(get("val", ids), get("first_val", ids))
            else:
                if name == "duration":
                    row[:] = scaled_durations(clients, ids, self.tau)
                else:
                    row[:] = get("before", ids)
        return out.T

    def _ratio(self, now: Floats, first: Floats) -> Floats:
        # Losses are what clients claim: 0 and 1e308 occur, and one must not end the run.
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            out = now / first
        np.clip(out, -LARGEST, LARGEST, out=out)
        absent = ~(first > 0) | np.isnan(now)
        if absent.any():
            out[absent] = self.absent
        return np.asarray(out)
