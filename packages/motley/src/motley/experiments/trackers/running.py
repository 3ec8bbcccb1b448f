"""The trackers of one run, of which none can end it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

from motley.core.errors import install_hint
from motley.core.untrusted import printable
from motley.experiments.config import Experiment
from motley.experiments.store import installed_versions
from motley.experiments.trackers import TRACKERS
from motley.experiments.trackers.tracked_figures import final_figures, recorded, round_figures
from motley.experiments.trackers.tracker import Figures, RunGroup, Status, TrackedRun, Tracker
from motley.results.load import LargeTables, Run, load
from motley.results.marks import Mark
from motley.results.record import read_record
from motley.rounds.loop import RoundLoop
from motley.rounds.run_config import RoundSummary


class Trackers:
    """The trackers of a run. One that fails is left out from then on, with a warning.

    Parameters
    ----------
    trackers: names, or tables of those that are to connect to a server.
    run: returns what they are told of the run; called where there are trackers.
    """

    def __init__(
        self, trackers: Sequence[str | Mapping[str, Any]], run: Callable[[], TrackedRun]
    ) -> None:
        self._tables = [{"name": entry} if isinstance(entry, str) else entry for entry in trackers]
        self._run = run
        self._active: dict[str, Tracker] = {}

    def begin(self, start: int) -> None:
        """Begin, or go on after round ``start`` of the run's tables."""
        for table in self._tables:
            run = replace(
                self._run(),
                start=start,
                history=partial(_rounds_until, self._run(), start) if start else tuple,
            )
            name = table["name"]
            with self._guarded(name):
                self._active[name] = TRACKERS.get(name)()
                online = table if table.get("online") else {}
                self._active[name].begin(replace(run, online=online))

    def log(self, done: RoundSummary, loop: RoundLoop) -> None:
        """Report a round."""
        evaluated = loop.config.evaluate.due(done.round) or loop.done
        self._each(
            lambda tracker: tracker.log(
                done.round, round_figures(done, loop.state.scores.newest if evaluated else {})
            )
        )

    def finish(self, written: Mapping[str, Mark]) -> None:
        """Report that the run is finished; ``written``: what counts of its tables."""
        final = cache(lambda: final_figures(_run_of(self._run().folder, written)))
        self._each(lambda tracker: tracker.end("finished", final()))
        self._active.clear()

    def stop(self, status: Status) -> None:
        """Report that the run ended before its end."""
        self._each(lambda tracker: tracker.end(status, {}))
        self._active.clear()

    def _each(self, tell: Callable[[Tracker], None]) -> None:
        for name, tracker in list(self._active.items()):
            with self._guarded(name):
                tell(tracker)

    @contextmanager
    def _guarded(self, name: str) -> Iterator[None]:
        """Leave a tracker out that fails inside the block, with one warning."""
        try:
            yield
        except Exception as error:  # of any package, and never worth a run
            failed = self._active.pop(name, None)
            if failed is not None:
                with suppress(Exception):
                    failed.end("failed", {})
            warnings.warn(_sentence(name, error), stacklevel=2)


def _run_of(folder: Path, written: Mapping[str, Mark]) -> Run:
    return Run(folder, read_record(folder / "run.json"), LargeTables(folder, written, {}))


def _rounds_until(run: TrackedRun, start: int) -> Iterator[tuple[int, Figures]]:
    """Yield the rounds of a run's tables up to ``start``, with their figures."""
    return ((number, figures) for number, figures in recorded(load(run.folder)) if number <= start)


def _sentence(name: str, error: Exception) -> str:
    """Return why a tracker is left out."""
    if isinstance(error, ModuleNotFoundError):
        return f"log: {name} is not installed, so the run is not logged there; {install_hint(name)}"
    message = printable(f"{type(error).__name__}: {error}").partition("\n")[0]
    return f"log: {name} failed ({message}); the run goes on and is no longer logged there"


@contextmanager
def tracked(
    experiment: Experiment, path: Path, group: RunGroup | None = None, kind: str = "simulation"
) -> Iterator[Trackers]:
    """Yield the trackers of a run, which hear of it if the block ends by an error.

    Parameters
    ----------
    path: folder of the run.
    group: the comparison that it belongs to; by default one of its own, in the folder above.
    kind: ``simulation`` or ``deployment``.
    """
    within = group or RunGroup(path.parent, experiment.method or experiment.name)

    @cache
    def about() -> TrackedRun:
        return TrackedRun(
            experiment=experiment.name,
            label=within.label,
            seed=experiment.seed,
            run_id=experiment.run_id(),
            kind=kind,
            version=installed_versions().get("motley", "unknown"),
            config=experiment.resolved(),
            folder=path,
            store=within.folder,
        )

    trackers = Trackers(experiment.log, about)
    try:
        yield trackers
    except Exception:
        trackers.stop("failed")
        raise
    except BaseException:
        trackers.stop("interrupted")
        raise
