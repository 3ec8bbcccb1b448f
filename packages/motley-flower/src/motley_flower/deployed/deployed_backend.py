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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from motley.algorithms.parts import ClientState, Tensors
from motley.core.arrays import Bools, Floats, Ids
from motley.core.claims import with_values
from motley.core.errors import CodecError, ConfigError
from motley.core.outliers import excessive
from motley.core.records import SIGNALS, Cohort, Outcome, Reports
from motley.core.saved_state import FIXED, restore_fields
from motley.engines.engine import TrainResult
from motley.privacy.noise import SystemRandomness, bounded, released
from motley.rounds.backend import Blame, ClientBackend, DispatchOrder, Landed
from motley.rounds.client_state import ClientStates
from motley.rounds.diagnostics import CompressionError
from motley.rounds.in_flight import InFlight
from motley.rounds.measured_speeds import GUESS_S, steps_in_time
from motley.rounds.run_config import RunConfig
from motley.rounds.state import RunState
from motley.rounds.upload_pipeline import ReceivedUpload, UploadPipeline
from motley.timing.synchrony import ServerStep
from motley_flower.deployed.client_registry import ClientRegistry, Limits
from motley_flower.deployed.dispatches import DeployedDispatch, landed_table, waiting_table
from motley_flower.deployed.grid_transport import Reply, WaitingTransport
from motley_flower.deployed.incidents import in_a_line
from motley_flower.deployed.measured_ranks import MeasuredSlices
from motley_flower.deployed.protocol import pack
from motley_flower.deployed.ranks import sent_part
from motley_flower.deployed.request_codec import RequestCodec
from motley_flower.messages import SHARE, failure_of_app

if TYPE_CHECKING:
    from motley_flower.deployed.secure_rounds import DeployedSums

__all__ = ["DeployedBackend", "DeployedClients"]

_LOG = logging.getLogger("motley.flower")


@dataclass
class DeployedClients:
    """What evolves on the clients' side of a deployment.

    Parameters
    ----------
    registry: the clients that were met. client_states: only the initial state of
    every client; what clients keep lies with them. now_s: the moment of the last event; between two
    events no time passes.
    failed: while nobody has delivered, the clients whose app failed, by how it did.
    draws: the hash chain of verified draws, and what the clients agreed on; empty without them.
    summed: the cohorts whose sums the server knows, under secure aggregation.
    paper_s: none, for time is real.
    in_flight: sent out, not answered or waiting for the server's step. ended: lost or rejected
    since the last step.
    cancelled: the server no longer waits for them, and they have not answered. landed: those of the
    current step. accepted: client -> number of its last accepted dispatch. seen: clients that were
    connected at the last look.
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
    def busy(self) -> set[int]:
        """Clients that cannot be asked: in flight, cancelled without an answer, or lost since the
        last step."""
        return {one.client for one in (*self.in_flight, *self.ended, *self.cancelled)}

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Take over what was saved. A server that starts again finds none of its messages: the
        clients in flight are dropped."""
        restore_fields(self, saved)
        for one in self.in_flight:
            one.outcome, one.arrives_s = Outcome.DROPPED, self.now_s
            self.registry.incidents.note(
                one.client, "lost", "the server was started again", one.dispatch
            )
        self.in_flight, self.ended = [], self.in_flight


class DeployedBackend(ClientBackend):
    """Clients that answer messages.

    Parameters
    ----------
    config: of the run. pipeline: of uploads. codec: writes requests and reads answers. transport:
    carries them. limits: of waiting.
    clients: the state before round 1. sums: secure aggregation; None: uploads are read one by one.
    """

    holds_client_states = False
    simulated = False

    def __init__(
        self,
        config: RunConfig,
        pipeline: UploadPipeline,
        codec: RequestCodec,
        transport: WaitingTransport,
        limits: Limits,
        clients: DeployedClients,
        sums: DeployedSums | None = None,
    ) -> None:
        self.config = config
        self.setting = config.setting
        self.channel = pipeline.channel
        self.codec = codec
        self.transport = transport
        self.limits = limits
        self._clients = clients
        self.sums = sums
        # the model sent last, and its bytes by the share of the ranks that they hold
        self._packed: tuple[Tensors, dict[float, bytes]] = ({}, {})
        slicing = self.setting.algorithm.local.slicing
        self.holding = (
            None
            if slicing is None
            else MeasuredSlices(self.setting, config.world, clients.registry)
        )

    # ---------------------------------------------------------------------- which clients there are

    def new_state(self) -> DeployedClients:
        """Return the clients' side before round 1."""
        return self._clients

    def open(self, state: RunState) -> Ids:
        """Wait for the population or, when a deployment goes on, for the clients that it knows."""
        clients = _clients(state)
        self._tick(clients)
        new = clients.registry.gather(state.ledger, state.version + 1 if state.begun else 0)
        self._tick(clients)
        return new if state.begun else np.flatnonzero(clients.registry.met)

    def newcomers(self, state: RunState) -> Ids:
        """Ask connected clients that were never met what they have; return those whose answers are
        here."""
        clients = _clients(state)
        new = clients.registry.meet(state.ledger, state.version + 1)
        self._tick(clients)
        return new

    def enrol(self, state: RunState, ids: Ids, wanted: frozenset[str]) -> Mapping[str, Floats]:
        """Return what these clients reported when they were met, and estimates of their speed."""
        registry = _clients(state).registry
        steps = self.setting.work.total(registry.examples[ids])
        whole = self._whole_upload_bits(registry.trained[ids])
        estimates = registry.estimates(ids, steps, whole, GUESS_S)
        reported = {name: value[ids] for name, value in registry.signals.items()}
        if state.privacy is not None:
            state.privacy.asked(self.codec.enrolled, ids)
        sizes = (
            reported["num_examples"][:, 0]
            if "num_examples" in reported
            else registry.counted[ids].astype(np.float64)
        )
        return {**estimates, **reported, "num_examples": sizes}

    def federation_rows(self, state: RunState) -> Iterator[dict[str, Any]]:
        """Yield one row per client met, in one block: its number of samples and, where it reported
        them, its labels; neither in a private run."""
        registry = _clients(state).registry
        met = np.flatnonzero(registry.met)
        if state.privacy is not None:
            yield {"client": met, "labels": np.zeros((len(met), 0), np.int64)}
            return
        reported = registry.signals.get("label_histogram")
        labels = (
            np.zeros((len(met), 0), np.int64)
            if reported is None
            else reported[met].astype(np.int64)
        )
        yield {"client": met, "num_train": registry.examples[met], "labels": labels}

    def examples(self, state: RunState) -> Ids:
        """Return the number of training samples of every client, 0 where it was never met, 1 where
        it is private."""
        return _clients(state).registry.examples

    def claimed_examples(self, state: RunState) -> Ids:
        """Return the number of samples by which each client's update is weighed: its own word,
        capped by those of the others."""
        return _clients(state).registry.counted

    def told(
        self, state: RunState, round_index: int, reports: Reports
    ) -> tuple[Reports, dict[str, Any]]:
        """Return the reports with numbers of samples as they count."""
        registry = _clients(state).registry
        counted = registry.counted[reports.ids]
        if state.privacy is not None or (counted == registry.examples[reports.ids]).all():
            return reports, {}
        return with_values(reports, {"num_examples": counted.astype(np.float64)}), {}

    def available(self, state: RunState) -> Ids:
        """Return the clients that are connected, met, have data, and are neither in flight, lost
        since the last step, nor asked anew which share of the ranks they hold."""
        clients = _clients(state)
        ids = clients.registry.answering()
        clients.seen = self.transport.present(fresh=False)
        busy = np.isin(ids, list(clients.busy | clients.registry.unsure))
        return ids[
            (self.setting.work.total(clients.registry.examples[ids]) > 0)
            & clients.registry.met[ids]
            & ~busy
        ]

    def back_s(self, state: RunState) -> float:
        """Return the present as soon as a client can be asked, else the end of the wait for one."""
        if len(self.available(state)):
            return _clients(state).now_s
        return state.sent_s + self.limits.work_s

    def drawn(self, state: RunState, available: Ids, count: int) -> Cohort | None:
        """Return those of the drawn cohort that can be asked now; None where the selector
        chooses."""
        if self.sums is None or not self.sums.options.draws:
            return None
        clients = _clients(state)
        cohort, clients.draws = self.sums.draw(state, clients.draws, count)
        self._tick(clients)
        return Cohort(np.intersect1d(available, cohort))

    def transcript(self, state: RunState) -> str | None:
        """Return what was published of verified draws, for
        :func:`~motley_flower.secure.verifiable_draws.verify_draws`; None without them."""
        draws = _clients(state).draws
        return self.sums.transcript(draws) if self.sums is not None and draws else None

    def probe(
        self, state: RunState, ids: Ids, wanted: Mapping[str, int | None], download: Tensors
    ) -> tuple[Ids, Mapping[str, Floats]]:
        """Send the model to the candidates and wait for what they measure; candidates that do not
        answer are left out."""
        clients = _clients(state)
        registry = _clients(state).registry
        learning = {
            name: batches for name, batches in wanted.items() if SIGNALS[name].kind != "system"
        }
        found: dict[int, Mapping[str, Floats]] = {int(client): {} for client in ids}
        if learning:
            widths = dict(zip(ids.tolist(), self._held(state, Cohort(ids)).tolist(), strict=True))
            accepted = clients.accepted
            if state.privacy is not None:
                state.privacy.asked(learning, ids)
            orders = {
                client: self.codec.probe(
                    clients.registry.run,
                    client,
                    state.draw_index,
                    accepted.get(client, -1),
                    learning,
                    self._model(state, download, widths[client]),
                    widths[client],
                )
                for client in ids.tolist()
            }
            found = registry.ask(
                state.ledger, orders, self.codec.read_measured, "probe", state.version + 1
            )
            named = {} if state.privacy is not None else excessive(found)
            for client, reason in named.items():
                del found[client]
                _LOG.warning("client %d cannot be asked: %s", client, reason)
                registry.incidents.note(client, "unanswered", reason)
            self._tick(clients)
        answered = np.array(sorted(found), np.int64)
        steps = self.setting.work.total(registry.examples[answered])
        whole = self._whole_upload_bits(registry.trained[answered])
        known = registry.estimates(answered, steps, whole)
        signals = {name: known[name] for name in wanted.keys() - learning.keys()}
        if len(answered):
            signals |= {
                name: np.stack([found[client][name] for client in answered.tolist()])
                for name in learning
            }
        return answered, signals

    def _held(self, state: RunState, cohort: Cohort) -> Floats:
        """Return the share of the ranks that each client of a cohort is sent, ``[m]``: what the
        experiment's capacity gives it, and no more than it has said that it can hold."""
        if self.holding is None:
            return np.ones(len(cohort.ids))
        given = self.holding.chosen(cohort).widths(cohort.ids, state.draw_index)
        said = _clients(state).registry.signals[SHARE][cohort.ids, 0]
        return np.asarray(np.minimum(given, said), np.float64)

    @property
    def listed_widths(self) -> tuple[float, ...]:
        """See :attr:`ClientBackend.listed_widths`: those of the experiment's capacity."""
        return () if self.holding is None else self.holding.listed

    def _model(self, state: RunState, download: Tensors, width: float = 1.0) -> bytes:
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
                said = (
                    f"the model is not finite after {state.version} steps; lower "
                    "local.optimizer.lr, or clip"
                )
                raise ConfigError(said, "local.optimizer.lr") from None
        return packed[width]

    # ---------------------------------------------------------------------- sending out and waiting

    def workload(self, state: RunState, cohort: Cohort) -> Mapping[str, Floats]:
        """Return the work planned for a cohort, by the speed that was measured last; links are
        unknown, so infinite."""
        steps, step_s = self._steps(state, cohort, self._held(state, cohort))
        examples = _clients(state).registry.counted[cohort.ids]
        seconds = np.nan_to_num(step_s * steps)
        return {
            "examples": examples * 1.0,
            "steps": steps * 1.0,
            "compute_s": seconds,
            "uplink_mbps": np.full(len(steps), np.inf),
        }

    def _steps(
        self, state: RunState, cohort: Cohort, widths: Floats, sent: float | Floats = 1.0
    ) -> tuple[Ids, Floats]:
        """Return the local steps that each client is asked to take and its seconds per step (NaN
        where it never delivered) with these shares of the ranks.

        ``sent``: as for :func:`steps_in_time`."""
        registry = _clients(state).registry
        ids = cohort.ids
        steps = self.setting.work.total(registry.examples[ids])
        steps = steps if cohort.local_steps is None else np.maximum(cohort.local_steps, 1)
        speed = registry.speed[ids] if self.holding is None else self.holding.speed(ids, widths)
        return steps_in_time(self.config.synchrony, steps, speed, sent), speed[:, 0]

    def dispatch(self, state: RunState, order: DispatchOrder) -> None:
        """Send every client of a cohort its request; a client that cannot be reached is lost."""
        clients = _clients(state)
        cohort = order.cohort
        widths = self._held(state, cohort)
        paper_bits = order.allocation.paper_bits
        if self.holding is not None:
            paper_bits = self.holding.sizes.upload_bits(self.channel, widths)[1]
        sent_share = order.allocation.bits / self._whole_upload_bits(widths)
        steps, _ = self._steps(state, cohort, widths, sent_share)
        secure = {} if self.sums is None else self.sums.open(state, cohort.ids.tolist())
        self._tick(clients)
        start_s = clients.now_s
        sealed = {}
        sent = []
        columns = {
            name: np.broadcast_to(column, len(cohort.ids)).tolist()
            for name, column in {
                **order.columns,
                "paper_bits": paper_bits,
                "width": widths,
            }.items()
        }
        for i, client in enumerate(cohort.ids.tolist()):
            row = {name: column[i] for name, column in columns.items()}
            one = DeployedDispatch(
                client,
                state.dispatch + i,
                state.version,
                int(steps[i]),
                start_s,
                start_s + self.limits.work_s,
                **row,
                want=self._wanted(state, client),
            )
            sent.append(one)
            if self.sums is None or client in secure:
                kept = clients.accepted.get(client, -1)
                sealed[client] = self.codec.train(
                    clients.registry.run,
                    one,
                    kept,
                    self._model(state, order.download, one.width),
                    secure.get(client, b""),
                ).seal()
                one.bits_down = 8 * len(sealed[client])
        messages = (
            self.transport.transport.push(sealed, "train", self.limits.work_s) if sealed else {}
        )
        clients.in_flight += sent
        for one in sent:
            one.message = messages.get(one.client, "")
            if not one.message:
                one.bits_down = 0
                unsent = (
                    "its message could not be sent"
                    if one.client in sealed
                    else "it takes no part in secure aggregation"
                )
                self._lose(clients, one, unsent)
            elif state.privacy is not None:
                state.privacy.asked(one.want, np.array([one.client]))
        self.channel.send(
            state.ledger,
            cohort.ids,
            np.array([one.bits_down for one in sent], np.int64),
            state.version + 1,
        )

    def _wanted(self, state: RunState, client: int) -> tuple[str, ...]:
        """Return the signals that a client is to report with its update: in a private run those
        that are below their caps."""
        plan = self.config.privacy
        private = state.privacy
        return (
            self.codec.want
            if plan is None or private is None
            else private.sendable(plan, self.codec.want, client)
        )

    def in_flight(self, state: RunState) -> InFlight:
        """Return everybody who was sent out, is not lost, and whose upload the server has not taken
        yet."""
        return waiting_table(_clients(state).in_flight)

    def wait(self, state: RunState, until_s: float) -> None:
        """Wait until something happens: an answer, a client that is lost or newly connected, or the
        moment itself."""
        clients = _clients(state)
        waited = {
            one.message: one
            for one in (*clients.in_flight, *clients.cancelled)
            if not math.isfinite(one.arrives_s)
        }
        until_s = min(
            [
                until_s,
                clients.now_s + self.limits.work_s,
                *(one.expires_s for one in waited.values()),
            ]
        )
        replies = self.transport.wait(list(waited), until_s, clients.seen)
        clients.seen = self.transport.present(fresh=False)
        clients.registry.present(fresh=False)
        self._tick(clients)
        for reply in replies:
            one = waited.pop(reply.message, None)
            if one is not None:  # else the same answer once more
                self._receive(state, one, reply)
        for one in waited.values():
            if clients.now_s >= one.expires_s:
                clients.registry.silent(one.client)
                self._lose(clients, one, f"no answer within {self.limits.work_s:g} s")

    def _receive(self, state: RunState, one: DeployedDispatch, reply: Reply) -> None:
        """Take an answer in: it is checked at once. When the server no longer waits for it, it is
        billed, and that is all."""
        clients = _clients(state)
        if reply.data is None:
            if reply.unanswered:
                clients.registry.silent(one.client)
            why = (
                f"no answer within {self.limits.work_s:g} s"
                if reply.unanswered
                else in_a_line(reply.reason)
            )
            if failure_of_app(why):
                clients.registry.failed(one.client)
            self._lose(clients, one, why or "lost")
            self._check_app(clients, one.client, why)
            return
        clients.registry.heard(one.client)
        one.arrives_s = clients.now_s
        one.bits_up = 8 * len(reply.data) if isinstance(reply.data, bytes) else 0
        if one in clients.cancelled:
            clients.cancelled.remove(one)
            bits = np.array([one.bits_up])
            paper = np.array([one.paper_bits])
            ids = np.array([one.client])
            self.channel.receive(state.ledger, ids, bits, paper, state.version + 1, "late")
            _LOG.info(
                "client %d answered dispatch %d of round %d too late",
                one.client,
                one.dispatch,
                one.version + 1,
            )
            self._learn_late(state, one, reply.data)
            late_s = clients.now_s - one.start_s
            clients.registry.incidents.note(
                one.client, "answered late", f"its upload came after {late_s:.0f} s", one.dispatch
            )
            return
        why = "its numbers are not finite"
        try:
            one.result, answer = self.codec.read_trained(
                clients.registry.run, one, reply.data, state.server.model.buffers
            )
        except CodecError as error:
            why = in_a_line(error)
            _LOG.warning("client %d sent what cannot be used: %s", one.client, why)
        else:
            one.compute_s = float(answer.compute_s)
            if answer.forgot:
                _LOG.warning("client %d has lost what it kept, and began anew", one.client)
                clients.registry.incidents.note(
                    one.client, "state lost", "it lost what it kept, and began anew", one.dispatch
                )
        if one.result is None or not one.result.finite:
            clients.registry.incidents.note(one.client, "rejected", why, one.dispatch)
            if self.config.privacy is None:
                self._end(clients, one, Outcome.REJECTED)
            else:
                # it stays a member of the sum, to which it adds nothing: else others would see what
                # its data did
                one.result = one.result or self._nothing(one)

    def _learn_late(self, state: RunState, one: DeployedDispatch, data: object) -> None:
        """Take in how long a client took that answered too late, where its steps or its share of
        the ranks follow seconds: else it would be sent as much again, and be late again."""
        timed = self.holding is not None and self.holding.timed
        if not timed and not self.config.synchrony.limits_work:
            return
        clients = _clients(state)
        try:
            _, answer = self.codec.read_trained(
                clients.registry.run, one, data, state.server.model.buffers
            )
        except CodecError:
            return
        one.compute_s = float(answer.compute_s)
        self._learn_speeds(clients, [one])

    def _learn_speeds(
        self, clients: DeployedClients, dispatches: Sequence[DeployedDispatch]
    ) -> None:
        """Take in how long clients took; a compressed upload is shorter than a whole one."""
        whole = self._whole_upload_bits(np.array([one.width for one in dispatches]))
        clients.registry.learn(dispatches, whole)

    def _whole_upload_bits(self, widths: Floats) -> int | Ids:
        """Return the bits of an upload that is not compressed with these shares of the ranks."""
        if self.holding is None:
            return self.channel.upload_bits
        return self.holding.sizes.upload_bits(self.channel, widths)[0]

    def _nothing(self, one: DeployedDispatch) -> TrainResult:
        """Return the result of a client of a private run whose answer cannot be read: no update,
        noisy middles as signals."""
        noise = {} if self.config.privacy is None else self.config.privacy.options.signal_noise
        signals = dict.fromkeys(self.codec.want, math.nan)
        for name in one.want:
            how = noise[name]
            absent = np.full(1, np.nan)
            law = partial(released, SystemRandomness(), [one.client], name)
            signals[name] = float((bounded if how.noise == "gumbel" else law)(absent, how)[0])
        return TrainResult(one.client, {}, None, one.steps, signals, False)

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

    def incidents(self, state: RunState) -> dict[str, Any]:
        """Return what went wrong with clients since the last call."""
        return _clients(state).registry.incidents.take()

    def _lose(self, clients: DeployedClients, one: DeployedDispatch, why: str) -> None:
        clients.registry.incidents.note(one.client, "lost", why, one.dispatch)
        _LOG.warning(
            "client %d is lost (dispatch %d of round %d): %s",
            one.client,
            one.dispatch,
            one.version + 1,
            why,
        )
        if one in clients.cancelled:
            clients.cancelled.remove(one)
        else:
            self._end(clients, one, Outcome.DROPPED)

    def _end(self, clients: DeployedClients, one: DeployedDispatch, outcome: Outcome) -> None:
        """Take a dispatch out of flight that will not be aggregated."""
        one.outcome = outcome
        one.arrives_s = min(one.arrives_s, clients.now_s)
        clients.in_flight.remove(one)
        clients.ended.append(one)

    # ---------------------------------------------------------------------------- the server's step

    def collect(self, state: RunState, step: ServerStep, stay: Bools) -> Landed:
        """Take out what ends with this step, and what was lost or rejected since the last one."""
        clients = _clients(state)
        taken = []
        staying = []
        scale = np.ones(len(clients.in_flight)) if step.scale is None else step.scale
        for i, one in enumerate(clients.in_flight):
            if stay[i]:
                staying.append(one)
                continue
            one.outcome = Outcome.ACCEPTED if step.accept[i] else Outcome.LATE
            one.scale = float(scale[i])
            taken.append(one)
            if not math.isfinite(one.arrives_s):
                clients.cancelled.append(one)
        self._reject_excessive(clients, taken)
        if self.sums is not None:
            self.sums.close(state, taken, clients.summed)
        landed = sorted([*taken, *clients.ended], key=lambda one: one.client)
        clients.in_flight = staying
        clients.ended = []
        clients.landed = landed
        outcome = np.array([one.outcome for one in landed], np.int8)
        sent = np.array([one.bits_up > 0 for one in landed], bool)
        factors = None if step.scale is None else np.array([one.scale for one in landed])
        table = landed_table(landed)
        if state.privacy is not None:  # nobody's number of samples is known here
            table = InFlight(
                table.timelines, {**table.columns, "examples": np.full(len(landed), np.nan)}
            )
        return Landed(table, outcome, sent, factors, step.mix)

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
            one.client: one
            for one in dispatches
            if one.outcome == Outcome.ACCEPTED and one.result is not None
        }
        results = {client: one.result for client, one in accepted.items() if one.result}
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
            one = accepted[client]
            one.outcome = Outcome.REJECTED
            _LOG.warning("client %d sent what cannot be used: %s", client, reason)
            clients.registry.incidents.note(client, "rejected", reason, one.dispatch)

    def uploads(
        self, state: RunState, landed: Landed, rows: Ids, error: CompressionError | None
    ) -> Iterator[tuple[int, ReceivedUpload]]:
        """Yield the uploads that were received and checked, in order of client id."""
        incremental = self.config.upload_config.feedback.incremental
        received = _clients(state).landed
        for row in rows.tolist():
            result = received[row].result
            if result is not None:
                yield (
                    row,
                    ReceivedUpload(
                        result, change=result.parts["delta"].value if incremental else None
                    ),
                )

    def commit(
        self,
        state: RunState,
        landed: Landed,
        accepted: Ids,
        client_states: Mapping[int, ClientState],
    ) -> None:
        """Remember which dispatch of each client was accepted: the client learns it with its next
        request."""
        lines = landed.dispatches.timelines[accepted]
        _clients(state).accepted.update(
            zip(lines.client.tolist(), lines.dispatch.tolist(), strict=True)
        )

    def blame(self, state: RunState, landed: Landed, rows: Ids, event: Blame, reason: str) -> None:
        """Note and log what a refused step has shown of clients, by name."""
        names = self.transport.transport.names
        lines = landed.dispatches.timelines
        for client, dispatch in zip(
            lines.client[rows].tolist(), lines.dispatch[rows].tolist(), strict=True
        ):
            _LOG.warning(
                "client %d%s: %s", client, f" ({names[client]})" if client in names else "", reason
            )
            _clients(state).registry.incidents.note(client, event, reason, dispatch)

    def observe(self, state: RunState, reports: Reports) -> None:
        """Take in how long clients took."""
        clients = _clients(state)
        self._learn_speeds(clients, clients.landed)
        clients.landed = []

    def _tick(self, clients: DeployedClients) -> None:
        """Advance the clock to the current wall time."""
        clients.now_s = max(clients.now_s, self.transport.now_s)


def _clients(state: RunState) -> DeployedClients:
    """Return the clients' side of a deployment's state, by its own type."""
    clients: Any = state.clients
    found: DeployedClients = clients
    return found
