"""Runs of one process that go on together, so that clients of all of them train in one computation
(:mod:`motley.engines.joint_chunks`).

Each run has a Python thread of its own, of which one computes at a time: a run goes on until it has
clients to train, then the next one does. When all wait, the calling thread trains the clients of
all. So nothing that belongs to the process is used by two runs at once, and the order is the same
every time.
"""

from __future__ import annotations

import contextvars
import ctypes
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import islice
from typing import Any

import torch

from motley.engines.chunk import Executor, PhaseResults, joining
from motley.engines.engine import Setting
from motley.engines.joint_chunks import (
    HandedIn,
    JointComputation,
    JointExecutor,
    Outcome,
    kind_of,
)
from motley.experiments.progress import ProgressDisplay


class _JointRun:
    """A run in a thread of its own, which computes only inside :meth:`go_on`.

    Parameters
    ----------
    call: makes the run.
    joins: whether its clients may train together with those of others.

    Attributes
    ----------
    work: what it waits for; None while it goes on and at its end.
    ended, error: whether it did, and what ended it.
    """

    def __init__(self, call: Callable[[], object], joins: bool) -> None:
        self.work: HandedIn | None = None
        self.ended = False
        self.error: BaseException | None = None
        self._call = call
        self._joins = joins
        self._outcome: Outcome | None = None
        self._interrupted = False
        self._turn = threading.Semaphore(0)
        self._pause = threading.Semaphore(0)
        context = contextvars.copy_context()
        self._thread = threading.Thread(target=context.run, args=(self._go,), daemon=True)

    def go_on(self, outcome: Outcome | None = None) -> None:
        """Let the run go on, with the outcome that it waits for, until it waits again or ends."""
        self._outcome = outcome
        self.work = None
        with _default_type_kept():
            if self._thread.ident is None:
                self._thread.start()
            else:
                self._turn.release()
            self._pause.acquire()

    def interrupt(self) -> None:
        """End the run as Ctrl-C ends one: it closes what it holds, and can be resumed."""
        self._interrupted = True
        if self._thread.ident is None:
            return
        if self.work is None and not self.ended:
            thread = ctypes.c_ulong(self._thread.ident)
            ctypes.pythonapi.PyThreadState_SetAsyncExc(thread, ctypes.py_object(KeyboardInterrupt))
        self._turn.release()
        self._thread.join()

    def _go(self) -> None:
        if self._joins:
            joining.set(self._joined)
        try:
            self._call()
        except BaseException as error:
            self.error = error
        finally:
            self.ended = True
            self._pause.release()

    def _joined(self, executor: Executor, setting: Setting) -> Executor:
        kind = kind_of(executor, setting)
        return executor if kind is None else JointExecutor(executor, kind, self._hand_in)

    def _hand_in(self, work: HandedIn) -> PhaseResults:
        """Wait for what comes of the work."""
        with _default_type_kept():
            self.work = work
            self._pause.release()
            self._turn.acquire()
        outcome = self._outcome
        if self._interrupted or outcome is None:
            raise KeyboardInterrupt
        if isinstance(outcome, Exception):
            raise outcome
        return outcome


@contextmanager
def _default_type_kept() -> Iterator[None]:
    """Restore torch's default type of numbers, which is the process's, after another thread had its
    turn."""
    default = torch.get_default_dtype()
    try:
        yield
    finally:
        torch.set_default_dtype(default)


def run_jointly(
    most: int,
    work: Callable[..., object],
    calls: Sequence[Mapping[str, Any]],
    display: ProgressDisplay | None = None,
) -> Iterator[tuple[int, Exception | None]]:
    """Call ``work(**call, progress=...)`` for every call, at most so many at a time, all in this
    process; yield each call's number when it ended, and its error. Close the iterator to end all
    runs. Private runs train for themselves: their noise is made for bits that no other run
    touches.

    The other parameters are those of :func:`motley.experiments.parallel.run_jobs`.
    """
    waiting = iter(enumerate(calls))
    computation = JointComputation()
    runs: dict[int, _JointRun] = {}
    try:
        while True:
            for number, call in islice(waiting, most - len(runs)):
                shown = None if display is None else display.run(number)
                if display is not None:
                    display.start(number)
                runs[number] = _JointRun(
                    partial(work, **call, progress=shown or False),
                    joins=call["experiment"].privacy is None,
                )
                runs[number].go_on()
            ended = [number for number, run in runs.items() if run.ended]
            for number in ended:
                error = runs.pop(number).error
                if error is not None and not isinstance(error, Exception):
                    raise error
                yield number, error
            if ended:
                continue
            if not runs:
                return
            works = [run.work for run in runs.values() if run.work is not None]
            for run, outcome in zip(runs.values(), computation.compute(works), strict=True):
                run.go_on(outcome)
    finally:
        # whoever has the turn first: the others wait
        for run in sorted(runs.values(), key=lambda run: run.work is not None):
            run.interrupt()
