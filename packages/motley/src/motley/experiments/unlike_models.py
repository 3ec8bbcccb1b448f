"""Clients whose models have different architectures: which there are, who holds which, and what
goes with them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
from torch import nn

from motley.algorithms import CATALOGUE
from motley.algorithms.personal import PersonalLayers
from motley.core.arrays import Floats, Ids
from motley.core.errors import ConfigError
from motley.engines.engine import Engine, Setting
from motley.engines.local import LocalEngine
from motley.experiments.config import Experiment
from motley.rounds.channel import empty_upload, shapes_of
from motley.rounds.upload_signals import SERVER_SIGNALS
from motley.selectors.selector import Selector
from motley.tasks.architectures import Architectures, dealt
from motley.tasks.task import Dataset, Federation, Task, TaskSource
from motley.world.interfaces import World


def with_unlike_models(
    experiment: Experiment, source: TaskSource, dataset: Dataset, federation: Federation
) -> Task:
    """Return the task of an experiment, with several models if it lists them.

    Raises
    ------
    ConfigError: the task's models cannot be named.
    """
    name = experiment.task["name"]
    listed = experiment.models
    if listed is None:
        return source.task(name, dataset, federation)
    if not listed.of:
        raise ConfigError(
            'which models? write models = { of = ["cnn", "mlp"], '
            f'by = "{listed.by}" }}, or give own_task a list of them',
            "models.of",
        )
    if "model" not in {field.name for field in dataclasses.fields(source)}:  # type: ignore[arg-type]
        raise ConfigError(
            f"the task {name!r} has a model of its own; use a task with a key model, e.g. image",
            "models",
        )
    tasks = [
        dataclasses.replace(source, model=record).task(name, dataset, federation)  # type: ignore[type-var]
        for record in listed.of
    ]
    factories: list[Callable[[], nn.Module]] = [task.model for task in tasks]
    names = [str(record["name"]) for record in listed.of]
    return tasks[0].with_models(Architectures.of(names, factories))


def with_holders(experiment: Experiment, setting: Setting, world: World) -> Setting:
    """Return the setting in which every client holds one of the models.

    Raises
    ------
    ConfigError: shares, groups or a capacity that do not fit the models.
    """
    unlike = setting.task.architectures
    listed = experiment.models
    if unlike is None:
        if listed is not None:
            raise ConfigError(
                "this task has one model; give own_task a list of models, or leave this key out",
                "models",
            )
        return setting
    clients = len(setting.task.federation)
    if len(unlike.numbers):
        if listed is not None:
            raise ConfigError(
                "own_task was told who holds which model (holders); leave this key out", "models"
            )
        return _noted(setting, world)
    by = "client" if listed is None else listed.by
    share = None if listed is None else listed.share
    if share is not None and (by != "client" or len(share) != len(unlike)):
        raise ConfigError(
            f"got {len(share)} shares with by = {by!r}; expected one for each of the "
            f'{len(unlike)} models, with by = "client"',
            "models.share",
        )
    if share is not None and not 0 < sum(share) < float("inf"):
        raise ConfigError(
            f"got shares that sum to {sum(share):g}; expected one above 0", "models.share"
        )
    if by == "client":
        numbers = dealt(share or [1.0] * len(unlike), clients)
    elif by == "group":
        numbers = _by_group(setting.task.federation, len(unlike))
    else:
        numbers = _by_capacity(setting, world)
    task = dataclasses.replace(
        setting.task, architectures=dataclasses.replace(unlike, numbers=numbers)
    )
    return _noted(dataclasses.replace(setting, task=task), world)


def _by_group(federation: Federation, models: int) -> Ids:
    """Return each client's model by its feature shift, else its concept shift."""
    for groups in (federation.domain, federation.cluster):
        if len(groups) and groups.any():
            return np.asarray(groups % models, np.int64)
    raise ConfigError(
        "got 'group', and all clients are of one; write feature_shift or concept_shift, by whose "
        'groups models are held, or by = "client"',
        "models.by",
    )


def _by_capacity(setting: Setting, world: World) -> Ids:
    """Return each client's model: the first, hence largest, that its capacity lets it hold."""
    capacity = world.capacity
    kinds = setting.kinds
    if capacity is None or capacity.batch_sizes:
        levels = [round(1 - i / len(kinds), 3) for i in range(len(kinds))]
        raise ConfigError(
            "got 'capacity', and no capacity says what clients hold; write e.g. capacity = "
            f'{{ name = "by_memory", levels = {levels} }}, a level for each model',
            "models.by",
        )
    per = getattr(capacity, "per", "client")
    if capacity.requires or capacity.measure == "round" or per == "round":
        raise ConfigError(
            "a client holds its model for good, and this capacity changes from round to round; "
            'use "levels" with per = "client", "by_speed" or "by_memory"',
            "capacity",
        )
    if len(capacity.levels) != len(kinds):
        raise ConfigError(
            f"got {len(capacity.levels)} levels for {len(kinds)} models; expected one for each, "
            "falling: the first model is the largest",
            "capacity.levels",
        )
    cost = _costs(setting, capacity.measure)
    if (np.diff(cost) > 0).any():
        raise ConfigError(
            f"got models that take {', '.join(f'{value:.4g}' for value in cost)} "
            f"({'bytes' if capacity.measure == 'bytes' else 'of the first'}); list them from the "
            "largest to the smallest",
            "models.of",
        )
    data = setting.task.federation
    ids = np.arange(len(data))
    key = setting.streams.key("device")
    step_s = world.device.step_s(key, ids, 1, data.seen, setting.work.total(data.seen))
    return np.asarray(capacity.level(key.fold("capacity"), ids, 1, step_s, cost), np.int64)


def _costs(setting: Setting, measure: str) -> Floats:
    """Return what training takes with each model: bytes, or operations as a share of the first's;
    zeros where nothing is measured."""
    if measure == "nothing":
        return np.zeros(len(setting.kinds))
    if measure == "bytes":
        return np.array([float(kind.memory().total) for kind in setting.kinds])
    operations = [kind.forward_operations() for kind in setting.kinds]
    return np.array([count / operations[0] for count in operations])


def _noted(setting: Setting, world: World) -> Setting:
    """Return the setting with a note of the models: who holds them, and what they take; of training
    where a capacity measured it, which takes seconds."""
    unlike = setting.task.architectures
    if unlike is None:
        return setting
    counts = np.bincount(unlike.numbers, minlength=len(unlike))
    measured = world.capacity is not None and world.capacity.measure == "bytes"
    models = []
    for i, (name, layout, kind) in enumerate(
        zip(unlike.names, unlike.layouts, setting.kinds, strict=True)
    ):
        megabytes = layout.size * setting.dtype.itemsize / 1e6
        training = f", {kind.memory().total / 1e6:.3g} MB to train" if measured else ""
        models.append(
            f"{i} {name}: {counts[i]} clients, {layout.size:,} parameters, {megabytes:.3g} MB"
            f"{training}"
        )
    data = setting.task.federation
    data = dataclasses.replace(data, notes={**data.notes, "models": "; ".join(models)})
    return dataclasses.replace(setting, task=dataclasses.replace(setting.task, federation=data))


def _fit() -> str:
    """Return the methods that unlike models go with, as they are written."""
    methods: list[Any] = [CATALOGUE.get(name) for name in CATALOGUE.names()]
    return ", ".join(sorted(method.unlike for method in methods if method.unlike))


def check_unlike(experiment: Experiment, setting: Setting, selector: Selector[Any]) -> None:
    """Refuse what has no meaning where clients hold models of different architectures."""
    if setting.task.architectures is None:
        return
    name = experiment.algorithm["name"]
    algorithm = setting.algorithm
    fits = getattr(CATALOGUE.get(name), "unlike", "") == name
    if not (fits or algorithm.local.unlike):
        raise ConfigError(
            f"got {name!r}, which adds up clients' updates of one model, and these clients hold "
            f"models of different architectures; use one of: {_fit()}",
            "algorithm",
        )
    for number, kind in enumerate(setting.kinds):
        if not kind.algorithm.local.unlike:
            model = setting.task.architectures.names[number]
            raise ConfigError(
                f"under {name!r} clients keep what lies before the last linear layer, and model "
                f"{number} ({model}) has nothing before it; give it more layers, or leave it out",
                "models",
            )
    whole = "works on updates of one model that all clients hold; leave it out"
    refused = {
        "compressor": experiment.compressor["name"] != "identity",
        "quantizer": experiment.quantizer is not None,
        "aggregator": experiment.aggregator is not None,
        "server": experiment.server is not None,
        "init": experiment.init is not None,
        "recalibrate": experiment.recalibrate is not None,
        "stage": experiment.stage is not None,
        "evaluate.diagnostics": experiment.evaluate.diagnostics,
    }
    for key, given in refused.items():
        if given:
            raise ConfigError(f"it {whole}, or let them hold one: leave models out", key)
    if experiment.privacy is not None:
        raise ConfigError(
            "what travels between models of different architectures is not bounded by clipping an "
            "update; leave models out, or write no [privacy]",
            "privacy",
        )
    if setting.task.heads:
        raise ConfigError("heads are rows of one model that all clients hold", "task.heads")
    of_all = bool(algorithm.local.groups) or algorithm.local.trains_common
    _check_measured(experiment, selector, of_all)
    _check_uploads(setting, name)


def _check_measured(experiment: Experiment, selector: Selector[Any], whole: bool) -> None:
    """Refuse a selector that compares vectors of models; ``whole``: whether clients send updates of
    whole models, which are such vectors, too."""
    needs = selector.rule.needs()
    vectors = {"gradient", "gradient_sketch", "output_bias", "last_layer"}
    vectors |= SERVER_SIGNALS if whole else set()
    vectors &= {*needs.enrolled, *needs.probed, *needs.reported}
    if vectors:
        raise ConfigError(
            f"{experiment.selector['name']!r} compares clients by {sorted(vectors)[0]!r}, and "
            "those of models of different architectures have nothing in common; use e.g. "
            '"uniform" or "power_of_choice"',
            "selector",
        )


def _check_uploads(setting: Setting, name: str) -> None:
    """Refuse models whose clients would upload different shapes."""
    unlike = setting.task.architectures
    shapes: list[dict[str, Any]] = []
    for kind in setting.kinds:
        rule = kind.algorithm.local
        model = kind.initial()
        of_all = rule.groups or rule.trains_common
        held = setting.first_held(setting.initial()) if of_all else rule.sent(model)
        server = kind.algorithm.server.init(held, len(setting.task.federation))
        parts: dict[str, Any] = dict(shapes_of(empty_upload(rule, server, model, kind.task.layout)))
        if isinstance(rule, PersonalLayers):
            home = rule.kept(kind.task.layout)
            heads = {e.name: e.shape for e in kind.task.layout if e.name not in home}
            parts["the last layers"] = tuple(heads.values())
        shapes.append(parts)
    for number, other in enumerate(shapes):
        for part, shape in other.items():
            if unlike is not None and shape != shapes[0].get(part):
                raise ConfigError(
                    f"under {name!r} clients share {part} of one shape; model 0 "
                    f"({unlike.names[0]}) has {list(shapes[0].get(part, ()))} and model {number} "
                    f"({unlike.names[number]}) {list(shape)}: give them last layers of one size",
                    "models",
                )


def refuses_engine(kind: type[Engine], setting: Setting) -> str | None:
    """Return why an engine cannot train unlike models; None if it can."""
    if not issubclass(kind, LocalEngine):
        return (
            "its workers hold one model, and these clients hold several; use sequential or threads"
        )
    return next(filter(None, map(kind.refuses, setting.kinds)), None)
