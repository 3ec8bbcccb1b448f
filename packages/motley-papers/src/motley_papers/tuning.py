"""Does a tuned value transfer? What a claim with ``tuned = AXIS`` compares: each setting's own
choice, and the choices of the others.

A *setting* is one value of each other axis. In every setting and with every seed, the value of the
axis is chosen that has the highest ``validation``; of equals the first. The axis then has two
values: ``own``, a measure at the setting's own choice, and ``elsewhere``, the mean of the measure,
in the same setting, over the choices of all other settings with that seed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import isfinite

import numpy as np

from motley.results.measures import Censored
from motley_papers.recipe import ELSEWHERE, OWN, Exhibit
from motley_papers.recipe_claim import CHOSEN_BY

Cells = tuple[str, ...]
Values = Mapping[tuple[str, Cells], Mapping[int, Censored]]
"""(measure, cell) -> seed -> the number."""


def after_tuning(
    exhibit: Exhibit, axis: str, values: Values
) -> dict[tuple[str, Cells], dict[int, Censored]]:
    """Return the values of the cells that are left when an axis has been tuned: (measure, cell) ->
    seed -> the number.

    Parameters
    ----------
    values: of the exhibit's cells, among them those of ``validation``.
    """
    at = list(exhibit.axes).index(axis)
    chosen = _choices(exhibit, at, axis, values)
    out: dict[tuple[str, Cells], dict[int, Censored]] = {}
    for measure in dict.fromkeys(name for name, _ in values):
        for (setting, seed), own in chosen.items():
            elsewhere = [
                value
                for (chosen_setting, same), value in chosen.items()
                if same == seed and chosen_setting != setting
            ]
            for name, picked in ((OWN, [own]), (ELSEWHERE, elsewhere)):
                numbers = [
                    values.get((measure, _cell(setting, at, value)), {}).get(seed)
                    for value in picked
                ]
                measured = [number for number in numbers if number is not None]
                if measured and len(measured) == len(picked):
                    mean = Censored(
                        float(np.mean([number.value for number in measured])),
                        all(number.reached for number in measured),
                    )
                    out.setdefault((measure, _cell(setting, at, name)), {})[seed] = mean
    return out


def _choices(exhibit: Exhibit, at: int, axis: str, values: Values) -> dict[tuple[Cells, int], str]:
    """Return (setting, seed) -> the value of the axis that validation chooses, where all of its
    values have been run."""
    out = {}
    for setting in dict.fromkeys(cell[:at] + cell[at + 1 :] for _, cell in values):
        seen = {
            value: values.get((CHOSEN_BY, _cell(setting, at, value)), {})
            for value in exhibit.axes[axis]
        }
        for seed in _common(seen):
            out[setting, seed] = max(seen, key=lambda value: seen[value][seed].value)
    return out


def _common(seen: Mapping[str, Mapping[int, Censored]]) -> Iterator[int]:
    """Yield the seeds of which every value has a finite number."""
    first = next(iter(seen.values()))
    yield from (
        seed
        for seed in first
        if all(seed in by and isfinite(by[seed].value) for by in seen.values())
    )


def _cell(setting: Cells, at: int, value: str) -> Cells:
    return (*setting[:at], value, *setting[at:])
