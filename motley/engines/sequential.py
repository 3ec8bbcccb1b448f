"""The reference engine: one client after the other, any module, all cores inside each operation that is long enough."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

from motley.engines.base import Job, JobInputs, Setting, TrainResult
from motley.engines.common import LocalEngine, refuses_features
from motley.engines.cores import torch_threads

__all__ = ["Sequential"]


class Sequential(LocalEngine):
    """Client after client on one reusable module."""

    name: ClassVar[str] = "sequential"

    @classmethod
    def refuses(cls, setting: Setting) -> str | None:
        """Any module and loss; one that compares features wants a linear layer."""
        return refuses_features(setting)

    def _work(self, jobs: Sequence[Job], received: JobInputs, want: frozenset[str]) -> Iterator[TrainResult]:
        for job in jobs:
            with torch_threads(self.inner):
                trained = self.client.train(job, received, want)
            yield trained
