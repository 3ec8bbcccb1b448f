"""The share of wrong labels per client, against what the nearest samples of other clients vote.

A sample's own label has no part in the vote, so a wrong label disagrees with a right vote. Votes are right where they are clear:
samples are ordered by margin, and the estimate is the disagreement among the clearest three quarters, half or quarter: the largest
part whose disagreement is that of the clearest quarter up to 0.01. What is wrong with such a vote is counted as noise; how much that
may be is in the interval, whose lower end takes off once more what the next clearest quarter disagrees beyond the clearest.
"""

from __future__ import annotations

import math

import numpy as np

from motley.core.arrays import Bools, Floats, Ints
from motley.heterogeneity.client_data import Sample
from motley.heterogeneity.concept_shift import Rules
from motley.heterogeneity.neighbours import VOTERS, Near, foreign, votes
from motley.heterogeneity.record import Finding

__all__ = ["noise_findings"]

_TOLERANCE = 0.01
_FEW = 5
"""Clear samples of a client from which on its rate counts."""
_HOPELESS = 0.5
"""Disagreement of the clearest quarter from which on votes are no measure of labels."""


def noise_findings(sample: Sample, near: Near, rules: Rules, population: int) -> list[Finding]:
    """Return ``label_noise``, the mean estimated share of wrong labels over clients, and ``label_noise_spread``, its deviation.

    Parameters
    ----------
    rules: groups of drawn clients; clients of a group whose rule is another one do not vote.

    Rates of half of the labels or more are not found where wrong labels agree with each other (pair flips): the vote is wrong, too.
    The binomial error of each client's own rate is taken off the spread. The error is about 0.02 where classes are easy to tell
    apart; where they are not, the estimate is too high, by as much as hard samples look wrong.
    """
    member = rules.group[sample.owner]
    found = votes(sample, near, foreign(sample, near) & ~rules.conflicts[member[:, None], member[near.at]], VOTERS)
    ordered = np.sort(found.share, axis=1)
    margin = np.where(found.number * 2 >= VOTERS, ordered[:, -1] - ordered[:, -2], -1.0)
    wrong = found.winner != sample.y
    part, slope = _clear_part(margin, wrong)
    clear = float(wrong[part].mean()) if part.any() else 1.0
    needs = "the updates of a small model, and one number per client"
    federated = (
        "ten rounds of federated averaging of a linear model; each client sends its share of labels that clear predictions deny"
    )
    size = 10 * 8 * sample.classes * (sample.x.shape[1] + 1) + 8
    if clear > _HOPELESS or not part.any():
        why = f"where neighbours agree most, they deny {clear:.0%} of the labels: wrong labels cannot be told from hard samples"
        return [
            Finding(name, math.nan, math.nan, math.nan, "share", None, "not measurable", needs, federated, size, why)
            for name in ("label_noise", "label_noise_spread")
        ]
    rates, number = _rates(sample, part, wrong)
    return _findings(sample, population, rates, number, slope, (needs, federated, size))


def _clear_part(margin: Floats, wrong: Bools) -> tuple[Bools, float]:
    """Return the samples with a vote that is clear enough, and how much the second clearest quarter disagrees beyond the clearest."""
    heard = np.flatnonzero(margin >= 0)
    order = heard[np.argsort(-margin[heard], kind="stable")]
    quarter = len(order) // 4
    part = np.zeros(len(margin), bool)
    if not quarter:
        return part, math.nan
    clearest, second = wrong[order[:quarter]].mean(), wrong[order[quarter : 2 * quarter]].mean()
    parts = [n for n in (3, 2) if wrong[order[: n * quarter]].mean() <= clearest + _TOLERANCE] or [1]
    part[order[: parts[0] * quarter]] = True
    return part, max(float(second - clearest), 0.0)


def _rates(sample: Sample, part: Bools, wrong: Bools) -> tuple[Floats, Ints]:
    """Return each drawn client's share of wrong labels among clear samples, NaN without any, and their number, ``[S]``."""
    number = np.bincount(sample.owner[part], minlength=len(sample.clients))
    sums = np.bincount(sample.owner[part], wrong[part], minlength=len(sample.clients))
    return np.where(number > 0, sums / np.maximum(number, 1), np.nan), number


def _findings(
    sample: Sample, population: int, rates: Floats, number: Ints, slope: float, cost: tuple[str, str, int]
) -> list[Finding]:
    held = number >= min(_FEW, int(number.max()))
    rate, count = rates[held], number[held]
    mean = float(rate.mean())
    error = 1.96 * float(rate.std(ddof=1)) / math.sqrt(len(rate)) if len(rate) > 1 else math.nan
    chance = float((mean * (1 - mean) / count).mean())
    spread = math.sqrt(max(float(rate.var()) - chance, 0.0))
    clients = np.full(population, np.nan)
    clients[sample.clients] = rates
    needs, federated, size = cost
    note = f"share of labels that clear votes of the nearest samples deny ({int(count.sum())} samples of {len(rate)} clients)"
    return [
        Finding("label_noise", mean, max(mean - error - slope, 0.0), min(mean + error, 1.0), "share", clients, "estimated",
                needs, federated, size, note),
        Finding("label_noise_spread", spread, unit="share", needs=needs, federated=federated, federated_bytes=size,
                note="standard deviation of clients' rates, without what chance adds"),
    ]  # fmt: skip
