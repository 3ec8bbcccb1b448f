"""One run of a sweep: what is run, what it is called, and where its folder lies."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from motley.experiments.config import Experiment
from motley.experiments.folder_names import slug


@dataclass(frozen=True)
class Point:
    """One run of a sweep.

    Parameters
    ----------
    label: what differs from the other runs of the sweep, in words; seeds aside.
    experiment: what is run.
    name: of its folder, all that the sweep sets, so that the folder does not depend on the other
    runs; ``label`` by default.
    control: whether it is a run of the reference with another method's setting.
    """

    label: str
    experiment: Experiment
    name: str | None = None
    control: bool = False

    def folder(self, base: Path) -> Path:
        """Return the folder of the run, below ``base``."""
        return base / slug(self.name or self.label) / self._run_id

    @cached_property
    def _run_id(self) -> str:
        """The experiment's, which reads the files that it names: they are those of the whole
        comparison."""
        return self.experiment.run_id()
