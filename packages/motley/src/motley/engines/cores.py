"""Torch's thread count, and a pool of Python threads with one torch thread each; how many there
may be is said by :mod:`motley.core.usable_cores`."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from itertools import islice
from typing import Generic, TypeVar

import torch

from motley.core.usable_cores import at_once, share
from motley.tasks.precision import precise

State = TypeVar("State")
Task = TypeVar("Task")
Result = TypeVar("Result")


def share_cores(count: int, threads: int) -> None:
    """Let this process compute on at most ``threads`` of ``count`` cores at once, since other runs
    use the rest."""
    share(count, threads)
    torch.set_num_threads(threads)


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Run the block with so many torch threads (at most :func:`at_once`) in this Python thread and
    without the caller's autocast, then restore both."""
    before = torch.get_num_threads()
    count = at_once(count)
    if before != count:
        torch.set_num_threads(count)
    try:
        with precise():
            yield
    finally:
        if torch.get_num_threads() != before:
            torch.set_num_threads(before)


class ThreadPool(Generic[State]):
    """Python threads with one torch thread each. Tensor operations release the interpreter lock, so
    the threads compute in parallel.

    Parameters
    ----------
    states: one object per thread, such as a model; no two threads use the same one at once.
    """

    def __init__(self, states: Sequence[State]) -> None:
        self._free = deque(states)
        self._size = len(states)
        self._executor: ThreadPoolExecutor | None = None

    def map(
        self, work: Callable[[State, Task], Result], tasks: Sequence[Task], ahead: int | None = None
    ) -> Iterator[Result]:
        """Call ``work(state, task)`` for every task, started in their order; yield the results in
        the same order.

        ``ahead``: tasks that may be started beyond those whose results were taken, which bounds the
        results in memory; None: all. A single task, or each of a pool of one thread, is done in the
        caller's thread, when its result is taken: another would find the caches of its core cold.
        """
        if self._size == 1 or len(tasks) == 1:
            for task in tasks:
                with torch_threads(1), torch.inference_mode(False), torch.enable_grad():
                    result = self._run(work, task)
                yield result
            return
        executor = self._started()
        remaining = iter(tasks)
        waiting: deque[Future[Result]] = deque()
        try:
            for task in islice(remaining, ahead):
                waiting.append(executor.submit(self._run, work, task))
            while waiting:
                yield waiting.popleft().result()
                for task in islice(remaining, 1):
                    waiting.append(executor.submit(self._run, work, task))
        finally:
            for future in waiting:
                future.cancel()

    def _run(self, work: Callable[[State, Task], Result], task: Task) -> Result:
        # as many states as threads, so one is free; a deque needs no lock for either end
        state = self._free.popleft()
        try:
            return work(state, task)
        finally:
            self._free.append(state)

    def _started(self) -> ThreadPoolExecutor:
        """Start the threads. Torch's thread count is set in each of them alone, not for the caller
        or later threads."""
        if self._executor is None:
            before = torch.get_num_threads()
            # An executor starts a thread only where none is idle: tasks that wait for one another
            # make it start all of them now.
            together = threading.Barrier(self._size)
            self._executor = ThreadPoolExecutor(self._size, "motley", _one_torch_thread)
            for ready in [self._executor.submit(together.wait) for _ in range(self._size)]:
                ready.result()
            torch.set_num_threads(before)
        return self._executor

    def close(self) -> None:
        """Cancel what has not been started, and end the threads."""
        if self._executor is not None:
            self._executor.shutdown(cancel_futures=True)
            self._executor = None


def _one_torch_thread() -> None:
    # torch settles this thread's count here, so it cannot overwrite the next line's
    torch.get_num_threads()
    torch.set_num_threads(1)
