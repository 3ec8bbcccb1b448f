"""Clients in parallel Python threads, one torch thread and one reusable module each: what pays for convolutions on a CPU."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

from motley.engines.base import Job, JobInputs, Setting, TrainResult
from motley.engines.client import Client
from motley.engines.common import LocalEngine, refuses_features
from motley.engines.pool import Pool

__all__ = ["Threads"]


class Threads(LocalEngine):
    """As many clients at a time as there are cores; each is computed exactly as by the sequential engine on one thread."""

    name: ClassVar[str] = "threads"

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        self._pool = Pool([self.client, *(Client(setting, self.samples) for _ in range(self.threads - 1))])

    @classmethod
    def refuses(cls, setting: Setting) -> str | None:
        """Any module and loss, on a CPU; a loss that compares features wants a linear layer."""
        if setting.device != "cpu":
            return f"it is for CPUs, and the device is {setting.device!r}; use sequential"
        return refuses_features(setting)

    def _work(self, jobs: Sequence[Job], received: JobInputs, want: frozenset[str]) -> Iterator[TrainResult]:
        """Longest jobs start first."""

        def work(client: Client, job: Job) -> TrainResult:
            return client.train(job, received, want)

        order = sorted(range(len(jobs)), key=lambda i: -jobs[i].steps)
        done = dict(zip(order, self._pool.map(work, [jobs[i] for i in order]), strict=True))
        yield from (done[i] for i in range(len(jobs)))

    def close(self) -> None:
        """End the threads."""
        self._pool.close()
