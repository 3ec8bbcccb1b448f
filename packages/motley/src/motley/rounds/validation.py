"""Validation: the model's figures on samples that clients hold out of their training, and the best
round by them.

Three scopes of the table ``evaluations``, beside those of the test data: ``validation`` (the
validation samples of all clients together), ``validation_client`` (one row per client that has any)
and ``validation_mean`` (the unweighted mean over these). Labels are the clients' own: noisy where
their training labels are, and what a client calls a class now where meanings drift. A client with a
model of its own is examined with that.

They belong to the experimenter, as evaluations do: no virtual time, no traffic, and no draw.

The best round is the first with the best headline metric: on ``validation`` where the headline is
that of a common test set, on ``validation_mean`` where it is the mean over clients. Round 0 never
counts, nor does an evaluation of a last round that ``evaluate.every`` does not ask for: so a run
that is extended keeps the best round of one that was that long from the start. A private run keeps
no best round, because it would be chosen by clients' clear data.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import torch

from motley.core.arrays import Ids
from motley.engines.base import Engine
from motley.rounds.evaluation import Evaluation, Personal, evaluate
from motley.tasks.base import Federation, ModelState
from motley.tasks.metrics import Metric

__all__ = ["BestRound", "better", "validate", "validation_view"]


@dataclass(frozen=True)
class BestRound:
    """The best round so far by validation: the ``scope`` and its ``score``, when it was, and what a
    client starts from then."""

    scope: str
    score: float
    round: int
    model: ModelState


def better(
    best: BestRound | None,
    scope: str,
    score: float,
    higher: bool,
    round: int,
    model: Callable[[], ModelState],
) -> BestRound | None:
    """Return this round where it is the best so far, else the best one; the untrained model
    (round 0) is none.

    ``higher``: whether more of the score is better. ``model``: returns what is copied where the
    round is the best."""
    is_better = best is None or (score > best.score if higher else score < best.score)
    if not (round and math.isfinite(score) and is_better):
        return best
    made = model()
    return BestRound(
        scope,
        score,
        round,
        ModelState(*(getattr(made, part.name).clone() for part in fields(ModelState))),
    )


def validation_view(federation: Federation) -> Federation | None:
    """Return the federation with the clients' validation parts as their test parts, and no common
    test set; None without any."""
    held = federation.validation
    if not len(held.values):
        return None
    y = federation.y
    if federation.validation_labels is not None:
        y = y.index_copy(0, torch.from_numpy(held.values), federation.validation_labels.to(y))
    return replace(federation, y=y, test=held, global_test=None)


def validate(
    engine: Engine,
    model: ModelState,
    view: Federation,
    per_client: bool,
    personal: Personal | None,
    class_names: Ids | None,
    metrics: Sequence[Metric] = (),
) -> Evaluation:
    """Return the rows of one evaluation on validation samples, in the scopes of validation.

    Parameters
    ----------
    view: from :func:`validation_view`. The others as for :func:`motley.rounds.evaluation.evaluate`.
    """
    # else the engine would take its own, which are clean
    if class_names is None and view.validation_labels is not None:
        class_names = np.broadcast_to(np.arange(view.classes or 0), (len(view), view.classes or 0))
    evaluation = evaluate(
        engine, model, view, True, personal, personal is None, class_names, metrics
    )
    found = evaluation.rows
    mean, *each = range(len(found["scope"]))
    clients = found["client"][each]
    positions = view.positions(view.test.values)
    weight = (
        view.test.sizes
        if positions is None
        else np.bincount(view.test.owner, positions, minlength=len(view))
    )
    pooled = {
        name: np.average(found[name][each], weights=weight[clients])
        for name in ("loss", "accuracy")
    }
    whole = {"client": -1, "examples": found["examples"][mean], **pooled}
    shown = [mean, *(each if per_client else ())]
    columns = {name: np.concatenate([[value], found[name][shown]]) for name, value in whole.items()}
    rows = {
        "scope": ["validation", "validation_mean", *["validation_client"] * (len(shown) - 1)],
        **columns,
    }
    return Evaluation(rows, _renamed(evaluation.metrics, per_client), {})


def _renamed(metrics: Mapping[str, Any], per_client: bool) -> dict[str, Any]:
    """Return rows of the table ``metrics`` in the scopes of validation, without those of clients
    unless they are asked for."""
    kept = [i for i, scope in enumerate(metrics["scope"]) if per_client or scope != "client"]
    rows = {name: [values[i] for i in kept] for name, values in metrics.items()}
    return {**rows, "scope": [_SCOPES[scope] for scope in rows["scope"]]}


_SCOPES = {"pooled": "validation", "mean": "validation_mean", "client": "validation_client"}
