"""The roll: which clients have been met, what they told once, how fast they were; and short questions to many at once."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from motley.adapters.flower.desk import Desk
from motley.adapters.flower.letters import Order
from motley.adapters.flower.mailbox import Post
from motley.core.errors import CodecError, ConfigError
from motley.core.records import Reports
from motley.transport.ledger import Kind, Ledger

__all__ = ["Limits", "Roll"]

Ids = NDArray[np.int64]
Floats = NDArray[np.float64]
T = TypeVar("T")
_LOG = logging.getLogger("motley.flower")


@dataclass(frozen=True)
class Limits:
    """How long a deployment waits; no wait is without a limit.

    Parameters
    ----------
    start_s: for the whole population to come, before round 1. work_s: for a client's upload; then it counts as dropped. Also the life
    of a letter. query_s: for answers to short questions (enrolment, probes). poll_s: between two looks into the mailbox.
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


class Roll:
    """Clients 0 to K - 1, as far as they are known.

    Parameters
    ----------
    desk, post: of the run. ledger: where its traffic is posted. population: K. limits: of waiting.
    """

    def __init__(self, desk: Desk, post: Post, ledger: Callable[[], Ledger], population: int, limits: Limits) -> None:
        self.desk, self.post, self.ledger, self.limits = desk, post, ledger, limits
        self.met = np.zeros(population, bool)
        self.examples = np.zeros(population, np.int64)
        self.signals: dict[str, Floats] = {}
        self.speed = np.full((population, 3), np.nan)  # what was measured last: seconds per step, seconds down, seconds up
        self._strangers: set[int] = set()

    def present(self, fresh: bool = True) -> Ids:
        """Who can be reached now, met or not; ids that the experiment does not have are told once and passed over."""
        ids = np.array(sorted(self.post.present(fresh)), np.int64)
        beyond = set(ids[(ids < 0) | (ids >= len(self.met))].tolist()) - self._strangers
        if beyond:
            self._strangers |= beyond
            _LOG.warning("clients %s are there, and the experiment has clients 0 to %d", sorted(beyond)[:5], len(self.met) - 1)
        return ids[(ids >= 0) & (ids < len(self.met))]

    def ask(self, orders: Mapping[int, Order], read: Callable[[Order, object], T], kind: Kind, round: int) -> dict[int, T]:
        """Ask these clients something short, and what those who answered soundly said; all of it is billed as ``kind``."""
        sealed = {client: order.seal() for client, order in orders.items()}
        sent = self.post.mailbox.push(sealed, "query", self.limits.query_s) if sealed else {}
        self._bill(kind, "down", {client: len(sealed[client]) for client in sent}, round)
        waiting, until_s = {message: client for client, message in sent.items()}, self.post.now_s + self.limits.query_s
        found, came = {}, {}
        while waiting:
            replies = self.post.wait(list(waiting), until_s)
            if not replies:
                _LOG.warning("clients %s did not answer within %g s", sorted(waiting.values())[:5], self.limits.query_s)
                break
            for reply in replies:
                client = waiting.pop(reply.message, None)
                if client is None:
                    continue  # the same answer once more
                came[client] = len(reply.data) if isinstance(reply.data, bytes) else 0
                try:
                    if reply.data is None:
                        raise CodecError(reply.reason or "lost")
                    found[client] = read(orders[client], reply.data)
                except CodecError as error:
                    _LOG.warning("client %d cannot be asked: %s", client, error)
        self._bill(kind, "up", came, round)
        return found

    def _bill(self, kind: Kind, direction: Any, sizes: Mapping[int, int], round: int) -> None:
        if sizes:
            self.ledger().post(kind, direction, list(sizes), [8 * size for size in sizes.values()], round, paper_bits=0)

    def meet(self, round: int) -> Ids:
        """Ask everybody who is there and was never met what they have; who is met now, sorted."""
        strangers = [int(k) for k in self.present() if not self.met[k]]
        told = self.ask({k: self.desk.enrol(k) for k in strangers}, self.desk.told, "enrol", round)
        for client, (examples, signals) in told.items():
            self.met[client], self.examples[client] = True, examples
            for name, value in signals.items():
                self.signals.setdefault(name, np.full((len(self.met), len(value)), np.nan))[client] = value
        return np.array(sorted(told), np.int64)

    def learn(self, reports: Reports) -> None:
        """Take in how long clients took."""
        steps = np.maximum(reports.local_steps, 1.0)
        seen = np.stack([reports.compute_s / steps, reports.download_s, reports.upload_s], axis=1)
        good = np.isfinite(seen).all(axis=1)
        self.speed[reports.ids[good]] = seen[good]

    def estimates(self, ids: Ids, steps: NDArray[np.int64], up_bits: int) -> dict[str, Floats]:
        """The planner's signals: what was measured of these clients the last time they delivered; NaN of who never did."""
        step_s, down_s, up_s = self.speed[ids].T
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
