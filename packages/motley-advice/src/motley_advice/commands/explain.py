"""The command ``motley explain``: what differs between two results, and how much of the difference
each cause carries."""

from __future__ import annotations

from typing import Annotated

import typer

from motley.commands.shared_options import (
    AllowImport,
    Data,
    Jobs,
    OtherNumerics,
    Out,
    Settings,
    check_data,
    import_from_here,
    say,
    seeds_of,
    tell,
    wide_console,
)
from motley.core.modules_loading import modules_loading

A = Annotated[
    str,
    typer.Argument(
        metavar="A",
        help="An experiment file, the folder of a run or of one method's runs, a run id, or "
        "recipe:NAME/ROW.",
    ),
]
B = Annotated[str | None, typer.Argument(metavar="B", help="Another one.")]
Change = Annotated[
    list[str] | None,
    typer.Option("--change", metavar="KEY=VALUE", help="Instead of B: a candidate change of A."),
]
Printed = Annotated[
    str | None,
    typer.Option(
        "--printed", metavar="0.685", help="A printed number: how far each cause brings A to it."
    ),
]
PrintedRuns = Annotated[
    int | None,
    typer.Option(
        "--printed-runs", metavar="K", help="The runs that it is the mean of; 1 unless given."
    ),
]
Metric = Annotated[
    str | None, typer.Option("--metric", metavar="NAME", help="The headline unless given.")
]
Round = Annotated[
    str, typer.Option("--round", metavar="last|best", help="Or A's and B's: last,best.")
]
Scope = Annotated[
    str | None,
    typer.Option(
        "--scope", metavar="global|mean", help="Whose figure; or A's and B's: global,mean."
    ),
]
Seeds = Annotated[
    str | None, typer.Option("--seeds", metavar="0,1,2", help="Those of A and B unless given.")
]
Runs = Annotated[
    int | None,
    typer.Option("--runs", metavar="N", help="The most runs of the plan; 160 unless given."),
]
Plan = Annotated[
    bool, typer.Option("--plan", help="Say what differs and would be run; run nothing.")
]


def explain(
    a: A,
    b: B = None,
    change: Change = None,
    printed: Printed = None,
    printed_runs: PrintedRuns = None,
    metric: Metric = None,
    round: Round = "last",
    scope: Scope = None,
    seeds: Seeds = None,
    runs: Runs = None,
    plan: Plan = False,
    set: Settings = None,
    data: Data = None,
    out: Out = None,
    jobs: Jobs = 1,
    allow_import: AllowImport = False,
    allow_other_numerics: OtherNumerics = False,
) -> None:
    """Say in what two results differ as they were executed, run what lies between them, and divide
    their difference among its causes. The same command goes on where it stopped."""
    with modules_loading():
        from motley.results.terminal import block_table
        from motley_advice.explanation.explaining import explain as explain_difference
        from motley_advice.explanation.explanation_plan import ExplanationPlan
        from motley_advice.explanation.explanation_tables import (
            difference_table,
            notes,
            share_table,
            write_explanation,
        )

    check_data(data)
    console = wide_console()

    def show(planned: ExplanationPlan) -> None:
        console.print(block_table(difference_table(planned), "what differs"))
        if plan:
            raise typer.Exit

    explanation = explain_difference(
        a,
        b,
        changes=change or [],
        printed=printed,
        printed_runs=printed_runs,
        metric=metric,
        round=round,
        scope=scope,
        seeds=seeds_of(seeds),
        runs=runs,
        out=out,
        data=data,
        overrides=set or [],
        jobs=jobs,
        allow_import=import_from_here(allow_import),
        allow_other_numerics=allow_other_numerics,
        progress=True,
        on_plan=show,
        say=say,
    )
    console.print(block_table(share_table(explanation), "what each cause carries"))
    for line in notes(explanation):
        say(f"note: {line}")
    tell(f"explanation: {write_explanation(explanation)}")
