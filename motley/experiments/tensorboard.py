"""Figures for TensorBoard, beside the tables: ``log = { tensorboard = true }``, ``pip install motley-fl[tensorboard]``."""

from __future__ import annotations

from pathlib import Path

from motley.core.errors import ConfigError
from motley.rounds.config import RoundSummary

__all__ = ["Board"]


class Board:
    """Writes each round's headline figures.

    Parameters
    ----------
    directory: of the event files. start: round the run goes on from; what was logged after it is hidden.

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

    def tell(self, done: RoundSummary) -> None:
        """One point per figure."""
        for name in ("train_loss", "score", "accepted", "time_s"):
            self._writer.add_scalar(name, getattr(done, name), done.round)
        self._writer.flush()

    def close(self) -> None:
        """Let go of the event file."""
        self._writer.close()
