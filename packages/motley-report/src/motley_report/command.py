"""The command ``motley report``: the report of a run, or of a folder of runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from motley.commands.shared_options import (
    Against,
    Format,
    PlainIntervals,
    Target,
    Where,
    in_home,
    say,
    tell,
)
from motley.core.errors import ConfigError, StoreError
from motley.core.files import is_folder
from motley.core.modules_loading import modules_loading

Page = Annotated[
    Path | None,
    typer.Option(
        "--out",
        metavar="FILE",
        help="report.html in DIR unless given, or .md; with --format a folder, DIR/paper unless "
        "given.",
        callback=in_home,
    ),
]
Follow = Annotated[
    bool,
    typer.Option(
        "--follow",
        help="Write it again while runs go on; the page loads itself again until all have ended.",
    ),
]
Prediction = Annotated[
    Path | None,
    typer.Option(
        "--predicted",
        metavar="prediction.json",
        help="What motley what-if predicted, beside what happened.",
        callback=in_home,
    ),
]


def report(
    where: Where,
    out: Page = None,
    format: Format = None,
    target: Target = None,
    against: Against = None,
    plain_intervals: PlainIntervals = False,
    follow: Follow = False,
    predicted: Prediction = None,
) -> None:
    """Write the report of a run, or of a folder of runs: a page, or figures and tables for a
    paper."""
    with modules_loading():
        from motley.results.load import load_all
        from motley_report.print_files import formats_of
        from motley_report.report import report as write_report

    formats = formats_of(format)
    if follow:
        if predicted is not None:
            raise ConfigError("a prediction is not followed; leave --follow out", "--predicted")
        _follow(where, out, formats, target, against=against, plain_intervals=plain_intervals)
        return
    out = out or where / ("paper" if formats else "report.html")
    runs = load_all(where)
    tell(
        write_report(
            *(runs, out, target, formats, predicted),
            against=against,
            plain_intervals=plain_intervals,
        )
    )


def _follow(
    where: Path,
    out: Path | None,
    formats: Sequence[str],
    target: float | None,
    *,
    against: str | None,
    plain_intervals: bool,
) -> None:
    """Write the report of a folder again and again until none of its runs goes on; parameters as
    for :func:`motley_report.report.report`.

    Raises
    ------
    ConfigError: with formats for a paper. StoreError: there is no such folder.
    """
    from motley_report.follow import follow

    if formats:
        raise ConfigError(
            "figures and tables for a paper are of runs that have ended; leave out --format or "
            "--follow",
            "--follow",
        )
    if not is_folder(where):
        raise StoreError(f"there is no folder {where}; give a run, or a folder of runs")
    page = out or where / "report.html"
    tell(follow(where, page, target, against=against, plain_intervals=plain_intervals, tell=say))
