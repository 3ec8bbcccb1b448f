"""TensorBoard: the figures of a run in event files in its folder."""

from __future__ import annotations

import shutil
from typing import Any

from typing_extensions import override

from motley.experiments.trackers.tracker import Figures, Status, TrackedRun, Tracker


class TensorBoard(Tracker):
    """Writes event files into the folder ``tensorboard`` of the run; ``tensorboard --logdir runs``
    shows all runs below a folder."""

    _writer: Any

    @override
    def begin(self, run: TrackedRun) -> None:
        from torch.utils.tensorboard import SummaryWriter

        folder = run.folder / "tensorboard"
        if not run.start:
            # of a run that was interrupted before its first checkpoint
            shutil.rmtree(folder, ignore_errors=True)
        new = not folder.exists()
        # points after purge_step, of rounds since the last checkpoint, are hidden
        self._writer = SummaryWriter(str(folder), purge_step=run.start + 1 if run.start else None)
        for number, figures in run.history() if new else ():
            self.log(number, figures)

    @override
    def log(self, round: int, figures: Figures) -> None:
        for name, value in figures.items():
            self._writer.add_scalar(name, value, round)
        self._writer.flush()

    @override
    def end(self, status: Status, final: Figures) -> None:
        self._writer.close()
