"""The command ``motley watch``: follow the runs of a folder on the terminal."""

from __future__ import annotations

import time
from collections.abc import Sequence
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from motley.commands.shared_options import wide_console
from motley.core.errors import StoreError
from motley.core.files import is_folder
from motley.core.untrusted import printable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from motley.results.live import RunProgress

Folder = Annotated[
    Path, typer.Argument(metavar="DIR", help="A run, or a folder of runs; it may still be empty.")
]
Once = Annotated[
    bool,
    typer.Option(
        "--once", help="Print how far they are, and end; also where the output is no terminal."
    ),
]
Every = Annotated[
    float,
    typer.Option("--every", metavar="SECONDS", min=0.2, max=3600.0, help="Look again so often."),
]

_MARGIN = 6
"""Lines of the terminal that the runs leave to title, heads and what is left out."""
_NUMBERS = 66
"""Columns that are left for the numbers beside a method's name."""
_ORDER = ("going on", "preparing", "stopped", "finished")


def watch(where: Folder, once: Once = False, every: Every = 2.0) -> None:
    """Follow the runs of a folder: rounds, headline metric, traffic, time left. Nothing is written;
    Ctrl-C ends it."""
    from rich.live import Live

    from motley.results.live import LiveFolder

    if not is_folder(where):
        raise StoreError(f"there is no folder {where}; give a run, or a folder of runs")
    console = wide_console()
    folder = LiveFolder(where)
    if once or not console.is_terminal:
        runs = folder.look()
        if not runs:
            raise StoreError(f"there are no runs in {where}: no folder below it has a run.json")
        console.print(_table(runs, console.width))
        return
    try:
        with Live(console=console, auto_refresh=False, screen=False) as live:
            while True:
                live.update(_shown(folder.look(), console), refresh=True)
                time.sleep(every)
    except KeyboardInterrupt:
        return


def _shown(runs: Sequence[RunProgress], console: Console) -> Table:
    """Return the table of as many runs as the terminal has lines, those that go on first."""
    return _table(runs, console.width, max(1, console.height - _MARGIN))


def _table(runs: Sequence[RunProgress], width: int, most: int | None = None) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    if most is not None:
        ordered = sorted(runs, key=lambda progress: _ORDER.index(progress.state))
    else:
        ordered = list(runs)
    table = Table(
        title=_counts(runs),
        title_justify="left",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        title_style="bold",
    )
    table.add_column(
        "method",
        overflow="ellipsis",
        no_wrap=True,
        min_width=12,
        max_width=max(16, width - _NUMBERS),
    )
    metrics = {progress.metric for progress in runs if progress.seed is not None}
    score = metrics.pop() if len(metrics) == 1 else "score"
    for head in ("seed", "round", score, "best", "MB", "took", "left"):
        table.add_column(printable(head), justify="right", no_wrap=True)
    for progress in ordered[:most]:
        table.add_row(
            *(Text(printable(text)) for text in _cells(progress)),
            style="dim" if progress.state == "finished" else "",
        )
    hidden = len(ordered) - len(ordered[:most])
    if hidden:
        table.caption = f"and {hidden} more"
    return table


def _cells(progress: RunProgress) -> list[str]:
    from motley.results.live import in_words
    from motley.results.number_text import short_number

    seed = "" if progress.seed is None else str(progress.seed)
    if progress.planned is None or progress.state == "finished":
        of = ""
    else:
        of = f" of {progress.planned}"
    left = in_words(progress.left_s) if isfinite(progress.left_s) else progress.state
    numbers = (progress.score, progress.best, progress.megabytes)
    return [
        progress.label,
        seed,
        f"{progress.rounds}{of}",
        *map(short_number, numbers),
        in_words(progress.wall_s),
        left,
    ]


def _counts(runs: Sequence[RunProgress]) -> str:
    """Return ``3 of 9 runs finished, 2 go on, 1 stopped; 4 min left of those that go on``."""
    from motley.results.live import in_words

    if not runs:
        return "no runs as yet"
    states = [progress.state for progress in runs]
    going = states.count("going on") + states.count("preparing")
    stopped = states.count("stopped")
    words = [f"{states.count('finished')} of {len(runs)} runs finished"]
    if going:
        words.append(f"{going} go{'es' if going == 1 else ''} on")
    words += [f"{stopped} stopped"] if stopped else []
    left = max((progress.left_s for progress in runs if isfinite(progress.left_s)), default=0.0)
    return ", ".join(words) + (f"; {in_words(left)} left of those that go on" if left else "")
