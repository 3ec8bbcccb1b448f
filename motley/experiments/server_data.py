"""What the server holds: validation samples, public samples, and the room its rule works in."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from motley.algorithms import LOSSES
from motley.algorithms.base import ServerContext
from motley.core.errors import ConfigError
from motley.core.keys import Streams
from motley.engines.base import Setting
from motley.experiments.config import Experiment
from motley.tasks.base import Dataset, TaskSource
from motley.tasks.federate import PartitionInput, hold_out
from motley.tasks.flat import FlatNetwork

__all__ = ["held_back", "server_context_of", "taken"]

_MISSING = {
    "public": (
        "public",
        'and there are none; write public = 0.1 (a tenth of the samples, labels dropped) or public = { data = "cifar100" }, or let '
        "the server keep samples to validate with, split = { server = 0.1 }, a tenth of which then serve",
        "unlabelled public samples",
    ),
    "validation": (
        "split.server",
        "and none are set aside; write split = { server = 0.1 } (a tenth of the samples, test data is never used)",
        "labelled samples of the server to validate with",
    ),
    "classes": ("algorithm", "and the targets of this task are numbers", "classes"),
}
"""What a server rule may need: the key that gives it, what to do, and what it is."""


def held_back(
    experiment: Experiment, streams: Streams, source: TaskSource, dataset: Dataset, rows: PartitionInput, folder: Path | None
) -> tuple[PartitionInput, Mapping[str, Any]]:
    """The rows that are left to clients, and what a federation says of those that are not: ``server``, ``public``, ``notes``."""
    given: dict[str, Any] = {}
    notes = dict(rows.notes)
    key, wanted = streams.key("split").fold("server"), experiment.public
    if experiment.split.server:
        rows, mine = hold_out(dataset, rows, experiment.split.server, key.fold("validation"))
        at = torch.from_numpy(mine)
        given["server"] = (dataset.x[at], dataset.y[at])
        notes["server"] = f"the server keeps {len(mine)} samples with clean labels to validate with"
    if wanted is not None and wanted.share is not None:
        rows, common = hold_out(dataset, rows, wanted.share, key.fold("public"))
        given["public"] = dataset.x[torch.from_numpy(common)]
        notes["public"] = f"{len(common)} samples without labels, held back from the task's own"
    elif wanted is not None and wanted.data is not None:
        given["public"] = source.public(dataset, wanted.data, wanted.examples, key.fold("public"), folder)
        notes["public"] = f"{len(given['public'])} samples of {wanted.data}, without labels"
    return dataclasses.replace(rows, notes=notes), given


def taken(experiment: Experiment, rows: PartitionInput) -> dict[str, str]:
    """What was held back before the rest was divided: the key that did it, and how much, in words."""
    shared = experiment.public is not None and experiment.public.share is not None
    keys = {"split.server": "server", **({"public": "public"} if shared else {})}
    return {key: rows.notes[note] for key, note in keys.items() if note in rows.notes}


def server_context_of(setting: Setting, name: str) -> ServerContext | None:
    """What the server rule may use beside uploads; None for a rule that needs nothing. ``name``: the algorithm's, for messages.

    Raises
    ------
    ConfigError: it needs what this experiment does not give.
    """
    server, task = setting.algorithm.server, setting.task
    data, needs = task.federation, server.needs
    if not needs:
        return None
    held = None if data.server is None else (_inputs(setting, data.server[0]), _targets(setting, data.server[1]))
    public = None if data.public is None else _inputs(setting, data.public)
    if public is None and held is not None and "public" in needs:
        some = setting.streams.key("server").fold("public").numpy().permutation(len(held[0]))[: max(1, len(held[0]) // 10)]
        public = held[0][torch.from_numpy(some).to(held[0].device)]
    there = {"public": public is not None, "validation": held is not None, "classes": data.classes is not None}
    for what in sorted(needs):
        if not there[what]:
            key, remedy, thing = _MISSING[what]
            raise ConfigError(f"{name!r} needs {thing}, {remedy}", key)
    network = FlatNetwork(task.model, setting.dtype, setting.device)
    return ServerContext(task.layout, len(data), 0, network, public, held, LOSSES.build(task.loss))


def _inputs(setting: Setting, raw: Tensor) -> Tensor:
    """Stored samples as model inputs."""
    transform = setting.task.transform
    shown = raw.to(setting.device)
    return (shown if transform is None else transform(shown, None)).to(setting.dtype)


def _targets(setting: Setting, y: Tensor) -> Tensor:
    return y.to(setting.device, setting.dtype) if y.is_floating_point() else y.to(setting.device)
