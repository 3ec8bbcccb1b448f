"""Probes: losses and gradients of clients' received models in eval mode, on some batches or on all
samples of each client.

Clients that start from the same model share its forward passes; gradients are computed as the
engine can (:mod:`motley.engines.gradients`). A client's numbers do not depend on which other
signals or clients are measured, up to rounding.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from motley.algorithms import LOSSES
from motley.algorithms.head_loss import other_heads_masked
from motley.algorithms.parts import ClientState, Loss, Tensors
from motley.algorithms.positions import PositionMean, per_position
from motley.algorithms.task_loss import loss_of
from motley.core.arrays import Floats, Ints
from motley.core.errors import ContractError
from motley.core.keys import Key
from motley.core.rounding import rounded
from motley.core.sketch import Sketch
from motley.engines.client import Client
from motley.engines.cores import torch_threads
from motley.engines.engine import MEASURED, DataView, Setting
from motley.engines.gradients import ClientSamples, GradientPass, ModuleGradients
from motley.engines.samples import Samples, SampleSplit
from motley.engines.scores import measured
from motley.tasks.task import ModelState
from motley.tasks.transfer import to_device


class Prober:
    """Measures clients and evaluates models with the module of one :class:`Client`.

    Parameters
    ----------
    setting, samples: of the run.
    client: has the module.
    inner: torch threads inside one operation.
    held: which weights the measured clients hold, bool ``[D]``, to which gradients are cut; None:
    all.

    Attributes
    ----------
    gradient_pass: computes gradients; client by client unless the engine replaces it.
    """

    def __init__(
        self,
        setting: Setting,
        samples: Samples,
        client: Client,
        inner: int,
        held: Tensor | None = None,
    ) -> None:
        self.held = held
        self.setting = setting
        self.samples = samples
        self.client = client
        self.inner = inner
        self.gradient_pass: GradientPass = ModuleGradients(client, inner)
        self.targets = setting.task.federation.targets
        self.heads = setting.task.heads
        self.plain_loss = per_position(loss_of(setting.task), self.targets)
        robust: Loss = LOSSES.build("flash_robust")
        own = setting.algorithm.loss
        same = isinstance(own.base if isinstance(own, PositionMean) else own, type(robust))
        self.robust_loss = own if same else per_position(robust, self.targets)

    def measure(
        self,
        clients: Ints,
        download: Tensors,
        client_states: Mapping[int, ClientState | None],
        want: Mapping[str, int | None],
        key: Key,
        data_view: DataView | None = None,
    ) -> dict[str, Floats]:
        """See :meth:`Engine.measure`; tensors lie on the device."""
        unknown = set(want) - set(MEASURED)
        if unknown:
            raise ContractError(
                f"cannot measure {', '.join(sorted(unknown))}; a probe measures: "
                f"{', '.join(sorted(MEASURED))}"
            )
        starts = list(self._starts(clients, download, client_states))
        signals = {}
        with torch_threads(self.inner):
            gradients = {
                name: batches for name, batches in want.items() if MEASURED[name][1] == "gradient"
            }
            for name in want.keys() - gradients.keys():
                signals[name] = self._mean_loss(
                    name, clients, starts, batches=want[name], key=key, data_view=data_view
                )
            for batches in set(gradients.values()):
                names = {name for name in gradients if gradients[name] == batches}
                signals |= self._gradients(
                    names, clients, starts, batches, key=key, data_view=data_view
                )
        return {name: signals[name] for name in want}

    def _starts(
        self, clients: Ints, download: Tensors, client_states: Mapping[int, ClientState | None]
    ) -> Iterator[tuple[Ints, ModelState]]:
        """Yield groups of clients (indices into ``clients``) that start from the same model, and
        this model."""
        rule = self.setting.algorithm.local
        alone = np.zeros(len(clients), bool)
        if rule.personal is not None and rule.personal.starts_own:
            alone[:] = [client_states.get(int(client)) is not None for client in clients]
        for group in [np.flatnonzero(~alone), *np.flatnonzero(alone)[:, None]]:
            if len(group):
                yield group, rule.start(download, client_states.get(int(clients[group[0]])))

    def choose(self, clients: Ints, download: Tensors, data_view: DataView | None = None) -> Tensor:
        """Return the number of the received model whose mean loss on all of a client's training
        samples is lowest, the first of equals, int64 ``[len(clients)]``."""
        rule = self.setting.algorithm.local
        everybody = np.arange(len(clients))
        losses = []
        with torch_threads(self.inner):
            for j in range(rule.choice.models if rule.choice is not None else 1):
                start = rule.start(download, {"choice": torch.tensor([j])})
                losses.append(
                    self._mean_loss(
                        name="loss",
                        clients=clients,
                        starts=[(everybody, start)],
                        batches=None,
                        key=Key(0),
                        data_view=data_view,
                    )
                )
        return torch.from_numpy(rounded(np.where(np.isnan(losses), np.inf, losses)).argmin(0))

    def _mean_loss(
        self,
        name: str,
        clients: Ints,
        starts: list[tuple[Ints, ModelState]],
        batches: int | None,
        key: Key,
        data_view: DataView | None,
    ) -> Floats:
        """Return the mean per-sample loss of each client's starting model, ``[len(clients)]``."""
        kind = MEASURED[name][0]
        own = self.robust_loss if name == "robust_loss" else self.setting.algorithm.loss
        loss = own if kind == "training" else self.plain_loss
        part = getattr(self.samples, kind)
        key, window = (key, data_view) if kind == "training" else (key.fold(kind), None)
        positions, owner = self.draw_samples(
            part=part, clients=clients, batches=batches, key=key, data_view=window
        )
        losses = np.empty(len(positions))
        for group, state in starts:
            # of millions of clients all samples are not gathered again
            chosen = np.flatnonzero(np.isin(owner, group)) if len(starts) > 1 else slice(None)
            places = to_device(positions[chosen], part.rows.device)
            wanted = part.targets(places, data_view, owner[chosen])
            sizes = np.bincount(owner[chosen], minlength=len(clients))
            passed = self.forward(state, part.rows[places], wanted, loss, sizes=sizes)
            losses[chosen] = passed["loss"]
        counts = np.bincount(owner, minlength=len(clients))
        sums = np.bincount(owner, weights=losses, minlength=len(clients))
        means: Floats = np.divide(sums, counts, out=np.full(len(clients), np.nan), where=counts > 0)
        return means

    def _gradients(
        self,
        names: set[str],
        clients: Ints,
        starts: list[tuple[Ints, ModelState]],
        batches: int | None,
        key: Key,
        data_view: DataView | None,
    ) -> dict[str, Floats]:
        """Return each client's mean gradient, its norm or its sketch, all from one gradient."""
        part = self.samples.training
        size = self.client.model.layout.size
        sketch = Sketch.signal("gradient_sketch", self.setting.streams, size)
        widths = {"grad_norm": (), "gradient": (size,), "gradient_sketch": (sketch.width,)}
        signals = {name: np.full((len(clients), *widths[name]), np.nan) for name in names}
        positions, owner = self.draw_samples(
            part=part, clients=clients, batches=batches, key=key, data_view=data_view
        )
        ends = np.searchsorted(owner, np.arange(len(clients) + 1))

        def use(i: int, g: Tensor) -> None:
            g = (g if self.held is None else g * self.held).cpu()
            for name in names:
                if name == "grad_norm":
                    signals[name][i] = g.double().norm()
                else:
                    signals[name][i] = g if name == "gradient" else sketch.of(g)

        def samples_of(i: int) -> ClientSamples:
            places = to_device(positions[ends[i] : ends[i + 1]], part.rows.device)
            return ClientSamples(
                i, part.rows[places], part.targets(places, data_view, owner[ends[i] : ends[i + 1]])
            )

        for group, state in starts:
            self.gradient_pass.run(
                state, [samples_of(i) for i in group[ends[group + 1] > ends[group]].tolist()], use
            )
        return signals

    def draw_samples(
        self,
        part: SampleSplit,
        clients: Ints,
        batches: int | None,
        key: Key,
        data_view: DataView | None = None,
    ) -> tuple[Ints, Ints]:
        """Return the samples to measure, as positions in ``part.rows``, and the client (an index
        into ``clients``) of each.

        Every sample has a uniform number that is a function of the key and its position, of clients
        that came with their rows the position among the client's; a client's batches are its
        samples with the smallest numbers.
        """
        positions = part.positions(clients, data_view)
        sizes = part.seen[clients]
        owner = np.repeat(np.arange(len(clients)), sizes)
        if batches is None or (sizes <= batches * self.setting.work.batch_size).all():
            return positions, owner
        numbers = positions
        if self.setting.task.federation.own_rows:
            # above 32 bits the client, below its sample: the same in whichever federation it came
            numbers = positions - part.offsets[clients][owner] + (clients[owner] << 32)
        # the last key counts first: the samples of each client, by their numbers
        ranked = np.lexsort((key.uniform(numbers)[:, 0], owner))
        rank = np.arange(len(owner)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        chosen = np.sort(ranked[rank < batches * self.setting.work.batch_size])
        return positions[chosen], owner[chosen]

    def forward(
        self,
        state: ModelState,
        rows: Tensor,
        targets: Tensor,
        loss: Loss,
        want: frozenset[str] = frozenset(),
        sizes: Ints | None = None,
    ) -> dict[str, NDArray[Any]]:
        """Return ``loss`` and the wanted quantities (see :meth:`Engine.evaluate`) of one model in
        eval mode, computed in chunks; ``sizes``: of consecutive samples that belong together."""
        self.client.model.load(state)
        names = sorted(want - {"loss"})
        chunks: dict[str, list[Tensor]] = {name: [] for name in ("loss", *names)}
        cuts = self._cuts(len(rows), sizes)
        with torch_threads(self.inner), torch.no_grad():
            for batch, wanted in zip(
                torch.split(rows, cuts), torch.split(targets, cuts), strict=True
            ):
                if not len(batch):
                    continue
                if self.client.separates_clients:
                    # a forward pass may change weights, as an embedding with max_norm does
                    self.client.model.load(state)
                outputs = self.client.forward(self.samples.inputs(batch))
                if self.heads:
                    outputs = other_heads_masked(outputs, wanted, self.heads)
                chunks["loss"].append(loss.loss(outputs, wanted, {}))
                for name in names:
                    value = self.client.received.features() if name == "features" else None
                    chunks[name].append(
                        measured(name, outputs, wanted, self.targets) if value is None else value
                    )
        joined: dict[str, NDArray[Any]] = {}
        for name in tuple(chunks):
            parts = chunks.pop(name)  # which are freed one by one
            # scripted layers may keep a graph also where none is wanted
            value = torch.cat(parts).detach().cpu() if parts else torch.zeros(0)
            del parts
            joined[name] = (value.double() if name in ("loss", "hit") else value).numpy()
        return joined

    def _cuts(self, count: int, sizes: Ints | None) -> list[int]:
        """Return the lengths of the forward passes over so many samples, ``sizes`` of which belong
        together (None: all): chunks, within what belongs together where that stays alone."""
        lengths = [count] if sizes is None or not self.client.separates_clients else sizes.tolist()
        chunk = self.client.chunk
        return [min(chunk, size - at) for size in lengths for at in range(0, size, chunk)]
