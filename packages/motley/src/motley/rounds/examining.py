"""Examining: how good the model is when, for whom, and which is the best; nothing else in a run
evaluates a model.

**Evaluation** as :mod:`motley.rounds.evaluation` says, in the steps of ``evaluate.every`` and at
the end. After one whose loss is not finite a run with a guard goes back to the last good model
(:mod:`motley.rounds.refusals`). Models of stages are examined beside the server's.

**Validation**: the model's figures on samples that clients hold out of their training. Three
scopes of the table ``evaluations``, beside those of the test data: ``validation`` (the validation
samples of all clients together), ``validation_client`` (one row per client that has any) and
``validation_mean`` (the unweighted mean over these). Labels are the clients' own: noisy where
their training labels are, and what a client calls a class now where meanings drift. A client with a
model of its own is examined with that.

They belong to the experimenter, as evaluations do: no virtual time, no traffic, and no draw.

The best round is the first with the best headline metric: on ``validation`` where the headline is
that of a common test set, on ``validation_mean`` where it is the mean over clients. Round 0 never
counts, nor does an evaluation of a last round that ``evaluate.every`` does not ask for: so a run
that is extended keeps the best round of one that was that long from the start. A private run keeps
no best round, because it would be chosen by clients' clear data.

**New clients**: those that no round asked, examined at the end of a run with the model that they
would receive then. For each number of ``evaluate.adapt_epochs`` E every new client
(``split.holdout_clients``) begins at the received model, adapts it to its own training samples for
E epochs as the method says (:meth:`~motley.algorithms.parts.PersonalRule.adaptation`), and is
examined on its own test samples. Rows have the scopes ``new_mean_E`` (the unweighted mean) and
``new_client_E`` (one row each), and of metrics beside loss and accuracy ``new_pooled_E``, too.

Nothing of it goes into the run: the server learns nothing of these clients, no virtual time passes,
and a run that is extended goes on without. The final download is billed in these rows: their
traffic is the run's and one download for each new client.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property, partial
from typing import Any, ClassVar, Final

import numpy as np
import torch
from numpy.typing import NDArray

from motley.algorithms.parts import ClientState, ServerState, Slicing, Tensors
from motley.core.arrays import Floats, Ids
from motley.engines.engine import AdaptInputs, DataView, Engine, Job
from motley.rounds.backend import ClientBackend
from motley.rounds.channel import Channel
from motley.rounds.data_drift import DriftView, class_names_now, data_views_now
from motley.rounds.evaluation import Evaluation, Personal, evaluate
from motley.rounds.examined_models import ExaminedModels
from motley.rounds.recalibration import collected
from motley.rounds.rows import Tables, stamp
from motley.rounds.run_config import RunConfig
from motley.rounds.stage import Stages
from motley.rounds.state import BestRound, RunState, Scores
from motley.rounds.stopwatch import Stopwatch
from motley.tasks.metrics import COLUMNS, Metric
from motley.tasks.task import Federation, ModelState, of_architecture
from motley.transport.ledger import VALUE_BITS
from motley.transport.upload_config import split_state

NEW: Final = "new_"
"""How the scopes of new clients begin."""


@dataclass(frozen=True)
class Examining:
    """Evaluates the model of a run, keeps the best one, and examines new clients.

    Parameters
    ----------
    config, engine, backend, channel, watch, tables, stages: of the run.
    first: what a client keeps before its first accepted upload; None: nothing.
    """

    config: RunConfig
    engine: Engine
    backend: ClientBackend[Any]
    channel: Channel
    watch: Stopwatch
    tables: Tables
    stages: Stages
    first: ClientState | None

    @cached_property
    def validation(self) -> Federation | None:
        """The federation with validation samples in place of test samples; None without any."""
        return validation_view(self.config.setting.task.federation)

    def evaluate(self, state: RunState[Any]) -> Mapping[str, float]:
        """Evaluate the server's model, or the clients' own models where these lie in this process,
        write the rows, and return notes of the round."""
        setting = self.config.setting
        shared = setting.algorithm.local.shared
        if not shared and not self.backend.holds_client_states:
            return {}
        schedule = self.config.evaluate
        metrics = setting.task.metrics
        with self.watch("evaluate"):
            models = self.models(state, state.server)
            widths = self.widths(state)
            model = models.at(1.0)
            if widths is not None:
                personal: Personal | None = models.of(widths)
            else:
                personal = self.personal_models(state, state.server)
                if personal is not None and self.validation is not None:
                    personal = PreparedOnce(personal)
            holding = self.backend.holding
            listed = () if holding is None else holding.listed
            beside = {f"width_{width:g}": models.at(width) for width in listed if width < 1.0}
            download = models.download
            for number, kind in enumerate(setting.kinds if setting.algorithm.local.groups else ()):
                group = kind.algorithm.local.start(download, None)
                beside[f"model_{number}"] = of_architecture(group, number)
            for stage in self.stages.models:
                beside.update(stage.models(state))
            names = class_names_now(self.backend.drift, state)
            prototypes = state.server.extra.get("prototypes")
            evaluation = evaluate(
                self.engine,
                model,
                setting.task.federation,
                schedule.per_client,
                personal=personal,
                shared=shared or personal is None,  # IFCA with one model
                class_names=names,
                metrics=metrics,
                prototypes=prototypes,
                beside=beside,
            )
        if not evaluation.scores:
            return {}
        scores = state.scores
        scores.newest = dict(evaluation.scores)
        due = schedule.due(state.version)
        if due and state.version:
            scores.evaluated = scores.newest
            scores.peaks = self._peaks(scores)
        if not state.version:
            scores.untrained = scores.newest
        self._write(state, evaluation)
        if self.validation is not None:
            with self.watch("evaluate"):
                view = self.validation
                held = validate(
                    engine=self.engine,
                    model=model,
                    view=view,
                    per_client=schedule.per_client,
                    personal=personal,
                    class_names=names,
                    metrics=metrics,
                )
            self._write(state, held)
            pooled = personal is None and "global" in evaluation.rows["scope"]
            scope = "validation" if pooled else "validation_mean"
            self._keep_best(state, held, scope)
            if due and state.version and self.config.privacy is None:
                self._count_waits(state, held, scope)
        notes: dict[str, float] = {}
        for stage in self.stages.evaluated:
            notes.update(stage.evaluated(state, scores.newest, due))
        return notes

    def widths(self, state: RunState[Any]) -> Floats | None:
        """Return the share of the model's width that each client holds now, ``[K]``; None where all
        hold the whole model, or what they hold lies elsewhere."""
        holding = self.backend.holding
        if holding is None or not holding.cut or not self.backend.holds_client_states:
            return None
        everybody = np.arange(len(self.config.setting.task.federation))
        return holding.widths(everybody, state.draw_index)

    def _peaks(self, scores: Scores) -> dict[str, float]:
        """Return the best value of each metric so far, without metrics that never had any."""
        peaks = dict(scores.peaks)
        for name, score in scores.evaluated.items():
            better_of = max if self.config.higher_is_better(name) else min
            if not math.isnan(score):
                peaks[name] = better_of(peaks.get(name, score), score)
        return peaks

    def _keep_best(self, state: RunState[Any], held: Evaluation, scope: str) -> None:
        """Keep this round's model if it is the best by validation; ``scope``: of the row that
        decides."""
        if not self.config.keeps_best(state.version):
            return
        scores = state.scores
        higher = self.config.higher_is_better(scores.metric)
        score = held.value(scores.metric, scope)
        scores.best = better(
            best=scores.best,
            scope=scope,
            score=score,
            higher=higher,
            round=state.version,
            model=partial(self.newcomer_model, state),
        )

    def _count_waits(self, state: RunState[Any], held: Evaluation, scope: str) -> None:
        """Count for each metric the evaluations since its best value on validation samples; a value
        that is not finite is none."""
        scores = state.scores
        peaks: dict[str, float] = {}
        waited: dict[str, int] = {}
        longest: dict[str, int] = {}
        for name in {*COLUMNS, *(metric.name for metric in self.config.setting.task.metrics)}:
            value = held.value(name, scope)
            best = scores.validation_peaks.get(name, math.nan)
            gain = value - best if self.config.higher_is_better(name) else best - value
            is_better = math.isfinite(value) and not gain <= 0
            peaks[name] = value if is_better else best
            waited[name] = 0 if is_better else scores.waited.get(name, 0) + 1
            longest[name] = max(waited[name], scores.longest_waits.get(name, 0))
        scores.validation_peaks = peaks
        scores.waited = waited
        scores.longest_waits = longest

    def final_server(self, state: RunState[Any]) -> ServerState:
        """Return the server's state that is the run's result, if the run ends now."""
        server = state.server
        for stage in self.stages.result:
            server = stage.result(server)
        return server

    def new_clients(self, state: RunState[Any]) -> None:
        """Examine the clients that no round asked, and write the rows, whose traffic includes their
        downloads."""
        server = self.final_server(state)
        names = class_names_now(self.backend.drift, state)
        new = NewClients(self.config, self.channel, self.widths(state))
        with self.watch("evaluate"):
            for evaluation in new.examine(self.engine, state, self.models(state, server), names):
                self._write(state, evaluation, new.download_bits(server))

    def _write(self, state: RunState[Any], evaluation: Evaluation, more_bits: int = 0) -> None:
        """Write the rows of an evaluation at the present moment; ``more_bits``: traffic that is not
        in the ledger."""
        at = stamp(state) | {
            "total_bits": state.ledger.total_bits + more_bits,
            "total_up_paper_bits": state.ledger.paper_bits,
        }
        self.tables.write("evaluations", {**at, **evaluation.rows})
        if self.config.setting.task.metrics:
            self.tables.write("metrics", {**at, **evaluation.metrics})

    def newcomer_model(self, state: RunState[Any]) -> ModelState:
        """Return the model that a client which never took part would start from now."""
        return self.models(state, self.final_server(state)).at(1.0)

    def models(self, state: RunState[Any], server: ServerState) -> ExaminedModels:
        """Return the models of all widths that a server's state makes."""
        setting = self.config.setting
        server = setting.algorithm.server.examined(server)
        slicing = setting.algorithm.local.slicing
        collect_statistics = None
        if slicing is not None and slicing.static_norm and setting.task.layout.buffers:
            views = data_views_now(self.backend.drift, state)
            collect_statistics = partial(
                collected, self.config, self.engine, version=state.version, data_views=views
            )
        kind = ExaminedModels
        if slicing is not None:
            from motley.rounds.holdings.slices import SliceModels

            kind = SliceModels
        return kind(setting, server, state.version, memory=self.first, collected=collect_statistics)

    def personal_models(self, state: RunState[Any], server: ServerState) -> Personal | None:
        """Return the models that clients would use now; None where all use the server's, or where
        clients keep theirs elsewhere."""
        setting = self.config.setting
        algorithm = setting.algorithm
        if not self.backend.holds_client_states or not algorithm.personal:
            return None
        tuning = algorithm.tuning
        version = state.version
        lr = self.config.lr(version)
        client_states = state.clients.client_states
        rule = algorithm.local
        download = rule.download(algorithm.server.examined(server))

        def own(client: int, model: ModelState) -> ModelState:
            return of_architecture(model, setting.kind_of(client))

        views = data_views_now(self.backend.drift, state)

        def view_of(ids: Ids) -> DataView | None:
            return None if views is None else views(ids)

        def kept(clients: Sequence[int]) -> Iterator[ModelState]:
            ids = np.array(clients, np.int64)
            chosen = self.engine.choose(ids, download, {}, view_of(ids))
            for k in clients:
                held = {
                    **(split_state(client_states.of([k]).get(k))[0] or {}),
                    **(chosen.get(k) or {}),
                }
                yield own(k, setting.of(k).algorithm.local.examined(download, held or None))

        def jobs(clients: Sequence[int], steps: NDArray[np.int64], rate: float) -> list[Job]:
            view = view_of(np.array(clients, np.int64))
            return [
                Job(
                    client=k,
                    dispatch=version,
                    steps=count,
                    lr=rate,
                    data_view=None if view is None else view[i : i + 1],
                )
                for i, (k, count) in enumerate(zip(clients, steps.tolist(), strict=True))
            ]

        def prepared(clients: Sequence[int]) -> Iterator[ModelState]:
            everybody = rule.measures_before_examination
            adapted = [k for k in clients if everybody or k in client_states]
            states = (client_states.of_algorithm([k])[k] for k in adapted)
            begun = (
                AdaptInputs(
                    own(k, setting.of(k).algorithm.local.start(download, state)), state, download
                )
                for k, state in zip(adapted, states, strict=True)
            )
            models = self.engine.adapt(
                jobs(adapted, np.zeros(len(adapted), np.int64), lr), begun, "examine"
            )
            among = frozenset(adapted)
            return (next(models) if k in among else next(kept([k])) for k in clients)

        anew = rule.personal is not None and rule.personal.before_examination is not None
        used = prepared if anew else kept

        def tuned(clients: Sequence[int]) -> Iterator[ModelState]:
            rate = lr if tuning is None or tuning.lr is None else tuning.lr
            return self.engine.adapt(
                jobs(clients, setting.tuning_steps(np.array(clients, np.int64)), rate),
                map(AdaptInputs, used(clients)),
            )

        return used if tuning is None else tuned


class PreparedOnce:
    """Clients' models for an examination on several kinds of samples: one that trains first does so
    once, as far as memory allows.

    Attributes
    ----------
    most_bytes: of the models that are remembered; those of further clients are prepared anew each
    time.
    """

    most_bytes: ClassVar[int] = 256 << 20

    def __init__(self, personal: Personal) -> None:
        self._personal = personal
        self._models = dict[int, ModelState]()
        self._bytes = 0

    def __call__(self, clients: Sequence[int]) -> Iterator[ModelState]:
        """Return the models of clients, in their order."""
        missing = [k for k in clients if k not in self._models]
        prepared = self._personal(missing) if missing else iter(())
        for k in clients:
            model = self._models[k] if k in self._models else next(prepared)
            spent = self._bytes + model.x.nbytes + model.buffers.nbytes
            if k not in self._models and spent <= self.most_bytes:
                self._models[k], self._bytes = model, spent
            yield model


def better(
    best: BestRound | None,
    scope: str,
    score: float,
    higher: bool,
    round: int,
    model: Callable[[], ModelState],
) -> BestRound | None:
    """Return this round where it is the best so far, else the best one; the untrained model
    (round 0) is none.

    ``higher``: whether more of the score is better. ``model``: returns what is copied where the
    round is the best."""
    is_better = best is None or (score > best.score if higher else score < best.score)
    if not (round and math.isfinite(score) and is_better):
        return best
    model_state = model()
    return BestRound(
        scope,
        score,
        round,
        dataclasses.replace(
            model_state,
            # Cloned: the server goes on in the same memory, and the best round has to keep its
            # model.
            **{part.name: getattr(model_state, part.name).clone() for part in fields(ModelState)},
        ),
    )


def validation_view(federation: Federation) -> Federation | None:
    """Return the federation with the clients' validation parts as their test parts, and no common
    test set; None without any."""
    held = federation.validation
    if not len(held.values):
        return None
    y = federation.y
    if federation.validation_labels is not None:
        y = y.index_copy(0, torch.from_numpy(held.values), federation.validation_labels.to(y))
    return dataclasses.replace(federation, y=y, test=held, global_test=None)


def validate(
    engine: Engine,
    model: ModelState,
    view: Federation,
    per_client: bool,
    personal: Personal | None,
    class_names: Ids | None,
    metrics: Sequence[Metric] = (),
) -> Evaluation:
    """Return the rows of one evaluation on validation samples, in the scopes of validation.

    Parameters
    ----------
    view: from :func:`validation_view`. The others as for :func:`motley.rounds.evaluation.evaluate`.
    """
    # else the engine would take its own, which are clean
    if class_names is None and view.validation_labels is not None:
        class_names = np.broadcast_to(np.arange(view.classes or 0), (len(view), view.classes or 0))
    evaluation = evaluate(
        engine,
        model,
        federation=view,
        per_client=True,
        personal=personal,
        shared=personal is None,
        class_names=class_names,
        metrics=metrics,
    )
    figures = evaluation.rows
    mean, *each = range(len(figures["scope"]))
    clients = figures["client"][each]
    positions = view.positions(view.test.values)
    if positions is None:
        weight = view.test.sizes
    else:
        weight = np.bincount(view.test.owner, positions, minlength=len(view))
    pooled = {
        name: np.average(figures[name][each], weights=weight[clients])
        for name in ("loss", "accuracy")
    }
    pooled_row = {"client": -1, "examples": figures["examples"][mean], **pooled}
    shown = [mean, *(each if per_client else ())]
    columns = {
        name: np.concatenate([[value], figures[name][shown]]) for name, value in pooled_row.items()
    }
    rows = {
        "scope": ["validation", "validation_mean", *["validation_client"] * (len(shown) - 1)],
        **columns,
    }
    return Evaluation(rows, _of_validation(evaluation.metrics, per_client), {})


def _of_validation(metrics: Mapping[str, Any], per_client: bool) -> dict[str, Any]:
    """Return rows of the table ``metrics`` in the scopes of validation, without those of clients
    unless they are asked for."""
    shown = [i for i, scope in enumerate(metrics["scope"]) if per_client or scope != "client"]
    rows = {name: [values[i] for i in shown] for name, values in metrics.items()}
    return {**rows, "scope": [_SCOPES[scope] for scope in rows["scope"]]}


_SCOPES = {"pooled": "validation", "mean": "validation_mean", "client": "validation_client"}


class NewClients:
    """The new clients of a run, with an engine of their own on their samples alone.

    Parameters
    ----------
    config: of the run, whose federation has clients held out.
    channel: sizes of messages.
    widths: share of the model's width that each client holds, ``[K]``; None: all of it.
    """

    def __init__(self, config: RunConfig, channel: Channel, widths: Floats | None) -> None:
        self.config = config
        self.channel = channel
        self.ids = config.setting.task.federation.new_clients
        task = config.setting.task
        self.federation = task.federation.held_out or task.federation
        self.setting = dataclasses.replace(
            config.setting, task=dataclasses.replace(task, federation=self.federation)
        )
        self.widths = np.ones(len(self.ids)) if widths is None else widths[self.ids]
        self.drift = DriftView(
            config.world.drift, self.setting.streams.key("shift").fold("drift"), self.federation
        )

    def examine(
        self, engine: Engine, state: RunState[Any], models: ExaminedModels, names: Ids | None
    ) -> Iterator[Evaluation]:
        """Yield the rows of each number of epochs.

        Parameters
        ----------
        engine: of the run.
        state: of the run at its end.
        models: the final ones.
        names: what each client calls each class, ``[K, C]``; None: classes are what they are.
        """
        own = engine.alike(self.setting)
        schedule = self.config.evaluate
        try:
            begun = self._received(own, state, models)
            jobs = self._jobs(state)
            for epochs in schedule.adapt_epochs:
                evaluation = evaluate(
                    own,
                    model=models.at(1.0),
                    federation=self.federation,
                    per_client=schedule.per_client,
                    personal=_adapted(own, begun, models.download, jobs, epochs),
                    shared=False,
                    class_names=names,
                    metrics=self.setting.task.metrics,
                )
                yield Evaluation(
                    _of_new(evaluation.rows, epochs), _of_new(evaluation.metrics, epochs), {}
                )
        finally:
            own.close()

    def _received(
        self, engine: Engine, state: RunState[Any], models: ExaminedModels
    ) -> Mapping[int, ModelState]:
        """Return the model from which each new client begins: of several, the one that fits its
        training samples best."""
        rule = self.setting.algorithm.local
        if self.setting.task.architectures is not None:
            first = state.clients.client_states.first_of
            return {
                k: of_architecture(
                    self.setting.of(k).algorithm.local.start(models.download, first(k) or None),
                    self.setting.kind_of(k),
                )
                for k in self.ids.tolist()
            }
        view = self.drift.at(self.ids, state.draw_index, state.clients.now_s)
        chosen = engine.choose(self.ids, models.download, {}, view)
        return {
            k: rule.start(models.download, {**(models.memory or {}), **(chosen[k] or {})})
            if k in chosen
            else models.at(float(width))
            for k, width in zip(self.ids.tolist(), self.widths, strict=True)
        }

    def _jobs(self, state: RunState[Any]) -> Mapping[int, Job]:
        """Return the work of one epoch of each new client."""
        algorithm = self.setting.algorithm
        rate = self.config.lr(state.version)
        rate = (
            rate if algorithm.tuning is None or algorithm.tuning.lr is None else algorithm.tuning.lr
        )
        view = self.drift.at(self.ids, state.draw_index, state.clients.now_s)
        offset = (algorithm.local.slicing or Slicing()).offset(state.version)
        batches = self.setting.work.batches(self.federation.seen[self.ids], self.ids).tolist()
        return {
            k: Job(
                client=k,
                dispatch=state.version,
                steps=batches[i],
                lr=rate,
                data_view=None if view is None else view[i : i + 1],
                width=float(self.widths[i]),
                offset=offset,
            )
            for i, k in enumerate(self.ids.tolist())
        }

    def download_bits(self, server: ServerState) -> int:
        """Return the bits of one download of the final model for each new client, with the
        statistics of a table's columns."""
        download = self.setting.algorithm.local.download(server)
        statistics = self.federation.statistics
        bits = self.channel.download_bits(download, self.ids, np.zeros(0, np.int64))
        values = self.setting.algorithm.local.values_down(download, None)
        if values is not None:
            bits = np.full(len(self.ids), VALUE_BITS * values)
        elif (self.widths < 1).any():
            from motley.rounds.holdings.slices import SliceSizes

            bits = bits - SliceSizes(self.setting).saved_bits(self.widths)
        return int((bits + (statistics.down_bits if statistics else 0)).sum())


def _adapted(
    engine: Engine,
    begun: Mapping[int, ModelState],
    download: Tensors,
    jobs: Mapping[int, Job],
    epochs: int,
) -> Personal:
    """Return the function of client ids that yields their models after so many epochs."""

    def personal(clients: Sequence[int]) -> Iterator[ModelState]:
        if not epochs:
            return (begun[k] for k in clients)
        work = [dataclasses.replace(jobs[k], steps=epochs * jobs[k].steps) for k in clients]
        inputs = (AdaptInputs(begun[k], download=download) for k in clients)
        return engine.adapt(work, inputs, "new")

    return personal


def _of_new(rows: Mapping[str, Any], epochs: int) -> dict[str, Any]:
    """Return rows in the scopes of new clients."""
    return {**rows, "scope": [f"{NEW}{scope}_{epochs}" for scope in rows["scope"]]}
