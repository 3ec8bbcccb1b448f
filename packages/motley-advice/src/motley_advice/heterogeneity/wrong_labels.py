"""The share of labels per client that are hard to predict or wrong, against what the nearest
samples of other clients vote.

A sample's own label has no part in the vote, so a wrong label disagrees with a right vote. Votes
are right where they are clear: samples are ordered by margin, and the estimate is the disagreement
among the clearest three quarters or half, if it is that of the clearest quarter up to 0.01. If not,
samples are hard rather than labels wrong: the clearest quarter is taken, less what it disagrees
beyond its own clearer half (a straight line to votes without doubt), and the interval is wider by
as much on both sides.

What is left may still be hard rather than wrong; where a table says little about its classes, it is
at all clients. Clients differ only by the spread of their rates: its interval is that of the
variance sigma^2 at which ``sum d_k^2 / (v_k + sigma^2)`` is a quantile of chi-squared with K - 1
degrees of freedom, of what a client's rate lies beyond those of its classes, d, and its variance by
chance, v. Where labels are skewed, a client's own samples are missing among those of its classes
when others vote, which makes its labels look wrong; so the interval also covers what votes of all
clients, its own among them, say.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import numpy as np
from scipy.optimize import brentq
from scipy.stats import chi2

from motley.core.arrays import Bools, Floats, Ints
from motley_advice.heterogeneity.client_data import Sample
from motley_advice.heterogeneity.concept_distance import Rules
from motley_advice.heterogeneity.findings import Finding
from motley_advice.heterogeneity.neighbours import VOTERS, Near, foreign, votes

_NAMES = ("label_noise", "label_noise_spread")
_TOLERANCE = 0.01
_FEW = 5
"""Clear samples of a client from which on its rate counts."""
_HOPELESS = 0.5
"""Disagreement of the clearest quarter from which on votes are no measure of labels."""
_HARD = 0.03
_DENIED = 0.3
"""The same for disagreement that hard samples make in part: that part, and the whole."""


def noise_findings(sample: Sample, near: Near, rules: Rules, population: int) -> list[Finding]:
    """Return ``label_noise``, the mean estimated share of labels that are hard to predict or wrong
    over clients, and ``label_noise_spread``, its deviation.

    Parameters
    ----------
    rules: groups of drawn clients; clients of a group whose rule is another one do not vote.

    Rates of half of the labels or more are not found where wrong labels agree with each other (pair
    flips): the vote is wrong, too. The binomial error of each client's own rate is taken off the
    spread. The error is about 0.02 where classes are easy to tell apart; where they are not, the
    estimate is too high, by as much as hard samples look wrong.
    """
    if sample.classes < 2:
        why = "all samples have the same label"
        return [Finding(name, math.nan, how="not measurable", note=why) for name in _NAMES]
    member = rules.group[sample.owner]
    voters = foreign(sample, near) & ~rules.conflicts[member[:, None], member[near.at]]
    margin, wrong = _heard(sample, near, voters)
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
        return [noise(name, math.nan, how="not measurable", note=why) for name in _NAMES]
    own_margin, own_wrong = _heard(sample, near, np.ones(near.at.shape, bool))
    own_part = _clear_part(own_margin, own_wrong)[0]
    judged = [_counts(sample, part, wrong), _counts(sample, own_part, own_wrong)]
    return _findings(sample, population, judged, hard, noise=noise)


def _heard(sample: Sample, near: Near, voters: Bools) -> tuple[Floats, Bools]:
    """Return how clear the vote of the neighbours asked ``[m, reach]`` is, -1 where too few vote,
    and whether it denies the label, ``[m]``."""
    ballots = votes(sample, near, voters, VOTERS)
    ordered = np.sort(ballots.share, axis=1)
    margin = np.where(ballots.number * 2 >= VOTERS, ordered[:, -1] - ordered[:, -2], -1.0)
    return margin, ballots.winner != sample.y


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


def _counts(sample: Sample, part: Bools, wrong: Bools) -> tuple[Ints, Ints]:
    """Return the number of clear samples of each drawn client and class, and of those with a denied
    label, ``[S, C]``."""
    shape = (len(sample.clients), sample.classes)
    at = sample.owner * sample.classes + sample.y
    number, denied = (
        np.bincount(at[which], minlength=shape[0] * shape[1]).reshape(shape)
        for which in (part, part & wrong)
    )
    return number, denied


def _spread_interval(number: Ints, denied: Ints) -> tuple[float, float]:
    """Return the 95 % interval of the deviation of clients' rates beyond chance and beyond what
    classes of unlike rates explain.

    Parameters
    ----------
    number, denied: clear samples of each client and class, and those with a denied label ``[S,
    C]``.
    """
    total = number.sum(axis=1)
    least = total >= min(_FEW, int(total.max()))
    number = number[least]
    denied = denied[least]
    if len(number) < 2:
        return 0.0, 1.0
    rate = denied.sum(axis=0) / np.maximum(number.sum(axis=0), 1)
    held = number.sum(axis=1)
    beyond = (denied - number * rate).sum(axis=1) / held
    chance = np.maximum((number * rate * (1 - rate)).sum(axis=1) / held**2, 1e-9)

    def rest(variance: float, quantile: float) -> float:
        return float((beyond**2 / (chance + variance)).sum()) - quantile

    ends = []
    for quantile in chi2.ppf((0.975, 0.025), len(held) - 1).tolist():
        least = 0.0 if rest(0.0, quantile) <= 0 else brentq(rest, 0.0, 1e6, args=(quantile,))
        ends.append(min(math.sqrt(least), 1.0))
    return ends[0], ends[1]


def _findings(
    sample: Sample,
    population: int,
    judged: list[tuple[Ints, Ints]],
    hard: float,
    noise: Callable[..., Finding],
) -> list[Finding]:
    """Return the findings.

    Parameters
    ----------
    judged: clear samples of each client and class, and those with a denied label ``[S, C]``: where
    other clients vote, and where all do.
    hard: share of denied labels that hard samples make.
    """
    number, denied = judged[0]
    total = number.sum(axis=1)
    rates = np.where(total > 0, denied.sum(axis=1) / np.maximum(total, 1), np.nan)
    held = total >= min(_FEW, int(total.max()))
    rate = rates[held]
    count = total[held]
    mean = max(float(rate.mean()) - hard, 0.0)
    by_chance = float((mean * (1 - mean) / count).mean())
    spread = math.sqrt(max(float(rate.var()) - by_chance, 0.0))
    error, low, high = math.nan, math.nan, math.nan
    if len(rate) > 1:
        # clients that were not drawn have rates of their own
        drawn = len(rate) / max(int(held.sum()), population)
        own = max(float(rate.var(ddof=1)) - by_chance, 0.0) * (1 - drawn)
        sampled = max(float((rate * (1 - rate) / count).mean()), by_chance)
        error = 1.96 * math.sqrt((own + sampled) / len(rate))
        ends = [_spread_interval(*counts) for counts in judged]
        low = min(interval[0] for interval in ends)
        high = max(interval[1] for interval in ends)
    clients = np.full(population, np.nan)
    clients[sample.clients] = np.maximum(rates - hard, 0.0)
    note = (
        "share of labels that clear votes of the nearest samples deny, hard to predict or wrong "
        f"({int(count.sum())} samples of {len(rate)} clients)"
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
            min(low, spread),
            max(high, spread),
            note="standard deviation of clients' rates, without what chance adds",
        ),
    ]
