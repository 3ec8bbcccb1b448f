"""All that can be measured of how clients' data differ, in one
:class:`~motley_advice.heterogeneity.findings.Inspection`."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection

from numpy.typing import ArrayLike

from motley.core.arrays import Ints
from motley.core.errors import DataError
from motley.core.keys import Key
from motley.tasks.task import NO_CLASSES, Federation, Task
from motley_advice.heterogeneity.client_data import ClientData, Sample, of_arrays, of_federation
from motley_advice.heterogeneity.concept_distance import concept_finding
from motley_advice.heterogeneity.duplicates import certain_copies, duplicate_findings, sample_hashes
from motley_advice.heterogeneity.feature_distance import feature_findings
from motley_advice.heterogeneity.findings import Finding, Inspection
from motley_advice.heterogeneity.label_skew import label_findings
from motley_advice.heterogeneity.neighbours import agreeing, nearest
from motley_advice.heterogeneity.outlying import outlying_clients
from motley_advice.heterogeneity.sizes import size_findings
from motley_advice.heterogeneity.wrong_labels import noise_findings

_SAMPLED = ("feature_shift", "domains", "concept_shift", "label_noise", "label_noise_spread")
_LEAST = 40
"""Samples below which neighbours say nothing."""
_COMPARED = 50
"""Clients of which pairs are compared."""
_DOUBTFUL = 0.03
"""Label noise or concept shift from which on features are compared only on samples whose label is
that of their neighbours."""


def measure(
    data: Task | Federation,
    key: Key,
    first: Ints | None = None,
    names: Ints | None = None,
    without: Collection[int] = (),
) -> Inspection:
    """Return how the training samples of a federation's clients differ, with the labels that
    clients have.

    Parameters
    ----------
    data: a federation, or a task that holds one.
    key: of the clients and samples drawn; the same key gives the same bits.
    first, names: the clients' data views under a drift: the position at which each client's window
    begins ``[K]``, and what each client calls each class ``[K, C]``.
    without: clients that are left out; the others are numbered anew.

    Raises
    ------
    DataError: no client has a training sample.

    Example
    -------
    >>> import numpy as np
    >>> from motley.tasks import from_arrays
    >>> x, y = np.arange(80.0).reshape(40, 2), np.arange(40) // 20
    >>> found = measure(from_arrays(x, y, np.arange(40) // 20), Key(0))
    >>> round(found["label_divergence"].value, 2), found["missing_classes"].value
    (0.55, 0.5)
    """
    federation = data.federation if isinstance(data, Task) else data
    samples = of_federation(federation, first, names)
    return _measured(samples.without(without) if without else samples, key)


def measure_arrays(
    features: ArrayLike, labels: ArrayLike, client_ids: ArrayLike, key: Key
) -> Inspection:
    """Return how the samples of clients differ, from plain arrays.

    Parameters
    ----------
    features: ``[n, ...]`` numbers.
    labels: ``[n]`` classes as whole numbers or strings, or real numbers of a regression.
    client_ids: ``[n]`` numbers or strings; clients are numbered in sorted order.
    key: of the clients and samples drawn.

    Raises
    ------
    DataError: lengths that differ, no samples, or features or labels that are no finite numbers.
    """
    return _measured(of_arrays(features, labels, client_ids), key)


def _measured(data: ClientData, key: Key) -> Inspection:
    sizes = data.rows.sizes
    if not sizes.any():
        raise DataError("no client has a training sample; there is nothing to measure")
    findings = [*size_findings(sizes), *label_findings(data)]
    notes: tuple[str, ...] = ()
    if data.per_sample:
        sample = data.sample(key.fold("inspect"))
        sampled, notes = _sampled(data, sample, key.fold("inspect"))
        findings += sampled
    else:
        why = f"{NO_CLASSES[data.targets]}; only laws of labels are measured"
        findings += [Finding(name, math.nan, how="not measurable", note=why) for name in _SAMPLED]
    hashes = sample_hashes(data)
    certain = certain_copies(data, hashes)
    if data.per_sample:
        outlying, columns = outlying_clients(data, hashes, certain, key.fold("inspect"))
    else:
        outlying, columns = ([], [])
    named = tuple(dataclasses.replace(client, name=data.name(client.client)) for client in outlying)
    findings += duplicate_findings(data, hashes, certain)
    return Inspection.of(
        findings, population=len(data), notes=notes, outlying=named, columns=tuple(columns)
    )


def _sampled(data: ClientData, sample: Sample, key: Key) -> tuple[list[Finding], tuple[str, ...]]:
    """Return the findings that a part of the samples is enough for, and what was read for them."""
    note = (
        f"features, concept and label noise: {len(sample.y)} samples of {len(sample.clients)} "
        "clients, drawn by the seed"
    )
    population = len(data)
    folded = key.fold("features")
    if len(sample.clients) < 2 or len(sample.y) < _LEAST:
        why = (
            f"{len(sample.y)} samples of {len(sample.clients)} clients are too few to compare "
            "neighbours"
        )
        lost = [Finding(name, math.nan, how="not measurable", note=why) for name in _SAMPLED[2:]]
        return [*feature_findings(sample, sample, population, folded), *lost], (note,)
    near = nearest(sample)
    concept, rules = concept_finding(sample, near, population, key.fold("concept"))
    if data.targets == "numbers":
        why = "a wrong number cannot be told from what the features do not say"
        noise = [Finding(name, math.nan, how="not measurable", note=why) for name in _SAMPLED[3:]]
        note += "; quantile bins of the first target stand for classes"
    else:
        noise = noise_findings(sample, near, rules, population)
    doubtful = concept.value > _DOUBTFUL or noise[0].value > _DOUBTFUL
    few = _few_clients(data, sample, key.fold("few"))
    if doubtful:  # a class means the same where the vote of all says so
        if few is sample:
            sample = few = sample.part(agreeing(sample, near))
        else:
            sample = few = few.part(agreeing(few, nearest(few)))
    return [*feature_findings(sample, few, population, folded), concept, *noise], (note,)


def _few_clients(data: ClientData, sample: Sample, key: Key) -> Sample:
    """Return a sample of fewer clients with more samples each, if there are more; pairs of clients
    are compared on it."""
    if len(sample.clients) <= _COMPARED:
        return sample
    return data.sample(key, clients=_COMPARED)
