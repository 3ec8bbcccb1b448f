"""A seeded campaign against a deployment of Motley's own loop: ten honest clients, two hostile ones
of the file of clients, and nodes that are in no file start, claim to be somebody, die and come
back, between rounds and within them."""

from __future__ import annotations

import dataclasses
from collections import Counter
from functools import partial

import numpy as np
import psutil
import torch

from motley.transport.packet import Packet
from motley_flower.client_list import ClientList
from motley_flower.deployed.client_app import Node
from motley_flower.deployed.grid_transport import GridTransport, bytes_in, content_of
from motley_flower.deployed.server_app import run
from motley_flower.messages import flower
from tests.motley.core.test_codec import forged
from tests.motley_flower.client_runtimes import SOON, answers, experiment
from tests.motley_flower.fake_grid import FakeGrid, FakeNode
from tests.motley_flower.keys import client_file, public_key
from tests.motley_flower.test_protocol import (
    SPOILED,
    changed,
    numbered,
    opened,
    parts_of,
    with_part,
)

HONEST = tuple(range(10))
HOSTILE = (10, 11)
LIMITS = dataclasses.replace(SOON, work_s=60.0, query_s=20.0, pause_s=2.0, longest_pause_s=8.0)
A_ROUND = 8
"""Hostile acts of nodes in a round, beside up to two uploads."""
QUIET = 4
"""Rounds at the end in which no node acts any more, so that the server has looked at all of
them."""
SEEN_S = 4.0
"""Seconds that an unknown node lives at least: between two looks of the server nobody can notice
it."""
EVIL = "loss\n2026-11-25 ERROR all is lost\x1b[2J\u202e"


def setup(acts):
    """All clients in each round, each with one step on all of its samples: what an honest one sends
    depends on the model alone."""
    return experiment(
        population=len(HONEST) + len(HOSTILE),
        cohort=len(HONEST) + len(HOSTILE),
        stop={"rounds": acts // A_ROUND + QUIET},
        task={"name": "synthetic", "dim": 8, "classes": 4},
        partition="by_writer",
        evaluate={"every": 10**6},
        local={"steps": 1, "batch_size": 10**6, "optimizer": {"name": "sgd", "lr": 0.05}},
    )


def overlapping(letter):
    """A header of 40 KiB that names the same 60,000 bytes 1,300 times."""
    blob = bytes(60_000)
    return numbered(
        forged({"l": [{"a": [0, len(blob)], "t": "|u1", "s": [len(blob)]}] * 1300}, blob)
    )


def everywhere(letter, value=1e9):
    size = parts_of(letter)["delta"].size
    return with_part(letter, "delta", Packet(size, torch.full((size,), value, dtype=torch.float64)))


UPLOADS = {
    **SPOILED,
    "the same bytes 1,300 times": overlapping,
    "a signal with a line of the log": lambda letter: changed(
        letter, signals={**opened(letter).signals, EVIL: np.zeros(())}
    ),
    "a part with a line of the log": lambda letter: with_part(
        letter, EVIL, Packet(1, torch.ones(1))
    ),
}
"""What a hostile client sends in place of its upload: each is rejected."""


class Campaign:
    """One deployment under attack.

    Parameters
    ----------
    seed: of all that happens. acts: of hostile nodes, about; uploads come on top. hostile: whether
    there are any. storm: whether honest clients die and come back, too.

    Attributes
    ----------
    acts: what was done, by kind. expected: (client, event) -> incidents that there must be. claims:
    (hostile client, whom it claimed).
    grown: bytes by which the process has grown since round 2, at most.
    """

    def __init__(self, folder, seed, acts, hostile=True, storm=False):
        folder.mkdir()
        self.setup = setup(acts)
        self.folder = folder
        self.rng = np.random.default_rng(seed)
        self.hostile = hostile
        self.storm = storm
        self.node = Node(self.setup, folder / "sites")
        self.acts = Counter()
        self.expected = Counter()
        self.claims = set()
        self.grown = 0
        self._first = None
        self._huge = 0
        self._lies = Counter()
        self._next = 1000
        self._since = {}  # unknown node -> when it started
        honest = {
            100 + k: FakeNode(
                partial(answers, self.node), {"partition-id": k}, public_key=public_key(k)
            )
            for k in HONEST
        }
        theirs = {
            100 + k: FakeNode(
                partial(self._hostile_app, k), {"partition-id": k}, public_key=public_key(k)
            )
            for k in HOSTILE
        }
        self.grid = FakeGrid(honest | theirs if hostile else honest)
        self.at = {client: 100 + client for client in (*HONEST, *HOSTILE)}

    def run(self):
        """Run to the end, and return the run."""
        names = [f"site_{k:02d}" for k in HONEST] + ["mallory", "trudy"]
        clients = ClientList(client_file(self.folder / "clients.toml", names))
        transport = GridTransport(self.grid, limit_s=5.0, clock=self.grid.clock, clients=clients)
        return run(
            transport,
            self.setup,
            out=self.folder / "run",
            limits=LIMITS,
            told=self._between,
            progress=False,
            report=False,
        )

    # ------------------------------------------------------------------ hostile clients of the file

    def _hostile_app(self, client, message, context):
        app = flower()
        kind = message.metadata.message_type
        if kind == "query.motley_enrol":
            claimed = context.node_config["partition-id"]
            self.claims |= {(client, claimed)} if claimed != client else set()
            told = app.MetricRecord({"partition-id": claimed})
            return app.Message(app.RecordDict({"motley": told}), reply_to=message)
        letter = self.node.runtime(client, {}).answer(client, bytes_in(message))
        sent = (
            self._enrolment(client, letter)
            if kind == "query.motley"
            else self._upload(client, letter)
        )
        return None if sent is None else app.Message(content_of(sent), reply_to=message)

    def _enrolment(self, client, letter):
        """Nonsense twice, then a number of samples that would own the model."""
        self._lies[client] += 1
        if self._lies[client] <= 2:
            self._act("enrolment that is nonsense", client, "unanswered")
            return (b"\x80\x04 garbage", changed(letter, signals={EVIL: np.zeros(3)}))[
                self._lies[client] - 1
            ]
        self._act("2^40 samples", client, "capped")
        return changed(
            letter, signals={**opened(letter).signals, "num_examples": np.array(2.0**40)}
        )

    def _upload(self, client, letter):
        drawn = self.rng.random()
        if drawn < 0.03:
            self._act("silence", client, "lost")
            return None
        if drawn < 0.1:
            self._act("an app that raises", client, "lost")
            raise RuntimeError(EVIL * 1000)
        if drawn < 0.2 and client == HOSTILE[0]:
            self._huge += 1
            self._act("10^9 everywhere", client, "rejected")
            if self._huge == 3:
                self.expected[client, "set aside"] += 1
            return everywhere(letter)
        kind = self.rng.choice(sorted(UPLOADS))
        self._act(f"an upload: {kind}", client, "rejected")
        return UPLOADS[kind](letter)

    def _act(self, kind, client=None, event=None):
        self.acts[kind] += 1
        if event is not None:
            self.expected[client, event] += 1

    # ------------------------------------------------------------------------------------- nodes

    def _between(self, done):
        """After a step: measure memory, and let nodes act now or within the next round."""
        rss = psutil.Process().memory_info().rss
        if done.round >= 2:
            self._first = self._first or rss
            self.grown = max(self.grown, rss - self._first)
        for _ in range(
            A_ROUND if self.hostile and done.round <= self.setup.stop.rounds - QUIET else 0
        ):
            self.grid.events.append(
                (self.grid.now_s + float(self.rng.uniform(0, 1.25)), self._of_a_node)
            )
        if self.storm:
            self.grid.events.append(
                (self.grid.now_s + float(self.rng.uniform(0, 1.25)), self._honest_trouble)
            )

    def _of_a_node(self):
        strangers = [
            node for node, since in self._since.items() if since <= self.grid.now_s - SEEN_S
        ]
        kind = (
            self.rng.choice(["start"] * 4 + ["claim"] + ["death", "restart"] * 2)
            if strangers
            else "start"
        )
        if kind == "start":
            self._stranger()
        elif kind == "claim":
            self._claim(int(self.rng.choice(HOSTILE)))
        elif kind == "death":
            self._act("an unknown node dies")
            node = int(self.rng.choice(strangers))
            del self.grid.nodes[node], self._since[node]
        else:
            self._act("an unknown node starts again as somebody else")
            self.grid.restart(
                int(self.rng.choice(strangers)), {"partition-id": int(self.rng.choice(HONEST))}
            )

    def _stranger(self):
        """A node with a key that the file does not have, or none, that claims to be an honest
        client."""
        self._next += 1
        key = public_key(self._next) if self.rng.random() < 0.2 else b""
        config = {"partition-id": int(self.rng.choice(HONEST))}
        self._since[self._next] = self.grid.now_s
        self.grid.nodes[self._next] = FakeNode(partial(answers, self.node), config, public_key=key)
        self._act("an unknown node claims to be a client", -1, "refused")

    def _claim(self, client):
        """A hostile client's node, started again, says that it is another client."""
        self._act("a client claims to be another")
        self.grid.restart(self.at[client], {"partition-id": int(self.rng.choice(HONEST))})

    def _honest_trouble(self):
        client = int(self.rng.choice(HONEST))
        node = self.at[client]
        drawn = self.rng.random()
        if self.grid.nodes[node].killed_at is not None:
            self._next += 1
            self.grid.revive(node, self._next if drawn < 0.5 else None)
            if drawn < 0.5:
                del self.grid.nodes[node]
                self.at[client] = self._next
        elif drawn < 0.3:
            self.grid.kill(node)
        else:
            self.grid.restart(node)
