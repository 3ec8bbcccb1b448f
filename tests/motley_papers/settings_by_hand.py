"""What tests that hold a recipe against its paper share: settings written out by hand, and sums of
what is printed."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from motley.experiments.config import Experiment
from motley_papers.recipe import Exhibit, Recipe, read

Keys = dict[str, Any]
"""Dotted keys of an experiment -> values; ``target`` is the cell's."""
Axis = dict[str, Keys]
"""Value of an axis -> what it sets."""
Sums = dict[tuple[str, str], tuple[int, float, float]]
"""Exhibit and measure -> how many numbers are printed, their sum, and their sum where the first
counts once, the second twice and so on: neither a digit nor the order can change unseen."""


@dataclass(frozen=True)
class Row:
    """The experiments of one exhibit: the ``axes`` that span its cells, and what all cells
    share."""

    axes: list[Axis]
    shared: Keys = field(default_factory=dict)


@cache
def recipe(name: str) -> Recipe:
    return read(name)


@cache
def defaults() -> Keys:
    """Return what an experiment has that says no more than it must."""
    bare = {"task": {"name": "image"}, "population": 1, "cohort": 1, "stop": {"rounds": 1}}
    return {**dict(flat(Experiment(**bare).model_dump())), "target": None}


def flat(record: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the dotted keys of nested tables with their values."""
    for key, value in record.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{path}{key}.")
        else:
            yield f"{path}{key}", value


def put(keys: Keys, path: str, value: Any) -> None:
    """Set a key, in place of what it was; a table replaces all of the old one."""
    for old in [old for old in keys if f"{old}.".startswith(f"{path}.")]:
        del keys[old]
    keys.pop(path.rpartition(".")[0], None)
    keys.update(flat({path: value}))


def by_hand(row: Row, protocol: Keys) -> dict[tuple[str, ...], Keys]:
    """Return the values of each cell of a row -> all keys of its experiment: the defaults, then the
    protocol's, the row's and each axis value's, the last of which wins."""
    cells = {}
    for values in itertools.product(*row.axes):
        keys = dict(defaults())
        at = [axis[value] for axis, value in zip(row.axes, values, strict=True)]
        for part in (protocol, row.shared, *at):
            for path, value in part.items():
                put(keys, path, value)
        cells[values] = keys
    return cells


def in_recipe(name: str, exhibit: Exhibit) -> dict[tuple[str, ...], Keys]:
    """Return the same of an exhibit of a recipe at ``paper``; of one that is skipped there, all its
    cells."""
    cells = {}
    for cell in exhibit.cells("paper") or exhibit.all_cells():
        made = recipe(name).experiment(cell, "paper", 42)
        cells[cell.values] = {**dict(flat(made.model_dump())), "target": cell.target}
    return cells


def check_settings(name: str, exhibit: str, row: Row, protocol: Keys) -> None:
    """Assert that an exhibit has the cells of a row, and each of them these keys and no others."""
    made = in_recipe(name, recipe(name).named(exhibit))
    hand = by_hand(row, protocol)
    assert made.keys() == hand.keys()
    other = {
        (values, path): (made[values].get(path), keys.get(path))
        for values, keys in hand.items()
        for path in {*made[values], *keys} - {"name", "seed"}
        if made[values].get(path) != keys.get(path)
    }
    assert not other


def check_shown(name: str, exhibit: str, measures: str, pictures: str) -> None:
    """Assert that an exhibit has these measures and pictures, separated by spaces, among others."""
    shown = recipe(name).named(exhibit)
    drawn = shown.pictures or (recipe(name).named(shown.like).pictures if shown.like else [])
    assert set(measures.split()) <= set(recipe(name).measures(shown))
    assert set(pictures.split()) <= set(drawn)


def sums(name: str) -> Sums:
    """Return the sums of the printed numbers of a recipe, in the order of ``expected.csv``."""
    columns: dict[tuple[str, str], list[float]] = {}
    for (exhibit, _, measure), (value, _) in recipe(name).expected.items():
        columns.setdefault((exhibit, measure), []).append(value)
    return {
        key: (len(values), sum(values), sum(at * value for at, value in enumerate(values, 1)))
        for key, values in columns.items()
    }


def spreads(name: str) -> dict[tuple[str, str, str], float]:
    """Return the printed spreads of a recipe by exhibit, cell and measure."""
    return {key: spread for key, (_, spread) in recipe(name).expected.items() if spread == spread}
