"""A report that is written again while the runs it is about go on."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from motley.core.errors import ConfigError, UserError
from motley.core.files import user_path
from motley.results.blocks import BulletList
from motley.results.live import LiveFolder, RunProgress, in_words
from motley.results.load import Run, as_private_as, load
from motley.results.method_groups import MethodGroups
from motley_report.page import write
from motley_report.report import printable_groups, report, report_page

RELOAD_S = 5
"""Seconds after which the page of runs that go on loads itself again."""
SHARE = 4
"""Between two reports there is at least so many times the time that the first took: the runs need
the machine."""


def follow(
    where: str | Path,
    out: str | Path,
    target: float | None = None,
    *,
    against: str | None = None,
    plain_intervals: bool = False,
    every_s: float = 5.0,
    grace_s: float = 20.0,
    tell: Callable[[str], None] = lambda text: None,
) -> Path:
    """Write the report of a folder's runs whenever they have written something, until none goes on;
    the last page does not reload.

    Parameters
    ----------
    where: a folder with runs in or below it; there may be none as yet.
    out, target, against, plain_intervals: as for :func:`motley_report.report.report`; ``out`` is a
        page of HTML. A method that is not there as yet is waited for.
    every_s: wall seconds between looks.
    grace_s: wall seconds without any change after the last run has ended, in which the next of a
    comparison may begin.
    tell: is given a line whenever the page was written.

    Returns
    -------
    ``out``.

    Raises
    ------
    ConfigError: ``out`` is no page of HTML. StoreError: there are no runs in the end, or ``out``
    cannot be written. DataError: a run's files are damaged.
    """
    path = user_path(out)
    if path.suffix.lower() not in (".html", ".htm"):
        raise ConfigError(
            f"got {path.name!r}; a report that follows is a page of HTML, e.g. report.html", "out"
        )
    folder = LiveFolder(where)
    compared = partial(_groups_so_far, against=against, plain_intervals=plain_intervals)
    finished = dict[Path, Run]()
    before: object = None
    shown: object = None
    changed_at = time.monotonic()
    try:
        while True:
            now = folder.changes()
            runs = folder.look()
            going = [progress for progress in runs if progress.state in ("going on", "preparing")]
            begun = time.monotonic()
            if now != shown and _write_page(
                path=path, runs=runs, finished=finished, target=target, compared=compared
            ):
                shown = now
                tell(f"{path}: {_said(runs)}")
            if now != before:
                before = now
                changed_at = time.monotonic()
            if runs and not going and time.monotonic() - changed_at >= grace_s:
                break
            time.sleep(max(every_s, SHARE * (time.monotonic() - begun)))
    except KeyboardInterrupt:
        tell(f"{path}: no longer followed; this is how far the runs are")
    return report(where, path, target, against=against, plain_intervals=plain_intervals)


def _write_page(
    path: Path,
    runs: Sequence[RunProgress],
    finished: dict[Path, Run],
    target: float | None,
    compared: Callable[[Sequence[Run]], tuple[MethodGroups, list[str]]],
) -> bool:
    """Write the page of the runs that can be read now, with a list of those that go on; return
    whether it could be made."""
    loaded = [
        run
        for run in (_loaded(progress, finished) for progress in runs if progress.seed is not None)
        if run is not None
    ]
    if not loaded:
        return False
    try:
        groups, missing = compared(loaded)
        controls = [run for run in loaded if run.control]
        page = report_page(groups, path.parent, target, controls=controls)
    except UserError:
        # of runs that have only begun; the next look has more, and the last report says what is
        # wrong
        return False
    lines = [
        f"{progress.label}{'' if progress.seed is None else f', seed {progress.seed}'}: "
        f"round {progress.rounds}"
        + ("" if progress.planned is None else f" of {progress.planned}")
        + (f", about {left} left" if (left := in_words(progress.left_s)) else "")
        for progress in runs
        if progress.state in ("going on", "preparing")
    ]
    remaining = BulletList(
        [
            f"{_said(runs)}. The page loads itself again every {RELOAD_S} s until all have ended.",
            *missing,
            *lines,
        ],
        "Runs go on",
    )
    with as_private_as(loaded):
        write(replace(page, blocks=[remaining, *page.blocks], reload_s=RELOAD_S), path)
    return True


def _groups_so_far(
    runs: Sequence[Run], against: str | None, plain_intervals: bool
) -> tuple[MethodGroups, list[str]]:
    """Return the runs by method; where the reference is not among them as yet, with another one and
    the sentence that says so."""
    try:
        return printable_groups(runs, against, plain_intervals), []
    except ConfigError as error:
        return printable_groups(runs, None, plain_intervals), [str(error)]


def _loaded(progress: RunProgress, finished: dict[Path, Run]) -> Run | None:
    """Return a run; a finished one is read once. None where it cannot be read just now."""
    if progress.directory not in finished:
        try:
            run = load(progress.directory)
        except UserError:
            return None
        if not run.finished:
            return run
        finished[progress.directory] = run
    return finished[progress.directory]


def _said(runs: Sequence[RunProgress]) -> str:
    return f"{sum(progress.state == 'finished' for progress in runs)} of {len(runs)} runs finished"
