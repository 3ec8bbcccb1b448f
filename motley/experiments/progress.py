"""What a run shows while it goes on: a progress bar on the terminal, and figures for TensorBoard."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Column

from motley.core.errors import ConfigError
from motley.experiments.config import Experiment
from motley.rounds.config import RoundSummary

__all__ = ["ProgressBar", "TensorBoardLog"]


class ProgressBar:
    """A progress bar over the rounds of one run or many: runs done, rounds done, time left.

    Parameters
    ----------
    experiments: the runs, in order. Where one has no planned number of rounds, the bar has no total.
    console: terminal on which it is drawn; standard error by default.
    """

    def __init__(self, experiments: Sequence[Experiment], console: Console | None = None) -> None:
        self._rounds = [experiment.stop.rounds for experiment in experiments]
        known = [rounds for rounds in self._rounds if rounds is not None]
        self._total = sum(known) if len(known) == len(self._rounds) else None
        self._done = 0
        console = console or Console(stderr=True)
        description = Column(no_wrap=True, overflow="ellipsis", max_width=max(20, console.width - 56))
        self._bar = Progress(
            TextColumn("{task.description}", table_column=description),  # on a narrow terminal the numbers stay
            BarColumn(bar_width=16),
            MofNCompleteColumn(),
            TextColumn("rounds"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=console,
        )
        self._task = self._bar.add_task("", total=self._total)

    def start(self, number: int, label: str) -> None:
        """Show that run ``number`` (from 0) begins."""
        runs = f"run {number + 1} of {len(self._rounds)}: " if len(self._rounds) > 1 else ""
        self._bar.update(self._task, description=f"{runs}{label}")

    def round(self, done: RoundSummary) -> None:
        """Show that a round of the current run is done."""
        self._bar.update(self._task, completed=self._done + done.step)

    def end(self, number: int, failed: bool = False) -> None:
        """Show that run ``number`` is finished; the rounds of a failed run no longer count."""
        rounds = self._rounds[number] or 0
        self._done += 0 if failed else rounds
        if self._total is not None:
            self._total -= rounds if failed else 0
            self._bar.update(self._task, completed=self._done, total=self._total)

    def __enter__(self) -> ProgressBar:
        self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._bar.stop()


class TensorBoardLog:
    """Writes each round's headline figures for TensorBoard: ``log = { tensorboard = true }``.

    Parameters
    ----------
    directory: of the event files. start: round from which the run is resumed; later figures of before are hidden.

    Raises
    ------
    ConfigError: TensorBoard is not installed.
    """

    def __init__(self, directory: Path, start: int = 0) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise ConfigError("TensorBoard is not installed; pip install motley-fl[tensorboard]", "log.tensorboard") from None
        self._writer = SummaryWriter(str(directory), purge_step=start + 1 if start else None)

    def add(self, done: RoundSummary) -> None:
        """Write one point per figure."""
        for name in ("train_loss", "score", "accepted", "time_s"):
            self._writer.add_scalar(name, getattr(done, name), done.round)
        self._writer.flush()

    def close(self) -> None:
        """Close the event file."""
        self._writer.close()
