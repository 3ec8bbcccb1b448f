"""An engine for clients whose models have different architectures: an engine of one kind for each
architecture, which trains and examines the clients that hold it.

Results come in the order of the jobs, whichever architecture they belong to, and each is what its
engine gives for the clients of this architecture alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from motley.algorithms.parts import ClientState, Tensors
from motley.core.arrays import Floats, Ints
from motley.core.errors import ContractError
from motley.core.keys import Key
from motley.engines.engine import (
    AdaptInputs,
    DataView,
    Engine,
    Job,
    Purpose,
    Setting,
    Slices,
    TrainResult,
)
from motley.tasks.flat import ModelState, architecture_of, of_architecture


class Unlike(Engine):
    """One engine for each architecture.

    Parameters
    ----------
    setting: of the run.
    kind: of the engines, which work in this process.
    """

    name: ClassVar[str] = "unlike"

    def __init__(self, setting: Setting, kind: type[Engine]) -> None:
        self.setting = setting
        self.kind = kind
        self.name = kind.name  # type: ignore[misc]  # which a run that goes on asks for
        self.engines = [kind(own) for own in setting.kinds]
        self.threads = self.engines[0].threads
        self.inner = max(engine.inner for engine in self.engines)
        self.library = self.engines[0].library
        self.joint = any(engine.joint for engine in self.engines)

    @classmethod
    @override
    def refuses(cls, setting: Setting) -> str | None:
        return None

    def _of(self, client: int) -> Engine:
        return self.engines[self.setting.kind_of(client)]

    @override
    def train(
        self,
        jobs: Sequence[Job],
        download: Tensors,
        client_states: Mapping[int, ClientState | None],
        want: frozenset[str] = frozenset(),
    ) -> Iterator[TrainResult]:
        numbers = [self.setting.kind_of(job.client) for job in jobs]
        results = {
            number: self.engines[number].train(
                [job for job, of in zip(jobs, numbers, strict=True) if of == number],
                download,
                client_states,
                want,
            )
            for number in dict.fromkeys(numbers)
        }
        return (next(results[number]) for number in numbers)

    @override
    def measure(
        self,
        clients: Ints,
        download: Tensors,
        client_states: Mapping[int, ClientState | None],
        want: Mapping[str, int | None],
        key: Key,
        data_view: DataView | None = None,
        slices: Slices | None = None,
    ) -> dict[str, Floats]:
        """See :meth:`Engine.measure`; one number for each client."""
        clients = np.asarray(clients, np.int64)
        numbers = np.array([self.setting.kind_of(client) for client in clients.tolist()], np.int64)
        signals = {name: np.full(len(clients), np.nan) for name in want}
        for number in np.unique(numbers).tolist():
            at = np.flatnonzero(numbers == number)
            view = None if data_view is None else data_view[at]
            measured = self.engines[number].measure(
                clients[at], download, client_states, want, key=key, data_view=view
            )
            for name, values in measured.items():
                signals[name][at] = values
        return signals

    @override
    def choose(
        self,
        clients: Ints,
        download: Tensors,
        client_states: Mapping[int, ClientState | None],
        data_view: DataView | None = None,
    ) -> Mapping[int, ClientState | None]:
        return client_states

    @override
    def evaluate(
        self,
        model: ModelState,
        rows: Ints,
        labels: Ints | None = None,
        want: frozenset[str] = frozenset({"hit"}),
        sizes: Ints | None = None,
    ) -> dict[str, NDArray[Any]]:
        return self.engines[architecture_of(model)].evaluate(model, rows, labels, want, sizes=sizes)

    @override
    def recalibrate(
        self,
        model: ModelState,
        client: int,
        batches: int,
        key: Key,
        data_view: DataView | None = None,
        cumulative: bool = False,
    ) -> ModelState:
        raise ContractError("clients whose models differ have no common statistics")

    @override
    def alike(self, setting: Setting) -> Engine:
        return Unlike(setting, self.kind)

    @override
    def adapt(
        self, jobs: Sequence[Job], begun: Iterable[AdaptInputs], purpose: Purpose = "tune"
    ) -> Iterator[ModelState]:
        for job, inputs in zip(jobs, begun, strict=True):
            (adapted,) = self._of(job.client).adapt([job], [inputs], purpose)
            yield of_architecture(adapted, self.setting.kind_of(job.client))

    @override
    def close(self) -> None:
        for engine in self.engines:
            engine.close()
