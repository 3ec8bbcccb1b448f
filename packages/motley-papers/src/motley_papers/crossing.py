"""Do the gains of a selection and of an algorithm add up?

Entrants are named ``SELECTION x ALGORITHM``; one selection and one algorithm are plain, and their
pair is the control. In one environment, with the same seed on both sides of each difference:

    gain(s, a)         score of the pair less that of the control
    alone              gain(s, plain) of a selection, gain(plain, a) of an algorithm
    interaction(s, a)  gain(s, a) - gain(s, plain) - gain(plain, a);  0 where gains add up
    beside             gain(s, a) - gain(s, plain), and gain(s, a) - gain(plain, a)

Intervals are t intervals over seeds; those of interactions, and those beside the parts, hold at
95 % for all pairs of an environment together (Bonferroni).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from motley.results.measures import Interval, interval, spread

CROSS = " x "
_LEVEL = 0.95


@dataclass(frozen=True)
class Crossing:
    """What two parts gain in one environment, alone and beside each other, in percent points.

    Parameters
    ----------
    selections, algorithms: name -> gain with the other part plain.
    together: (selection, algorithm) -> gain of the pair over the control.
    interactions: the same keys -> what the pair gains beyond the sum, with an interval that is
    simultaneous over the pairs.
    beside: the same keys -> what it gains over its selection alone, and over its algorithm alone,
    with intervals that are simultaneous over both and the pairs.
    """

    selections: Mapping[str, Interval]
    algorithms: Mapping[str, Interval]
    together: Mapping[tuple[str, str], Interval]
    interactions: Mapping[tuple[str, str], Interval]
    beside: Mapping[tuple[str, str], tuple[Interval, Interval]]


def crossings(
    differences: Mapping[str, Mapping[str, Sequence[float]]], control: str
) -> dict[str, Crossing]:
    """Return environment -> what was found there, of environments where all entrants have the same
    number of seeds. A pair that cannot run is missing.

    Parameters
    ----------
    differences: environment -> entrant -> difference to ``control`` of each seed, in order of the
    seeds.
    control: the plain pair.
    """
    plain_selection, _, plain_algorithm = control.partition(CROSS)
    out = {}
    for environment, entrants in differences.items():
        gains = {tuple(name.split(CROSS)): values for name, values in entrants.items()}
        selections = {s: values for (s, a), values in gains.items() if a == plain_algorithm}
        algorithms = {a: values for (s, a), values in gains.items() if s == plain_selection}
        pairs = [(s, a) for s in selections for a in algorithms if (s, a) in gains]
        if not pairs or len({len(values) for values in gains.values()}) != 1:
            continue
        beyond = {
            (s, a): [
                both - selected - trained
                for both, selected, trained in zip(
                    gains[s, a], selections[s], algorithms[a], strict=True
                )
            ]
            for s, a in pairs
        }
        level = 1 - (1 - _LEVEL) / len(pairs)
        of_two = 1 - (1 - _LEVEL) / (2 * len(pairs))
        out[environment] = Crossing(
            selections={name: interval(spread(values)) for name, values in selections.items()},
            algorithms={name: interval(spread(values)) for name, values in algorithms.items()},
            together={pair: interval(spread(gains[pair])) for pair in pairs},
            interactions={pair: interval(spread(values), level) for pair, values in beyond.items()},
            beside={
                (s, a): (
                    _less(gains[s, a], selections[s], of_two),
                    _less(gains[s, a], algorithms[a], of_two),
                )
                for s, a in pairs
            },
        )
    return out


def _less(ours: Sequence[float], theirs: Sequence[float], level: float) -> Interval:
    """Return the mean of paired differences with its interval."""
    return interval(spread([a - b for a, b in zip(ours, theirs, strict=True)]), level)
