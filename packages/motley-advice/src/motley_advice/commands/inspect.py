"""The command ``motley inspect``: how the clients of a federation differ, on one page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from motley.commands.shared_options import AllowImport, Data, Settings, check_data, tell

if TYPE_CHECKING:
    from motley_advice.inspection.inspected import Inspected

__all__ = ["inspect", "page_name"]

What = Annotated[
    list[Path],
    typer.Argument(
        metavar="FILE.toml|RUNS|TABLE ...",
        help="Experiments, folders of runs, tables (.csv, .parquet, ...) or folders of one a "
        "client; several stand side by side.",
    ),
]
Rounds = Annotated[
    int,
    typer.Option(
        "--rounds", metavar="N", min=0, help="Run so many rounds, and measure drift again."
    ),
]
Out = Annotated[
    Path | None,
    typer.Option(
        "--out",
        metavar="FILE",
        help="The page; .html or .md. inspect-NAME.html below runs/ unless given.",
    ),
]
AsJson = Annotated[
    bool, typer.Option("--json", help="Print JSON, and write no page unless --out names one.")
]
Label = Annotated[
    str | None,
    typer.Option("--label", metavar="COLUMN", help="Of a table: what is to be predicted."),
]
Client = Annotated[
    str | None,
    typer.Option("--client", metavar="COLUMN", help="Of a single table: whose a row is."),
]
_WRITTEN = "How a table is written"
Sep = Annotated[
    str | None,
    typer.Option(
        "--sep",
        metavar="MARK",
        help="What divides columns, if it is not recognised.",
        rich_help_panel=_WRITTEN,
    ),
]
Decimal = Annotated[
    str | None,
    typer.Option(
        "--decimal", metavar="MARK", help="The decimal mark: . or ,", rich_help_panel=_WRITTEN
    ),
]
Thousands = Annotated[
    str | None,
    typer.Option(
        "--thousands",
        metavar="MARK",
        help="The mark between groups of three digits.",
        rich_help_panel=_WRITTEN,
    ),
]
Encoding = Annotated[
    str | None,
    typer.Option(
        "--encoding",
        metavar="NAME",
        help="If it is not UTF-8, e.g. latin-1.",
        rich_help_panel=_WRITTEN,
    ),
]
Dates = Annotated[
    str | None,
    typer.Option(
        "--dates",
        metavar="ORDER",
        help='Read dates as days: "day first", "month first" or "year first".',
        rich_help_panel=_WRITTEN,
    ),
]
HeaderRows = Annotated[
    int | None,
    typer.Option(
        "--header-rows",
        metavar="N",
        min=0,
        help="Lines that name the columns.",
        rich_help_panel=_WRITTEN,
    ),
]
Comment = Annotated[
    str | None,
    typer.Option(
        "--comment", metavar="MARK", help="What a comment begins with.", rich_help_panel=_WRITTEN
    ),
]
Sheet = Annotated[
    str | None,
    typer.Option("--sheet", metavar="NAME", help="Of an Excel file.", rich_help_panel=_WRITTEN),
]
Gaps = Annotated[
    list[str] | None,
    typer.Option(
        "--gap", metavar="TEXT", help="A text that stands for a gap.", rich_help_panel=_WRITTEN
    ),
]
Units = Annotated[
    list[str] | None,
    typer.Option(
        "--unit",
        metavar="TEXT",
        help="A text beside numbers that is left out.",
        rich_help_panel=_WRITTEN,
    ),
]
Words = Annotated[
    list[str] | None,
    typer.Option(
        "--words", metavar="COLUMN", help="A column to read as words.", rich_help_panel=_WRITTEN
    ),
]
Numbers = Annotated[
    list[str] | None,
    typer.Option(
        "--numbers", metavar="COLUMN", help="A column to keep as numbers.", rich_help_panel=_WRITTEN
    ),
]
Drop = Annotated[
    list[str] | None,
    typer.Option(
        "--drop", metavar="COLUMN", help="A column to leave out.", rich_help_panel=_WRITTEN
    ),
]
DropRows = Annotated[
    bool,
    typer.Option(
        "--drop-rows", help="Leave out rows without a label or client.", rich_help_panel=_WRITTEN
    ),
]
Trim = Annotated[
    bool,
    typer.Option("--trim", help="Join what differs in blanks alone.", rich_help_panel=_WRITTEN),
]
Fold = Annotated[
    bool,
    typer.Option("--fold", help="Join what differs in capitals alone.", rich_help_panel=_WRITTEN),
]

_WIDTH = 160


def inspect(
    what: What,
    rounds: Rounds = 0,
    set: Settings = None,
    data: Data = None,
    out: Out = None,
    as_json: AsJson = False,
    allow_import: AllowImport = False,
    label: Label = None,
    client: Client = None,
    sep: Sep = None,
    decimal: Decimal = None,
    thousands: Thousands = None,
    encoding: Encoding = None,
    dates: Dates = None,
    header_rows: HeaderRows = None,
    comment: Comment = None,
    sheet: Sheet = None,
    gaps: Gaps = None,
    units: Units = None,
    words: Words = None,
    numbers: Numbers = None,
    drop: Drop = None,
    drop_rows: DropRows = False,
    trim: Trim = False,
    fold: Fold = False,
) -> None:
    """Measure how clients differ in data, speed and presence, and name the pitfalls of an
    experiment or of runs."""
    from rich.console import Console

    from motley.results.page import check_name
    from motley_advice.inspection.inspecting import inspect as inspect_federations

    table = {
        "sep": None if sep is None else sep.replace("\\t", "\t"),
        "decimal": decimal,
        "thousands": thousands,
        "encoding": encoding,
        "dates": dates,
        "header_rows": header_rows,
        "comment": comment,
        "sheet": sheet,
        "gaps": gaps,
        "units": units,
        "words": words,
        "numbers": numbers,
        "drop": drop,
        "drop_rows": drop_rows,
        "trim": trim,
        "fold": fold,
    }
    check_data(data)
    if out is not None:
        check_name(out)
    first, *more = what
    with Console(stderr=True).status("reading") as status:
        found = inspect_federations(
            first,
            *more,
            rounds=rounds,
            data=data,
            overrides=set or [],
            allow_import=allow_import,
            tell=status.update,
            label=label,
            client=client,
            table={key: value for key, value in table.items() if value},
        )
    if as_json:
        tell(found.to_json())
    else:
        _show(found)
    if out is not None or not as_json:
        tell(f"page: {found.write(out or Path('runs') / page_name(what))}", err=as_json)


def page_name(what: Sequence[Path]) -> str:
    """Return the name of the page of some federations, made of their own."""
    from motley.experiments.store import slug
    from motley_advice.inspection.own_tables import table_name

    names = "-".join(one.stem if one.suffix == ".toml" else table_name(one) for one in what)
    return f"{slug(f'inspect-{names}')}.html"


def _show(found: Inspected) -> None:
    """Print the findings and the pitfalls."""
    from rich.console import Console

    from motley_advice.inspection.findings_terminal import (
        as_table,
        bullets,
        client_tables,
        column_tables,
        heads,
    )

    console = Console()
    if not console.is_terminal:
        console.width = _WIDTH
    tell(heads(found))
    for table in column_tables(found):
        console.print(table)
    console.print(as_table(found, console.width))
    for table in client_tables(found):
        console.print(table)
    if said := bullets(found):
        tell(said)
