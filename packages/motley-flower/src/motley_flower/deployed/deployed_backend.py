"""The deployed backend: real clients, reached by messages, in wall time.

What differs from a simulation:

    a simulation plans when every       here a client in flight arrives never, until its answer
    upload arrives                      is here
    it waits by advancing a clock       here it waits for messages, never beyond a limit
    it knows which clients fail         here a client is lost when its node says so, or when its
                                        time is up
    client states lie in its store      here they lie with the clients; the server knows which
                                        upload it accepted last

A client that is lost leaves the synchrony's view at once and is reported with the next server step,
so that no deadline is waited for in vain; with no client left a round lasts ``idle_s``. A client
whose upload was cancelled is not asked again before it has answered, or its time is up.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from typing_extensions import override

from motley.algorithms.parts import ClientState, Tensors
from motley.core.arrays import Bools, Floats, Ids
from motley.core.claims import with_values
from motley.core.errors import CodecError, ConfigError
from motley.core.outliers import excessive
from motley.core.records import SIGNALS, Cohort, Outcome, Reports
from motley.core.saved_state import FIXED, restore_fields
from motley.engines.engine import TrainResult
from motley.rounds.backend import ClientBackend, DispatchOrder, Sizes, Uploads
from motley.rounds.channel import Allocation, Channel
from motley.rounds.client_state import ClientStates
from motley.rounds.in_flight import InFlight, Landed
from motley.rounds.measured_speeds import GUESS_S, steps_in_time
from motley.rounds.round import LandedReports, ReceivedUpload, Round
from motley.rounds.run_config import RunConfig
from motley.rounds.stage import Blamed, Stage
from motley.rounds.state import Moment, RunState
from motley.timing.synchrony import ServerStep
from motley_flower.deployed.client_registry import ClientRegistry, Limits
from motley_flower.deployed.dispatches import DeployedDispatch, landed_table, waiting_table
from motley_flower.deployed.grid_transport import Reply, WaitingTransport
from motley_flower.deployed.incidents import in_a_line
from motley_flower.deployed.measured_ranks import MeasuredSlices
from motley_flower.deployed.private_plan import plan_of
from motley_flower.deployed.protocol import pack
from motley_flower.deployed.ranks import sent_part
from motley_flower.deployed.request_codec import RequestCodec
from motley_flower.messages import SHARE, failure_of_app

if TYPE_CHECKING:
    from motley_flower.deployed.secure_rounds import DeployedSums
    from motley_privacy.private_rounds import PrivateRounds

_LOG = logging.getLogger("motley.flower")


@dataclass
class DeployedClients:
    """What evolves on the clients' side of a deployment.

    Parameters
    ----------
    registry: the clients that were met.
    client_states: only the initial state of every client; what clients keep lies with them.
    now_s: the moment of the last event; between two events no time passes.
    failed: while nobody has delivered, the clients whose app failed, by how it did.
    draws: the hash chain of verified draws, and what the clients agreed on; empty without them.
    summed: the cohorts whose sums the server knows, under secure aggregation.
    paper_s: none, for time is real.
    in_flight: sent out, not answered or waiting for the server's step.
    ended: lost or rejected since the last step.
    cancelled: the server no longer waits for them, and they have not answered.
    landed: those of the current step.
    accepted: client -> number of its last accepted dispatch.
    seen: clients that were connected at the last look.
    """

    registry: ClientRegistry
    client_states: ClientStates = field(metadata=FIXED)
    now_s: float = 0.0
    paper_s: float = field(default=math.nan, metadata=FIXED)
    in_flight: list[DeployedDispatch] = field(default_factory=list)
    ended: list[DeployedDispatch] = field(default_factory=list, metadata=FIXED)
    cancelled: list[DeployedDispatch] = field(default_factory=list, metadata=FIXED)
    landed: list[DeployedDispatch] = field(default_factory=list, metadata=FIXED)
    accepted: dict[int, int] = field(default_factory=dict)
    seen: frozenset[int] = field(default=frozenset(), metadata=FIXED)
    failed: dict[str, set[int]] = field(default_factory=dict, metadata=FIXED)
    draws: bytes = b""
    summed: list[tuple[int, ...]] = field(default_factory=list)

    @property
    def flying(self) -> InFlight:
        """Everybody who was sent out, is not lost, and whose upload the server has not taken
        yet."""
        return waiting_table(self.in_flight)

    @property
    def busy(self) -> set[int]:
        """Clients that cannot be asked: in flight, cancelled without an answer, or lost since the
        last step."""
        return {dispatch.client for dispatch in (*self.in_flight, *self.ended, *self.cancelled)}

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Take over what was saved. A server that starts again finds none of its messages: the
        clients in flight are dropped."""
        restore_fields(self, saved)
        for dispatch in self.in_flight:
            dispatch.outcome, dispatch.arrives_s = Outcome.DROPPED, self.now_s
            self.registry.incidents.note(
                dispatch.client, "lost", "the server was started again", dispatch.dispatch
            )
        self.in_flight, self.ended = [], self.in_flight


State: TypeAlias = RunState[DeployedClients]
"""The state of a deployment."""


class DeployedBackend(ClientBackend[DeployedClients]):
    """Clients that answer messages.

    Parameters
    ----------
    config: of the run.
    channel: sizes and bills messages.
    codec: writes requests and reads answers.
    transport: carries them.
    limits: of waiting.
    clients: the state before round 1.
    sums: secure aggregation; None: uploads are read one by one.
    private: of a private run; None: nothing is private.
    """

    holds_client_states = False
    simulated = False

    def __init__(
        self,
        config: RunConfig,
        channel: Channel,
        codec: RequestCodec,
        transport: WaitingTransport,
        limits: Limits,
        clients: DeployedClients,
        sums: DeployedSums | None = None,
        private: PrivateRounds | None = None,
    ) -> None:
        self.config = config
        self.setting = config.setting
        self.channel = channel
        self.codec = codec
        self.transport = transport
        self.limits = limits
        self.clients = clients
        self.sums = sums
        self.private = private
        self._ready = False
        # the model sent last, and its bytes by the share of the ranks that they hold
        self._packed: tuple[Tensors, dict[float, bytes]] = ({}, {})
        slicing = self.setting.algorithm.local.slicing
        if slicing is None:
            self.slices = None
        else:
            self.slices = MeasuredSlices(self.setting, config.world, clients.registry)
        self.holding = self.slices

    # ---------------------------------------------------------------------- which clients there are

    def newcomers(self, now: Moment) -> Ids:
        """Ask connected clients that were never met what they have; return those whose answers are
        here. At first, wait for the population or, when a deployment goes on, for the clients that
        it knows."""
        clients = self.clients
        if self._ready:
            new = clients.registry.meet(self.channel.ledger, now.version + 1)
            self._tick(clients)
            return new
        self._ready = True
        self._tick(clients)
        new = clients.registry.gather(self.channel.ledger, now.version + 1 if now.begun else 0)
        self._tick(clients)
        return new if now.begun else np.flatnonzero(clients.registry.met)

    def enrol(self, now: Moment, ids: Ids, wanted: frozenset[str]) -> Mapping[str, Floats]:
        """Return what these clients reported when they were met, and estimates of their speed."""
        registry = self.clients.registry
        steps = self.setting.work.total(registry.examples[ids])
        full_bits = self._whole_upload_bits(registry.trained[ids])
        estimates = registry.estimates(ids, steps, full_bits, GUESS_S)
        reported = {name: value[ids] for name, value in registry.signals.items()}
        if self.private is not None:
            self.private.account.asked(self.codec.enrolled, ids)
        if "num_examples" in reported:
            sizes = reported["num_examples"][:, 0]
        else:
            sizes = registry.counted[ids].astype(np.float64)
        return {**estimates, **reported, "num_examples": sizes}

    def federation_rows(self, now: Moment) -> Iterator[dict[str, Any]]:
        """Yield one row per client met, in one block: its number of samples and, where it reported
        them, its labels; neither in a private run."""
        registry = self.clients.registry
        met = np.flatnonzero(registry.met)
        if self.private is not None:
            yield {"client": met, "labels": np.zeros((len(met), 0), np.int64)}
            return
        reported = registry.signals.get("label_histogram")
        if reported is None:
            labels = np.zeros((len(met), 0), np.int64)
        else:
            labels = reported[met].astype(np.int64)
        yield {"client": met, "num_train": registry.examples[met], "labels": labels}

    def sizes(self, now: Moment) -> Sizes:
        """Return the numbers of training samples: 0 where a client was never met, 1 where they are
        private; and those by which updates are weighed: each client's own word, capped by those of
        the others."""
        registry = self.clients.registry
        return Sizes(registry.examples, registry.counted)

    def available(self, now: Moment) -> Ids:
        """Return the clients that are connected, met, have data, and are neither in flight, lost
        since the last step, nor asked anew which share of the ranks they hold."""
        clients = self.clients
        ids = clients.registry.answering()
        clients.seen = self.transport.present(fresh=False)
        busy = np.isin(ids, list(clients.busy | clients.registry.unsure))
        return ids[
            (self.setting.work.total(clients.registry.examples[ids]) > 0)
            & clients.registry.met[ids]
            & ~busy
        ]

    def back_s(self, now: Moment) -> float:
        """Return the present as soon as a client can be asked, else the end of the wait for one."""
        if len(self.available(now)):
            return self.clients.now_s
        return now.sent_s + self.limits.work_s

    def transcript(self) -> str | None:
        """Return what was published of verified draws, for
        :func:`~motley_flower.secure.verifiable_draws.verify_draws`; None without them."""
        draws = self.clients.draws
        return self.sums.transcript(draws) if self.sums is not None and draws else None

    def probe(
        self, now: Moment, ids: Ids, wanted: Mapping[str, int | None], download: Tensors
    ) -> tuple[Ids, Mapping[str, Floats]]:
        """Send the model to the candidates and wait for what they measure; candidates that do not
        answer are left out."""
        clients = self.clients
        registry = self.clients.registry
        learning = {
            name: batches for name, batches in wanted.items() if SIGNALS[name].kind != "system"
        }
        measured: dict[int, Mapping[str, Floats]] = {int(client): {} for client in ids}
        if learning:
            widths = dict(zip(ids.tolist(), self._held(now, Cohort(ids)).tolist(), strict=True))
            accepted = clients.accepted
            if self.private is not None:
                self.private.account.asked(learning, ids)
            orders = {
                client: self.codec.probe(
                    clients.registry.run,
                    client,
                    round=now.draw_index,
                    accepted=accepted.get(client, -1),
                    wanted=learning,
                    model=self._model(now, download, widths[client]),
                    width=widths[client],
                )
                for client in ids.tolist()
            }
            measured = registry.ask(
                ledger=self.channel.ledger,
                orders=orders,
                read=self.codec.read_measured,
                kind="probe",
                step=now.version + 1,
            )
            named = {} if self.private is not None else excessive(measured)
            for client, reason in named.items():
                del measured[client]
                _LOG.warning("client %d cannot be asked: %s", client, reason)
                registry.incidents.note(client, "unanswered", reason)
            self._tick(clients)
        answered = np.array(sorted(measured), np.int64)
        steps = self.setting.work.total(registry.examples[answered])
        full_bits = self._whole_upload_bits(registry.trained[answered])
        estimates = registry.estimates(answered, steps, full_bits)
        signals = {name: estimates[name] for name in wanted.keys() - learning.keys()}
        if len(answered):
            signals |= {
                name: np.stack([measured[client][name] for client in answered.tolist()])
                for name in learning
            }
        return answered, signals

    def _held(self, now: Moment, cohort: Cohort) -> Floats:
        """Return the share of the ranks that each client of a cohort is sent, ``[m]``: what the
        experiment's capacity gives it, and no more than it has said that it can hold."""
        if self.slices is None:
            return np.ones(len(cohort.ids))
        assigned = self.slices.chosen(cohort).widths(cohort.ids, now.draw_index)
        declared = self.clients.registry.signals[SHARE][cohort.ids, 0]
        return np.asarray(np.minimum(assigned, declared), np.float64)

    def _model(self, now: Moment, download: Tensors, width: float = 1.0) -> bytes:
        """Return a model, or this share of its ranks, as one message; packed once for all its
        receivers.

        Raises
        ------
        ConfigError: the model is not finite.
        """
        if self._packed[0] is not download:
            self._packed = download, {}
        packed = self._packed[1]
        if width not in packed:
            try:
                packed[width] = pack(sent_part(download, self.setting.task.layout, width))
            except CodecError:
                sentence = (
                    f"the model is not finite after {now.version} steps; lower "
                    "local.optimizer.lr, or clip"
                )
                raise ConfigError(sentence, "local.optimizer.lr") from None
        return packed[width]

    # ---------------------------------------------------------------------- sending out and waiting

    def _workload(self, now: Moment, cohort: Cohort) -> Mapping[str, Floats]:
        """Return the work planned for a cohort, by the speed that was measured last; links are
        unknown, so infinite."""
        steps, step_s = self._steps(now, cohort, self._held(now, cohort))
        examples = self.clients.registry.counted[cohort.ids]
        seconds = np.nan_to_num(step_s * steps)
        return {
            "examples": examples * 1.0,
            "steps": steps * 1.0,
            "compute_s": seconds,
            "uplink_mbps": np.full(len(steps), np.inf),
        }

    def _steps(
        self, now: Moment, cohort: Cohort, widths: Floats, sent: float | Floats = 1.0
    ) -> tuple[Ids, Floats]:
        """Return the local steps that each client is asked to take and its seconds per step (NaN
        where it never delivered) with these shares of the ranks.

        ``sent``: as for :func:`steps_in_time`."""
        registry = self.clients.registry
        ids = cohort.ids
        steps = self.setting.work.total(registry.examples[ids])
        steps = steps if cohort.local_steps is None else np.maximum(cohort.local_steps, 1)
        speed = registry.speed[ids] if self.slices is None else self.slices.speed(ids, widths)
        return steps_in_time(self.config.synchrony, steps, speed, sent), speed[:, 0]

    def dispatch(self, now: Moment, order: DispatchOrder) -> Allocation:
        """Send every client of a cohort its request; a client that cannot be reached is lost."""
        clients = self.clients
        cohort = order.cohort
        widths = self._held(now, cohort)
        allocation = order.allocate(partial(self._workload, now, cohort))
        paper_bits = allocation.paper_bits
        if self.slices is not None:
            paper_bits = self.slices.sizes.upload_bits(self.channel, widths)[1]
        sent_share = allocation.bits / self._whole_upload_bits(widths)
        steps, _ = self._steps(now, cohort, widths, sent_share)
        secure = {} if self.sums is None else self.sums.open(now, cohort.ids.tolist())
        self._tick(clients)
        start_s = clients.now_s
        sealed = {}
        sent = []
        columns = {
            name: np.broadcast_to(column, len(cohort.ids)).tolist()
            for name, column in {
                **order.columns,
                "theta": allocation.theta,
                "budget": allocation.budget,
                "paper_bits": paper_bits,
                "width": widths,
            }.items()
        }
        numbers = self.config.dispatch_numbers(now.dispatch, now.draw_index, cohort.ids).tolist()
        for i, client in enumerate(cohort.ids.tolist()):
            row = {name: column[i] for name, column in columns.items()}
            dispatch = DeployedDispatch(
                client=client,
                dispatch=numbers[i],
                version=now.version,
                steps=int(steps[i]),
                start_s=start_s,
                expires_s=start_s + self.limits.work_s,
                **row,
                want=self._wanted(now, client),
            )
            sent.append(dispatch)
            if self.sums is None or client in secure:
                last_accepted = clients.accepted.get(client, -1)
                sealed[client] = self.codec.train(
                    clients.registry.run,
                    dispatch,
                    last_accepted,
                    model=self._model(now, order.download, dispatch.width),
                    secure=secure.get(client, b""),
                ).seal()
                dispatch.bits_down = 8 * len(sealed[client])
        messages = (
            self.transport.transport.push(sealed, "train", self.limits.work_s) if sealed else {}
        )
        clients.in_flight += sent
        for dispatch in sent:
            dispatch.message = messages.get(dispatch.client, "")
            if not dispatch.message:
                dispatch.bits_down = 0
                if dispatch.client in sealed:
                    unsent = "its message could not be sent"
                else:
                    unsent = "it takes no part in secure aggregation"
                self._lose(clients, dispatch, unsent)
            elif self.private is not None:
                self.private.account.asked(dispatch.want, np.array([dispatch.client]))
        self.channel.send(
            cohort.ids,
            np.array([dispatch.bits_down for dispatch in sent], np.int64),
            now.version + 1,
        )
        return allocation

    def _wanted(self, now: Moment, client: int) -> tuple[str, ...]:
        """Return the signals that a client is to report with its update: in a private run those
        that are below their caps."""
        private = self.private
        if private is None:
            return self.codec.want
        return private.account.sendable(private.plan, self.codec.want, client)

    def wait(self, now: Moment, until_s: float) -> None:
        """Wait until something happens: an answer, a client that is lost or newly connected, or the
        moment itself."""
        clients = self.clients
        waited = {
            dispatch.message: dispatch
            for dispatch in (*clients.in_flight, *clients.cancelled)
            if not math.isfinite(dispatch.arrives_s)
        }
        until_s = min(
            [
                until_s,
                clients.now_s + self.limits.work_s,
                *(dispatch.expires_s for dispatch in waited.values()),
            ]
        )
        replies = self.transport.wait(list(waited), until_s, clients.seen)
        clients.seen = self.transport.present(fresh=False)
        clients.registry.present(fresh=False)
        self._tick(clients)
        for reply in replies:
            dispatch = waited.pop(reply.message, None)
            if dispatch is not None:  # else the same answer once more
                self._receive(now, dispatch, reply)
        for dispatch in waited.values():
            if clients.now_s >= dispatch.expires_s:
                clients.registry.silent(dispatch.client)
                self._lose(clients, dispatch, f"no answer within {self.limits.work_s:g} s")

    def _receive(self, now: Moment, dispatch: DeployedDispatch, reply: Reply) -> None:
        """Take an answer in: it is checked at once. When the server no longer waits for it, it is
        billed, and that is all."""
        clients = self.clients
        if reply.data is None:
            if reply.unanswered:
                clients.registry.silent(dispatch.client)
            if reply.unanswered:
                why = f"no answer within {self.limits.work_s:g} s"
            else:
                why = in_a_line(reply.reason)
            if failure_of_app(why):
                clients.registry.failed(dispatch.client)
            self._lose(clients, dispatch, why or "lost")
            self._check_app(clients, dispatch.client, why)
            return
        clients.registry.heard(dispatch.client)
        dispatch.arrives_s = clients.now_s
        dispatch.bits_up = 8 * len(reply.data) if isinstance(reply.data, bytes) else 0
        if dispatch in clients.cancelled:
            clients.cancelled.remove(dispatch)
            bits = np.array([dispatch.bits_up])
            paper = np.array([dispatch.paper_bits])
            ids = np.array([dispatch.client])
            self.channel.receive(ids, bits, paper, step=now.version + 1, kind="late")
            _LOG.info(
                "client %d answered dispatch %d of round %d too late",
                dispatch.client,
                dispatch.dispatch,
                dispatch.version + 1,
            )
            self._learn_late(now, dispatch, reply.data)
            late_s = clients.now_s - dispatch.start_s
            clients.registry.incidents.note(
                dispatch.client,
                "answered late",
                f"its upload came after {late_s:.0f} s",
                dispatch.dispatch,
            )
            return
        why = "its numbers are not finite"
        try:
            dispatch.result, answer = self.codec.read_trained(
                clients.registry.run, dispatch, reply.data, now.server.model.buffers
            )
        except CodecError as error:
            why = in_a_line(error)
            _LOG.warning("client %d sent what cannot be used: %s", dispatch.client, why)
        else:
            dispatch.compute_s = float(answer.compute_s)
            if answer.forgot:
                _LOG.warning("client %d has lost what it kept, and began anew", dispatch.client)
                clients.registry.incidents.note(
                    dispatch.client,
                    "state lost",
                    "it lost what it kept, and began anew",
                    dispatch.dispatch,
                )
        if dispatch.result is None or not dispatch.result.finite:
            clients.registry.incidents.note(dispatch.client, "rejected", why, dispatch.dispatch)
            if self.config.privacy is None:
                self._end(clients, dispatch, Outcome.REJECTED)
            else:
                # it stays a member of the sum, to which it adds nothing: else others would see what
                # its data did
                dispatch.result = dispatch.result or self._nothing(dispatch)

    def _learn_late(self, now: Moment, dispatch: DeployedDispatch, data: object) -> None:
        """Take in how long a client took that answered too late, where its steps or its share of
        the ranks follow seconds: else it would be sent as much again, and be late again."""
        timed = self.slices is not None and self.slices.timed
        if not timed and not self.config.synchrony.limits_work:
            return
        clients = self.clients
        try:
            _, answer = self.codec.read_trained(
                clients.registry.run, dispatch, data, now.server.model.buffers
            )
        except CodecError:
            return
        dispatch.compute_s = float(answer.compute_s)
        self._learn_speeds(clients, [dispatch])

    def _learn_speeds(
        self, clients: DeployedClients, dispatches: Sequence[DeployedDispatch]
    ) -> None:
        """Take in how long clients took; a compressed upload is shorter than a whole one."""
        full_bits = self._whole_upload_bits(np.array([dispatch.width for dispatch in dispatches]))
        clients.registry.learn(dispatches, full_bits)

    def _whole_upload_bits(self, widths: Floats) -> int | Ids:
        """Return the bits of an upload that is not compressed with these shares of the ranks."""
        if self.slices is None:
            return self.channel.upload_bits
        return self.slices.sizes.upload_bits(self.channel, widths)[0]

    def _nothing(self, dispatch: DeployedDispatch) -> TrainResult:
        """Return the result of a client of a private run whose answer cannot be read: no update,
        noisy middles as signals."""
        from motley_privacy.noise import SystemRandomness, bounded, released

        plan = plan_of(self.config)
        noise = {} if plan is None else plan.options.signal_noise
        signals = dict.fromkeys(self.codec.want, math.nan)
        for name in dispatch.want:
            how = noise[name]
            absent = np.full(1, np.nan)
            law = partial(released, SystemRandomness(), [dispatch.client], name)
            signals[name] = float((bounded if how.noise == "gumbel" else law)(absent, how)[0])
        return TrainResult(
            client=dispatch.client,
            parts={},
            client_state=None,
            steps=dispatch.steps,
            signals=signals,
            finite=False,
        )

    def _check_app(self, clients: DeployedClients, client: int, error: str) -> None:
        """Raise if nobody ever delivered and the apps of all connected clients, and of more than
        half of the population, or those of two cohorts, failed in one way.

        Raises
        ------
        ConfigError: with the last of them.
        """
        kind = failure_of_app(error)
        if kind and not clients.accepted:
            alike = clients.failed.setdefault(kind, set())
            alike.add(client)
            # else one that comes alone ends the run for all
            most = max(len(clients.seen), len(clients.registry.met) // 2 + 1)
            if len(alike) >= min(most, max(2 * self.config.cohort, 3)):
                raise ConfigError(
                    f"no client's work can be used: the apps of {len(alike)} clients fail alike, "
                    f"client {client}: {error}"
                )

    def _lose(self, clients: DeployedClients, dispatch: DeployedDispatch, why: str) -> None:
        clients.registry.incidents.note(dispatch.client, "lost", why, dispatch.dispatch)
        _LOG.warning(
            "client %d is lost (dispatch %d of round %d): %s",
            dispatch.client,
            dispatch.dispatch,
            dispatch.version + 1,
            why,
        )
        if dispatch in clients.cancelled:
            clients.cancelled.remove(dispatch)
        else:
            self._end(clients, dispatch, Outcome.DROPPED)

    def _end(self, clients: DeployedClients, dispatch: DeployedDispatch, outcome: Outcome) -> None:
        """Take a dispatch out of flight that will not be aggregated."""
        dispatch.outcome = outcome
        dispatch.arrives_s = min(dispatch.arrives_s, clients.now_s)
        clients.in_flight.remove(dispatch)
        clients.ended.append(dispatch)

    # ---------------------------------------------------------------------------- the server's step

    def collect(self, now: Moment, step: ServerStep, stay: Bools) -> Landed:
        """Take out what ends with this step, and what was lost or rejected since the last one."""
        clients = self.clients
        taken = []
        staying = []
        scale = np.ones(len(clients.in_flight)) if step.scale is None else step.scale
        for i, dispatch in enumerate(clients.in_flight):
            if stay[i]:
                staying.append(dispatch)
                continue
            dispatch.outcome = Outcome.ACCEPTED if step.accept[i] else Outcome.LATE
            dispatch.scale = float(scale[i])
            taken.append(dispatch)
            if not math.isfinite(dispatch.arrives_s):
                clients.cancelled.append(dispatch)
        self._reject_excessive(clients, taken)
        if self.sums is not None:
            self.sums.close(now, taken, clients.summed)
        landed = sorted([*taken, *clients.ended], key=lambda dispatch: dispatch.client)
        clients.in_flight = staying
        clients.ended = []
        clients.landed = landed
        outcome = np.array([dispatch.outcome for dispatch in landed], np.int8)
        sent = np.array([dispatch.bits_up > 0 for dispatch in landed], bool)
        factors = None if step.scale is None else np.array([dispatch.scale for dispatch in landed])
        table = landed_table(landed)
        if self.private is not None:  # nobody's number of samples is known here
            table = InFlight(
                table.timelines, {**table.columns, "examples": np.full(len(landed), np.nan)}
            )
        return Landed(dispatches=table, outcome=outcome, sent=sent, scale=factors, mix=step.mix)

    def _reject_excessive(
        self, clients: DeployedClients, dispatches: Sequence[DeployedDispatch]
    ) -> None:
        """Reject the uploads that come with a number far beyond those of the others in this step: a
        signal, or a part of a single number, by which a server weighs. Nobody is looked at alone in
        a private run."""
        guard = self.config.guard
        if guard is None or self.config.privacy is not None:
            return
        accepted = {
            dispatch.client: dispatch
            for dispatch in dispatches
            if dispatch.outcome == Outcome.ACCEPTED and dispatch.result is not None
        }
        results = {
            client: dispatch.result for client, dispatch in accepted.items() if dispatch.result
        }
        signals = {client: result.signals for client, result in results.items()}
        scalars = {
            client: {
                name: float(part.value)
                for name, part in result.parts.items()
                if part.value.numel() == 1 and part.value.is_floating_point()
            }
            for client, result in results.items()
        }
        # weights such as q-FedAvg's are powers of losses, and honest ones differ by more
        named = {**excessive(scalars, guard.factor**2), **excessive(signals, guard.factor)}
        for client, reason in named.items():
            dispatch = accepted[client]
            dispatch.outcome = Outcome.REJECTED
            _LOG.warning("client %d sent what cannot be used: %s", client, reason)
            clients.registry.incidents.note(client, "rejected", reason, dispatch.dispatch)

    def uploads(self, now: Moment, landed: Landed, rows: Ids, sums: bool = False) -> Uploads:
        """Return the uploads that were received and checked, in order of client id."""
        return Uploads(self._received(now, rows))

    def _received(self, now: Moment, rows: Ids) -> Iterator[tuple[int, ReceivedUpload]]:
        """Yield (row, upload) of these rows, in their order."""
        incremental = self.config.upload_config.feedback.incremental
        received = self.clients.landed
        for row in rows.tolist():
            result = received[row].result
            if result is not None:
                change = result.parts["delta"].value if incremental else None
                yield row, ReceivedUpload(result, change=change)

    def commit(
        self, landed: Landed, accepted: Ids, client_states: Mapping[int, ClientState]
    ) -> None:
        """Remember which dispatch of each client was accepted: the client learns it with its next
        request."""
        lines = landed.dispatches.timelines[accepted]
        self.clients.accepted.update(
            zip(lines.client.tolist(), lines.dispatch.tolist(), strict=True)
        )

    def _tick(self, clients: DeployedClients) -> None:
        """Advance the clock to the current wall time."""
        clients.now_s = max(clients.now_s, self.transport.now_s)


class DeploymentStage(Stage):
    """What a deployment does in a round beside its messages: verified draws, numbers of samples as
    they count, incidents, speeds.

    Parameters
    ----------
    backend: of the run.
    """

    def __init__(self, backend: DeployedBackend) -> None:
        self.backend = backend

    @override
    def cohort(self, state: State, available: Ids, count: int) -> Cohort | None:
        """Return those of the drawn cohort that can be asked now; None where the selector
        chooses."""
        sums = self.backend.sums
        if sums is None or not sums.options.draws:
            return None
        clients = state.clients
        cohort, clients.draws = sums.draw(state.moment, state.selector, clients.draws, count)
        self.backend._tick(clients)
        return Cohort(np.intersect1d(available, cohort))

    @override
    def reports(self, state: State, reports: Reports) -> Reports:
        """Return the reports with numbers of samples as they count."""
        registry = state.clients.registry
        counted = registry.counted[reports.ids]
        if self.backend.private is not None or (counted == registry.examples[reports.ids]).all():
            return reports
        return with_values(reports, {"num_examples": counted.astype(np.float64)})

    @override
    def blamed(self, state: State, step: Round, blamed: Blamed) -> None:
        """Note and log what a refused step has shown of clients, by name."""
        names = self.backend.transport.transport.names
        lines = step.landed.dispatches.timelines[blamed.rows]
        for client, dispatch in zip(lines.client.tolist(), lines.dispatch.tolist(), strict=True):
            named = f" ({names[client]})" if client in names else ""
            _LOG.warning("client %d%s: %s", client, named, blamed.reason)
            state.clients.registry.incidents.note(client, blamed.event, blamed.reason, dispatch)

    @override
    def ended(self, state: State, step: Round, reports: LandedReports) -> Round:
        """Take in how long clients took."""
        clients = state.clients
        self.backend._learn_speeds(clients, clients.landed)
        clients.landed = []
        return step

    @override
    def rows(self, state: State, last: bool) -> Iterable[tuple[str, Mapping[str, Any]]]:
        """Return what went wrong with clients since the last round."""
        incidents = state.clients.registry.incidents.take()
        return [("incidents", incidents)] if incidents else ()
