"""Checks of the parts of an experiment against each other. Every fault is a ConfigError that names
the key."""

from __future__ import annotations

import dataclasses
import json
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from motley.algorithms import LOSSES
from motley.algorithms.aggregators.mean import Mean
from motley.algorithms.fedavg import Average, plain_fedavg
from motley.algorithms.head_loss import HeadLoss
from motley.algorithms.losses import CrossEntropy
from motley.algorithms.parts import Algorithm, LocalRule, Loss, PersonalRule
from motley.algorithms.positions import per_position
from motley.algorithms.ranked import FactorServer
from motley.algorithms.task_loss import loss_of
from motley.core.components import overrides
from motley.core.errors import ConfigError
from motley.core.own_code import definition, place_in_own_code
from motley.core.records import CONTRIBUTION, SIGNALS, SignalRequirements
from motley.engines.engine import PRE_TRAINING, Setting
from motley.experiments.config import Experiment
from motley.rounds.channel import Channel, empty_upload
from motley.rounds.run_config import RunConfig
from motley.rounds.upload_signals import SERVER_SIGNALS
from motley.selectors.selector import Selector
from motley.tasks.flat import construct
from motley.tasks.metrics import COLUMNS, chosen
from motley.tasks.own import sample_outputs
from motley.tasks.own_loss import plain_function
from motley.tasks.precision import uncomputable
from motley.tasks.targets import MOST_CLASSES, REGRESSION
from motley.tasks.task import NO_CLASSES, ModelState, Task
from motley.tasks.unscaled import large_targets
from motley.timing.synchrony import Synchrony
from motley.world.interfaces import Capacity, Dishonest, Failures


def check_task(experiment: Experiment, task: Task, algorithm: Algorithm) -> None:
    """Refuse a population that the data has not, and a loss or a target that do not fit this task's
    outputs."""
    if experiment.population not in (None, len(task.federation)):
        message = (
            f"got {experiment.population}; the data has {len(task.federation)} clients of its own"
        )
        raise ConfigError(f"{message}, leave this key out", "population")
    kind = task.federation.targets
    _check_loss(experiment, task, algorithm.loss.within())
    refused = algorithm.loss.refuses_targets(kind, task.federation.classes)
    if refused is not None:
        raise ConfigError(f"got {experiment.algorithm['name']!r}, but {refused}", "algorithm")
    if kind == "positions" and algorithm.loss.whole_model:
        reason = (
            "compares one feature vector per sample, and the targets of this task are a class "
            "per position"
        )
        raise ConfigError(f"{experiment.algorithm['name']!r} {reason}", "algorithm")
    _check_own_tests(experiment, task, algorithm)
    _warn_of_samples(experiment, task)
    _check_precision(experiment, task)


def _check_own_tests(experiment: Experiment, task: Task, algorithm: Algorithm) -> None:
    """Refuse models of clients' own for which there is nothing to examine them on."""
    federation = task.federation
    name = experiment.algorithm["name"]
    if len(federation.test.values):
        return
    clients = "the clients have no test samples of their own"
    mend = "set split.test = 'client'"
    if not algorithm.local.shared and task.metrics:
        raise ConfigError(
            f"under {name!r} there is no common model, and {clients}; {mend}", "metrics"
        )
    if (
        algorithm.personal
        and federation.global_test is not None
        and federation.targets != "classes"
    ):
        message = f"under {name!r} clients are examined with models of their own, and {clients}"
        raise ConfigError(
            f"{message}; shares of classes, which could stand for them, are not to be had here: "
            f"{mend}",
            "split.test",
        )


def _warn_of_samples(experiment: Experiment, task: Task) -> None:
    """Say where nothing can be learned, or where no sample is set aside to test on."""
    federation = task.federation
    labels = federation.labels
    if experiment.privacy is not None:  # labels and numbers of samples are the clients' own
        return
    named = isinstance(task.loss, str)  # a function of the user's may read times of survival
    if federation.targets == "numbers" and named and (large := large_targets(labels)):
        warnings.warn(large, stacklevel=2)
    # an own task's labels may be no classes to learn, and who made it has said how many rows test
    if federation.targets != "classes" or not len(labels) or task.name == "own":
        return
    if int(labels.min()) == int(labels.max()):
        label = int(labels[0])
        name = federation.names[label] if federation.names else label
        warnings.warn(
            f"all {len(labels)} training samples have the label {name!r}: there is nothing to "
            "learn; is it the column of labels?",
            stacklevel=2,
        )
    names = federation.names
    if len(names) > MOST_CLASSES and all(name.lstrip("-").isdigit() for name in names):
        warnings.warn(
            f"the labels are {len(names):,} different numbers, and each is a class; to predict "
            f"numbers {REGRESSION}",
            stacklevel=2,
        )
    if not len(federation.test.values) and federation.global_test is None:
        warnings.warn(
            f"no sample is set aside to test on (clients have {int(federation.train.sizes.min())} "
            f"to {int(federation.train.sizes.max())} samples), and nothing is evaluated; write "
            'split = { test = "global" }, or a larger split.test_fraction',
            stacklevel=2,
        )


def _check_precision(experiment: Experiment, task: Task) -> None:
    """Refuse bfloat16 for layers that this processor cannot compute in it."""
    if experiment.precision == "float32":
        return
    for own in task.alike():
        module = construct(own.model, 0)
        reason = uncomputable(experiment.precision, experiment.engine.device, module)
        if reason is None:
            continue
        raise ConfigError(
            f'got {experiment.precision!r}, and {reason}; use precision = "float32"', "precision"
        )


def with_metrics(experiment: Experiment, task: Task) -> Task:
    """Return the task with the metrics that the experiment names.

    Raises
    ------
    ConfigError: an unknown metric, one that is undefined for this task's targets, or a target of a
    metric that is not measured.
    """
    kind = task.federation.targets
    classes = task.federation.classes
    target = experiment.stop.target or {}
    if experiment.metrics:
        headline, metrics = chosen(experiment.metrics, kind, classes, task.metrics)
        task = dataclasses.replace(task, metric=headline, metrics=metrics)
    keys = {name: f"stop.target.{name}" for name in target}
    if experiment.stop.patience is not None:
        if experiment.privacy is None:  # which has a refusal of its own
            _check_validation(experiment, task)
        if experiment.stop.metric is not None:
            keys[experiment.stop.metric] = "stop.metric"
    for name, key in keys.items():
        value = target.get(name, 0.0)
        chosen([name], targets=kind, classes=classes, own=task.metrics, key=key)
        measured = [task.metric, *(metric.name for metric in task.metrics)]
        if name not in (*COLUMNS, *measured):
            raise ConfigError(
                "this metric is not measured; write metrics = "
                f"{json.dumps([*dict.fromkeys(measured), name])}",
                key,
            )
        if value > 1 and any(metric.share for metric in task.metrics if metric.name == name):
            raise ConfigError(f"got {value:g}; expected at most 1", key)
    return task


def _check_validation(experiment: Experiment, task: Task) -> None:
    """Refuse early stopping without validation samples: test samples decide nothing."""
    if not len(task.federation.validation.values):
        own = experiment.task["name"] == "own"  # whose federation has its split already
        line = "from_clients(..., validation=0.1)" if own else "split = { validation = 0.1 }"
        raise ConfigError(
            "the run would end by clients' validation samples, and none are held out here; write "
            f"{line}, or stop = {{ rounds = 50 }}",
            "stop.patience",
        )


def _check_loss(experiment: Experiment, task: Task, loss: Loss) -> None:
    """Refuse a loss that cannot be computed with the task's targets or from its model's outputs."""
    kind = task.federation.targets
    classes = task.federation.classes
    names = {
        "loss": (experiment.loss or {}).get("name"),
        "algorithm": experiment.algorithm["name"],
        "task": task.loss,
    }
    key = "task" if loss == loss_of(task) else "algorithm"
    if experiment.loss is not None:
        key = "loss"
    reason = loss.refuses_targets(kind, classes)
    if reason is not None:
        own = "classes" if kind == "positions" else kind
        fit = next(name for name in LOSSES.names() if LOSSES.get(name).kind == own)  # type: ignore[attr-defined]
        if key != "algorithm":
            hint = f"; use {fit!r}"
        else:
            hint = f'; give it another loss, e.g. loss = "{fit}"'
        raise ConfigError(
            f"got {names[key]!r}, but {reason}{'' if loss.kind in (None, own) else hint}", key
        )
    if experiment.task["name"] == "own":
        bound = per_position(loss, kind)
        sample = sample_outputs(task)
        outputs, targets = _in_dtype(sample, experiment.dtype)
        try:
            bound.loss(outputs, targets, {})
        except (RuntimeError, IndexError) as error:
            shapes = f"outputs {list(outputs.shape)} and targets {list(targets.shape)}"
            single = (
                "; one output for two classes is for loss = 'bce'" if outputs.shape[-1] == 1 else ""
            )
            function = definition(plain_function(task.loss)) if callable(task.loss) else None
            got = function if key == "task" and function else repr(names[key])
            reason = f"{error}{place_in_own_code(error)}"
            taken = "float32" if experiment.dtype == "float64" else "float64"
            if _computes(bound, *_in_dtype(sample, taken)):
                raise ConfigError(
                    f"got {got}, which takes outputs of {taken} alone, and the run's are "
                    f"{experiment.dtype} ({reason}); let its numbers be of the outputs' type "
                    f"(weight.to(outputs.dtype), or weight=weight.{_CASTS[experiment.dtype]}), or "
                    f'write dtype = "{taken}"',
                    key,
                ) from None
            raise ConfigError(
                f"got {got}, which cannot take {shapes} ({reason}){single}", key
            ) from None


_CASTS = {"float32": "float()", "float64": "double()"}
"""The type of a run's numbers -> the method that gives a tensor in it."""


def _in_dtype(values: Sequence[Tensor], dtype: str) -> tuple[Tensor, ...]:
    """Return tensors with their floating-point numbers in the type of a run."""
    wanted = {"float32": torch.float32, "float64": torch.float64}[dtype]
    return tuple(value.to(wanted) if value.is_floating_point() else value for value in values)


def _computes(loss: Loss, outputs: Tensor, targets: Tensor) -> bool:
    """Return whether a loss can be computed of these outputs and targets."""
    try:
        loss.loss(outputs, targets, {})
    except (RuntimeError, IndexError):
        return False
    return True


def check_dishonest(dishonest: Dishonest, clients: int) -> None:
    """Refuse liars that are no clients of this federation."""
    listed = getattr(dishonest, "clients", None) or ()
    if max(listed, default=-1) >= clients:
        raise ConfigError(
            f"got {max(listed)}; the clients are 0 to {clients - 1}", "dishonest.clients"
        )


def check_failures(experiment: Experiment, setting: Setting) -> None:
    """Refuse failures that change updates where clients upload none."""
    rule = setting.algorithm.local
    if experiment.part("failures").corrupts_updates and "delta" not in rule.uploads:
        message = (
            f"{experiment.failures['name']!r} changes updates, and under "
            f"{type(rule).__name__} clients upload none"
        )
        raise ConfigError(f"{message}; leave it out", "failures")


def check_end(experiment: Experiment, config: RunConfig, model: ModelState) -> None:
    """Refuse a simulation that is certain never to end, because what its limits wait for never
    happens. Others that stand still are ended as they run, see :mod:`motley.rounds.standstill`.

    ``model``: the initial one.
    """
    stop = experiment.stop
    limits = {name for name, value in vars(stop).items() if value is not None}
    failures = experiment.part("failures")
    device = experiment.device
    mend = "or give a number of rounds as well, e.g. stop.rounds = 100"
    if "rounds" in limits:
        return
    always = experiment.availability["name"] == "always"
    law: Any = experiment.part("device")
    at_once = device["name"] == "constant" and law.seconds == 0
    waits = not always or overrides(failures, Failures, "drop_at")
    if (
        limits == {"virtual_hours"}
        and at_once
        and experiment.network["name"] == "none"
        and not waits
    ):
        raise ConfigError(
            f"got {stop.virtual_hours:g}, and no virtual time ever passes: devices take 0 s and "
            f'there is no network; write e.g. device = {{ name = "constant", seconds = 0.1 }}, '
            f"{mend}",
            "stop.virtual_hours",
        )
    if limits == {"uplink_gb"} and not _upload_bits(config, model):
        raise ConfigError(
            f"got {stop.uplink_gb:g}, and under {experiment.algorithm['name']!r} clients upload "
            "nothing; write stop = { rounds = 100 }",
            "stop.uplink_gb",
        )
    if "virtual_hours" not in limits and failures.nobody_delivers:
        raise ConfigError(
            f"under {experiment.failures['name']!r} with rate = 1 no client ever delivers, and the "
            f"run ends only when some have; write a rate below 1, {mend}",
            "failures.rate",
        )


def _upload_bits(config: RunConfig, model: ModelState) -> int:
    """Return the bits of a whole upload as the papers count them."""
    setting = config.setting
    rule = setting.algorithm.local
    server = setting.algorithm.server.init(setting.first_held(model), len(setting.task.federation))
    parts = empty_upload(rule, server, model, setting.task.layout)
    return Channel(parts, config.extra_exchange()).paper_bits


def check_heads(experiment: Experiment, setting: Setting, weights: str) -> None:
    """Refuse heads of groups of clients that do not fit the classes, the model or the other
    parts."""
    task = setting.task
    algorithm = setting.algorithm
    heads = task.heads
    classes = task.federation.classes
    name = experiment.algorithm["name"]
    if not heads:
        return
    rows = [entry.shape[0] for entry in task.layout if entry.linear][-1:]
    rule = algorithm.local
    key = "task.heads"
    reason = None
    loss = algorithm.loss.base if isinstance(algorithm.loss, HeadLoss) else algorithm.loss
    if task.federation.targets != "classes" or len(heads) != classes:
        expected = (
            f"the number of a head for each of the {classes} classes"
            if classes
            else "a task with a class per sample"
        )
        reason = (
            f"got {len(heads)} numbers; expected {expected}, e.g. heads = [0, 0, 1, 1] for "
            "four classes"
        )
    elif any(heads.count(head) < 2 for head in heads) or min(heads) < 0:
        reason = (
            f"got {list(heads)}; expected numbers from 0, each for at least two classes, or "
            "there is nothing to tell apart"
        )
    elif rows != [classes]:
        reason = (
            f"the model's last linear layer has {rows[0] if rows else 'no'} rows, and there "
            f"are {classes} classes"
        )
    elif not isinstance(loss, CrossEntropy) or loss.label_smoothing:
        reason = (
            f"{name!r} trains with {type(loss).__name__}; heads go with cross-entropy "
            "without label smoothing"
        )
    elif (
        not (rule.sends_whole and rule.uploads == {"delta"})
        or rule.slicing is not None
        or rule.prototypes is not None
    ):
        reason = (
            f"under {name!r} clients do not send one update of the whole model; use e.g. "
            "fedavg or fedprox, or leave heads out"
        )
    elif type(algorithm.aggregator) is not Mean or type(algorithm.server) is not Average:
        part = algorithm.server if type(algorithm.aggregator) is Mean else algorithm.aggregator
        reason = (
            f"{type(part).__name__} works on whole updates, and clients of different heads "
            "update different rows; leave it out"
        )
    elif weights in ("horvitz_thompson", "selector"):
        reason = (
            f"a head is divided by the weights of the clients that hold it, and {weights!r} "
            "by something else"
        )
    elif experiment.part("drift").renames_classes:
        reason = (
            "a drift that renames classes would move clients from head to head; leave drift out"
        )
    elif experiment.compressor["name"] != "identity" or experiment.quantizer is not None:
        reason = (
            "a compressor works on updates of the whole model, and clients send their own "
            "heads alone; leave compressor out"
        )
    if reason is not None:
        raise ConfigError(reason, key)


def check_algorithm(setting: Setting, weights: str, cohort: int, corrupted: bool) -> None:
    """Refuse parts of an algorithm that do not fit the others, the local solver, the weighting or
    the cohort size.

    Parameters
    ----------
    corrupted: whether uploads or labels may be corrupted; parts that are not robust to that then
    warn.
    """
    algorithm = setting.algorithm
    parts = {
        "algorithm": algorithm.local,
        "loss": algorithm.loss,
        "aggregator": algorithm.aggregator,
    }
    for key, part in {**parts, "server": algorithm.server}.items():
        reason = part.refuses(algorithm, setting.solver, weights)
        if reason:
            raise ConfigError(reason, key)
        for warning in (part.cautions(setting.solver), part.warns() if corrupted else None):
            if warning:
                warnings.warn(warning, stacklevel=2)
    if setting.task.batches is not None and overrides(algorithm.local, LocalRule, "phases"):
        raise ConfigError(
            f"the task has an order of batches, and the local work of "
            f"{type(algorithm.local).__name__} has phases of its own, which follow none; leave "
            "batches out of own_task, or use another algorithm",
            "algorithm",
        )
    least = algorithm.aggregator.least
    if cohort < least:
        needed = f"{type(algorithm.aggregator).__name__} needs at least {least} uploads in a round"
        raise ConfigError(f"{needed}, and the cohort is {cohort}; ask more clients", "cohort")


_BROUGHT = {"loss": "loss", "aggregator": "aggregator", "server": "server step"}
"""Parts that an experiment may name beside its algorithm, in words."""


def check_replaced(experiment: Experiment, task: Task) -> None:
    """Refuse a loss, an aggregator or a server in place of all that an algorithm brings: the run
    would be FedAvg under the algorithm's name. Where something of it is left, that is an
    ablation. Warn where the experiment's loss replaces one that ``own_task`` was given."""
    if experiment.loss is not None and not isinstance(task.loss, str):
        function = None if isinstance(task.loss, Mapping) else plain_function(task.loss)
        loss = task.loss if function is None else definition(function) or "a function"
        warnings.warn(
            f"the experiment's loss {experiment.loss['name']!r} is trained in place of the one "
            f"that own_task was given ({loss}); leave one of them out",
            stacklevel=2,
        )
    plain = plain_fedavg().replace(loss=loss_of(task))
    own = experiment.part("algorithm").change(plain)
    brought = {
        field.name
        for field in dataclasses.fields(Algorithm)
        if field.name != "weights" and getattr(own, field.name) != getattr(plain, field.name)
    }
    replaced = [
        key
        for key in _BROUGHT
        if key in brought and experiment.part(key) not in (None, getattr(own, key))
    ]
    if own.loss.within() is plain.loss and "loss" in replaced:
        replaced.remove("loss")  # the loss that the algorithm wraps is replaced inside it
    if not replaced or brought - {*replaced}:
        return
    key = replaced[0]
    name = experiment.algorithm["name"]
    leave = "leave its options out" if name == "fedavg" else 'write algorithm = "fedavg" beside it'
    raise ConfigError(
        f"got {getattr(experiment, key)['name']!r}, and the {_BROUGHT[key]} of algorithm {name!r} "
        f"({type(getattr(own, key)).__name__}) is all that it brings, so that nothing of it would "
        f"run; leave {key} out, or {leave}",
        key,
    )


def check_weights(experiment: Experiment, setting: Setting) -> None:
    """Refuse ``weights`` that decide nothing.

    The usual ones may stand, as in a record of a run, and all in a private run, whose account
    bounds them.
    """
    if experiment.privacy is not None or experiment.weights is None:
        return
    reason = setting.algorithm.local.ignores_weights()
    if reason and experiment.weights != experiment.usual_weighting():
        raise ConfigError(f'got "{experiment.weights}", and {reason}', "weights")


def check_synchrony(synchrony: Synchrony, setting: Setting, weights: str, cohort: int) -> None:
    """Refuse a synchrony under which the server can never step, or that the algorithm does not
    allow."""
    clients = setting.task.federation.pool
    most = synchrony.max_uploads(cohort)
    least = synchrony.min_population
    aggregator = setting.algorithm.aggregator
    reason = None
    name = type(aggregator).__name__
    if most < least:
        reason = (
            f"got min_uploads = {least}, and no step takes more than the cohort of {most}; "
            f"expected at most {most}"
        )
    elif most < aggregator.least:
        needed = f"{name} needs at least {aggregator.least} uploads in a step"
        reason = (
            f"{needed}, and this server takes {most}; use synchronous, deadline or a larger buffer"
        )
    elif most == 1 and aggregator.compares:
        needed = f"{name} compares the uploads of a step, and is the plain mean of one"
        reason = f"{needed}; this server takes 1, use synchronous, deadline or a larger buffer"
    elif clients < least:
        reason = f"got a buffer of {least} updates for {clients} clients; expected at most as many"
    rule = setting.algorithm.local
    if rule.slicing is not None and rule.slicing.rolls and synchrony.overlaps:
        rolls = (
            f"the slices of {type(rule).__name__} belong to a round, and this server mixes rounds"
        )
        reason = f"{rolls}; use synchronous or deadline"
    if isinstance(setting.algorithm.server, FactorServer) and synchrony.overlaps:
        reason = (
            "a late update changes the factors of an earlier round, and this server step adds it "
            "to today's; use synchronous or deadline"
        )
    reason = reason or synchrony.refuses(rule.uploads, weights)
    if reason:
        raise ConfigError(reason, "synchrony")
    if plain := aggregator.is_mean_of(most):
        warnings.warn(f"aggregator: {name} is the plain mean here, for {plain}", stacklevel=2)


def check_capacity(experiment: Experiment, setting: Setting, selector: Selector[Any]) -> None:
    """Refuse clients of less capacity where they cannot train slices of the model, or where all of
    it would have to be measured."""
    name = experiment.algorithm["name"]
    slicing = setting.algorithm.local.slicing
    _check_static_norm(experiment, setting, selector)
    capacity = experiment.part("capacity")
    limited = capacity is not None and not capacity.batch_sizes
    if experiment.models is not None and experiment.models.by == "capacity":
        return  # it says which model a client holds
    if not limited and not (slicing is not None and slicing.prunes):
        return
    if slicing is None:
        message = f"under {name!r} clients train the whole model"
        hint = (
            "say which batches they hold, batch_sizes = [32, 16, 8], or which models, models = "
            '{ of = ["cnn", "mlp"], by = "capacity" }'
        )
        raise ConfigError(
            f'{message}; let them train slices, e.g. algorithm = "heterofl", {hint}', "capacity"
        )
    chain: Sequence[Capacity] = ()
    if limited and capacity is not None:
        _check_chosen(experiment, capacity, selector)
        chain = capacity.chain
    if any(rule.measure == "round" for rule in chain) and experiment.part("network").wants():
        raise ConfigError(
            "its links follow the clients' losses, which are not known before they are sent what "
            'they hold; use capacity = "by_speed", or another network',
            "network",
        )
    if slicing.masks and any(rule.measure == "bytes" for rule in chain):
        raise ConfigError(
            f"under {name!r} clients train single weights in a module of the whole model, which "
            'takes its memory; write capacity = "by_speed" or "levels", or algorithm = "heterofl"',
            "capacity",
        )
    narrowest = min([level for rule in chain for level in rule.levels], default=1.0)
    if slicing.widths and narrowest < min(slicing.widths):
        listed = [*slicing.widths, narrowest]
        message = (
            f"got clients that hold {narrowest:g} of the width, and the narrowest that "
            f"{name!r} lists is {min(slicing.widths):g}"
        )
        raise ConfigError(
            f"{message}; list it, e.g. algorithm = {{ name = {json.dumps(name)}, "
            f"widths = {listed} }}",
            "capacity",
        )
    if setting.algorithm.tuning is not None:
        raise ConfigError(
            "clients fine-tune whole models, and here they hold slices; leave fine-tuning out",
            "algorithm",
        )
    if experiment.evaluate.diagnostics:
        message = (
            "diagnostics compare the gradients of all clients at one model, and here they hold "
            "slices of it"
        )
        raise ConfigError(f"{message}; leave it out", "evaluate.diagnostics")


def _check_chosen(experiment: Experiment, capacity: Capacity, selector: Selector[Any]) -> None:
    """Refuse shares by score where the selector gives none, or not of several clients at a time."""
    if capacity.requires - selector.rule.provides():
        raise ConfigError(
            f"'by_score' orders the chosen clients by the selector's scores, and "
            f'{experiment.selector["name"]!r} gives none; use "hetero_select" or '
            '"hetero_select_v1"',
            "capacity",
        )
    if capacity.requires and experiment.part("synchrony").overlaps:
        raise ConfigError(
            "'by_score' compares the clients that are chosen for a round, and this server sends "
            "them out one by one; use synchronous or deadline",
            "synchrony",
        )


def _check_static_norm(experiment: Experiment, setting: Setting, selector: Selector[Any]) -> None:
    """Refuse what measures the received model where it has no BatchNorm statistics before an
    examination."""
    slicing = setting.algorithm.local.slicing
    if slicing is None or not slicing.static_norm or not setting.task.layout.buffers:
        return
    needs = selector.rule.needs()
    name = experiment.algorithm["name"]
    measured = sorted(n for n in needs.probed if SIGNALS[n].kind == "learning") or sorted(
        needs.reported & PRE_TRAINING.keys()
    )
    if measured:
        message = (
            f"{experiment.selector['name']!r} has clients measure {measured[0]!r} of the "
            "received model"
        )
        hint = 'use a model without BatchNorm, or a rule without it, e.g. selector = "uniform"'
        raise ConfigError(
            f"{message}, which has no BatchNorm statistics under {name!r}; {hint}", "selector"
        )


def check_selector(
    experiment: Experiment,
    selector: Selector[Any],
    weights: str,
    task: Task,
    uploads: frozenset[str],
) -> None:
    """Refuse a selector that needs signals this experiment cannot provide, or that lacks a column
    which the weighting needs.

    Parameters
    ----------
    uploads: names of the parts that the algorithm uploads.
    """
    needs = selector.rule.needs()
    name = experiment.selector["name"]
    federation = task.federation
    signals = _known_signals(needs, name)
    own = experiment.task["name"] == "own"
    if "val_loss" in signals and not len(federation.validation.values):
        missing = (
            f"{name!r} needs the loss on each client's validation samples, and none are held out"
        )
        line = "from_clients(..., validation=0.2)" if own else "split = { validation = 0.2 }"
        raise ConfigError(f"{missing}; write {line}", "split.validation")
    if "test_loss" in signals and not len(federation.test.values):
        missing = (
            f"{name!r} needs the loss on each client's own test samples, and the test set "
            "is common to all"
        )
        line = 'from_clients(..., test="client")' if own else 'split = { test = "client" }'
        raise ConfigError(f"{missing}; write {line}", "split.test")
    if "robust_loss" in signals and federation.targets not in ("classes", "positions"):
        raise ConfigError(
            f"{name!r} needs the noise-robust loss of classes; {NO_CLASSES[federation.targets]}",
            "selector",
        )
    if "robust_loss" in signals and own:
        outputs, _ = sample_outputs(task)
        if outputs.shape[-1] < (federation.classes or 0):
            raise ConfigError(
                f"{name!r} needs the noise-robust loss of classes, and the model has "
                f"{outputs.shape[-1]} outputs for {federation.classes} classes; give it one for "
                "each",
                "selector",
            )
    if "output_bias" in signals and task.layout.output_bias is None:
        raise ConfigError(
            f"{name!r} looks at the bias of the last linear layer, and the model has none; take a "
            "model that ends in a linear layer with a bias",
            "selector",
        )
    of_uploads = sorted(signals & {*SERVER_SIGNALS, CONTRIBUTION})
    if of_uploads and "delta" not in uploads:
        missing = f"{name!r} needs {of_uploads[0]!r}, which the server makes of uploaded updates"
        raise ConfigError(f"{missing}, and this algorithm uploads none", "selector")
    column = {"score": "scores", "selector": "weights", "selector_ratio": "weights"}.get(weights)
    if column is not None and column not in selector.rule.provides():
        raise ConfigError(
            f'got {weights!r}, but {name!r} gives no {column}; use "examples" or "uniform"',
            "weights",
        )
    if "label_histogram" in needs.enrolled and federation.classes is None:
        raise ConfigError(
            f"{name!r} needs label histograms, and this task has no classes", "selector"
        )


def check_contributions(experiment: Experiment, setting: Setting, selector: Selector[Any]) -> None:
    """Refuse a selector that asks what any uploads together make of the model where the server
    cannot make and evaluate that model alone."""
    if not selector.rule.asks_contributions:
        return
    name = experiment.selector["name"]
    algorithm = setting.algorithm
    local = algorithm.local
    own = isinstance(local, PersonalRule) and not local.sends_all
    static = local.slicing is not None and local.slicing.static_norm and setting.task.layout.buffers
    if algorithm.server.asks_clients:
        reason = "whose server needs its clients to step"
    elif setting.task.architectures is not None:
        reason = "whose clients hold models of different architectures"
    elif not local.shared or own or local.choice is not None or static:
        reason = "whose server has no single whole model"
    else:
        return
    raise ConfigError(
        f"{name!r} has the server evaluate the model that some of the uploads would make, and "
        f'{experiment.algorithm["name"]!r} is a method {reason}; use e.g. "fedavg" or "fedprox"',
        "selector",
    )


def _known_signals(needs: SignalRequirements, name: str) -> set[str]:
    """Return the names of all signals that a rule needs; refuse one at a time at which it does not
    exist."""
    signals: set[str] = set()
    for when in ("enrolled", "probed", "reported"):
        for signal in sorted(getattr(needs, when)):
            if when not in SIGNALS[signal].when:
                can = " or ".join(SIGNALS[signal].when)
                raise ConfigError(
                    f"{name!r} needs the signal {signal!r} {when}, which can only be had {can}",
                    "selector",
                )
            signals.add(signal)
    return signals
