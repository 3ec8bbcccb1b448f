"""What the folders of all runs with real clients hold: the note that tells them from simulations,
and why a run stopped."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType

from motley.core.errors import UserError

_LOG = logging.getLogger("motley.flower")

STOPPED = "stopped.txt"
"""File in a run's folder that says why a deployment stopped; gone when it goes on."""
REAL = {"deployment": "real clients: seconds are the wall clock's, devices and links are real"}
"""The note in ``run.json`` that tells a deployment from a simulation."""


def log_sentences_alone() -> None:
    """Let Flower's log, from now on, have a user's error as its sentence, without a traceback:
    whatever an app raises, Flower logs with one."""
    logging.getLogger("flwr").addFilter(_sentence_alone)


def _sentence_alone(record: logging.LogRecord) -> bool:
    error = record.exc_info[1] if record.exc_info else None
    if isinstance(error, UserError):
        record.msg = f"{record.getMessage()}: {error}"
        record.args = None
        record.exc_info = None
    return True


_TOLD = (
    "its process was told to end: somebody stopped the run, or the SuperLink or the machine "
    "has ended (see the SuperLink's log)"
)
"""Flower ends an app in one way whatever the reason is."""


@contextmanager
def stopping_in_a_sentence(path: Path) -> Iterator[None]:
    """Say why a deployment stops before its end, and how it goes on; a user's error is raised
    without its causes.

    It stands in the log and in the file :data:`STOPPED`: when the SuperLink is gone, nobody sees
    the log."""
    stopped = path / STOPPED
    stopped.unlink(missing_ok=True)

    def say(why: str) -> None:
        sentence = (
            f"the deployment stops: {why}; submitted again with out = {path} it goes on after "
            "its last finished round"
        )
        _LOG.error("%s", sentence)
        with suppress(OSError):  # the disk may be full
            stopped.write_text(f"{datetime.now(UTC).isoformat(timespec='seconds')} {sentence}\n")

    try:
        with _hearing_signals(lambda: say(_TOLD)):
            yield
    except UserError as problem:
        say(str(problem))
        raise problem.with_traceback(None) from None
    except (SystemExit, KeyboardInterrupt):
        if not stopped.exists():
            say(_TOLD)
        raise
    except BaseException as problem:
        say(f"{type(problem).__name__} {problem}".strip())
        raise


@contextmanager
def _hearing_signals(hear: Callable[[], None]) -> Iterator[None]:
    """Call a function when the process is told to end, before its own handler: Flower's may end the
    process without an exception."""
    handlers: dict[int, Callable[[int, FrameType | None], object]] = {}

    def handle(number: int, frame: FrameType | None) -> None:
        hear()
        handlers[number](number, frame)

    # no other can set handlers, or is told
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            before = signal.getsignal(number)
            if callable(before):
                handlers[number] = before
                signal.signal(number, handle)
    try:
        yield
    finally:
        for caught, handler in handlers.items():
            if signal.getsignal(caught) is handle:
                signal.signal(caught, handler)
