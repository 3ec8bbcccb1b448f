"""The command ``motley reproduce``: run the tables and figures of a paper."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

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
    seeds_of,
    tell,
)
from motley.core.errors import ConfigError

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
) -> None:
    """Run the tables and figures of a paper, and compare published with measured values."""
    from motley.experiments.sweep import parse_over
    from motley.recipes.output import overview
    from motley.recipes.reproduce import reproduce as reproduce_recipe

    if recipe is None:
        typer.echo(overview())
        return
    check_data(data)
    if keep and set:
        raise ConfigError(
            "runs with other settings are not the recipe's; leave out --set, or write them into recipe.toml", "--keep"
        )
    formats = formats_of(format)
    names = [*(f"table {n}" for n in table or []), *(f"figure {n}" for n in figure or []), *(exhibit or [])]
    places = {axis: [str(value) for value in values] for axis, values in (parse_over(text) for text in only or [])}
    found = reproduce_recipe(
        recipe, names, scale=scale, seeds=seeds_of(seeds), only=places, out=out, data=data, overrides=set or [], progress=True,
        run=run, on_ray=on_ray, jobs=jobs, earlier=earlier,
    )  # fmt: skip
    _write(found, formats, keep)
    raise_failures(found.failures, len(found.all_runs()))


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
