"""Add seeds to a recipe until its claims are decided, the claim that is nearest to its decision per
minute first.

The test is sequential (:mod:`motley_papers.sequential`): verdicts allow for a look after every pair
of seeds, up to a number of seeds that is stated before. So the runs may be stopped at any time, and
gone on with on another day.
"""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from pathlib import Path

import numpy as np

from motley.core.errors import ConfigError
from motley.core.files import user_path
from motley.experiments.store import RunFolder
from motley.experiments.sweep import Failure, run_points
from motley.experiments.sweep_point import Point
from motley.results.load import load
from motley.results.measures import Spread
from motley_papers.power import LEVEL, p_value
from motley_papers.recipe import Cell, Claim, Recipe
from motley_papers.reproduce import Reproduction, reproduce
from motley_papers.sequential import SpendingPlan
from motley_papers.sequential_plan import SequentialPlan
from motley_papers.verdicts import DECIDED, Contrast, cells_of, comparisons

MOST_SEEDS = 20
"""The most seeds of a comparison, unless another number is asked for."""
_UNKNOWN_S = 60.0
"""Wall seconds of a run of which nothing is known yet."""


@dataclass(frozen=True)
class OpenComparison:
    """A comparison whose claim is open.

    Parameters
    ----------
    claim: the claim.
    contrast: what its pairs say so far.
    cells: those it needs.
    seed: the next one.
    seeds_left: how many more decide it if mean and spread stay, at most as many as there may be.
    seed_s: wall seconds of a seed.
    """

    claim: Claim
    contrast: Contrast
    cells: Sequence[Cell]
    seed: int
    seeds_left: int
    seed_s: float

    @property
    def words(self) -> str:
        """The exhibit and the comparison."""
        return f"{self.claim.exhibit}, {self.contrast.label}"

    @property
    def left_s(self) -> float:
        """The wall seconds until it is decided, if mean and spread stay as they are."""
        return self.seeds_left * self.seed_s


def seconds_of(text: str) -> float:
    """Return the seconds of ``4h``, ``90m``, ``1h30m`` or ``45s``.

    Raises
    ------
    ConfigError: anything else, or nothing.
    """
    match = re.fullmatch(
        r"(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m(?:in)?)?(?:(\d+(?:\.\d+)?)s)?", text.strip()
    )
    if match:
        total = sum(
            float(n) * unit for n, unit in zip(match.groups(), (3600, 60, 1), strict=True) if n
        )
    else:
        total = 0.0
    if not 0 < total < 1e9:
        raise ConfigError(
            f"got {text!r}; expected hours, minutes or seconds, e.g. 4h, 90m or 1h30m", "--budget"
        )
    return total


def until_decided(
    recipe: Recipe,
    exhibits: Sequence[str] = (),
    *,
    budget_s: float,
    scale: str = "small",
    claims: Sequence[str] = (),
    most: int = MOST_SEEDS,
    out: str | Path | None = None,
    data: str | Path | None = None,
    progress: bool = False,
    on_ray: str | None = None,
    jobs: int = 1,
    earlier: bool = True,
    tell: Callable[[str], None] = lambda line: None,
    allow_import: bool = False,
) -> Reproduction:
    """Run seeds of open claims, one comparison at a time, until all are decided, have the most
    seeds, or the budget is spent.

    Parameters
    ----------
    budget_s: wall seconds of this call; no seed is begun that is expected to take longer than what
    is left.
    claims: parts of claims' texts; all claims of the exhibits by default.
    most: seeds of a comparison at most.
    tell: called with lines about what will be done and is done. The others are those of
    :func:`reproduce`.

    Raises
    ------
    ConfigError: no such claim, or fewer than two seeds.
    """
    if not 2 <= most <= 1000:
        raise ConfigError(f"got {most}; expected at least 2 and at most 1000 seeds", "--most-seeds")
    ends = time.monotonic() + budget_s
    reproduction = reproduce(
        recipe,
        exhibits,
        scale=scale,
        out=out,
        run=False,
        earlier=earlier,
        allow_import=allow_import,
    )
    chosen = _named(reproduction, claims)
    pairs = (
        contrast.interval.n
        for judged in reproduction.judged
        if judged.claim.pair == "seed"
        for contrast in judged.contrasts
    )
    # fewer than planned before does not shorten the plan
    planned = reproduction.sequential.most if reproduction.sequential.claims else 2
    plan = SequentialPlan(
        most=min(1000, max(most, planned, *pairs)), claims=[claim.text for claim in chosen]
    )
    plan = reproduction.sequential.joined(plan)
    plan.write(reproduction.directory)
    beside = (
        replace(reproduction.beside, sequential=plan) if reproduction.beside is not None else None
    )
    reproduction = replace(reproduction, sequential=plan, beside=beside)
    _announce(reproduction, budget_s, jobs, tell)
    packs = None if data is None else user_path(data)
    failed: list[Failure] = []
    while True:
        left = ends - time.monotonic()
        tried = {(f.point.label, f.point.experiment.seed) for f in failed}
        waiting = [
            comparison
            for comparison in open_comparisons(reproduction, jobs)
            if not tried & {(_label(c), comparison.seed) for c in comparison.cells}
        ]
        fitting = [comparison for comparison in waiting if comparison.seed_s <= left]
        if not fitting:
            tell(_ending(waiting))
            return replace(
                reproduction, failures=failed, planned=len(reproduction.all_runs()) + len(failed)
            )
        best = min(fitting, key=lambda comparison: comparison.left_s)
        tell(
            f"seed {best.seed} for {best.words}: {best.contrast.interval.n} pairs so far, "
            f"{_duration(best.seed_s)} a seed"
        )
        reproduction, failures = _run(
            reproduction, comparison=best, data=packs, progress=progress, on_ray=on_ray, jobs=jobs
        )
        failed += failures


def open_comparisons(reproduction: Reproduction, jobs: int = 1) -> list[OpenComparison]:
    """Return the comparisons of open claims that more seeds may decide. A comparison of lower
    bounds alone is none, nor is one with a seed that has no number, as of a run that diverged: it
    is not tested, however many seeds there are."""
    out = []
    for judged in reproduction.judged:
        claim = judged.claim
        plan = reproduction.sequential
        if claim.text not in plan.claims or judged.alone in DECIDED:
            continue
        exhibit = reproduction.recipe.named(claim.exhibit)
        for comparison, contrast in zip(comparisons(claim), judged.contrasts, strict=True):
            there = exhibit.cells(reproduction.scale)
            cells = there if claim.tuned is not None else cells_of(comparison, there)
            done = [
                {*reproduction.runs_at(exhibit, cell), *reproduction.earlier_at(exhibit, cell)}
                for cell in cells
            ]
            seeds = set.intersection(*done) if done else set()
            judged_seeds = seeds & reproduction.judged_seeds(exhibit, claim)
            lost = claim.tuned is None and bool(judged_seeds) and not contrast.interval.n
            if cells and not lost and _is_open(contrast) and len(seeds) < plan.most:
                seed = next(seed for seed in _seeds(reproduction, claim) if seed not in seeds)
                left = max(1, min(_seeds_left(contrast, plan.most, claim), plan.most - len(seeds)))
                out.append(
                    OpenComparison(
                        claim=claim,
                        contrast=contrast,
                        cells=cells,
                        seed=seed,
                        seeds_left=left,
                        seed_s=_seed_s(reproduction, cells, seed) / jobs,
                    )
                )
    return out


def _is_open(contrast: Contrast) -> bool:
    """Return whether a comparison is undecided, and not of lower bounds alone."""
    decided = contrast.verdict in DECIDED or min(contrast.sides) <= LEVEL / 2
    return not decided and (contrast.ours_exact or contrast.rival_exact)


def _seeds(reproduction: Reproduction, claim: Claim) -> Iterator[int]:
    """The recipe's seeds of an exhibit, then those that follow the largest."""
    seeds = reproduction.recipe.seeds(reproduction.recipe.named(claim.exhibit), reproduction.scale)
    return itertools.chain(seeds, itertools.count(max(seeds) + 1))


def _seeds_left(contrast: Contrast, most_seeds: int, claim: Claim) -> int:
    """The seeds after which a comparison is decided if mean and spread stay; as many as there may
    be if none does."""
    n = contrast.interval.n
    looks = contrast.looks or SpendingPlan((most_seeds,))
    most = looks.most
    if n < 2 or not isfinite(contrast.std):
        return most_seeds if n else 2
    off = abs(
        contrast.interval.mean
        + (claim.margin if claim.higher is not None or claim.above is not None else -claim.margin)
    )
    a_seed = most // most_seeds  # pairs
    for seeds, pairs in enumerate(range(n + a_seed, most + 1, a_seed), 1):
        if p_value(Spread(off, contrast.std, pairs)) <= looks.level(pairs):
            return seeds
    return most_seeds


def _seed_s(reproduction: Reproduction, cells: Sequence[Cell], seed: int) -> float:
    """The wall seconds of the cells that lack a seed, by the means of runs like them."""
    lacking = [cell for cell in cells if seed not in reproduction.runs_at(cell.exhibit, cell)]
    everywhere = [reproduction.wall_s(run) for run in reproduction.all_runs()]
    minutes = reproduction.recipe.scale[reproduction.scale].minutes
    planned_s = minutes * 60 / max(1, reproduction.planned) if minutes else _UNKNOWN_S
    otherwise = [float(np.mean(everywhere)) if everywhere else planned_s]
    seconds = [
        [reproduction.wall_s(run) for run in reproduction.runs_at(cell.exhibit, cell).values()]
        or otherwise
        for cell in lacking
    ]
    return float(sum(np.mean(durations) for durations in seconds))


def _named(reproduction: Reproduction, words: Sequence[str]) -> list[Claim]:
    """The claims whose texts hold the words; all that have cells at the scale for none."""
    claims = [
        judged.claim
        for judged in reproduction.judged
        if reproduction.recipe.named(judged.claim.exhibit).cells(reproduction.scale)
    ]
    for word in words:
        if not any(word.lower() in claim.text.lower() for claim in claims):
            texts = "; ".join(claim.text for claim in claims) or "there are none at this scale"
            raise ConfigError(
                f"no claim holds {word!r}; expected part of one of: {texts}", "--claims"
            )
    chosen = [
        claim
        for claim in claims
        if not words or any(word.lower() in claim.text.lower() for word in words)
    ]
    if not chosen:
        raise ConfigError(
            f"{reproduction.recipe.name} has no claims with runs at {reproduction.scale}; there is "
            "nothing to decide",
            "--until",
        )
    return chosen


def _run(
    reproduction: Reproduction,
    comparison: OpenComparison,
    data: Path | None,
    progress: bool,
    on_ray: str | None,
    jobs: int,
) -> tuple[Reproduction, list[Failure]]:
    """Run a seed of a comparison; return the reproduction with it, and what failed."""
    plan = reproduction.sequential.with_seed(comparison.claim.exhibit, comparison.seed)
    plan.write(reproduction.directory)  # first: a run that is interrupted is gone on with
    points = [
        Point(
            _label(cell), reproduction.recipe.experiment(cell, reproduction.scale, comparison.seed)
        )
        for cell in comparison.cells
    ]
    folders = [reproduction.directory / "runs" / point.experiment.result_id() for point in points]
    different = dict(zip(folders, points, strict=True))
    failures = run_points(
        points=list(different.values()),
        folders=list(different),
        data=data,
        progress=progress,
        on_ray=on_ray,
        jobs=jobs,
    )[1]
    runs = dict(reproduction.runs)
    for cell, folder in zip(comparison.cells, folders, strict=True):
        if (RunFolder(folder).read() or {}).get("finished"):
            key = cell.exhibit.name, cell.values
            runs[key] = {**runs.get(key, {}), comparison.seed: load(folder)}
    return replace(reproduction, runs=runs, sequential=plan), failures


def _label(cell: Cell) -> str:
    return f"{cell.exhibit.name} {cell.name}"


def _announce(
    reproduction: Reproduction, budget_s: float, jobs: int, tell: Callable[[str], None]
) -> None:
    """Say what will be done, and how long it may take."""
    plan = reproduction.sequential
    waiting = open_comparisons(reproduction, jobs)
    names = {comparison.claim.text for comparison in waiting}
    tell(
        f"{len(names)} of {len(plan.claims)} claims are open, with {len(waiting)} comparisons; "
        f"seeds are added where a decision is nearest, at most {plan.most} a comparison; verdicts "
        "are those of a sequential test"
    )
    if waiting:
        total = sum(comparison.left_s for comparison in waiting)
        tell(
            f"if means and spreads stay as they are, this takes {_duration(total)} or less, for "
            f"comparisons share runs; the budget is {_duration(budget_s)}"
        )


def _ending(waiting: Sequence[OpenComparison]) -> str:
    if not waiting:
        return "every claim is decided, or has the most seeds"
    return (
        f"the budget ends before the next seed; {len(waiting)} comparisons are open; the same "
        "command goes on"
    )


def _duration(seconds: float) -> str:
    if seconds >= 3600:
        return f"{seconds / 3600:.1f} h"
    return f"{seconds / 60:.1f} min" if seconds >= 60 else f"{seconds:.0f} s"
