"""The client app: answers enrolment and probes, and trains."""

from __future__ import annotations

from typing import Any

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from digits_app.task import CLASSES, client_digits, network
from motley_flower import enrolled, measured, wanted

app = ClientApp()
BATCH = 32


def my_data(context: Context, part: str = "train") -> tuple[Any, Any]:
    """Return this client's digits; a fifth of them are for validation."""
    x, y = client_digits(
        int(context.node_config["partition-id"]), int(context.node_config["num-partitions"])
    )
    cut = len(y) - len(y) // 5
    return (x[:cut], y[:cut]) if part == "train" else (x[cut:], y[cut:])


@app.query("motley_enrol")
def enrol(message: Message, context: Context) -> Message:
    """Answer with the client's id and its number of digits of each class."""
    _, y = my_data(context)
    return enrolled(message, context, num_examples=len(y), labels=y, classes=CLASSES)


@app.query("motley_probe")
def probe(message: Message, context: Context) -> Message:
    """Measure what the selector needs before it chooses, on the model in the message."""
    import torch
    from torch.nn.functional import cross_entropy

    model = network()
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    found = {}
    for name, batches in wanted(message).items():
        part = "validation" if name == "val_loss" else "train"
        x, y = map(torch.from_numpy, my_data(context, part))
        x, y = (x[: batches * BATCH], y[: batches * BATCH]) if batches else (x, y)
        with torch.inference_mode():
            outputs = model(x)
            p = outputs.softmax(1)
            loss = cross_entropy(outputs, y)
            if name == "robust_loss":  # FLASH, for its pseudo labels are the received model's own
                doubt = (1 - p[torch.arange(len(y)), y]).mean()
                loss = loss + 0.1 * cross_entropy(outputs, p) + 4 * 4 * doubt
        found[name] = loss.item()
    return measured(message, found)


@app.train()
def train(message: Message, context: Context) -> Message:
    """Train some epochs by SGD; the reply's metrics hold ``num-examples`` for the strategy and
    ``loss`` for the table."""
    import torch
    from torch.nn.functional import cross_entropy

    model = network()
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    x, y = map(torch.from_numpy, my_data(context))
    optimizer = torch.optim.SGD(model.parameters(), lr=float(context.run_config["lr"]))
    order = torch.Generator().manual_seed(int(message.content["config"]["server-round"]))
    total = 0.0
    seen = 0
    for _ in range(int(context.run_config["local-epochs"])):
        for at in torch.randperm(len(y), generator=order).split(BATCH):
            loss = cross_entropy(model(x[at]), y[at])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total = total + loss.item() * len(at)
            seen = seen + len(at)
    metrics = MetricRecord({"num-examples": len(y), "loss": total / seen})
    return Message(
        RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics}),
        reply_to=message,
    )
