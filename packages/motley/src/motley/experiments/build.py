"""Build a simulation from an experiment: the one place where the objects of all packages are put
together."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch.nn.modules.batchnorm import _BatchNorm

from motley.algorithms.fedavg import plain_fedavg
from motley.algorithms.parts import Algorithm, ClientState
from motley.algorithms.task_loss import loss_of
from motley.core.components import imports
from motley.core.errors import ConfigError, ModelError
from motley.core.files import user_path
from motley.core.freed_memory import release_freed_memory
from motley.core.keys import Streams
from motley.core.layout import Layout
from motley.core.server_signals import LAST_UPDATE
from motley.engines import ENGINES, resolve_auto
from motley.engines.admission import admit, needs_proof
from motley.engines.distributed import Distributed
from motley.engines.engine import ENGINE_OPTIONS, Engine, Setting
from motley.engines.unlike import Unlike
from motley.experiments.checks import (
    check_algorithm,
    check_capacity,
    check_contributions,
    check_dishonest,
    check_end,
    check_failures,
    check_heads,
    check_replaced,
    check_selector,
    check_synchrony,
    check_task,
    check_weights,
    with_metrics,
)
from motley.experiments.config import Experiment, split_of_own
from motley.experiments.last_layers import check_last_layers
from motley.experiments.private_runs import private_training
from motley.experiments.run_data import (
    check_own_data,
    server_context_of,
    task_of,
    with_drift,
)
from motley.experiments.unlike_models import check_unlike, refuses_engine, with_holders
from motley.experiments.upload_settings import recalibration_of, upload_config_of
from motley.results.writer import Writer
from motley.rounds.client_state import ClientStates, open_client_states, row_bytes
from motley.rounds.loop import RoundLoop
from motley.rounds.planning import with_batch_sizes
from motley.rounds.run_config import EvaluationSchedule, RunConfig
from motley.rounds.simulated import simulation
from motley.rounds.stored_last_updates import open_last_updates
from motley.rounds.upload_pipeline import first_states, initial_client_state
from motley.selectors.selector import Selector
from motley.tasks.finite import all_finite
from motley.tasks.flat import construct
from motley.tasks.held_out import held_out_ids, hold_out_clients
from motley.tasks.initial_weights import start_from
from motley.tasks.narrow_models import require_slices
from motley.tasks.one_sample import refuses_one_sample, repeated_sample
from motley.tasks.random_samples import with_loss_compared
from motley.tasks.task import Federation, ModelState, Task
from motley.world.interfaces import World

_WORLD = ("device", "network", "availability", "failures", "drift", "dishonest", "capacity")
"""Keys of a world's models, in their order there."""


LARGE = 2**20
"""Samples from which making a federation leaves much freed memory behind."""


class Ready(NamedTuple):
    """The parts of a run before its first round: configuration, engine, selector and initial
    model."""

    config: RunConfig
    engine: Engine
    selector: Selector[Any]
    model: ModelState


def build(
    experiment: Experiment | Mapping[str, Any],
    data: Path | str | None = None,
    writer: Writer | None = None,
    task: Task | None = None,
    folder: Path | str | None = None,
    allow_import: bool = False,
    secret: bytes | None = None,
) -> RoundLoop:
    """Return a simulation that is ready for its first step.

    Parameters
    ----------
    experiment: an Experiment, or its keys.
    data: folder searched first for data packs.
    writer: where table rows go; None: nowhere.
    task: data and model of your own, for ``task = "own"``.
    folder: where client states on disk go.
    allow_import: let components be named ``"module:Class"``, which imports the module.
    secret: as of :func:`prepare`.

    Raises
    ------
    ConfigError, DataError, ModelError: parts that do not fit together, in one sentence.
    """
    if not isinstance(experiment, Experiment):
        if not isinstance(experiment, Mapping):
            raise ConfigError(
                f"got {experiment!r}; expected an Experiment or its keys; a file is read by "
                "motley.experiments.config.load(...), and run by motley.run(...)",
                "experiment",
            )
        own = {} if task is None else {"task": "own"}
        with imports(allow_import):
            experiment = Experiment(**{**own, **experiment})
    if task is not None:
        check_own_task(experiment)
        check_own_data(experiment)
        split_of_own(task, dataclasses.asdict(experiment.split))
    packs, states = (None if path is None else user_path(path) for path in (data, folder))
    ready = prepare(experiment, packs, task, secret=secret)
    check_end(experiment, ready.config, ready.model)
    return loop_of(experiment, ready, writer, folder=states)


def check_own_task(experiment: Experiment) -> None:
    """Refuse an experiment that names another task beside one of the user's own."""
    if experiment.task["name"] != "own":
        raise ConfigError(
            f'got {experiment.task["name"]!r} and a task of your own beside it; write task = "own"',
            "task.name",
        )


def loop_of(
    experiment: Experiment,
    ready: Ready,
    writer: Writer | None = None,
    folder: Path | None = None,
) -> RoundLoop:
    """Return a simulation of the parts of an experiment; parameters as of :func:`build`."""
    plan, engine, selector, model = ready
    if isinstance(engine, Distributed):  # the run keeps samples in the form in which workers do
        setting = dataclasses.replace(plan.setting, task=engine.setting.task)
        plan = dataclasses.replace(plan, setting=setting)
    states = _client_states(
        experiment, plan, selector, first=initial_client_state(plan, model), folder=folder
    )
    keeps = LAST_UPDATE in selector.rule.needs().probed
    updates = open_last_updates(experiment.client_state, folder) if keeps else None
    return simulation(
        config=plan,
        engine=engine,
        selector=selector,
        model=model,
        writer=writer,
        client_states=states,
        last_updates=updates,
    )


def prepare(
    experiment: Experiment,
    data: Path | None = None,
    task: Task | None = None,
    hide_rows: bool | None = None,
    secret: bytes | None = None,
) -> Ready:
    """Return the parts of a simulation or a deployment, checked against each other. Errors as in
    :func:`build`.

    Parameters
    ----------
    hide_rows: whether a model and a loss of one's own are compared with plain PyTorch on random
    samples, so that the outcome says nothing of anybody's rows; None: where the run is private.
    secret: 32 bytes that the noise of a private run comes from; None: new ones of the operating
    system. The others as of :func:`build`."""
    plan, selector, model = _planned(experiment, data, task, hide_rows, secret=secret)
    kind = _engine_kind(experiment, plan.setting)
    setting = plan.setting
    engine = kind(setting) if setting.task.architectures is None else Unlike(setting, kind)
    return Ready(plan, engine, selector, model)


def check_build(
    experiment: Experiment, data: Path | None = None, task: Task | None = None
) -> tuple[RunConfig, str]:
    """Refuse an experiment as :func:`build` does, without an engine, and return its plan and the
    name of its engine; a model or loss of one's own is not compared with plain PyTorch, which is
    done when it is built.

    Raises
    ------
    ConfigError, DataError, ModelError: parts that do not fit together, in one sentence.
    """
    plan, _, model = _planned(experiment, data, task, hide_rows=None, secret=None, prove=False)
    check_end(experiment, plan, model)
    return plan, _engine_kind(experiment, plan.setting).name


def _planned(
    experiment: Experiment,
    data: Path | None,
    task: Task | None,
    hide_rows: bool | None,
    secret: bytes | None,
    *,
    prove: bool = True,
) -> tuple[RunConfig, Selector[Any], ModelState]:
    """Return what :func:`prepare` does, without an engine; ``prove``: whether models and losses of
    one's own are compared with plain PyTorch."""
    hide_rows = experiment.privacy is not None if hide_rows is None else hide_rows
    streams = Streams(experiment.seed, experiment.pin)
    task = with_metrics(
        experiment, with_drift(experiment, streams, task or task_of(experiment, streams, data))
    )
    if experiment.init is not None:
        task = start_from(task, experiment.init.path, experiment.init.only, experiment.init.strict)
    if hide_rows:
        task = with_loss_compared(task)
    algorithm = _algorithm(experiment, task)
    check_task(experiment, task, algorithm)
    task, federation = _training_pool(experiment, task, streams)
    check_dishonest(experiment.part("dishonest"), len(federation))
    world = World(*map(experiment.part, _WORLD))
    setting = with_holders(experiment, _setting(experiment, task, algorithm, streams), world)
    task = setting.task
    setting = with_batch_sizes(setting, world)
    options = experiment.privacy
    private = None if options is None else private_training()
    source = None if private is None else private.noise_source(options, secret)
    if private is None:
        selection_seed = streams.key("select").words()[0] >> 1
    else:
        selection_seed = private.selection_seed(options, streams, source)
    selector = Selector(
        experiment.part("selector"),
        selection_seed,
        experiment.stop.rounds,
        experiment.defence,
    )
    weights = experiment.weighting()
    cohort = experiment.cohort_size(len(federation))
    synchrony = experiment.part("synchrony")
    corrupted = experiment.part("failures").corrupts_updates or bool(federation.noise.any())
    check_heads(experiment, setting, weights)
    check_algorithm(setting, weights, cohort, corrupted)
    check_replaced(experiment, task)
    check_weights(experiment, setting)
    check_failures(experiment, setting)
    check_synchrony(synchrony, setting, weights, cohort)
    check_selector(experiment, selector, weights, task, uploads=algorithm.local.uploads)
    check_contributions(experiment, setting, selector)
    check_capacity(experiment, setting, selector)
    check_unlike(experiment, setting, selector)
    check_last_layers(experiment, setting, algorithm.local, selector)
    slicing = algorithm.local.slicing
    whole_units = slicing is not None and not slicing.ranks and not slicing.masks
    if whole_units and needs_proof(setting):
        require_slices(task.model, task.layout, repeated_sample(task, 2))
    setting = _admitted(experiment, setting, hide_rows) if prove else setting
    judged = selector.rule.asks_contributions
    needed = {"validation": experiment.selector["name"]} if judged else {}
    plan = RunConfig(
        setting=setting,
        world=world,
        synchrony=synchrony,
        cohort=cohort,
        stop=experiment.stop,
        weights=weights,
        schedule=experiment.part("local.lr_schedule"),
        evaluate=_evaluation_schedule(experiment, algorithm),
        measured_speeds=experiment.probe.speeds == "measured",
        probe_batches=0 if experiment.probe.batches == "all" else experiment.probe.batches,
        server_context=server_context_of(
            setting,
            experiment.algorithm["name"],
            more=needed,
            own=experiment.task["name"] == "own",
        ),
        stragglers=experiment.local.stragglers,
        upload_config=upload_config_of(experiment, setting, selector, weights),
        recalibrate=recalibration_of(experiment, setting),
        guard=experiment.guard,
        stage=experiment.part("stage"),
    )
    model = setting.initial()
    _check_weights(model, setting.kinds[0].task.layout)
    for kind in setting.kinds[1:]:
        _check_weights(kind.initial(), kind.task.layout)
    if private is not None:
        plan = private.with_privacy(experiment, plan, selector, source)
    return plan, selector, model


def _training_pool(experiment: Experiment, task: Task, streams: Streams) -> tuple[Task, Federation]:
    """Return the task with the new clients held out of it, and its federation."""
    new = held_out_ids(streams.key("split"), len(task.federation), experiment.split.holdout_clients)
    federation = hold_out_clients(task.federation, new)
    if len(federation.y) > LARGE:
        release_freed_memory()  # that reading and dividing the samples took
    return dataclasses.replace(task, federation=federation), federation


def _check_weights(model: ModelState, layout: Layout) -> None:
    """Refuse weights that are trained and not finite: clients send differences of weights."""
    if all_finite(model.x):
        return
    entry = next(entry for entry in layout if not all_finite(model.x[entry.slice]))
    raise ModelError(
        f"parameter {entry.name!r} begins with numbers that are not finite, and clients send "
        "differences, of which inf - inf is none; make it a buffer (register_buffer), or freeze it "
        "with requires_grad_(False)"
    )


def _client_states(
    experiment: Experiment,
    plan: RunConfig,
    selector: Selector[Any],
    first: ClientState | None,
    folder: Path | None,
) -> ClientStates:
    """Return the store of client states; a store that may not have room for all of them is
    refused."""
    population = plan.setting.task.federation.pool
    rounds = experiment.stop.rounds
    step = max(plan.cohort, plan.synchrony.min_population)  # accepted at one server step
    begin = selector.rule.size(1, plan.cohort, population)
    reached = population if rounds is None else min(population, begin + step * rounds)
    moved = begin + step * experiment.checkpoint.every_rounds
    others = first_states(plan)
    return open_client_states(
        where=experiment.client_state,
        first=first,
        population=population,
        reached=reached,
        moved=moved,
        folder=folder,
        others=others,
        each=None if others is None else [row_bytes(others(k)) for k in range(population)],
    )


def _setting(experiment: Experiment, task: Task, algorithm: Algorithm, streams: Streams) -> Setting:
    layers = [layer for own in task.alike() for layer in construct(own.model, 0).modules()]
    norm = any(isinstance(layer, _BatchNorm) for layer in layers)
    if norm and experiment.local.micro_batch is not None:
        raise ConfigError(
            "BatchNorm would normalize each part of a batch by itself; leave it out, or use a "
            "model without BatchNorm",
            "local.micro_batch",
        )
    if algorithm.loss.over == "batch" and experiment.local.micro_batch is not None:
        raise ConfigError(
            "the loss looks at its whole batch, and would look at each part of it by itself; leave "
            "it out",
            "local.micro_batch",
        )
    if algorithm.local.whole_batches and experiment.local.micro_batch is not None:
        name = experiment.algorithm["name"]
        raise ConfigError(
            f"under {name!r} clients compute with whole batches; leave it out", "local.micro_batch"
        )
    solver: Any = experiment.part("local.optimizer")
    if experiment.local.clip is not None:
        solver = dataclasses.replace(solver, clip=experiment.local.clip)
    drop_single = any(map(refuses_one_sample, task.alike()))
    if drop_single and experiment.local.batch_size == 1:
        raise ConfigError(
            "got 1, and torch refuses a batch of one sample of this model in training (BatchNorm); "
            "write at least 2",
            "local.batch_size",
        )
    return Setting(
        task=task,
        algorithm=algorithm,
        solver=solver,
        work=experiment.local.work(drop_single=drop_single),
        streams=streams,
        dtype={"float32": torch.float32, "float64": torch.float64}[experiment.dtype],
        precision=experiment.precision,
        device=_device(experiment.engine.device),
        evaluation_batch=experiment.evaluate.batch_size,
        threads=experiment.engine.threads,
        **{option: getattr(experiment.engine, option) for option in ENGINE_OPTIONS},
        probes_model=experiment.part("compressor").probes_model,
    )


def _algorithm(experiment: Experiment, task: Task) -> Algorithm:
    """Return the algorithm with the parts replaced that the experiment names; a loss that it wraps
    is replaced inside it."""
    loss = loss_of(task) if experiment.loss is None else experiment.part("loss")
    method: Algorithm = experiment.part("algorithm").change(plain_fedavg().replace(loss=loss))
    algorithm = method.replace(
        aggregator=experiment.part("aggregator"), server=experiment.part("server")
    )
    if experiment.loss is None or algorithm.loss.within() is loss:
        return algorithm
    return algorithm.replace(loss=loss)


def _evaluation_schedule(experiment: Experiment, algorithm: Algorithm) -> EvaluationSchedule:
    """Return when the model is evaluated; diagnostics are refused where clients have models of
    their own."""
    if experiment.evaluate.diagnostics and not algorithm.local.shared:
        reason = "diagnostics compare the gradients of all clients at one model"
        name = experiment.algorithm["name"]
        raise ConfigError(
            f"{reason}, and under {name!r} each has a model of its own; leave it out",
            "evaluate.diagnostics",
        )
    return experiment.evaluate


def _device(name: str) -> str:
    try:
        torch.zeros(1, device=name).item()
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0].partition(". ")[0]
        raise ConfigError(
            f"got {name!r}, which torch cannot use here ({reason}); try 'cpu'", "engine.device"
        ) from None
    return name


def _admitted(experiment: Experiment, setting: Setting, hide_rows: bool) -> Setting:
    """Return the setting with the engines ruled out that do not train the run's own model as torch
    does, and notes of it."""
    notes: dict[str, str] = {}
    if any(map(needs_proof, setting.kinds)):
        admitted = [
            admit(kind, experiment.engine.name, synthetic=hide_rows) for kind in setting.kinds
        ]
        for _, reasons in admitted:
            notes.update(reasons)
        setting = _joined(setting, [own for own, _ in admitted])
        if hide_rows:
            notes["proof on"] = (
                "random samples, so that it says nothing of anybody's rows; say of a loss that "
                'looks at the whole batch over = "batch"'
            )
    if experiment.evaluate.batch_size is not None and not setting.separates_clients:
        raise ConfigError(
            f"got {experiment.evaluate.batch_size}, and neither the model nor the loss looks at "
            "its whole batch, so it would change nothing; leave it out",
            "evaluate.batch_size",
        )
    if not notes:
        return setting
    data = setting.task.federation
    data = dataclasses.replace(data, notes={**data.notes, **notes})
    task = dataclasses.replace(setting.task, federation=data)
    return dataclasses.replace(setting, task=task)


def _joined(setting: Setting, admitted: Sequence[Setting]) -> Setting:
    """Return the setting of a run whose architectures have these ones; the first where there is one
    architecture."""
    first = admitted[0]
    if len(admitted) == 1:
        return first
    return dataclasses.replace(
        setting,
        task=dataclasses.replace(setting.task, loss=first.task.loss),
        algorithm=setting.algorithm.replace(loss=first.algorithm.loss),
        mixes=all(own.mixes for own in admitted),
        skips_unused=any(own.skips_unused for own in admitted),
        ruled_out={engine: why for own in admitted for engine, why in own.ruled_out.items()},
    )


def _engine_kind(experiment: Experiment, setting: Setting) -> type[Engine]:
    """Return the class of the engine that an experiment asks for, or that suits it."""
    name = experiment.engine.name
    if name == "auto":
        suited = {resolve_auto(own) for own in setting.kinds}
        alone = "threads" if setting.device == "cpu" else "sequential"
        name = suited.pop() if len(suited) == 1 else alone
    kind: type[Engine] = ENGINES.get(name, "engine")
    for option in ENGINE_OPTIONS:
        if getattr(setting, option) is not None and option not in kind.options:
            can = [
                candidate
                for candidate in ENGINES.names()
                if option in ENGINES.get(candidate).options  # type: ignore[attr-defined]
            ]
            raise ConfigError(
                f"got {getattr(setting, option)!r}, and {name!r} has no {option}; name one of: "
                f"{', '.join(can or ENGINES.beside)}",
                f"engine.{option}",
            )
    unlike = setting.task.architectures is not None
    reason = refuses_engine(kind, setting) if unlike else kind.refuses(setting)
    if reason:
        raise ConfigError(
            f'{name!r} cannot run this experiment: {reason}; engine = "auto" chooses one that can',
            "engine",
        )
    return kind
