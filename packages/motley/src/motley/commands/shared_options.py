"""Options and small functions that several commands share."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from motley.core.errors import ConfigError, UserError
from motley.core.files import is_folder, user_path
from motley.core.own_code import own_code_in
from motley.core.untrusted import printable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from motley.experiments.sweep import Failure


def in_home(path: Path | None) -> Path | None:
    """Return the path of an option with the home folder in place of ``~``, which a shell leaves
    after an equals sign (``--out=~/runs``)."""
    return None if path is None else user_path(path)


AllowImport = Annotated[
    bool,
    typer.Option(
        "--allow-import", help="Let components be named module:Class, which runs the module's code."
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Set a key, e.g. local.epochs=2."),
]
Data = Annotated[
    Path | None,
    typer.Option(
        "--data", metavar="DIR", help="A folder to search first for data.", callback=in_home
    ),
]
Out = Annotated[
    Path | None,
    typer.Option(
        "--out",
        metavar="DIR",
        help="Where to write; below runs/ unless given.",
        callback=in_home,
    ),
]
OtherNumerics = Annotated[
    bool,
    typer.Option(
        "--allow-other-numerics",
        help="Resume under another torch build, thread count, engine or device.",
    ),
]
Format = Annotated[
    list[str] | None,
    typer.Option(
        "--format",
        metavar="pdf,svg,latex,csv",
        help="For a paper: figures and tables as files of these kinds.",
    ),
]
RayCluster = Annotated[
    str | None,
    typer.Option(
        "--on-ray",
        metavar="ADDRESS",
        help="Spread the runs over a Ray cluster: its address, auto, or local.",
    ),
]
Jobs = Annotated[
    int, typer.Option("--jobs", metavar="N", help="Runs at a time, each on its share of the cores.")
]
JobsOrChosen = Annotated[
    int | None,
    typer.Option(
        "--jobs",
        metavar="N",
        help="Runs at a time, each on its share of the cores; by itself one for each core where a "
        "run fills one, and on a GPU several in one process.",
    ),
]
Target = Annotated[
    float | None,
    typer.Option(
        "--target",
        metavar="0.9",
        help="How long until the headline metric is this; no run is cut short.",
    ),
]
Against = Annotated[
    str | None,
    typer.Option(
        "--against",
        metavar="NAME",
        help="The method that the others are compared with, as tables call it; uniform, fedavg or "
        "the first unless given. motley compare remembers it for later reports.",
    ),
]
PlainIntervals = Annotated[
    bool,
    typer.Option(
        "--plain-intervals",
        help="Intervals of differences as if each comparison were the only one; else they hold "
        "together.",
    ),
]
Where = Annotated[Path, typer.Argument(metavar="DIR", help="A run, or a folder of runs.")]
_WIDTH = 160


def say(text: str) -> None:
    """Print a line of the command's own to standard error."""
    tell(f"motley: {text}", err=True)


def tell(text: object, err: bool = False) -> None:
    """Print what holds names or texts of files and users."""
    line = printable(str(text))
    typer.echo(line, err=err)
    for printed in _keeping:
        printed.append((err, f"{line}\n"))


Printed = list[tuple[bool, str]]
"""Texts with their line ends as they were printed, each after whether it went to standard
error."""
_keeping: list[Printed] = []


@contextmanager
def prints_kept() -> Iterator[Printed]:
    """Yield a list to which everything is added that :func:`tell`, :func:`say` and
    :func:`show_table` print within the block."""
    printed: Printed = []
    _keeping.append(printed)
    try:
        yield printed
    finally:
        _keeping.remove(printed)


def print_again(printed: Printed) -> None:
    """Print texts that were kept."""
    for err, text in printed:
        stream = sys.stderr if err else sys.stdout
        stream.write(text)
        stream.flush()


def show_table(console: Console, table: Table) -> None:
    """Print a table on a console for standard output."""
    console.print(table)
    if _keeping:
        with console.capture() as captured:
            console.print(table)
        for printed in _keeping:
            printed.append((False, captured.get()))


def wide_console() -> Console:
    """Return a console for standard output; where that is no terminal, tables may be wide."""
    from rich.console import Console

    console = Console()
    if not console.is_terminal:
        console.width = _WIDTH
    return console


def import_from_here(allowed: bool) -> bool:
    """Return whether imports are allowed; modules of the working directory are then found, too."""
    if allowed and "" not in sys.path:
        sys.path.append("")
    return allowed


def seeds_of(text: str | None) -> list[int] | None:
    """Return the seeds of ``0,1,2``; None for None.

    Raises
    ------
    ConfigError: anything else.
    """
    if text is None:
        return None
    try:
        return [int(piece) for piece in text.split(",")]
    except ValueError:
        raise ConfigError(
            f"got {text!r}; expected whole numbers with commas between, e.g. 0,1,2", "--seeds"
        ) from None


def check_data(data: Path | None) -> None:
    """Refuse a folder of data that is not there.

    Raises
    ------
    ConfigError: it is not.
    """
    if data is not None and not is_folder(data):
        raise ConfigError(f"there is no folder {str(data)!r}", "--data")


def raise_failures(failures: Sequence[Failure], good: int) -> None:
    """Print the failed runs, those of one error together, and raise the first error that is
    neither a UserError nor of the user's own code."""
    same: dict[str, list[str]] = {}
    for failure in failures:
        same.setdefault(failure.reason, []).append(
            f"{failure.point.label} seed {failure.point.experiment.seed}"
        )
    for error, (first, *more_runs) in same.items():
        more = f" and {len(more_runs)} more" if more_runs else ""
        say(f"failed: {first}{more}: {error}")
    if not failures:
        return
    say(f"{good} of {good + len(failures)} runs finished; the same command tries the others again")
    ours = [
        failure.error
        for failure in failures
        if not isinstance(failure.error, UserError) and own_code_in(failure.error) is None
    ]
    if ours:
        raise ours[0]
    raise typer.Exit(2)
