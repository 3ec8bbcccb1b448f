"""FLASH's contexts and rewards, made of probes and reports: what the bandit rules learn from (methods 2).

    r_t(i) = |L^t - L^(t-1)| / tau(i)                                            reward
    x_t(i) = [ L^t / L^1,  CE^t(V_i) / CE^1(V_i),  tau(i),  r_(t-1)(i) ]         context

``L`` is a loss of the client's own evaluations: :class:`Contexts` takes the noise-robust loss, measured by a probe or reported;
:func:`own_rewards` takes the loss that a reporter had when the model arrived, and knows of no context. ``CE(V_i)`` is the loss
on the client's validation part. ``tau(i)`` is the client's last duration, download to upload: :data:`Tau`.

* r_t(i) is 0 before the second evaluation of a context, and absent (no reward at all) in :func:`own_rewards`.
* A loss that is not a number moves nothing; a ratio without a positive first loss is absent.
* INTERPRETATION-D an unknown duration counts as the mean of those known (1 second while none is).
* INTERPRETATION-D ratios and rewards beyond :data:`LARGEST`, of runs that diverge, count as it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

import numpy as np

from motley.core.arrays import Floats, Ids
from motley.core.errors import ConfigError
from motley.core.records import Outcome, Reports, SelectionContext, SignalRequirements
from motley.core.table import ClientTable
from motley.selectors.common.durations import measured_s

__all__ = [
    "LARGEST",
    "Contexts",
    "Drop",
    "Feature",
    "FirstRound",
    "Learned",
    "Probe",
    "Tau",
    "first_size",
    "known_clients",
    "own_columns",
    "own_rewards",
    "taus",
]

Tau = Literal["mean", "seconds", "round"]
"""A client's duration over the mean of all clients' (no unit); in seconds; or the longest of the last round, for everybody."""
Probe = Literal["all", "last_report"]
FirstRound = Literal["all", "cohort"]
"""Round 1 takes everybody, as FLASH does, or m clients at random."""
Feature = Literal["robust_loss", "val_loss", "duration", "reward"]
Drop = Literal["none", "robust_loss", "val_loss", "duration", "reward"]
LARGEST = 1e3
SHORTEST = 1e-15
"""Seconds below it count as it: a share of the mean duration stays above 0."""
_OWN = {"loss": np.nan, "duration": np.nan, "round": 0.0}


def first_size(first_round: FirstRound, round: int, m: int, available: int) -> int:
    """The cohort's size where round 1 may take everybody."""
    return available if first_round == "all" and round == 1 and m else min(m, available)


def known_clients(clients: ClientTable, reports: Reports) -> ClientTable:
    """The table with a row for whoever enrols."""
    enrolled = reports.of(Outcome.ENROLLED)
    return clients.grow(enrolled.ids) if len(enrolled) else clients


def own_columns() -> dict[str, float]:
    """Defaults of the columns of :func:`own_rewards`: ``loss``, ``duration``, the last known; ``round``, of that duration."""
    return dict(_OWN)


def own_rewards(clients: ClientTable, round: int, done: Reports, signal: str, tau: Tau) -> tuple[ClientTable, Floats]:
    """The table with this round's losses and durations, and the rewards of the reporters, ``[n]``; NaN where there is none."""
    clients = _put_durations(clients, round, done)
    loss = done.signal(signal)
    rewards = _rewards(clients, done.ids, loss, tau)
    return clients.put(done.ids, {"loss": loss}), rewards


def taus(clients: ClientTable, ids: Ids, tau: Tau) -> Floats:
    """tau of these clients, ``[n]``, positive."""
    seconds = clients.get("duration", clients.ids)
    known = ~np.isnan(seconds)
    if not known.any():
        return np.ones(len(ids))
    if tau == "round":
        when = clients.get("round", clients.ids)
        return np.full(len(ids), seconds[known & (when == when.max())].max())
    mean = float(seconds.mean() if known.all() else seconds[known].mean())
    own = clients.get("duration", ids)
    missing = np.isnan(own)
    own = np.where(missing, mean, own) if missing.any() else own
    return own / mean if tau == "mean" else own


def _put_durations(clients: ClientTable, round: int, done: Reports) -> ClientTable:
    if not len(done):
        return clients
    seconds = measured_s(done)
    seconds = np.where(seconds > 0, np.maximum(seconds, SHORTEST), np.nan)  # nothing is divided by 0
    return clients.put(done.ids, {"duration": seconds, "round": np.where(np.isnan(seconds), np.nan, float(round))})


def _rewards(clients: ClientTable, ids: Ids, loss: Floats, tau: Tau) -> Floats:
    with np.errstate(over="ignore"):  # an infinite change is as good as a large one
        out = loss - clients.get("loss", ids)
        np.abs(out, out=out)
        out /= taus(clients, ids, tau)
    return np.asarray(np.clip(out, -LARGEST, LARGEST, out=out))  # NaN stays


class Learned(NamedTuple):
    """Contexts ``[n, d]`` and rewards ``[n]`` of one round that belong together: those of clients that took part."""

    ids: Ids
    x: Floats
    rewards: Floats


@dataclass(frozen=True)
class Contexts:
    """How contexts are measured; a rule makes one of its options.

    Parameters
    ----------
    tau: which duration. probe: who is measured before the choice. drop: one element to leave out of the context.
    batches: how many the robust loss is measured on by a probe; None is all training data.
    absent: what stands in the context for a ratio that is not known.
    """

    tau: Tau = "mean"
    probe: Probe = "all"
    drop: Drop = "none"
    batches: int | None = None
    absent: float = 0.0

    def __post_init__(self) -> None:
        if self.batches is not None and self.batches < 1:
            raise ConfigError(f"got probe_batches = {self.batches}; expected at least 1, or none for all training data")
        if self.batches is not None and self.probe == "last_report":
            raise ConfigError("probe = 'last_report' measures nothing before the choice; leave probe_batches out")

    @property
    def names(self) -> tuple[Feature, ...]:
        """The elements of a context, in order."""
        return tuple(name for name in get_args(Feature) if name != self.drop)

    def needs(self) -> SignalRequirements:
        """Robust and validation loss, of everybody or of the reporters."""
        losses = frozenset({"robust_loss"} if self.drop == "val_loss" else {"robust_loss", "val_loss"})
        if self.probe == "last_report":
            return SignalRequirements(reported=losses)
        return SignalRequirements(probed={name: self.batches if name == "robust_loss" else None for name in sorted(losses)})

    def candidates(self, context: SelectionContext) -> Ids:
        """Everybody available from round 2 on; nobody before, or with ``last_report``."""
        return context.available if self.probe == "all" and context.round > 1 else np.zeros(0, np.int64)

    def columns(self) -> dict[str, float]:
        """Defaults of the columns: :func:`own_columns` (``loss`` is the robust one); ``val``, the last validation loss;
        ``first_loss`` and ``first_val``, the client's first ones; ``reward`` and ``before``, of its last evaluation and of the
        one before; ``due``, 1 if it took part and was not measured since."""
        first = {"first_loss": np.nan, "val": np.nan, "first_val": np.nan}
        return own_columns() | first | {"reward": 0.0, "before": 0.0, "due": 0.0}

    def measured(self, reports: Reports) -> Reports:
        """Those of the reports that carry the losses of a context."""
        return reports.of(Outcome.ACCEPTED if self.probe == "last_report" else Outcome.PROBED)

    def observe(self, clients: ClientTable, round: int, reports: Reports) -> tuple[ClientTable, Learned]:
        """The table after these reports, and what there is to learn from them."""
        clients = known_clients(clients, reports)
        done = reports.of(Outcome.ACCEPTED)
        if len(done):
            clients = _put_durations(clients, round, done).put(done.ids, {"due": 1.0})
        measured = self.measured(reports)
        if not len(measured):
            return clients, Learned(measured.ids, np.zeros((0, len(self.names))), np.zeros(0))
        return self._measure(clients, measured)

    def _measure(self, clients: ClientTable, measured: Reports) -> tuple[ClientTable, Learned]:
        ids, loss, val = measured.ids, measured.signal("robust_loss"), measured.signal("val_loss")
        known = ~np.isnan(loss)
        rewards = _rewards(clients, ids, loss, self.tau)
        rewards[known & np.isnan(rewards)] = 0.0
        before = np.where(known, clients.get("reward", ids), np.nan)
        for name, value in (("first_loss", loss), ("first_val", val)):
            new = np.isnan(clients.get(name, ids)) & ~np.isnan(value)
            clients = clients.put(ids[new], {name: value[new]}) if new.any() else clients
        clients = clients.put(ids, {"loss": loss, "val": val, "reward": rewards, "before": before})
        took = ids[known & (clients.get("due", ids) > 0)]
        clients = clients.put(took, {"due": 0.0}) if len(took) else clients
        return clients, Learned(took, self.features(clients, took), clients.get("reward", took))

    def features(self, clients: ClientTable, ids: Ids) -> Floats:
        """Contexts of these clients, ``[n, d]``."""
        get = clients.get
        out = np.empty((len(self.names), len(ids)))  # one element after the other lies together
        for row, name in zip(out, self.names, strict=True):
            if name == "robust_loss":
                row[:] = self._ratio(get("loss", ids), get("first_loss", ids))
            elif name == "val_loss":
                row[:] = self._ratio(get("val", ids), get("first_val", ids))
            else:
                row[:] = taus(clients, ids, self.tau) if name == "duration" else get("before", ids)
        return out.T

    def _ratio(self, now: Floats, first: Floats) -> Floats:
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            out = now / first
        np.clip(out, -LARGEST, LARGEST, out=out)
        absent = ~(first > 0) | np.isnan(now)
        if absent.any():
            out[absent] = self.absent
        return np.asarray(out)
