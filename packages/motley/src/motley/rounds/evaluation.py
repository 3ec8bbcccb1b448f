"""Evaluation: how good the model is, for everybody together and for each client.

Three scopes, as rows of the table ``evaluations``: ``global`` (the common test set, where there is
one), ``client`` (one row per client) and ``mean`` (their unweighted mean, FedCVR-Bolt's metric).

A client is evaluated on its own test part. In a federation with only a common test set, client k's
figure is ``sum_c P_k(c) accuracy_c`` with ``P_k`` the clean class shares of its training data: the
expected figure on test data of its own mix (INTERPRETATION of "the same per-client class law for
client test splits", docs/methods/timing-and-world.md#partitions).

Where the meaning of classes drifts, a client's test labels are what it calls them now, and
``global`` is the mean over the clients' meanings (on a common test set, too: what a client drawn at
random would find). A moving window changes no test data.

Where a sample has a class per position, its weight in every mean is the number of its positions, so
that the figures are means over positions (an accuracy is the share of right ones).

Where an algorithm lets clients start from models of their own (FedBN's normalization), each client
is evaluated on its own; ``global`` is the server's model as it is, and left out where clients share
no model (RHFL's own models).

Where clients train slices of the model, each client is evaluated on the one that it holds, and the
model of each listed width for everybody (``width_0.5``).

Metrics beside loss and accuracy are rows of the table ``metrics``: over the common test set
(``global``), over each client's own test part (``client``), their mean over the clients where they
are defined (``mean``), and over all clients' test samples together (``pooled``). A common test set
says nothing of them for single clients.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from motley.core.arrays import Floats, Ids, Ints
from motley.engines.engine import Evaluator
from motley.tasks.metrics import COLUMNS, Metric
from motley.tasks.task import Federation, ModelState

Personal = Callable[[Sequence[int]], Iterator[ModelState]]
"""Client ids -> the models that these clients use, one after the other."""
Measured = Mapping[str, NDArray[Any]]
"""What an engine measured of each sample: name -> ``[n, ...]``."""


class Evaluation(NamedTuple):
    """The result of one evaluation.

    Parameters
    ----------
    rows: columns ``scope, client, examples, loss, accuracy`` of the table ``evaluations``; accuracy
    is NaN in regression.
    metrics: columns ``scope, client, examples, metric, value, undefined`` of the table ``metrics``.
    scores: metric -> its value on the common test set, else its mean over clients; empty where
    nothing was evaluated.
    """

    rows: Mapping[str, Any]
    metrics: Mapping[str, Any]
    scores: Mapping[str, float]

    def value(self, metric: str, scope: str) -> float:
        """Return a metric in a scope with one row; NaN where there is none."""
        if metric in COLUMNS:
            pairs = zip(self.rows["scope"], self.rows[metric], strict=True)
        else:
            pairs = zip(
                (
                    of if name == metric else ""
                    for of, name in zip(self.metrics["scope"], self.metrics["metric"], strict=True)
                ),
                self.metrics["value"],
                strict=True,
            )
        return next((float(value) for of, value in pairs if of == scope), float("nan"))


def evaluate(
    engine: Evaluator,
    model: ModelState,
    federation: Federation,
    per_client: bool,
    personal: Personal | None = None,
    shared: bool = True,
    class_names: Ids | None = None,
    metrics: Sequence[Metric] = (),
    prototypes: Tensor | None = None,
    beside: Mapping[str, ModelState] = MappingProxyType({}),
) -> Evaluation:
    """Evaluate a model for everybody together and for each client.

    Parameters
    ----------
    personal: the models of clients; None: ``model`` for all of them.
    shared: whether there is a ``model`` for all clients; where there is none, there is no
    ``global`` row. Where clients have both, it is also examined on each client's own test samples,
    in the scopes ``shared_mean`` and ``shared_client``.
    class_names: what each client calls each class ``[K, C]``; None: classes are what they are.
    metrics: what is measured beside loss and accuracy.
    prototypes: of the classes ``[C, d]``: clients are also examined by the nearest prototype, in
    the scopes ``prototype_mean`` and ``prototype_client``.
    beside: scope -> a further model, such as ``width_0.5`` -> that of less width, in that scope on
    the common test set, and in ``width_0.5_mean`` over the clients' own test samples.
    """
    rows = _Rows(metrics)
    examination = _Examination(engine, federation, _Labelings(federation, class_names), rows)
    common = federation.global_test
    own_tests = len(federation.test.values) > 0
    by_labeling: list[Measured] = []
    if common is not None and shared:
        by_labeling = examination.add_global(model, common)
    users: list[tuple[Personal | None, str]] = [(personal, "")]
    if personal is not None and shared:
        users.append((None, "shared"))
    for models, whose in users:
        if own_tests:
            examination.add_own_tests(model, models, per_client, whose)
        elif common is not None and federation.targets == "classes":
            loss, hit = examination.by_class_shares(common, models, by_labeling)
            rows.add_clients(
                sizes=federation.train.sizes,
                loss=loss,
                hit=hit,
                per_client=per_client,
                whose=whose,
            )
    for scope, further_model in beside.items():
        if common is not None:
            examination.add_global(further_model, common, scope)
        if own_tests:
            examination.add_own_tests(further_model, None, False, scope)
    evaluation = rows.evaluation("mean" if personal is not None else "global")
    if prototypes is None or not prototypes.any():
        return evaluation
    from motley.rounds.holdings.prototypes import NearestPrototype, joined

    nearest = NearestPrototype(engine, federation, prototypes)
    by_prototype = evaluate(
        nearest,
        model,
        federation,
        per_client,
        personal=personal,
        shared=False,
        class_names=class_names,
    )
    return evaluation._replace(rows=joined(evaluation.rows, by_prototype.rows, "prototype"))


@dataclass(frozen=True)
class _Examination:
    """Adds figures of models to rows.

    Parameters
    ----------
    engine: computes losses and hits.
    federation: whose samples.
    labellings: what clients call classes.
    rows: that are added to.
    """

    engine: Evaluator
    federation: Federation
    labelings: _Labelings
    rows: _Rows

    @property
    def want(self) -> frozenset[str]:
        """What is measured of each sample."""
        return frozenset({"hit", *(metric.needs for metric in self.rows.metrics)})

    def add_global(self, model: ModelState, common: Ids, scope: str = "global") -> list[Measured]:
        """Add the figures on the common test set, the mean over the clients' meanings of classes,
        and return what was measured of every sample, by labelling."""
        labelings = self.labelings
        by_labeling: list[Measured] = [
            self.engine.evaluate(model, common, labelings.labels(common, table), self.want)
            for table in labelings.tables
        ]
        weight = self.federation.positions(common)
        shares = labelings.shares
        size = np.array([len(common)])
        loss, hit = (
            np.average(
                [_mean(measured[name], weight) for measured in by_labeling],
                keepdims=True,
                weights=shares,
            )
            for name in ("loss", "hit")
        )
        self.rows.add(scope, _ALL, size, loss=loss, accuracy=hit)
        for metric in self.rows.metrics:
            targets = [labelings.targets(common, table) for table in labelings.tables]
            values = [
                metric.value(measured[metric.needs], y, weight, of_all=True)
                for measured, y in zip(by_labeling, targets, strict=True)
            ]
            self.rows.add_metric(
                scope=scope,
                client=_ALL,
                examples=size,
                metric=metric,
                value=np.average(values, keepdims=True, weights=shares),
            )
        return by_labeling

    def _on_own_tests(self, model: ModelState, personal: Personal | None) -> Measured:
        """Return what is measured of every sample of the clients' own test parts, client by
        client."""
        engine = self.engine
        test = self.federation.test
        labelings = self.labelings
        if personal is None:
            labels = labelings.of_test_parts()
            return engine.evaluate(model, test.values, labels, self.want, sizes=test.sizes)
        tested = [k for k, rows in enumerate(test) if len(rows)]
        own = [test[k] for k in tested]
        parts = [
            engine.evaluate(model, rows, labelings.labels(rows, labelings.of(k)), self.want)
            for k, rows, model in zip(tested, own, personal(tested), strict=True)
        ]
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    def add_own_tests(
        self, model: ModelState, personal: Personal | None, per_client: bool, whose: str
    ) -> None:
        """Add the figures on the clients' own test parts, of their own models or of ``model``."""
        rows = self.rows
        measured = self._on_own_tests(model, personal)
        test = self.federation.test
        weight = self.federation.positions(test.values)
        owner = test.owner
        loss, hit = (_means(measured[name], owner, test.sizes, weight) for name in ("loss", "hit"))
        del owner  # eight bytes a sample
        rows.add_clients(sizes=test.sizes, loss=loss, hit=hit, per_client=per_client, whose=whose)
        if not rows.metrics:
            return
        targets = self.labelings.targets_of_test_parts()
        parts = [slice(a, b) for a, b in itertools.pairwise(test.offsets.tolist())]
        tested = np.flatnonzero(test.sizes > 0)
        for metric in rows.metrics:
            value = measured[metric.needs]
            each = [
                metric.value(value[at], targets[at], None if weight is None else weight[at])
                for at in map(parts.__getitem__, tested)
            ]
            rows.add_metric_clients(
                tested=tested,
                sizes=test.sizes[tested],
                metric=metric,
                each=np.array(each),
                pooled=metric.value(value, targets, weight, of_all=True),
                per_client=per_client,
                whose=whose,
            )

    def by_class_shares(
        self, common: Ids, personal: Personal | None, by_labeling: Sequence[Measured]
    ) -> tuple[Floats, Floats]:
        """Return each client's loss and accuracy ``[K]`` on the common test set, its classes
        weighted by the client's class shares.

        Parameters
        ----------
        by_labeling: the shared model's loss and hit of every sample, by labelling.
        """
        federation = self.federation
        labelings = self.labelings
        labels = federation.y[common].cpu().numpy()
        if personal is None:
            each = [
                [_by_class(measured[name], labels, federation) for name in ("loss", "hit")]
                for measured in by_labeling
            ]
            at = labelings.which, np.arange(len(federation))
            loss, hit = (np.stack(of)[at] for of in zip(*each, strict=True))
            return loss, hit
        clients = np.flatnonzero(federation.train.sizes).tolist()
        pairs = [
            self.engine.evaluate(model, common, labelings.labels(common, labelings.of(k)))
            for k, model in zip(clients, personal(clients), strict=True)
        ]
        alone = [
            [_by_class(measured[name], labels, federation)[k] for name in ("loss", "hit")]
            for k, measured in zip(clients, pairs, strict=True)
        ]
        out = np.full((2, len(federation)), np.nan)
        out[:, clients] = np.array(alone).T
        return out[0], out[1]


class _Labelings:
    """The distinct tables of class names in use, and which client uses which; one of None where
    classes are what they are."""

    def __init__(self, federation: Federation, class_names: Ids | None) -> None:
        self.federation = federation
        self.tables: list[Ids | None] = [None]
        self.which = np.zeros(len(federation), np.int64)
        self.shares = np.ones(1)
        if class_names is not None:
            tables, which, counts = np.unique(
                class_names, axis=0, return_inverse=True, return_counts=True
            )
            self.tables = list(tables)
            self.which = which.reshape(-1)
            self.shares = counts / len(class_names)

    def of(self, client: int) -> Ids | None:
        """Return a client's table."""
        return self.tables[int(self.which[client])]

    def labels(self, rows: Ids, table: Ids | None) -> Ids | None:
        """Return the labels of these samples under a table; None: their own."""
        return None if table is None else self.targets(rows, table)

    def targets(self, rows: Ids, table: Ids | None) -> NDArray[Any]:
        """Return the targets of these samples under a table."""
        return self._y(rows) if table is None else np.asarray(table[self._y(rows)])

    def targets_of_test_parts(self) -> NDArray[Any]:
        """Return the targets of all clients' own test samples."""
        labels = self.of_test_parts()
        return self._y(self.federation.test.values) if labels is None else labels

    def of_test_parts(self) -> Ids | None:
        """Return the labels of all clients' own test samples; None: the samples' own."""
        if self.tables[0] is None:
            return None
        test = self.federation.test
        tables = np.stack([table for table in self.tables if table is not None])
        return np.asarray(tables[self.which[test.owner], self._y(test.values)])

    def _y(self, rows: Ids) -> Ids:
        y: Ids = self.federation.y[torch.from_numpy(rows)].cpu().numpy()
        return y


_ALL = np.full(1, -1, dtype=np.int64)
"""The client id of rows that stand for all clients."""


class _Rows:
    """Rows of the tables ``evaluations`` and ``metrics``, added scope by scope."""

    def __init__(self, metrics: Sequence[Metric]) -> None:
        self.metrics = metrics
        self._rows = _Columns("client", "examples", "loss", "accuracy")
        self._metrics = _Columns("client", "examples", "value", "undefined")
        self._names: list[str] = []

    def add(self, scope: str, client: Ids, examples: Ids, loss: Floats, accuracy: Floats) -> None:
        """Add ``[n]`` rows of one scope to ``evaluations``."""
        self._rows.add(scope, client, examples, loss, accuracy)

    def add_clients(
        self, sizes: Ids, loss: Floats, hit: Floats, per_client: bool, whose: str = ""
    ) -> None:
        """Add the mean over the clients that have test samples and, where asked for, a row for each
        of them.

        ``whose``: begins the names of the scopes."""
        clients = len(sizes)
        every = np.count_nonzero(sizes) == clients  # a slice copies nothing
        tested: Ids | slice = slice(None) if every else np.flatnonzero(sizes)
        sizes, loss, hit = sizes[tested], loss[tested], hit[tested]
        if len(sizes):
            mean = [np.array([value.mean()]) for value in (loss, hit)]
            self.add(_scope(whose, "mean"), _ALL, np.array([sizes.sum()]), *mean)
        if per_client:
            self.add(
                _scope(whose, "client"), np.arange(clients)[tested], sizes, loss=loss, accuracy=hit
            )

    def add_metric(
        self,
        scope: str,
        client: Ids,
        examples: Ids,
        metric: Metric,
        value: Floats,
        undefined: Ints | None = None,
    ) -> None:
        """Add ``[n]`` rows of one scope to ``metrics``; ``undefined``: for how many clients the
        metric is undefined."""
        missing = np.isnan(value).astype(np.int64) if undefined is None else undefined
        self._metrics.add(scope, client, examples, value, missing)
        self._names += [metric.name] * len(client)

    def add_metric_clients(
        self,
        tested: Ids,
        sizes: Ids,
        metric: Metric,
        each: Floats,
        pooled: float,
        per_client: bool,
        whose: str,
    ) -> None:
        """Add a metric over all test samples together, its mean over the clients where it is
        defined, and each client's."""
        defined = each[~np.isnan(each)]
        all_of_them = np.array([sizes.sum()])
        mean = defined.mean(keepdims=True) if len(defined) else np.full(1, np.nan)
        self.add_metric(
            scope=_scope(whose, "pooled"),
            client=_ALL,
            examples=all_of_them,
            metric=metric,
            value=np.array([pooled]),
        )
        self.add_metric(
            scope=_scope(whose, "mean"),
            client=_ALL,
            examples=all_of_them,
            metric=metric,
            value=mean,
            undefined=np.array([len(each) - len(defined)]),
        )
        if per_client:
            self.add_metric(
                scope=_scope(whose, "client"),
                client=tested.astype(np.int64),
                examples=sizes,
                metric=metric,
                value=each,
            )

    def evaluation(self, headline: str) -> Evaluation:
        """Return all rows, and the value of every metric in the scope ``headline``, ``mean`` where
        there is none."""
        rows = self._rows.columns()
        metrics = {**self._metrics.columns(), "metric": self._names}
        if not rows["scope"]:
            return Evaluation(rows, metrics, {})
        scope = headline if headline in rows["scope"] else "mean"
        at = rows["scope"].index(scope)
        scores = {name: float(rows[name][at]) for name in ("loss", "accuracy")}
        entries = zip(metrics["scope"], self._names, metrics["value"], strict=True)
        return Evaluation(
            rows,
            metrics,
            scores | {name: float(value) for of, name, value in entries if of == scope},
        )


class _Columns:
    """Columns of numbers after a column ``scope``, filled block by block."""

    def __init__(self, *names: str) -> None:
        self.names = names
        self.scope: list[str] = []
        self.parts: list[tuple[NDArray[Any], ...]] = []

    def add(self, scope: str, *part: NDArray[Any]) -> None:
        """Add ``[n]`` rows of one scope, a column each."""
        self.scope += [scope] * len(part[0])
        self.parts.append(part)

    def columns(self) -> dict[str, Any]:
        """Return the columns by name."""
        joined: dict[str, Any] = {
            name: np.concatenate([part[i] for part in self.parts]) if self.parts else []
            for i, name in enumerate(self.names)
        }
        return {"scope": self.scope, **joined}


def _scope(whose: str, name: str) -> str:
    return f"{whose}_{name}" if whose else name


def _mean(value: Floats, weight: Ints | None) -> float:
    """Return the mean over samples, weighted where each has a number of positions."""
    return float(value.mean() if weight is None else np.average(value, weights=weight))


def _means(value: Floats, owner: Ids, sizes: Ids, weight: Ints | None) -> Floats:
    """Return the mean of each client's samples ``[K]``, weighted by their positions; NaN for a
    client without any."""
    if weight is not None:
        value = value * weight
        sizes = np.bincount(owner, weights=weight, minlength=len(sizes))
    # bincount adds in order: a mean has the same bits whoever is examined beside the client
    means = np.asarray(np.bincount(owner, weights=value, minlength=len(sizes)), np.float64)
    with np.errstate(invalid="ignore"):
        means /= sizes  # 0 / 0 is NaN
    return means


def _by_class(value: Floats, labels: Ids, federation: Federation) -> Floats:
    """Return each client's class shares times the mean of ``value`` in each class, ``[K]``."""
    classes = federation.classes or 0
    counts = np.bincount(labels, minlength=classes)
    sums = np.bincount(labels, weights=value, minlength=classes)
    of_class = np.divide(sums, counts, out=np.zeros(classes), where=counts > 0)
    # of a class without test samples nothing was measured: the other classes stand for it
    share: Floats = federation.histogram(clean=True) * (counts > 0)
    total = share.sum(1)
    out: Floats = np.divide(
        share @ of_class, total, out=np.full(len(total), np.nan), where=total > 0
    )
    return out
