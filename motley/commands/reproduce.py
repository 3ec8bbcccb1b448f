"""The command ``motley reproduce``: run the tables and figures of a paper."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from motley.commands.options import (
    Data,
    Format,
    Jobs,
    RayCluster,
    Settings,
    check_data,
    formats_of,
    raise_failures,
    say,
    seeds_of,
    tell,
)
from motley.core.errors import ConfigError, suggest

if TYPE_CHECKING:
    from motley.recipes.reproduce import Reproduction

__all__ = ["reproduce"]

Exhibits = Annotated[
    list[str] | None, typer.Option("--exhibit", metavar="NAME", help='This only, by its full name, e.g. "lemma A.4".')
]
Name = Annotated[str | None, typer.Argument(metavar="RECIPE", help="Its name, or its folder; without one, all names.")]
Tables = Annotated[list[str] | None, typer.Option("--table", metavar="N", help="This table of the paper only.")]
Figures = Annotated[list[str] | None, typer.Option("--figure", metavar="N", help="This figure of the paper only.")]
Size = Annotated[str, typer.Option("--scale", metavar="smoke|small|paper", help="How much of it.")]
Seeds = Annotated[str | None, typer.Option("--seeds", metavar="0,1,2", help="Instead of the recipe's.")]
Only = Annotated[list[str] | None, typer.Option("--only", metavar="AXIS=A,B", help="Run these values of an axis only.")]
Out = Annotated[Path | None, typer.Option("--out", metavar="DIR", help="Where to write; runs/RECIPE/SCALE unless given.")]
Runs = Annotated[bool, typer.Option("--run/--no-run", help="Run what is missing, or report what is there.")]
WithEarlier = Annotated[
    bool, typer.Option("--earlier/--no-earlier", help="Numbers measured earlier stand where a run is missing, or do not.")
]
Until = Annotated[
    str | None, typer.Option("--until", metavar="decided", help="Add seeds to open claims, the nearest to a decision first.")
]
Budget = Annotated[str | None, typer.Option("--budget", metavar="4h", help="With --until: how long at most.")]
Claims = Annotated[
    list[str] | None, typer.Option("--claims", metavar="WORDS", help="With --until: claims whose text holds these words.")
]
MostSeeds = Annotated[
    int | None, typer.Option("--most-seeds", metavar="N", help="With --until: the most seeds of a comparison; 20 unless given.")
]
Keeps = Annotated[bool, typer.Option("--keep", help="Put numbers, curves and report into the recipe's folder, too.")]


def reproduce(
    recipe: Name = None,
    table: Tables = None,
    figure: Figures = None,
    exhibit: Exhibits = None,
    scale: Size = "small",
    seeds: Seeds = None,
    only: Only = None,
    set: Settings = None,
    data: Data = None,
    out: Out = None,
    run: Runs = True,
    on_ray: RayCluster = None,
    jobs: Jobs = 1,
    format: Format = None,
    earlier: WithEarlier = True,
    keep: Keeps = False,
    until: Until = None,
    budget: Budget = None,
    claims: Claims = None,
    most_seeds: MostSeeds = None,
) -> None:
    """Run the tables and figures of a paper, and compare published with measured values."""
    from motley.recipes.output import overview
    from motley.recipes.reproduce import reproduce as reproduce_recipe

    if recipe is None:
        typer.echo(overview())
        return
    check_data(data)
    _refuse({"--set": bool(set and keep)}, "--keep", "runs with other settings are not the recipe's")
    formats, names = formats_of(format), [*(f"table {n}" for n in table or []), *(f"figure {n}" for n in figure or [])]
    names += exhibit or []
    how: dict[str, Any] = {"scale": scale, "out": out, "data": data, "on_ray": on_ray, "jobs": jobs, "earlier": earlier}
    if until is not None:
        given = {"--seeds": seeds is not None, "--only": bool(only), "--set": bool(set), "--no-run": not run}
        _refuse(given, "--until", "it chooses seeds and runs of the recipe as it is")
        found = _until(recipe, names, until, budget, claims or [], most_seeds, how)
    else:
        given = {"--budget": budget is not None, "--claims": bool(claims), "--most-seeds": most_seeds is not None}
        _refuse(given, "without --until", "it belongs to --until decided")
        found = reproduce_recipe(
            recipe, names, seeds=seeds_of(seeds), only=_places(only), overrides=set or [], progress=True, run=run, **how
        )
    _write(found, formats, keep)
    raise_failures(found.failures, len(found.all_runs()))


def _places(only: Sequence[str] | None) -> dict[str, list[str]]:
    from motley.experiments.sweep import parse_over

    return {axis: [str(value) for value in values] for axis, values in (parse_over(text) for text in only or [])}


def _refuse(given: Mapping[str, bool], beside: str, reason: str) -> None:
    """Refuse an option that makes no sense beside another.

    Raises
    ------
    ConfigError: it is given.
    """
    for option, there in given.items():
        if there:
            raise ConfigError(f"{option} {beside}: {reason}; leave out {option}")


def _until(
    recipe: str,
    names: Sequence[str],
    until: str,
    budget: str | None,
    claims: Sequence[str],
    most: int | None,
    how: dict[str, Any],
) -> Reproduction:
    """Add seeds until the claims are decided, and say what is done."""
    from motley.recipes.recipe import read
    from motley.recipes.until import MOST_SEEDS, seconds_of, until_decided

    if until != "decided":
        raise ConfigError(f"got {until!r}{suggest(until, ['decided'])}; expected decided", "--until")
    if budget is None:
        raise ConfigError("got no budget; say how long it may take, e.g. --budget 4h", "--until decided")
    most = MOST_SEEDS if most is None else most
    return until_decided(
        read(recipe), names, budget_s=seconds_of(budget), claims=claims, most=most, progress=True, tell=say, **how
    )


def _write(found: Reproduction, formats: Sequence[str], keep: bool) -> None:
    """Print the tables, write the files, and print their names."""
    from motley.recipes.output import show, write, write_for_print
    from motley.recipes.tables import keep as keep_numbers

    show(found)
    for path in [
        *write(found),
        *([write_for_print(found, formats)] if formats else []),
        *(keep_numbers(found) if keep else []),
    ]:
        tell(path)
