"""Weights & Biases: the figures of a run in an offline run in its folder, which ``wandb sync``
sends later, or with ``online = true`` at its server as the run goes."""

from __future__ import annotations

import os
import re
import shutil
import sys
from typing import Any

from typing_extensions import override

from motley.experiments.lineage import digest_of
from motley.experiments.trackers.tracker import Figures, Status, TrackedRun, Tracker

_LONGEST = 128
"""Characters of a name."""


class WandB(Tracker):
    """Writes an offline run into the folder ``wandb`` of the run: its project is the experiment's
    name, its group the label, which all seeds share, its step the round.

    An offline run cannot be written into again. A run that is resumed writes its rounds so far into
    a fresh one with the same id, which takes the place of the one before. An online run goes on.
    """

    _run: Any

    @override
    def begin(self, run: TrackedRun) -> None:
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")  # it would tell its maker of errors
        if "wandb" not in sys.modules:
            # that of a parent process would hold the run if this process is killed
            os.environ.pop("WANDB_SERVICE", None)
        import wandb

        folder = run.folder / "wandb"
        if folder.exists():
            shutil.rmtree(folder)
        folder.mkdir()
        about = {
            "run_id": run.run_id,
            "motley_version": run.version,
            "folder": str(run.folder.resolve()),
        }
        self._run = wandb.init(
            project=re.sub(r"[/\\#?%:]", "-", run.experiment)[:_LONGEST],
            name=run.name[-_LONGEST:],
            group=run.label[:_LONGEST],
            job_type=run.kind,
            id=digest_of([run.run_id, str(run.folder.resolve())]),
            config={**run.config, "motley": about},
            dir=str(run.folder),
            mode="online" if run.online else "offline",
            resume="allow" if run.online else None,
            reinit="create_new",
            settings=wandb.Settings(
                silent=True,
                console="off",
                disable_git=True,
                disable_code=True,
                symlink=False,
                x_disable_stats=True,
                x_disable_meta=True,
            ),
        )
        for number, figures in run.history():
            self.log(number, figures)

    @override
    def log(self, round: int, figures: Figures) -> None:
        self._run.log(dict(figures), step=round)

    @override
    def end(self, status: Status, final: Figures) -> None:
        self._run.summary.update(dict(final))
        self._run.finish(exit_code=0 if status == "finished" else 1)
