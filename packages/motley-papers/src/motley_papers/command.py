"""The command ``motley reproduce``: run the tables and figures of a paper."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from motley.commands.shared_options import (
    AllowImport,
    Data,
    Format,
    Jobs,
    RayCluster,
    Settings,
    check_data,
    import_from_here,
    in_home,
    raise_failures,
    say,
    seeds_of,
    tell,
)
from motley.core.errors import ConfigError, suggest
from motley_papers.packaged import recipe_names, table_names

if TYPE_CHECKING:
    from motley_papers.reproduce import Reproduction

Exhibits = Annotated[
    list[str] | None,
    typer.Option(
        "--exhibit",
        metavar="NAME",
        help='This, and all whose names begin so: "table 1, mnist", "lemma".',
    ),
]


def _recipes(incomplete: str) -> list[str]:
    """Return the recipes whose names begin so, for the shell's completion."""
    every = [*recipe_names(), *table_names()]
    return [name for name in every if name.startswith(incomplete)]


Name = Annotated[
    str | None,
    typer.Argument(
        metavar="RECIPE",
        help="Its name, its folder, or the file of a table; without one, all names.",
        autocompletion=_recipes,
    ),
]
Tables = Annotated[
    list[str] | None, typer.Option("--table", metavar="N", help="This table of the paper only.")
]
Figures = Annotated[
    list[str] | None, typer.Option("--figure", metavar="N", help="This figure of the paper only.")
]
Size = Annotated[str, typer.Option("--scale", metavar="smoke|small|paper", help="How much of it.")]
Seeds = Annotated[
    str | None, typer.Option("--seeds", metavar="0,1,2", help="Instead of the recipe's.")
]
Only = Annotated[
    list[str] | None,
    typer.Option("--only", metavar="AXIS=A,B", help="Run these values of an axis only."),
]
Out = Annotated[
    Path | None,
    typer.Option(
        "--out",
        metavar="DIR",
        help="Where to write; runs/RECIPE/SCALE unless given.",
        callback=in_home,
    ),
]
Runs = Annotated[
    bool, typer.Option("--run/--no-run", help="Run what is missing, or report what is there.")
]
WithEarlier = Annotated[
    bool,
    typer.Option(
        "--earlier/--no-earlier",
        help="Numbers measured earlier stand where a run is missing, or do not.",
    ),
]
Unmeasured = Annotated[
    bool, typer.Option("--unmeasured", help="Run only what was not measured earlier.")
]
MeasuredAnew = Annotated[
    bool,
    typer.Option(
        "--measured", help="Run anew only what was measured earlier; with --out, a new folder."
    ),
]
Until = Annotated[
    str | None,
    typer.Option(
        "--until",
        metavar="decided",
        help="Add seeds to open claims, the nearest to a decision first.",
    ),
]
Budget = Annotated[
    str | None, typer.Option("--budget", metavar="4h", help="With --until: how long at most.")
]
Claims = Annotated[
    list[str] | None,
    typer.Option(
        "--claims", metavar="WORDS", help="With --until: claims whose text holds these words."
    ),
]
MostSeeds = Annotated[
    int | None,
    typer.Option(
        "--most-seeds",
        metavar="N",
        help="With --until: the most seeds of a comparison; 20 unless given.",
    ),
]
Keeps = Annotated[
    bool,
    typer.Option(
        "--keep", help="Put numbers, curves and report beside those measured earlier, too."
    ),
]


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
    unmeasured: Unmeasured = False,
    measured: MeasuredAnew = False,
    keep: Keeps = False,
    until: Until = None,
    budget: Budget = None,
    claims: Claims = None,
    most_seeds: MostSeeds = None,
    allow_import: AllowImport = False,
) -> None:
    """Run the tables and figures of a paper, and compare published with measured values."""
    from motley_papers.output import overview

    if recipe is None:
        typer.echo(overview())
        return
    check_data(data)
    if recipe in table_names() or recipe.endswith(".toml"):
        _refuse(
            {
                "--table": table,
                "--figure": figure,
                "--exhibit": exhibit,
                "--set": set,
                "--on-ray": on_ray,
                "--format": format,
                "--unmeasured": unmeasured,
                "--measured": measured,
                "--until": until,
                "--budget": budget,
                "--claims": claims,
                "--most-seeds": most_seeds,
                "--scale": scale != "small",
                "--no-earlier": not earlier,
            },
            f"beside {recipe}",
            "it is one published table, whose file says what is run",
        )
        _referee(
            recipe,
            seeds,
            only,
            keeps=keep,
            data=data,
            out=out,
            jobs=jobs,
            allow_import=import_from_here(allow_import),
            run=run,
        )
        return
    _refuse({"--set": set and keep}, "--keep", "runs with other settings are not the recipe's")
    _refuse(
        {"--unmeasured": unmeasured and not earlier, "--measured": measured and not earlier},
        "--no-earlier",
        "it asks which numbers are kept",
    )
    _refuse({"--measured": measured and unmeasured}, "--unmeasured", "together they run nothing")
    from motley_report.print_files import formats_of

    formats = formats_of(format)
    names = [*(f"table {n}" for n in table or []), *(f"figure {n}" for n in figure or [])]
    names += exhibit or []
    how: dict[str, Any] = {
        "scale": scale,
        "out": out,
        "data": data,
        "on_ray": on_ray,
        "jobs": jobs,
        "earlier": earlier,
        "allow_import": import_from_here(allow_import),
    }
    sought = {"--budget": budget, "--claims": claims, "--most-seeds": most_seeds}
    chosen = {
        "--seeds": seeds,
        "--only": only,
        "--set": set,
        "--no-run": not run,
        "--unmeasured": unmeasured,
        "--measured": measured,
    }
    if until is not None:
        reproduction = _until(
            recipe=recipe, names=names, until=until, sought=sought, chosen=chosen, how=how
        )
    else:
        reproduction = _once(recipe=recipe, names=names, sought=sought, chosen=chosen, how=how)
    _write(reproduction, formats, keep)
    raise_failures(reproduction.failures, len(reproduction.all_runs()))


def _referee(
    name: str, seeds: str | None, only: Sequence[str] | None, keeps: bool, **how: Any
) -> None:
    """Run and judge a published table, and write its reports."""
    from motley_papers.published_table import read
    from motley_papers.referee import keep, place_of_kept, referee, show, write

    places = _places(only)
    if other := [axis for axis in places if axis not in ("method", "column")]:
        raise ConfigError(
            f"got {other[0]}; a published table has methods and columns, --only method=A,B or "
            "--only column=A,B",
            "only",
        )
    table = read(name)
    if keeps:
        place_of_kept(table)  # before anything is run
    refereed = referee(
        table,
        seeds=seeds_of(seeds),
        methods=_as_listed("method", places, only, table.method),
        columns=_as_listed("column", places, only, table.columns),
        progress=True,
        tell=say,
        **how,
    )
    show(refereed)
    for path in [*write(refereed), *([keep(refereed)] if keeps else [])]:
        tell(path)
    raise_failures(refereed.failures, refereed.finished)


def _as_listed(
    axis: str, places: Mapping[str, list[str]], only: Sequence[str] | None, names: Iterable[str]
) -> list[str] | None:
    """Return the names that ``--only`` gives of an axis, which may look like numbers or hold
    commas."""
    if axis not in places:
        return None
    texts = [text.partition("=")[2].strip() for text in only or () if _axis_of(text) == axis]
    listed = set(names)
    for given in (texts, [piece.strip() for text in texts for piece in text.split(",")]):
        if listed.issuperset(given):
            return given
    return places[axis]


def _axis_of(text: str) -> str:
    return text.partition("=")[0].strip()


def _places(only: Sequence[str] | None) -> dict[str, list[str]]:
    from motley.experiments.sweep import parse_axes

    axes = parse_axes(only, "--only", "method=fedavg,fedprox")
    return {axis: [str(value) for value in values] for axis, values in axes.items()}


def _refuse(options: Mapping[str, object], beside: str, reason: str) -> None:
    """Refuse an option that makes no sense beside another.

    Raises
    ------
    ConfigError: it is given.
    """
    for option, value in options.items():
        if value not in (None, False, []):
            raise ConfigError(f"{option} {beside}: {reason}; leave out {option}")


def _once(
    recipe: str,
    names: Sequence[str],
    sought: Mapping[str, Any],
    chosen: Mapping[str, Any],
    how: dict[str, Any],
) -> Reproduction:
    """Run what is missing of the recipe's seeds, or of those chosen."""
    from motley_papers.recipe import read
    from motley_papers.reproduce import reproduce as reproduce_recipe

    _refuse(sought, "without --until", "it belongs to --until decided")
    only = chosen["--only"]
    places = _places(only)
    axes = [exhibit.axes for exhibit in read(recipe).exhibit]
    values = {axis: [value for held in axes for value in held.get(axis, ())] for axis in places}
    how |= {
        "seeds": seeds_of(chosen["--seeds"]),
        "only": {axis: _as_listed(axis, places, only, values[axis]) for axis in places},
        "overrides": chosen["--set"] or [],
    }
    how |= {"unmeasured": chosen["--unmeasured"], "measured": chosen["--measured"]}
    return reproduce_recipe(
        recipe, names, progress=True, run=not chosen["--no-run"], tell=say, **how
    )


def _until(
    recipe: str,
    names: Sequence[str],
    until: str,
    sought: Mapping[str, Any],
    chosen: Mapping[str, Any],
    how: dict[str, Any],
) -> Reproduction:
    """Add seeds until the claims are decided, and say what is done."""
    from motley_papers.recipe import read
    from motley_papers.until import MOST_SEEDS, seconds_of, until_decided

    _refuse(chosen, "--until", "it chooses seeds and runs itself")
    if until != "decided":
        raise ConfigError(
            f"got {until!r}{suggest(until, ['decided'])}; expected decided", "--until"
        )
    if sought["--budget"] is None:
        raise ConfigError(
            "got no budget; say how long it may take, e.g. --budget 4h", "--until decided"
        )
    most = MOST_SEEDS if sought["--most-seeds"] is None else sought["--most-seeds"]
    budget_s = seconds_of(sought["--budget"])
    claims = sought["--claims"] or []
    return until_decided(
        read(recipe),
        names,
        budget_s=budget_s,
        claims=claims,
        most=most,
        progress=True,
        tell=say,
        **how,
    )


def _write(reproduction: Reproduction, formats: Sequence[str], keep: bool) -> None:
    """Print the tables, write the files, and print their names."""
    from motley_papers.keeping import keep as keep_numbers
    from motley_papers.output import show, write, write_for_print

    show(reproduction)
    for path in [
        *write(reproduction),
        *([write_for_print(reproduction, formats)] if formats else []),
        *(keep_numbers(reproduction) if keep else []),
    ]:
        tell(path)
