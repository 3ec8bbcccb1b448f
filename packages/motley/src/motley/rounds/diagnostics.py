"""Diagnostics: what theorems assume and claim about a round, measured in the run. Off unless
``evaluate.diagnostics``.

Reference: docs/methods/hetero-select-v1.md#diagnostics.

    diversity.B2            1/K sum_k d_k,    d_k = ||g_k - g||^2,    g = 1/K sum_k g_k,
                            all K clients with training samples
    diversity.B2_selected   mean of d_k over the cohort (v1 Theorem III.2, v2 Theorem IV.1)
    diversity.B2_expected   sum_k p_k d_k, p the probabilities that the rule drew by; absent
                            where it draws by none
    diversity.G2            ||g||^2
    drift.measured          mean over the accepted of ||w_k - w||^2, before anything is compressed
    drift.bound             2 E^2 lr^2 / (1 + E lr mu) (G2 + B2), E local steps (v1)
    drift.bound_selected    the same with B2_selected (v2)
    error.*, client_error.*, weighted_error.*
                            what compression loses, see :class:`CompressionError`
    moved_squared           ||w_t - w_0||^2, w_t the model after step t
    local_rate              E lr; these two for v1's Lemma A.4, see
                            :func:`motley.results.measures.best_mu`

Symbols: ``w`` the model that was sent out in the round, ``g_k`` the gradient at w of client k's
mean loss over its own training samples, ``mu`` FedProx's. They are notes of the round (table
``rounds``), in server step 1, in every step after which the model is examined, and in the last
where ``stop.rounds`` says which that is. A value that is not finite is left out.

They are the experimenter's, not the method's: no virtual time passes, nothing is billed, no
selector hears of them, and the run goes on as it would without them. Wall time: a gradient over all
training samples of the federation; memory: five vectors ``[D]`` beside the gradients of a few
clients at a time.

Deviations and readings
-----------------------
* Every client counts alike in g, B2 and B2_selected, whatever its samples and the experiment's
  ``weights``, as in the theorems.
* g_k is measured in eval mode, without augmentation, on all of the client's samples as it sees them
  now, of the loss the algorithm trains with; without what that loss makes of other models (MOON)
  and with the model's own pseudo labels (FLASH).
* READING G^2, in the papers a bound on the squared norm of the global gradient, is that norm at w:
  G2.
* The bound is left out where it speaks of something else: clients with several learning rates or
  numbers of steps, a solver that is not plain SGD (clipped or not), a correction that shifts
  gradients (SCAFFOLD, FedDyn), uploads made from another version than w.
* Where the server steps on less than a cohort, a step's first choice is diagnosed, and a step
  without a choice is not; w is the newest model then.
* Methods without a model for everybody (FedBN, RHFL) are refused: their gradients are those of
  different models.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from motley.algorithms.parts import JobContext, Tensors
from motley.core.arrays import Floats, Ids
from motley.core.errors import EngineError
from motley.core.keys import Key
from motley.core.records import Cohort, Outcome, Reports
from motley.engines.engine import DataViews, Engine
from motley.rounds.in_flight import InFlight
from motley.rounds.run_config import RunConfig
from motley.transport.packet import Packet

__all__ = ["CompressionError", "Diagnosis", "Diagnostics", "distances"]

HELD = 8_000_000
"""Numbers of gradients that are held at a time: 64 MB."""
DONE = [int(Outcome.ACCEPTED), int(Outcome.REHEARSED)]
KINDS = ("as_allocated", "uniform")


class CompressionError:
    """The error of compressed uploads in one server step, under the allocated shares and if
    everybody sent the same share.

        aggregate    || sum_k w_k (v_k - C(v_k, theta_k)) ||^2
                     w_k the round's weights, summing to 1
        clients      mean of || v_k - C(v_k, theta_k) ||^2
        weighted     sum_k w_k || v_k - C(v_k, theta_k) ||^2
                     bounds the aggregate's, by Jensen

    once with the shares ``theta_k`` that were allocated, once with their mean for all clients: the
    same number of values in all (up to rounding). HeteRo-Select v2's Theorem IV.2 says that the
    first is smaller under shares by score. ``v_k`` is the update with the error memory, ``C`` the
    compressor's decoded output. Nothing is measured where all shares are equal.

    Deviations and readings
    -----------------------
    * INTERPRETATION Eq. 17 of HeteRo-Select v2 is taken for the weighted errors, which the
      theorem's argument compares: shares that grow with w_k |v_k|^2 send more of what counts.
    * The theorem is about top-k; any compressor that takes a share is measured alike.
    * READING the sums are over the uploads that arrived, the ``w_k`` the round's weights over their
      sum.
    * READING both errors are of the same ``v_k``: those of the run, whose memory grew under the
      shares that were allocated.
    * Curvature that was not measured, for a client that may send everything, is none under the
      uniform share either.
    * EF21's clients send changes of a vector that the server keeps, with no weight of the round:
      left out.
    """

    def __init__(self) -> None:
        self._sums: list[Tensor] = []  # weighted errors [D], one of each kind
        self._squares = np.zeros(2)
        self._weighted = np.zeros(2)
        self._weight = 0.0
        self._count = 0
        self._mean_share: float | None = None
        self._weights: dict[int, float] = {}

    def begin(self, clients: Ids, theta: Floats, weight: Floats) -> None:
        """Announce uploads of one model version: their clients, allocated shares and raw weights,
        ``[n]`` each."""
        self._mean_share = float(theta.mean()) if len(theta) and np.ptp(theta) > 0 else None
        self._weights = dict(zip(clients.tolist(), weight.tolist(), strict=True))

    def add(
        self, client: int, v: Tensor, update: Tensor, compress: Callable[[float], Packet]
    ) -> None:
        """Add one upload: ``update`` is what arrived of ``v``, ``compress`` what another share
        would have sent of it."""
        if self._mean_share is None:
            return
        weight = self._weights[client]
        whole = v.detach().cpu().double()
        errors = [
            whole - arrived.cpu().double()
            for arrived in (update, compress(self._mean_share).dense())
        ]
        squares = np.array([float(error @ error) for error in errors])
        self._squares = self._squares + squares
        self._weighted = self._weighted + weight * squares
        self._sums = self._sums or [torch.zeros_like(whole) for _ in KINDS]
        for total, error in zip(self._sums, errors, strict=True):
            total.add_(error, alpha=weight)
        self._weight = self._weight + weight
        self._count = self._count + 1

    def notes(self) -> Mapping[str, float]:
        """Return ``error.*`` of the aggregate, ``client_error.*`` and ``weighted_error.*``; empty
        where nothing was measured."""
        squares = zip(KINDS, self._squares, strict=True)
        clients = {
            f"client_error.{kind}": square / self._count for kind, square in squares if self._count
        }
        aggregate = [total / self._weight for total in self._sums] if self._weight else []
        if self._weight:
            clients |= {
                f"weighted_error.{kind}": sum_ / self._weight
                for kind, sum_ in zip(KINDS, self._weighted, strict=True)
            }
        return {
            **{
                f"error.{kind}": float(one @ one)
                for kind, one in zip(KINDS, aggregate, strict=False)
            },
            **clients,
        }


@dataclass(frozen=True)
class Diagnosis:
    """What was measured of one server step before its uploads arrived.

    Parameters
    ----------
    found: notes so far. sent: the message that went out to the diagnosed cohort. error: takes in
    what compression loses.
    """

    found: Mapping[str, float]
    sent: Tensors
    error: CompressionError = field(default_factory=CompressionError)


class Diagnostics:
    """Measures the quantities above in one run.

    Parameters
    ----------
    config, engine: of the run. first: ``[D]``, the initial model.
    """

    def __init__(self, config: RunConfig, engine: Engine, first: Tensor) -> None:
        self.asked = config.evaluate
        self.last = config.stop.rounds
        self.setting = config.setting
        self.engine = engine
        self.first = first
        self.clients = np.flatnonzero(config.setting.task.federation.seen > 0)

    def due(self, step: int) -> bool:
        """Return whether server step ``step`` (from 1) is diagnosed."""
        return self.asked.diagnostics and (step in (1, self.last) or step % self.asked.every == 0)

    def begin(
        self, step: int, sent: Tensors, available: Ids, cohort: Cohort, data_views: DataViews
    ) -> Diagnosis | None:
        """Measure all clients' gradients at the model that a cohort, chosen from ``available``,
        receives; None if none is due.

        Raises
        ------
        EngineError: the model or the loss has no gradient in eval mode.
        """
        if not self.due(step) or not len(self.clients):
            return None
        names, weights = self._weights(available, cohort)
        with np.errstate(over="ignore", invalid="ignore"):
            spread, square = distances(self._gradients(sent, data_views), weights)
        return Diagnosis(
            dict(zip(names, spread.tolist(), strict=True)) | {"diversity.G2": square}, sent
        )

    def _weights(self, available: Ids, cohort: Cohort) -> tuple[list[str], Floats]:
        """Return metric names and one client-weight vector per metric, each summing to 1; row 0 is
        the uniform mean."""
        k = len(self.clients)
        p = cohort.probabilities
        found = {"diversity.B2": np.full(k, 1.0 / k)}
        if len(cohort.ids):
            found["diversity.B2_selected"] = np.isin(self.clients, cohort.ids) / len(cohort.ids)
        if p is not None and p.sum() > 0:
            found["diversity.B2_expected"] = np.zeros(k)
            found["diversity.B2_expected"][np.searchsorted(self.clients, available)] = p / p.sum()
        return list(found), np.stack(list(found.values()))

    def _gradients(self, sent: Tensors, data_views: DataViews) -> Iterator[Floats]:
        """Yield the gradients of all clients, ``[c, D]`` at a time."""
        few = max(self.engine.threads, HELD // max(self.setting.task.layout.size, 1))
        for at in range(0, len(self.clients), few):
            ids = self.clients[at : at + few]
            try:
                yield self.engine.measure(
                    ids, sent, {}, {"gradient": None}, Key(0), data_views(ids)
                )["gradient"]
            except RuntimeError as error:
                said = (
                    "evaluate.diagnostics needs a gradient of every client in eval mode, and "
                    f"there is none: {error}"
                )
                raise EngineError(
                    f"{said}; leave it out, or give the model another eval mode"
                ) from error

    def after(
        self, step: int, diagnosis: Diagnosis | None, landed: InFlight, reports: Reports, x: Tensor
    ) -> dict[str, float]:
        """Return the notes of server step ``step``; empty where none are due.

        Parameters
        ----------
        landed, reports: dispatches that ended with the step, rows alike. x: ``[D]``, the model
        after it.
        """
        if not self.due(step):
            return {}
        found = {} if diagnosis is None else dict(diagnosis.found)
        moved = x.cpu().double() - self.first.cpu().double()
        found["moved_squared"] = float(moved @ moved)
        found |= {} if diagnosis is None else diagnosis.error.notes()
        done = np.flatnonzero(np.isin(reports.outcome, DONE))
        if len(done) and diagnosis is not None:
            with np.errstate(over="ignore"):
                found["drift.measured"] = float(
                    np.square(reports.signal("update_norm")[done]).mean()
                )
            found |= self._bounds(found, diagnosis.sent, landed.take(done), step)
        return {name: value for name, value in found.items() if np.isfinite(value)}

    def _bounds(
        self, found: Mapping[str, float], sent: Tensors, landed: InFlight, step: int
    ) -> dict[str, float]:
        lines = landed.timelines
        lr = landed.columns["lr"]
        solver = self.setting.solver
        one = [len(np.unique(column)) == 1 for column in (lr, lines.steps)]
        unclipped: Any = dataclasses.replace(solver, clip=None)  # type: ignore[type-var]
        if not (all(one) and unclipped.plain and (lines.version == step - 1).all()):
            return {}
        rate = float(lr[0])
        steps = int(lines.steps[0])
        ctx = JobContext(
            sent["x"], sent, None, steps, rate, 1, float(steps), self.setting.task.layout
        )
        correction = self.setting.algorithm.local.correction(ctx)
        if correction.offset is not None:
            return {"local_rate": steps * rate}
        factor = 2.0 * (steps * rate) ** 2 / (1.0 + steps * rate * float(correction.proximal))
        kinds = {"drift.bound": "diversity.B2", "drift.bound_selected": "diversity.B2_selected"}
        bounds = {
            name: factor * (found["diversity.G2"] + found[kind])
            for name, kind in kinds.items()
            if kind in found
        }
        return {"local_rate": steps * rate, **bounds}


def distances(gradients: Iterator[Floats], weights: Floats) -> tuple[Floats, float]:
    """Return ``sum_k W_rk ||g_k - g||^2`` for each row of ``weights`` ``[r, K]``, and ``||g||^2``;
    ``g = sum_k W_0k g_k``.

    One pass over the gradients, which come in pieces ``[c, D]``, in sums of ``u_k = g_k - g_0``, so
    that what all clients have in common cancels before it is squared:
    ``sum_k W_rk ||u_k||^2 - 2 <sum_k W_rk u_k, u> + ||u||^2``, u the mean.

    >>> pieces = [np.array([[1.0, 0.0], [3.0, 0.0]]), np.array([[5.0, 3.0]])]
    >>> spread, square = distances(iter(pieces), np.full((1, 3), 1 / 3))
    >>> # the mean is (3, 1): (5 + 1 + 8) / 3, and 10
    >>> round(float(spread[0]), 12), round(square, 12)
    (4.666666666667, 10.0)
    """
    at = 0
    first = np.zeros(0)
    sums = np.zeros((len(weights), 0))
    squares = np.zeros(len(weights))
    for piece in gradients:
        if not at:
            first = piece[0].copy()
            sums = np.zeros((len(weights), piece.shape[1]))
        u = piece - first
        part = weights[:, at : at + len(piece)]
        sums += part @ u
        squares += part @ np.einsum("kd,kd->k", u, u)
        at += len(piece)
    mean = sums[0]
    g = first + sums[0]
    return np.maximum(squares - 2.0 * (sums @ mean) + mean @ mean, 0.0), float(g @ g)
