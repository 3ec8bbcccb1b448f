"""The server app of a deployment: Motley's round loop on a Flower grid.

It does what Flower's strategies cannot, because they wait for all clients, round by round::

    app = ServerApp()

    @app.main()
    def main(grid, context):
        run(grid, load("experiment.toml"), out="/srv/federation/run-1")

The experiment is the one that a simulation would run: selector, algorithm, synchrony (deadline with
over-selection, buffered and asynchronous steps), compression with error feedback, ``stop``. Its
seconds are seconds of the wall clock; its devices, networks, availability, failures and clients'
megabytes are ignored, for these are real. The folder it leaves is a run's folder with the tables of
a simulation, its report and its model; what went wrong with clients is in the table ``incidents``.
A line about every round is printed.

After every server step the state is written to a new file, which then replaces the old one. Started
again with the same ``out``, a deployment goes on at the next step; a finished one is only loaded.
"""

from __future__ import annotations

import math
import secrets
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from motley.core.errors import ConfigError
from motley.core.files import private_files, replacing, user_path
from motley.experiments.build import Ready, prepare
from motley.experiments.config import Experiment
from motley.experiments.progress import OneRun, RoundLog
from motley.experiments.run import (
    as_experiment,
    best_record,
    run_record,
    save_best_model,
    save_model,
    say_standstill,
    standstill_record,
    written_step,
)
from motley.experiments.store import RunFolder, default_folder, ensure_space
from motley.experiments.trackers.running import Trackers, tracked
from motley.experiments.trained import save_preparation
from motley.results.load import Run
from motley.results.load import load as load_results
from motley.results.marks import Mark, pack_marks
from motley.results.writer import Writer, remove_streams
from motley.results.written_report import write_report
from motley.rounds.channel import Channel
from motley.rounds.checkpoint import Checkpoints
from motley.rounds.client_state import ClientStates
from motley.rounds.loop import RoundLoop
from motley.rounds.run_config import RoundSummary
from motley.rounds.stage import PrivateStage, Stage
from motley.rounds.stopwatch import Stopwatch
from motley.rounds.upload_pipeline import UploadPipeline, initial_client_state
from motley.rounds.upload_signals import SERVER_SIGNALS
from motley.selectors.selector import Selector
from motley.tasks.task import Task
from motley_flower.client_list import ClientList
from motley_flower.deployed.client_registry import ClientRegistry, Limits
from motley_flower.deployed.deployed_backend import (
    DeployedBackend,
    DeployedClients,
    DeploymentStage,
)
from motley_flower.deployed.grid_transport import GridTransport, WaitingTransport
from motley_flower.deployed.private_plan import hides_cohorts, plan_of, rounds_of
from motley_flower.deployed.request_codec import RequestCodec
from motley_flower.real_run import REAL, log_sentences_alone, stopping_in_a_sentence

if TYPE_CHECKING:
    from motley_flower.deployed.secure_rounds import DeployedSums
    from motley_flower.secure.terms import SecureOptions
    from motley_privacy.distributed_noise import ClientNoise

__all__ = ["Limits", "deployment", "refuses", "run"]


def run(
    grid: Any,
    experiment: Experiment | str | Path | Mapping[str, Any],
    *,
    out: Path | str | None = None,
    data: Path | str | None = None,
    overrides: Sequence[str] = (),
    task: Task | None = None,
    limits: Limits | None = None,
    key: str = "partition-id",
    told: Callable[[RoundSummary], None] | None = None,
    progress: bool | OneRun = True,
    report: bool = True,
    selector: Selector[Any] | None = None,
    rounds_done: int = 0,
    clients_sent: int = 0,
    clients: str | Path | None = None,
    secure_aggregation: SecureOptions | None = None,
    register: Mapping[int, bytes] | str | Path = "",
) -> Run:
    """Run an experiment on real clients to its end, and load its results.

    Parameters
    ----------
    grid: Flower's ``Grid``, or a :class:`~motley_flower.deployed.grid_transport.GridTransport`.
    experiment: an Experiment, its keys, or the path of its TOML file.
    overrides: settings like ``"local.epochs=2"``.
    out: folder of the run, ``runs/<name>/<result id>-deployed`` by default; an interrupted
    deployment goes on there.
    data: folder to look into first for data packs.
    task: the server's model and test samples, where data lies with the clients alone.
    limits: how long to wait for what.
    key: of ``--node-config``, a client's stable whole number.
    told: called with the summary of every server step.
    progress: print a line about every round on standard error; or an object of your own that is
    told of them.
    report: write ``report.html`` at the end.
    selector: one that has learned elsewhere, in place of a new one.
    rounds_done, clients_sent: what lies behind it (``loop.state.draw_index``,
    ``loop.state.dispatch``), so that it goes on counting.
    secure_aggregation: the server learns the sum of the updates alone.
    register: all clients' public keys, or their file.
    clients: the file of clients, ``clients.toml``: only nodes whose key it names are clients, and
    each is the client that it names. None: a node is the client that it says, and an id is worth
    nothing.

    Raises
    ------
    UserError: one sentence about what is wrong.
    """
    log_sentences_alone()
    experiment = as_experiment(experiment, overrides)
    limits = limits or Limits()
    ready = _ready(
        experiment=experiment,
        data=data,
        task=task,
        selector=selector,
        options=secure_aggregation,
        rounds_done=rounds_done,
    )
    transport = _transport(
        grid=grid,
        key=key,
        limits=limits,
        clients=clients,
        population=len(ready.config.setting.task.federation),
    )
    # a simulation is another run, and a deployment that has ended is not extended
    name = f"{experiment.result_id()}-deployed"
    path = user_path(out) if out is not None else default_folder(experiment).with_name(name)
    with private_files(), (folder := RunFolder(path)).lock():
        if (state := folder.state(experiment, resume=True, name=name)) == "finished":
            _tidy(path)
            return _ended(path, report)
        ensure_space(path)
        secret, plan = None, plan_of(ready.config)
        if plan is not None:
            from motley_flower.deployed import private_deployments as private

            before = folder.read() or {}
            secret = private.deployment_secret(experiment, path, before, state == "new")
            if hides_cohorts(experiment):
                ready = ready._replace(
                    selector=private.drawn_from(secret, experiment, ready.selector)
                )
        record = _record(
            experiment, ready, name, transport.names, options=secure_aggregation, secret=secret
        )
        if plan is not None:
            record["privacy"] = private.in_ledger(experiment, plan, record["privacy"])
        folder.write(record)
        save_preparation(ready.config.setting.task.federation, path, experiment.privacy is not None)
        saved = (checkpoints := Checkpoints(path / "checkpoints", name)).load()
        loop = deployment(
            experiment=experiment,
            ready=ready,
            transport=transport,
            limits=limits,
            now_s=_spent_s(saved),
            secure=(secure_aggregation, register),
        )
        if clients is not None:
            backend: Any = loop.backend
            probed = ready.selector.rule.needs().probed
            _check_proxy(Path(clients), backend.codec.largest_answer(probed))
        loop.state.draw_index = rounds_done
        loop.state.dispatch = clients_sent
        marks = _restored(loop, saved) if state == "interrupted" else None
        shown = _shown(
            progress,
            experiment,
            loop,
            path,
            resumed=bool(saved),
            limits=limits,
            names=transport.names,
        )
        with stopping_in_a_sentence(path), tracked(experiment, path, kind="deployment") as trackers:
            written = _go(
                loop=loop,
                checkpoints=checkpoints,
                marks=marks,
                path=path,
                shown=shown,
                on_round=told,
                trackers=trackers,
            )
        folder.write(
            {
                **record,
                **best_record(loop),
                **standstill_record(loop),
                "tables": pack_marks(written),
                "finished": True,
            }
        )
        say_standstill(loop)
        _tidy(path)
        return _ended(path, report)


def _record(
    experiment: Experiment,
    ready: Ready,
    name: str,
    names: Mapping[int, str],
    options: SecureOptions | None,
    secret: bytes | None,
) -> dict[str, Any]:
    """Return the record ``run.json`` of a deployment, with what is claimed of secure aggregation.

    Parameters
    ----------
    names: of its clients, by id.
    secret: of a private one."""
    # no command: Flower's own line of the ServerApp is of no use to anybody, and holds a token
    record = {
        **run_record(
            experiment=experiment,
            config=ready.config,
            engine=ready.engine,
            note=REAL,
            secret=secret,
        ),
        "run_id": name,
        "command": "",
    }
    if names:
        record["clients"] = {str(client): named for client, named in names.items()}
    if options is None:
        return record
    from motley_flower.deployed.secure_rounds import secure_claim  # needs the extra

    return record | secure_claim(ready.config, options)


def _spent_s(saved: Mapping[str, Any] | None) -> float:
    """Return the seconds that a deployment had run when its last checkpoint was written."""
    return float((saved or {}).get("clients", {}).get("now_s", 0.0))


def _restored(loop: RoundLoop, saved: dict[str, Any] | None) -> Mapping[str, Mark]:
    """Restore the last checkpoint of a deployment, where there is one, and return what counts of
    its tables."""
    if saved is None:
        return {}
    loop.restore(saved)
    marks: Mapping[str, Mark] = saved["tables"]
    return marks


def _tidy(path: Path) -> None:
    """Remove what only a deployment that goes on needs."""
    remove_streams(path)
    shutil.rmtree(path / "checkpoints", ignore_errors=True)


def _ended(path: Path, report: bool) -> Run:
    """Return the results of a finished deployment; write its report beside them where there is none
    and one is wanted."""
    done = load_results(path)
    if report and not (path / "report.html").exists():
        write_report([done], path / "report.html")
    return done


def _shown(
    progress: bool | OneRun,
    experiment: Experiment,
    loop: RoundLoop,
    path: Path,
    resumed: bool,
    limits: Limits,
    names: Mapping[int, str],
) -> OneRun:
    """Return what is told of the rounds; a log of rounds has said where the deployment begins, into
    which folder it writes, and whom it waits for."""
    if not isinstance(progress, bool):
        return progress
    if not progress:
        return OneRun()
    log = RoundLog(experiment, names=names)
    where = f"resumed at {log.of(loop.state.version + 1)}" if resumed else "begun"
    whom = "clients that it knows" if resumed else f"{len(loop.setting.task.federation)} clients"
    log.say(f"{where}, tables in {path}; waiting for the {whom}, at most {limits.start_s:g} s")
    return log


def deployment(
    experiment: Experiment,
    ready: Ready,
    transport: GridTransport,
    limits: Limits,
    now_s: float = 0.0,
    secure: tuple[SecureOptions | None, Mapping[int, bytes] | str | Path] = (None, ""),
) -> RoundLoop:
    """Return the round loop of a deployed federation.

    Parameters
    ----------
    ready: what the experiment prepares.
    transport: carries messages.
    now_s: seconds that the deployment has run already.
    secure: options of secure aggregation, None for none, and the register of keys.
    """
    config, engine, selector, model = ready
    needs = selector.rule.needs()
    waiting = WaitingTransport(transport, limits.poll_s, limits.look_s, now_s)
    label = f"{experiment.run_id()}-{secrets.token_hex(4)}"
    population, (options, register) = len(config.setting.task.federation), secure

    def backend(
        channel: Channel,
        pipeline: UploadPipeline | None,
        watch: Stopwatch,
        private: PrivateStage | None,
    ) -> tuple[DeployedBackend, list[Stage]]:
        parts = channel.parts
        codec = RequestCodec(
            experiment=experiment,
            config=config,
            requirements=needs,
            parts=parts,
            masked=None if options is None else options.upload_bytes(parts["delta"].value.numel()),
        )
        registry = ClientRegistry(
            run=label, codec=codec, transport=waiting, population=population, limits=limits
        )
        clients = DeployedClients(registry, ClientStates(initial_client_state(config, model)))
        plan = plan_of(config)
        noise = None if plan is None else plan.client_noise
        sums = (
            None
            if options is None
            else _sums(options, register, registry, codec=codec, channel=channel, noise=noise)
        )
        deployed = DeployedBackend(
            config=config,
            channel=channel,
            codec=codec,
            transport=waiting,
            limits=limits,
            clients=clients,
            sums=sums,
            private=None if private is None else rounds_of(private),
        )
        return deployed, [DeploymentStage(deployed)]

    return RoundLoop(
        config=config, engine=engine, selector=selector, model=model, make_backend=backend
    )


def _sums(
    options: SecureOptions,
    register: Any,
    clients: ClientRegistry,
    codec: RequestCodec,
    channel: Channel,
    noise: ClientNoise | None,
) -> DeployedSums:
    from motley_flower.deployed.secure_rounds import DeployedSums  # needs the extra

    return DeployedSums(
        options=options,
        register=register,
        clients=clients,
        codec=codec,
        channel=channel,
        noise=noise,
    )


def refuses(experiment: Experiment, ready: Ready) -> str | None:
    """Return why an experiment cannot be deployed, in one sentence with the way out; None: it
    can."""
    return (
        _refuses_work(experiment, ready)
        or _refuses_steps(ready)
        or _refuses_exchange(ready)
        or _refuses_private(experiment, ready)
        or _refuses_world(ready)
    )


def _refuses_work(experiment: Experiment, ready: Ready) -> str | None:
    """Return what is computed only where all clients' data is, as :func:`refuses`."""
    config = ready.config
    if experiment.recalibrate is not None:
        return (
            "clients estimate BatchNorm statistics anew only in a simulation; leave recalibrate out"
        )
    if experiment.split.holdout_clients:
        return (
            "new clients adapt and are examined only in a simulation, which has their samples; "
            "leave split.holdout_clients out"
        )
    if config.evaluate.diagnostics:
        return (
            "diagnostics need every client's gradient, which only a simulation has; leave "
            "evaluate.diagnostics out"
        )
    algorithm = config.setting.algorithm
    if algorithm.server.asks_clients:
        return (
            f"{type(algorithm.server).__name__} asks clients again in mid-round, as only a "
            "simulation does; use another algorithm"
        )
    if config.setting.task.architectures is not None:
        return (
            "clients of a deployment hold the same model, and only a simulation deals several; "
            "leave models out"
        )
    if config.setting.task.heads:
        return (
            "a head is averaged over the clients that hold it only in a simulation, which "
            "knows their classes; leave task.heads out"
        )
    slicing = algorithm.local.slicing
    if slicing is not None and (not slicing.ranks or slicing.merges or slicing.prunes):
        return (
            "of all that clients may hold in part, real ones can hold fewer ranks, under "
            "lora_fedavg and flexlora; use one of these, or another algorithm"
        )
    capacity = config.world.capacity
    if (
        slicing is not None
        and capacity is not None
        and any(rule.measure == "time" for rule in capacity.chain)
    ):
        return (
            "steps of real clients do not take what the file says; write capacity = "
            '"by_deadline", whose seconds are measured here, or let each client say what it can '
            'hold, --node-config "share=0.5"'
        )
    if config.setting.work.client_batch_sizes is not None:
        return (
            "which batches a client can hold is known only in a simulation; leave capacity out "
            "and set local.batch_size"
        )
    data = config.setting.task.federation
    personal = not algorithm.local.shared
    if data.statistics is not None:
        return (
            "clients exchange statistics of their rows only in a simulation; prepare the "
            'columns first, task.scale = "none"'
        )
    if config.stop.target and (
        personal or (data.global_test is None and not len(data.test.values))
    ):
        return (
            "stop.target is never reached, for the server has nothing to evaluate; give it "
            "test samples, or another end"
        )
    return None


def _refuses_steps(ready: Ready) -> str | None:
    """Return what of local steps a client cannot know, as :func:`refuses`."""
    config = ready.config
    if config.setting.algorithm.local.compares_sizes:
        return (
            "a client compares its samples with the mean of all only in a simulation, which knows "
            'them; leave alphas out, or write weights = "examples"'
        )
    if config.setting.task.batches is not None:
        return (
            "an order of batches is followed only in a simulation, which counts every client's "
            "steps; leave batches out of own_task"
        )
    return None


def _refuses_exchange(ready: Ready) -> str | None:
    """Return what the server must know of uploads and links and cannot, as :func:`refuses`."""
    upload = ready.config.upload_config
    needs = ready.selector.rule.needs()
    signals = sorted((needs.reported | needs.probed.keys()) & SERVER_SIGNALS)
    if ready.config.setting.algorithm.local.lengths_follow_values:
        return (
            "messages of a deployment have a length that is agreed on before training, and that of "
            "these uploads depends on their values; use another algorithm, e.g. fml"
        )
    if upload.feedback.incremental and signals:
        name = type(upload.feedback).__name__
        return (
            f"the selector wants {signals[0]!r} of updates, and under {name} only their "
            "changes arrive; use another feedback"
        )
    if "uplink_mbps" in upload.allocator.requires:
        name = type(upload.allocator).__name__
        return (
            f"{name} must know every uplink beforehand, as only a simulation does; use uniform "
            "or by_score"
        )
    return None


def _refuses_world(ready: Ready) -> str | None:
    """Return what of the world is simulated only, as :func:`refuses`."""
    if ready.config.synchrony.asks_again:
        return _ONCE
    drift = ready.config.world.drift
    if drift.moves_window or drift.renames_classes:
        return "a client's data is what it is; leave drift out"
    return None


_ONCE = (
    "a client learns with its next request whether its last upload was accepted, so none is asked "
    "again before a server step takes "
    'that; write synchrony = { name = "buffered", refill = "idle" }'
)


def _refuses_private(experiment: Experiment, ready: Ready) -> str | None:
    """Return why a private experiment cannot be deployed, as :func:`refuses`."""
    if experiment.privacy is None:
        return None
    from motley_flower.deployed.private_deployments import refuses_private

    return refuses_private(experiment, ready)


def _transport(
    grid: Any, key: str, limits: Limits, clients: str | Path | None, population: int
) -> GridTransport:
    """Return the transport on Flower's grid, or the one that is given.

    Raises
    ------
    ConfigError: a file of clients that cannot be used, is not the transport's, or names a client
    beyond the population.
    """
    if isinstance(grid, GridTransport):
        transport = grid
    else:
        listed = None if clients is None else ClientList(clients)
        if listed is not None:
            listed.log_run(grid)
        transport = GridTransport(grid, key, limits.query_s, link_s=limits.link_s, clients=listed)
    names = transport.names
    if clients is not None and not names:
        raise ConfigError(
            "got a transport without a file of clients; give it "
            "GridTransport(clients=ClientList(...))",
            "clients",
        )
    beyond = [client for client in names if client >= population]
    if beyond:
        raise ConfigError(
            f"{clients or 'the file'} names client {beyond[0]} ({names[beyond[0]]}), and the "
            f"experiment has clients 0 to {population - 1}; write population = {max(names) + 1}, "
            "or take the client out of the file",
            "clients",
        )
    return transport


def _check_proxy(clients: Path, largest: int) -> None:
    """Refuse an experiment whose answers the proxy of the deployment does not let through.

    Parameters
    ----------
    clients: the file of clients, beside which ``motley deployment init`` writes what the proxy
    takes; nothing is known of another.
    largest: bytes of an answer, at most.

    Raises
    ------
    ConfigError: so it is, with the command that changes it.
    """
    if not clients.with_name("deployment.toml").exists():
        return
    from motley_flower.operator.kits import open_deployment  # needs the extra
    from motley_flower.operator.pages import command

    there = open_deployment(clients.absolute().parent)
    megabytes = math.ceil(largest / 2**20)
    if megabytes > there.largest_mb:
        lets = command("limit", there.folder).replace("MB", str(megabytes))
        raise ConfigError(
            f"an answer of this experiment has up to {megabytes} MB, and the proxy takes "
            f"{there.largest_mb}; {lets}, and start server/start again",
            "clients",
        )


def _ready(
    experiment: Experiment,
    data: Path | str | None,
    task: Task | None,
    selector: Selector[Any] | None,
    options: SecureOptions | None = None,
    rounds_done: int = 0,
) -> Ready:
    """Return what the experiment prepares, with the selector given in place of a new one.

    Raises
    ------
    ConfigError: it cannot be deployed, or the selector follows another rule.
    """
    alone = experiment.replace({"engine.name": "sequential"})  # the server trains no client
    ready = prepare(alone, user_path(data) if data is not None else None, task)
    if selector is not None and selector.rule != ready.selector.rule:
        raise ConfigError(
            f"got a selector {selector.rule!r}; expected the experiment's, {ready.selector.rule!r}",
            "selector",
        )
    if selector is not None and hides_cohorts(experiment):
        raise ConfigError(
            "got a selector, which draws by its own seed, and hidden cohorts are drawn from a "
            'secret of the server; leave it out, or write privacy.cohorts = "seen"',
            "selector",
        )
    ready = ready if selector is None else ready._replace(selector=selector)
    reason = refuses(experiment, ready)
    if reason:
        raise ConfigError(f"this experiment cannot be deployed: {reason}")
    plan = plan_of(ready.config)
    if options is None and plan is not None and plan.client_noise is not None:
        sentence = (
            'noise_by = "clients" is noise for a sum, and the server would see every upload '
            "with too little"
        )
        mend = (
            f"give run(...) secure_aggregation=SecureOptions(clip={plan.options.clip:g}) and a "
            "register"
        )
        raise ConfigError(f"{sentence}; {mend}", "privacy.noise_by")
    if options is not None:
        from motley_flower.deployed.secure_rounds import secure_refusal  # needs the extra

        reason = secure_refusal(ready, options, rounds_done)
        if reason:
            raise ConfigError(f"this experiment has no secure sum: {reason}", "secure_aggregation")
    return ready


def _go(
    loop: RoundLoop,
    checkpoints: Checkpoints,
    marks: Mapping[str, Mark] | None,
    path: Path,
    shown: OneRun,
    on_round: Callable[[RoundSummary], None] | None,
    trackers: Trackers,
) -> Mapping[str, Mark]:
    """Run from wherever the deployment is to its end; ``marks``: what counts of the tables of one
    that goes on, None for a new one."""
    writer = Writer(path, marks)
    loop.write_to(writer)
    shown.begin(loop.setting.task.metric, lambda: loop.watch.current)
    trackers.begin(loop.state.version if marks else 0)
    while not loop.done:
        done = written_step(loop, writer, trackers)
        checkpoints.save(loop.state.version, loop.save(), writer.sync())
        shown.round(done)
        if on_round is not None:
            on_round(done)
    written = writer.finish()
    loop.engine.close()
    save_model(loop.setting, loop.newcomer_model(), path / "model.safetensors")
    save_best_model(loop, path)
    backend: Any = loop.backend
    if (draws := backend.transcript()) is not None:
        with replacing(path / "draws.json") as file:
            file.write(draws.encode())
    trackers.finish(written)
    return written
