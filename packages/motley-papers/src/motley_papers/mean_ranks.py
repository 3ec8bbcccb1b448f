"""Ranks of many entrants over many environments, against one control: mean ranks, wins and losses.

In every environment an entrant's score is the mean difference of a measure to the control, paired
by seed; the control's is 0. Entrants are ranked by their scores, 1 the best, ties sharing the mean
of their ranks; a run without a finite number (one that diverged) ranks last.

Within one environment a win or a loss is a 95 % t interval over seeds that excludes zero; three
seeds are the fewest that tell one. There is no test over environments: those of a designed grid
share data and factors, and a test would count one finding many times.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf, nan

import numpy as np

from motley.core.arrays import Floats
from motley.results.measures import Spread, interval, spread
from motley_papers.power import LEVEL, holm, p_value
from motley_papers.sides import SAME

FEWEST = 3
"""Seeds from which an interval of one cell tells something."""

Scores = Mapping[tuple[str, str], Mapping[int, float]]
"""(environment, entrant) -> seed -> the measure; infinite where a target was missed, NaN where a
run diverged."""


@dataclass(frozen=True)
class Standing:
    """What an entrant reached over all environments."""

    entrant: str
    mean_rank: float
    """Mean of its ranks over environments; 1 is the best."""
    median: float
    """Median over environments of its difference to the control."""
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
    environments, control: names.
    standings: by mean rank, the leader first.
    unranked: entrants that lack an environment.
    differences: (environment, entrant) -> mean and spread over seeds of the difference to the
    control, better above zero; those of unranked entrants, too.
    """

    environments: list[str]
    control: str
    standings: list[Standing]
    unranked: list[str]
    differences: Mapping[tuple[str, str], Spread]

    @property
    def judged(self) -> bool:
        """Whether any cell has seeds enough for an interval."""
        return any(difference.n >= FEWEST for difference in self.differences.values())


def rank(scores: Scores, control: str, higher: bool = True) -> Ranking:
    """Return the ranking of all entrants that have a number in every environment in which at least
    half of all entrants have one.

    Parameters
    ----------
    higher: whether more of the measure is better.
    """
    differences = _differences(scores, control, higher)
    entrants = list(dict.fromkeys(entrant for _, entrant in differences))
    environments = _covered(differences, entrants, control)
    covering = [
        entrant
        for entrant in entrants
        if all((environment, entrant) in differences for environment in environments)
    ]
    if not environments or len(covering) < 2:
        return Ranking(
            environments=environments,
            control=control,
            standings=[],
            unranked=entrants,
            differences=differences,
        )
    means = np.array(
        [
            [differences[environment, entrant].mean for entrant in covering]
            for environment in environments
        ]
    )
    standings = _standings(
        entrants=covering,
        environments=environments,
        control=control,
        means=means,
        differences=differences,
    )
    missing = [entrant for entrant in entrants if entrant not in covering]
    return Ranking(
        environments=environments,
        control=control,
        standings=standings,
        unranked=missing,
        differences=differences,
    )


def ranks(means: Floats) -> Floats:
    """Return ranks [environments, entrants] of scores of that shape: 1 for the highest, ties their
    mean, NaN last."""
    from scipy.stats import rankdata

    finite = np.where(np.isnan(means), -inf, means)
    return np.asarray(rankdata(-finite, axis=1), float)


def _differences(scores: Scores, control: str, higher: bool) -> dict[tuple[str, str], Spread]:
    """The difference of every cell to the control of its environment, over the seeds that both
    have, better above zero."""
    out = {}
    for (environment, entrant), seeds in scores.items():
        base = scores.get((environment, control), {})
        common = [seed for seed in seeds if seed in base]
        if common:
            ours, theirs = (np.array([values[seed] for seed in common]) for values in (seeds, base))
            out[environment, entrant] = (
                _difference(ours, theirs) if higher else _difference(theirs, ours)
            )
    return out


def _difference(a: Floats, b: Floats) -> Spread:
    """Mean and spread of the paired differences of finite numbers; of others the median alone, and
    no difference of two infinite. Differences that are one number but for rounding have no
    spread."""
    if np.isfinite(a).all() and np.isfinite(b).all():
        difference = spread(a - b)
        still = np.ptp(a - b) <= SAME * np.abs([a, b]).max()
        return replace(difference, std=0.0) if still and difference.n > 1 else difference
    both = np.isinf(a) & (a == b)
    with np.errstate(invalid="ignore"):
        return Spread(float(np.median(np.where(both, 0.0, a - b))), nan, len(a))


def _covered(
    differences: Mapping[tuple[str, str], Spread], entrants: Sequence[str], control: str
) -> list[str]:
    """The environments in which the control and at least half of the entrants have numbers."""
    there: dict[str, set[str]] = {}
    for environment, entrant in differences:
        there.setdefault(environment, set()).add(entrant)
    return [
        environment
        for environment, entrants_there in there.items()
        if control in entrants_there and 2 * len(entrants_there) >= len(entrants)
    ]


def _standings(
    entrants: Sequence[str],
    environments: Sequence[str],
    control: str,
    means: Floats,
    differences: Mapping[tuple[str, str], Spread],
) -> list[Standing]:
    placed = ranks(means)
    sure = _sure(entrants, environments, control, differences)
    out = []
    for i, entrant in enumerate(entrants):
        cells = [(environment, entrant) for environment in environments]
        wins, losses = (sum(sign(differences[cell]) == side for cell in cells) for side in (1, -1))
        signs = [sign(differences[cell]) for cell in cells if sure[cell]]
        out.append(
            Standing(
                entrant=entrant,
                mean_rank=float(placed[:, i].mean()),
                median=float(np.median(means[:, i])),
                wins=wins,
                ties=len(cells) - wins - losses,
                losses=losses,
                sure_wins=signs.count(1),
                sure_losses=signs.count(-1),
            )
        )
    return sorted(out, key=lambda standing: standing.mean_rank)


def _sure(
    entrants: Sequence[str],
    environments: Sequence[str],
    control: str,
    differences: Mapping[tuple[str, str], Spread],
) -> dict[tuple[str, str], bool]:
    """Whether the difference in each cell is left after Holm's correction for all of them; one
    without any spread is not tested."""
    cells = [(environment, entrant) for environment in environments for entrant in entrants]
    p = []
    for environment, entrant in cells:
        tested = entrant != control and differences[environment, entrant].std != 0
        p.append(p_value(differences[environment, entrant]) if tested else nan)
    return {cell: corrected <= LEVEL for cell, corrected in zip(cells, holm(p), strict=True)}


def sign(difference: Spread) -> int:
    """Return 1 where the 95 % t interval of a mean difference lies above zero, -1 where it lies
    below, else 0."""
    ends = interval(difference)
    return int(ends.low > 0) - int(ends.high < 0)
