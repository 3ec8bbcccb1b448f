"""From an experiment to a simulation: the one place where all rooms' objects are put together."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.nn.modules.batchnorm import _BatchNorm

from motley.algorithms import LOSSES
from motley.algorithms.aggregators.mean import Mean
from motley.algorithms.base import Algorithm, ClientState, Correction
from motley.algorithms.fedavg import Average
from motley.core.errors import ConfigError
from motley.core.keys import Streams
from motley.core.records import SIGNALS
from motley.engines import ENGINES, resolve_auto
from motley.engines.base import Engine, Setting
from motley.experiments.config import Experiment
from motley.experiments.drift import drifting
from motley.experiments.server_data import held_back, server_context_of, taken
from motley.experiments.upload_config import recalibration_of, upload_config_of
from motley.results.writer import Writer
from motley.rounds.client_state import ClientStates, open_client_states
from motley.rounds.config import RunConfig
from motley.rounds.evaluation import EvaluationSchedule
from motley.rounds.loop import RoundLoop
from motley.rounds.server_signals import SERVER_SIGNALS
from motley.rounds.upload import initial_client_state
from motley.selectors.base import Selector
from motley.tasks.base import Dataset, Federation, ModelState, Task, TaskSource
from motley.tasks.federate import PartitionInput, federate, partition_input
from motley.tasks.flat import initial
from motley.timing.synchrony import Synchrony
from motley.world.base import World
from motley.world.shift.feature_shift import shifted

__all__ = ["Ready", "build", "prepare", "task_of"]


class Ready(NamedTuple):
    """What a run is made of before anybody is asked: what is fixed, how it is computed, whom to ask, the initial model."""

    plan: RunConfig
    engine: Engine
    selector: Selector[Any]
    model: ModelState


def build(
    experiment: Experiment | Mapping[str, Any],
    data: Path | None = None,
    writer: Writer | None = None,
    task: Task | None = None,
    folder: Path | None = None,
) -> RoundLoop:
    """A simulation, ready for its first step.

    Parameters
    ----------
    experiment: checked keys, or a mapping of them. data: folder to look into first for data packs.
    writer: where table rows go; None keeps none. task: data and model of your own, for ``task = "own"``.
    folder: where client memories on disk go.

    Raises
    ------
    ConfigError, DataError, ModelError: what cannot go together, said in one sentence.
    """
    if not isinstance(experiment, Experiment):
        experiment = Experiment(**experiment)
    plan, engine, selector, model = prepare(experiment, data, task)
    memories = _vault(experiment, plan, selector, initial_client_state(plan, model), folder)
    return RoundLoop(plan, engine, selector, model, writer, memories)


def prepare(experiment: Experiment, data: Path | None = None, task: Task | None = None) -> Ready:
    """The parts of a run, checked against each other; a simulation is made of them, and so is a deployment. As :func:`build`."""
    streams = Streams(experiment.seed, experiment.pin)
    task = drifting(experiment, streams, task or task_of(experiment, streams, data))
    if experiment.population not in (None, len(task.federation)):
        got = f"got {experiment.population}; the data has {len(task.federation)} clients of its own"
        raise ConfigError(f"{got}, leave this key out", "population")
    _check_task(experiment, task)
    setting = _setting(experiment, task, streams)
    selector = Selector(experiment.part("selector"), streams.key("select").words()[0] >> 1, experiment.stop.rounds)
    weights: Any = experiment.weights or setting.algorithm.weights or "examples"
    corrupted = experiment.part("failures").corrupts_updates or bool(task.federation.noise.any())
    _check_algorithm(setting, weights, experiment.cohort_size(len(task.federation)), corrupted)
    _check_synchrony(experiment.part("synchrony"), setting, weights, experiment.cohort_size(len(task.federation)))
    _check_selector(experiment, selector, weights, task.federation, setting.algorithm.correction.uploads)
    plan = RunConfig(
        setting=setting,
        world=World(*(experiment.part(name) for name in ("device", "network", "availability", "failures", "drift"))),
        synchrony=experiment.part("synchrony"),
        cohort=experiment.cohort_size(len(task.federation)),
        stop=experiment.stop,
        weights=weights,
        schedule=experiment.part("local.lr_schedule"),
        examine=_examine(experiment, setting.algorithm),
        probe_batches=0 if experiment.probe.batches == "all" else experiment.probe.batches,
        room=server_context_of(setting, experiment.algorithm["name"]),
        stragglers=experiment.local.stragglers,
        upload_config=upload_config_of(experiment, setting, selector, weights),
        recalibrate=recalibration_of(experiment, setting),
    )
    model = initial(task.model, streams.key("init"), setting.dtype)
    return Ready(plan, _engine(experiment, setting), selector, model)


def _vault(
    experiment: Experiment, plan: RunConfig, selector: Selector[Any], first: ClientState | None, folder: Path | None
) -> ClientStates:
    """Where client memories lie; refused where not all that may come to be kept has room."""
    population, rounds = len(plan.setting.task.federation), experiment.stop.rounds
    step = max(plan.cohort, plan.synchrony.min_population)  # accepted at one server step
    begin = selector.rule.size(1, plan.cohort, population)
    reached = population if rounds is None else min(population, begin + step * rounds)
    moved = begin + step * experiment.checkpoint.every_rounds
    return open_client_states(experiment.client_state, first, population, reached, moved, folder)


def task_of(experiment: Experiment, streams: Streams | None = None, data: Path | None = None) -> Task:
    """The experiment's model and federation: samples read, divided among clients, split, and their labels made noisy."""
    streams = streams or Streams(experiment.seed, experiment.pin)
    source: TaskSource = experiment.part("task")
    dataset = source.load(streams.key("data"), experiment.population or 0, data)
    rows = partition_input(dataset, experiment.split, streams.key("split"))
    rows, kept = held_back(experiment, streams, source, dataset, rows, data)
    population = experiment.population or (len(np.unique(rows.groups)) if rows.groups is not None else 0)
    federation = dataclasses.replace(_federation(experiment, streams, dataset, rows, population), **kept)
    return source.task(experiment.task["name"], dataset, federation)


def _federation(
    experiment: Experiment, streams: Streams, dataset: Dataset, rows: PartitionInput, population: int
) -> Federation:
    try:
        parted = experiment.part("partition").split(streams.key("partition"), rows.labels, population, rows.groups)
    except ConfigError as error:
        raise ConfigError(
            "; ".join([str(error), *(f"{key}: {said}" for key, said in taken(experiment, rows).items())])
        ) from None
    noise = experiment.part("label_noise")
    key = streams.key("shift").fold("label_noise")

    def noisy(labels: Any, owner: Any) -> Any:
        return noise.apply(key, labels, owner, dataset.classes, len(parted.rows))

    concepts, looks = experiment.part("concept_shift"), experiment.part("feature_shift")
    clients = np.arange(len(parted.rows))

    def meant(labels: Any, owner: Any) -> Any:
        return concepts.apply(streams.key("shift").fold("concept"), labels, owner, dataset.classes, len(parted.rows))

    def seen(x: Any, owner: Any, numbers: Any) -> Any:
        look = streams.key("shift").fold("feature")
        return shifted(looks, look, x, owner, len(clients), *dataset.black_white, numbers), looks.group(
            look, clients, len(clients)
        )

    def asked(key: str, function: Any) -> Any:
        return None if getattr(experiment, key)["name"] == "none" else function

    return federate(
        dataset, rows, parted.rows, experiment.split, streams.key("split"), asked("label_noise", noisy), parted.notes,
        asked("concept_shift", meant), asked("feature_shift", seen), parted.overlap,
    )  # fmt: skip


def _setting(experiment: Experiment, task: Task, streams: Streams) -> Setting:
    norm = any(isinstance(module, _BatchNorm) for module in task.model().modules())
    solver: Any = experiment.part("local.optimizer")
    if experiment.local.clip is not None:
        solver = dataclasses.replace(solver, clip=experiment.local.clip)
    return Setting(
        task=task,
        algorithm=_algorithm(experiment, task),
        solver=solver,
        work=experiment.local.work(drop_single=norm),
        streams=streams,
        dtype={"float32": torch.float32, "float64": torch.float64}[experiment.dtype],
        device=_device(experiment.engine.device),
        threads=experiment.engine.threads,
        workers=experiment.engine.workers,
        address=experiment.engine.address,
    )


def _algorithm(experiment: Experiment, task: Task) -> Algorithm:
    """The method's parts, with those exchanged that the experiment names apart; a method that adds to a loss adds to the named one."""
    loss = LOSSES.build(task.loss) if experiment.loss is None else experiment.part("loss")
    method: Algorithm = experiment.part("algorithm").change(Algorithm(loss, Correction(), Mean(), Average()))
    algorithm = method.replace(aggregator=experiment.part("aggregator"), server=experiment.part("server"))
    return algorithm if experiment.loss is None or algorithm.loss.within() is loss else algorithm.replace(loss=loss)


def _check_algorithm(setting: Setting, weights: str, cohort: int, corrupted: bool) -> None:
    """Ask each part whether it can go with the others, the local solver and the weighting; and the aggregator, how many it needs."""
    algorithm = setting.algorithm
    parts = {"algorithm": algorithm.correction, "loss": algorithm.loss, "aggregator": algorithm.aggregator}
    for key, part in {**parts, "server": algorithm.server}.items():
        reason = part.refuses(algorithm, setting.solver, weights)
        if reason:
            raise ConfigError(reason, key)
        caution = part.warns() if corrupted else None
        if caution:
            warnings.warn(caution, stacklevel=2)
    least = algorithm.aggregator.least
    if cohort < least:
        name = type(algorithm.aggregator).__name__
        raise ConfigError(
            f"{name} needs at least {least} uploads in a round, and the cohort is {cohort}; ask more clients", "cohort"
        )


def _examine(experiment: Experiment, algorithm: Algorithm) -> EvaluationSchedule:
    """When and how closely; diagnosed is only what has one model for everybody."""
    if experiment.evaluate.diagnostics and not algorithm.correction.shared:
        said = "diagnostics compare the gradients of all clients at one model"
        name = experiment.algorithm["name"]
        raise ConfigError(f"{said}, and under {name!r} each has a model of its own; leave it out", "evaluate.diagnostics")
    return EvaluationSchedule(**experiment.evaluate.model_dump())


def _check_synchrony(synchrony: Synchrony, setting: Setting, weights: str, cohort: int) -> None:
    """Whether the server can ever step, and the algorithm goes with how it does."""
    clients, most, aggregator = len(setting.task.federation), synchrony.max_uploads(cohort), setting.algorithm.aggregator
    if most < synchrony.min_population:
        raise ConfigError(
            f"got min_uploads = {synchrony.min_population}, and no step takes more than the cohort of {most}; expected at most {most}",
            "synchrony",
        )
    if most < aggregator.least:
        needed = f"{type(aggregator).__name__} needs at least {aggregator.least} uploads in a step"
        raise ConfigError(f"{needed}, and this server takes {most}; use synchronous, deadline or a larger buffer", "synchrony")
    if most == 1 and aggregator.compares:
        needed = f"{type(aggregator).__name__} compares the uploads of a step, and is the plain mean of one"
        raise ConfigError(f"{needed}; this server takes 1, use synchronous, deadline or a larger buffer", "synchrony")
    if clients < synchrony.min_population:
        raise ConfigError(
            f"got a buffer of {synchrony.min_population} updates for {clients} clients; expected at most as many", "synchrony"
        )
    reason = synchrony.refuses(setting.algorithm.correction.uploads, weights)
    if reason:
        raise ConfigError(reason, "synchrony")


def _device(name: str) -> str:
    try:
        torch.zeros(1, device=name).item()
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0].partition(". ")[0]
        raise ConfigError(f"got {name!r}, which torch cannot use here ({reason}); try 'cpu'", "engine.device") from None
    return name


def _engine(experiment: Experiment, setting: Setting) -> Engine:
    name = resolve_auto(setting) if experiment.engine.name == "auto" else experiment.engine.name
    kind: type[Engine] = ENGINES.get(name, "engine")
    for option in ("workers", "address"):
        if getattr(setting, option) is not None and option not in kind.options:
            can = [other for other in ENGINES.names() if option in ENGINES.get(other).options]  # type: ignore[attr-defined]
            raise ConfigError(
                f"got {getattr(setting, option)!r}, and {name!r} has no {option}; name one of: {', '.join(can)}",
                f"engine.{option}",
            )
    reason = kind.refuses(setting)
    if reason:
        raise ConfigError(f'{name!r} cannot run this experiment: {reason}; engine = "auto" chooses one that can', "engine")
    return kind(setting)


def _check_task(experiment: Experiment, task: Task) -> None:
    """Refuse a loss or a target that this task's outputs cannot be held against."""
    kind = "numbers" if task.federation.classes is None else "classes"
    loss = _algorithm(experiment, task).loss.within()
    if loss.kind not in (None, kind):
        names = {"loss": (experiment.loss or {}).get("name"), "algorithm": experiment.algorithm["name"], "task": task.loss}
        key = "loss" if experiment.loss is not None else "task" if loss == LOSSES.build(task.loss) else "algorithm"
        fit = next(name for name in LOSSES.names() if LOSSES.get(name).kind == kind)  # type: ignore[attr-defined]
        hint = f"use {fit!r}" if key != "algorithm" else f'give it another loss, e.g. loss = "{fit}"'
        raise ConfigError(f"got {names[key]!r}, but the targets of this task are {kind}; {hint}", key)
    if task.metric == "loss" and experiment.stop.target is not None and experiment.stop.target.accuracy is not None:
        raise ConfigError("this task has no accuracy; give a target of its loss", "stop.target.accuracy")


def _check_selector(
    experiment: Experiment, selector: Selector[Any], weights: str, federation: Federation, uploads: frozenset[str]
) -> None:
    """Refuse a selector that wants to know what nobody can tell it here, or gives less than the weighting needs."""
    needs, name = selector.rule.needs(), experiment.selector["name"]
    asked = {when: sorted(getattr(needs, when)) for when in ("enrolled", "probed", "reported")}
    for when, signals in asked.items():
        for signal in signals:
            if when not in SIGNALS[signal].when:
                can = " or ".join(SIGNALS[signal].when)
                raise ConfigError(f"{name!r} needs the signal {signal!r} {when}, which can only be had {can}", "selector")
    wanted = {signal for signals in asked.values() for signal in signals}
    if "val_loss" in wanted and not len(federation.validation.values):
        said = f"{name!r} needs the loss on each client's validation samples, and none are held out"
        raise ConfigError(f"{said}; write split = {{ validation = 0.2 }}", "split.validation")
    if "robust_loss" in wanted and federation.classes is None:
        raise ConfigError(f"{name!r} needs the noise-robust loss, and this task has no classes", "selector")
    if wanted & SERVER_SIGNALS and "delta" not in uploads:
        said = f"{name!r} needs {sorted(wanted & SERVER_SIGNALS)[0]!r}, which the server makes of uploaded updates"
        raise ConfigError(f"{said}, and this algorithm uploads none", "selector")
    wanted_column = {"score": "scores", "selector": "weights", "selector_ratio": "weights"}.get(weights)
    if wanted_column is not None and wanted_column not in selector.rule.provides():
        raise ConfigError(f'got {weights!r}, but {name!r} gives no {wanted_column}; use "examples" or "uniform"', "weights")
    if "label_histogram" in needs.enrolled and federation.classes is None:
        raise ConfigError(f"{name!r} needs label histograms, and this task has no classes", "selector")
