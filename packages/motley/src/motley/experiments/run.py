"""Run one experiment in its folder: start it, resume it, or load it if it is finished.

Rows are on disk after every round, and a checkpoint at intervals, so a kill at any moment loses at
most the rounds since the last checkpoint, and these give the same results when they are run again.
"""

from __future__ import annotations

import shutil
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from motley.core.components import imports
from motley.core.errors import ConfigError, NumericsError, StoreError
from motley.core.files import disk_error, user_path
from motley.core.freed_memory import freed_memory_kept
from motley.core.own_code import keep_own_code
from motley.core.round_line import round_of
from motley.core.usable_cores import at_once
from motley.engines import ENGINES
from motley.engines.engine import Engine, Setting
from motley.engines.processor import arithmetic
from motley.experiments import document
from motley.experiments.build import build, check_own_task
from motley.experiments.client_models import save_client_models
from motley.experiments.config import Experiment, load
from motley.experiments.data_variants import check_variants, data_variants
from motley.experiments.disclosure import algorithm_disclosure, selector_disclosure
from motley.experiments.file_tables import Checkpointing
from motley.experiments.private_runs import private_training
from motley.experiments.progress import OneRun, display, in_notebook, last_line, watched
from motley.experiments.shown import run_in_words
from motley.experiments.store import (
    RunFolder,
    default_folder,
    describe,
    ensure_space,
    goes_further,
    refuse_other_horizon,
    stop_in_words,
)
from motley.experiments.trackers.running import Trackers, tracked
from motley.experiments.trackers.tracker import RunGroup
from motley.experiments.trained import TrainedRun, describe_samples, save_preparation
from motley.experiments.trained import load as load_run
from motley.results.marks import Mark, pack_marks
from motley.results.model_health import learned_nothing
from motley.results.writer import Writer, remove_streams
from motley.rounds.checkpoint import Checkpoints
from motley.rounds.client_state import row_bytes
from motley.rounds.examining import NEW
from motley.rounds.loop import RoundLoop
from motley.rounds.run_config import RoundSummary, RunConfig
from motley.tasks.flat import FlatModule, torch_defaults
from motley.tasks.precision import bfloat16_instructions, slower
from motley.tasks.task import ModelState, Task
from motley.tasks.weight_files import save_weights

OnRound = Callable[[RoundSummary], None]
OnEnd = Callable[[TrainedRun], None]
Marks = Mapping[str, Mark]

LONG_S = 1.0
"""A checkpoint that takes at least this long is written less often."""
PAUSE = 19.0
"""Pause after such a checkpoint, in multiples of its duration: checkpoints take a twentieth of a
run at most."""


def run(
    experiment: Experiment | str | Path | Mapping[str, Any],
    *,
    out: Path | str | None = None,
    resume: bool = False,
    data: Path | str | None = None,
    overrides: Sequence[str] = (),
    progress: bool | OneRun | None = None,
    allow_other_numerics: bool = False,
    task: Task | None = None,
    on_round: OnRound | None = None,
    on_end: OnEnd | None = None,
    allow_import: bool = False,
    group: RunGroup | None = None,
) -> TrainedRun:
    """Run an experiment to its end and load its results.

    Parameters
    ----------
    experiment: an Experiment, its keys, or the path of its TOML file.
    overrides: settings like ``"local.epochs=2"``.
    out: the run's folder; ``runs/<name>/<run id>`` by default.
    resume: continue an interrupted run, also one that :func:`~motley.experiments.sweep.compare`
    began under this name, or extend one that finished under an earlier ``stop``; one that finished
    under the same is only loaded. In a notebook an interrupted run is returned as far as it went.
    data: folder searched first for data packs.
    progress: show the run on standard error, as a bar on a terminal or lines in a log; left out: on
    a terminal and in a notebook, with a line at the end.
    allow_other_numerics: resume although torch, processor, threads, engine or device differ;
    the bits then may, too.
    task: a federation and module of your own (:func:`motley.tasks.own_task`); the experiment says
    ``task = "own"`` or leaves it out.
    on_round: called with the summary of every server step.
    on_end: called with the results, also of a run that was finished before. Both may look and
    change nothing; an error in ``on_round`` ends the run, which can be resumed, and is raised
    again.
    allow_import: let components be named ``"module:Class"``, which imports the module.
    group: the comparison that the run belongs to, for trackers (``log``), and whether it is a
    control there; by default that of its name alone.

    Raises
    ------
    UserError: one sentence about what is wrong; nothing half-written.

    Example
    -------
    ``motley.run("exp.toml").tables["evaluations"].to_pandas()``
    """
    for name, hook in (("on_round", on_round), ("on_end", on_end)):
        if hook is not None and not callable(hook):
            raise ConfigError(f"got {hook!r}; expected a function", name)
    with imports(allow_import):
        experiment = as_experiment(
            experiment if task is None else with_own(experiment, task), overrides
        )
    path = user_path(out) if out is not None else _folder_of(experiment, resume)
    try:
        run_in(
            experiment,
            path,
            resume,
            elsewhere=out is not None,
            data=data,
            progress=progress,
            allow_other_numerics=allow_other_numerics,
            on_round=on_round,
            group=group,
        )
        return _ended(path, experiment, on_end, progress)
    except KeyboardInterrupt:
        if not in_notebook() or isinstance(progress, OneRun) or RunFolder(path).read() is None:
            raise
        last_line("interrupted; what was finished is kept and returned: resume=True goes on")
        return load_run(path, experiment.own_task or experiment.part("task"))


def _folder_of(experiment: Experiment, resume: bool) -> Path:
    """Return the run's folder by default; of one that is resumed and is not there, the folder in
    which a comparison of the same name began it."""
    path = default_folder(experiment)
    if not resume or RunFolder(path).read() is not None:
        return path
    below = path.parent.glob(f"*/{experiment.run_id()}/run.json")
    return next((record.parent for record in sorted(below)), path)


def run_in(
    experiment: Experiment,
    path: Path,
    resume: bool,
    *,
    elsewhere: bool = True,
    data: Path | str | None = None,
    progress: bool | OneRun | None = None,
    allow_other_numerics: bool = False,
    on_round: OnRound | None = None,
    group: RunGroup | None = None,
) -> None:
    """Run an experiment in the folder ``path``, which the caller chose where ``elsewhere``; the
    other parameters are those of :func:`run`. What a kill left behind of a finished one is
    removed."""
    _note_default_type(experiment)
    with (
        _own_code_named(experiment),
        (folder := RunFolder(path)).lock(),
        freed_memory_kept(),
        torch_defaults(),
    ):
        run_id = experiment.run_id()
        state = folder.state(experiment, resume, run_id)
        packs = user_path(data) if data is not None else None
        before = check_variants(folder.read() or {}, experiment, packs)
        checkpoints = Checkpoints(path / "checkpoints", run_id)
        if state == "finished":
            _tidy(path, checkpoints, experiment)
            return
        if state == "new" and resume and not elsewhere:
            refuse_other_horizon(path, experiment)
        if state != "new":  # "auto" was decided when the run began
            experiment = _as_begun(experiment, folder.need(before, "numerics", "engine"), before)
        private = None if experiment.privacy is None else private_training()
        data_digests = experiment.data_digests() if private is not None else {}
        secret = None if private is None else private.secret_of(path, before, data_digests)
        # the same noise on a sum that is rounded otherwise would show the difference
        allow_other_numerics = allow_other_numerics and private is None
        if not allow_other_numerics:
            experiment = _divided_as(before, experiment)
        ensure_space(path)
        loop = build(experiment, packs, folder=path / "checkpoints", secret=secret)
        record = {
            **run_record(experiment, loop.config, loop.engine, secret=secret),
            "data": data_variants(experiment, packs),
            **({"control": group.label} if group is not None and group.control else {}),
        }
        record |= nodes_record(loop.engine, before)
        with (
            _cleared_away(loop, path, state),
            _shown(experiment, progress) as shown,
            tracked(experiment, path, group) as trackers,
        ):
            _check_numerics(
                {} if allow_other_numerics else before.get("numerics", {}),
                record["numerics"],
                private is not None,
            )
            plan = loop.config.privacy
            if private is not None and secret is not None and plan is not None:
                record["privacy"] = private.in_ledger(experiment, plan, record["privacy"])
                if state == "new":
                    private.keep_secret(path, secret, data_digests)
            marks = None if state == "new" else _restore(loop, checkpoints, before, path)
            if loop.state.version > 0 and not loop.done:
                number = round_of(loop.state.version + 1, experiment.stop.rounds)
                shown.note(f"resumed at {number}")
            run_built(
                experiment=experiment,
                loop=loop,
                folder=folder,
                record=record,
                checkpoints=checkpoints,
                trackers=trackers,
                marks=marks,
                shown=shown,
                on_round=on_round,
            )
        _tidy(path, checkpoints, experiment)


def run_built(
    experiment: Experiment,
    loop: RoundLoop,
    folder: RunFolder,
    record: Mapping[str, Any],
    checkpoints: Checkpoints,
    trackers: Trackers,
    marks: Marks | None = None,
    shown: OneRun | None = None,
    on_round: OnRound | None = None,
) -> None:
    """Run a loop that is built to its end in its folder, whose lock is held.

    Parameters
    ----------
    record: of the run, which is written to ``run.json``.
    marks: what counts of the tables of a run that is resumed; None for a new one.
    shown, on_round: as for :func:`run`.
    """
    path = folder.path
    shown = shown or OneRun()
    folder.write(record)
    save_preparation(loop.federation, path, experiment.privacy is not None)
    written = _run_to_end(
        experiment=experiment,
        loop=loop,
        checkpoints=checkpoints,
        path=path,
        marks=marks,
        shown=shown,
        on_round=on_round,
        trackers=trackers,
    )
    nodes = nodes_record(loop.engine, record)
    ended = {**best_record(loop), **standstill_record(loop), **nodes}
    folder.write({**record, **ended, "tables": pack_marks(written), "finished": True})
    say_standstill(loop)


def _tidy(path: Path, checkpoints: Checkpoints, experiment: Experiment) -> None:
    """Remove what a finished run no longer needs."""
    remove_streams(path)
    checkpoints.prune(int(experiment.checkpoint.keep))


def _ended(
    path: Path, experiment: Experiment, on_end: OnEnd | None, progress: object
) -> TrainedRun:
    """Return the results of a finished run after showing the caller's function a copy of them;
    ``progress``: None for a line that says what came of it where somebody looks."""
    if on_end is not None:
        on_end(load_run(path, experiment.own_task or experiment.part("task")))
    done = load_run(path, experiment.own_task or experiment.part("task"))
    if progress is None and (trouble := learned_nothing(done)):
        warnings.warn(trouble, stacklevel=3)
    if progress is None and watched():
        last_line(run_in_words(done))
    return done


def as_experiment(
    experiment: Experiment | str | Path | Mapping[str, Any], overrides: Sequence[str] = ()
) -> Experiment:
    """Return the experiment that is given as an Experiment, its keys, or a path, with overrides."""
    overrides = [overrides] if isinstance(overrides, str) else overrides
    if isinstance(experiment, str | Path):
        return load(experiment, overrides)
    if not isinstance(experiment, Experiment | Mapping):
        raise ConfigError(
            f"got {experiment!r}; expected an Experiment, its keys, or the path of a TOML file",
            "experiment",
        )
    if isinstance(experiment, Mapping):
        wrong_keys = [key for key in experiment if not isinstance(key, str)]
        if wrong_keys:
            raise ConfigError(
                f"got the key {wrong_keys[0]!r}; expected names of keys", "experiment"
            )
        return Experiment(**document.override(experiment, overrides))
    changes = {
        path: document.parse_value(text) for path, text in map(document.parse_setting, overrides)
    }
    return experiment.replace(changes) if changes else experiment


@contextmanager
def _own_code_named(experiment: Experiment) -> Iterator[None]:
    """Say of an error which code of the user's raised it, or may have led to it."""
    try:
        yield
    except Exception as error:
        keep_own_code(error, experiment.own_parts())
        raise


@contextmanager
def _cleared_away(loop: RoundLoop, path: Path, state: str) -> Iterator[None]:
    """Close the engine when the run ends, however it ends; a run that never began leaves nothing
    behind."""
    try:
        yield
    except Exception:
        if loop.state.version == 0 and state == "new":
            _clear(path)
        raise
    finally:
        loop.engine.close()


def _clear(path: Path) -> None:
    """Remove what a run that never began has written."""
    for file in path.iterdir():
        if file.name != ".lock":
            shutil.rmtree(file) if file.is_dir() else file.unlink()


def with_own(experiment: Experiment | str | Path | Mapping[str, Any], task: Task) -> Experiment:
    """Return the experiment with a task of your own in it.

    Raises
    ------
    ConfigError: the experiment names another task.
    """
    if not isinstance(task, Task):
        raise ConfigError(
            f"got {task!r}; expected a Task, e.g. motley.tasks.own_task(federation, model)", "task"
        )
    keys = document.read(Path(experiment)) if isinstance(experiment, str | Path) else experiment
    checked = as_experiment({"task": "own", **keys} if isinstance(keys, Mapping) else keys)
    check_own_task(checked)
    return checked.replace({"task": task})


def run_record(
    experiment: Experiment,
    config: RunConfig,
    engine: Engine,
    note: Mapping[str, str] | None = None,
    secret: bytes | None = None,
) -> dict[str, Any]:
    """Return the record ``run.json`` of a run.

    Parameters
    ----------
    note: of a deployment, added to those of its federation.
    secret: of a private run, to which the record holds a commitment."""
    setting = config.setting
    data = setting.task.federation
    metrics = [
        {"name": metric.name, "higher_is_better": metric.higher_is_better, "share": metric.share}
        for metric in setting.task.metrics
    ]
    about = {
        "metric": setting.task.metric,
        "metrics": metrics,
        "classes": list(data.names),
        "notes": {**data.notes, **(note or {})},
        "samples": describe_samples(setting.task),
    }
    record = describe(experiment, numerics_of(setting, engine), about, setting.task.layout.size)
    # else deployed clients divide their samples, as the experiment says
    if note is None or data.shares is not None:
        split = {
            name: value
            for name, value in record["config"]["split"].items()
            if name not in ("test_fraction", "validation")
        }
        record["config"] = {**record["config"], "split": {**split, **(data.shares or {})}}
    states = [kind.algorithm.local.initial_state(kind.initial()) or {} for kind in setting.kinds]
    state_bytes = max(map(row_bytes, states))  # of the largest architecture
    leaves = {
        "selector": asdict(selector_disclosure(experiment.part("selector"))),
        "algorithm": asdict(algorithm_disclosure(setting.algorithm)),
    }
    personal = setting.algorithm.personal
    work = {
        "step_passes": setting.step_passes,
        "extra_epochs": float(setting.algorithm.local.extra_epochs),
    }
    if data.client_names:
        names = {"clients": {str(k): name for k, name in enumerate(data.client_names)}}
    else:
        names = {}
    unlike = setting.task.architectures
    architectures = unlike and {
        "architectures": {
            "names": list(unlike.names),
            "parameters": [layout.size for layout in unlike.layouts],
            "holders": unlike.numbers.tolist(),
        }
    }
    claimed: dict[str, Any] = {}
    if config.privacy is not None:
        claimed["privacy"] = config.privacy.record(simulated=note is None, secret=secret)
    return {
        **record,
        "personal": personal,
        "work": work,
        "client_state_bytes": state_bytes,
        "leaves": leaves,
        **names,
        **(architectures or {}),
        **claimed,
    }


def numerics_of(setting: Setting, engine: Engine) -> dict[str, Any]:
    """Return the conditions under which results are bit-identical: torch, instruction set, what of
    the processor chooses kernels, threads (for which the work is divided, and inside one operation
    of torch), engine, device, dtype, precision; the library that multiplies matrices, where the
    engine does so itself; whether clients of other runs train beside those of this one; with
    bfloat16, the instructions that multiply in it."""
    device = torch.device(setting.device)
    if device.type == "cuda":
        instructions = torch.cuda.get_device_name(device)
    else:
        instructions = torch.backends.cpu.get_cpu_capability()
    shape = engine.worker_shape
    machine = dict(arithmetic())
    if (chosen := torch.get_float32_matmul_precision()) != "highest":
        machine["kernels"] = f"{machine['kernels']} float32_matmul_precision={chosen}".strip()
    return {
        "torch": torch.__version__,
        "instructions": instructions,
        **machine,
        "threads": engine.threads,
        "torch_threads": at_once(engine.inner),
        "engine": engine.name,
        "device": setting.device,
        "dtype": str(setting.dtype).removeprefix("torch."),
        "precision": setting.precision,
        **({} if engine.library is None else {"library": engine.library}),
        **({"joint": True} if engine.joint else {}),
        **(
            {"products": bfloat16_instructions(setting.device)}
            if setting.precision == "bfloat16"
            else {}
        ),
        **({} if shape is None else {"workers": shape}),
    }


def nodes_record(engine: Engine, before: Mapping[str, Any]) -> dict[str, Any]:
    """Return what ``run.json`` says of the nodes of a cluster, with what a record from before says
    of others; nothing without one."""
    nodes = dict(before.get("nodes", {}))
    nodes |= {
        name: status
        for name, status in engine.nodes.items()
        if status != "usable" or nodes.get(name) != "worked"
    }
    return {"nodes": nodes} if nodes else {}


def _as_begun(experiment: Experiment, name: str, before: Mapping[str, Any]) -> Experiment:
    """Return the experiment with the engine of this name with which the run began, and its library
    of matrix products, which was PyTorch where the record says none."""
    kind: type[Engine] = ENGINES.get(name, "engine.name")
    begun = {"engine.name": name}
    if experiment.engine.products is None and "products" in kind.options:
        begun["engine.products"] = before["numerics"].get("library", "torch")
    return experiment.replace(begun)


def _divided_as(before: Mapping[str, Any], experiment: Experiment) -> Experiment:
    """Return the experiment with the workers among which the run began to divide its work: a
    cluster may have changed since."""
    shape = before.get("numerics", {}).get("workers")
    if shape is None or experiment.engine.name != "ray":
        return experiment
    held = dict(zip(("workers", "worker_cores"), map(int, shape.split(" x ")), strict=True))
    options = {name: getattr(experiment.engine, name) for name in held}
    if any(options[name] not in (None, value) for name, value in held.items()):
        return experiment  # which is refused where the numerics are compared
    return experiment.replace({f"engine.{name}": value for name, value in held.items()})


def _check_numerics(before: Mapping[str, Any], now: Mapping[str, Any], private: bool) -> None:
    begun_jointly, jointly = (numerics.get("joint", False) for numerics in (before, now))
    if before:
        before, now = {**before, "joint": begun_jointly}, {**now, "joint": jointly}
    for name in before.keys() & now.keys():
        if before[name] != now[name]:
            if name == "torch_threads":
                mend = "give the --jobs that it began with"
            elif name == "joint":
                mend = "leave --jobs out" if begun_jointly else "give --jobs 1"
            else:
                mend = "resume where it began"
            if private:
                remedy = (
                    ": a private run goes on under the same numerics alone, for the noise of "
                    "rounds that are made again is the same"
                )
            else:
                remedy = ", or give --allow-other-numerics"
            raise NumericsError(
                f"this run began with {name} = {before[name]!r} and would go on with "
                f"{now[name]!r}, so its bits could differ; {mend}{remedy}"
            )


def _restore(
    loop: RoundLoop, checkpoints: Checkpoints, before: Mapping[str, Any], path: Path
) -> Marks:
    """Restore the last checkpoint of a run with which its tables agree; return what counts of the
    tables, nothing where a run that was interrupted begins again for want of a checkpoint.

    Raises
    ------
    StoreError: a finished run without a checkpoint, tables that agree with no checkpoint, or a run
    that would have ended earlier under the present ``stop``.
    """
    saved = checkpoints.load()
    stop = loop.config.stop
    now = stop_in_words(asdict(stop))
    held = stop_in_words(before["config"]["stop"])
    if saved is None:
        if before.get("finished"):
            raise StoreError(
                f"{path} holds this run to {held} without its last checkpoint (checkpoint.keep = "
                f"false, or an earlier version of Motley), so it cannot be continued to {now}; "
                "choose another output folder"
            )
        return {}
    loop.restore(saved)
    scores = loop.state.scores
    earlier = loop.config.reached(0, 0.0, 0.0, scores=scores.peaks, waited=scores.longest_waits)
    if held != now and (loop.at_limit or earlier):
        raise goes_further(path, f"up to round {loop.state.version}", now)
    marks: Marks = saved["tables"]
    return marks


def _opened(
    experiment: Experiment,
    loop: RoundLoop,
    checkpoints: Checkpoints,
    path: Path,
    marks: Marks | None,
) -> Writer:
    """Return the writer of a run's tables; ``marks``: what counts of a run that is resumed, None
    for a new one."""
    writer = Writer(path, marks)
    due = experiment.evaluate.due(loop.state.version)
    if marks and not loop.done:
        # what was evaluated and counted only because the run ended there
        if not due or experiment.split.holdout_clients:
            for table in ("metrics", "evaluations"):
                writer.forget(table, loop.state.version, NEW if due else "")
        writer.forget("privacy", loop.state.version)
    if marks and writer.sync() != marks:
        checkpoints.save(loop.state.version, loop.save(), writer.sync())
    return writer


def _run_to_end(
    experiment: Experiment,
    loop: RoundLoop,
    checkpoints: Checkpoints,
    path: Path,
    marks: Marks | None,
    shown: OneRun,
    on_round: OnRound | None,
    trackers: Trackers,
) -> Marks:
    """Run the loop to its end and return what counts of its tables; ``marks`` as for
    :func:`_opened`."""
    _note_shared_cores(loop.engine)
    _note_slower(loop.setting)
    shown.begin(loop.setting.task.metric, lambda: loop.watch.current, loop.engine.condition)
    sums = loop.learning.sums
    note = None if sums is None else sums.note()
    if note is not None:
        shown.note(note)
    state = loop.state
    writer = _opened(experiment, loop, checkpoints, path, marks=marks)
    loop.write_to(writer)
    trackers.begin(state.version)
    timer = CheckpointTimer(experiment.checkpoint)
    while not loop.done:
        done = written_step(loop, writer, trackers)
        best = state.scores.best
        if best is not None and best.round == state.version:
            save_best_model(loop, path)
        if timer.due(state.version, time.monotonic()) and not loop.done:
            timer.begun_s = time.monotonic()
            # Rows first, then the checkpoint that says how many of them count.
            checkpoints.save(state.version, loop.save(), writer.sync())
            timer.ended_s = time.monotonic()
        try:
            shown.round(done)
            if on_round is not None:
                on_round(done)
        except Exception:
            # the run goes on from here when it is resumed
            checkpoints.save(state.version, loop.save(), writer.sync())
            raise
    written = writer.finish()
    checkpoints.save(state.version, loop.save(), written)
    save_model(loop.setting, loop.newcomer_model(), path / "model.safetensors")
    save_best_model(loop, path)
    save_client_models(loop, path)
    trackers.finish(written)
    return written


def written_step(loop: RoundLoop, writer: Writer, trackers: Trackers) -> RoundSummary:
    """Make a server step, write its rows and its wall seconds, and tell the trackers of it."""
    began = time.perf_counter()
    done = loop.step()
    spent = {f"{name}_s": value for name, value in loop.watch.lap().items()}
    writer.add("timings", {"round": done.round, "wall_s": time.perf_counter() - began, **spent})
    writer.flush()
    trackers.log(done, loop)
    return done


@dataclass
class CheckpointTimer:
    """Decides when the next checkpoint is due: as ``every`` says, but one that takes long (client
    states of gigabytes) is not written again before :data:`PAUSE` times as long has passed.
    ``begun_s``, ``ended_s``: wall times of the last one."""

    every: Checkpointing
    begun_s: float = field(default_factory=time.monotonic)
    ended_s: float = field(default_factory=time.monotonic)

    def due(self, version: int, now_s: float) -> bool:
        """Return whether a checkpoint is due after server step ``version``."""
        took_s = self.ended_s - self.begun_s
        since_s = now_s - self.ended_s
        due = version % self.every.every_rounds == 0 or since_s > self.every.every_s
        return due and (took_s < LONG_S or since_s >= PAUSE * took_s)


def save_model(setting: Setting, model: ModelState, path: Path) -> None:
    """Save a final model under its parameters' names:
    ``module.load_state_dict(safetensors.torch.load_file(path))``."""
    flat = FlatModule.of(setting.task.model, setting.dtype)
    flat.load(model)
    try:
        save_weights(flat.module.state_dict(), path)
    except OSError as error:
        raise disk_error(error, path) from None


def save_best_model(loop: RoundLoop, path: Path) -> None:
    """Save the model of the best round by validation as ``best.safetensors``, where there is
    one."""
    best = loop.state.scores.best
    if best is not None:
        save_model(loop.setting, best.model, path / "best.safetensors")


def best_record(loop: RoundLoop) -> dict[str, Any]:
    """Return what ``run.json`` says of the best round by validation; nothing where there is
    none."""
    best = loop.state.scores.best
    if best is None:
        return {}
    metric = loop.setting.task.metric
    return {
        "best": {"round": best.round, "scope": best.scope, "metric": metric, "value": best.score}
    }


def standstill_record(loop: RoundLoop) -> dict[str, Any]:
    """Return what ``run.json`` says of a run that ended because nothing moved any more; nothing of
    another."""
    sentence = loop.standstill
    return {} if sentence is None else {"standstill": sentence}


def say_standstill(loop: RoundLoop) -> None:
    """Say why a run ended, where nothing moved any more."""
    if loop.standstill is not None:
        warnings.warn(loop.standstill, stacklevel=2)


def _note_shared_cores(engine: Engine) -> None:
    """Say where the bits may not be those of a run that has all cores to itself."""
    now = at_once(engine.inner)
    if now < engine.inner:
        warnings.warn(
            f"runs that share the cores compute each operation of a model of this size on {now} of "
            f"{engine.inner} threads, so the last bits may differ from those of a run alone; "
            f"engine.threads = {now} gives the same bits either way",
            stacklevel=2,
        )


def _note_default_type(experiment: Experiment) -> None:
    """Say where the process's default type of numbers is neither torch's nor the run's."""
    default = str(torch.get_default_dtype()).removeprefix("torch.")
    if default in ("float32", experiment.dtype):
        return
    key = f', write dtype = "{default}" if that is meant' if default == "float64" else ""
    warnings.warn(
        f"torch's default type is {default} (set_default_dtype) and has no say in a run, which "
        f"computes in {experiment.dtype} as its dtype says{key}",
        stacklevel=2,
    )


def _note_slower(setting: Setting) -> None:
    """Say where the precision makes the run slower."""
    sentence = slower(setting.precision, setting.device)
    if sentence is not None:
        warnings.warn(sentence, stacklevel=2)


@contextmanager
def _shown(experiment: Experiment, progress: bool | OneRun | None) -> Iterator[OneRun]:
    """Yield what the run reports to: the caller's object, a display of its own, or nothing."""
    if isinstance(progress, OneRun):
        yield progress
    elif callable(progress):
        raise ConfigError(
            "got a function; expected true or false: a function of each round is on_round=...",
            "progress",
        )
    elif not (watched() if progress is None else progress):
        yield OneRun()
    else:
        with display([experiment], [experiment.name]) as shown:
            shown.start(0)
            yield shown.run(0)
            shown.end(0)
