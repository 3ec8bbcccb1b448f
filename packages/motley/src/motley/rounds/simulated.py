"""The simulated backend: clients of a :class:`~motley.world.interfaces.World`, in virtual time.

Time is planned when a cohort is sent out: the steps that each client takes, the bits that travel
and the moment at which each upload arrives are known before anything is trained. Training happens
when the server steps on an upload, so that an upload which is late or lost is never computed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from motley.algorithms.parts import ClientState, Tensors
from motley.core.arrays import Bools, Floats, Ids
from motley.core.components import overrides
from motley.core.keys import Key
from motley.core.last_updates import LastUpdates
from motley.core.records import SIGNALS, Cohort, Outcome
from motley.engines.engine import REPORTED, DataView, Engine, Job, RunSum, Slices, TrainResult
from motley.results.writer import Writer
from motley.rounds import probing
from motley.rounds.aggregation import UploadSum, corrupted
from motley.rounds.backend import ClientBackend, DispatchOrder, Sizes, Uploads
from motley.rounds.client_state import ClientStates
from motley.rounds.data_drift import DriftView, data_views_now
from motley.rounds.engine_events import EngineEvents
from motley.rounds.holdings.holding import Bits, Holding
from motley.rounds.in_flight import InFlight, Landed
from motley.rounds.lies import Lies
from motley.rounds.loop import RoundLoop
from motley.rounds.measured_speeds import GUESS_S, MeasuredSpeeds, steps_in_time
from motley.rounds.planning import LinkLoads, WorkPlanner
from motley.rounds.recalibration import Recalibration, recalibrates
from motley.rounds.round import ReceivedUpload
from motley.rounds.rows import federation_rows
from motley.rounds.run_config import RunConfig
from motley.rounds.stage import PrivateStage, Stage
from motley.rounds.state import RunState
from motley.rounds.stopwatch import Stopwatch
from motley.rounds.upload_pipeline import (
    Allocation,
    UploadPipeline,
    first_states,
    initial_client_state,
    kept_of,
)
from motley.selectors.selector import Selector
from motley.tasks.task import ModelState
from motley.timing.synchrony import ServerStep
from motley.timing.timeline import VirtualClock, probe_s
from motley.transport.ledger import VALUE_BITS, message_bits

__all__ = ["SimulatedBackend", "simulation"]


def simulation(
    config: RunConfig,
    engine: Engine,
    selector: Selector[Any],
    model: ModelState,
    writer: Writer | None = None,
    client_states: ClientStates | None = None,
    last_updates: LastUpdates | None = None,
    more: Sequence[Stage] = (),
    evaluates: bool = True,
) -> RoundLoop:
    """Return the round loop of a simulated federation.

    Parameters
    ----------
    client_states: the store of what clients keep; None: RAM. The others as of
    :class:`~motley.rounds.loop.RoundLoop`."""
    if client_states is None:
        states = ClientStates(initial_client_state(config, model), first_states(config))
    else:
        states = client_states

    def backend(
        pipeline: UploadPipeline, watch: Stopwatch, private: PrivateStage | None
    ) -> tuple[SimulatedBackend, list[Stage]]:
        simulated = SimulatedBackend(
            config=config,
            engine=engine,
            pipeline=pipeline,
            selector=selector,
            client_states=states,
            watch=watch,
        )
        return simulated, own_stages(simulated)

    return RoundLoop(
        config=config,
        engine=engine,
        selector=selector,
        model=model,
        make_backend=backend,
        writer=writer,
        last_updates=last_updates,
        more=more,
        evaluates=evaluates,
    )


@dataclass
class SimulatedClients:
    """What evolves on the clients' side of a simulation.

    Parameters
    ----------
    client_states: what clients keep.
    clock: virtual.
    in_flight: dispatches under way.
    paper_s: the papers' account of time, see :attr:`~motley.rounds.state.BackendState.paper_s`.
    speeds: what was measured of the clients, where the server knows no more
    (:attr:`RunConfig.measured_speeds`).
    steps: accepted local steps of each client, where the task has an order of batches.
    """

    client_states: ClientStates
    clock: VirtualClock = field(default_factory=VirtualClock)
    in_flight: InFlight = field(default_factory=InFlight.empty)
    paper_s: float = 0.0
    speeds: MeasuredSpeeds | None = None
    steps: dict[int, int] = field(default_factory=dict)

    @property
    def now_s(self) -> float:
        """Virtual seconds since the run began."""
        return self.clock.now_s

    @property
    def flying(self) -> InFlight:
        """Everybody under way, arrived or not, dropped ones included: their moments are known
        beforehand."""
        return self.in_flight


State: TypeAlias = RunState[SimulatedClients]
"""The state of a simulation."""


class SimulatedBackend(ClientBackend[SimulatedClients]):
    """Clients of a simulated world.

    Parameters
    ----------
    config: of the run.
    engine: computes local work.
    pipeline: of uploads.
    selector: of the run.
    client_states: where what clients keep is stored.
    watch: the run's stopwatch.
    """

    def __init__(
        self,
        config: RunConfig,
        engine: Engine,
        pipeline: UploadPipeline,
        selector: Selector[Any],
        client_states: ClientStates,
        watch: Stopwatch,
    ) -> None:
        reported = selector.rule.needs().reported
        self.config = config
        self.engine = engine
        self.pipeline = pipeline
        self.watch = watch
        self.setting = config.setting
        self.world = config.world
        self.channel = pipeline.channel
        self.federation = self.setting.task.federation
        self.planner = WorkPlanner(config, reported, kept_of(client_states))
        self.holding = self.planner.holding
        drift = self.world.drift
        if drift.moves_window or drift.renames_classes:
            self.drift = DriftView(drift, self._key("shift").fold("drift"), self.federation)
        self.defence = selector.defence
        self.lies = self._lies()
        measured = config.measured_speeds
        speeds = MeasuredSpeeds.none(len(self.federation)) if measured else None
        self.initial_state = SimulatedClients(client_states, speeds=speeds)
        self._want = (reported & REPORTED) | {"loss", "update_norm"}
        # every client's loss at a version, for links that depend on it
        self._losses: tuple[int, Floats] = (-1, np.zeros(0))

    # ------------------------------------------------------------------------------- before round 1

    def _lies(self) -> Lies | None:
        """Return what dishonest clients claim; None: all are honest."""
        dishonest = self.world.dishonest
        if not dishonest.lies:
            return None
        measured = self.defence is not None and self.defence.measured
        return Lies(dishonest, self._key("fail"), self.planner.examples, measured)

    def newcomers(self, state: State) -> Ids:
        """Return all clients but those held out, at the start of the run."""
        if state.begun:
            return np.zeros(0, np.int64)
        everybody = np.arange(len(self.federation))
        new = self.federation.new_clients
        return np.setdiff1d(everybody, new, assume_unique=True) if len(new) else everybody

    def enrol(self, state: State, ids: Ids, wanted: frozenset[str]) -> Mapping[str, Floats]:
        """Return the wanted enrolment signals and estimates of the planner; bill the numbers that
        clients themselves send."""
        signals = probing.enrolment_signals(self.federation, ids, wanted)
        self.channel.enrol(state.ledger, ids, probing.count_scalars(signals))
        if self.federation.statistics is not None:
            self.channel.exchange_statistics(state.ledger, ids, *self.federation.statistics)
        if wanted - signals.keys() - {"last_layer"}:
            signals = signals | self._estimates(
                state, ids, self.setting.algorithm.local.download(state.server), GUESS_S
            )
        return signals

    def federation_rows(self, state: State) -> Iterator[dict[str, Any]]:
        """Yield one row per client, in blocks: samples, classes, noise, speed and link."""
        return federation_rows(
            self.federation,
            lambda ids: self.planner.local_step_s(ids, 1),
            lambda ids: self._link_mbps(state, ids)[0],
            self.setting.work,
        )

    def sizes(self, state: State) -> Sizes:
        """Return the samples that each client sees at a time, and those that it claims to train on
        in this round."""
        examples = self.planner.examples
        claims = examples if self.lies is None else self.lies.claimed_examples(state.draw_index)
        return Sizes(examples, claims if self.defence is None else self.defence.sizes(claims))

    # ------------------------------------------------------------------- who, and what they measure

    def available(self, state: State) -> Ids:
        """Return the clients that are online, have data and are not in flight; where the synchrony
        asks again, also those whose update has arrived and waits; those that broke off wait for the
        next step, so that there is one."""
        ids = self.planner.with_data
        lines = state.clients.in_flight.timelines
        waits = (
            (lines.arrives_s <= state.clients.now_s)
            & ~lines.dropped
            & self.config.synchrony.asks_again
        )
        busy = lines.client[~waits]
        if len(busy):
            ids = np.setdiff1d(ids, busy, assume_unique=True)
        online = self.world.availability.online(
            self._key("available"), ids, state.draw_index, state.clients.now_s
        )
        return ids[np.flatnonzero(online)]  # several times as fast as by the mask

    def back_s(self, state: State) -> float:
        """Return when the first client with data is online again."""
        now_s = state.clients.now_s
        back_s = self.world.availability.back_s(
            self._key("available"), self.planner.with_data, state.draw_index, now_s
        )
        return back_s if np.isfinite(back_s) else now_s

    def probe(
        self, state: State, ids: Ids, wanted: Mapping[str, int | None], download: Tensors
    ) -> tuple[Ids, Mapping[str, Floats]]:
        """Measure the candidates; forward passes, seconds and bits are charged, and every candidate
        answers."""
        learning = {
            name: batches for name, batches in wanted.items() if SIGNALS[name].kind != "system"
        }
        signals: dict[str, Floats] = {}
        with self.watch("measure"):
            if learning:
                key = self._key("probe").fold(state.draw_index)
                states = self._start_states(state, ids)
                view = self._data_view(state, ids)
                slices = self._slices(state, ids)
                signals = self.engine.measure(
                    ids, download, states, want=learning, key=key, data_view=view, slices=slices
                )
        with self.watch("plan"):
            up, down = self._link_mbps(state, ids)
            system = wanted.keys() - learning.keys()
            estimates = self._estimates(state, ids, download) if system else {}
            spared = self._spared(state, ids, download, "gradient" in signals)
            count = probing.count_scalars(signals)
            bits_down, bits_up = self.channel.probe(
                state.ledger, ids, download, state.version + 1, count=count, saved=spared
            )
            signals |= {name: estimates[name] for name in system}
            batches = probing.passes(learning, self.federation, self.setting.work, ids)
            if learning and self.holding is not None:
                batches += self.holding.probe_batches(ids)
            durations_s = probe_s(
                bits_down=bits_down,
                down_mbps=down,
                batches=batches,
                step_s=self.planner.step_s(ids, state.draw_index),
                bits_up=bits_up,
                up_mbps=up,
            )
            self._advance(state, float(durations_s.max(initial=0.0)))
        return ids, signals

    # ---------------------------------------------------------------------- sending out and waiting

    def _workload(self, state: State, cohort: Cohort) -> Mapping[str, Floats]:
        """Return the work planned for a cohort, before stragglers or a deadline cut it short."""
        links = self._link_mbps(state, cohort.ids)[0]
        work = self.planner.workload(cohort, links, state.draw_index)
        speeds = state.clients.speeds
        if speeds is None:
            return work
        # as a deployment tells it: who never delivered takes no time, and links are not known
        seconds = speeds.seconds[cohort.ids]
        steps = steps_in_time(self.config.synchrony, work["steps"].astype(np.int64), seconds)
        return {
            **work,
            "steps": steps.astype(np.float64),
            "compute_s": np.nan_to_num(seconds[:, 0] * steps),
            "uplink_mbps": np.full(len(steps), np.inf),
        }

    def dispatch(self, state: State, order: DispatchOrder) -> Allocation:
        """Plan the timelines of a cohort and put it in flight."""
        cohort = order.cohort
        ids = order.cohort.ids
        allocation = order.allocate(partial(self._workload, state, cohort))
        clients = state.clients
        planner = self.planner.chosen(cohort)
        holding = planner.holding
        up, down = self._link_mbps(state, ids)
        full_bits = self.channel.download_bits(order.download, ids, self._with_newest(state))
        bits_down = self._bits_down(
            state=state, ids=ids, download=order.download, full_bits=full_bits, holding=holding
        )
        allocated = allocation.bits, allocation.paper_bits
        bits_up, paper_bits = self._bits_up(state, ids, allocated, holding)
        loads = LinkLoads(bits_down, down, bits_up, up)
        measured = None
        if clients.speeds is not None:
            measured = (
                clients.speeds.seconds[ids],
                bits_up / self._measured_bits(state, ids, bits_up),
            )
        lines = planner.timelines(
            cohort=cohort,
            loads=loads,
            dispatch=state.dispatch,
            version=state.version,
            round=state.draw_index,
            now_s=state.clients.now_s,
            extra_steps=allocation.extra_steps,
            measured=measured,
        )
        factor = self.world.failures.upload_factor(self._key("fail"), ids, state.draw_index)
        counted_s = planner.paper_s(lines, allocation.extra_steps, paper_bits, up, state.draw_index)
        own = {
            "theta": allocation.theta,
            "budget": allocation.budget,
            "paper_arrives_s": clients.paper_s + counted_s,
            "bits_down": bits_down,
            "bits_up": bits_up,
            "paper_bits": paper_bits,
            "factor": factor,
            "up_mbps": up,
            "width": 1.0 if holding is None else holding.widths(ids, state.draw_index),
        }
        clients.in_flight = clients.in_flight.plus(lines, {**order.columns, **own})
        self.channel.send(state.ledger, ids, bits_down, state.version + 1)
        return allocation

    def _bits_down(
        self, state: State, ids: Ids, download: Tensors, full_bits: Ids, holding: Holding | None
    ) -> Ids:
        """See :meth:`Holding.bits_down`, of clients that are sent the newest model now."""
        rule = self.setting.algorithm.local
        if rule.values_down(download, None) is None:
            if holding is None:
                return full_bits
            return holding.bits_down(ids, state.draw_index, full_bits)
        states = self.pipeline.algorithm_states(state, ids.tolist())
        values = [rule.values_down(download, states[k]) or 0 for k in ids.tolist()]
        return np.where(full_bits > 0, VALUE_BITS * np.array(values, np.int64), 0)

    def _spared(
        self, state: State, ids: Ids, download: Tensors, gradient: bool
    ) -> tuple[Ids, Ids] | None:
        """See :meth:`Holding.spared`, of clients that are probed now."""
        if self.holding is None:
            return None
        spared = self.holding.spared(ids, state.draw_index, gradient)
        if spared is None or self.setting.algorithm.local.values_down(download, None) is None:
            return spared
        full_bits = np.full(len(ids), message_bits(download))
        return full_bits - self._bits_down(
            state=state, ids=ids, download=download, full_bits=full_bits, holding=self.holding
        ), spared[1]

    def _bits_up(self, state: State, ids: Ids, full_bits: Bits, holding: Holding | None) -> Bits:
        """See :meth:`Holding.bits_up`, of clients that are sent out now."""
        if holding is None:
            return full_bits
        view = self._data_view(state, ids)
        return holding.bits_up(
            channel=self.channel, ids=ids, round=state.draw_index, view=view, full_bits=full_bits
        )

    def _slices(self, state: State, ids: Ids) -> Slices | None:
        """Return the slices of the newest model that these clients hold now; None: the whole
        model."""
        if self.holding is None or not self.holding.cut:
            return None
        widths = self.holding.widths(ids, state.draw_index)
        return Slices(widths, self.holding.offset(state.version))

    def _with_newest(self, state: State) -> Ids:
        """Return the clients that hold the newest model already, because a probe sent it to them in
        this round."""
        probed = self.config.probed(state.selector)
        if any(SIGNALS[name].kind != "system" for name in probed):
            return state.under_way.candidates
        return np.zeros(0, np.int64)

    def wait(self, state: State, until_s: float) -> None:
        """Advance the virtual clock."""
        state.clients.clock.advance(until_s)

    def collect(self, state: State, step: ServerStep, stay: Bools) -> Landed:
        """Take out the rows that end now. A client that is under way is cut: of its upload counts
        what it has sent by now, and the server learns nothing of its seconds, nor that it would
        have dropped out."""
        clients = state.clients
        gone = np.flatnonzero(~stay)
        gone = gone[np.argsort(clients.in_flight.timelines.client[gone], kind="stable")]
        landed = clients.in_flight.take(gone)
        clients.in_flight = clients.in_flight.take(np.flatnonzero(stay))
        lines = landed.timelines
        if clients.speeds is not None:
            # READING: of partial work that comes too late the server learns now, not when it comes
            heard = (lines.arrives_s <= clients.now_s) | self.config.synchrony.limits_work
            self.learn_speeds(state, landed.take(np.flatnonzero(heard)))
        visible = lines.known_until(clients.now_s)
        outcome = np.where(step.accept[gone], Outcome.ACCEPTED, Outcome.LATE).astype(np.int8)
        outcome[visible.dropped] = Outcome.DROPPED
        share = lines.sent_share(clients.now_s)
        columns = dict(landed.columns)
        for name in ("bits_up", "paper_bits"):
            columns[name] = np.floor(share * columns[name]).astype(np.int64)
        clients.paper_s = landed.columns["paper_arrives_s"][outcome == Outcome.ACCEPTED].max(
            initial=clients.paper_s
        )
        landed = InFlight(visible, columns)
        scale = None if step.scale is None else step.scale[gone]
        return Landed(
            dispatches=landed,
            outcome=outcome,
            sent=columns["bits_up"] > 0,
            scale=scale,
            mix=step.mix,
        )

    # ------------------------------------------------------------------------------------- uploads

    def uploads(self, state: State, landed: Landed, rows: Ids, sums: bool = False) -> Uploads:
        """Train the clients of these rows."""
        run_sums = self._sums(state, landed, rows) if sums else None
        return Uploads(self._single(state, landed, rows) if run_sums is None else None, run_sums)

    def _single(
        self, state: State, landed: Landed, rows: Ids
    ) -> Iterator[tuple[int, ReceivedUpload]]:
        """Train the clients of these rows, grouped by model version, and yield (row, upload) in
        order of client id.

        One version streams: an upload can be aggregated and forgotten before the next is trained. A
        client that was sent out twice trains in that order, the second time from what it keeps
        after the first."""
        lines = landed.dispatches.timelines[rows]
        groups = training_groups(lines.client, lines.version)
        if len(groups) == 1:
            yield from zip(
                rows.tolist(), self._train(state, landed.dispatches.take(rows)), strict=True
            )
            return
        waiting = dict[int, ReceivedUpload]()
        clients = state.clients.client_states
        twice = bool(np.any(lines.client[1:] == lines.client[:-1]))
        for chosen in (rows[group] for group in groups):
            trained = self._train(state, landed.dispatches.take(chosen))
            for row, upload in zip(chosen.tolist(), trained, strict=True):
                waiting[row] = upload
                if twice:
                    clients.run_ahead(self.pipeline.kept_after(state, upload))
        clients.fall_back()
        yield from sorted(waiting.items())

    def _train(self, state: State, group: InFlight) -> Iterator[ReceivedUpload]:
        """Train clients that received the same version, and yield each upload as the server decodes
        it."""
        lines = group.timelines
        columns = group.columns
        jobs = self._jobs(state, group)
        results = self._results(state, jobs, int(lines.version[0]))
        if (columns["factor"] != 1.0).any():
            results = map(corrupted, results, columns["factor"].tolist())
        if self.pipeline.plain:
            yield from map(ReceivedUpload, results)
            return
        theta = columns["theta"]
        self.pipeline.begin(lines.client, theta, columns["weight"])
        rows = zip(jobs, theta.tolist(), columns["budget"].tolist(), strict=True)
        for result, (job, share, budget) in zip(results, rows, strict=True):
            yield self.pipeline.compress(state, result, job.dispatch, share, budget)

    def _sums(self, state: State, landed: Landed, rows: Ids) -> Iterator[RunSum] | None:
        """Return the sums of these rows' uploads, where all received one version of the model, no
        client twice, and the engine's workers send them; None elsewhere."""
        steps = landed.dispatches.timelines.steps[rows]
        if landed.mix or self.engine.refuses_sums(steps.tolist()) is not None:
            return None
        group = landed.dispatches.take(rows)
        lines = group.timelines
        columns = group.columns
        algorithm = self.setting.algorithm
        if len(training_groups(lines.client, lines.version)) != 1:
            return None
        scales = None if landed.scale is None else landed.scale[rows]
        added = UploadSum(
            algorithm.aggregator,
            self.channel.checked,
            weights=columns["weight"],
            own_weights=self.config.own_weights(self.sizes(state).claimed[lines.client]),
            factors=columns["factor"],
            scales=scales,
        )
        jobs = self._jobs(state, group)
        states = self.pipeline.algorithm_states(state, lines.client.tolist())
        download = state.downloads[int(lines.version[0])]
        run_sums = self.engine.train_sums(
            jobs=jobs, download=download, client_states=states, want=self._want, reduction=added
        )
        return self.watch.iterate("train", run_sums)

    def _jobs(self, state: State, group: InFlight) -> list[Job]:
        """Return the local work of clients that received the same version."""
        lines = group.timelines
        columns = group.columns
        drift = self.drift
        offset = 0 if self.holding is None else self.holding.offset(int(lines.version[0]))
        views = [None] * len(lines) if drift is None else drift.at_dispatch(group)
        layers = self._curvature_layers(state, group)
        rates = columns["lr"].tolist()
        widths = columns["width"].tolist()
        return [
            Job(
                client=client,
                dispatch=dispatch,
                steps=steps,
                lr=rates[i],
                data_view=views[i],
                layers=layers[i],
                width=widths[i],
                offset=offset,
                earlier_steps=state.clients.steps.get(client, 0),
            )
            for i, (client, dispatch, steps) in enumerate(
                zip(
                    lines.client.tolist(),
                    lines.dispatch.tolist(),
                    lines.steps.tolist(),
                    strict=True,
                )
            )
        ]

    def _curvature_layers(self, state: State, group: InFlight) -> list[tuple[str, ...]]:
        """Return the layers whose curvature each client measures for its compressor."""
        lines = group.timelines
        if self.pipeline.plain:
            return [()] * len(lines)
        theta = group.columns["theta"].tolist()
        return [
            self.pipeline.curvature_layers(state, share, dispatch, client)
            for share, dispatch, client in zip(
                theta, lines.dispatch.tolist(), lines.client.tolist(), strict=True
            )
        ]

    def _results(self, state: State, jobs: list[Job], version: int) -> Iterator[TrainResult]:
        states = self.pipeline.algorithm_states(state, [job.client for job in jobs])
        trained = self.engine.train(jobs, state.downloads[version], states, self._want)
        results = map(self.channel.checked, trained)
        if self.holding is not None:
            results = map(self.holding.cover, results)
        return self.watch.iterate("train", results)

    def commit(
        self,
        state: State,
        landed: Landed,
        accepted: Ids,
        client_states: Mapping[int, ClientState],
    ) -> None:
        """Store what the clients keep from now on."""
        if self.config.setting.task.batches is not None:
            lines = landed.dispatches.timelines
            taken = state.clients.steps
            for client, steps in zip(
                lines.client[accepted].tolist(), lines.steps[accepted].tolist(), strict=True
            ):
                taken[client] = taken.get(client, 0) + steps
        for client, client_state in client_states.items():
            state.clients.client_states.put(client, client_state)

    def pass_along(self, state: State, ids: Ids, batches: Floats, download: Tensors) -> None:
        """Let the time pass that a chain of clients takes, and bill its messages: each receives the
        model, runs so many batches forward, and sends its statistics on."""
        up, down = self._link_mbps(state, ids)
        bits = self.channel.recalibrate(state.ledger, ids, download, state.version + 1)
        step_s = self.planner.step_s(ids, state.draw_index)
        durations_s = probe_s(
            bits_down=bits[0],
            down_mbps=down,
            batches=batches,
            step_s=step_s,
            bits_up=bits[1],
            up_mbps=up,
        )
        self._advance(state, float(durations_s.sum()))

    # ---------------------------------------------------------------------- drift, links, estimates

    def _data_view(self, state: State, ids: Ids) -> DataView | None:
        """Return what these clients see of their data now."""
        views = data_views_now(self.drift, state)
        return None if views is None else views(ids)

    def _link_mbps(self, state: State, ids: Ids) -> tuple[Floats, Floats]:
        """Return the clients' links in this round, megabits a second up and down; at enrolment
        those of round 1.

        A network whose links depend on the clients' losses gets them measured once per version, of
        all clients with data, on the model of that version: the measurement belongs to the
        simulated world, so no client is charged and no time passes."""
        network = self.world.network
        key = self._key("network")
        now = max(state.draw_index, 1)
        down = network.downlink_mbps(key, ids, now)
        wants = network.wants()
        download = state.downloads.get(state.version)
        if not wants or not state.draw_index or download is None:
            return network.uplink_mbps(key, ids, now), down
        if self._losses[0] != state.version:
            losses = np.full(len(self.federation), np.nan)
            clients = self.planner.with_data
            states = self._start_states(state, clients)
            view = self._data_view(state, clients)
            fresh = key.fold("losses", state.version)
            slices = self._slices(state, clients)
            losses[clients] = self.engine.measure(
                clients, download, states, wants, key=fresh, data_view=view, slices=slices
            )["loss"]
            self._losses = (state.version, losses)
        return network.coupled_mbps(key, np.arange(len(self.federation)), now, self._losses[1])[
            ids
        ], down

    def learn_speeds(self, state: State, landed: InFlight) -> None:
        """Take in how long these dispatches took, where the server knows no more of its clients."""
        speeds = state.clients.speeds
        if speeds is None:
            return
        sent = landed.columns["bits_up"]
        full_bits = self._measured_bits(state, landed.timelines.client, sent)
        speeds.learn(landed.timelines, sent, full_bits)

    def _measured_bits(self, state: State, ids: Ids, sent: Ids) -> Ids:
        """Return the bits of the upload whose seconds are kept of each client, ``[n]``: a whole
        one, and of a slice of the model, whose size changes, that which it sends."""
        cut = self.holding is not None and self.holding.cut
        return np.maximum(sent, 1) if cut else self._whole_upload_bits(state, ids)

    def _whole_upload_bits(self, state: State, ids: Ids) -> Ids:
        """Return the bits of each client's upload if it is not compressed, ``[n]``."""
        full_bits = np.full(len(ids), self.channel.upload_bits)
        return self._bits_up(state, ids, (full_bits, full_bits), self.holding)[0]

    def _estimates(
        self, state: State, ids: Ids, download: Tensors, guess_s: float = 0.0
    ) -> dict[str, Floats]:
        """Return the planner's signals of these clients; ``guess_s``: as for
        :meth:`MeasuredSpeeds.estimates`."""
        speeds = state.clients.speeds
        if speeds is not None:
            whole_up = self._whole_upload_bits(state, ids)
            return speeds.estimates(ids, self.planner.full_steps[ids], whole_up, guess_s)
        up, down = self._link_mbps(state, ids)
        full_bits = np.full(len(ids), self.channel.whole_download(download))
        bits_down = self._bits_down(
            state=state, ids=ids, download=download, full_bits=full_bits, holding=self.holding
        )
        bits_up = self._whole_upload_bits(state, ids)
        return probing.estimates(
            bits_down,
            down,
            compute_s=self.planner.full_work_s(ids, state.draw_index),
            up_bits=bits_up,
            up_mbps=up,
        )

    def _start_states(self, state: State, ids: Ids) -> dict[int, ClientState | None]:
        """Return what these clients keep, where what is measured of a model depends on it."""
        algorithm = self.setting.algorithm
        personal = algorithm.local.personal
        own = (personal is not None and personal.starts_own) or algorithm.loss.whole_model
        return self.pipeline.algorithm_states(state, ids) if own else {}

    def _key(self, purpose: str) -> Key:
        return self.setting.streams.key(purpose)

    def _advance(self, state: State, seconds: float) -> None:
        clock = state.clients.clock
        clock.advance(clock.now_s + seconds)


def own_stages(backend: SimulatedBackend) -> list[Stage]:
    """Return the stages that only a simulation has."""
    stages: list[Stage] = [] if backend.lies is None else [backend.lies]
    if recalibrates(backend.config):
        stages.append(Recalibration(backend.config, backend.engine, backend))
    if overrides(backend.engine, Engine, "take_events"):
        stages.append(EngineEvents(backend.engine))
    return stages


def training_groups(clients: Ids, versions: Ids) -> list[Ids]:
    """Return positions of dispatches, grouped so that a group has one model version and no client
    twice.

    Parameters
    ----------
    clients, versions: ``[n]``, by client and, of one client, in order of dispatch, so that versions
    do not fall. A client's earlier dispatch is in an earlier group.

    >>> clients, versions = np.array([3, 3, 3, 7]), np.array([0, 0, 1, 0])
    >>> [group.tolist() for group in training_groups(clients, versions)]
    [[0, 3], [1], [2]]
    """
    if np.all(clients[1:] != clients[:-1]) and np.all(versions[1:] == versions[:-1]):
        return [np.arange(len(clients))] if len(clients) else []
    # how often the same client has trained from the same version before
    again = np.zeros(len(clients), np.int64)
    for at in range(1, len(clients)):
        if clients[at] == clients[at - 1] and versions[at] == versions[at - 1]:
            again[at] = again[at - 1] + 1
    pairs = np.unique(np.stack([versions, again], 1), axis=0)
    return [np.flatnonzero((versions == version) & (again == time)) for version, time in pairs]
