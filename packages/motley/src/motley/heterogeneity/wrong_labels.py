"""The share of wrong labels per client, against what the nearest samples of other clients vote.

A sample's own label has no part in the vote, so a wrong label disagrees with a right vote. Votes
are right where they are clear: samples are ordered by margin, and the estimate is the disagreement
among the clearest three quarters or half, if it is that of the clearest quarter up to 0.01. If not,
samples are hard rather than labels wrong: the clearest quarter is taken, less what it disagrees
beyond its own clearer half (a straight line to votes without doubt), and the interval is wider by
as much on both sides.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import numpy as np

from motley.core.arrays import Bools, Floats, Ints
from motley.heterogeneity.client_data import Sample
from motley.heterogeneity.concept_distance import Rules
from motley.heterogeneity.findings import Finding
from motley.heterogeneity.neighbours import VOTERS, Near, foreign, votes

__all__ = ["noise_findings"]

_TOLERANCE = 0.01
_FEW = 5
"""Clear samples of a client from which on its rate counts."""
_HOPELESS = 0.5
"""Disagreement of the clearest quarter from which on votes are no measure of labels."""
_HARD = 0.03
_DENIED = 0.3
"""The same for disagreement that hard samples make in part: that part, and the whole."""


def noise_findings(sample: Sample, near: Near, rules: Rules, population: int) -> list[Finding]:
    """Return ``label_noise``, the mean estimated share of wrong labels over clients, and
    ``label_noise_spread``, its deviation.

    Parameters
    ----------
    rules: groups of drawn clients; clients of a group whose rule is another one do not vote.

    Rates of half of the labels or more are not found where wrong labels agree with each other (pair
    flips): the vote is wrong, too. The binomial error of each client's own rate is taken off the
    spread. The error is about 0.02 where classes are easy to tell apart; where they are not, the
    estimate is too high, by as much as hard samples look wrong.
    """
    member = rules.group[sample.owner]
    found = votes(
        sample,
        near,
        foreign(sample, near) & ~rules.conflicts[member[:, None], member[near.at]],
        VOTERS,
    )
    ordered = np.sort(found.share, axis=1)
    margin = np.where(found.number * 2 >= VOTERS, ordered[:, -1] - ordered[:, -2], -1.0)
    wrong = found.winner != sample.y
    part, clear, hard = _clear_part(margin, wrong)
    noise = partial(
        Finding,
        unit="share",
        needs="the updates of a small model, and one number per client",
        federated="ten rounds of federated averaging of a linear model; each client sends its "
        "share of labels that clear predictions deny",
        federated_bytes=10 * 8 * sample.classes * (sample.x.shape[1] + 1) + 8,
    )
    if clear > _HOPELESS or (hard > _HARD and clear > _DENIED):
        why = (
            f"where neighbours agree most, they deny {clear:.0%} of the labels: wrong labels "
            "cannot be told from hard samples"
        )
        return [
            noise(name, math.nan, how="not measurable", note=why)
            for name in ("label_noise", "label_noise_spread")
        ]
    rates, number = _rates(sample, part, wrong)
    return _findings(sample, population, rates, number, hard, noise)


def _clear_part(margin: Floats, wrong: Bools) -> tuple[Bools, float, float]:
    """Return the samples with a vote that is clear enough, the disagreement of the clearest
    quarter, and what of it hard samples make.

    The latter is 0 where the disagreement does not depend on the margin; else what the clearest
    quarter disagrees beyond its clearer half, which is how far a straight line falls from there to
    votes without any doubt.
    """
    heard = np.flatnonzero(margin >= 0)
    order = heard[np.argsort(-margin[heard], kind="stable")]
    quarter = len(order) // 4
    part = np.zeros(len(margin), bool)
    if quarter < 2:
        return part, 1.0, 0.0
    clearest = float(wrong[order[:quarter]].mean())
    parts = [n for n in (3, 2) if wrong[order[: n * quarter]].mean() <= clearest + _TOLERANCE]
    part[order[: (parts or [1])[0] * quarter]] = True
    hard = 0.0 if parts else max(clearest - float(wrong[order[: quarter // 2]].mean()), 0.0)
    return part, clearest, hard


def _rates(sample: Sample, part: Bools, wrong: Bools) -> tuple[Floats, Ints]:
    """Return each drawn client's share of wrong labels among clear samples, NaN without any, and
    their number, ``[S]``."""
    number = np.bincount(sample.owner[part], minlength=len(sample.clients))
    sums = np.bincount(sample.owner[part], wrong[part], minlength=len(sample.clients))
    return np.where(number > 0, sums / np.maximum(number, 1), np.nan), number


def _findings(
    sample: Sample,
    population: int,
    rates: Floats,
    number: Ints,
    hard: float,
    noise: Callable[..., Finding],
) -> list[Finding]:
    held = number >= min(_FEW, int(number.max()))
    rate = rates[held]
    count = number[held]
    mean = max(float(rate.mean()) - hard, 0.0)
    error = 1.96 * float(rate.std(ddof=1)) / math.sqrt(len(rate)) if len(rate) > 1 else math.nan
    chance = float((mean * (1 - mean) / count).mean())
    spread = math.sqrt(max(float(rate.var()) - chance, 0.0))
    clients = np.full(population, np.nan)
    clients[sample.clients] = np.maximum(rates - hard, 0.0)
    note = (
        f"share of labels that clear votes of the nearest samples deny ({int(count.sum())} "
        f"samples of {len(rate)} clients)"
    )
    return [
        noise(
            "label_noise",
            mean,
            max(mean - error - hard, 0.0),
            min(mean + error + hard, 1.0),
            per_client=clients,
            note=note,
        ),
        noise(
            "label_noise_spread",
            spread,
            note="standard deviation of clients' rates, without what chance adds",
        ),
    ]
