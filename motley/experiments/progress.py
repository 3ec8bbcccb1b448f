"""One progress bar on the terminal for one run or many: runs done, rounds done, time left. It writes to standard error."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Column

from motley.experiments.config import Experiment
from motley.rounds.config import RoundSummary

__all__ = ["Bar"]


class Bar:
    """A bar over the rounds of all runs.

    Parameters
    ----------
    experiments: the runs, in order. Where one has no planned number of rounds, the bar has no end.
    console: where it is drawn; standard error by default.
    """

    def __init__(self, experiments: Sequence[Experiment], console: Console | None = None) -> None:
        self._rounds = [experiment.stop.rounds for experiment in experiments]
        known = [rounds for rounds in self._rounds if rounds is not None]
        self._total = sum(known) if len(known) == len(self._rounds) else None
        self._done = 0
        console = console or Console(stderr=True)
        words = Column(no_wrap=True, overflow="ellipsis", max_width=max(20, console.width - 56))
        self._bar = Progress(
            TextColumn("{task.description}", table_column=words),  # whatever is narrow, the numbers stay
            BarColumn(bar_width=16),
            MofNCompleteColumn(),
            TextColumn("rounds"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=console,
        )
        self._task = self._bar.add_task("", total=self._total)

    def start(self, number: int, label: str) -> None:
        """Run ``number`` (from 0) begins."""
        runs = f"run {number + 1} of {len(self._rounds)}: " if len(self._rounds) > 1 else ""
        self._bar.update(self._task, description=f"{runs}{label}")

    def round(self, done: RoundSummary) -> None:
        """A round of the present run is done."""
        self._bar.update(self._task, completed=self._done + done.step)

    def end(self, number: int, failed: bool = False) -> None:
        """Run ``number`` is finished, or was found finished; or it failed, and its rounds are no longer waited for."""
        rounds = self._rounds[number] or 0
        self._done += 0 if failed else rounds
        if self._total is not None:
            self._total -= rounds if failed else 0
            self._bar.update(self._task, completed=self._done, total=self._total)

    def __enter__(self) -> Bar:
        self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._bar.stop()
