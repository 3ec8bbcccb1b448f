"""Which entrant of a ranking is worth measuring again, and what that showed.

With few seeds the best of many entrants is mostly the luckiest, and an interval corrected for their
number says nothing. So a few seeds choose one entrant in each environment, and others, which chose
nothing, measure it again beside uniform FedAvg: their interval needs no correction.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from math import inf, isfinite, nan, sqrt
from statistics import fmean, median, variance

from motley.results.measures import interval, spread
from motley_papers.advice import CONTROL, DIVERGED, Gain
from motley_papers.earlier import MeasuredRow

Differences = Mapping[str, Mapping[str, Sequence[float]]]
"""Environment -> entrant -> difference to uniform FedAvg of each seed, in percent points."""


def differences(
    rows: Iterable[MeasuredRow],
    exhibit: str,
    measure: str,
    seeds: Collection[int],
    control: str = CONTROL,
) -> dict[str, dict[str, list[float]]]:
    """Return environment -> entrant -> difference to the control of each of these seeds that both
    have; a run that diverged is far behind.

    Parameters
    ----------
    exhibit: whose cells are ``ENVIRONMENT / ENTRANT``.
    measure: in percent.
    """
    values: dict[tuple[str, str], dict[int, float]] = {}
    for row in rows:
        if (row.exhibit, row.measure) == (exhibit, measure) and row.seed in seeds:
            environment, _, entrant = row.cell.partition(" / ")
            value = float(row.value)
            values.setdefault((environment, entrant), {})[row.seed] = (
                value if isfinite(value) else DIVERGED
            )
    out: dict[str, dict[str, list[float]]] = {}
    for (environment, entrant), ours in values.items():
        theirs = values.get((environment, control), {})
        both = sorted(ours.keys() & theirs.keys())
        if entrant != control and both:
            out.setdefault(environment, {})[entrant] = [ours[s] - theirs[s] for s in both]
    return out


def chosen(differences: Differences) -> dict[str, str]:
    """Return environment -> the entrant whose mean gain is largest against its spread: the root of
    the mean of its own variance and of the median variance in its environment, for two seeds alone
    say little about a spread.

    >>> chosen({"here": {"lucky": [3.0, 3.1], "good": [4.0, 5.0], "wild": [0.0, 6.0]}})
    {'here': 'good'}
    """
    out = {}
    for environment, entrants in differences.items():
        several = {name: values for name, values in entrants.items() if len(values) > 1}
        usual = median(variance(values) for values in several.values()) if several else 0.0
        score = {
            name: _against(fmean(values), sqrt((variance(values) + usual) / 2))
            for name, values in several.items()
        }
        if score:
            out[environment] = max(score, key=score.__getitem__)
    return out


def _against(gain: float, spread: float) -> float:
    if spread:
        return gain / spread
    if gain > 0:
        return inf
    return -inf if gain < 0 else 0.0


def most_gaining(differences: Differences) -> str:
    """Return the entrant with the highest mean gain over all environments, each counted alike, of
    those that are in all but few: in at least nine of ten."""
    means: dict[str, list[float]] = {}
    for entrants in differences.values():
        for name, values in entrants.items():
            means.setdefault(name, []).append(fmean(values))
    common = {
        name: fmean(values)
        for name, values in means.items()
        if len(values) >= 0.9 * len(differences)
    }
    return max(common, key=common.__getitem__)


def costs(
    rows: Iterable[MeasuredRow], exhibit: str, measure: str, seeds: Collection[int]
) -> dict[tuple[str, str], float]:
    """Return (environment, entrant) -> the mean of a cost to the target over seeds divided by that
    of uniform FedAvg; NaN where a run of either missed it, and where the 95 % interval of the
    paired differences holds zero: the first crossing of a swinging curve says little."""
    values: dict[tuple[str, str], dict[int, float]] = {}
    for row in rows:
        if (row.exhibit, row.measure) == (exhibit, measure) and row.seed in seeds:
            environment, _, entrant = row.cell.partition(" / ")
            value = float(row.value) if row.exact == "true" else nan
            values.setdefault((environment, entrant), {})[row.seed] = value
    out = {}
    for (environment, entrant), ours in values.items():
        theirs = values.get((environment, CONTROL), {})
        pairs = [(ours[s], theirs[s]) for s in ours if s in theirs]
        if pairs and all(isfinite(cost) for pair in pairs for cost in pair):
            difference = interval(spread([mine - base for mine, base in pairs]))
            ratio = fmean(mine for mine, _ in pairs) / fmean(base for _, base in pairs)
            out[environment, entrant] = nan if difference.low <= 0 <= difference.high else ratio
        else:
            out[environment, entrant] = nan
    return out


def gains(
    choice: Differences,
    again: Differences,
    seconds: Mapping[tuple[str, str], float],
    traffic: Mapping[tuple[str, str], float],
) -> dict[str, dict[str, Gain]]:
    """Return environment -> entrant -> its gain: of what was chosen there with the seeds that
    measured it again, and of what was chosen elsewhere with the seeds that choose.

    Parameters
    ----------
    seconds, traffic: costs of what was measured again.
    """
    named = {entrant for entrants in again.values() for entrant in entrants}
    out: dict[str, dict[str, Gain]] = {}
    for environment, entrants in choice.items():
        here = out.setdefault(environment, {})
        for entrant, values in entrants.items():
            second = again.get(environment, {}).get(entrant)
            place = environment, entrant
            if second is not None:
                here[entrant] = Gain(second, True, seconds.get(place, nan), traffic.get(place, nan))
            elif entrant in named:
                here[entrant] = Gain(values, False)
    return out
