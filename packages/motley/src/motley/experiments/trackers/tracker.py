"""What a tracker is told of a run, and what it does with it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

Figures = Mapping[str, float]
"""Name of a figure -> its value; figures that are unknown are left out."""
Status = Literal["finished", "failed", "interrupted"]
"""How a run ended: at its end, by an error, or by Ctrl-C."""


@dataclass(frozen=True)
class RunGroup:
    """The comparison or recipe to which a run belongs. ``folder``: of all its runs. ``label``: of
    this run, the same for all seeds. ``control``: whether it is a control, which is no method of
    its own."""

    folder: Path
    label: str
    control: bool = False


@dataclass(frozen=True)
class TrackedRun:
    """What a tracker is told of a run.

    Parameters
    ----------
    experiment: name of the experiment.
    label: what tells the run from others of the experiment, seeds aside.
    kind: ``simulation`` or ``deployment``.
    config: the resolved experiment.
    version: of Motley.
    folder: of the run.
    store: folder for what several runs share.
    online: the tracker's table where it is to connect to its server, else empty.
    start: the round after which the run goes on; 0 for a new one.
    history: returns the figures of each round up to ``start``.
    """

    experiment: str
    label: str
    seed: int
    run_id: str
    kind: str
    version: str
    config: Mapping[str, Any]
    folder: Path
    store: Path
    online: Mapping[str, Any] = field(default_factory=dict)
    start: int = 0
    history: Callable[[], Iterable[tuple[int, Figures]]] = tuple

    @property
    def name(self) -> str:
        """The label and the seed."""
        return f"{self.label} seed {self.seed}"


class Tracker(ABC):
    """Reports the figures of one run to one tool. Any of the three may raise: the run then goes on
    without this tracker."""

    @abstractmethod
    def begin(self, run: TrackedRun) -> None:
        """Begin with a run, or go on with it; what the tool holds is afterwards the history of the
        run, each round once."""

    @abstractmethod
    def log(self, round: int, figures: Figures) -> None:
        """Report the figures of a round."""

    @abstractmethod
    def end(self, status: Status, final: Figures) -> None:
        """Report how the run ended and, of one that is finished, the figures of the whole run."""
