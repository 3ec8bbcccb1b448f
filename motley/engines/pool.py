"""Python threads with one torch thread each. Tensor operations let go of the interpreter, so such threads compute together."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

import torch

__all__ = ["Pool"]

State = TypeVar("State")
Task = TypeVar("Task")
Result = TypeVar("Result")


class Pool(Generic[State]):
    """Workers, each with a state of its own.

    Parameters
    ----------
    states: one per worker, never used by two workers at once.
    """

    def __init__(self, states: Sequence[State]) -> None:
        self._free = deque(states)
        self._size = len(states)
        self._executor: ThreadPoolExecutor | None = None

    def map(self, work: Callable[[State, Task], Result], tasks: Sequence[Task]) -> Iterator[Result]:
        """Results in the order of ``tasks``, which are started in this order too."""
        executor = self._started()
        waiting: deque[Future[Result]] = deque(executor.submit(self._run, work, task) for task in tasks)
        try:
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()

    def _run(self, work: Callable[[State, Task], Result], task: Task) -> Result:
        state = self._free.popleft()
        try:
            return work(state, task)
        finally:
            self._free.append(state)

    def _started(self) -> ThreadPoolExecutor:
        """The threads. Their count of torch threads is theirs alone; the caller's, and later threads', stays as it was."""
        if self._executor is None:
            before = torch.get_num_threads()
            together = threading.Barrier(self._size)
            self._executor = ThreadPoolExecutor(self._size, "motley", _one_torch_thread)
            for ready in [self._executor.submit(together.wait) for _ in range(self._size)]:
                ready.result()
            torch.set_num_threads(before)
        return self._executor

    def close(self) -> None:
        """End the threads."""
        if self._executor is not None:
            self._executor.shutdown(cancel_futures=True)
            self._executor = None


def _one_torch_thread() -> None:
    torch.get_num_threads()  # makes torch settle this thread's count now, so that it does not do so after the next line
    torch.set_num_threads(1)
