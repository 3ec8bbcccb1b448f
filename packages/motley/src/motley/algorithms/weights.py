"""The weights of updates in the aggregation, by name.

Reference: docs/methods/index.md#weights.

====================  =======================  ===========  ====================================
mode                  raw weight of client k   divided by   unbiased for ``sum p_k F_k`` when
====================  =======================  ===========  ====================================
``examples``          n_k                      their sum    only approximately (ratio
                                                            estimator); the default
``uniform``           1                        their sum    clients are drawn with p_k and
                                                            replacement
``horvitz_thompson``  K p_k                    how many     clients are drawn uniformly without
                                                            replacement
``score``             the selector's score     their sum    biased by design; all scores 0:
                                                            uniform
``selector``          the selector's own       nothing      as the selector's paper says
                      coefficient
``selector_ratio``    the selector's own       their sum    -
                      coefficient
====================  =======================  ===========  ====================================

Raw weights are normalised over the accepted updates, after training, so a rejected or dropped
client does not shrink the step. The weight of a client drawn several times
(``Cohort.multiplicity``) is multiplied by that number, unless the selector gives coefficients.
"""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from motley.core.errors import ConfigError
from motley.core.records import Cohort

__all__ = ["Divide", "Weighting", "divide_by", "raw_weights"]

Weighting = Literal[
    "examples", "uniform", "horvitz_thompson", "score", "selector", "selector_ratio"
]
Divide = Literal["weight", "count", "none"]


def divide_by(mode: Weighting) -> Divide:
    """Return the divisor of the weighted sum."""
    if mode not in get_args(Weighting):
        raise ConfigError(
            f"got {mode!r}; expected one of: {', '.join(get_args(Weighting))}", "weights"
        )
    return "count" if mode == "horvitz_thompson" else "none" if mode == "selector" else "weight"


def raw_weights(
    mode: Weighting, cohort: Cohort, examples: NDArray[np.int64], total: int, population: int
) -> NDArray[np.float64]:
    """Return the raw weights ``[m]`` of a cohort.

    Parameters
    ----------
    examples: training samples of each cohort member ``[m]``. total: of all clients. population:
    clients that rounds may ask.

    Raises
    ------
    ConfigError: the weighting needs scores or coefficients that this selector does not give.
    """
    n = examples.astype(np.float64)
    if not len(cohort.ids):  # nobody was available, and the rule was not asked
        return n
    if mode in ("selector", "selector_ratio"):
        if cohort.weights is None:
            raise ConfigError(
                'this selector gives no coefficients of its own; use weights = "examples" or '
                '"uniform"',
                "weights",
            )
        return np.asarray(cohort.weights, dtype=np.float64)
    if mode == "score":
        if cohort.scores is None:
            raise ConfigError(
                'this selector gives no scores; use weights = "examples" or "uniform"', "weights"
            )
        scores = np.asarray(cohort.scores, dtype=np.float64)
        raw = scores if scores.any() else np.ones_like(scores)
    else:
        raw = {
            "examples": n,
            "uniform": np.ones_like(n),
            "horvitz_thompson": population * n / total,
        }[mode]
    return raw if cohort.multiplicity is None else raw * cohort.multiplicity
