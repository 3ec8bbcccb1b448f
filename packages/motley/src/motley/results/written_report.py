"""The report that is written at the end of runs, by the distribution that makes reports."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path

from motley.core.extensions import extension, not_installed
from motley.core.files import is_file
from motley.core.modules_loading import collector_off
from motley.results.load import Run

_HEAD_BYTES = 2**16
"""Of a page, in which its title stands: names of many runs may be in it."""


def load_report() -> None:
    """Import what :func:`write_report` and the tables on the terminal need. What is missing or
    cannot be imported is said where it is used: runs may be under way here."""
    with suppress(Exception), collector_off():
        import_module("scipy.special")
        for name in ("report", "plot"):
            extension("function", name)


def write_report(
    runs: Sequence[Run], page: Path, target: float | None = None, *, plain_intervals: bool = False
) -> Path | None:
    """Write the report of runs to a page, as :func:`motley.report` does, and return the page. Where
    ``motley-report`` is not installed, or a page of another kind lies there, warn of it and return
    None: the runs are finished."""
    report = extension("function", "report")
    if report is None:
        warnings.warn(f"no report is written: {not_installed('report')}", stacklevel=2)
        return None
    if _of_another(page):
        warnings.warn(
            f"{page} is no report of Motley's, or cannot be read, and stays as it is; motley "
            "report FOLDER --out runs.html writes one beside it",
            stacklevel=2,
        )
        return None
    written: Path = report(runs, page, target, plain_intervals=plain_intervals)
    return written


def _of_another(page: Path) -> bool:
    """Return whether a file lies there whose title is not that of a report, or cannot be read."""
    if not is_file(page):
        return False
    try:
        with page.open("rb") as file:
            head = file.read(_HEAD_BYTES)
    except OSError:
        return True
    return bool(head) and b"Motley report</title>" not in head
