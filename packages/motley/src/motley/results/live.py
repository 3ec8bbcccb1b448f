"""How far the runs of a folder are, read from their files while they are written; nothing is
written, and nothing is locked."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from math import isfinite, nan
from pathlib import Path
from typing import Literal

import numpy as np

from motley.core.errors import UserError
from motley.core.files import no_file, user_path
from motley.results import measures
from motley.results.comparison_file import in_grid_order
from motley.results.journal import FILE, read_journal
from motley.results.labels import label_runs
from motley.results.load import LargeTables, Run, load
from motley.results.marks import unpack_marks
from motley.results.record import read_record

State = Literal["preparing", "going on", "stopped", "finished"]
RECENT = 10
"""Rounds whose mean wall time tells how long those to come will take."""
_QUIET_S = 60.0
"""Seconds for which a process that is not on this machine may write nothing before its run counts
as stopped."""


@dataclass(frozen=True)
class RunProgress:
    """How far a run is.

    Parameters
    ----------
    directory: of the run.
    label: the method, as reports call it; the folder's name while nothing is known of the run.
    seed: None while nothing is known.
    state: ``stopped`` is not finished, and no process is at it.
    rounds: done.
    planned: at which the run ends; None where it ends by something else.
    metric: name of the headline.
    score, best: its newest and its best value, in percent where it is a share; NaN before the first
        evaluation after round 0, and the newest of a run whose model is ruined.
    time_s: seconds of the run's own clock.
    megabytes: sent and received.
    wall_s: wall seconds of all rounds.
    left_s: expected wall seconds to the end; NaN where they cannot be told.
    """

    directory: Path
    label: str
    seed: int | None
    state: State
    rounds: int = 0
    planned: int | None = None
    metric: str = "score"
    score: float = nan
    best: float = nan
    time_s: float = nan
    megabytes: float = nan
    wall_s: float = nan
    left_s: float = nan


class LiveFolder:
    """The runs in and below a folder, looked at again and again; of a run that has not changed
    nothing is read again.

    Parameters
    ----------
    directory: the folder; it may be empty as yet.
    """

    def __init__(self, directory: str | Path) -> None:
        self.directory = user_path(directory)
        self._seen: dict[Path, tuple[object, Run | None]] = {}

    def look(self) -> list[RunProgress]:
        """Return how far each run is, in the order of :func:`~motley.results.load.load_all`. A file
        that is just being written counts as it was at the look before."""
        folders = self._folders()
        runs = {folder: self._glance(folder) for folder in folders}
        loaded = [run for run in runs.values() if run is not None]
        labels = dict(zip((run.directory for run in loaded), label_runs(loaded), strict=True))
        return [
            _progress(folder, run, labels.get(folder, folder.name)) for folder, run in runs.items()
        ]

    def changes(self) -> object:
        """Return a value that differs after anything was written of any run."""
        return {folder: _written(folder) for folder in self._folders()}

    def _folders(self) -> list[Path]:
        """Return the folders of runs: those with a record, and those that a process has begun
        with."""
        folders = {
            path.parent for name in ("run.json", ".lock") for path in self.directory.rglob(name)
        }
        return in_grid_order(sorted(folder for folder in folders if folder.name != "checkpoints"))

    def _glance(self, folder: Path) -> Run | None:
        """Return a run whose tables are read when they are asked for; the last one that could be
        read, None where none could."""
        written = _written(folder)
        before, run = self._seen.get(folder, (None, None))
        if before != written:
            try:
                new = _lazy(folder)
                _ = (
                    new.tables["rounds"],
                    new.newest("evaluations"),
                    new.newest("metrics"),
                    new.tables["timings"],
                )
                self._seen[folder], run = (written, new), new
            except (UserError, OSError):
                # half written, or finished in between: the next look has it
                self._seen[folder] = (None, run)
        return run


def _lazy(folder: Path) -> Run:
    meta = read_record(folder / "run.json")
    finished = meta.get("finished") and "tables" in meta
    marks = unpack_marks(meta["tables"]) if finished else read_journal(folder)
    return load(folder) if marks is None else Run(folder, meta, LargeTables(folder, marks, {}))


def _written(folder: Path) -> tuple[tuple[int, int], ...]:
    """Return time and size of the files that a run writes last."""
    return tuple(_stamp(folder / name) for name in ("run.json", FILE, ".lock"))


def _stamp(path: Path) -> tuple[int, int]:
    try:
        status = path.stat()
    except OSError:
        return (0, 0)
    return (status.st_mtime_ns, status.st_size)


def _progress(folder: Path, run: Run | None, label: str) -> RunProgress:
    going = _held(folder)
    if run is None:
        return RunProgress(folder, label, None, "preparing" if going else "stopped")
    planned = (run.config.get("stop") or {}).get("rounds")
    rounds = run.tables["rounds"].num_rows
    along = measures.trained(measures.curve(run))
    percent, (metric, better) = measures.percent_of(run), measures.metric_of(run)
    seconds = np.asarray(run.column("timings", "wall_s"), float)
    seconds = seconds[np.isfinite(seconds)]
    spent = {name: _last(run, name) for name in ("time_s", "total_bits")}
    if planned is None or not len(seconds):
        left = nan
    else:
        left = max(planned - rounds, 0) * float(seconds[-RECENT:].mean())
    state: State = "going on" if rounds else "preparing"
    if run.finished:
        state = "finished"
    elif not going:
        state = "stopped"
    score = best = nan
    if len(along.y):
        score = nan if measures.ruined(run) else percent * float(along.y[-1])
        best = percent * float(along.y.max() if better else along.y.min())
    return RunProgress(
        directory=folder,
        label=label,
        seed=run.seed,
        state=state,
        rounds=rounds,
        planned=planned,
        metric=metric,
        score=score,
        best=best,
        time_s=spent["time_s"],
        megabytes=spent["total_bits"] / 8e6,
        wall_s=float(seconds.sum()) if len(seconds) else nan,
        left_s=left if state == "going on" else nan,
    )


def in_words(seconds: float) -> str:
    """Return a span as ``45 s``, ``12 min`` or ``3 h 20 min``; empty for no number.

    >>> in_words(45.2), in_words(721), in_words(12000)
    ('45 s', '12 min', '3 h 20 min')
    """
    if not isfinite(seconds):
        return ""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"


def _last(run: Run, column: str) -> float:
    values = np.asarray(run.column("rounds", column), float)
    return float(values[-1]) if len(values) else nan


def _held(folder: Path) -> bool:
    """Return whether a process is at a run: the one that its lock names lives here, or something
    was written a moment ago."""
    if no_file(folder / ".lock") is not None:
        return False
    try:
        # no signal: only whether there is such a process
        os.kill(int((folder / ".lock").read_bytes()[:32]), 0)
        return True
    except PermissionError:
        return True
    except (OSError, ValueError, OverflowError):
        newest = max(time_ns for time_ns, _ in _written(folder)) / 1e9
        return time.time() - newest < _QUIET_S
