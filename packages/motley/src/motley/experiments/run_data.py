"""The data of a run: the task with its federation, the samples that the server keeps, and the drift
of the clients' samples."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from motley.algorithms.parts import ServerContext
from motley.algorithms.positions import per_position
from motley.algorithms.task_loss import loss_of
from motley.core.arrays import Ints
from motley.core.components import imports
from motley.core.errors import ConfigError
from motley.core.keys import Streams
from motley.core.ragged import Ragged
from motley.engines.engine import Setting
from motley.experiments.config import OF_ONES_OWN, Experiment
from motley.experiments.unlike_models import with_unlike_models
from motley.tasks.federate import (
    PartitionInput,
    client_rows,
    federate,
    hold_out,
    partition_input,
)
from motley.tasks.task import NO_CLASSES, Dataset, Federation, Task, TaskSource, model_input
from motley.world.interfaces import Drift, Partition, Partitioned
from motley.world.shift.feature_shift import shifted

_MISSING = {
    "public": (
        "public",
        "and there are none; write public = 0.1 (a tenth of the samples, labels dropped) or public "
        '= { data = "cifar100" }, or let '
        "the server keep samples to validate with, split = { server = 0.1 }, a tenth of which then "
        "serve",
        "unlabelled public samples",
    ),
    "validation": (
        "split.server",
        "and none are set aside; write split = { server = 0.1 } (a tenth of the samples, test data "
        "is never used)",
        "labelled samples of the server to validate with",
    ),
}
"""What a server rule may need: the key that gives it, the remedy, and its description."""
_OF_OWN = {
    "public": "and there are none; write dataclasses.replace(federation, public=inputs)",
    "validation": "and there are none; write dataclasses.replace(federation, server=(inputs, "
    "labels))",
}
"""The remedy for a federation of one's own."""


def task_of(
    experiment: Experiment, streams: Streams | None = None, data: Path | None = None
) -> Task:
    """Return the experiment's model and federation: samples read, divided among clients, split,
    shifted and given wrong labels."""
    streams = streams or Streams(experiment.seed, experiment.pin)
    if experiment.own_task is not None:
        check_own_data(experiment)
        return experiment.own_task
    source: TaskSource = experiment.part("task")
    dataset = source.load(streams.key("data"), experiment.population or 0, data)
    if experiment.privacy is None:  # how rows follow each other is the clients' own
        source.warn_of_order(dataset)
    rows = partition_input(
        dataset,
        experiment.split,
        streams.key("split"),
        own_rows=experiment.part("partition").fixes_population,
    )
    rows, reserved = _reserved(
        experiment=experiment,
        streams=streams,
        source=source,
        dataset=dataset,
        rows=rows,
        folder=data,
    )
    population = experiment.population or (
        len(np.unique(rows.groups)) if rows.groups is not None else 0
    )
    federation = dataclasses.replace(
        _federation(experiment, streams, dataset, rows, population=population), **reserved
    )
    federation = _with_reserved_inputs(dataset, federation)
    with imports(True):  # a model named module:Class was allowed where the experiment was made
        return with_unlike_models(experiment, source, dataset, federation)


_OWN_DATA = {
    "partition": "leave it out",
    "label_noise": "leave it out, and change the labels before the federation is made",
    "feature_shift": "leave it out, and change the inputs before the federation is made",
    "concept_shift": "leave it out, and change the labels before the federation is made",
    "public": "leave it out, and write dataclasses.replace(federation, public=inputs)",
}
"""What to write in place of a key that makes samples, for a federation of one's own."""
_AS_IT_IS = ("none", "by_writer")
"""Components that leave such a federation as it is."""


def check_own_data(experiment: Experiment) -> None:
    """Refuse keys that divide or change samples beside a federation of one's own, whose samples are
    what they are.

    Raises
    ------
    ConfigError: one of them is written.
    """
    for key, remedy in _OWN_DATA.items():
        value = getattr(experiment, key)
        left_out = value is None or (isinstance(value, Mapping) and value["name"] in _AS_IT_IS)
        if not left_out:
            raise ConfigError(f"{OF_ONES_OWN}; {remedy}", key)


def _federation(
    experiment: Experiment,
    streams: Streams,
    dataset: Dataset,
    rows: PartitionInput,
    population: int,
) -> Federation:
    """Return the clients with their samples: the partition, then label noise, concept shift and
    feature shift where asked for."""
    partition = experiment.part("partition")
    if partition.uses_classes and dataset.targets in ("positions", "multilabel"):
        name = experiment.partition["name"]
        why = NO_CLASSES[dataset.targets]
        raise ConfigError(
            f"{name!r} divides samples by their class, and {why}; use 'iid' or 'by_writer'",
            "partition",
        )
    try:
        parted = _divided(experiment, streams, dataset, rows, population=population)
    except ConfigError as error:
        about = [f"the data is {dataset.notes['data']}"] if "data" in dataset.notes else []
        raise ConfigError(
            "; ".join([str(error), *about, *_reserved_notes(experiment, rows)])
        ) from None
    _check_least(partition, parted.rows.sizes)
    clients = np.arange(len(parted.rows))
    shift = streams.key("shift")
    noise = experiment.part("label_noise")
    concepts = experiment.part("concept_shift")
    features = experiment.part("feature_shift")
    classes: Any = dataset.classes  # labels are changed in classification alone

    def noisy(labels: Any, owner: Any, *numbers: Any) -> Any:
        key = shift.fold("label_noise")
        return noise.apply(key, labels, owner, classes, len(clients), *numbers)

    def renamed(labels: Any, owner: Any) -> Any:
        return concepts.apply(shift.fold("concept"), labels, owner, classes, len(clients))

    def moved(x: Any, owner: Any, numbers: Any) -> Any:
        key = shift.fold("feature")
        black, white = dataset.black_white
        return shifted(
            features, key, x, owner, population=len(clients), black=black, white=white, rows=numbers
        ), features.group(key, clients, len(clients))

    def if_asked(key: str, function: Any) -> Any:
        return None if getattr(experiment, key)["name"] == "none" else function

    return federate(
        dataset=dataset,
        source=rows,
        parts=parted.rows,
        split=experiment.split,
        key=streams.key("split"),
        label_noise=if_asked("label_noise", noisy),
        notes=parted.notes,
        concept_shift=if_asked("concept_shift", renamed),
        feature_shift=if_asked("feature_shift", moved),
        overlap=parted.overlap,
    )


# -------------------------------------------------------------------- samples that the server keeps


def _reserved(
    experiment: Experiment,
    streams: Streams,
    source: TaskSource,
    dataset: Dataset,
    rows: PartitionInput,
    folder: Path | None,
) -> tuple[PartitionInput, Mapping[str, Any]]:
    """Return the rows left to clients, and the federation's fields ``server`` and ``public`` made
    of the others."""
    fields: dict[str, Any] = {}
    notes = dict(rows.notes)
    key = streams.key("split").fold("server")
    wanted = experiment.public
    if experiment.split.server:
        rows, reserved = hold_out(dataset, rows, experiment.split.server, key.fold("validation"))
        at = torch.from_numpy(reserved)
        fields["server"] = (dataset.x[at], dataset.y[at])
        notes["server"] = (
            f"the server keeps {len(reserved)} samples with clean labels to validate with"
        )
    if wanted is not None and wanted.share is not None:
        rows, common = hold_out(dataset, rows, wanted.share, key.fold("public"))
        fields["public"] = dataset.x[torch.from_numpy(common)]
        notes["public"] = f"{len(common)} samples without labels, held back from the task's own"
    elif wanted is not None and wanted.data is not None:
        fields["public"] = source.public(
            dataset=dataset,
            data=wanted.data,
            examples=wanted.examples,
            key=key.fold("public"),
            folder=folder,
        )
        notes["public"] = f"{len(fields['public'])} samples of {wanted.data}, without labels"
    return dataclasses.replace(rows, notes=notes), fields


def _with_reserved_inputs(dataset: Dataset, federation: Federation) -> Federation:
    """Return the federation with the samples that the server or all keep as model inputs, too."""
    table = dataset.table
    fitted = federation.preparation
    if table is None or fitted is None:
        return federation
    fields: dict[str, Any] = {}
    if federation.server is not None:
        x, y = federation.server
        fields["server"] = (table.inputs_of(x, fitted), y)
    if federation.public is not None:
        fields["public"] = table.inputs_of(federation.public, fitted)
    return dataclasses.replace(federation, **fields)


def _divided(
    experiment: Experiment,
    streams: Streams,
    dataset: Dataset,
    rows: PartitionInput,
    population: int,
) -> Partitioned:
    """Return the partition of the rows, which it gets in the order of the original files if it
    asks for that.

    Raises
    ------
    ConfigError: the data does not allow the partition, or that order is not known.
    """
    partition: Partition = experiment.part("partition")
    key = streams.key("partition")
    places = dataset.places
    if not partition.in_file_order or places is None:
        return partition.split(key, rows.labels, population, rows.groups)
    if not len(places):
        name = experiment.partition["name"]
        raise ConfigError(
            f"{name!r} divides rows by their order in the original files, which this source of the "
            "data does not keep; get the original files (motley data get), or write partition = "
            '"iid"',
            "partition",
        )
    order = np.lexsort((places[rows.rows], dataset.test[rows.rows]))
    groups = None if rows.groups is None else rows.groups[order]
    parted = partition.split(key, rows.labels[order], population, groups)
    values = order[parted.rows.values]
    values = values[np.lexsort((values, parted.rows.owner))]
    return dataclasses.replace(parted, rows=Ragged(parted.rows.offsets, values))


def _check_least(partition: Any, sizes: Ints) -> None:
    """Refuse clients without samples where the partition can give each some: by ``min_size``."""
    empty = np.flatnonzero(sizes == 0)
    if len(empty) and getattr(partition, "min_size", 1) < 1:
        raise ConfigError(
            f"{len(empty)} clients got no samples (client {empty[0]} first); write min_size = 1",
            "partition",
        )


def _reserved_notes(experiment: Experiment, rows: PartitionInput) -> list[str]:
    """Return a sentence for each key that took samples away before the rest was divided."""
    shared = experiment.public is not None and experiment.public.share is not None
    keys = {"split.server": "server", **({"public": "public"} if shared else {})}
    return [f"{key}: {rows.notes[note]}" for key, note in keys.items() if note in rows.notes]


def server_context_of(
    setting: Setting, name: str, more: Mapping[str, str] | None = None, own: bool = False
) -> ServerContext | None:
    """Return what the server may use beside uploads; None where nothing is needed.

    Parameters
    ----------
    name: the algorithm's name, for messages.
    more: what is needed beside the server rule's needs -> the name of the component that needs it.
    own: whether the federation is the user's own.

    Raises
    ------
    ConfigError: something is needed that this experiment does not give.
    """
    task = setting.task
    data = task.federation
    needs = {**(more or {}), **dict.fromkeys(setting.algorithm.server.needs, name)}
    if not needs:
        return None
    if data.server is None:
        held = None
    else:
        held = (_inputs(setting, data.server[0]), _targets(setting, data.server[1]))
    public = None if data.public is None else _inputs(setting, data.public)
    if public is None and held is not None and "public" in needs:
        rows = (
            setting.streams.key("server")
            .fold("public")
            .numpy()
            .permutation(len(held[0]))[: max(1, len(held[0]) // 10)]
        )
        public = held[0][torch.from_numpy(rows).to(held[0].device)]
    available = {
        "public": public is not None,
        "validation": held is not None,
        "classes": data.targets == "classes",
    }
    for need in sorted(needs):
        if not available[need]:
            if need == "classes":
                missing = ("algorithm", f"and {NO_CLASSES[data.targets]}", "one class per sample")
            else:
                missing = _MISSING[need]
            key, remedy, lacking = missing
            if own:
                remedy = _OF_OWN.get(need, remedy)
            raise ConfigError(f"{needs[need]!r} needs {lacking}, {remedy}", key)
    model = setting.common if setting.algorithm.local.trains_common else setting
    return ServerContext(
        layout=model.task.layout,
        population=data.pool,
        accepted=0,
        network=setting.network(),
        public=public,
        validation=held,
        criterion=per_position(loss_of(task), data.targets),
        architectures=None if task.architectures is None else task.architectures.numbers,
        groups=setting.algorithm.local.groups,
    )


def _inputs(setting: Setting, raw: Tensor) -> Tensor:
    """Return stored samples as model inputs."""
    transform = setting.task.transform
    x = raw.to(setting.device)
    return model_input(x if transform is None else transform(x, None), setting.dtype)


def _targets(setting: Setting, y: Tensor) -> Tensor:
    return y.to(setting.device, setting.dtype) if y.is_floating_point() else y.to(setting.device)


# ------------------------------------------------------------------------------------- drift


def with_drift(experiment: Experiment, streams: Streams, task: Task) -> Task:
    """Return the task with each client's training samples in the order in which its window passes
    over them, and window sizes.

    Raises
    ------
    ConfigError: the task has no classes, or the drift does not fit them.
    """
    drift: Drift = experiment.part("drift")
    if experiment.drift["name"] == "none":
        return task
    data = task.federation
    key = streams.key("shift").fold("drift")
    if data.classes is None or data.targets != "classes":
        raise ConfigError(
            f"a drift needs one class per sample; {NO_CLASSES[data.targets]}", "drift"
        )
    train = data.train
    ids = np.arange(len(data))
    try:
        drift.tables(key, ids[:1], data.classes, 1, 0.0)
    except ConfigError as error:
        raise ConfigError(str(error), "drift") from None
    clean = data.y[torch.from_numpy(train.values)].cpu().numpy().astype(np.int64)
    keyed = (client_rows(train.owner),) if data.own_rows else ()
    order = drift.order(key, clean, train.owner, data.classes, len(data), *keyed)
    # by position, as own components may name their arguments otherwise
    _, window = drift.window(key, ids, train.sizes, 1, 0.0)
    ring = Ragged(train.offsets, train.values[order])
    moved = dataclasses.replace(
        data, train=ring, labels=data.labels[torch.from_numpy(order)], window=window
    )
    return dataclasses.replace(task, federation=moved)
