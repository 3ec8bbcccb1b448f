"""Diagnostics: what theorems assume and claim about a round, measured in the run. Off unless
``evaluate.diagnostics``.

Reference: docs/methods/hetero-select-v1.md#diagnostics.

    diversity.B2            1/K sum_k d_k,    d_k = ||g_k - g||^2,    g = 1/K sum_k g_k,
                            all K clients with training samples
    diversity.B2_selected   mean of d_k over the cohort (v1 Theorem III.2, v2 Theorem IV.1)
    diversity.B2_expected   sum_k p_k d_k, p the probabilities that the rule drew by; absent
                            where it draws by none
    diversity.mean_gradient ||g||^2
    diversity.G2            largest ||g_k||^2: the least G^2 of v1's and v2's assumption, which
                            bounds every client's full gradient
    diversity.G2_batches    largest ||gradient of one mini-batch||^2 over all clients, BATCHES of
                            each: the assumption bounds stochastic gradients, too; with
                            ``evaluate.diagnostics = "batches"``
    drift.measured          mean over the accepted of ||w_k - w||^2, before anything is compressed
    drift.bound             2 E^2 lr^2 / (1 + E lr mu) (G^2 + B2), E local steps (v1), G^2 the
                            larger of the two above
    drift.bound_selected    the same with B2_selected (v2)
    error.*, client_error.*, linear_error.*, weighted_error.*
                            what compression loses, see
                            :class:`~motley.rounds.compression_error.CompressionError`
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
* READING G^2, in the papers a bound over the whole run, is the least that holds at w. On BATCHES
  mini-batches of a client it is less than over all of them.
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
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from typing_extensions import override

from motley.algorithms.parts import JobContext, ServerState, Tensors
from motley.core.arrays import Floats
from motley.core.errors import EngineError
from motley.core.keys import Key
from motley.core.records import Outcome, Reports
from motley.engines.engine import DataViews, Engine
from motley.rounds.backend import ClientBackend
from motley.rounds.compression_error import CompressionError
from motley.rounds.data_drift import data_views_now
from motley.rounds.in_flight import InFlight
from motley.rounds.round import LandedReports, Round
from motley.rounds.run_config import RunConfig
from motley.rounds.stage import ChosenCohort, Stage
from motley.rounds.state import RunState
from motley.rounds.stopwatch import Stopwatch
from motley.rounds.upload_pipeline import UploadPipeline

HELD = 8_000_000
"""Numbers of gradients that are held at a time: 64 MB."""
BATCHES = 8
"""Mini-batches of each client whose gradients are measured where they are asked for."""
DONE = [int(Outcome.ACCEPTED), int(Outcome.REHEARSED)]


@dataclass(frozen=True)
class Diagnosis:
    """What was measured of one server step before its uploads arrived.

    Parameters
    ----------
    step: its number.
    figures: notes so far.
    sent: the message that went out to the diagnosed cohort.
    error: takes in what compression loses.
    """

    step: int
    figures: Mapping[str, float]
    sent: Tensors
    error: CompressionError = field(default_factory=CompressionError)


class Diagnostics(Stage):
    """Measures the quantities above in one run.

    Parameters
    ----------
    engine, backend, watch: of the run.
    pipeline: of a run that compresses updates; None: it sends them as they are.
    """

    single_updates = "diagnostics compare them"

    def __init__(
        self,
        engine: Engine,
        backend: ClientBackend[Any],
        pipeline: UploadPipeline | None,
        watch: Stopwatch,
    ) -> None:
        self.engine = engine
        self.backend = backend
        self.pipeline = pipeline
        self.watch = watch
        self._diagnosis: Diagnosis | None = None

    @override
    def init(self, config: RunConfig, server: ServerState) -> None:
        self.asked = config.evaluate
        self.last = config.stop.rounds
        self.setting = config.setting
        self.first = server.model.x
        self.clients = np.flatnonzero(config.setting.task.federation.seen > 0)

    def due(self, step: int) -> bool:
        """Return whether server step ``step`` (from 1) is diagnosed."""
        return self.asked.diagnostics and (step in (1, self.last) or step % self.asked.every == 0)

    def _of(self, step: Round) -> Diagnosis | None:
        """Return what was measured of a step so far."""
        diagnosis = self._diagnosis
        return diagnosis if diagnosis is not None and diagnosis.step == step.number else None

    @override
    def chosen(self, state: RunState[Any], step: Round, choice: ChosenCohort) -> Round:
        """Measure all clients' gradients at the model that a step's first cohort receives.

        Raises
        ------
        EngineError: the model or the loss has no gradient in eval mode.
        """
        if not self.due(step.number) or not len(self.clients) or self._of(step) is not None:
            return step
        with self.watch("evaluate"):
            names, weights = self._weights(choice)
            views = data_views_now(self.backend.drift, state)
            # A run that diverges squares numbers near the largest float: the infinite figure is the
            # finding, and a warning would end the run that it describes.
            with np.errstate(over="ignore", invalid="ignore"):
                measured = distances(self._gradients(choice.download, views), weights)
                figures = dict(zip(names, measured.spread.tolist(), strict=True))
                figures |= {
                    "diversity.mean_gradient": measured.mean,
                    "diversity.G2": measured.largest,
                }
                if self.asked.diagnostics == "batches":
                    figures["diversity.G2_batches"] = self._largest_of_batches(
                        choice.download, step.number, views
                    )
        self._diagnosis = Diagnosis(step.number, figures, choice.download)
        if self.pipeline is not None:
            self.pipeline.error = self._diagnosis.error
        return step

    def _weights(self, choice: ChosenCohort) -> tuple[list[str], Floats]:
        """Return metric names and one client-weight vector per metric, each summing to 1; row 0 is
        the uniform mean."""
        k = len(self.clients)
        cohort = choice.cohort
        p = cohort.probabilities
        vectors = {"diversity.B2": np.full(k, 1.0 / k)}
        if len(cohort.ids):
            vectors["diversity.B2_selected"] = np.isin(self.clients, cohort.ids) / len(cohort.ids)
        if p is not None and p.sum() > 0:
            vectors["diversity.B2_expected"] = np.zeros(k)
            vectors["diversity.B2_expected"][np.searchsorted(self.clients, choice.available)] = (
                p / p.sum()
            )
        return list(vectors), np.stack(list(vectors.values()))

    def _gradients(self, sent: Tensors, data_views: DataViews | None) -> Iterator[Floats]:
        """Yield the gradients of all clients, ``[c, D]`` at a time."""
        # at least one for every thread, or some would wait; else as many as memory shall hold
        few = max(self.engine.threads, HELD // max(self.setting.task.layout.size, 1))
        for at in range(0, len(self.clients), few):
            ids = self.clients[at : at + few]
            view = None if data_views is None else data_views(ids)
            try:
                yield self.engine.measure(
                    ids,
                    download=sent,
                    client_states={},
                    want={"gradient": None},
                    key=Key(0),
                    data_view=view,
                )["gradient"]
            except RuntimeError as error:
                message = (
                    "evaluate.diagnostics needs a gradient of every client in eval mode, and "
                    f"there is none: {error}"
                )
                raise EngineError(
                    f"{message}; leave it out, or give the model another eval mode"
                ) from error

    def _largest_of_batches(self, sent: Tensors, step: int, data_views: DataViews | None) -> float:
        """Return the largest squared norm of a mini-batch's gradient over all clients."""
        key = self.setting.streams.key("probe").fold("mini-batch gradients", step)
        view = None if data_views is None else data_views(self.clients)
        norms = [
            self.engine.measure(
                self.clients,
                download=sent,
                client_states={},
                want={"grad_norm": 1},
                key=key.fold(number),
                data_view=view,
            )["grad_norm"]
            for number in range(BATCHES)
        ]
        return float(np.square(norms).max())

    @override
    def ended(self, state: RunState[Any], step: Round, reports: LandedReports) -> Round:
        """Return the round with its notes, where any are due."""
        if not self.due(step.number):
            return step
        diagnosis = self._of(step)
        figures = {} if diagnosis is None else dict(diagnosis.figures)
        moved = state.server.model.x.cpu().double() - self.first.cpu().double()
        figures["moved_squared"] = float(moved @ moved)
        if diagnosis is not None:
            figures |= diagnosis.error.notes()
            figures |= self._drift(figures, diagnosis, step, reports)
        self._diagnosis = None
        return step.noted({name: value for name, value in figures.items() if np.isfinite(value)})

    def _drift(
        self, figures: Mapping[str, float], diagnosis: Diagnosis, step: Round, reports: Reports
    ) -> dict[str, float]:
        """Return how far the clients' models drifted, and its bounds; nothing where no client was
        done."""
        done = np.flatnonzero(np.isin(reports.outcome, DONE))
        if not len(done):
            return {}
        # a square that is infinite is not noted
        with np.errstate(over="ignore"):
            measured = float(np.square(reports.signal("update_norm")[done]).mean())
        landed = step.landed.dispatches.take(done)
        bounds = self._bounds(figures, diagnosis.sent, landed, step.number)
        return {"drift.measured": measured, **bounds}

    def _bounds(
        self, figures: Mapping[str, float], sent: Tensors, landed: InFlight, step: int
    ) -> dict[str, float]:
        lines = landed.timelines
        lr = landed.columns["lr"]
        solver = self.setting.solver
        uniform = [len(np.unique(column)) == 1 for column in (lr, lines.steps)]
        unclipped: Any = dataclasses.replace(solver, clip=None)  # type: ignore[type-var]
        if not (all(uniform) and unclipped.plain and (lines.version == step - 1).all()):
            return {}
        rate = float(lr[0])
        steps = int(lines.steps[0])
        ctx = JobContext(
            x=sent["x"],
            download=sent,
            client_state=None,
            steps=steps,
            lr=rate,
            num_examples=1,
            solver_norm=float(steps),
            layout=self.setting.task.layout,
        )
        correction = self.setting.algorithm.local.correction(ctx)
        if correction.offset is not None or correction.drift is not None:
            return {"local_rate": steps * rate}
        factor = 2.0 * (steps * rate) ** 2 / (1.0 + steps * rate * float(correction.proximal))
        kinds = {"drift.bound": "diversity.B2", "drift.bound_selected": "diversity.B2_selected"}
        largest = max(figures["diversity.G2"], figures.get("diversity.G2_batches", 0.0))
        bounds = {
            name: factor * (largest + figures[kind])
            for name, kind in kinds.items()
            if kind in figures
        }
        return {"local_rate": steps * rate, **bounds}


class Distances(NamedTuple):
    """What :func:`distances` measures of gradients."""

    spread: Floats
    """``[r]``: weighted squared distances from the mean."""
    mean: float
    """Squared norm of the mean."""
    largest: float
    """Largest squared norm of a gradient."""


def distances(gradients: Iterator[Floats], weights: Floats) -> Distances:
    """Return ``sum_k W_rk ||g_k - g||^2`` for each row of ``weights`` ``[r, K]``, ``||g||^2`` and
    the largest ``||g_k||^2``; ``g = sum_k W_0k g_k``.

    One pass over the gradients, which come in pieces ``[c, D]``, in sums of ``u_k = g_k - g_0``, so
    that what all clients have in common cancels before it is squared:
    ``sum_k W_rk ||u_k||^2 - 2 <sum_k W_rk u_k, u> + ||u||^2``, u the mean.

    >>> pieces = [np.array([[1.0, 0.0], [3.0, 0.0]]), np.array([[5.0, 3.0]])]
    >>> spread, mean, largest = distances(iter(pieces), np.full((1, 3), 1 / 3))
    >>> # the mean is (3, 1): (5 + 1 + 8) / 3, and 10; the third has 25 + 9
    >>> round(float(spread[0]), 12), round(mean, 12), largest
    (4.666666666667, 10.0, 34.0)
    """
    at = 0
    first = np.zeros(0)
    sums = np.zeros((len(weights), 0))
    squares = np.zeros(len(weights))
    largest = 0.0
    for piece in gradients:
        if not at:
            # Moments about the first gradient, not about 0: where gradients hardly differ, the
            # difference of two large squares would be rounding alone. A copy: a view would keep the
            # whole piece in memory.
            first = piece[0].copy()
            sums = np.zeros((len(weights), piece.shape[1]))
        u = piece - first
        part = weights[:, at : at + len(piece)]
        sums += part @ u
        squares += part @ np.einsum("kd,kd->k", u, u)
        largest = max(largest, float(np.einsum("kd,kd->k", piece, piece).max()))
        at += len(piece)
    mean = sums[0]
    g = first + sums[0]
    # rounding leaves a bit less than 0 where all gradients are equal
    spread = np.maximum(squares - 2.0 * (sums @ mean) + mean @ mean, 0.0)
    return Distances(spread, float(g @ g), largest)
