"""HeteRo-Select v2: upload ratios proportional to the selector's scores, limited by what the link
carries in the time of a round.

Masud, Jahin, Hasan: *HeteRo-Select: Informativeness as the Participation Driver in Heterogeneous
Federated Learning*, arXiv:2508.06692v2, equation 8. Reference:
docs/methods/compression.md#by-score, docs/methods/hetero-select.md#score.

    theta_k  = clip(min(S_k / mean S  theta_t, cap_k), least, 1)          mean over the cohort
    cap_k    = B_k T_b / (32 D)
    T_b      = theta_avg 32 D / B_mean + H c_mean
    theta_k  = 1 in the warm-up

Symbols: ``S_k`` the selector's score; ``theta_t`` budget of the round; ``B_k`` uplink; ``D``
numbers in an update; ``H`` local steps; ``c_mean`` seconds per step. Ratios are not rescaled after
clipping: where the ceiling or ``least`` binds, their mean is not theta_t.

Deviations and readings
-----------------------
* ``least``, ``B_mean`` = 3 Mb/s and ``c_mean`` = 0.3 s are the authors' code's, whose log of a run
  on CIFAR-10 they reproduce.
* The ceiling spends all of T_b on the upload though T_b has the compute time in it: AlexNet's is
  0.24 at 1 Mb/s and no ceiling at 5, logistic regression's never binds. ``cap = "upload_only"``
  (INTERPRETATION-D) is ``B_k max(T_b - compute_s, 0) / (32 D)``.
* Text and code differ in the warm-up: ``as_published = "code"`` scales and caps it like any other
  round (docs/methods/hetero-select.md#code, row 5). The code's cosine is an option of the budget.
* All scores (near) 0: theta_t for all clients, with ceiling and least as usual. A client of score 0
  sends ``least``.
* READING where clients differ in steps, H is the cohort's mean.

Worked
------
The authors' log of CIFAR-10, seed 42, round 2 (D = 2,781,514, theta_t = .28): S = (.74501, .43066,
.94511, .84953, .91953, .75827, .73676, .81101, .97043, .77706), B = (2.302, 4.594, 4.269, 1.643,
2.989, 3.608, 3.764, 1.897, 1.58, 4.772) Mb/s give theta = (.26261, .15181, .33315, .29946, .32413,
.26729, .25971, .28588, .34207, .27391) and 31.153 MB. Over all 100 rounds every logged theta,
megabyte and second is reproduced to rounding; the realized mean of theta / theta_t is .989.
Ceilings of AlexNet: (.235, .706, 1.176) at 1, 3, 5 Mb/s.

>>> context = AllocationContext(
...     np.arange(4), budget=0.2, average=0.2, warm=False, size=7850, examples=np.ones(4),
...     steps=np.full(4, 50.0), compute_s=np.full(4, 15.0), uplink_mbps=np.full(4, 3.0),
...     scores=np.array([1, 0.5, 0.3, 0.2]),
... )
>>> ByScore().ratios({}, context).round(6).tolist()
[0.4, 0.2, 0.12, 0.08]
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from motley.core.arrays import Floats
from motley.core.errors import ConfigError, ContractError
from motley.core.paper import Paper, cite
from motley.transport.allocators.allocator import (
    LEAST,
    AllocationContext,
    Allocator,
    State,
    check_least,
)
from motley.transport.ledger import VALUE_BITS

NOTHING = 1e-8
"""A mean score below it counts as 0."""


@dataclass(frozen=True)
class ByScore(Allocator):
    """Upload ratios proportional to the selector's scores, with a ceiling by bandwidth.

    Parameters
    ----------
    as_published: treatment of the warm-up, see above.
    cap: ``"published"``, ``"upload_only"`` (only the time that is left for the upload), or
    ``"none"``.
    least: smallest ratio.
    mean_mbps, mean_step_s: B_mean and c_mean, which determine T_b.
    time_budget_s: T_b in seconds; None: as above.
    """

    as_published: Literal["text", "code"] = "text"
    cap: Literal["published", "upload_only", "none"] = "published"
    least: float = LEAST
    mean_mbps: float = 3.0
    mean_step_s: float = 0.3
    time_budget_s: float | None = None

    requires: ClassVar[frozenset[str]] = frozenset({"scores"})
    paper: ClassVar[Paper] = cite("masud2026heteroselect")

    def __post_init__(self) -> None:
        check_least(self.least)
        for name in ("mean_mbps", "mean_step_s", "time_budget_s"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise ConfigError(f"got {name} = {value}; expected a positive number")

    def ratios(self, state: State, context: AllocationContext) -> Floats:
        """Equation 8.

        Raises
        ------
        ContractError: the selector gives no scores.
        """
        if context.scores is None:
            raise ContractError("this selector gives no scores; use another allocator")
        if context.warm and self.as_published == "text":
            return np.ones(len(context.ids))
        mean = float(context.scores.mean()) if len(context.ids) else 0.0
        relative = context.scores / mean if mean >= NOTHING else np.ones(len(context.ids))
        return np.clip(
            np.minimum(relative * context.budget, self.ceiling(context)), self.least, 1.0
        )

    def round_s(self, context: AllocationContext) -> float:
        """Return T_b in seconds."""
        if self.time_budget_s is not None:
            return self.time_budget_s
        steps = float(context.steps.mean()) if len(context.ids) else 0.0
        return (
            context.average * VALUE_BITS * context.size / (1e6 * self.mean_mbps)
            + steps * self.mean_step_s
        )

    def ceiling(self, context: AllocationContext) -> Floats:
        """Return cap_k ``[m]``, infinite where there is none."""
        if self.cap == "none":
            return np.full(len(context.ids), np.inf)
        left = np.full(len(context.ids), self.round_s(context))
        if self.cap == "upload_only":
            left = np.maximum(left - context.compute_s, 0.0)
        whole_s = context.whole_s
        return np.where(whole_s > 0, left / np.where(whole_s > 0, whole_s, 1.0), np.inf)
