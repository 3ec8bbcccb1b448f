"""Client apps that go wrong, by name: what a client does in place of answering an order to
train."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import time
from pathlib import Path
from unittest import mock

import numpy as np

from motley_flower.deployed import protocol
from motley_flower.deployed.client_app import Node
from motley_flower.deployed.grid_transport import bytes_in, content_of
from motley_flower.deployed.protocol import open_answer, open_order
from motley_flower.messages import flower

__all__ = ["FAULTS", "LATE_S", "SLOW_S", "SMALL", "FaultyNode", "StrategyClient", "full"]

LATE_S = 200.0
"""How long a late answer takes: more than the deployment waits."""
SLOW_S = 150.0
"""How long an answer takes that misses a deadline of 120 s."""
LIMIT = 10_000_000
SMALL = 96 * 2**20
"""Bytes of the largest disk that is filled."""


def _changed(reply, **fields):
    """The answer, sealed anew with other fields."""
    answer = open_answer(bytes_in(reply), LIMIT)
    reply.content["motley"]["message"] = dataclasses.replace(answer, **fields).seal()
    return reply


def raises(node, message, context):
    raise RuntimeError("this client's app goes wrong")


def late(node, message, context):
    time.sleep(LATE_S)
    return node.right(message, context)


def slow(node, message, context):
    time.sleep(SLOW_S)
    return node.right(message, context)


def another_round(node, message, context):
    reply = node.right(message, context)
    return _changed(reply, round=open_answer(bytes_in(reply), LIMIT).round + 1)


def another_id(node, message, context):
    return _changed(node.right(message, context), client=0)


def again(node, message, context):
    """Answers with what it answered the last time."""
    return flower().Message(content_of(node.kept(context).read_bytes()), reply_to=message)


def another_version(node, message, context):
    """Its Motley has been updated to one of the next protocol."""
    with mock.patch.object(protocol, "PROTOCOL", protocol.PROTOCOL + 1):
        return node.right(message, context)


def dies(node, message, context):
    """As a process that the operating system kills because memory is short."""
    os.kill(os.getpid(), signal.SIGKILL)


def disk_full(node, message, context):
    """Its folder has no byte left while it works."""
    with full(Path(context.node_config["folder"])):
        return node.right(message, context)


@contextlib.contextmanager
def full(folder):
    """Fill the small disk of a folder within a block."""
    about = os.statvfs(folder)
    assert about.f_frsize * about.f_blocks <= SMALL, f"{folder} is on a large disk"
    filler = folder / "filler"
    with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(512))
    try:
        yield
    finally:
        filler.unlink()


FAULTS = {
    one.__name__: one
    for one in (
        raises,
        slow,
        late,
        another_round,
        another_id,
        another_version,
        again,
        dies,
        disk_full,
    )
}


class FaultyNode(Node):
    """A client that follows a plan.

    Parameters
    ----------
    plan: client -> round -> name of a fault; whatever is not planned goes well. folder, if any: of
    all its clients.
    """

    def __init__(self, experiment, plan, folder=None):
        super().__init__(experiment, folder)
        self.plan = plan

    def right(self, message, context):
        return super().answer(message, context)

    def kept(self, context):
        return Path(context.node_config["folder"]) / "last-answer"

    def answer(self, message, context):
        order = open_order(bytes_in(message))
        fault = self.plan.get(order.client, {}).get(order.round) if order.kind == "train" else None
        if fault is not None:
            return FAULTS[fault](self, message, context)
        reply = self.right(message, context)
        if order.kind == "train" and "folder" in context.node_config:
            self.kept(context).write_bytes(bytes_in(reply))
        return reply


class StrategyClient:
    """A client of a Flower strategy that moves the model half way to its own number, and follows a
    plan.

    Parameters
    ----------
    plan: client -> number of the server's round in the message -> name of a fault. A fault happens
    once: a strategy that is started again begins at round 1.
    """

    def __init__(self, plan):
        self.plan = plan

    def right(self, message, context):
        app = flower()
        w = message.content["arrays"]["w"].numpy()
        new = w + 0.5 * (context.node_config["partition-id"] + 1.0 - w)
        records = {
            "arrays": app.ArrayRecord({"w": app.Array(new)}),
            "metrics": app.MetricRecord({"num-examples": 10, "loss": 1.0}),
        }
        return app.Message(app.RecordDict(records), reply_to=message)

    def train(self, message, context):
        client = context.node_config["partition-id"]
        t = message.content["config"]["server-round"]
        fault = self.plan.get(client, {}).get(t)
        happened = Path(context.node_config["folder"]) / f"round-{t}"
        if fault is None or happened.exists():
            return self.right(message, context)
        happened.parent.mkdir(parents=True, exist_ok=True)
        happened.touch()
        if fault == "another_form":
            reply = self.right(message, context)
            reply.content["arrays"]["w"] = flower().Array(np.zeros(4))
            return reply
        return FAULTS[fault](self, message, context)
