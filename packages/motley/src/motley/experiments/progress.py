"""What runs show while they go on: progress bars on a terminal, and lines in a log."""

from __future__ import annotations

import math
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from typing_extensions import override

from motley.core.modules_loading import random_state_kept
from motley.core.round_line import NO_NAMES, round_line, round_of
from motley.core.untrusted import printable
from motley.experiments.config import Experiment
from motley.experiments.forecast import Pace, left_s, range_in_words
from motley.rounds.run_config import RoundSummary

with random_state_kept():
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        ProgressColumn,
        Task,
        TaskID,
        TextColumn,
        TimeRemainingColumn,
    )
    from rich.table import Column
    from rich.text import Text


class OneRun:
    """What one run reports while it goes on. This class shows nothing."""

    def begin(
        self, metric: str, phase: Callable[[], str], condition: Callable[[], str] = str
    ) -> None:
        """Report that everything is built. ``metric``: name of the score. ``phase``: returns the
        name of the present phase.
        ``condition``: returns how the engine's machines are,
        :meth:`motley.engines.engine.Engine.condition`."""

    def note(self, text: str) -> None:
        """Report something about the run that its user may want to know before it goes on."""

    def round(self, done: RoundSummary) -> None:
        """Report that a round is done."""


class _Shown(OneRun):
    """One of the runs on a display, whose console shows notes."""

    def __init__(self, experiment: Experiment, title: str, console: Console) -> None:
        self.rounds = experiment.stop.rounds
        self.title = printable(title)
        self._console = console
        self.done: RoundSummary | None = None
        self.pace = Pace(self.rounds)
        self.metric = "score"
        self._phase: Callable[[], str] = lambda: "preparing"
        self._condition: Callable[[], str] = str

    @override
    def begin(
        self, metric: str, phase: Callable[[], str], condition: Callable[[], str] = str
    ) -> None:
        self.metric = metric
        self._phase = phase
        self._condition = condition
        self.pace.built_s = time.monotonic()

    @override
    def note(self, text: str) -> None:
        self.say(text)

    def say(self, text: str) -> None:
        """Print a line about the run."""
        self._console.print(
            f"{self.title}, {printable(text)}", markup=False, highlight=False, soft_wrap=True
        )

    @override
    def round(self, done: RoundSummary) -> None:
        self.done = done
        self.pace.done(done.round, time.monotonic())

    def forget(self) -> None:
        """Let go of a run that ended: what tells its phase would keep its data as long as the
        display."""
        self._phase = self._condition = str

    def score(self) -> str:
        """Return the newest score with its name; the empty string where nothing is evaluated
        yet."""
        if self.done is None or math.isnan(self.done.score):
            return ""
        return f"{self.metric} {self.done.score:#.3g}"

    def figures(self) -> str:
        """Return the score and the phase, for a terminal."""
        return ", ".join(filter(None, (self.score(), self._phase(), self._condition())))

    def sentence(self) -> str:
        """Return ``round 40 of 100, accuracy 0.830``, for a log."""
        if self.done is None:
            about = [self._phase() or "preparing"]
        else:
            about = [self.of(self.done.round), self.score()]
        return ", ".join(filter(None, (*about, self._condition())))

    def of(self, number: int) -> str:
        """Return ``round 40 of 100``."""
        return round_of(number, self.rounds)


class RoundLog(_Shown):
    """Prints a line about every round of one run, for a deployment, whose rounds last:
    ``digits, round 3 of 6, asked 0 and 1, 2 accepted, accuracy 0.810, 12.3 MB, 41 s``. Megabytes
    and seconds are those since the beginning.

    Parameters
    ----------
    experiment: that is run.
    console: where to print; standard error by default.
    names: of clients, by id.
    """

    def __init__(
        self,
        experiment: Experiment,
        console: Console | None = None,
        names: Mapping[int, str] = NO_NAMES,
    ) -> None:
        super().__init__(experiment, experiment.name, console or Console(stderr=True))
        self.names = names

    @override
    def round(self, done: RoundSummary) -> None:
        super().round(done)
        self.say(self.sentence())

    @override
    def sentence(self) -> str:
        if self.done is None:
            return super().sentence()
        done = self.done
        spent = {"total_bits": self.done.total_bits, "time_s": self.done.time_s}
        return round_line(
            done.round,
            self.rounds,
            asked=done.asked,
            accepted=done.accepted,
            score=self.score(),
            names=self.names,
            **spent,
        )


class ProgressDisplay(ABC):
    """Shows the progress of several runs, of which some go on at the same time.

    Parameters
    ----------
    experiments: the runs, in order.
    labels: what they are called.
    console: where to draw or print; standard error by default.
    """

    def __init__(
        self,
        experiments: Sequence[Experiment],
        labels: Sequence[str],
        console: Console | None = None,
    ) -> None:
        count = len(experiments)
        titles = [
            f"run {i + 1} of {count}: {label}" if count > 1 else label
            for i, label in enumerate(labels)
        ]
        self._console = console or Console(stderr=True)
        self._runs = [
            _Shown(experiment, title, self._console)
            for experiment, title in zip(experiments, titles, strict=True)
        ]

    def run(self, number: int) -> OneRun:
        """Return what run ``number`` (from 0) reports to."""
        return self._runs[number]

    def left(self) -> str:
        """Return how long all runs will still take, ``12 to 20 minutes left``; the empty string
        while that cannot be told."""
        seconds = left_s([run.pace for run in self._runs], time.monotonic())
        return "" if seconds is None else f"{range_in_words(*seconds)} left"

    def start(self, number: int) -> None:
        """Show that run ``number`` begins."""
        self._runs[number].pace.begun_s = time.monotonic()

    def end(self, number: int, error: Exception | None = None) -> None:
        """Show that run ``number`` ended, and the error that ended it."""
        self._runs[number].pace.ended_s = time.monotonic()

    @abstractmethod
    def __enter__(self) -> ProgressDisplay: ...

    def __exit__(self, *raised: object) -> None:
        self.stop()

    @abstractmethod
    def stop(self) -> None:
        """End the display."""


def display(experiments: Sequence[Experiment], labels: Sequence[str]) -> ProgressDisplay:
    """Return bars where standard error is a terminal, a text that changes in a notebook, and lines
    where it is a file or a pipe."""
    console = Console(stderr=True)
    if console.is_jupyter:
        return ProgressText(experiments, labels, console)
    kind = ProgressBars if _drawn(console) else ProgressLog
    return kind(experiments, labels, console)


def watched() -> bool:
    """Return whether progress is shown by default: where standard error is a terminal, and in a
    notebook."""
    console = Console(stderr=True)
    return console.is_jupyter or _drawn(console)


def in_notebook() -> bool:
    """Return whether this is a cell of a notebook."""
    return Console(stderr=True).is_jupyter


def _drawn(console: Console) -> bool:
    return console.is_interactive and console.file.isatty()


def last_line(text: str) -> None:
    """Print one line at the end of what was shown."""
    Console(stderr=True).print(printable(text), markup=False, highlight=False, soft_wrap=True)


class _Figures(ProgressColumn):
    """Score and phase of the run of a line."""

    @override
    def render(self, task: Task) -> Text:
        shown = task.fields.get("run")
        return Text(shown.figures() if isinstance(shown, _Shown) else task.fields["said"]())


class _TimeLeft(TimeRemainingColumn):
    """Time left of the run of a line; that of all runs stands in its own words."""

    @override
    def render(self, task: Task) -> Text:
        return super().render(task) if "run" in task.fields else Text("")


class _Rounds(MofNCompleteColumn):
    """Rounds done of the run of a line; they are looked up when the line is drawn."""

    @override
    def render(self, task: Task) -> Text:
        shown = task.fields.get("run")
        if isinstance(shown, _Shown) and shown.done is not None:
            task.completed = shown.done.round
        return super().render(task)


class ProgressBars(ProgressDisplay):
    """A line for each run that goes on (rounds, score, phase, time left) and, where there are
    several, one for all of them."""

    def __init__(
        self,
        experiments: Sequence[Experiment],
        labels: Sequence[str],
        console: Console | None = None,
    ) -> None:
        super().__init__(experiments, labels, console)
        description = Column(
            no_wrap=True, overflow="ellipsis", max_width=max(20, self._console.width - 64)
        )
        self._bars = Progress(
            # on a narrow terminal the numbers stay
            TextColumn("{task.description}", markup=False, table_column=description),
            _Rounds(),
            BarColumn(bar_width=10),
            _Figures(table_column=Column(no_wrap=True, min_width=24)),
            _TimeLeft(elapsed_when_finished=True),
            console=self._console,
        )
        self._lines: dict[int, TaskID] = {}
        self._failed = 0
        self._all: TaskID | None = None
        if len(experiments) > 1:
            self._all = self._bars.add_task("all runs", total=len(experiments), said=self._said)

    def _said(self) -> str:
        return ", ".join(
            filter(None, (f"{self._failed} failed" if self._failed else "", self.left()))
        )

    @override
    def start(self, number: int) -> None:
        super().start(number)
        shown = self._runs[number]
        self._lines[number] = self._bars.add_task(shown.title, total=shown.rounds, run=shown)

    @override
    def end(self, number: int, error: Exception | None = None) -> None:
        super().end(number, error)
        self._failed += error is not None
        line = self._lines.pop(number)
        self._runs[number].forget()
        if self._all is None:
            self._bars.refresh()
        else:  # one line stays for all
            self._bars.remove_task(line)
            self._bars.update(self._all, advance=1)

    @override
    def __enter__(self) -> ProgressBars:
        self._bars.start()
        return self

    @override
    def stop(self) -> None:
        self._bars.stop()


class ProgressText(ProgressDisplay):
    """A text in a notebook's output: a line for each run that goes on, changed at most every
    ``every_s`` wall seconds, and gone at the end."""

    every_s = 0.5

    def __init__(
        self,
        experiments: Sequence[Experiment],
        labels: Sequence[str],
        console: Console | None = None,
    ) -> None:
        super().__init__(experiments, labels, console)
        self._over = threading.Event()
        # A daemon: lines about a run must not outlive a process that was interrupted.
        self._thread = threading.Thread(target=self._tell, daemon=True)
        self._handle: Any = None

    def text(self) -> str:
        """Return the lines of the runs that go on, and how long all will take."""
        going = [f"{run.title}, {run.sentence()}" for run in self._runs if run.pace.going]
        ended = sum(math.isfinite(run.pace.ended_s) for run in self._runs)
        total = [f"{ended} of {len(self._runs)} runs ended"] if len(self._runs) > 1 else []
        return "\n".join([*going, ", ".join(filter(None, [*total, self.left()]))])

    def _tell(self) -> None:
        while not self._over.wait(self.every_s):
            self._handle.update({"text/plain": self.text()}, raw=True)

    @override
    def __enter__(self) -> ProgressText:
        from IPython.display import display as show  # a notebook has it

        self._handle = show({"text/plain": "preparing"}, raw=True, display_id=True)
        self._thread.start()
        return self

    @override
    def stop(self) -> None:
        self._over.set()
        self._thread.join()
        self._handle.update({"text/plain": ""}, raw=True)


class ProgressLog(ProgressDisplay):
    """Prints a line when a run begins, when it ends, and about each run that goes on every
    ``every_s`` wall seconds."""

    every_s = 60.0

    def __init__(
        self,
        experiments: Sequence[Experiment],
        labels: Sequence[str],
        console: Console | None = None,
    ) -> None:
        super().__init__(experiments, labels, console)
        self._going: list[int] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._tell, daemon=True)

    def _tell(self) -> None:
        while not self._over.wait(self.every_s):
            for number in list(self._going):
                self._print(number, self._runs[number].sentence())
            left = self.left()
            ended = sum(math.isfinite(run.pace.ended_s) for run in self._runs)
            if left:
                if len(self._runs) > 1:
                    left = f"{ended} of {len(self._runs)} runs ended, {left}"
                self._say(left)

    def _print(self, number: int, text: str) -> None:
        self._say(f"{self._runs[number].title}, {printable(text)}")

    def _say(self, line: str) -> None:
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)

    @override
    def start(self, number: int) -> None:
        super().start(number)
        self._going.append(number)
        self._print(number, "begun")

    @override
    def end(self, number: int, error: Exception | None = None) -> None:
        super().end(number, error)
        self._going.remove(number)
        shown = self._runs[number]
        shown.forget()
        outcome = "finished" if error is None else "failed"
        after = "" if shown.done is None else f" after {shown.sentence()}"
        self._print(number, outcome + after + ("" if error is None else f": {error}"))

    @override
    def __enter__(self) -> ProgressLog:
        self._thread.start()
        return self

    @override
    def stop(self) -> None:
        self._over.set()
        self._thread.join()
