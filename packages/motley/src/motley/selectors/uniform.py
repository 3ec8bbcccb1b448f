"""Random selection, uniform or weighted by data size: the baseline of every comparison.

McMahan, Moore, Ramage, Hampson, Aguera y Arcas: *Communication-Efficient Learning of Deep Networks
from Decentralized Data*, AISTATS 2017 (uniform). Li, Huang, Yang, Wang, Zhang: *On the Convergence
of FedAvg on Non-IID Data*, ICLR 2020 (the two weighted schemes).

    uniform_wor   m distinct, uniformly; inclusion probability m / K_A
                  a_k: the experiment's own (over the cohort's sizes, biased); unbiased: p_k K_A / m
    weighted_wr   m independent draws k ~ p with replacement;  a_k = multiplicity_k / m, unbiased
    weighted_wor  m successive draws k ~ p without replacement;
                  a_k = 1 / m, biased; unbiased: p_k / pi_k

``p_k = n_k / sum n`` over the available clients, ``K_A`` of them; ``pi_k`` is the inclusion
probability (Horvitz-Thompson), which is *not* ``m p_k``; it is exact up to 12 available clients,
above that Rosen's limit (``common/sampling.py``). The coefficients ``a_k`` are ``Cohort.weights``;
they count with ``weights = "selector"``.

State, per client: ``num_examples``, NaN while unknown.
Needs: nothing (``uniform_wor``), ``num_examples`` once (weighted or unbiased). Probe cost: none.

Deviations
----------
* Papers say "sample by p_k" and "weight by n_k" in different schemes; never do both. With
  ``weighted_*`` set ``weights = "selector"`` or ``"uniform"``, never ``"examples"``.
* INTERPRETATION-D: ``weighted_wr`` draws ``min(m, K_A)`` times also where that is everybody
  (docs/methods/selectors.md#too-few would return all available clients, which is another law); a
  client drawn repeatedly is trained once and carries its multiplicity.

Worked
------
p = (.5, .3, .2), m = 2: inclusion under ``weighted_wor`` is (.839286, .675, .485714). For client
values (1, 2, 4), whose target sum p v is 1.9, the mean of ``weighted_wr`` is 1.9, of
``weighted_wor`` 2.066071, by Horvitz-Thompson 1.9; ``uniform_wor`` gives 1.9 with p_k K / m, and
2.010714 with weights n_k over the cohort.

>>> from motley.selectors import Selector
>>> selector = Selector(Uniform("weighted_wr"), seed=1)
>>> cohort = selector.select(1, available_ids=range(5), m=3)
>>> int(cohort.multiplicity.sum()), float(round(cohort.weights.sum(), 12))
(3, 1.0)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from typing_extensions import override

from motley.core.arrays import Floats
from motley.core.paper import Paper, cite
from motley.core.records import Cohort, Draw, Reports, SelectionContext, SignalRequirements
from motley.core.table import ClientTable
from motley.selectors.common.client_signals import SIZE, put_sizes, shares
from motley.selectors.common.sampling import (
    inclusion_probabilities,
    successive_draws,
    with_replacement,
)
from motley.selectors.selector import SelectionRule


@dataclass(frozen=True)
class Uniform(SelectionRule[ClientTable]):
    """Choose clients at random.

    Parameters
    ----------
    variant: how clients are drawn, see above.
    unbiased: fill ``Cohort.weights`` with coefficients whose expectation is ``p_k``;
    ``weighted_wr`` always does.
    """

    variant: Literal["uniform_wor", "weighted_wr", "weighted_wor"] = "uniform_wor"
    unbiased: bool = False

    paper: ClassVar[Paper] = cite("mcmahan2017communication")

    @override
    def needs(self) -> SignalRequirements:
        sized = self.unbiased or self.variant != "uniform_wor"
        return SignalRequirements(enrolled=frozenset({SIZE}) if sized else frozenset())

    @override
    def draw(self, m: int, population: int) -> Draw | None:
        return None if self.needs().enrolled else Draw("without_replacement", m / population)

    @override
    def provides(self) -> frozenset[str]:
        if self.unbiased or self.variant != "uniform_wor":
            return frozenset({"weights"})
        return frozenset()

    @override
    def init(self) -> ClientTable:
        return ClientTable({SIZE: np.nan})

    @override
    def select(self, state: ClientTable, context: SelectionContext) -> Cohort:
        available = context.available
        m = context.m
        if self.variant == "uniform_wor":
            at = context.rng.choice(len(available), m, replace=False)
            equal = np.broadcast_to(1.0 / len(available), len(available))
            weights = shares(state, available)[at] * len(available) / m if self.unbiased else None
            return Cohort(available[at], weights, probabilities=equal)
        return self._weighted(shares(state, available), context)

    def _weighted(self, p: Floats, context: SelectionContext) -> Cohort:
        """Return a cohort drawn by the clients' shares of all samples, ``[n]``."""
        available = context.available
        m = context.m
        if self.variant == "weighted_wr":
            at, counts = with_replacement(p, m, context.rng)
            return Cohort(available[at], counts / m, counts, probabilities=p)
        at = successive_draws(p, m, context.rng)
        if not self.unbiased:
            return Cohort(available[at], np.full(len(at), 1.0 / len(at)), probabilities=p)
        # 0 only for clients without data: their weight is 0
        chance = inclusion_probabilities(p, m)[at]
        return Cohort(
            available[at],
            np.divide(p[at], chance, out=np.zeros(len(at)), where=chance > 0),
            probabilities=p,
        )

    @override
    def observe(self, state: ClientTable, draw: int, reports: Reports) -> ClientTable:
        return put_sizes(state, reports) if self.needs().enrolled else state
