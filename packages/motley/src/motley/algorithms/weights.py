"""The weights of updates in the aggregation, by name.

| mode | weight of k in the cohort S | unbiased for ``sum p_k F_k`` when |
| --- | --- | --- |
| ``examples`` | n_k / sum of n over S | only approximately (ratio estimator); the default |
| ``uniform`` | 1 / M | clients are drawn with p_k and replacement |
| ``horvitz_thompson`` | (K / M) p_k | clients are drawn uniformly without replacement |
| ``score`` | s_k / sum of s over S | biased by design; all scores 0: uniform |
| ``selector`` | the selector's own coefficient | as the selector's paper says |
| ``selector_ratio`` | the same, divided by their sum | - |

``uniform`` is also unbiased where the objective is (1/K) sum F_k and clients are drawn uniformly.
Raw weights are divided over the accepted updates, M of them, after training, so a rejected or
dropped client does not shrink the step. The weight of a client drawn several times
(``Cohort.multiplicity``) is multiplied by that number, unless the selector gives coefficients.
Horvitz-Thompson weights need not sum to 1, and apply to updates, never to models; if a client's
chance to drop out depends on its data, even they are biased. The update of a client of score 0 is
discarded although it was sent and billed.

Worked
------
Two clients with delta = (1, 0) and (0, 1) and n = (3, 1): ``examples`` gives x + (0.75, 0.25),
``uniform`` x + (0.5, 0.5), ``horvitz_thompson`` with K = 4 and 8 samples in all (0.75, 0.25), with
16 (0.375, 0.125).
"""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from motley.core.errors import ConfigError
from motley.core.records import Cohort

Weighting = Literal[
    "examples", "uniform", "horvitz_thompson", "score", "selector", "selector_ratio"
]
Divide = Literal["weight", "count", "none"]
BOTH: tuple[Weighting, ...] = ("examples", "uniform")
"""The weightings under which a client has a weight of its own, also while it is absent."""


def divide_by(mode: Weighting) -> Divide:
    """Return the divisor of the weighted sum."""
    if mode not in get_args(Weighting):
        raise ConfigError(
            f"got {mode!r}; expected one of: {', '.join(get_args(Weighting))}", "weights"
        )
    if mode == "horvitz_thompson":
        return "count"
    return "none" if mode == "selector" else "weight"


def own_weights(
    mode: Weighting, examples: NDArray[np.int64] | NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the clients' own weights in the objective ``sum p_k F_k``, ``[n]``, to be divided by
    those of all clients for p_k: their samples under ``examples``, else 1."""
    return examples.astype(np.float64) if mode == "examples" else np.ones(len(examples))


def refuses_but_both(name: str, weights: str) -> str | None:
    """Return why a method that was published with equal weights does not take this weighting; None
    for those of :data:`BOTH`."""
    if weights in BOTH:
        return None
    return (
        f"{name} takes equal weights, as published, or weights by samples, which a client has in "
        f'every round; got weights = "{weights}", use "uniform" or "examples"'
    )


def raw_weights(
    mode: Weighting, cohort: Cohort, examples: NDArray[np.int64], total: int, population: int
) -> NDArray[np.float64]:
    """Return the raw weights ``[m]`` of a cohort.

    Parameters
    ----------
    examples: training samples of each cohort member ``[m]``.
    total: of all clients.
    population: clients that rounds may ask.

    Raises
    ------
    ConfigError: the weighting needs scores or coefficients that this selector does not give.
    """
    n = examples.astype(np.float64)
    if not len(cohort.ids):  # nobody was available, and the rule was not asked
        return n
    if mode in ("selector", "selector_ratio"):
        return _required(cohort.weights, "coefficients of its own")
    if mode == "score":
        scores = _required(cohort.scores, "scores")
        raw = scores if scores.any() else np.ones_like(scores)
    elif mode == "horvitz_thompson":
        raw = population * n / max(total, 1)  # all may claim to have no samples
    else:
        raw = own_weights(mode, n)
    return raw if cohort.multiplicity is None else raw * cohort.multiplicity


def _required(column: NDArray[np.float64] | None, name: str) -> NDArray[np.float64]:
    """Return a column of a cohort by which updates are weighed."""
    if column is None:
        raise ConfigError(
            f'this selector gives no {name}; use weights = "examples" or "uniform"', "weights"
        )
    return np.asarray(column, dtype=np.float64)
