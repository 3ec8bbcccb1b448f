"""What the folders of all runs with real clients hold: the note that tells them from simulations, and why a run stopped."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

from motley.core.errors import UserError

__all__ = ["REAL", "STOPPED", "stopping_in_a_sentence"]

_LOG = logging.getLogger("motley.flower")

STOPPED = "stopped.txt"
"""File in a run's folder that says why a deployment stopped; gone when it goes on."""
REAL = {"deployment": "real clients: seconds are the wall clock's, devices and links are real"}
"""The note in ``run.json`` that tells a deployment from a simulation."""


@contextmanager
def stopping_in_a_sentence(path: Path) -> Iterator[None]:
    """Say why a deployment stops before its end, and how it goes on; a user's error is raised without its causes.

    It stands in the log and in the file :data:`STOPPED`: when the SuperLink is gone, nobody sees the log."""
    stopped = path / STOPPED
    stopped.unlink(missing_ok=True)
    try:
        yield
    except BaseException as problem:  # the process is told to end, too: it ends with its SuperLink
        why = str(problem) if isinstance(problem, UserError) else f"{type(problem).__name__} {problem}".strip()
        if isinstance(problem, SystemExit | KeyboardInterrupt):
            why = "its process was told to end, as it is when its SuperLink ends"
        said = f"the deployment stops: {why}; submitted again with out = {path} it goes on after its last finished round"
        _LOG.error("%s", said)
        with suppress(OSError):  # the disk may be full
            stopped.write_text(f"{datetime.now(UTC).isoformat(timespec='seconds')} {said}\n")
        if isinstance(problem, UserError):
            raise problem.with_traceback(None) from None
        raise
