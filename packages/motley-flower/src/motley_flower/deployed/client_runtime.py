"""The client's side of a deployment: it answers the server's orders with its own data, engine and
disk.

A client has the experiment's file, as the server does, and carries out an order with the
simulator's parts: the engine trains the job that a simulation would train, with the same batches;
the update goes through the experiment's compressor and error feedback
(:func:`motley.transport.feedback.compress_update`); what the client keeps between rounds lies on
its own disk, in a :mod:`~motley_flower.deployed.kept_state`.

An order can make a client do nothing else: it names an experiment, which must be the client's own,
and brings numbers.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from motley import __version__
from motley.algorithms.parts import Part
from motley.core.errors import CodecError, ConfigError
from motley.engines.engine import MEASURED, REPORTED, Job, Slices, TrainResult
from motley.experiments.build import prepare
from motley.experiments.config import Experiment
from motley.rounds.run_config import RunConfig
from motley.rounds.upload_pipeline import initial_client_state
from motley.tasks.task import Task
from motley.transport import wire
from motley.transport.feedback import compress_update
from motley.transport.packet import Packet
from motley.transport.upload_config import merge_state, split_state
from motley.world.capacity import MEGABYTE, CapacityByMemory
from motley_flower.deployed.client_sums import NoisySums
from motley_flower.deployed.kept_state import ClientStateFile
from motley_flower.deployed.noised_signals import ClientSignals
from motley_flower.deployed.private_plan import plan_of
from motley_flower.deployed.protocol import (
    CONSTANTS,
    Answer,
    Order,
    Told,
    agreement,
    open_order,
    pack,
    unpack,
)
from motley_flower.deployed.ranks import narrowed, sent_part, widened
from motley_flower.messages import MEMORY, SHARE
from motley_flower.secure_messages import refuse_single

if TYPE_CHECKING:
    from motley_flower.deployed.secure_rounds import ClientSecrets


class ClientRuntime:
    """Answers orders for the clients whose data it has.

    Parameters
    ----------
    experiment: the same as the server's.
    folder: where client states are stored.
    task: data and model of the client's own; None: the experiment's.
    data: folder to look into first for data packs.
    secrets: of secure aggregation; None: updates are sent in the clear.
    share: of the ranks of adapters that these clients can hold at most.
    memory_mb: megabytes of 10^6 bytes that they have for training, by which ``by_memory`` gives
    shares; None: unknown.

    Raises
    ------
    ConfigError, DataError, ModelError: what cannot go together, in one sentence.
    """

    def __init__(
        self,
        experiment: Experiment,
        folder: Path,
        task: Task | None = None,
        data: Path | None = None,
        secrets: ClientSecrets | None = None,
        share: float = 1.0,
        memory_mb: float | None = None,
    ) -> None:
        # one client at a time; the account of a private run is the server's, unless no server is
        # trusted with it
        options = experiment.privacy
        own = {} if options is not None and options.noise_by == "clients" else {"privacy": None}
        alone = experiment.replace({"engine.name": "sequential", **own})
        hide_rows = options is not None  # a refusal reaches the server
        self.config, self.engine, _, model = prepare(alone, data, task, hide_rows)
        self.setting = self.config.setting
        self.folder = folder
        self.agreed = agreement(experiment)
        algorithm = self.setting.algorithm
        population = len(self.setting.task.federation)
        self.like = algorithm.local.download(
            algorithm.server.init(algorithm.local.sent(model), population)
        )
        self.first = initial_client_state(self.config, model)
        declared = _share(share, algorithm.local.slicing is not None)
        self.share = min(declared, _fitting(self.config, memory_mb))
        self.secrets = secrets
        self.signals = ClientSignals(experiment, folder)
        plan = plan_of(self.config)
        noise = None if plan is None else plan.client_noise
        if noise is not None and secrets is None:
            raise ConfigError(
                'noise_by = "clients" is noise for a sum, and unmasked updates have too little; '
                "give serve(...) "
                f"secure_aggregation=SecureOptions(clip={noise.clip:g})",
                "privacy.noise_by",
            )
        if plan is None or noise is None:
            self.sums = None
        else:
            self.sums = NoisySums(noise, plan.max_rounds, folder, self.agreed)

    def answer(self, client: int, message: object) -> bytes:
        """Return the answer to an order for this client.

        Raises
        ------
        CodecError: no sound order, or one for another client. ConfigError: an order of another
        experiment, or without data here."""
        began = time.perf_counter()
        order = open_order(message)
        if order.client != client:
            raise CodecError(
                f"got an order for client {order.client}; this node is client {client}"
            )
        if order.agreed != self.agreed:
            raise ConfigError(
                f"the server runs another experiment ({order.agreed}) than this client has "
                f"({self.agreed}); give both the same file, and the same version of Motley "
                f"({__version__} here)"
            )
        data = self.setting.task.federation
        if client >= len(data):
            raise ConfigError(
                f"this node is client {client}, and the experiment has clients 0 to "
                f"{len(data) - 1}",
                "population",
            )
        if order.kind in ("train", "secure") and bool(order.secure) != (self.secrets is not None):
            wanted, own = ("masked", "clear") if order.secure else ("clear", "masked")
            raise ConfigError(
                f"the server asks for {wanted} updates, and this client sends {own} ones",
                "secure_aggregation",
            )
        if self.secrets is not None:
            refuse_single((*order.want, *order.probed))
        if order.kind in ("probe", "train") and order.width > self.share:
            raise CodecError(
                f"got an order for the share {order.width:g} of the ranks; this client holds at "
                f"most {self.share:g}"
            )
        self.signals.check(order)
        done = {
            "enrol": self._enrol,
            "probe": self._probe,
            "train": self._train,
            "secure": self._secure,
        }[order.kind](order)
        spent = _number(time.perf_counter() - began)
        return Answer(
            order.run, client, order.round, order.dispatch, compute_s=spent, **done
        ).seal()

    def _enrol(self, order: Order) -> dict[str, Any]:
        """Report, where wanted, the number of training samples of a client, their label counts,
        and the share of the ranks that it can hold."""
        data = self.setting.task.federation
        available: dict[str, Callable[[], Any]] = {
            "num_examples": lambda: data.train.sizes,
            "label_histogram": data.histogram,
            SHARE: lambda: np.full(len(data), self.share),
        }
        unknown = sorted(set(order.want) - available.keys())
        if unknown:
            raise CodecError(
                f"got an order to report {unknown[0][:40]!r} at enrolment; known are: "
                f"{', '.join(available)}"
            )
        report = {name: _number(available[name]()[order.client]) for name in order.want}
        return {"signals": self.signals.sent(order, report)}

    def _probe(self, order: Order) -> dict[str, Any]:
        """Measure signals of the model sent, on the batches that a simulation would measure."""
        unknown = sorted(order.probed.keys() - MEASURED.keys())
        if unknown:
            raise CodecError(
                f"got an order to measure {unknown[0][:40]!r}; a probe measures: "
                f"{', '.join(sorted(MEASURED))}"
            )
        memory, forgot = self._store(order).take(order.kept)
        key = self.setting.streams.key("probe").fold(order.round)
        who = np.array([order.client])
        own = {order.client: split_state(memory)[0]}
        slices = Slices(np.array([order.width])) if order.width < 1 else None
        met = self.engine.measure(
            who,
            download=self._model(order),
            client_states=own,
            want=order.probed,
            key=key,
            data_view=None,
            slices=slices,
        )
        values = {name: _number(value[0]) for name, value in met.items()}
        return {"signals": self.signals.sent(order, values), "forgot": forgot}

    def _secure(self, order: Order) -> dict[str, Any]:
        """Answer a step of secure aggregation."""
        secrets: Any = self.secrets
        return {
            "upload": secrets.answer(
                self.folder, order.run, order.client, message=order.secure, sums=self.sums
            )
        }

    def _train(self, order: Order) -> dict[str, Any]:
        """Train one job, store the state that follows from its upload, and report the upload."""
        store = self._store(order)
        compressor = self.config.upload_config.compressor
        memory, forgot = store.take(order.kept)
        own, before = split_state(memory)
        job = Job(order.client, order.dispatch, order.steps, order.lr)
        key = self.setting.key("compress", job)
        layout = self.setting.task.layout
        layers = compressor.curvature_layers(order.theta, layout, key, before)
        job = dataclasses.replace(job, layers=layers, width=order.width)
        want = frozenset(order.want) & REPORTED | {"loss", "update_norm"}
        (result,) = self.engine.train([job], self._model(order), {order.client: own}, want)
        values = {name: _number(result.signals[name]) for name in order.want}
        report = {
            "steps": result.steps,
            "signals": self.signals.sent(order, values),
            "forgot": forgot,
        }
        # else zeros and noise are sent, and nobody sees it
        if not result.finite and self.sums is None:
            return {**report, "finite": False}
        try:
            upload, after = self._upload(order, result, before)
        except CodecError:  # with its error memory it overflows
            return {**report, "finite": False}
        store.put(
            order.dispatch,
            merge_state(result.client_state if result.finite else own, after) or None,
        )
        return {**report, "upload": upload}

    def _model(self, order: Order) -> dict[str, Tensor]:
        """Return the model of an order; of fewer ranks the others are 0."""
        layout = self.setting.task.layout
        model = unpack(order.model, sent_part(self.like, layout, order.width))
        return model | {"x": widened(model["x"], layout, order.width)[0]}

    def _upload(
        self, order: Order, result: TrainResult, before: Mapping[str, Tensor]
    ) -> tuple[bytes, Mapping[str, Tensor]]:
        """Return the bytes of an upload and the compression state that follows; the update is
        compressed, other parts are sent whole."""
        upload_config = self.config.upload_config
        layout = self.setting.task.layout
        if self.secrets is not None and self.sums is not None:
            update = result.parts["delta"].value if result.finite else torch.zeros(layout.size)
            return self.secrets.masked(
                self.folder,
                order.run,
                order.client,
                message=order.secure,
                update=update,
                examples=1,
                sums=self.sums,
            ), before
        values = {name: self._weighed(order, part) for name, part in result.parts.items()}
        if self.secrets is not None:
            examples = int(self.setting.task.federation.train.sizes[order.client])
            return self.secrets.masked(
                self.folder,
                order.run,
                order.client,
                message=order.secure,
                update=values["delta"],
                examples=examples,
            ), before
        if order.width < 1:
            values["delta"] = narrowed(values["delta"], layout, order.width)
        if "delta" not in values or upload_config.plain:
            return pack(values), before
        job = Job(order.client, order.dispatch, order.steps, order.lr)
        key = self.setting.key("compress", job)
        sent = compress_update(
            feedback=upload_config.feedback,
            compressor=upload_config.compressor,
            delta=values["delta"],
            client_state=before,
            ratio=order.theta,
            budget=order.budget,
            layout=layout,
            key=key,
            curvature=result.curvature,
        )
        full_packets = {
            name: Packet(value.numel(), value.reshape(-1))
            for name, value in values.items()
            if name != "delta"
        }
        return wire.encode({**full_packets, "delta": sent.packet}, CONSTANTS), sent.client_state

    def _weighed(self, order: Order, part: Part) -> Tensor:
        """Return a part of an upload, times the client's weight ``min(n, n_max) / n_max`` where it
        is averaged in a private run."""
        if not order.most_examples or part.fold != "mean":
            return part.value
        examples = int(self.setting.task.federation.train.sizes[order.client])
        return min(examples, order.most_examples) / order.most_examples * part.value

    def _store(self, order: Order) -> ClientStateFile:
        return ClientStateFile(self.folder, order.run, order.client, self.first)


def _share(value: object, ranks: bool) -> float:
    """Return the share of the ranks that a client can hold, checked."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1:
        raise ConfigError(f"got {value!r}; expected a share in (0, 1], e.g. 0.5", SHARE)
    if value < 1 and not ranks:
        raise ConfigError(
            f"this client can hold the share {value:g} of the ranks, and under this algorithm all "
            "train the whole model; use lora_fedavg or flexlora",
            SHARE,
        )
    return float(value)


def _fitting(config: RunConfig, memory_mb: object) -> float:
    """Return the share of the ranks with which training fits into a client's memory, of those that
    ``by_memory`` lists; 1 where the experiment has no such capacity.

    Raises
    ------
    ConfigError: no memory is said, or too little.
    """
    capacity = config.world.capacity
    share = 1.0
    for rule in [] if capacity is None else capacity.chain:
        if not isinstance(rule, CapacityByMemory) or rule.batch_sizes:
            continue
        if (
            isinstance(memory_mb, bool)
            or not isinstance(memory_mb, int | float)
            or not 0 < memory_mb < math.inf
        ):
            raise ConfigError(
                f"got {memory_mb!r}, and by_memory gives clients what fits into their memory; "
                f'start the node with --node-config "{MEMORY}=512", in megabytes',
                MEMORY,
            )
        takes = {level: config.setting.memory(level).total / MEGABYTE for level in rule.levels}
        fits = [level for level, megabytes in takes.items() if megabytes <= memory_mb]
        least = rule.levels[-1]
        if not fits and rule.too_little == "refuse":
            raise ConfigError(
                f"this client has {memory_mb:g} MB, and training takes {takes[least]:.4g} MB even "
                f"with the share {least:g} of the ranks; list less in capacity, or write "
                'too_little = "least"',
                MEMORY,
            )
        share = min(share, max(fits, default=least))
    return share


def _number(value: object) -> Told:
    """Return a signal as it is sent."""
    return np.array(value, np.float64)
