"""Poisson sampling: every available client takes part by a coin of its own, the draw that privacy
amplification is known for.

McMahan, Ramage, Talwar, Zhang: *Learning Differentially Private Recurrent Language Models*, ICLR
2018 (arXiv:1710.06963); the largest cohort is the truncation whose cost arXiv:2508.15089 computes.

    each available k:  in with probability rate, independent of everything else
    more than `largest`:  a uniform subset of that size stays

State: none. Needs: nothing. Cost: none. A cohort may be empty: the round then adds nothing, or
noise alone in a private run.

``cohort`` should be ``rate`` times the population: it is what other parts plan with. This is the
draw that privacy amplification (docs/privacy.md#accounts) gains most from.

Worked
------
rate = 0.1 of 1000: the cohort has mean 100 and deviation 9.5. A ``largest`` of 130, three
deviations above, is reached in about one round of a thousand, and costs an epsilon of 10.52 instead
of 9.97 (z = 1, 200 rounds).

>>> import numpy as np
>>> from motley.selectors.selector import Selector
>>> cohort = Selector(Poisson(rate=0.5), seed=0).select(1, np.arange(100), m=50)
>>> 30 < len(cohort.ids) < 70
True
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from typing_extensions import override

from motley.core.errors import ConfigError
from motley.core.paper import Paper, cite
from motley.core.records import Cohort, Draw, SelectionContext
from motley.core.table import ClientTable
from motley.selectors.selector import SelectionRule


@dataclass(frozen=True)
class Poisson(SelectionRule[ClientTable]):
    """Let every available client take part by a coin of its own.

    Parameters
    ----------
    rate: probability of each client, in (0, 1]; ``cohort`` should be the rate times the population.
    largest: most clients of a cohort; None: all whose coin says so.
    """

    paper: ClassVar[Paper] = cite("mcmahan2018learning")
    takes_fewer: ClassVar[bool] = True
    rate: float = 0.1
    largest: int | None = None

    def __post_init__(self) -> None:
        if not 0 < self.rate <= 1:
            raise ConfigError(
                f"got rate = {self.rate}; expected a probability above 0 and at most 1"
            )
        if self.largest is not None and self.largest < 1:
            raise ConfigError(f"got largest = {self.largest}; expected at least 1")

    @override
    def draw(self, m: int, population: int) -> Draw:
        return Draw("poisson", self.rate, self.largest)

    @override
    def init(self) -> ClientTable:
        return ClientTable({})

    @override
    def size(self, draw: int, m: int, available: int) -> int:
        most = available if self.largest is None else min(self.largest, available)
        return most if m else 0

    @override
    def select(self, state: ClientTable, context: SelectionContext) -> Cohort:
        ids = context.available[context.rng.random(len(context.available)) < self.rate]
        if len(ids) > context.m:
            # in order of ids, as a cohort by coins is
            ids = ids[np.sort(context.rng.choice(len(ids), context.m, replace=False))]
        return Cohort(ids)
