"""The examiner: how good is the model, for everybody and for each client.

Three scopes, as rows of the table ``evaluations``: ``global`` (the common test set, where there is one), ``client`` (one row
per client) and ``mean`` (their unweighted mean, FedCVR-Bolt's metric).

A client is examined on its own test part. In a federation with only a common test set, client k's figure is
``sum_c P_k(c) accuracy_c`` with ``P_k`` the clean class shares of its training data: what it would see on test data of its own mix
(INTERPRETATION of "the same per-client class law for client test splits", optimisation-and-compression D).

Where the meaning of classes drifts, a client's test labels say what it calls them now, and ``global`` is the mean over the clients'
meanings (of a common test set, too: what a client drawn at random would find). A window that moves changes no test data.

Where a method lets clients start from a model of their own (FedBN's normalisation), each is examined on that one; ``global`` is
the server's model as it is, and left out where clients share none (RHFL's own models).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from motley.algorithms.base import Correction, ServerState
from motley.core.arrays import Floats, Ids
from motley.engines.base import Engine
from motley.rounds.client_state import ClientStates
from motley.tasks.base import Federation, ModelState

__all__ = ["EvaluationSchedule", "examine", "own_models"]


@dataclass(frozen=True, slots=True)
class EvaluationSchedule:
    """When and how closely: every so many server steps (and at the last), with one row per client or not, and whether these steps
    are diagnosed, too (:mod:`motley.rounds.diagnostics`)."""

    every: int = 10
    per_client: bool = True
    diagnostics: bool = False


def examine(
    engine: Engine,
    model: ModelState,
    federation: Federation,
    per_client: bool,
    own: Callable[[int], ModelState] | None = None,
    shared: bool = True,
    names: Ids | None = None,
) -> dict[str, Any]:
    """Columns ``scope, client, examples, loss, accuracy`` of one evaluation; accuracy is NaN in regression.

    ``own``: the model that a client starts from; None: ``model`` for everybody. ``shared``: whether ``model`` is anybody's; where it
    is not, there is no ``global`` row. ``names``: what each client calls each class ``[K, C]``; None: what it is."""
    scope: list[str] = []
    columns: list[tuple[NDArray[np.int64], NDArray[np.int64], Floats, Floats]] = []
    common = federation.global_test
    one = np.full(1, -1, dtype=np.int64)
    meanings = _Meanings(federation, names)
    if common is not None and shared:
        found = [engine.evaluate(model, common, meanings.labels(common, table)) for table in meanings.tables]
        of_all = [np.average([pair[i].mean() for pair in found], keepdims=True, weights=meanings.shares) for i in (0, 1)]
        scope.append("global")
        columns.append((one, np.array([len(common)]), of_all[0], of_all[1]))
    if len(federation.test.values):
        if own is None:
            loss, hit = engine.evaluate(model, federation.test.values, meanings.own())
        else:
            tests = enumerate(federation.test)
            parts = [engine.evaluate(own(k), rows, meanings.labels(rows, meanings.of(k))) for k, rows in tests]
            loss, hit = (np.concatenate(values) for values in zip(*parts, strict=True))
        sizes = federation.test.sizes
        each_loss, each_hit = (_means(value, federation.test.owner, sizes) for value in (loss, hit))
    elif common is not None and federation.classes is not None:
        labels = federation.y[common].cpu().numpy()
        sizes = federation.train.sizes
        if own is None:
            each = [[_by_class(value, labels, federation) for value in pair] for pair in found]
            each_loss, each_hit = (np.stack(of)[meanings.which, np.arange(len(sizes))] for of in zip(*each, strict=True))
        else:
            clients = range(len(federation))
            met = [engine.evaluate(own(k), common, meanings.labels(common, meanings.of(k))) for k in clients]
            alone = [[_by_class(value, labels, federation)[k] for value in pair] for k, pair in enumerate(met)]
            each_loss, each_hit = np.array(alone).T
    else:
        return _join(scope, columns)
    known = np.flatnonzero(sizes > 0)
    if len(known):
        scope.append("mean")
        total = np.array([sizes[known].sum()])
        columns.append((one, total, np.array([each_loss[known].mean()]), np.array([each_hit[known].mean()])))
    if per_client:
        scope += ["client"] * len(known)
        columns.append((known.astype(np.int64), sizes[known], each_loss[known], each_hit[known]))
    return _join(scope, columns)


class _Meanings:
    """The tables of class names that are in use, each once, and whose is which; one of None where classes are what they are."""

    def __init__(self, federation: Federation, names: Ids | None) -> None:
        self.federation = federation
        self.tables: list[Ids | None] = [None]
        self.which, self.shares = np.zeros(len(federation), np.int64), np.ones(1)
        if names is not None:
            tables, which, counts = np.unique(names, axis=0, return_inverse=True, return_counts=True)
            self.tables, self.which, self.shares = list(tables), which.reshape(-1), counts / len(names)

    def of(self, client: int) -> Ids | None:
        """A client's table."""
        return self.tables[int(self.which[client])]

    def labels(self, rows: Ids, table: Ids | None) -> Ids | None:
        """Labels of these rows by a table; None: their own."""
        return None if table is None else np.asarray(table[self._y(rows)])

    def own(self) -> Ids | None:
        """Labels of all clients' own test rows; None: the rows' own."""
        if self.tables[0] is None:
            return None
        test, tables = self.federation.test, np.stack([table for table in self.tables if table is not None])
        return np.asarray(tables[self.which[test.owner], self._y(test.values)])

    def _y(self, rows: Ids) -> Ids:
        y: Ids = self.federation.y[torch.from_numpy(rows)].cpu().numpy()
        return y


def own_models(correction: Correction, server: ServerState, memories: ClientStates) -> Callable[[int], ModelState] | None:
    """The model each client would start from now; None where that is the server's for everybody."""
    if not correction.personal_start:
        return None
    download = correction.download(server)
    return lambda client: correction.start(download, memories.of([client]).get(client))


def _means(value: Floats, owner: NDArray[np.int64], sizes: NDArray[np.int64]) -> Floats:
    """Mean of each client's rows; NaN for a client without any."""
    sums = np.bincount(owner, weights=value, minlength=len(sizes))
    out: Floats = np.divide(sums, sizes, out=np.full(len(sizes), np.nan), where=sizes > 0)
    return out


def _by_class(value: Floats, labels: NDArray[np.int64], federation: Federation) -> Floats:
    """Each client's class shares times the mean of ``value`` in each class."""
    classes = federation.classes or 0
    counts = np.bincount(labels, minlength=classes)
    sums = np.bincount(labels, weights=value, minlength=classes)
    of_class = np.divide(sums, counts, out=np.zeros(classes), where=counts > 0)
    share: Floats = federation.histogram(clean=True) * (counts > 0)
    total = share.sum(1)
    out: Floats = np.divide(share @ of_class, total, out=np.full(len(total), np.nan), where=total > 0)
    return out


def _join(scope: list[str], columns: list[tuple[NDArray[np.int64], NDArray[np.int64], Floats, Floats]]) -> dict[str, Any]:
    names = ("client", "examples", "loss", "accuracy")
    joined: dict[str, Any] = {name: np.concatenate([c[i] for c in columns]) if columns else [] for i, name in enumerate(names)}
    return {"scope": scope, **joined}
