"""The roll: which clients have been met, what they told once, how fast they were; and short questions to many at once."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from motley.adapters.flower.deployed.protocol import Order
from motley.adapters.flower.deployed.request_codec import RequestCodec
from motley.adapters.flower.deployed.transport import Reply, WaitingTransport
from motley.core.arrays import Floats, Ids
from motley.core.errors import CodecError, ConfigError
from motley.core.records import Reports
from motley.transport.ledger import Direction, Kind, Ledger

__all__ = ["ClientRegistry", "Limits"]

T = TypeVar("T")
_LOG = logging.getLogger("motley.flower")

PAUSE_S, LONGEST_PAUSE_S = 60.0, 3600.0
"""How long a client that did not answer is left alone the first time, and at most."""


@dataclass(frozen=True)
class Limits:
    """How long a deployment waits; no wait is without a limit.

    Parameters
    ----------
    start_s: for the whole population to come, before round 1, and for those it knows when a deployment goes on.
    work_s: for a client's upload; then it counts as dropped. Also the life of a letter.
    query_s: for answers to short questions (enrolment, probes). poll_s: between two looks into the mailbox.
    look_s: between two looks at who is there.
    """

    start_s: float = 300.0
    work_s: float = 3600.0
    query_s: float = 300.0
    poll_s: float = 0.5
    look_s: float = 5.0

    def __post_init__(self) -> None:
        for name in ("start_s", "work_s", "query_s", "poll_s", "look_s"):
            value = getattr(self, name)
            if not (isinstance(value, int | float) and 0 < value < np.inf):
                raise ConfigError(f"got {name} = {value!r}; expected a positive number of seconds", f"limits.{name}")


class ClientRegistry:
    """Clients 0 to K - 1, as far as they are known.

    Parameters
    ----------
    desk, post: of the run. ledger: where its traffic is posted. population: K. limits: of waiting.
    """

    def __init__(
        self, desk: RequestCodec, post: WaitingTransport, ledger: Callable[[], Ledger], population: int, limits: Limits
    ) -> None:
        self.desk, self.post, self.ledger, self.limits = desk, post, ledger, limits
        self.met = np.zeros(population, bool)
        self.examples = np.zeros(population, np.int64)
        self.signals: dict[str, Floats] = {}
        self.speed = np.full((population, 3), np.nan)  # what was measured last: seconds per step, seconds down, seconds up
        self._strangers: set[int] = set()
        self._asked: dict[str, Order] = {}  # letters to who was never met, not answered yet
        self._pauses: dict[
            int, tuple[float, float]
        ] = {}  # of who did not answer: until when it is left alone, and for how long

    def present(self, fresh: bool = True) -> Ids:
        """Who can be reached now, met or not; ids that the experiment does not have are told once and passed over."""
        ids = np.array(sorted(self.post.present(fresh)), np.int64)
        beyond = set(ids[(ids < 0) | (ids >= len(self.met))].tolist()) - self._strangers
        if beyond:
            self._strangers |= beyond
            _LOG.warning("clients %s are there, and the experiment has clients 0 to %d", sorted(beyond)[:5], len(self.met) - 1)
        return ids[(ids >= 0) & (ids < len(self.met))]

    def present_and_talking(self) -> Ids:
        """Who was there at the last look, less those who are left alone because they did not answer."""
        ids = self.present(fresh=False)
        return ids[~np.isin(ids, [k for k, (until_s, _) in self._pauses.items() if until_s > self.post.now_s])]

    def silent(self, client: int) -> None:
        """It did not answer in time: it is left alone for a while, longer each time."""
        _, pause_s = self._pauses.get(client, (0.0, PAUSE_S / 2))
        pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
        self._pauses[client] = self.post.now_s + pause_s, pause_s

    def heard(self, client: int) -> None:
        """It answered."""
        self._pauses.pop(client, None)

    def ask(self, orders: Mapping[int, Order], read: Callable[[Order, object], T], kind: Kind, round: int) -> dict[int, T]:
        """Ask these clients something short, wait, and what those who answered soundly said; all of it is billed as ``kind``."""
        sent, until_s = self._send(orders, kind, round), self.post.now_s + self.limits.query_s
        found: dict[int, T] = {}
        while sent:
            replies = self.post.wait(list(sent), until_s)
            found |= self._read(sent, replies, read, kind, round)
            if not replies:
                break
        for order in sent.values():
            _LOG.warning("client %d did not answer within %g s", order.client, self.limits.query_s)
            self.silent(order.client)
        return found

    def _send(self, orders: Mapping[int, Order], kind: Kind, round: int) -> dict[str, Order]:
        """Orders by the numbers of their letters."""
        sealed = {client: order.seal() for client, order in orders.items()}
        sent = self.post.mailbox.push(sealed, "query", self.limits.query_s) if sealed else {}
        self._bill(kind, "down", {client: len(sealed[client]) for client in sent}, round)
        return {message: orders[client] for client, message in sent.items()}

    def _read(
        self, sent: dict[str, Order], replies: list[Reply], read: Callable[[Order, object], T], kind: Kind, round: int
    ) -> dict[int, T]:
        """What replies say, soundly, by client; they are taken out of ``sent``."""
        found, came = {}, {}
        for reply in replies:
            order = sent.pop(reply.message, None)
            if order is None:
                continue  # the same answer once more
            came[order.client] = len(reply.data) if isinstance(reply.data, bytes) else 0
            try:
                if reply.data is None:
                    raise CodecError(reply.reason or "lost")
                found[order.client] = read(order, reply.data)
            except CodecError as error:
                _LOG.warning("client %d cannot be asked: %s", order.client, error)
                self.silent(order.client)
            else:
                self.heard(order.client)
        self._bill(kind, "up", came, round)
        return found

    def _bill(self, kind: Kind, direction: Direction, sizes: Mapping[int, int], round: int) -> None:
        if sizes:
            self.ledger().post(kind, direction, list(sizes), [8 * size for size in sizes.values()], round, paper_bits=0)

    def meet(self, round: int, until_s: float | None = None) -> Ids:
        """Ask who is there and was never met what it has; who is met now, sorted. ``until_s``: to wait for answers; None: those that
        do not lie there already are taken in the next time, so that a newcomer keeps nobody waiting."""
        self.present()
        asked = {order.client for order in self._asked.values()}
        strangers = [int(k) for k in self.present_and_talking() if not self.met[k] and int(k) not in asked]
        self._asked |= self._send({k: self.desk.enrol(k) for k in strangers}, "enrol", round)
        now: list[int] = []
        while self._asked:
            replies = self.post.wait(list(self._asked), self.post.now_s if until_s is None else until_s)
            for client, (examples, signals) in self._read(self._asked, replies, self.desk.told, "enrol", round).items():
                self.met[client], self.examples[client] = True, examples
                now.append(client)
                for name, value in signals.items():
                    self.signals.setdefault(name, np.full((len(self.met), len(value)), np.nan))[client] = value
            if not replies:
                break
        return np.array(sorted(now), np.int64)

    def gather(self, round: int) -> Ids:
        """Wait for everybody who was met before, or, where nobody was, for the population; who is met now, sorted.

        Raises
        ------
        ConfigError: nobody came in all the time there is.
        """
        until_s = self.post.now_s + self.limits.start_s
        expected, new = self.met.copy() if self.met.any() else ~self.met, np.zeros(0, np.int64)
        while True:
            new = np.union1d(new, self.meet(round, min(until_s, self.post.now_s + self.limits.look_s)))
            there = np.isin(np.flatnonzero(expected), self.present(fresh=False))
            if (self.met[expected] & there).all() or self.post.now_s >= until_s:
                break
            self.post.wait([], min(until_s, self.post.now_s + self.limits.look_s))
        if not self.met.any():
            raise ConfigError(
                f"no client came within {self.limits.start_s:g} s; start nodes whose apps answer for this experiment, "
                "or give more time with limits=Limits(start_s=...)"
            )
        return new

    def learn(self, reports: Reports) -> None:
        """Take in how long clients took."""
        steps = np.maximum(reports.local_steps, 1.0)
        seen = np.stack([reports.compute_s / steps, reports.download_s, reports.upload_s], axis=1)
        good = np.isfinite(seen).all(axis=1)
        self.speed[reports.ids[good]] = seen[good]

    def estimates(self, ids: Ids, steps: NDArray[np.int64], up_bits: int) -> dict[str, Floats]:
        """The planner's signals: what was measured of these clients the last time they delivered. READING: who never did is taken for
        the mean of those who have, and while nobody has, for one second each way and each step."""
        known = self.speed[np.isfinite(self.speed).all(axis=1)]
        usual = known.mean(axis=0) if len(known) else np.ones(3)
        step_s, down_s, up_s = np.where(np.isfinite(self.speed[ids]), self.speed[ids], usual).T
        with np.errstate(divide="ignore"):
            mbps = up_bits / up_s / 1e6
        return {
            "compute_estimate_s": step_s * steps, "download_estimate_s": down_s, "upload_estimate_s": up_s, "uplink_mbps": mbps,
        }  # fmt: skip

    def save(self) -> dict[str, Any]:
        """As plain arrays."""
        return {"met": self.met, "examples": self.examples, "signals": dict(self.signals), "speed": self.speed}

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Go on from :meth:`save`."""
        self.met, self.examples, self.speed = saved["met"], saved["examples"], saved["speed"]
        self.signals = dict(saved["signals"])
