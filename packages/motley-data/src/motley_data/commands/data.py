"""The command ``motley data``: list, find, download and verify public data sets; remove kept
divisions of one's own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from motley.commands.shared_options import in_home, wide_console
from motley.core.untrusted import printable

if TYPE_CHECKING:
    from motley_data.public_data.getting import Verified

app = typer.Typer(
    help="Public data sets: list, find, download, verify. Kept divisions: clear.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="As motley data list shows it.")]
Folder = Annotated[
    Path | None,
    typer.Option("--data", metavar="DIR", help="A folder to search first.", callback=in_home),
]


@app.command("list")
def list_(data: Folder = None) -> None:
    """List the data sets: whether each is on this machine, how large its download is, and its
    licence."""
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    from motley_data.public_data.facts import PUBLIC
    from motley_data.public_data.search import search

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for head in ("name", "data set", "on this machine", "download", "licence, as far as known"):
        table.add_column(head, overflow="fold")
    for name, public in PUBLIC.items():
        place = next(search(name, data), None)
        table.add_row(
            name,
            public.title,
            "no" if place is None else escape(printable(str(place.where))),
            "by hand" if public.by_hand else f"{public.mb:.0f} MB",
            public.licence,
        )
    console = wide_console()
    console.print(table)


@app.command()
def where(name: Name, data: Folder = None) -> None:
    """Print where a data set was found; the first place is the one that experiments use."""
    from motley_data.public_data.facts import PUBLIC, known_name
    from motley_data.public_data.search import first, search

    data_set = known_name(name)
    first(data_set, data)  # its error says where it was looked for, and how to get it
    for place in search(data_set, data):
        variant = PUBLIC[data_set].variants[place.layout.variant]
        typer.echo(printable(f"{place.where}: {place.layout.kind}, {variant.about}"))


@app.command()
def get(
    name: Name,
    to: Annotated[
        Path | None,
        typer.Option(
            "--to",
            metavar="DIR",
            help="Where to put it; MOTLEY_DATA or ~/.cache/motley unless given.",
            callback=in_home,
        ),
    ] = None,
    mirror: Annotated[
        str | None,
        typer.Option(
            "--mirror",
            metavar="URL",
            help="An address with all files, in place of the public hosts.",
        ),
    ] = None,
    stall: Annotated[
        float,
        typer.Option(
            "--stall",
            metavar="SECONDS",
            min=0.1,
            max=86400.0,
            help="Try again after so long without a byte.",
        ),
    ] = 30.0,
) -> None:
    """Download a data set, resuming what was begun, and verify it."""
    from motley_data.public_data.download import DownloadLimits, check_mirror
    from motley_data.public_data.facts import known_name
    from motley_data.public_data.getting import get as get_data

    data_set = known_name(name)
    base = None if mirror is None else check_mirror(mirror)
    with _progress() as report:
        verified = get_data(data_set, to, base, limits=DownloadLimits(stall_s=stall), report=report)
    _show(verified)


@app.command()
def verify(name: Name, data: Folder = None) -> None:
    """Read a data set wherever it was found, and print the digest of its decoded arrays."""
    from motley_data.public_data.facts import known_name
    from motley_data.public_data.getting import verify as verify_data
    from motley_data.public_data.search import first, search

    data_set = known_name(name)
    first(data_set, data)
    for place in search(data_set, data):
        _show(verify_data(data_set, place))


@app.command()
def clear() -> None:
    """Remove the divisions that were kept of large federations of your own; downloads stay."""
    from motley.core.files import disk_error
    from motley_data import division_cache

    folder = division_cache.folder()
    try:
        count, size = division_cache.remove()
    except OSError as error:
        raise disk_error(error, folder) from None
    removed = f"removed {count} ({size / 1e6:,.0f} MB) from" if count else "there is none in"
    typer.echo(printable(f"divisions of your own data: {removed} {folder}"))


def _show(verified: Verified) -> None:
    clients = f", {verified.clients} natural clients" if verified.clients else ""
    verdict = "as expected" if verified.known else "no digest is known to compare it with"
    typer.echo(
        printable(
            f"{verified.found.where}: {verified.about}\n    {verified.size}{clients}; {verdict}"
        )
    )
    typer.echo(f"    variant {verified.variant}, digest {verified.digest or 'none'}")


@contextmanager
def _progress() -> Iterator[Callable[[str, int, int | None], None]]:
    """Show one bar per file on a terminal, and one line per file elsewhere."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    console = Console(stderr=True)
    with Progress(*columns, console=console, disable=not console.is_terminal) as bars:
        tasks = {}

        def report(name: str, have: int, size: int | None) -> None:
            if name not in tasks:
                tasks[name] = bars.add_task(name, total=size)
                if not console.is_terminal:
                    typer.echo(
                        f"{name}: {'size unknown' if size is None else f'{size / 1e6:.1f} MB'}",
                        err=True,
                    )
            bars.update(tasks[name], completed=have, total=size)

        yield report
