"""The clients of a deployment: which have been met, what they reported once, how fast they were;
and short questions to many."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from motley.core.arrays import Floats, Ids
from motley.core.errors import CodecError, ConfigError
from motley.core.outliers import MOST_TIMES, weight_cap
from motley.rounds.measured_speeds import MeasuredSpeeds
from motley.transport.ledger import Direction, Kind, Ledger
from motley_flower.deployed.dispatches import DeployedDispatch, landed_table
from motley_flower.deployed.grid_transport import Reply, WaitingTransport
from motley_flower.deployed.incidents import IncidentLog, in_a_line
from motley_flower.deployed.protocol import Order
from motley_flower.deployed.request_codec import RequestCodec
from motley_flower.messages import SHARE, failure_of_app

T = TypeVar("T")
_LOG = logging.getLogger("motley.flower")


@dataclass(frozen=True)
class Limits:
    """How long a deployment waits; no wait is without a limit. And how much a client's own word of
    its samples counts.

    Parameters
    ----------
    start_s: for the whole population to come, before round 1, and for those it knows when a
    deployment goes on.
    work_s: for a client's upload; then it counts as dropped. Also how long a message may live.
    query_s: for answers to short questions (enrolment, probes).
    poll_s: between two polls for answers.
    look_s: between two looks at who is there.
    pause_s, longest_pause_s: how long a connected client that did not answer is not asked, the
    first time and at most; doubled each time, and forgotten when it answers.
    link_s: for the SuperLink to answer a call.
    sample_cap: how many times the median number of samples of the clients met one client's number
    counts at most, in weights and for the selector, where the file of clients gives no
    ``examples``; the number itself is fixed at enrolment.
    """

    start_s: float = 300.0
    work_s: float = 3600.0
    query_s: float = 300.0
    poll_s: float = 0.5
    look_s: float = 5.0
    pause_s: float = 60.0
    longest_pause_s: float = 3600.0
    link_s: float = 300.0
    sample_cap: float = MOST_TIMES

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not (isinstance(value, int | float) and 0 < value < np.inf):
                unit = "seconds" if name.endswith("_s") else "times the median number of samples"
                raise ConfigError(
                    f"got {name} = {value!r}; expected a positive number of {unit}",
                    f"limits.{name}",
                )


class ClientRegistry:
    """Clients 0 to K - 1, as far as they are known.

    Parameters
    ----------
    run: the name of the deployment.
    codec: writes requests and reads answers.
    transport: carries them.
    population: K.
    limits: of waiting.

    Attributes
    ----------
    met: bool ``[K]``.
    examples: int64 ``[K]``, as each client said once, 0 for a client that was never met.
    signals: name -> ``[K, d]``, reported at enrolment.
    incidents: what went wrong with clients, until it is written.
    speeds: measured the last time a client delivered.
    trained: ``[K]``, the share of the ranks that it trained then.
    unsure: clients met whose app failed, and which are asked anew which share they hold."""

    def __init__(
        self,
        run: str,
        codec: RequestCodec,
        transport: WaitingTransport,
        population: int,
        limits: Limits,
    ) -> None:
        self.run = run
        self.codec = codec
        self.transport = transport
        self.limits = limits
        self.met = np.zeros(population, bool)
        self.examples = np.zeros(population, np.int64)
        self.signals: dict[str, Floats] = {}
        self.speeds = MeasuredSpeeds.none(population)
        self.trained = np.ones(population)
        self.incidents = IncidentLog(lambda: transport.now_s)
        self._unknown_ids: set[int] = set()
        self._connected: set[int] = set()  # clients met that were present at the last look
        # those that were present at an earlier one, or should have come
        self._gone: set[int] = set()
        self._capped: set[int] = set()  # clients whose number of samples does not count in full
        self._refusal = ""  # why the client that answered last cannot be asked
        self._refused: set[int] = set()  # clients whose app failed, or answered what cannot be read
        self._asked: dict[str, Order] = {}  # message -> enrolment request that is not answered yet
        self.unsure: set[int] = set()
        # client that did not answer -> until when it is left alone, how long
        self._pauses: dict[int, tuple[float, float]] = {}

    def present(self, fresh: bool = True) -> Ids:
        """Return the clients that can be reached, met or not; ids beyond the experiment's
        population are logged once and ignored.

        ``fresh``: now, else as of the last look."""
        ids = np.array(sorted(self.transport.present(fresh)), np.int64)
        beyond = set(ids[(ids < 0) | (ids >= len(self.met))].tolist()) - self._unknown_ids
        if beyond:
            self._unknown_ids |= beyond
            _LOG.warning(
                "clients %s are there, and the experiment has clients 0 to %d",
                sorted(beyond)[:5],
                len(self.met) - 1,
            )
        in_range = ids[(ids >= 0) & (ids < len(self.met))]
        for client, event, reason in self.transport.transport.happened():
            self.incidents.note(client, event, reason)
        self._note_connections({int(client) for client in in_range if self.met[client]})
        return in_range

    def _note_connections(self, connected: set[int]) -> None:
        """Note which of the clients met have come back since the last look, and which are gone."""
        for client in sorted(connected - self._connected):
            if client in self._gone:
                self.incidents.note(client, "connected", "its node is connected")
        for client in sorted(self._connected - connected):
            self.incidents.note(client, "disconnected", "its node is no longer connected")
        self._gone = (self._gone | self._connected) - connected
        self._connected = connected

    def answering(self) -> Ids:
        """Return the clients present at the last look, but those that are left alone because they
        did not answer."""
        ids = self.present(fresh=False)
        return ids[
            ~np.isin(
                ids,
                [k for k, (until_s, _) in self._pauses.items() if until_s > self.transport.now_s],
            )
        ]

    def silent(self, client: int) -> None:
        """Leave a client that did not answer in time alone for a while, twice as long each time."""
        _, pause_s = self._pauses.get(client, (0.0, self.limits.pause_s / 2))
        pause_s = min(2 * pause_s, self.limits.longest_pause_s)
        self._pauses[client] = self.transport.now_s + pause_s, pause_s

    def heard(self, client: int) -> None:
        """Forget how long a client that answers was left alone."""
        self._pauses.pop(client, None)

    def failed(self, client: int) -> None:
        """Ask a client whose app failed anew, where clients hold shares of the ranks: it may have
        been started again with less than it said."""
        if SHARE in self.signals:
            self.unsure.add(client)

    def ask(
        self,
        ledger: Ledger,
        orders: Mapping[int, Order],
        read: Callable[[Order, object], T],
        kind: Kind,
        step: int,
    ) -> dict[int, T]:
        """Send short requests, wait, and return what was read from sound answers, by client; bill
        all of it as ``kind``."""
        sent = self._send(ledger, orders, kind, step)
        until_s = self.transport.now_s + self.limits.query_s
        answers: dict[int, T] = {}
        while sent:
            replies = self.transport.wait(list(sent), until_s)
            answers |= self._read(ledger, sent, replies, read, kind=kind, step=step)
            if not replies:
                break
        for order in sent.values():
            _LOG.warning("client %d did not answer within %g s", order.client, self.limits.query_s)
            self.incidents.note(
                order.client,
                "unanswered",
                f"no answer to a question within {self.limits.query_s:g} s",
            )
            self.silent(order.client)
        return answers

    def _send(
        self, ledger: Ledger, orders: Mapping[int, Order], kind: Kind, step: int
    ) -> dict[str, Order]:
        """Return the requests by the numbers of their messages."""
        sealed = {client: order.seal() for client, order in orders.items()}
        sent = self.transport.transport.push(sealed, "query", self.limits.query_s) if sealed else {}
        _bill(
            ledger=ledger,
            kind=kind,
            direction="down",
            sizes={client: len(sealed[client]) for client in sent},
            step=step,
        )
        return {message: orders[client] for client, message in sent.items()}

    def _read(
        self,
        ledger: Ledger,
        sent: dict[str, Order],
        replies: list[Reply],
        read: Callable[[Order, object], T],
        kind: Kind,
        step: int,
    ) -> dict[int, T]:
        """Return what was read from sound replies, by client; answered requests are taken out of
        ``sent``."""
        answers = {}
        sizes = {}
        for reply in replies:
            order = sent.pop(reply.message, None)
            if order is None:
                continue  # the same answer once more
            sizes[order.client] = len(reply.data) if isinstance(reply.data, bytes) else 0
            try:
                if reply.data is None:
                    raise CodecError(reply.reason or "lost")
                answers[order.client] = read(order, reply.data)
                self.heard(order.client)
            except CodecError as error:
                why = in_a_line(error)
                _LOG.warning("client %d cannot be asked: %s", order.client, why)
                self.incidents.note(order.client, "unanswered", why)
                self._refusal = f" (client {order.client} answered: {why})"
                if reply.data is not None or failure_of_app(reply.reason):
                    self._refused.add(order.client)
                    self.failed(order.client)
                self.silent(order.client)
        _bill(ledger=ledger, kind=kind, direction="up", sizes=sizes, step=step)
        return answers

    def meet(self, ledger: Ledger, step: int, until_s: float | None = None) -> Ids:
        """Ask clients that are present and were never met what they have, and those whose app
        failed which share of the ranks they hold now; return those met now, sorted.

        ``until_s``: when to stop waiting for answers; None: answers that are not here already are
        taken in by a later call, so that a newcomer keeps no other client waiting."""
        self.present()
        pending = {order.client for order in self._asked.values()}
        new = [
            k
            for k in self.answering().tolist()
            if (not self.met[k] or k in self.unsure) and k not in pending
        ]
        self._asked |= self._send(
            ledger, {k: self.codec.enrol(self.run, k) for k in new}, "enrol", step
        )
        now: list[int] = []
        while self._asked:
            replies = self.transport.wait(
                list(self._asked), self.transport.now_s if until_s is None else until_s
            )
            enrolments = self._read(
                ledger,
                sent=self._asked,
                replies=replies,
                read=self.codec.read_enrolment,
                kind="enrol",
                step=step,
            )
            for client, (examples, signals) in enrolments.items():
                self.unsure.discard(client)
                if self.met[client]:  # all else stays as it was said first
                    self.signals[SHARE][client] = signals[SHARE]
                    continue
                self.met[client], self.examples[client] = True, examples
                now.append(client)
                for name, value in signals.items():
                    self.signals.setdefault(name, np.full((len(self.met), len(value)), np.nan))[
                        client
                    ] = value
            if not replies:
                break
        if now:
            self._note_capped()
        return np.array(sorted(now), np.int64)

    @property
    def counted(self) -> Ids:
        """The numbers of samples as they count, ``[K]``: at most those in the file of clients, else
        ``limits.sample_cap`` times the median of the clients met."""
        return np.minimum(self.examples, self._caps()).astype(np.int64)

    def _caps(self) -> Floats:
        caps = np.full(len(self.met), weight_cap(self.examples, self.limits.sample_cap))
        listed = {
            client: most
            for client, most in self.transport.transport.examples.items()
            if client < len(caps)
        }
        caps[list(listed)] = list(listed.values())
        return caps

    def _note_capped(self) -> None:
        """Note the clients whose number of samples has begun to count in part, now that others have
        been met."""
        caps = self._caps()
        listed = self.transport.transport.examples
        capped = set(np.flatnonzero(self.examples > caps).tolist())
        for client in sorted(capped - self._capped):
            if client in listed:
                why = "as the file of clients has it"
            else:
                why = f"{self.limits.sample_cap:g} times the median"
            sentence = f"its {self.examples[client]} samples count as {caps[client]:.0f}, {why}"
            _LOG.warning("client %d: %s", client, sentence)
            self.incidents.note(client, "capped", sentence)
        self._capped = capped

    def gather(self, ledger: Ledger, step: int) -> Ids:
        """Wait for all clients that were met before or, where none was, for the population; return
        those met now, sorted.

        Raises
        ------
        ConfigError: no client came in all the time there is.
        """
        until_s = self.transport.now_s + self.limits.start_s
        # A copy, for meeting clients changes the array that says who was met before.
        expected = self.met.copy() if self.met.any() else ~self.met
        new = np.zeros(0, np.int64)
        while True:
            new = np.union1d(
                new,
                self.meet(ledger, step, min(until_s, self.transport.now_s + self.limits.look_s)),
            )
            present = self.present(fresh=False)
            there = np.isin(np.flatnonzero(expected), present)
            # one node cannot be two of them at a time
            refusing = len(self._refused.intersection(present.tolist()))
            hopeless = refusing == len(self.met) and not self.met.any()
            if (self.met[expected] & there).all() or hopeless or self.transport.now_s >= until_s:
                break
            self.transport.wait([], min(until_s, self.transport.now_s + self.limits.look_s))
        if not self.met.any():
            if hopeless:
                refusal = f"all {len(self.met)} clients refuse"
            else:
                refusal = f"no client came within {self.limits.start_s:g} s"
            silent = self.transport.transport.refusal
            why = self._refusal or (f" ({silent})" if silent else "")
            raise ConfigError(
                f"{refusal}{why}; start nodes whose apps answer for this experiment, "
                "or give more time with limits=Limits(start_s=...)"
            )
        for client in sorted(set(np.flatnonzero(expected).tolist()) - self._connected - self._gone):
            self._gone.add(client)
            self.incidents.note(
                client,
                "disconnected",
                f"it was not there within {self.limits.start_s:g} s, and the run began",
            )
        return new

    def learn(self, dispatches: Sequence[DeployedDispatch], whole_bits: int | Ids) -> None:
        """Take in how long clients took that have answered, and with which share of the ranks.

        ``whole_bits``: see :meth:`MeasuredSpeeds.learn`."""
        landed = landed_table(dispatches)
        # of an answer that cannot be read nobody knows how long the work took
        read = np.isfinite([dispatch.compute_s for dispatch in dispatches])
        lines = landed.timelines[read]
        good = self.speeds.learn(
            lines, landed.columns["bits_up"][read], np.broadcast_to(whole_bits, len(read))[read]
        )
        widths = np.array([dispatch.width for dispatch in dispatches])
        self.trained[lines.client[good]] = widths[read][good]

    def estimates(
        self, ids: Ids, steps: Ids, whole_bits: int | Ids, guess_s: float = 0.0
    ) -> dict[str, Floats]:
        """See :meth:`MeasuredSpeeds.estimates`."""
        return self.speeds.estimates(ids, steps, whole_bits, guess_s)

    @property
    def speed(self) -> Floats:
        """``[K, 3]``, measured the last time a client delivered: seconds per local step, of the
        download, of a whole upload; else NaN."""
        return self.speeds.seconds

    def save(self) -> dict[str, Any]:
        """Return what is known as plain arrays."""
        return {
            "run": self.run,
            "met": self.met,
            "examples": self.examples,
            "signals": dict(self.signals),
            "speed": self.speed,
            "trained": self.trained,
        }

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Take over what :meth:`save` returned."""
        self.run, self.met, self.examples = (saved[name] for name in ("run", "met", "examples"))
        self.speeds = MeasuredSpeeds(saved["speed"])
        self.trained = saved.get("trained", self.trained)  # one begun before this was kept
        self.signals = dict(saved["signals"])
        self._capped = set(np.flatnonzero(self.examples > self._caps()).tolist())


def _bill(
    ledger: Ledger, kind: Kind, direction: Direction, sizes: Mapping[int, int], step: int
) -> None:
    if sizes:
        ledger.post(
            kind=kind,
            direction=direction,
            ids=list(sizes),
            bits=[8 * size for size in sizes.values()],
            round=step,
            paper_bits=0,
        )
