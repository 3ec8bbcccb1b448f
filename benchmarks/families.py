"""How often a table of comparisons has a wrong verdict, by simulation.

    python benchmarks/families.py [OUT.json] [--tables 200000]

No method differs from the reference, so that every verdict is wrong. Seeds are paired: a method's
difference is its number less the reference's, seed by seed. Counted are the tables in which any
interval excludes zero, with plain 95 % intervals and with those that a report has, and the tables
in which a mean is bold. At ten methods other rules are tried: Dunnett's intervals with one
variance for all and with one for each comparison, and signs of whole seeds flipped in all ways.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from motley.results.measures import Spread, interval, level_together

OUT = Path(__file__).parent / "measured" / "families.json"
METHODS = (2, 5, 10)
SEEDS = (3, 5, 8, 10)
KINDS = {
    "normal, all alike": ("normal", "alike"),
    "normal, deviations from 0.3 to 3": ("normal", "unlike"),
    "normal, the reference's deviation five times the others'": ("normal", "reference"),
    "exponential, all alike": ("exponential", "alike"),
    "lognormal, all alike": ("lognormal", "alike"),
    "lognormal, deviations from 0.3 to 3": ("lognormal", "unlike"),
}
"""What the numbers of a method over seeds are like -> their law, and how its width differs between
methods."""
BATCH = 20_000
"""Tables at a time."""
TRIED = 2000
"""Tables in which signs are flipped."""

Numbers = NDArray[np.float64]


def drawn(rng: np.random.Generator, kind: str, tables: int, seeds: int, methods: int) -> Numbers:
    """Return numbers of methods without a difference, ``[tables, seeds, methods]``; the first is
    the reference."""
    law, widths = KINDS[kind]
    shape = (tables, seeds, methods)
    numbers = {
        "normal": lambda: rng.standard_normal(shape),
        "exponential": lambda: rng.standard_exponential(shape) - 1,
        "lognormal": lambda: rng.lognormal(size=shape) - np.exp(0.5),
    }[law]()
    scale = np.geomspace(0.3, 3, methods) if widths == "unlike" else np.ones(methods)
    scale[0] *= 5 if widths == "reference" else 1
    return np.asarray(numbers * scale)


def factor(comparisons: int, seeds: int) -> float:
    """Return half of an interval that a report shows among so many, in standard errors."""
    among = interval(Spread(0.0, 1.0, seeds), level_together(comparisons))
    return float(among.high * np.sqrt(seeds))


def wrong(numbers: Numbers, comparisons: int) -> float:
    """Return the share of tables in which an interval of any method against the first excludes
    zero, each interval as among so many ``comparisons``."""
    return float((_statistics(numbers, 0) > factor(comparisons, numbers.shape[1])).any(1).mean())


def bold(numbers: Numbers) -> float:
    """Return the share of tables in which the greatest mean is bold."""
    best = numbers.mean(axis=1).argmax(axis=1)
    sides = np.stack([_statistics(numbers, one) for one in range(numbers.shape[2])], axis=1)
    of_best = sides[np.arange(len(best)), best]  # [tables, methods - 1]
    return float((of_best > factor(1, numbers.shape[1])).all(axis=1).mean())


def _statistics(numbers: Numbers, base: int) -> Numbers:
    """Return the absolute t statistic of every other method against ``base``."""
    differences = np.delete(numbers, base, axis=2) - numbers[:, :, base : base + 1]
    errors = differences.std(axis=1, ddof=1) / np.sqrt(numbers.shape[1])
    return np.asarray(np.abs(differences.mean(axis=1)) / errors)


def dunnett(rng: np.random.Generator, seeds: int, methods: int, pooled: bool) -> float:
    """Return half of an interval of Dunnett's in standard errors, by 200,000 tables of normal
    numbers of equal deviation: with the variance ``pooled`` over methods, or one for each
    comparison."""
    tables = (drawn(rng, "normal, all alike", BATCH, seeds, methods) for _ in range(10))
    found = [(_pooled(one) if pooled else _statistics(one, 0)).max(axis=1) for one in tables]
    return float(np.quantile(np.concatenate(found), 0.95))


def flipped(numbers: Numbers) -> float:
    """Return the share of tables in which the largest t statistic is among the 5 % largest of all
    ways to flip the signs of whole seeds."""
    seeds = numbers.shape[1]
    ways = ((np.arange(2 ** (seeds - 1))[:, None] >> np.arange(seeds)) & 1) * -2.0 + 1
    differences = numbers[:, :, 1:] - numbers[:, :, :1]
    squares = (differences**2).sum(axis=1)[:, None]  # flips do not change them
    means = np.einsum("wn,tnk->twk", ways, differences) / seeds
    errors = np.sqrt((squares - seeds * means**2) / (seeds - 1) / seeds)
    largest = (np.abs(means) / errors).max(axis=2)
    return float(((largest >= largest[:, :1] * (1 - 1e-9)).mean(axis=1) <= 0.05).mean())


def _pooled(numbers: Numbers) -> Numbers:
    """Return the absolute differences to the first over the standard error that all methods give
    together, seeds being blocks."""
    _, seeds, methods = numbers.shape
    rest = numbers - numbers.mean(axis=1, keepdims=True) - numbers.mean(axis=2, keepdims=True)
    rest += numbers.mean(axis=(1, 2), keepdims=True)
    variance = (rest**2).sum(axis=(1, 2)) / ((seeds - 1) * (methods - 1))
    means = numbers.mean(axis=1)
    return np.asarray(np.abs(means[:, 1:] - means[:, :1]) / np.sqrt(2 * variance / seeds)[:, None])


def tried(methods: int = 10) -> Iterator[dict[str, Any]]:
    """Yield the shares of wrong tables of other rules, and half of their intervals in standard
    errors."""
    for seeds in SEEDS:
        rng = np.random.default_rng([methods, seeds])
        pooled, single = (dunnett(rng, seeds, methods, pool) for pool in (True, False))
        for kind in KINDS:
            numbers = drawn(rng, kind, BATCH, seeds, methods)
            yield {
                "kind": kind,
                "methods": methods,
                "seeds": seeds,
                "factors": {
                    "pooled": round(pooled, 3),
                    "single": round(single, 3),
                    "together": round(factor(methods - 1, seeds), 3),
                },
                "pooled": round(float((_pooled(numbers) > pooled).any(axis=1).mean()), 4),
                "single": round(float((_statistics(numbers, 0) > single).any(axis=1).mean()), 4),
                # below eight seeds no two of them could decide: 2 / 2^5 is above .05
                "flipped": round(flipped(numbers[:TRIED]), 4) if seeds == 8 else None,
            }


def rows(tables: int) -> Iterator[dict[str, Any]]:
    """Yield the shares of wrong tables for each kind of numbers, number of methods and of seeds."""
    for kind in KINDS:
        for methods in METHODS:
            for seeds in SEEDS:
                rng = np.random.default_rng([list(KINDS).index(kind), methods, seeds])
                found = []
                for _ in range(tables // BATCH):
                    numbers = drawn(rng, kind, BATCH, seeds, methods)
                    found.append((wrong(numbers, 1), wrong(numbers, methods - 1), bold(numbers)))
                plain, together, in_bold = np.mean(found, axis=0)
                yield {
                    "kind": kind,
                    "methods": methods,
                    "seeds": seeds,
                    "plain": round(plain, 4),
                    "together": round(together, 4),
                    "bold": round(in_bold, 4),
                }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("json", type=Path, nargs="?", default=OUT)
    parser.add_argument("--tables", type=int, default=200_000)
    args = parser.parse_args()
    found = {
        "tables": args.tables,
        "rows": list(rows(args.tables)),
        "tried": list(tried()),
    }
    args.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
