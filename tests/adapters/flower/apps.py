"""Client apps on a problem with a known answer: each client draws the model towards a point of its own."""

from __future__ import annotations

import numpy as np

from motley.adapters.flower.messages import flower
from tests.adapters.flower.fake_grid import FakeGrid, FakeNode

D = 3


def target(client):
    return np.arange(D, dtype=np.float32) + client


def loss_at(arrays, client):
    return float(((arrays["w"].numpy() - target(client)) ** 2).sum() / 2)


def model(**arrays):
    words = flower()
    arrays = arrays or {"w": np.zeros(D, np.float32)}
    return words.ArrayRecord({k: v if isinstance(v, words.Array) else words.Array(v) for k, v in arrays.items()})


def sgd(message, context):
    """Answers everything Motley asks, truthfully."""
    words = flower()
    client = context.node_config["partition-id"]
    kind = message.metadata.message_type
    if kind == "query.motley_enrol":
        told = {"partition-id": client, "num-examples": 10 + client, "label_histogram": [client + 1, 3, *[0] * 8]}
        return reply(message, told=words.MetricRecord(told))
    sent = next(iter(message.content.array_records.values()))
    loss = loss_at(sent, client)
    if kind == "query.motley_probe":
        size = sum(array.numpy().size for array in sent.values())
        known = {"loss": loss, "val_loss": loss, "robust_loss": loss, "grad_norm": loss, "gradient_sketch": [loss] * 256}
        asked = message.content["motley"]["signals"]
        return reply(message, probed=words.MetricRecord({name: {**known, "gradient": [loss] * size}[name] for name in asked}))
    if kind == "evaluate":
        return reply(message, metrics=words.MetricRecord({"num-examples": 10 + client, "eval_loss": loss}))
    w = sent["w"].numpy()
    told = {"num-examples": 10 + client, "loss": loss, "loss_rms": loss, "arrival_loss": loss, "learning_rates": 0.5}
    new = w + np.float32(0.5) * (target(client) - w)
    return reply(message, arrays=model(w=new.astype(np.float32)), metrics=words.MetricRecord(told))


def reply(message, **records):
    words = flower()
    return words.Message(words.RecordDict(records), reply_to=message)


def sites(*clients, app=sgd, **options):
    """Node 1000 + 7 k is client k."""
    return {1000 + 7 * client: FakeNode(app, {"partition-id": client}, **options) for client in clients}


def grid(n, **options):
    return FakeGrid(sites(*range(n)), **options)
