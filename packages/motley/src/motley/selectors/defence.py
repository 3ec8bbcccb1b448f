"""What a selector believes: one defence for all rules, between what clients report and the rule
that chooses by it.

A rule that chooses clients by what they say of themselves is led by those who lie. The defence
knows no rule and looks at nothing but :data:`motley.core.claims.TOPICS`, the numbers that are a
client's word. With b the limits of a signal at one occasion, of the last numbers of all clients
that ever gave one there:

    outliers   centre and spread of the logarithms, c = median and s = 1.4826 median |log x - c|:
               b = exp(c -+ max(outliers s, log 2)) (Hampel, J. Am. Stat. Assoc. 1974: half of the
               clients may lie, and the limits stay)
    beyond     a number beyond b counts as the median: it says nothing of its client; or as the
               limit, or as absent (seconds never: what is left of a sum of phases would be too
               short)
    clip       a number above this quantile of all counts as the quantile, as Oort cuts utilities
               (Lai et al., OSDI 2021: 0.95)
    cap        a client is not offered to the rule after 1 + cap * (an even share of all requests
               so far) requests, as long as there are m others (Oort's blacklist, relative to the
               size of the cohort)
    measured   in a simulation: norms, cosines and seconds are the server's own measures; nobody
               weighs more than it enrolled with

A vector is judged by its length, a histogram by its samples; they keep direction and shape. Numbers
below 0 count as absent, cosines are cut to [-1, 1]. Fewer than three numbers judge nobody. In the
aggregation sizes above b count as the median, too.

What it costs the honest: a client whose loss is truly far above all others counts less than it
should, and nobody is asked much more often than others. ``docs/choosing-clients.md`` has both in
numbers. What it cannot see: liars who agree on a plausible number; only ``cap`` and ``measured``
hold these. Rules that bring a defence of their own (``clip`` and ``blacklist`` of ``oort`` and
``pyramidfl``) keep it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple

import numpy as np
from annotated_types import Gt

from motley.core.arrays import Floats, Ids
from motley.core.bounds import Positive, Proportion
from motley.core.claims import TOPICS, row_sizes, said, with_values
from motley.core.errors import ConfigError
from motley.core.records import Outcome, Reports
from motley.core.table import ClientTable

_OCCASIONS = ("enrolled", "probed", "reported")
_COLUMNS = {
    f"{when} {name}": np.nan for when in _OCCASIONS for names in TOPICS.values() for name in names
}
_LEAST = 3
"""Numbers from which limits are drawn."""
_SIGMA = 1.4826
"""The standard deviation of a normal law over its median absolute deviation."""
_TINY = np.finfo(np.float64).tiny


class PlausibleRange(NamedTuple):
    """What is believed of one signal: from ``low`` to ``high``, around ``middle``; above ``top`` it
    counts as ``top``."""

    low: float = 0.0
    high: float = math.inf
    middle: float = math.nan
    top: float = math.inf


@dataclass(frozen=True)
class Defence:
    """How far a selector believes what clients say of themselves; formulas and costs in
    :mod:`motley.selectors.defence`."""

    outliers: Positive | None = 3.0
    """Robust standard deviations around the median, of logarithms, within which a number is
    believed; left out as ``"off"``."""
    clip: Proportion | None = None
    """Quantile of the clients' numbers above which a number counts as the quantile (Oort: 0.95)."""
    beyond: Literal["median", "limit", "absent"] = "median"
    """What an outlier counts as."""
    cap: Annotated[float, Gt(0)] | None = 2.0
    """A client is asked at most so many times its even share, and once more."""
    measured: bool = True
    """Believe nobody about what the server can measure itself: norms, cosines, seconds; and no
    larger size than at enrolment."""

    def __post_init__(self) -> None:
        for name, least in (("outliers", 0.0), ("cap", 0.0)):
            value = getattr(self, name)
            if value is not None and not least < value < math.inf:
                raise ConfigError(
                    f"got {name} = {value}; expected a finite number above {least:g}, or none to "
                    "leave it out"
                )
        if self.clip is not None and not 0 <= self.clip <= 1:
            raise ConfigError(f"got clip = {self.clip}; expected a quantile in [0, 1]")

    def init(self) -> ClientTable:
        """Return what is remembered before anything was observed: how often each client was asked,
        and its last numbers."""
        return ClientTable({"asked": 0.0, **_COLUMNS})

    def limits(self, numbers: Floats) -> PlausibleRange:
        """Return what is believed of a number, given the numbers of all clients ``[k]`` (NaN:
        absent).

        >>> Defence(outliers=1.0).limits(np.array([1.0, 1.0, 1.0, 4.0, 1e308]))
        PlausibleRange(low=0.5, high=2.0, middle=1.0, top=inf)
        """
        reported = numbers[numbers >= 0]
        if len(reported) < _LEAST:
            return PlausibleRange()
        if self.clip is None:
            at = len(reported)
        else:
            at = min(int(self.clip * len(reported)), len(reported) - 1)
        top = math.inf if self.clip is None else float(np.partition(reported, at)[at])
        logs = np.log(np.maximum(reported, _TINY))
        centre = float(np.median(logs))
        if self.outliers is None or centre <= math.log(_TINY):
            return PlausibleRange(top=top)
        half = max(self.outliers * _SIGMA * float(np.median(np.abs(logs - centre))), math.log(2.0))
        middle = math.exp(centre)
        high = math.exp(min(centre + half, 709.0))
        return PlausibleRange(math.exp(centre - half), high, middle, top)

    def cut(self, name: str, values: Floats, limits: PlausibleRange) -> Floats:
        """Return what is believed of these values, ``[n]`` or ``[n, d]``; NaN where nothing is."""
        if name == "cosine":
            return np.clip(values, -1.0, 1.0)
        amounts = _amounts(name, values)
        believed = np.where(amounts < 0, np.nan, self._believed(name, amounts, limits))
        if values.ndim == 1:
            return believed
        # A vector is shortened to what is believed of its length, and keeps its direction. Numbers
        # of liars overflow here, which is why nothing of it may warn.
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            scaled = (
                np.where(
                    amounts > 0, believed / amounts, np.where(np.isnan(believed), np.nan, 1.0)
                )[:, None]
                * values
            )
        return np.where((believed == amounts)[:, None], values, scaled)

    def _believed(self, name: str, amounts: Floats, limits: PlausibleRange) -> Floats:
        """Return what is believed of these amounts, ``[n]``."""
        nothing = (amounts == 0) & (name in _COUNTS)  # a client without samples is believed
        far = ((amounts < limits.low) | (amounts > limits.high)) & ~nothing
        replacement: float | Floats = np.clip(amounts, limits.low, limits.high)
        if self.beyond == "median":
            replacement = limits.middle
        elif self.beyond == "absent" and not name.endswith("_s"):
            replacement = np.nan
        return np.minimum(np.where(far, replacement, amounts), limits.top)

    def sizes(self, examples: Ids) -> Ids:
        """Return the numbers of samples by which clients weigh, ``[K]``."""
        sizes = examples.astype(np.float64)
        limits = self.limits(sizes[sizes > 0])
        above = sizes > min(limits.high, limits.top)
        believed = np.fmin(limits.middle if self.beyond == "median" else limits.high, limits.top)
        return (
            np.where(above, np.round(believed), sizes).astype(np.int64) if above.any() else examples
        )

    def believed(self, memory: ClientTable, reports: Reports) -> tuple[ClientTable, Reports]:
        """Return the next memory, and the reports as the rule may see them (ids sorted)."""
        if not len(reports):
            return memory, reports
        when, values = said(reports)
        memory = memory.put(
            reports.ids, {f"{when} {name}": _amounts(name, value) for name, value in values.items()}
        )
        out = {}
        for name, value in values.items():
            out[name] = self.cut(name, value, self.limits(memory.get(f"{when} {name}", memory.ids)))
        sent_out = np.isin(reports.outcome, [int(outcome) for outcome in _ASKED])
        if sent_out.any():
            memory = memory.add("asked", reports.ids[sent_out])
        return memory, with_values(reports, out) if out else reports

    def offered(self, memory: ClientTable, available: Ids, m: int) -> Ids:
        """Return the available clients (sorted ids) that the rule may choose from: at least m where
        there are as many."""
        if self.cap is None or not len(available):
            return available
        counts = memory.get("asked", available)
        even = float(memory.get("asked", memory.ids).sum()) / max(len(memory), len(available))
        free = counts < 1.0 + self.cap * even
        if free.sum() < m:
            # too few below the cap: those asked least, equal ones by id
            free[np.lexsort((available, counts))[:m]] = True
        return available if free.all() else available[free]


_ASKED = (Outcome.ACCEPTED, Outcome.LATE, Outcome.DROPPED, Outcome.REJECTED, Outcome.REHEARSED)
_COUNTS = ("num_examples", "label_histogram")


def _amounts(name: str, values: Floats) -> Floats:
    """Return one number for each row ``[n]``: the samples of a histogram, NaN with a count below 0;
    the length of another vector."""
    if name == "label_histogram":
        with np.errstate(over="ignore"):
            return np.asarray(np.where((values < 0).any(axis=1), np.nan, values.sum(axis=1)))
    return row_sizes(values)
