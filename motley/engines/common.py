"""What all engines do alike: probe clients and evaluate models. Written once, here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from motley.algorithms import LOSSES
from motley.algorithms.base import Correction, Loss, Memory, Tensors
from motley.core.errors import ContractError
from motley.core.keys import Key
from motley.engines.base import Engine, Setting
from motley.engines.client import Client, Watch
from motley.engines.cores import cores, torch_threads
from motley.engines.samples import Samples
from motley.tasks.base import ModelState

__all__ = ["MEASURED", "LocalEngine", "refuses_loss"]

CHUNK = {False: 1024, True: 256}
"""Samples that go through the model together when nothing is trained; fewer where convolutions keep whole images of features."""

SMALL = 100_000
"""Weights up to which a model without convolutions is computed on one torch thread: its operations are too short to share."""

MEASURED = frozenset({"loss"})
"""Signals a probe can measure."""

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


def _on(tensors: Tensors, device: str) -> Tensors:
    return {name: value.to(device) for name, value in tensors.items()}


def refuses_loss(setting: Setting) -> str | None:
    """A loss over the whole model (features of several models) has no engine yet."""
    loss = setting.algorithm.loss
    if loss.whole_model:
        return f"the loss {type(loss).__name__} needs more than the model's outputs, which no engine computes yet"
    return None


class LocalEngine(Engine):
    """An engine in this process: it has a :class:`Client` of its own, with which it measures and evaluates."""

    def __init__(self, setting: Setting, watch: Watch | None = None) -> None:
        reason = self.refuses(setting)
        if reason is not None:
            raise ContractError(f"the engine {self.name!r} was given a setting it refuses: {reason}")
        self.setting = setting
        self.threads = cores(setting.threads)
        self.samples = Samples(setting.task, setting.dtype, setting.device)
        self.client = Client(setting, self.samples, watch)
        self.convolves = any(isinstance(m, nn.Conv2d) for m in self.client.model.module.modules())
        small = self.client.model.layout.size <= SMALL and not self.convolves
        self.inner = 1 if small else self.threads  # torch threads inside one operation
        self.plain_loss: Loss = LOSSES.build(setting.task.loss)

    def placed(
        self, download: Tensors, memories: Mapping[int, Memory | None], clients: Iterable[int]
    ) -> tuple[Tensors, dict[int, Memory | None]]:
        """What these clients received and kept, on the device; nothing is copied where it lies there already."""
        device = self.setting.device
        kept = {client: memories[client] for client in clients if client in memories}
        return _on(download, device), {client: None if m is None else _on(m, device) for client, m in kept.items()}

    def measure(
        self,
        clients: Ints,
        download: Tensors,
        memories: Mapping[int, Memory | None],
        want: Mapping[str, int | None],
        key: Key,
    ) -> dict[str, Floats]:
        """See :meth:`Engine.measure`. Clients that start from the same model go through it together."""
        unknown = set(want) - MEASURED
        if unknown:
            raise ContractError(f"cannot measure {', '.join(sorted(unknown))}; a probe measures: {', '.join(sorted(MEASURED))}")
        clients = np.asarray(clients, dtype=np.int64)
        download, memories = self.placed(download, memories, clients.tolist() if memories else ())
        return {name: self._probe_loss(clients, download, memories, batches, key) for name, batches in want.items()}

    def _probe_loss(
        self, clients: Ints, download: Tensors, memories: Mapping[int, Memory | None], batches: int | None, key: Key
    ) -> Floats:
        """Mean per-sample loss of each client's starting model, ``[len(clients)]``; NaN without samples."""
        positions, owner = self._drawn(clients, batches, key)
        own = type(self.setting.algorithm.correction).start is not Correction.start  # else memories do not change the model
        alone = np.array([own and memories.get(int(client)) is not None for client in clients], dtype=bool)
        losses = np.empty(len(positions))
        groups = [np.flatnonzero(~alone), *np.flatnonzero(alone)[:, None]]
        for group in groups:
            chosen = np.flatnonzero(np.isin(owner, group)) if len(groups) > 1 else np.arange(len(owner))
            if len(chosen):
                memory = memories.get(int(clients[group[0]]))
                state = self.setting.algorithm.correction.start(download, memory)
                rows = torch.from_numpy(positions[chosen]).to(self.samples.rows.device)
                targets = self.samples.labels[rows]
                losses[chosen], _ = self._forward(state, self.samples.rows[rows], targets, self.setting.algorithm.loss)
        counts = np.bincount(owner, minlength=len(clients))
        sums = np.bincount(owner, weights=losses, minlength=len(clients))
        means: Floats = np.divide(sums, counts, out=np.full(len(clients), np.nan), where=counts > 0)
        return means

    def _drawn(self, clients: Ints, batches: int | None, key: Key) -> tuple[Ints, Ints]:
        """Training samples to measure, as places in ``samples.rows``, and whose (an index into ``clients``) each is.

        Every sample has one uniform number, a function of the key and its place; a client's batches are its samples with the
        smallest numbers, whoever else is measured."""
        positions = self.samples.positions(clients)
        sizes = self.samples.sizes[clients]
        owner = np.repeat(np.arange(len(clients)), sizes)
        if batches is None or (sizes <= batches * self.setting.work.batch_size).all():
            return positions, owner
        ranked = np.lexsort((key.uniform(positions)[:, 0], owner))
        rank = np.arange(len(owner)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        kept = np.sort(ranked[rank < batches * self.setting.work.batch_size])
        return positions[kept], owner[kept]

    def evaluate(self, model: ModelState, rows: Ints) -> tuple[Floats, Floats]:
        """See :meth:`Engine.evaluate`. The loss is the task's own, whatever the algorithm minimises."""
        index = torch.from_numpy(np.asarray(rows, dtype=np.int64)).to(self.samples.rows.device)
        return self._forward(model, index, self.samples.y[index], self.plain_loss)

    def _forward(self, state: ModelState, rows: Tensor, targets: Tensor, loss: Loss) -> tuple[Floats, Floats]:
        """Per-sample loss and hit, in eval mode, chunk by chunk."""
        self.client.model.load(state)
        classes = self.setting.task.federation.classes
        losses = [torch.zeros(0)]
        hits = [torch.zeros(0)]
        chunk = CHUNK[self.convolves]
        with torch_threads(self.inner), torch.no_grad():
            for some, wanted in zip(torch.split(rows, chunk), torch.split(targets, chunk), strict=True):
                if not len(some):
                    continue
                outputs = self.client.forward(self.samples.inputs(some))
                losses.append(loss.loss(outputs, wanted, {}).cpu())
                hit = outputs.argmax(-1) == wanted if classes is not None else torch.full((len(some),), torch.nan)
                hits.append(hit.cpu())
        return torch.cat(losses).double().numpy(), torch.cat(hits).double().numpy()
