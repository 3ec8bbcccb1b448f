"""Diagnostics: what theorems assume and claim about a round, measured in the run (methods 5). Off unless ``evaluate.diagnostics``.

    diversity.B2            1/K sum_k d_k,    d_k = ||g_k - g||^2,    g = 1/K sum_k g_k        all K clients with training samples
    diversity.B2_selected   mean of d_k over the cohort (v1 Theorem III.2, v2 Theorem IV.1)
    diversity.B2_expected   sum_k p_k d_k, p the probabilities that the rule drew by; absent where it draws by none
    diversity.G2            ||g||^2
    drift.measured          mean over the accepted of ||w_k - w||^2, before anything is compressed
    drift.bound             2 E^2 lr^2 / (1 + E lr mu) (G2 + B2), E local steps (v1)
    drift.bound_selected    the same with B2_selected (v2)
    error.*, client_error.* what compression loses, see :mod:`motley.rounds.compression_error`
    moved_squared           ||w_t - w_0||^2, w_t the model after step t
    local_rate              E lr; these two for v1's Lemma A.4, see :func:`motley.results.measures.best_mu`

Symbols: ``w`` the model that was sent out in the round, ``g_k`` the gradient at w of client k's mean loss over its own training
samples, ``mu`` FedProx's. They are notes of the round (table ``rounds``), in server step 1, in every step after which the model is
examined, and in the last where ``stop.rounds`` says which that is. A value that is not finite is left out.

They are the experimenter's, not the method's: no virtual time passes, nothing is billed, no selector hears of them, and the run
goes on as it would without them. Wall time: a gradient over all training samples of the federation; memory: five vectors ``[D]``
beside the gradients of a few clients at a time.

Deviations and readings
-----------------------
* Every client counts alike in g, B2 and B2_selected, whatever its samples and the experiment's ``weights``, as in the theorems.
* g_k is measured in eval mode, without augmentation, on all of the client's samples as it sees them now, of the loss the algorithm
  trains with; without what that loss makes of other models (MOON) and with the model's own pseudo labels (FLASH).
* READING G^2, in the papers a bound on the squared norm of the global gradient, is that norm at w: G2.
* The bound is left out where it speaks of something else: clients with several learning rates or numbers of steps, a solver that is
  not plain SGD (clipped or not), a correction that shifts gradients (SCAFFOLD, FedDyn), uploads made from another version than w.
* Where the server steps on less than a cohort, a step's first choice is diagnosed, and a step without any is not; w is the newest
  model then.
* Methods without a model for everybody (FedBN, RHFL) are refused: their gradients are those of different models.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from torch import Tensor

from motley.algorithms.base import JobContext, Tensors
from motley.core.arrays import Floats, Ids
from motley.core.errors import EngineError
from motley.core.keys import Key
from motley.core.records import Cohort, Outcome, Reports
from motley.engines.base import DataViews, Engine
from motley.rounds.compression_error import CompressionError
from motley.rounds.config import RunConfig
from motley.rounds.in_flight import InFlight
from motley.rounds.stopwatch import Stopwatch
from motley.rounds.upload import UploadPipeline

__all__ = ["Diagnostics", "distances"]


HELD = 8_000_000
"""Numbers of gradients that are held at a time: 64 MB."""
DONE = [int(Outcome.ACCEPTED), int(Outcome.REHEARSED)]


class Diagnostics:
    """Whoever measures in one run. Nothing of it outlives a server step, so nothing is saved.

    Parameters
    ----------
    plan, engine, press, watch: of the run. first: ``[D]``, the model it begins with.
    """

    def __init__(self, plan: RunConfig, engine: Engine, press: UploadPipeline, watch: Stopwatch, first: Tensor) -> None:
        self.asked, self.last, self.setting = plan.examine, plan.stop.rounds, plan.setting
        self.engine, self.press, self.watch, self.first = engine, press, watch, first
        self.clients = np.flatnonzero(plan.setting.task.federation.seen > 0)
        self._found: dict[str, float] = {}
        self._sent: Tensors = {}

    def due(self, step: int) -> bool:
        """Whether server step ``step`` (from 1) is diagnosed."""
        return self.asked.diagnostics and (step in (1, self.last) or step % self.asked.every == 0)

    def chosen(self, step: int, sent: Tensors, available: Ids, cohort: Cohort, data_views: DataViews) -> None:
        """A cohort goes out in step ``step`` with the model ``sent``, chosen from ``available``: measure all clients' gradients.

        Raises
        ------
        EngineError: the model or the loss has no gradient in eval mode.
        """
        if not self.due(step) or self._sent or not len(self.clients):
            return
        self._sent, self.press.compression_error = sent, CompressionError()
        names, weights = self._weights(available, cohort)
        with self.watch("examine"), np.errstate(over="ignore", invalid="ignore"):
            spread, square = distances(self._gradients(sent, data_views), weights)
        self._found = dict(zip(names, spread.tolist(), strict=True)) | {"diversity.G2": square}

    def _weights(self, available: Ids, cohort: Cohort) -> tuple[list[str], Floats]:
        """Rows that sum to 1 over the clients, the first for their mean, and what each weighs distances for."""
        k, p = len(self.clients), cohort.probabilities
        found = {"diversity.B2": np.full(k, 1.0 / k)}
        if len(cohort.ids):
            found["diversity.B2_selected"] = np.isin(self.clients, cohort.ids) / len(cohort.ids)
        if p is not None and p.sum() > 0:
            found["diversity.B2_expected"] = np.zeros(k)
            found["diversity.B2_expected"][np.searchsorted(self.clients, available)] = p / p.sum()
        return list(found), np.stack(list(found.values()))

    def _gradients(self, sent: Tensors, data_views: DataViews) -> Iterator[Floats]:
        """Those of all clients, ``[c, D]`` at a time."""
        few = max(self.engine.threads, HELD // max(self.setting.task.layout.size, 1))
        for at in range(0, len(self.clients), few):
            ids = self.clients[at : at + few]
            try:
                yield self.engine.measure(ids, sent, {}, {"gradient": None}, Key(0), data_views(ids))["gradient"]
            except RuntimeError as error:
                said = f"evaluate.diagnostics needs a gradient of every client in eval mode, and there is none: {error}"
                raise EngineError(f"{said}; leave it out, or give the model another eval mode") from error

    def noted(self, own: Mapping[str, float], step: int, landed: InFlight, reports: Reports, x: Tensor) -> str | None:
        """The column ``notes`` of step ``step``: the selector's ``own``, then :meth:`after`; None where there are none."""
        notes = {**own, **self.after(step, landed, reports, x)}
        return json.dumps({name: float(value) for name, value in notes.items()}) if notes else None

    def after(self, step: int, landed: InFlight, reports: Reports, x: Tensor) -> dict[str, float]:
        """What is noted of step ``step``: whose flights ended in it, what became of them (rows alike), and the model after it."""
        found, sent, compression_error = self._found, self._sent, self.press.compression_error
        self._found, self._sent, self.press.compression_error = {}, {}, None
        if not self.due(step):
            return {}
        moved = x.cpu().double() - self.first.cpu().double()
        found["moved_squared"] = float(moved @ moved)
        found |= {} if compression_error is None else compression_error.notes()
        done = np.flatnonzero(np.isin(reports.outcome, DONE))
        if len(done) and sent:
            with np.errstate(over="ignore"):
                found["drift.measured"] = float(np.square(reports.signal("update_norm")[done]).mean())
            found |= self._bounds(found, sent, landed.take(done), step)
        return {name: value for name, value in found.items() if np.isfinite(value)}

    def _bounds(self, found: dict[str, float], sent: Tensors, landed: InFlight, step: int) -> dict[str, float]:
        lines, lr, solver = landed.timelines, landed.columns["lr"], self.setting.solver
        one = [len(np.unique(column)) == 1 for column in (lr, lines.steps)]
        unclipped: Any = dataclasses.replace(solver, clip=None)  # type: ignore[type-var]
        if not (all(one) and unclipped.plain and (lines.version == step - 1).all()):
            return {}
        rate, steps = float(lr[0]), int(lines.steps[0])
        ctx = JobContext(sent["x"], sent, None, steps, rate, 1, float(steps), self.setting.task.layout)
        gradient_correction = self.setting.algorithm.correction.gradient_correction(ctx)
        if gradient_correction.offset is not None:
            return {"local_rate": steps * rate}
        factor = 2.0 * (steps * rate) ** 2 / (1.0 + steps * rate * float(gradient_correction.proximal))
        kinds = {"drift.bound": "diversity.B2", "drift.bound_selected": "diversity.B2_selected"}
        bounds = {name: factor * (found["diversity.G2"] + found[kind]) for name, kind in kinds.items() if kind in found}
        return {"local_rate": steps * rate, **bounds}


def distances(gradients: Iterator[Floats], weights: Floats) -> tuple[Floats, float]:
    """``sum_k W_rk ||g_k - g||^2`` for each row of ``weights`` ``[r, K]``, and ``||g||^2``; rows sum to 1, ``g = sum_k W_0k g_k``.

    One pass over the gradients, which come in pieces ``[c, D]``, in sums of ``u_k = g_k - g_0``, so that what all clients have in
    common cancels before it is squared: ``sum_k W_rk ||u_k||^2 - 2 <sum_k W_rk u_k, u> + ||u||^2``, u the mean.

    >>> spread, square = distances(iter([np.array([[1.0, 0.0], [3.0, 0.0]]), np.array([[5.0, 3.0]])]), np.full((1, 3), 1 / 3))
    >>> round(float(spread[0]), 12), round(square, 12)  # the mean is (3, 1): (5 + 1 + 8) / 3, and 10
    (4.666666666667, 10.0)
    """
    at, first = 0, np.zeros(0)
    sums, squares = np.zeros((len(weights), 0)), np.zeros(len(weights))
    for piece in gradients:
        if not at:
            first, sums = piece[0].copy(), np.zeros((len(weights), piece.shape[1]))
        u, part = piece - first, weights[:, at : at + len(piece)]
        sums += part @ u
        squares += part @ np.einsum("kd,kd->k", u, u)
        at += len(piece)
    mean, g = sums[0], first + sums[0]
    return np.maximum(squares - 2.0 * (sums @ mean) + mean @ mean, 0.0), float(g @ g)
