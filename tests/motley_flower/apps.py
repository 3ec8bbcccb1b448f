"""Client apps on a problem with a known answer, and runs of a strategy with them: each client draws
the model to its own point."""

from __future__ import annotations

import numpy as np

from motley.selectors import Selector, build
from motley_flower.messages import flower
from motley_flower.strategy.wrapper import with_selector
from tests.motley_flower.fake_grid import FakeGrid, FakeNode

D = 3


def target(client):
    return np.arange(D, dtype=np.float32) + client


def loss_at(arrays, client):
    return float(((arrays["w"].numpy() - target(client)) ** 2).sum() / 2)


def model(**arrays):
    words = flower()
    arrays = arrays or {"w": np.zeros(D, np.float32)}
    return words.ArrayRecord(
        {k: v if isinstance(v, words.Array) else words.Array(v) for k, v in arrays.items()}
    )


def sgd(message, context):
    """The client app: answers every query, and trains one step."""
    words = flower()
    client = context.node_config["partition-id"]
    kind = message.metadata.message_type
    if kind == "query.motley_enrol":
        told = {
            "partition-id": client,
            "num-examples": 10 + client,
            "label_histogram": [client + 1, 3, *[0] * 8],
        }
        return reply(message, told=words.MetricRecord(told))
    sent = next(iter(message.content.array_records.values()))
    loss = loss_at(sent, client)
    if kind == "query.motley_probe":
        size = sum(array.numpy().size for array in sent.values())
        known = {
            "loss": loss,
            "val_loss": loss,
            "robust_loss": loss,
            "grad_norm": loss,
            "gradient_sketch": [loss] * 256,
        }
        asked = message.content["motley"]["signals"]
        return reply(
            message,
            probed=words.MetricRecord(
                {name: {**known, "gradient": [loss] * size}[name] for name in asked}
            ),
        )
    if kind == "evaluate":
        return reply(
            message, metrics=words.MetricRecord({"num-examples": 10 + client, "eval_loss": loss})
        )
    w = sent["w"].numpy()
    told = {
        "num-examples": 10 + client,
        "loss": loss,
        "loss_rms": loss,
        "arrival_loss": loss,
        "learning_rates": 0.5,
    }
    new = w + np.float32(0.5) * (target(client) - w)
    return reply(message, arrays=model(w=new.astype(np.float32)), metrics=words.MetricRecord(told))


def reply(message, **records):
    words = flower()
    return words.Message(words.RecordDict(records), reply_to=message)


def nodes(*clients, app=sgd, **options):
    """Node 1000 + 7 k is client k."""
    return {
        1000 + 7 * client: FakeNode(app, {"partition-id": client}, **options) for client in clients
    }


def grid(n, **options):
    return FakeGrid(nodes(*range(n)), **options)


def fedavg(**options):
    return flower("serverapp.strategy").FedAvg(**{"fraction_evaluate": 0.0, **options})


def run(on, selector="uniform", m=2, rounds=3, strategy=None, timeout=200, **options):
    """Run FedAvg, or another strategy, with a selector on a fake grid; return the coordinator and
    Flower's result."""
    if not isinstance(selector, Selector):
        selector = build(selector, seed=0, horizon=50)
    wrapped = with_selector(strategy or fedavg(), selector, m, clock=on.clock, **options)
    result = wrapped.start(on, model(), num_rounds=rounds, timeout=timeout)
    return wrapped.motley, result


def weights(result):
    """Return the final model."""
    return next(iter(result.arrays.values())).numpy()


def outcomes(coordinator, round):
    """Return client -> outcome of one round."""
    return {row.client: row.outcome for row in coordinator.rows if row.round == round}


def observed_reports(selector):
    """Return a list that fills with what the selector observes from now on: (round, list of
    reports)."""
    observed = []
    observe = selector.observe

    def recording(round, reports):
        reports = list(reports)
        observed.append((round, reports))
        observe(round, reports)

    selector.observe = recording
    return observed
