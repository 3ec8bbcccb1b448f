"""The air: who was sent out and is waited for, who is lost, who was given up and may still answer; and the clock beside them."""

from __future__ import annotations

import dataclasses
import logging
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from motley.adapters.flower.deployed.client_registry import Limits
from motley.adapters.flower.deployed.request_codec import Flight, RequestCodec
from motley.adapters.flower.deployed.transport import Reply, WaitingTransport
from motley.core.errors import CodecError
from motley.core.records import Outcome
from motley.timing.synchrony import ServerStep

__all__ = ["DeployedClients"]

_LOG = logging.getLogger("motley.flower")


class DeployedClients:
    """The flights of a deployment.

    Parameters
    ----------
    desk, post: of the run. limits: of waiting. late: hears of an answer that nobody waits for any longer. silent: of a client that
    never answered.

    Attributes
    ----------
    flying: under way, or arrived and waiting for the server's step. gone: lost or rejected since the last step. cancelled: given up.
    now_s: the moment of the last event; between two events no time passes.
    """

    def __init__(
        self,
        desk: RequestCodec,
        post: WaitingTransport,
        limits: Limits,
        late: Callable[[Flight], None],
        silent: Callable[[int], None],
    ) -> None:
        self.desk, self.post, self.limits, self.late, self.silent = desk, post, limits, late, silent
        self.flying: list[Flight] = []
        self.gone: list[Flight] = []
        self.cancelled: list[Flight] = []
        self.now_s = 0.0
        self._there: frozenset[int] = frozenset()  # who could be reached at the last look

    def tick(self) -> float:
        """It is now."""
        self.now_s = max(self.now_s, self.post.now_s)
        return self.now_s

    def seen(self) -> None:
        """Who can be reached was looked at: nobody of them is news."""
        self._there = self.post.present(fresh=False)

    @property
    def busy(self) -> set[int]:
        """Clients that cannot be asked: under way, given up without having answered, or lost since the last step."""
        return {flight.client for flight in (*self.flying, *self.gone, *self.cancelled)}

    def send(self, flights: Iterable[Flight], sealed: Mapping[int, bytes]) -> None:
        """Send these out, with one letter each; who cannot be reached is lost."""
        flights = list(flights)
        sent = self.post.mailbox.push(sealed, "train", self.limits.work_s) if sealed else {}
        self.flying += flights
        for flight in flights:
            flight.message = sent.get(flight.client, "")
            if not flight.message:
                flight.bits_down = 0
                self._lose(flight, "its letter could not be sent")

    def wait(self, until_s: float) -> None:
        """Until something happens: an answer, a client that is lost or comes, the moment itself."""
        waited = {f.message: f for f in (*self.flying, *self.cancelled) if not math.isfinite(f.arrives_s)}
        until_s = min([until_s, self.now_s + self.limits.work_s, *(f.expires_s for f in waited.values())])
        replies = self.post.wait(list(waited), until_s, self._there)
        self.seen()
        self.tick()
        for reply in replies:
            flight = waited.pop(reply.message, None)
            if flight is not None:  # else the same answer once more
                self._take(flight, reply)
        for flight in waited.values():
            if self.now_s >= flight.expires_s:
                self.silent(flight.client)
                self._lose(flight, f"no answer within {self.limits.work_s:g} s")

    def _take(self, flight: Flight, reply: Reply) -> None:
        """An answer: it is checked at once; when nobody waits for it any longer it is only paid for."""
        if reply.data is None:
            self._lose(flight, reply.reason or "lost")
            return
        flight.arrives_s = self.now_s
        flight.bits_up = 8 * len(reply.data) if isinstance(reply.data, bytes) else 0
        if flight in self.cancelled:
            self.cancelled.remove(flight)
            self.late(flight)
            _LOG.info("client %d answered dispatch %d of round %d too late", flight.client, flight.dispatch, flight.round)
            return
        try:
            flight.trained, answer = self.desk.trained(flight, reply.data)
        except CodecError as error:
            _LOG.warning("client %d sent what cannot be used: %s", flight.client, error)
        else:
            flight.compute_s = float(answer.compute_s)
            if answer.forgot:
                _LOG.warning("client %d has lost what it kept, and began anew", flight.client)
        if flight.trained is None or not flight.trained.finite:
            self._out(flight, Outcome.REJECTED)

    def _lose(self, flight: Flight, why: str) -> None:
        _LOG.warning("client %d is lost (dispatch %d of round %d): %s", flight.client, flight.dispatch, flight.round, why)
        if flight in self.cancelled:
            self.cancelled.remove(flight)
        else:
            self._out(flight, Outcome.DROPPED)

    def _out(self, flight: Flight, outcome: Outcome) -> None:
        """It will not be folded."""
        flight.outcome, flight.arrives_s = outcome, min(flight.arrives_s, self.now_s)
        self.flying.remove(flight)
        self.gone.append(flight)

    def land(self, step: ServerStep, stay: NDArray[np.bool_]) -> list[Flight]:
        """The server steps: whose flight ends with it, in order of client id, each with its outcome; ``stay``: whose does not."""
        ended, staying = [], []
        scale = np.ones(len(self.flying)) if step.scale is None else step.scale
        for i, flight in enumerate(self.flying):
            if stay[i]:
                staying.append(flight)
                continue
            flight.outcome, flight.scale = Outcome.ACCEPTED if step.accept[i] else Outcome.LATE, float(scale[i])
            ended.append(flight)
            if not math.isfinite(flight.arrives_s):
                self.cancelled.append(flight)
        landed = sorted([*ended, *self.gone], key=lambda flight: flight.client)
        self.flying, self.gone = staying, []
        return landed

    def save(self) -> list[dict[str, Any]]:
        """Who is under way; between two steps."""
        return [dataclasses.asdict(dataclasses.replace(f, trained=None, outcome=None)) for f in self.flying]

    def restore(self, saved: Iterable[Mapping[str, Any]], now_s: float) -> None:
        """Go on from :meth:`save`: a server that begins again finds none of its letters, and their clients are dropped."""
        self.now_s = now_s
        self.gone = [Flight(**{**row, "outcome": Outcome.DROPPED, "arrives_s": now_s}) for row in saved]
