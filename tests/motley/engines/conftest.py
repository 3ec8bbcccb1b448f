"""Small federations with unequal clients, and engines on them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from motley.algorithms.aggregators.mean import Mean
from motley.algorithms.fedavg import Average
from motley.algorithms.local_optimisers import SGD
from motley.algorithms.losses import CrossEntropy
from motley.algorithms.parts import Algorithm, LocalRule, Loss, Server
from motley.core.keys import Key, Streams
from motley.core.ragged import Ragged
from motley.core.work import LocalWork
from motley.engines import batched
from motley.engines.engine import Job, Setting
from motley.engines.processes import Processes, workers_kept
from motley.tasks.flat import initial
from motley.tasks.task import Federation, Task, Transform

SIZES = (7, 1, 23, 12, 4, 16, 5, 9)


@pytest.fixture(scope="module")
def once() -> Callable[[Hashable, Callable[[], Any]], Any]:
    """Return a function that computes the value of a key at its first call alone: a reference that
    several engines are compared with. Tests only read it."""
    made: dict[Hashable, Any] = {}

    def value(key: Hashable, compute: Callable[[], Any]) -> Any:
        if key not in made:
            made[key] = compute()
        return made[key]

    return value


class TwoProcesses(Processes):
    """Two workers on any machine, also where a test may use one core."""

    @classmethod
    def available_cores(cls, setting: Setting) -> int:
        return 2


@pytest.fixture(scope="session", autouse=True)
def _kept() -> Iterator[None]:
    """A new interpreter costs seconds: workers serve all tests of a session."""
    with workers_kept():
        yield


@pytest.fixture(autouse=True)
def _work_is_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Models here are so small that one thread would do all their work."""
    for cost in ("OVERHEAD_ALONE", "OVERHEAD_TOGETHER"):
        monkeypatch.setattr(batched, cost, 0.0)


def federation(
    shape: tuple[int, ...], sizes: tuple[int, ...] = SIZES, classes: int = 4
) -> Federation:
    rng = np.random.default_rng(0)
    n = sum(sizes)
    x = torch.from_numpy(rng.normal(size=(n, *shape))).float()
    y = torch.from_numpy(rng.integers(0, classes, n))
    train = Ragged(np.concatenate([[0], np.cumsum(sizes)]), rng.permutation(n))
    labels = y[torch.from_numpy(train.values)].clone()
    labels[::3] = (labels[::3] + 1) % classes
    empty = Ragged(np.zeros(len(sizes) + 1, np.int64), np.zeros(0, np.int64))
    return Federation(x, y, train, labels, empty, empty, None, classes)


@pytest.fixture
def setting() -> Callable[..., Setting]:
    def make(
        model: Callable[[], nn.Module],
        shape: tuple[int, ...] = (6,),
        solver: SGD = SGD(lr=0.1),  # noqa: B008
        local: LocalRule | None = None,
        loss: Loss | None = None,
        work: LocalWork = LocalWork(batch_size=5, epochs=2),  # noqa: B008
        sizes: tuple[int, ...] = SIZES,
        dtype: torch.dtype = torch.float64,
        threads: int | None = None,
        transform: Transform | None = None,
        probes_model: bool = False,
        server: Server | None = None,
    ) -> Setting:
        algorithm = Algorithm(
            loss or CrossEntropy(), local or LocalRule(), Mean(), server or Average()
        )
        task = Task("test", federation(shape, sizes), model, transform=transform)
        return Setting(
            task,
            algorithm,
            solver,
            work,
            Streams(3),
            dtype,
            threads=threads,
            probes_model=probes_model,
        )

    return make


@pytest.fixture
def jobs() -> Callable[..., list[Job]]:
    def make(
        setting: Setting,
        clients: tuple[int, ...] = (2, 0, 5, 7, 1, 3, 6, 4),
        cut: int | None = None,
    ) -> list[Job]:
        steps = setting.work.total(setting.task.federation.train.sizes[list(clients)])
        if cut is not None:
            steps = np.minimum(steps, cut)
        return [
            Job(c, 10 + i, int(s), setting.solver.lr)
            for i, (c, s) in enumerate(zip(clients, steps, strict=True))
        ]

    return make


@pytest.fixture
def download() -> Callable[[Setting], dict[str, torch.Tensor]]:
    def make(setting: Setting) -> dict[str, torch.Tensor]:
        state = initial(setting.task.model, Key(1), setting.dtype)
        return {"x": state.x, "buffers": state.buffers, "counters": state.counters}

    return make
