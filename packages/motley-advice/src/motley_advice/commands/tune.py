"""The command ``motley tune``: choose values with the same budget for each method, and test them
with seeds that were not seen."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from motley.commands.shared_options import (
    AllowImport,
    Data,
    Jobs,
    OtherNumerics,
    Out,
    RayCluster,
    Settings,
    check_data,
    import_from_here,
    say,
    seeds_of,
    tell,
    wide_console,
)
from motley.core.modules_loading import modules_loading

if TYPE_CHECKING:
    from motley_advice.tuning.outcome import TuningResult

File = Annotated[Path, typer.Argument(metavar="FILE.toml", help="The experiment.")]
Over = Annotated[
    list[str],
    typer.Option(
        "--over",
        metavar="KEY=SPACE",
        help="A key to tune: log:0.001..1, 0.1..0.9, int:1..10 or a,b,c; METHOD:KEY for one "
        "method.",
    ),
]
Per = Annotated[
    str | None,
    typer.Option(
        "--per",
        metavar="KEY=A,B",
        help="The methods, each tuned by itself; KEY alone takes the values of the file's grid.",
    ),
]
Trials = Annotated[int, typer.Option("--trials", metavar="N", help="Trials of each method.")]
Objectives = Annotated[
    list[str] | None,
    typer.Option(
        "--objective",
        metavar="NAME",
        help="headline, a metric, worst_tenth, time_to:0.8, traffic_to:0.8; or several.",
    ),
]
Seeds = Annotated[
    str | None,
    typer.Option("--seeds", metavar="0,1", help="Seeds of every trial; the file's unless given."),
]
TestSeeds = Annotated[
    str | None,
    typer.Option(
        "--test-seeds", metavar="10,11,12", help="Seeds of the test, which tuning does not see."
    ),
]
RoundsFirst = Annotated[
    int | None,
    typer.Option(
        "--rounds-first",
        metavar="N",
        help="Rounds after which only the best trials go on (halving).",
    ),
]
HoursFirst = Annotated[
    float | None,
    typer.Option("--hours-first", metavar="H", help="The same in hours of virtual time."),
]
Factor = Annotated[int, typer.Option("--factor", metavar="F", help="One trial in so many goes on.")]


def tune(
    file: File,
    over: Over,
    per: Per = None,
    trials: Trials = 20,
    objective: Objectives = None,
    seeds: Seeds = None,
    test_seeds: TestSeeds = None,
    rounds_first: RoundsFirst = None,
    hours_first: HoursFirst = None,
    factor: Factor = 3,
    jobs: Jobs = 1,
    on_ray: RayCluster = None,
    set: Settings = None,
    data: Data = None,
    out: Out = None,
    allow_import: AllowImport = False,
    allow_other_numerics: OtherNumerics = False,
) -> None:
    """Tune each method with the same budget, by validation, and test it. The same command goes on
    where it stopped."""
    with modules_loading():
        from motley_advice.tuning.spaces import parse_spaces
        from motley_advice.tuning.study import tune as tune_experiment

    check_data(data)
    result = tune_experiment(
        file,
        parse_spaces(over),
        per=per,
        trials=trials,
        objective=_names(objective),
        seeds=seeds_of(seeds),
        test_seeds=seeds_of(test_seeds),
        rounds_first=rounds_first,
        hours_first=hours_first,
        factor=factor,
        jobs=jobs,
        on_ray=on_ray,
        out=out,
        data=data,
        overrides=set or [],
        allow_import=import_from_here(allow_import),
        allow_other_numerics=allow_other_numerics,
        say=say,
    )
    _show(result)


def _names(texts: list[str] | None) -> list[str]:
    return [name.strip() for text in texts or ["headline"] for name in text.split(",")]


def _show(result: TuningResult) -> None:
    """Print the table, and where the files are."""
    from rich.table import Table

    from motley_advice.tuning.results import results_table, worries

    table = results_table(result)
    shown = Table(*table.heads)
    for row in table.rows:
        shown.add_row(row.label, *(cell.text for cell in row.cells))
    console = wide_console()
    console.print(shown)
    for line in (table.note, *worries(result)):
        tell(line)
    tell(f"report: {result.directory / 'report.html'}")
    tell(
        f"trials: {result.directory / 'trials.csv'}; experiments with the chosen values: "
        f"{result.directory / 'tuned'}"
    )
