"""The simulated backend: clients of a :class:`~motley.world.interfaces.World`, in virtual time.

Time is planned when a cohort is sent out: the steps that each client takes, the bits that travel
and the moment at which each upload arrives are known before anything is trained. Training happens
when the server steps on an upload, so that an upload which is late or lost is never computed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from motley.algorithms.parts import ClientState, LocalRule, Tensors
from motley.core.arrays import Bools, Floats, Ids
from motley.core.components import overrides
from motley.core.keys import Key
from motley.core.last_updates import LastUpdates
from motley.core.records import SIGNALS, Cohort, Outcome
from motley.engines.engine import REPORTED, DataView, Engine, Job, RunSum, Slices
from motley.results.writer import Writer
from motley.rounds import probing
from motley.rounds.aggregation import UploadSum, corrupted
from motley.rounds.backend import ClientBackend, DispatchOrder, Sizes, Uploads
from motley.rounds.channel import Allocation, Channel
from motley.rounds.client_state import ClientStates
from motley.rounds.data_drift import DriftView
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
from motley.rounds.state import Moment
from motley.rounds.stopwatch import Stopwatch
from motley.rounds.upload_pipeline import (
    UploadPipeline,
    first_states,
    initial_client_state,
    kept_after,
)
from motley.selectors.selector import Selector
from motley.tasks.task import ModelState
from motley.timing.synchrony import ServerStep
from motley.timing.timeline import Timelines, VirtualClock, probe_s
from motley.transport.ledger import VALUE_BITS, message_bits


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
        channel: Channel,
        pipeline: UploadPipeline | None,
        watch: Stopwatch,
        private: PrivateStage | None,
    ) -> tuple[SimulatedBackend, list[Stage]]:
        simulated = SimulatedBackend(
            config=config,
            engine=engine,
            channel=channel,
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
    def paper_now_s(self) -> float:
        """The papers' seconds of the last server step, or of an upload that has come since."""
        lines = self.in_flight.timelines
        here = (lines.arrives_s <= self.now_s) & ~lines.dropped
        seconds: Floats = self.in_flight.columns["paper_arrives_s"][here]
        return float(seconds.max(initial=self.paper_s))

    @property
    def flying(self) -> InFlight:
        """Everybody under way, arrived or not, dropped ones included: their moments are known
        beforehand."""
        return self.in_flight


class SimulatedBackend(ClientBackend[SimulatedClients]):
    """Clients of a simulated world.

    Parameters
    ----------
    config: of the run.
    engine: computes local work.
    channel: sizes and bills messages.
    pipeline: compresses updates; None: they are sent as they are.
    selector: of the run.
    client_states: where what clients keep is stored.
    watch: the run's stopwatch.
    """

    def __init__(
        self,
        config: RunConfig,
        engine: Engine,
        channel: Channel,
        pipeline: UploadPipeline | None,
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
        self.channel = channel
        self.federation = self.setting.task.federation
        self.planner = WorkPlanner(config, reported, client_states.of_algorithm)
        self.holding = self.planner.holding
        drift = self.world.drift
        if drift.moves_window or drift.renames_classes:
            self.drift = DriftView(drift, self._key("shift").fold("drift"), self.federation)
        self.defence = selector.defence
        self.lies = self._lies()
        measured = config.measured_speeds
        speeds = MeasuredSpeeds.none(len(self.federation)) if measured else None
        self.clients = SimulatedClients(client_states, speeds=speeds)
        self._want = (reported & REPORTED) | {"loss", "update_norm"}
        self._knows_some = overrides(self.setting.algorithm.local, LocalRule, "values_down")
        probed = config.probed(selector)
        self._probes_model = any(SIGNALS[name].kind != "system" for name in probed)
        # every client's loss at a version, for links that depend on it
        self._link_signals = self.world.network.wants()
        self._losses: tuple[int, Floats] = (-1, np.zeros(0))

    # ------------------------------------------------------------------------------- before round 1

    def _lies(self) -> Lies | None:
        """Return what dishonest clients claim; None: all are honest."""
        dishonest = self.world.dishonest
        if not dishonest.lies:
            return None
        measured = self.defence is not None and self.defence.measured
        return Lies(dishonest, self._key("fail"), self.planner.examples, measured)

    def newcomers(self, now: Moment) -> Ids:
        """Return all clients but those held out, at the start of the run."""
        if now.begun:
            return np.zeros(0, np.int64)
        everybody = np.arange(len(self.federation))
        new = self.federation.new_clients
        return np.setdiff1d(everybody, new, assume_unique=True) if len(new) else everybody

    def enrol(self, now: Moment, ids: Ids, wanted: frozenset[str]) -> Mapping[str, Floats]:
        """Return the wanted enrolment signals and estimates of the planner; bill the numbers that
        clients themselves send."""
        signals = probing.enrolment_signals(self.federation, ids, wanted)
        self.channel.enrol(ids, probing.count_scalars(signals))
        if self.federation.statistics is not None:
            self.channel.exchange_statistics(ids, *self.federation.statistics)
        if wanted - signals.keys() - {"last_layer"}:
            signals = signals | self._estimates(
                now, ids, self.setting.algorithm.local.download(now.server), GUESS_S
            )
        return signals

    def federation_rows(self, now: Moment) -> Iterator[dict[str, Any]]:
        """Yield one row per client, in blocks: samples, classes, noise, speed and link."""
        return federation_rows(
            self.federation,
            lambda ids: self.planner.local_step_s(ids, 1),
            lambda ids: self._link_mbps(now, ids)[0],
            self.setting.work,
        )

    def sizes(self, now: Moment) -> Sizes:
        """Return the samples that each client sees at a time, and those that it claims to train on
        in this round."""
        examples = self.planner.examples
        claims = examples if self.lies is None else self.lies.claimed_examples(now.draw_index)
        return Sizes(examples, claims if self.defence is None else self.defence.sizes(claims))

    # ------------------------------------------------------------------- who, and what they measure

    def available(self, now: Moment) -> Ids:
        """Return the clients that are online, have data and are not in flight."""
        ids = self.planner.with_data
        flying = self.clients.in_flight.timelines
        if len(flying):
            ids = np.setdiff1d(ids, self._busy(flying), assume_unique=True)
        online = self.world.availability.online(
            self._key("available"), ids, now.draw_index, self.clients.now_s
        )
        return ids[np.flatnonzero(online)]  # several times as fast as by the mask

    def _busy(self, flying: Timelines) -> Ids:
        """Return the clients in flight that are not asked; where the synchrony asks again, all but
        those whose update has arrived and waits. Those that broke off wait for the next step, so
        that there is one."""
        if not self.config.synchrony.asks_again:
            return flying.client
        waits = (flying.arrives_s <= self.clients.now_s) & ~flying.dropped
        return flying.client[~waits]

    def back_s(self, now: Moment) -> float:
        """Return when the first client with data is online again."""
        now_s = self.clients.now_s
        back_s = self.world.availability.back_s(
            self._key("available"), self.planner.with_data, now.draw_index, now_s
        )
        return back_s if np.isfinite(back_s) else now_s

    def probe(
        self, now: Moment, ids: Ids, wanted: Mapping[str, int | None], download: Tensors
    ) -> tuple[Ids, Mapping[str, Floats]]:
        """Measure the candidates; forward passes, seconds and bits are charged, and every candidate
        answers."""
        learning = {
            name: batches for name, batches in wanted.items() if SIGNALS[name].kind != "system"
        }
        signals: dict[str, Floats] = {}
        with self.watch("measure"):
            if learning:
                key = self._key("probe").fold(now.draw_index)
                states = self._start_states(ids)
                view = self._data_view(now, ids)
                slices = self._slices(now, ids)
                signals = self.engine.measure(
                    ids, download, states, want=learning, key=key, data_view=view, slices=slices
                )
        with self.watch("plan"):
            up, down = self._link_mbps(now, ids)
            system = wanted.keys() - learning.keys()
            estimates = self._estimates(now, ids, download) if system else {}
            spared = self._spared(now, ids, download, "gradient" in signals)
            count = probing.count_scalars(signals)
            bits_down, bits_up = self.channel.probe(
                ids, download, now.version + 1, count=count, saved=spared
            )
            signals |= {name: estimates[name] for name in system}
            batches = probing.passes(learning, self.federation, self.setting.work, ids)
            if learning and self.holding is not None:
                batches += self.holding.probe_batches(ids)
            durations_s = probe_s(
                bits_down=bits_down,
                down_mbps=down,
                batches=batches,
                step_s=self.planner.step_s(ids, now.draw_index),
                bits_up=bits_up,
                up_mbps=up,
            )
            self._advance(float(durations_s.max(initial=0.0)))
        return ids, signals

    # ---------------------------------------------------------------------- sending out and waiting

    def _workload(self, now: Moment, cohort: Cohort) -> Mapping[str, Floats]:
        """Return the work planned for a cohort, before stragglers or a deadline cut it short."""
        links = self._link_mbps(now, cohort.ids)[0]
        work = self.planner.workload(cohort, links, now.draw_index)
        speeds = self.clients.speeds
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

    def dispatch(self, now: Moment, order: DispatchOrder) -> Allocation:
        """Plan the timelines of a cohort and put it in flight."""
        cohort = order.cohort
        ids = order.cohort.ids
        allocation = order.allocate(partial(self._workload, now, cohort))
        clients = self.clients
        planner = self.planner.chosen(cohort)
        holding = planner.holding
        up, down = self._link_mbps(now, ids)
        # a probe has sent it to candidates in this round
        with_newest = now.candidates if self._probes_model else now.candidates[:0]
        bits_down = self.channel.download_bits(order.download, ids, with_newest)
        bits_up, paper_bits = allocation.bits, allocation.paper_bits
        if self._knows_some or holding is not None:
            bits_down = self._bits_down(
                now=now, ids=ids, download=order.download, full_bits=bits_down, holding=holding
            )
            bits_up, paper_bits = self._bits_up(now, ids, (bits_up, paper_bits), holding)
        loads = LinkLoads(bits_down, down, bits_up, up)
        speeds = clients.speeds
        lines = planner.timelines(
            cohort=cohort,
            loads=loads,
            dispatch=self.config.dispatch_numbers(now.dispatch, now.draw_index, ids),
            version=now.version,
            round=now.draw_index,
            now_s=self.clients.now_s,
            extra_steps=allocation.extra_steps,
            measured=None if speeds is None else self._measured(speeds, now, ids, bits_up),
        )
        factor = self.world.failures.upload_factor(self._key("fail"), ids, now.draw_index)
        counted_s = planner.paper_s(lines, allocation.extra_steps, paper_bits, up, now.draw_index)
        own = {
            "theta": allocation.theta,
            "budget": allocation.budget,
            "paper_arrives_s": clients.paper_now_s + counted_s,
            "bits_down": bits_down,
            "bits_up": bits_up,
            "paper_bits": paper_bits,
            "factor": factor,
            "up_mbps": up,
            "width": 1.0 if holding is None else holding.widths(ids, now.draw_index),
        }
        clients.in_flight = clients.in_flight.plus(lines, {**order.columns, **own})
        self.channel.send(ids, bits_down, now.version + 1)
        return allocation

    def _bits_down(
        self, now: Moment, ids: Ids, download: Tensors, full_bits: Ids, holding: Holding | None
    ) -> Ids:
        """See :meth:`Holding.bits_down`, of clients that are sent the newest model now."""
        if not self._knows_some:
            if holding is None:
                return full_bits
            return holding.bits_down(ids, now.draw_index, full_bits)
        rule = self.setting.algorithm.local
        states = self.clients.client_states.of_algorithm(ids.tolist())
        values = [rule.values_down(download, states[k]) or 0 for k in ids.tolist()]
        return np.where(full_bits > 0, VALUE_BITS * np.array(values, np.int64), 0)

    def _spared(
        self, now: Moment, ids: Ids, download: Tensors, gradient: bool
    ) -> tuple[Ids, Ids] | None:
        """See :meth:`Holding.spared`, of clients that are probed now."""
        if self.holding is None:
            return None
        spared = self.holding.spared(ids, now.draw_index, gradient)
        if spared is None or not self._knows_some:
            return spared
        full_bits = np.full(len(ids), message_bits(download))
        return full_bits - self._bits_down(
            now=now, ids=ids, download=download, full_bits=full_bits, holding=self.holding
        ), spared[1]

    def _bits_up(self, now: Moment, ids: Ids, full_bits: Bits, holding: Holding | None) -> Bits:
        """See :meth:`Holding.bits_up`, of clients that are sent out now."""
        if holding is None:
            return full_bits
        view = self._data_view(now, ids)
        return holding.bits_up(
            channel=self.channel, ids=ids, round=now.draw_index, view=view, full_bits=full_bits
        )

    def _slices(self, now: Moment, ids: Ids) -> Slices | None:
        """Return the slices of the newest model that these clients hold now; None: the whole
        model."""
        if self.holding is None or not self.holding.cut:
            return None
        widths = self.holding.widths(ids, now.draw_index)
        return Slices(widths, self.holding.offset(now.version))

    def wait(self, now: Moment, until_s: float) -> None:
        """Advance the virtual clock."""
        self.clients.clock.advance(until_s)

    def collect(self, now: Moment, step: ServerStep, stay: Bools) -> Landed:
        """Take out the rows that end now."""
        clients = self.clients
        gone = np.flatnonzero(~stay)
        gone = gone[np.argsort(clients.in_flight.timelines.client[gone], kind="stable")]
        landed = clients.in_flight.take(gone)
        clients.in_flight = clients.in_flight.take(np.flatnonzero(stay))
        lines = landed.timelines
        if clients.speeds is not None:
            # READING: of partial work that comes too late the server learns now, not when it comes
            heard = (lines.arrives_s <= clients.now_s) | self.config.synchrony.limits_work
            self.learn_speeds(now, landed.take(np.flatnonzero(heard)))
        if (lines.dropped | (lines.arrives_s > clients.now_s)).any():
            landed = _cut(landed, clients.now_s)
        outcome = np.where(step.accept[gone], Outcome.ACCEPTED, Outcome.LATE).astype(np.int8)
        outcome[landed.timelines.dropped] = Outcome.DROPPED
        clients.paper_s = landed.columns["paper_arrives_s"][outcome == Outcome.ACCEPTED].max(
            initial=clients.paper_s
        )
        return Landed(
            dispatches=landed,
            outcome=outcome,
            sent=landed.columns["bits_up"] > 0,
            scale=None if step.scale is None else step.scale[gone],
            mix=step.mix,
        )

    # ------------------------------------------------------------------------------------- uploads

    def uploads(self, now: Moment, landed: Landed, rows: Ids, sums: bool = False) -> Uploads:
        """Train the clients of these rows.

        Of one version an upload can be aggregated and forgotten before the next is trained."""
        if sums:
            run_sums = self._sums(now, landed, rows)
            if run_sums is not None:
                return Uploads(None, run_sums)
        group = landed.dispatches.take(rows)
        if not _aligned(group.timelines):
            return Uploads(self._by_version(now, group, rows))
        return Uploads(zip(rows.tolist(), self._train(now, group), strict=True))

    def _by_version(
        self, now: Moment, landed: InFlight, rows: Ids
    ) -> Iterator[tuple[int, ReceivedUpload]]:
        """Train clients by model version, and yield (row, upload) in order of client id. A client
        that was sent out twice trains in that order, the second time from what it keeps after the
        first."""
        lines = landed.timelines
        waiting = dict[int, ReceivedUpload]()
        states = self.clients.client_states
        twice = bool(np.any(lines.client[1:] == lines.client[:-1]))
        for group in training_groups(lines.client, lines.version):
            trained = self._train(now, landed.take(group))
            for row, upload in zip(rows[group].tolist(), trained, strict=True):
                waiting[row] = upload
                if twice:
                    states.run_ahead(kept_after(self.pipeline, states, upload))
        states.fall_back()
        yield from sorted(waiting.items())

    def _train(self, now: Moment, group: InFlight) -> Iterator[ReceivedUpload]:
        """Train clients that received the same version, and yield each upload as the server decodes
        it."""
        lines = group.timelines
        factors = group.columns["factor"]
        jobs = self._jobs(now, group)
        states = self.clients.client_states.of_algorithm(lines.client.tolist())
        download = now.downloads[int(lines.version[0])]
        results = map(self.channel.checked, self.engine.train(jobs, download, states, self._want))
        if self.holding is not None:
            results = map(self.holding.cover, results)
        trained = self.watch.iterate("train", results)
        if (factors != 1.0).any():
            trained = map(corrupted, trained, factors.tolist())
        if self.pipeline is None:
            return map(ReceivedUpload, trained)
        return self.pipeline.compressed(self.clients.client_states, trained, group)

    def _sums(self, now: Moment, landed: Landed, rows: Ids) -> Iterator[RunSum] | None:
        """Return the sums of these rows' uploads, where all received one version of the model, no
        client twice, and the engine's workers send them; None elsewhere."""
        steps = landed.dispatches.timelines.steps[rows]
        if landed.mix or self.engine.refuses_sums(steps.tolist()) is not None:
            return None
        group = landed.dispatches.take(rows)
        lines = group.timelines
        columns = group.columns
        algorithm = self.setting.algorithm
        if not _aligned(lines):
            return None
        scales = None if landed.scale is None else landed.scale[rows]
        added = UploadSum(
            algorithm.aggregator,
            self.channel.checked,
            weights=columns["weight"],
            own_weights=self.config.own_weights(self.sizes(now).claimed[lines.client]),
            factors=columns["factor"],
            scales=scales,
        )
        jobs = self._jobs(now, group)
        states = self.clients.client_states.of_algorithm(lines.client.tolist())
        download = now.downloads[int(lines.version[0])]
        run_sums = self.engine.train_sums(
            jobs=jobs, download=download, client_states=states, want=self._want, reduction=added
        )
        return self.watch.iterate("train", run_sums)

    def _jobs(self, now: Moment, group: InFlight) -> list[Job]:
        """Return the local work of clients that received the same version."""
        lines = group.timelines
        columns = group.columns
        taken = self.clients.steps
        jobs = [
            Job(
                client=client,
                dispatch=dispatch,
                steps=steps,
                lr=lr,
                width=width,
                earlier_steps=taken.get(client, 0),
            )
            for client, dispatch, steps, lr, width in zip(
                lines.client.tolist(),
                lines.dispatch.tolist(),
                lines.steps.tolist(),
                columns["lr"].tolist(),
                columns["width"].tolist(),
                strict=True,
            )
        ]
        if self.holding is not None:
            offset = self.holding.offset(int(lines.version[0]))
            jobs = [dataclasses.replace(job, offset=offset) for job in jobs]
        if self.drift is not None:
            views = zip(jobs, self.drift.at_dispatch(group), strict=True)
            jobs = [dataclasses.replace(job, data_view=view) for job, view in views]
        if self.pipeline is None:
            return jobs
        return self.pipeline.with_curvature(self.clients.client_states, jobs, columns["theta"])

    def commit(
        self, landed: Landed, accepted: Ids, client_states: Mapping[int, ClientState]
    ) -> None:
        """Store what the clients keep from now on."""
        if self.setting.task.batches is not None:
            self._count_steps(landed.dispatches.timelines[accepted])
        for client, client_state in client_states.items():
            self.clients.client_states.put(client, client_state)

    def _count_steps(self, accepted: Timelines) -> None:
        """Count accepted local steps, after which the task's order of batches goes on."""
        taken = self.clients.steps
        for client, steps in zip(accepted.client.tolist(), accepted.steps.tolist(), strict=True):
            taken[client] = taken.get(client, 0) + steps

    def pass_along(self, now: Moment, ids: Ids, batches: Floats, download: Tensors) -> None:
        """Let the time pass that a chain of clients takes, and bill its messages: each receives the
        model, runs so many batches forward, and sends its statistics on."""
        up, down = self._link_mbps(now, ids)
        bits = self.channel.recalibrate(ids, download, now.version + 1)
        step_s = self.planner.step_s(ids, now.draw_index)
        durations_s = probe_s(
            bits_down=bits[0],
            down_mbps=down,
            batches=batches,
            step_s=step_s,
            bits_up=bits[1],
            up_mbps=up,
        )
        self._advance(float(durations_s.sum()))

    # ---------------------------------------------------------------------- drift, links, estimates

    def _data_view(self, now: Moment, ids: Ids) -> DataView | None:
        """Return what these clients see of their data now."""
        if self.drift is None:
            return None
        return self.drift.at(ids, now.draw_index, self.clients.now_s)

    def _link_mbps(self, now: Moment, ids: Ids) -> tuple[Floats, Floats]:
        """Return the clients' links in this round, megabits a second up and down; at enrolment
        those of round 1."""
        network = self.world.network
        key = self._key("network")
        round_index = max(now.draw_index, 1)
        down = network.downlink_mbps(key, ids, round_index)
        if self._link_signals and now.draw_index and now.version in now.downloads:
            losses = self._measured_losses(now, key)
            everybody = np.arange(len(self.federation))
            return network.coupled_mbps(key, everybody, round_index, losses)[ids], down
        return network.uplink_mbps(key, ids, round_index), down

    def _measured_losses(self, now: Moment, key: Key) -> Floats:
        """Return all clients' losses ``[K]``, NaN without data, for links that depend on them,
        measured once per version of the model: the measurement belongs to the simulated world, so
        no client is charged and no time passes."""
        if self._losses[0] != now.version:
            losses = np.full(len(self.federation), np.nan)
            clients = self.planner.with_data
            losses[clients] = self.engine.measure(
                clients,
                now.downloads[now.version],
                self._start_states(clients),
                want=self._link_signals,
                key=key.fold("losses", now.version),
                data_view=self._data_view(now, clients),
                slices=self._slices(now, clients),
            )["loss"]
            self._losses = (now.version, losses)
        return self._losses[1]

    def learn_speeds(self, now: Moment, landed: InFlight) -> None:
        """Take in how long these dispatches took, where the server knows no more of its clients."""
        speeds = self.clients.speeds
        if speeds is None:
            return
        sent = landed.columns["bits_up"]
        full_bits = self._measured_bits(now, landed.timelines.client, sent)
        speeds.learn(landed.timelines, sent, full_bits)

    def _measured(
        self, speeds: MeasuredSpeeds, now: Moment, ids: Ids, sent: Ids
    ) -> tuple[Floats, Floats]:
        """Return what the server knows of clients' seconds, and the share of a whole upload that
        each sends, ``[n]``."""
        return speeds.seconds[ids], sent / self._measured_bits(now, ids, sent)

    def _measured_bits(self, now: Moment, ids: Ids, sent: Ids) -> Ids:
        """Return the bits of the upload whose seconds are kept of each client, ``[n]``: a whole
        one, and of a slice of the model, whose size changes, that which it sends."""
        cut = self.holding is not None and self.holding.cut
        return np.maximum(sent, 1) if cut else self._whole_upload_bits(now, ids)

    def _whole_upload_bits(self, now: Moment, ids: Ids) -> Ids:
        """Return the bits of each client's upload if it is not compressed, ``[n]``."""
        full_bits = np.full(len(ids), self.channel.upload_bits)
        return self._bits_up(now, ids, (full_bits, full_bits), self.holding)[0]

    def _estimates(
        self, now: Moment, ids: Ids, download: Tensors, guess_s: float = 0.0
    ) -> dict[str, Floats]:
        """Return the planner's signals of these clients; ``guess_s``: as for
        :meth:`MeasuredSpeeds.estimates`."""
        speeds = self.clients.speeds
        if speeds is not None:
            whole_up = self._whole_upload_bits(now, ids)
            return speeds.estimates(ids, self.planner.full_steps[ids], whole_up, guess_s)
        up, down = self._link_mbps(now, ids)
        full_bits = np.full(len(ids), self.channel.whole_download(download))
        bits_down = self._bits_down(
            now=now, ids=ids, download=download, full_bits=full_bits, holding=self.holding
        )
        bits_up = self._whole_upload_bits(now, ids)
        return probing.estimates(
            down_bits=bits_down,
            down_mbps=down,
            compute_s=self.planner.full_work_s(ids, now.draw_index),
            up_bits=bits_up,
            up_mbps=up,
        )

    def _start_states(self, ids: Ids) -> dict[int, ClientState | None]:
        """Return what these clients keep, where what is measured of a model depends on it."""
        algorithm = self.setting.algorithm
        personal = algorithm.local.personal
        own = (personal is not None and personal.starts_own) or algorithm.loss.whole_model
        return self.clients.client_states.of_algorithm(ids.tolist()) if own else {}

    def _key(self, purpose: str) -> Key:
        return self.setting.streams.key(purpose)

    def _advance(self, seconds: float) -> None:
        clock = self.clients.clock
        clock.advance(clock.now_s + seconds)


def own_stages(backend: SimulatedBackend) -> list[Stage]:
    """Return the stages that only a simulation has."""
    stages: list[Stage] = [] if backend.lies is None else [backend.lies]
    if recalibrates(backend.config):
        stages.append(Recalibration(backend.config, backend.engine, backend))
    if overrides(backend.engine, Engine, "take_events"):
        stages.append(EngineEvents(backend.engine))
    return stages


def _cut(landed: InFlight, now_s: float) -> InFlight:
    """Return dispatches with what there is of them now. A client that is under way is cut: of its
    upload counts what it has sent, and the server learns nothing of its seconds, nor that it would
    have dropped out."""
    share = landed.timelines.sent_share(now_s)
    cut = {
        name: np.floor(share * landed.columns[name]).astype(np.int64)
        for name in ("bits_up", "paper_bits")
    }
    return InFlight(landed.timelines.known_until(now_s), {**landed.columns, **cut})


def _aligned(lines: Timelines) -> bool:
    """Whether dispatches, by client, are of one model version and of no client twice."""
    return (
        len(lines) > 0
        and bool(np.all(lines.client[1:] != lines.client[:-1]))
        and bool(np.all(lines.version == lines.version[0]))
    )


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
    if not len(clients):
        return []
    # how often the same client has trained from the same version before
    again = np.zeros(len(clients), np.int64)
    for at in range(1, len(clients)):
        if clients[at] == clients[at - 1] and versions[at] == versions[at - 1]:
            again[at] = again[at - 1] + 1
    pairs = np.unique(np.stack([versions, again], 1), axis=0)
    return [np.flatnonzero((versions == version) & (again == time)) for version, time in pairs]
