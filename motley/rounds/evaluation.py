"""Evaluation: how good the model is, for everybody together and for each client.

Three scopes, as rows of the table ``evaluations``: ``global`` (the common test set, where there is one), ``client`` (one row
per client) and ``mean`` (their unweighted mean, FedCVR-Bolt's metric).

A client is evaluated on its own test part. In a federation with only a common test set, client k's figure is
``sum_c P_k(c) accuracy_c`` with ``P_k`` the clean class shares of its training data: the expected figure on test data of its own mix
(INTERPRETATION of "the same per-client class law for client test splits", docs/methods/timing-and-world.md#partitions).

Where the meaning of classes drifts, a client's test labels are what it calls them now, and ``global`` is the mean over the clients'
meanings (on a common test set, too: what a client drawn at random would find). A moving window changes no test data.

Where a sample has a class per position, its weight in every mean is the number of its positions, so that the figures are means over
positions (an accuracy is the share of right ones).

Where an algorithm lets clients start from models of their own (FedBN's normalisation), each client is evaluated on its own;
``global`` is the server's model as it is, and left out where clients share no model (RHFL's own models).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from motley.algorithms.base import Correction, ServerState
from motley.core.arrays import Floats, Ids, Ints
from motley.engines.base import Engine
from motley.rounds.client_state import ClientStates
from motley.tasks.base import Federation, ModelState

__all__ = ["Personal", "evaluate", "personal_models"]

Personal = Callable[[int], ModelState]
"""Client id -> the model that the client starts from."""


def evaluate(
    engine: Engine,
    model: ModelState,
    federation: Federation,
    per_client: bool,
    personal: Personal | None = None,
    shared: bool = True,
    class_names: Ids | None = None,
) -> dict[str, Any]:
    """Return the columns ``scope, client, examples, loss, accuracy`` of one evaluation; accuracy is NaN in regression.

    Parameters
    ----------
    personal: the model of each client; None: ``model`` for all of them. shared: whether clients share ``model``; where they do not,
    there is no ``global`` row. class_names: what each client calls each class ``[K, C]``; None: classes are what they are.
    """
    rows = _Rows()
    common, labelings = federation.global_test, _Labelings(federation, class_names)
    found: list[tuple[Floats, Floats]] = []
    if common is not None and shared:
        found = [engine.evaluate(model, common, labelings.labels(common, table)) for table in labelings.tables]
        weight = federation.positions(common)
        mean = [np.average([_mean(pair[i], weight) for pair in found], keepdims=True, weights=labelings.shares) for i in (0, 1)]
        rows.add("global", _ALL, np.array([len(common)]), *mean)
    if len(federation.test.values):
        sizes = federation.test.sizes
        samples = _on_own_tests(engine, model, federation, personal, labelings)
        weight = federation.positions(federation.test.values)
        loss, hit = (_means(value, federation.test.owner, sizes, weight) for value in samples)
    elif common is not None and federation.targets == "classes":
        sizes = federation.train.sizes
        loss, hit = _by_class_shares(engine, federation, common, personal, labelings, found)
    else:
        return rows.columns()
    known = np.flatnonzero(sizes > 0)
    if len(known):
        mean = [np.array([value[known].mean()]) for value in (loss, hit)]
        rows.add("mean", _ALL, np.array([sizes[known].sum()]), *mean)
    if per_client:
        rows.add("client", known.astype(np.int64), sizes[known], loss[known], hit[known])
    return rows.columns()


def _on_own_tests(
    engine: Engine, model: ModelState, federation: Federation, personal: Personal | None, labelings: _Labelings
) -> tuple[Floats, Floats]:
    """Return loss and hit of every sample of the clients' own test parts, client by client."""
    if personal is None:
        return engine.evaluate(model, federation.test.values, labelings.of_test_parts())
    parts = [
        engine.evaluate(personal(k), rows, labelings.labels(rows, labelings.of(k))) for k, rows in enumerate(federation.test)
    ]
    loss, hit = (np.concatenate(values) for values in zip(*parts, strict=True))
    return loss, hit


def _by_class_shares(
    engine: Engine,
    federation: Federation,
    common: Ids,
    personal: Personal | None,
    labelings: _Labelings,
    found: list[tuple[Floats, Floats]],
) -> tuple[Floats, Floats]:
    """Return each client's loss and accuracy ``[K]`` on the common test set, its classes weighted by the client's class shares.

    ``found``: the shared model's loss and hit of every sample, by labeling."""
    labels = federation.y[common].cpu().numpy()
    if personal is None:
        each = [[_by_class(value, labels, federation) for value in pair] for pair in found]
        at = labelings.which, np.arange(len(federation))
        loss, hit = (np.stack(of)[at] for of in zip(*each, strict=True))
        return loss, hit
    clients = range(len(federation))
    pairs = [engine.evaluate(personal(k), common, labelings.labels(common, labelings.of(k))) for k in clients]
    alone = [[_by_class(value, labels, federation)[k] for value in pair] for k, pair in enumerate(pairs)]
    loss, hit = np.array(alone).T
    return loss, hit


class _Labelings:
    """The distinct tables of class names in use, and which client uses which; one of None where classes are what they are."""

    def __init__(self, federation: Federation, class_names: Ids | None) -> None:
        self.federation = federation
        self.tables: list[Ids | None] = [None]
        self.which, self.shares = np.zeros(len(federation), np.int64), np.ones(1)
        if class_names is not None:
            tables, which, counts = np.unique(class_names, axis=0, return_inverse=True, return_counts=True)
            self.tables, self.which, self.shares = list(tables), which.reshape(-1), counts / len(class_names)

    def of(self, client: int) -> Ids | None:
        """Return a client's table."""
        return self.tables[int(self.which[client])]

    def labels(self, rows: Ids, table: Ids | None) -> Ids | None:
        """Return the labels of these samples under a table; None: their own."""
        return None if table is None else np.asarray(table[self._y(rows)])

    def of_test_parts(self) -> Ids | None:
        """Return the labels of all clients' own test samples; None: the samples' own."""
        if self.tables[0] is None:
            return None
        test, tables = self.federation.test, np.stack([table for table in self.tables if table is not None])
        return np.asarray(tables[self.which[test.owner], self._y(test.values)])

    def _y(self, rows: Ids) -> Ids:
        y: Ids = self.federation.y[torch.from_numpy(rows)].cpu().numpy()
        return y


_ALL = np.full(1, -1, dtype=np.int64)
"""The client id of rows that stand for all clients."""


class _Rows:
    """Rows of the table ``evaluations``, added scope by scope."""

    def __init__(self) -> None:
        self.scope: list[str] = []
        self.parts: list[tuple[Ids, Ids, Floats, Floats]] = []

    def add(self, scope: str, client: Ids, examples: Ids, loss: Floats, accuracy: Floats) -> None:
        """Add ``[n]`` rows of one scope."""
        self.scope += [scope] * len(client)
        self.parts.append((client, examples, loss, accuracy))

    def columns(self) -> dict[str, Any]:
        """Return the columns by name."""
        names = ("client", "examples", "loss", "accuracy")
        joined: dict[str, Any] = {
            name: np.concatenate([part[i] for part in self.parts]) if self.parts else [] for i, name in enumerate(names)
        }
        return {"scope": self.scope, **joined}


def personal_models(correction: Correction, server: ServerState, client_states: ClientStates) -> Personal | None:
    """Return the model that each client would start from now; None where that is the server's for all clients."""
    if not correction.personal_start:
        return None
    download = correction.download(server)
    return lambda client: correction.start(download, client_states.of([client]).get(client))


def _mean(value: Floats, weight: Ints | None) -> float:
    """Return the mean over samples, weighted where each has a number of positions."""
    return float(value.mean() if weight is None else np.average(value, weights=weight))


def _means(value: Floats, owner: Ids, sizes: Ids, weight: Ints | None) -> Floats:
    """Return the mean of each client's samples ``[K]``, weighted by their positions; NaN for a client without any."""
    if weight is not None:
        value, sizes = value * weight, np.bincount(owner, weights=weight, minlength=len(sizes))
    sums = np.bincount(owner, weights=value, minlength=len(sizes))
    out: Floats = np.divide(sums, sizes, out=np.full(len(sizes), np.nan), where=sizes > 0)
    return out


def _by_class(value: Floats, labels: Ids, federation: Federation) -> Floats:
    """Return each client's class shares times the mean of ``value`` in each class, ``[K]``."""
    classes = federation.classes or 0
    counts = np.bincount(labels, minlength=classes)
    sums = np.bincount(labels, weights=value, minlength=classes)
    of_class = np.divide(sums, counts, out=np.zeros(classes), where=counts > 0)
    share: Floats = federation.histogram(clean=True) * (counts > 0)
    total = share.sum(1)
    out: Floats = np.divide(share @ of_class, total, out=np.full(len(total), np.nan), where=total > 0)
    return out
