"""Ranks of many entrants over many environments, against one control: mean ranks, tests, wins and
losses.

In every environment an entrant's score is the mean difference of a measure to the control, paired
by seed; the control's is 0. Entrants are ranked by their scores, 1 the best, ties sharing the mean
of their ranks; a run without a finite number (one that diverged) ranks last.

READING: three tests, each where it is sound. Friedman's asks whether the entrants differ at all. An
entrant is compared with the control, and with the leader, by Wilcoxon's signed-rank test over
environments, corrected by Holm for the number of entrants: its verdict on two entrants does not
depend on who else takes part, as tests of mean ranks do. The critical difference of mean ranks by
Nemenyi is given beside them, for readers who look for it. Within one environment a win or a loss is
a 95 % t interval over seeds that excludes zero.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf, nan, sqrt

import numpy as np

from motley.core.arrays import Floats
from motley.results.measures import Spread, interval, spread
from motley_papers.power import LEVEL, holm, p_value

__all__ = [
    "Ranking",
    "Scores",
    "Standing",
    "critical_difference",
    "friedman_p",
    "rank",
    "ranks",
    "sign",
    "signed_rank_p",
]

Scores = Mapping[tuple[str, str], Mapping[int, float]]
"""(environment, entrant) -> seed -> the measure; infinite where a target was missed, NaN where a
run diverged."""


@dataclass(frozen=True)
class Standing:
    """What an entrant reached over all environments."""

    entrant: str
    mean_rank: float
    """Mean of its ranks over environments; 1 is the best."""
    low: float
    high: float
    """95 % t interval of the mean rank, over environments."""
    median: float
    """Median over environments of its difference to the control."""
    p: float
    """Holm-corrected p value of the signed-rank test against the control; NaN for the control."""
    p_leader: float
    """Holm-corrected p value of the signed-rank test against the leader; NaN for the leader."""
    wins: int
    ties: int
    losses: int
    """Environments in which the interval of the difference to the control lies above, around and
    below zero."""
    sure_wins: int
    sure_losses: int
    """Those of the wins and losses that are left after Holm's correction for every cell of the
    ranking."""


@dataclass(frozen=True)
class Ranking:
    """The ranks of a measure.

    Parameters
    ----------
    environments, control: names. standings: by mean rank, the leader first. friedman: p value that
    all entrants are alike.
    critical: Nemenyi's critical difference of two mean ranks at 5 %. unranked: entrants that lack
    an environment.
    differences: (environment, entrant) -> mean and spread over seeds of the difference to the
    control, better above zero; those of unranked entrants, too.
    """

    environments: list[str]
    control: str
    standings: list[Standing]
    friedman: float
    critical: float
    unranked: list[str]
    differences: Mapping[tuple[str, str], Spread]

    @property
    def leader(self) -> str | None:
        """The entrant with the best mean rank; None where there are no ranks."""
        return self.standings[0].entrant if self.standings else None

    @property
    def open(self) -> list[str]:
        """The leader and the entrants that the signed-rank test does not tell from it, best first;
        [] for a clear leader."""
        near = [one.entrant for one in self.standings[1:] if not one.p_leader <= LEVEL]
        return [self.standings[0].entrant, *near] if near else []


def rank(scores: Scores, control: str, higher: bool = True) -> Ranking:
    """Return the ranking of all entrants that have a number in every environment in which at least
    half of all entrants have one.

    Parameters
    ----------
    higher: whether more of the measure is better.
    """
    found = _differences(scores, control, higher)
    entrants = list(dict.fromkeys(entrant for _, entrant in found))
    environments = _covered(found, entrants, control)
    whole = [
        one for one in entrants if all((environment, one) in found for environment in environments)
    ]
    if not environments or len(whole) < 2:
        return Ranking(environments, control, [], nan, nan, entrants, found)
    means = np.array(
        [[found[environment, one].mean for one in whole] for environment in environments]
    )
    standings = _standings(whole, environments, control, means, found)
    missing = [one for one in entrants if one not in whole]
    critical = critical_difference(len(whole), len(environments))
    return Ranking(
        environments, control, standings, friedman_p(ranks(means)), critical, missing, found
    )


def ranks(means: Floats) -> Floats:
    """Return ranks [environments, entrants] of scores of that shape: 1 for the highest, ties their
    mean, NaN last."""
    from scipy.stats import rankdata

    known = np.where(np.isnan(means), -inf, means)
    return np.asarray(rankdata(-known, axis=1), float)


def friedman_p(ranked: Floats) -> float:
    """Return the p value of Friedman's test, corrected for ties, that all entrants [environments,
    entrants] are alike."""
    from scipy.special import chdtrc

    environments, entrants = ranked.shape
    if environments < 2 or entrants < 2:
        return nan
    sums = ranked.sum(axis=0)
    between = float(((sums - sums.mean()) ** 2).sum())
    within = float(((ranked - (entrants + 1) / 2) ** 2).sum())
    if within == 0:
        return 1.0
    statistic = (entrants - 1) * between / within
    return float(chdtrc(entrants - 1, statistic))


def critical_difference(entrants: int, environments: int, level: float = LEVEL) -> float:
    """Return Nemenyi's critical difference ``q sqrt(k (k + 1) / (6 N))`` of the mean ranks of k
    entrants over N environments."""
    from scipy.stats import studentized_range

    q = float(studentized_range.ppf(1 - level, entrants, inf)) / sqrt(2)
    return q * sqrt(entrants * (entrants + 1) / (6 * environments))


def signed_rank_p(differences: Floats) -> float:
    """Return the two-sided p value of Wilcoxon's signed-rank test; zeros are left out, and without
    any difference it is 1.

    Without ties among at most 50 differences the distribution is exact, else it is the normal one,
    corrected for ties.
    """
    known = differences[(differences != 0) & ~np.isnan(differences)]
    if not len(known):
        return 1.0
    from scipy.stats import wilcoxon

    sizes = np.abs(known)
    tied = len(np.unique(sizes)) < len(sizes)
    place = (
        np.argsort(np.argsort(sizes, kind="stable"), kind="stable") + 1.0
        if not tied
        else _places(sizes)
    )
    exact = not tied and len(known) <= 50
    return float(wilcoxon(np.sign(known) * place, method="exact" if exact else "approx").pvalue)


def _places(sizes: Floats) -> Floats:
    from scipy.stats import rankdata

    return np.asarray(rankdata(sizes), float)


def _differences(scores: Scores, control: str, higher: bool) -> dict[tuple[str, str], Spread]:
    """The difference of every cell to the control of its environment, over the seeds that both
    have, better above zero."""
    out = {}
    for (environment, entrant), seeds in scores.items():
        base = scores.get((environment, control), {})
        common = [seed for seed in seeds if seed in base]
        if common:
            ours, theirs = (np.array([one[seed] for seed in common]) for one in (seeds, base))
            out[environment, entrant] = (
                _difference(ours, theirs) if higher else _difference(theirs, ours)
            )
    return out


def _difference(a: Floats, b: Floats) -> Spread:
    """Mean and spread of the paired differences of finite numbers; of others the median alone, and
    no difference of two infinite."""
    if np.isfinite(a).all() and np.isfinite(b).all():
        return spread(a - b)
    both = np.isinf(a) & (a == b)
    with np.errstate(invalid="ignore"):
        return Spread(float(np.median(np.where(both, 0.0, a - b))), nan, len(a))


def _covered(
    found: Mapping[tuple[str, str], Spread], entrants: Sequence[str], control: str
) -> list[str]:
    """The environments in which the control and at least half of the entrants have numbers."""
    there: dict[str, set[str]] = {}
    for environment, entrant in found:
        there.setdefault(environment, set()).add(entrant)
    return [
        one for one, some in there.items() if control in some and 2 * len(some) >= len(entrants)
    ]


def _standings(
    entrants: Sequence[str],
    environments: Sequence[str],
    control: str,
    means: Floats,
    found: Mapping[tuple[str, str], Spread],
) -> list[Standing]:
    placed = ranks(means)
    first = int(placed.mean(axis=0).argmin())
    beside = entrants.index(control) if control in entrants else first
    against = _against(placed, means, beside), _against(placed, means, first)
    sure = _sure(entrants, environments, control, found)
    out = []
    for i, entrant in enumerate(entrants):
        over = interval(spread(placed[:, i]))
        cells = [(environment, entrant) for environment in environments]
        wins, losses = (sum(sign(found[cell]) == side for cell in cells) for side in (1, -1))
        kept = [sign(found[cell]) for cell in cells if sure[cell]]
        out.append(
            Standing(
                entrant,
                over.mean,
                over.low,
                over.high,
                float(np.median(means[:, i])),
                against[0][i],
                against[1][i],
                wins,
                len(cells) - wins - losses,
                losses,
                kept.count(1),
                kept.count(-1),
            )
        )
    return sorted(out, key=lambda one: one.mean_rank)


def _against(placed: Floats, means: Floats, other: int) -> list[float]:
    """Holm-corrected p values of every entrant against one of them, whose own is NaN; a run that
    diverged loses by more than any."""
    finite = np.abs(means[np.isfinite(means)])
    far = 1.0 + 3.0 * float(finite.max(initial=0.0))
    known = np.clip(np.where(np.isnan(means), -far, means), -far, far)
    p = [
        nan if i == other else signed_rank_p(known[:, i] - known[:, other])
        for i in range(placed.shape[1])
    ]
    return holm(p)


def _sure(
    entrants: Sequence[str],
    environments: Sequence[str],
    control: str,
    found: Mapping[tuple[str, str], Spread],
) -> dict[tuple[str, str], bool]:
    """Whether the difference in each cell is left after Holm's correction for all of them."""
    cells = [(environment, entrant) for environment in environments for entrant in entrants]
    p = [
        nan if entrant == control else p_value(found[environment, entrant])
        for environment, entrant in cells
    ]
    return {cell: one <= LEVEL for cell, one in zip(cells, holm(p), strict=True)}


def sign(difference: Spread) -> int:
    """Return 1 where the 95 % t interval of a mean difference lies above zero, -1 where it lies
    below, else 0."""
    one = interval(difference)
    return 1 if one.low > 0 else -1 if one.high < 0 else 0
