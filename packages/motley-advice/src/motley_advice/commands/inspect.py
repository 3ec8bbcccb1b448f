"""The command ``motley inspect``: how the clients of a federation differ, on one page."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from motley.commands.shared_options import (
    AllowImport,
    Data,
    check_data,
    import_from_here,
    in_home,
    tell,
    wide_console,
)
from motley.core.modules_loading import modules_loading
from motley_advice.commands.table_flags import with_table_flags, written_table

if TYPE_CHECKING:
    from motley_advice.inspection.inspected import Inspected

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
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Set a key; of a table, a key of its [task]."),
]
Out = Annotated[
    Path | None,
    typer.Option(
        "--out",
        metavar="FILE",
        help="The page; .html or .md. inspect-NAME.html below runs/ unless given.",
        callback=in_home,
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
_ONE_OF = {"gaps": "--gap", "units": "--unit"}
"""Flags of lists that are named by an entry of theirs."""
_TEXT = r'"(?:[^"\\]|\\.)*"'
_KEY = re.compile(
    r"\b(?P<name>sep|decimal|thousands|encoding|dates|header_rows|comment|sheet|gaps|units|words"
    r"|numbers|drop|drop_rows|trim|fold|rename) ?= ?"
    rf"""(?P<value>true|\d+|{_TEXT}|\[(?:{_TEXT}|[^]"])*\]|\{{(?:{_TEXT}|[^}}"])*\}})"""
)
"""A key of ``[task]`` with its value in a message."""


@with_table_flags
def inspect(
    sources: What,
    rounds: Rounds = 0,
    set: Settings = None,
    data: Data = None,
    out: Out = None,
    as_json: AsJson = False,
    allow_import: AllowImport = False,
    label: Label = None,
    client: Client = None,
    **table: Any,
) -> None:
    """Measure how clients differ in data, speed and presence, and name the pitfalls of an
    experiment or of runs."""
    from rich.console import Console

    from motley.core.errors import UserError

    with modules_loading():
        from motley_advice.inspection.inspecting import inspect as inspect_federations
        from motley_advice.inspection.own_tables import holds_tables
        from motley_report.page import check_name

    check_data(data)
    if out is not None:
        check_name(out)
    first, *more = sources
    tables = any(map(holds_tables, sources))
    with Console(stderr=True).status("reading") as status:
        try:
            inspected = inspect_federations(
                first,
                *more,
                rounds=rounds,
                data=data,
                overrides=set or [],
                allow_import=import_from_here(allow_import),
                tell=status.update,
                label=label,
                client=client,
                table=written_table(table),
            )
        except UserError as error:
            if not tables:
                raise
            raise type(error)(as_flags(str(error))) from error
    if as_json:
        tell(inspected.to_json())
    else:
        _show(inspected, as_flags if tables else str)
    if out is not None or not as_json:
        tell(f"page: {inspected.write(out or Path('runs') / page_name(sources))}", err=as_json)


def as_flags(text: str) -> str:
    """Return a message with the keys of ``[task]`` that it says to write as this command's flags:
    ``trim = true`` is ``--trim``, ``decimal = ","`` is ``--decimal ','``."""
    return _KEY.sub(lambda key: _flag(key["name"], key["value"]) or key[0], text)


def _flag(name: str, value: str) -> str:
    """Return one key as a flag; empty where its value is no TOML."""
    try:
        parsed = tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return ""
    flag = f"--{name.replace('_', '-')}"
    if parsed is True:
        return flag
    if isinstance(parsed, str | int):
        return f"{flag} {_quoted(str(parsed))}"
    if isinstance(parsed, list) and len(parsed) == 1:
        return f"{_ONE_OF.get(name, flag)} {_quoted(str(parsed[0]))}"
    return f"--set {_quoted(f'{name} = {value}')}"


def _quoted(text: str) -> str:
    """Return a text as a shell takes it, in quotes unless it is a plain word."""
    if re.fullmatch(r"[\w.-]+", text, re.ASCII):
        return text
    inner = text.replace("'", "'\"'\"'")
    return f"'{inner}'"


def page_name(sources: Sequence[Path]) -> str:
    """Return the name of the page of some federations, made of their own."""
    from motley.experiments.folder_names import slug
    from motley_advice.inspection.own_tables import table_name

    names = "-".join(path.stem if path.suffix == ".toml" else table_name(path) for path in sources)
    return f"{slug(f'inspect-{names}')}.html"


def _show(inspected: Inspected, shown: Callable[[str], str]) -> None:
    """Print the findings and the pitfalls; ``shown``: how what is said of a column is shown."""

    from motley_advice.inspection.findings_terminal import (
        as_table,
        bullets,
        client_tables,
        column_tables,
        heads,
    )

    console = wide_console()
    tell(heads(inspected))
    for table in column_tables(inspected, shown):
        console.print(table)
    console.print(as_table(inspected))
    for table in client_tables(inspected):
        console.print(table)
    if text := bullets(inspected):
        tell(text)
