"""How far clients pull the model apart: gradients at the model that a round sends out, and updates
over some rounds.

    drift               B^2 / (B^2 + G^2), 0 where all gradients are the same, 1 where nothing is
                        common to them
    gradient_diversity  (B^2 + G^2) / G^2, the mean squared norm of a gradient over the squared
                        norm of their mean
    gradient_cosine     mean cosine between the gradients of two clients
    update_cosine       mean cosine between two updates of the same server step, over the rounds
                        that were run

``B^2`` is that of :mod:`motley.rounds.diagnostics`, ``G^2`` its squared norm of the mean
gradient. Where there are more than
:data:`CLIENTS` clients with samples, or theirs would be more than :data:`SAMPLES` or their
gradients more than :data:`NUMBERS`, some are drawn uniformly, and both are corrected for that:

    B^2 = n / (n - 1) (K - 1) / K B_n^2      G^2 = B_n^2 + G_n^2 - B^2      of n of K clients
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor
from typing_extensions import override

from motley.algorithms.parts import Parts
from motley.core.arrays import Floats, Ids
from motley.core.keys import Key
from motley.core.ragged import Ragged
from motley.experiments.build import Ready
from motley.rounds.data_drift import data_views_now
from motley.rounds.diagnostics import distances
from motley.rounds.loop import RoundLoop
from motley.rounds.round import Round
from motley.rounds.run_config import EvaluationSchedule, Stop
from motley.rounds.simulated import simulation
from motley.rounds.stage import Arrived, Stage
from motley.rounds.state import RunState
from motley.tasks.task import Federation
from motley_advice.heterogeneity.findings import Finding

CLIENTS = 200
LEAST = 10
"""Clients whose gradients are measured, at most and at least."""
SAMPLES = 20_000
NUMBERS = 200_000_000
"""Samples on which they are measured, and numbers of all their gradients: at most, unless that
would be fewer than the least number of clients."""
HELD = 20_000_000
"""Numbers of gradients that are held at a time, and of the sums of groups, unless that would be
fewer than :data:`GROUPS`."""
GROUPS = 5
LEAST_NORM = 1e-300


def drift_at_start(loop: RoundLoop) -> list[Finding]:
    """Return the findings at the initial model; empty where clients have no common model, or fewer
    than two have samples."""
    return _at_model(loop, "")


def among_clients(federation: Federation, key: Key) -> Federation:
    """Return a federation whose training rows are permuted among all clients, which keep their
    sizes: they differ by chance alone."""
    order = key.fold("among clients").numpy().permutation(len(federation.train.values))
    rows = Ragged(federation.train.offsets, federation.train.values[order])
    return dataclasses.replace(
        federation, train=rows, labels=federation.labels[torch.from_numpy(order)]
    )


def beside_chance(findings: list[Finding], by_chance: list[Finding]) -> list[Finding]:
    """Return the findings at the initial model with the drift of the same clients with permuted
    rows, and what that says."""
    drift = next((finding for finding in by_chance if finding.name == "drift"), None)
    if drift is None:
        return findings
    note = (
        "the drift of these sizes with rows permuted among all clients; what exceeds it is how "
        "clients differ"
    )
    chance = dataclasses.replace(drift, name="drift_by_chance", note=note)
    compared = list(findings)
    for place, finding in enumerate(findings):
        if finding.name == "drift":
            note = f"{finding.note}; {drift.value:.2f} by chance at these sizes"
            compared[place] = dataclasses.replace(finding, note=note)
    return [*compared, chance]


def drift_after(ready: Ready, rounds: int, tell: Callable[[int], None]) -> list[Finding]:
    """Return the findings after a short run of the experiment, and those of its updates.

    Parameters
    ----------
    ready: the parts of the run.
    rounds: server steps.
    tell: is told the number of each step that is done.
    """
    every = EvaluationSchedule(every=rounds + 1, per_client=False)
    config = dataclasses.replace(ready.config, stop=Stop(rounds=rounds), evaluate=every)
    watched = UpdateCosines(config.setting.algorithm.local.update)
    loop = simulation(config, ready.engine, ready.selector, ready.model, more=[watched])
    for step in range(1, rounds + 1):
        loop.step()
        tell(step)
    findings = _at_model(loop, "_after")
    cosines = np.array(list(watched.cosines.values()))
    if not len(cosines):
        return findings
    low, high = np.percentile(cosines, [2.5, 97.5]).tolist()
    last = Finding(
        "update_cosine",
        float(cosines.mean()),
        low,
        high,
        unit="cosine",
        how="estimated",
        needs="a client's whole update",
        federated="the updates divided by their norms, as a secure sum",
        federated_bytes=4 * loop.setting.task.layout.size,
        note=f"between two updates of one step; 95 % of {len(cosines)} steps lie in the interval",
    )
    return [*findings, last]


class UpdateCosines(Stage):
    """Remembers how alike the updates of each server step are.

    Parameters
    ----------
    update: an upload's parts -> its update ``[D]``.

    Attributes
    ----------
    cosines: server step -> mean cosine between two updates, of each that had at least two.
    """

    single_updates = "the inspection compares updates"

    def __init__(self, update: Callable[[Parts], Tensor]) -> None:
        self.update = update
        self.cosines: dict[int, float] = {}
        self._directions: Tensor | None = None  # their sum, of the step under way
        self._count = 0

    @override
    def upload(self, state: RunState[Any], step: Round, arrived: Arrived) -> Arrived:
        result = arrived.received.result
        if result.finite and "delta" in result.parts:
            update = self.update({**result.parts, **arrived.received.model_update})
            update = update.detach().cpu().double()
            direction = update / max(float(update.norm()), LEAST_NORM)
            sums = self._directions
            self._directions = direction if sums is None else sums + direction
            self._count += 1
        return arrived

    @override
    def total(self, state: RunState[Any], step: Round) -> Round:
        total, count = self._directions, self._count
        self._directions, self._count = None, 0
        self.cosines.pop(step.number, None)  # once more where a step was refused
        if total is not None and count > 1:
            self.cosines[step.number] = mean_cosine(float(total @ total), count)
        return step


def mean_cosine(square: float, n: int) -> float:
    """Return the mean cosine between two of n vectors; ``square``: the squared norm of the sum of
    their directions.

    >>> mean_cosine(2.0, 2), mean_cosine(4.0, 2)  # two at a right angle, two alike
    (0.0, 1.0)
    """
    return (square - n) / (n * (n - 1))


def of_all(b_n: float, g_n: float, n: int, population: int) -> tuple[float, float]:
    """Return B^2 and G^2 of all clients from those of n that were drawn.

    >>> of_all(4.0, 3.0, 5, 5)  # everybody
    (4.0, 3.0)
    """
    b = b_n * n / (n - 1) * (population - 1) / population
    return b, max(0.0, b_n + g_n - b)


def _at_model(loop: RoundLoop, suffix: str) -> list[Finding]:
    """Return the findings of gradients at the newest model, their names with a suffix."""
    clients = np.flatnonzero(loop.federation.seen > 0)
    numbers = loop.setting.task.layout.size
    chosen = _drawn(clients, loop.federation.seen, numbers, loop.setting.streams.key("probe"))
    holding = loop.backend.holding
    cut = holding is not None and holding.cut
    if len(chosen) < 2 or not loop.algorithm.local.shared or cut:
        return []
    views = data_views_now(loop.backend.drift, loop.state)
    download = loop.algorithm.local.download(loop.state.server)
    few = max(1, HELD // numbers)

    def pieces() -> Iterator[Floats]:
        for at in range(0, len(chosen), few):
            ids = chosen[at : at + few]
            view = None if views is None else views(ids)
            yield loop.engine.measure(
                ids, download, client_states={}, want={"gradient": None}, key=Key(0), data_view=view
            )["gradient"]

    return _findings(
        pieces(), n=len(chosen), population=len(clients), numbers=numbers, suffix=suffix
    )


def _drawn(clients: Ids, sizes: Ids, numbers: int, key: Key) -> Ids:
    """Return the clients whose gradients are measured, sorted."""
    mean = float(sizes[clients].mean()) if len(clients) else 1.0
    most = max(LEAST, min(CLIENTS, int(SAMPLES / mean), NUMBERS // numbers))
    if len(clients) <= most:
        return clients
    order = key.fold("gradients").numpy().permutation(len(clients))
    return np.sort(clients[order[:most]])


class _GradientSums:
    """Sums over gradients of n clients ``[D]`` that are never all held: of their directions, and of
    each of some groups."""

    def __init__(self, n: int, numbers: int) -> None:
        groups = min(n, max(GROUPS, HELD // numbers))
        self.group = np.arange(n) % groups
        self.sums = np.zeros((groups, numbers))
        self.squares = np.zeros(n)
        self.directions = np.zeros(numbers)
        self.seen = 0

    def watched(self, pieces: Iterable[Floats]) -> Iterator[Floats]:
        """Yield the pieces ``[c, D]``, adding them up."""
        for piece in pieces:
            rows = slice(self.seen, self.seen + len(piece))
            self.squares[rows] = np.einsum("kd,kd->k", piece, piece)
            self.directions += (
                piece / np.maximum(np.sqrt(self.squares[rows]), LEAST_NORM)[:, None]
            ).sum(0)
            np.add.at(self.sums, self.group[rows], piece)
            self.seen += len(piece)
            yield piece

    def interval(self, population: int) -> tuple[float, float]:
        """Return a 95 % interval of B^2 / (B^2 + G^2) of all clients, by the jackknife over groups
        drawn without replacement."""
        n = self.seen
        groups = len(self.sums)
        total = self.sums.sum(0)
        shares = np.zeros(groups)
        for j in range(groups):
            left = n - int((self.group == j).sum())
            remaining = total - self.sums[j]
            g_n = float(remaining @ remaining) / left**2
            b, g = of_all(
                float(self.squares[self.group != j].sum()) / left - g_n, g_n, left, population
            )
            shares[j] = b / (b + g) if b + g else 0.0
        mean = float(shares.mean())
        error = 1.96 * math.sqrt(
            (1 - n / population) * (groups - 1) / groups * float(np.square(shares - mean).sum())
        )
        return max(0.0, mean - error), min(1.0, mean + error)


def _findings(
    pieces: Iterable[Floats], n: int, population: int, numbers: int, suffix: str
) -> list[Finding]:
    """Return the findings of gradients that come in pieces ``[c, D]``, of n of ``population``
    clients; ``numbers``: D."""
    sums = _GradientSums(n, numbers)
    sample = distances(sums.watched(pieces), np.full((1, n), 1.0 / n))
    b, g = of_all(float(sample.spread[0]), sample.mean, n, population)
    how: Any = "exact" if n == population else "estimated"
    scope = f"of all {n} clients" if n == population else f"of all clients, by {n} that were drawn"
    common: dict[str, Any] = {
        "how": how,
        "needs": "a gradient of each client",
        "federated_bytes": 4 * (2 * numbers + 1),
        "federated": "gradients and their squared norms as one secure sum",
    }
    low, high = sums.interval(population) if n < population else (math.nan, math.nan)
    return [
        Finding(
            name=f"drift{suffix}",
            value=b / (b + g) if b + g else 0.0,
            low=low,
            high=high,
            unit="share",
            note=f"B^2 / (B^2 + G^2) {scope}",
            **common,
        ),
        Finding(f"B2{suffix}", b, note="mean squared distance to the mean gradient", **common),
        Finding(
            f"gradient_diversity{suffix}",
            (b + g) / g if g > 0 else math.nan,
            unit="times",
            note="mean squared norm of a gradient over the squared norm of their mean",
            **common,
        ),
        Finding(
            f"gradient_cosine{suffix}",
            mean_cosine(float(sums.directions @ sums.directions), n),
            unit="cosine",
            note="between the gradients of two clients",
            **common,
        ),
    ]
