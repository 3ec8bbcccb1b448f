"""Trackers: the tools beside the tables to which a run reports its figures as it goes,
``log = ["tensorboard", "mlflow", "wandb"]``.

Each is one file with one class (:class:`~motley.experiments.trackers.tracker.Tracker`). They write
files, which their own tools read or send later; with ``online = true`` in its table MLflow or W&B
connects to its server.
"""

from __future__ import annotations

from motley.core.components import Catalogue

__all__ = ["TRACKERS"]

TRACKERS = Catalogue(
    "tracker",
    {
        "mlflow": "motley.experiments.trackers.mlflow:MLflow",
        "tensorboard": "motley.experiments.trackers.tensorboard:TensorBoard",
        "wandb": "motley.experiments.trackers.wandb:WandB",
    },
    base="motley.experiments.trackers.tracker:Tracker",
)
