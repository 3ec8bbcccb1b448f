"""A site: what answers a server's orders, with the client's own data, its own engine and its own disk.

A site holds the experiment's file, as the server does, and works an order off with the simulator's parts: the engine trains the very
job that a simulation would have trained, with the same batches; the update goes through the experiment's compressor and error feedback
(:func:`motley.transport.feedback.compress_update`); what the client keeps lies on the site's
:mod:`~motley.adapters.flower.deployed.client_state`.

An order can make a site do nothing else: it names an experiment, which must be the site's own, and brings numbers.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from motley.adapters.flower.deployed.client_state import ClientStateFile
from motley.adapters.flower.deployed.protocol import Answer, Order, Told, agreement, open_order, pack, unpack
from motley.core.errors import CodecError, ConfigError
from motley.engines.base import MEASURED, REPORTED, Job, TrainResult
from motley.experiments.build import prepare
from motley.experiments.config import Experiment
from motley.rounds.upload import initial_client_state
from motley.tasks.base import Task
from motley.transport import wire
from motley.transport.feedback import compress_update
from motley.transport.packet import Packet
from motley.transport.upload_config import merge_state, split_state

__all__ = ["ClientRuntime"]


class ClientRuntime:
    """Answers orders for the clients whose data it has.

    Parameters
    ----------
    experiment: the same as the server's. folder: where client memories lie. task: data and model of the site's own; None: the
    experiment's. data: folder to look into first for data packs.

    Raises
    ------
    ConfigError, DataError, ModelError: what cannot go together, in one sentence.
    """

    def __init__(self, experiment: Experiment, folder: Path, task: Task | None = None, data: Path | None = None) -> None:
        alone = experiment.replace({"engine.name": "sequential"})  # one client at a time
        self.plan, self.engine, _, model = prepare(alone, data, task)
        self.setting, self.folder, self.agreed = self.plan.setting, folder, agreement(experiment)
        algorithm, population = self.setting.algorithm, len(self.setting.task.federation)
        self.like = algorithm.correction.download(algorithm.server.init(algorithm.correction.sent(model), population))
        self.first = initial_client_state(self.plan, model)

    def answer(self, client: int, letter: object) -> bytes:
        """The answer to an order for this client.

        Raises
        ------
        CodecError: no sound order, or one for another client. ConfigError: an order of another experiment, or without data here.
        """
        began = time.perf_counter()
        order = open_order(letter)
        if order.client != client:
            raise CodecError(f"got an order for client {order.client}; this node is client {client}")
        if order.agreed != self.agreed:
            raise ConfigError(
                f"the server runs another experiment ({order.agreed}) than this site has ({self.agreed}); give both the same file"
            )
        data = self.setting.task.federation
        if client >= len(data):
            raise ConfigError(
                f"this node is client {client}, and the experiment has clients 0 to {len(data) - 1}", "population"
            )
        done = {"enrol": self._enrol, "probe": self._probe, "train": self._train}[order.kind](order)
        spent = _told(time.perf_counter() - began)
        return Answer(order.run, client, order.round, order.dispatch, compute_s=spent, **done).seal()

    def _enrol(self, order: Order) -> dict[str, Any]:
        """Sizes, and the label counts of a client's training samples as it has them, where they are wanted."""
        data = self.setting.task.federation
        told: dict[str, Told] = {"num_examples": _told(data.train.sizes[order.client])}
        if "label_histogram" in order.want:
            mine = slice(int(data.train.offsets[order.client]), int(data.train.offsets[order.client + 1]))
            told["label_histogram"] = _told(np.bincount(data.labels[mine].cpu().numpy(), minlength=data.classes or 0))
        return {"signals": told}

    def _probe(self, order: Order) -> dict[str, Any]:
        """Signals of the model sent, on the batches that a simulation would have measured."""
        unknown = sorted(order.probed.keys() - MEASURED.keys())
        if unknown:
            raise CodecError(f"got an order to measure {unknown[0][:40]!r}; a probe measures: {', '.join(sorted(MEASURED))}")
        memory, forgot = self._shelf(order).take(order.kept)
        key = self.setting.streams.key("probe").fold(order.round)
        who, own = np.array([order.client]), {order.client: split_state(memory)[0]}
        met = self.engine.measure(who, unpack(order.model, self.like), own, order.probed, key)
        return {"signals": {name: _told(value[0]) for name, value in met.items()}, "forgot": forgot}

    def _train(self, order: Order) -> dict[str, Any]:
        """The upload of one job, and what it leaves behind."""
        shelf, compressor = self._shelf(order), self.plan.upload_config.compressor
        memory, forgot = shelf.take(order.kept)
        own, before = split_state(memory)
        job = Job(order.client, order.dispatch, order.steps, order.lr)
        key, layout = self.setting.key("compress", job), self.setting.task.layout
        layers = compressor.curvature_layers(order.theta, layout, key, before)
        job = Job(order.client, order.dispatch, order.steps, order.lr, layers=layers)
        want = frozenset(order.want) & REPORTED | {"loss", "update_norm"}
        (trained,) = self.engine.train([job], unpack(order.model, self.like), {order.client: own}, want)
        signals = {name: _told(value) for name, value in trained.signals.items()}
        told = {"steps": trained.steps, "signals": signals, "forgot": forgot}
        if not trained.finite:
            return {**told, "finite": False}
        try:
            upload, after = self._upload(order, trained, before)
        except CodecError:  # it overflows with what waited
            return {**told, "finite": False}
        shelf.put(order.dispatch, merge_state(trained.client_state, after) or None)
        return {**told, "upload": upload}

    def _upload(self, order: Order, trained: TrainResult, before: Mapping[str, Tensor]) -> tuple[bytes, Mapping[str, Tensor]]:
        """The bytes of an upload, and what its way up leaves at the client; the update is compressed, all else travels whole."""
        upload_config, layout = self.plan.upload_config, self.setting.task.layout
        values = {name: part.value for name, part in trained.parts.items()}
        if "delta" not in values or upload_config.plain:
            return pack(values), before
        job = Job(order.client, order.dispatch, order.steps, order.lr)
        key = self.setting.key("compress", job)
        sent = compress_update(
            upload_config.feedback, upload_config.compressor, values["delta"], before, order.theta, order.budget, layout,
            key, trained.curvature
        )  # fmt: skip
        whole = {name: Packet(value.numel(), value.reshape(-1)) for name, value in values.items() if name != "delta"}
        return wire.encode({**whole, "delta": sent.packet}), sent.client_state

    def _shelf(self, order: Order) -> ClientStateFile:
        return ClientStateFile(self.folder, order.run, order.client, self.first)


def _told(value: object) -> Told:
    """A signal as it travels."""
    return np.array(value, np.float64)
