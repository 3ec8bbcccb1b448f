"""Measures of runs on quadratic objectives: how far the model is from the optimum, beside what
closed forms say.

Client k has ``f_k(w) = a_k / 2 ||w - m_k||^2``, and the intended objective is ``F``, the plain mean
of the ``f_k``: with ``a`` the mean of the ``a_k``, ``F(w) = F(w*) + a / 2 ||w - w*||^2``, so that
the test loss of a round tells the distance of its model to ``w*``. The clients' minima are drawn
again from the run's seed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from motley.core.arrays import Floats
from motley.core.keys import Streams
from motley.results import measures
from motley.results.load import Run
from motley.results.measures import Censored, Curve
from motley.tasks.quadratic import Quadratic, fedavg_fixed_point, fednova_fixed_point, minimum

FixedPoint = Callable[[ArrayLike, ArrayLike, ArrayLike, ArrayLike, float], Floats]
FIXED_POINTS: dict[str, FixedPoint] = {"fedavg": fedavg_fixed_point, "fednova": fednova_fixed_point}
"""Closed forms of the model that does not move any more, by the kind of averaging."""
_NAN = float("nan")


class _Objectives(NamedTuple):
    """Curvatures ``[K]``, minima ``[K, d]``, the optimum ``[d]`` of their mean and the loss
    there."""

    a: Floats
    m: Floats
    optimum: Floats
    least: float


def optimum_distances(run: Run) -> Curve:
    """Return the Euclidean distance of the model to the optimum of the intended objective, by
    round; empty for other tasks."""
    objectives = _objectives(run)
    if objectives is None:
        return Curve(np.empty(0), np.empty(0))
    losses = measures.curve(run, metric="loss")
    return Curve(
        losses.x,
        np.sqrt(np.maximum(2.0 * (losses.y - objectives.least) / objectives.a.mean(), 0.0)),
    )


def optimum_distance(run: Run, target: float | None) -> Censored:
    """Return the distance of the last model to the optimum of the intended objective."""
    along = optimum_distances(run)
    return Censored(float(along.y[-1]) if len(along.y) else _NAN, True)


def rounds_to_optimum(run: Run, target: float | None) -> Censored:
    """Return the first round with at most ``target`` times the distance that the initial model
    has."""
    along = optimum_distances(run)
    if target is None or not len(along.y):
        return Censored(_NAN, True)
    return measures.to_target(along, target * float(along.y[0]), higher_is_better=False)


def closed_form_distance(kind: str, run: Run, target: float | None) -> Censored:
    """Return the distance to the optimum of the point at which a kind of averaging stands still, by
    its closed form.

    NaN unless all clients take part with equal weights; steps are those that each client took, with
    plain SGD.
    """
    objectives = _objectives(run)
    steps = _steps(run)
    if objectives is None or steps is None:
        return Censored(_NAN, True)
    rate = float(run.config["local"]["optimizer"]["lr"])
    point = FIXED_POINTS[kind](
        np.full(len(steps), 1.0 / len(steps)), objectives.a, objectives.m, steps, rate
    )
    return Censored(float(np.linalg.norm(point - objectives.optimum)), True)


def closed_form_gap(kind: str, run: Run, target: float | None) -> Censored:
    """Return how far apart the measured distance to the optimum and that of the closed form are."""
    ours = optimum_distance(run, None).value
    theirs = closed_form_distance(kind, run, None).value
    return Censored(abs(ours - theirs), True)


def _objectives(run: Run) -> _Objectives | None:
    task: dict[str, Any] = dict(run.config.get("task") or {})
    if task.pop("name", None) != "quadratic":
        return None
    options: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value for key, value in task.items()
    }
    key = Streams(run.seed, run.config.get("pin") or {}).key("data")
    data = Quadratic(**options).load(key, int(run.config["population"]))
    root = data.x[data.test].numpy()  # [K, 1]: sqrt(a_k)
    a = root[:, 0] ** 2
    m = data.y[data.test].numpy() / root
    optimum = minimum(np.ones(len(a)), a, m)
    return _Objectives(a, m, optimum, float((a * ((optimum - m) ** 2).sum(1)).mean() / 2))


def _steps(run: Run) -> Floats | None:
    """Return the local steps of every client in the first round ``[K]``; None unless all took part,
    with equal weights."""
    first = (run.column("clients", "round") == 1) & (run.column("clients", "outcome") == "accepted")
    clients = run.column("clients", "client")[first]
    if run.config.get("weights") != "uniform" or len(clients) != run.config.get("population"):
        return None
    return np.asarray(run.column("clients", "local_steps")[first][np.argsort(clients)], float)
