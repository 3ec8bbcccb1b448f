"""The reference engine: one client after the other, any module, all cores inside each operation that is long enough."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

from motley.engines.base import Job, Received, Setting, Trained
from motley.engines.common import LocalEngine, refuses_loss
from motley.engines.cores import torch_threads

__all__ = ["Sequential"]


class Sequential(LocalEngine):
    """Client after client on one reusable module."""

    name: ClassVar[str] = "sequential"

    @classmethod
    def refuses(cls, setting: Setting) -> str | None:
        """Any module, any loss on outputs."""
        return refuses_loss(setting)

    def _work(self, jobs: Sequence[Job], received: Received, want: frozenset[str]) -> Iterator[Trained]:
        for job in jobs:
            with torch_threads(self.inner):
                trained = self.client.train(job, received, want)
            yield trained
