"""Two Flower apps in the shape of Flower's public examples, written for these tests: images with a
configured rate, and a table.

Each is what a project has before Motley; :data:`CHANGES` are the lines that bring a selector in.
"""

from __future__ import annotations

import difflib

__all__ = ["APPS", "CHANGES", "changed", "changed_lines"]

IMAGES = {
    "task": '''"""Network, data, training and evaluation."""

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    """A small convolutional network for 8 x 8 images."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 6, 3)
        self.norm = nn.BatchNorm2d(6)
        self.pool = nn.MaxPool2d(2)
        self.out = nn.Linear(6 * 3 * 3, 10)

    def forward(self, images):
        features = self.pool(torch.relu(self.norm(self.conv(images))))
        return self.out(features.flatten(1))


def load_data(partition, partitions, batch_size):
    """Return loaders of one partition: four fifths to train on, the rest to test."""
    digits = load_digits()
    images = torch.tensor(digits.images[partition::partitions], dtype=torch.float32)
    labels = torch.tensor(digits.target[partition::partitions])
    images, cut = images[:, None] / 16, len(labels) * 4 // 5
    train = TensorDataset(images[:cut], labels[:cut])
    test = TensorDataset(images[cut:], labels[cut:])
    return DataLoader(train, batch_size, shuffle=True), DataLoader(test, batch_size)


def fit(net, loader, epochs, rate, device):
    """Train by SGD and return the mean loss of the batches."""
    net.to(device).train()
    criterion = nn.CrossEntropyLoss().to(device)
    optimizer = torch.optim.SGD(net.parameters(), lr=rate, momentum=0.9)
    total = 0.0
    for _ in range(epochs):
        for images, labels in loader:
            optimizer.zero_grad()
            loss = criterion(net(images.to(device)), labels.to(device))
            loss.backward()
            optimizer.step()
            total += loss.item()
    return total / (epochs * len(loader))


def score(net, loader, device):
    """Return mean loss and accuracy."""
    net.to(device).eval()
    criterion = nn.CrossEntropyLoss()
    right, loss = 0, 0.0
    with torch.no_grad():
        for images, labels in loader:
            outputs = net(images.to(device))
            loss += criterion(outputs, labels.to(device)).item()
            right += (outputs.argmax(1).cpu() == labels).sum().item()
    return loss / len(loader), right / len(loader.dataset)
''',
    "server": '''"""The server app."""

import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from loopback.task import Net, load_data, score

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train for some rounds and say how it ended."""
    num_rounds: int = context.run_config["rounds"]
    fraction_evaluate: float = context.run_config["fraction-evaluate"]

    torch.manual_seed(1)
    arrays = ArrayRecord(Net().state_dict())

    strategy = FedAvg(fraction_evaluate=fraction_evaluate)

    result = strategy.start(
        grid=grid,
        initial_arrays=arrays,
        train_config=ConfigRecord({"lr": context.run_config["rate"]}),
        num_rounds=num_rounds,
        evaluate_fn=evaluate,
    )
    print(f"trained {len(result.arrays)} arrays, the end", flush=True)


def evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord:
    """Evaluate the global model on the server's own samples."""
    net = Net()
    net.load_state_dict(arrays.to_torch_state_dict())
    _, loader = load_data(0, 1, 64)
    loss, accuracy = score(net, loader, torch.device("cpu"))
    return MetricRecord({"accuracy": accuracy, "loss": loss})
''',
    "client": '''"""The client app."""

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from loopback.task import Net, fit, load_data, score

app = ClientApp()


@app.train()
def train(msg: Message, context: Context):
    """Train the received model on this node's samples."""
    net = Net()
    net.load_state_dict(msg.content["arrays"].to_torch_state_dict())
    device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")

    node = context.node_config
    loader, _ = load_data(node["partition-id"], node["num-partitions"], 16)
    loss = fit(net, loader, 1, msg.content["config"]["lr"], device)

    metrics = {"train_loss": loss, "num-examples": len(loader.dataset)}
    content = {
        "arrays": ArrayRecord(net.state_dict()),
        "metrics": MetricRecord(metrics),
    }
    return Message(content=RecordDict(content), reply_to=msg)


@app.evaluate()
def evaluate(msg: Message, context: Context):
    """Evaluate the received model on this node's test samples."""
    net = Net()
    net.load_state_dict(msg.content["arrays"].to_torch_state_dict())

    node = context.node_config
    _, loader = load_data(node["partition-id"], node["num-partitions"], 16)
    loss, accuracy = score(net, loader, torch.device("cpu"))

    metrics = {"eval_loss": loss, "eval_acc": accuracy}
    metrics["num-examples"] = len(loader.dataset)
    content = RecordDict({"metrics": MetricRecord(metrics)})
    return Message(content=content, reply_to=msg)
''',
}

TABLE = {
    "task": '''"""Network, data, training and evaluation."""

import torch
from sklearn.datasets import load_breast_cancer
from sklearn.preprocessing import StandardScaler
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Classifier(nn.Module):
    """Two classes from thirty numbers; the last layer gives a probability."""

    def __init__(self):
        super().__init__()
        self.hidden = nn.Linear(30, 16)
        self.out = nn.Linear(16, 1)

    def forward(self, rows):
        return torch.sigmoid(self.out(torch.relu(self.hidden(rows))))


def load_data(partition, partitions):
    """Return loaders of one partition: every fifth row to test on."""
    data = load_breast_cancer()
    rows = StandardScaler().fit_transform(data.data)[partition::partitions]
    rows = torch.tensor(rows, dtype=torch.float32)
    classes = torch.tensor(data.target[partition::partitions, None]).float()
    test = torch.arange(len(rows)) % 5 == 0
    train = TensorDataset(rows[~test], classes[~test])
    held = TensorDataset(rows[test], classes[test])
    return DataLoader(train, 16, shuffle=True), DataLoader(held, 16)


def fit(model, loader):
    """Train one epoch by Adam."""
    criterion = nn.BCELoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    model.train()
    for rows, classes in loader:
        optimizer.zero_grad()
        loss = criterion(model(rows), classes)
        loss.backward()
        optimizer.step()


def score(model, loader):
    """Return mean loss and accuracy."""
    model.eval()
    criterion = nn.BCELoss()
    loss, right, seen = 0.0, 0, 0
    with torch.no_grad():
        for rows, classes in loader:
            outputs = model(rows)
            loss += criterion(outputs, classes).item()
            right += ((outputs > 0.5).float() == classes).sum().item()
            seen += len(classes)
    return loss / len(loader), right / seen
''',
    "server": '''"""The server app."""

import torch
from flwr.app import ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from loopback.task import Classifier

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train for some rounds and say how it ended."""
    num_rounds: int = context.run_config["rounds"]

    torch.manual_seed(1)
    arrays = ArrayRecord(Classifier().state_dict())

    strategy = FedAvg()

    result = strategy.start(
        grid=grid,
        initial_arrays=arrays,
        num_rounds=num_rounds,
    )
    print(f"trained {len(result.arrays)} arrays, the end", flush=True)
''',
    "client": '''"""The client app."""

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from loopback.task import Classifier, fit, load_data, score

app = ClientApp()


@app.train()
def train(msg: Message, context: Context):
    """Train the received model on this node's rows."""
    node = context.node_config
    loader, _ = load_data(node["partition-id"], node["num-partitions"])
    model = Classifier()
    model.load_state_dict(msg.content["arrays"].to_torch_state_dict())
    fit(model, loader)

    content = {
        "arrays": ArrayRecord(model.state_dict()),
        "metrics": MetricRecord({"num-examples": len(loader)}),
    }
    return Message(content=RecordDict(content), reply_to=msg)


@app.evaluate()
def evaluate(msg: Message, context: Context):
    """Evaluate the received model on this node's test rows."""
    node = context.node_config
    _, loader = load_data(node["partition-id"], node["num-partitions"])
    model = Classifier()
    model.load_state_dict(msg.content["arrays"].to_torch_state_dict())
    loss, accuracy = score(model, loader)

    metrics = {"loss": loss, "accuracy": accuracy, "num-examples": len(loader)}
    content = RecordDict({"metrics": MetricRecord(metrics)})
    return Message(content=content, reply_to=msg)
''',
}

APPS = {"images": IMAGES, "table": TABLE}

_SERVER = {
    "from flwr.serverapp.strategy import FedAvg\n": "+from motley_flower import with_selector\n"
}
_CLIENT = {
    "from flwr.clientapp import ClientApp\n": "+from motley_flower import with_reports\n",
    "app = ClientApp()\n": "app = with_reports(ClientApp())\n",
}


def _selects(rule, before):
    return {
        f"    strategy = {before}\n": f'+    strategy = with_selector(strategy, "{rule}", m=2, '
        "max_examples=50_000)\n"
    }


_STRATEGY = {"images": "FedAvg(fraction_evaluate=fraction_evaluate)", "table": "FedAvg()"}
CHANGES = {
    (app, rule): {
        "server": _SERVER | _selects(rule, before),
        "client": _CLIENT if rule == "oort" else {},
    }
    for app, before in _STRATEGY.items()
    for rule in ("fedcs", "oort")
}
"""By app and rule, by file: a line, and the line after it (with a plus) or in its place."""


def changed(app, rule):
    """Return the texts of an app with a rule, by file."""
    texts = dict(APPS[app])
    for file, edits in CHANGES[app, rule].items():
        for line, new in edits.items():
            assert texts[file].count(line) == 1
            texts[file] = texts[file].replace(line, line + new[1:] if new.startswith("+") else new)
    return texts


def changed_lines(before, after):
    """Return how many lines of a text were added, removed or replaced."""
    codes = difflib.SequenceMatcher(
        None, before.splitlines(), after.splitlines(), autojunk=False
    ).get_opcodes()
    return sum(max(i2 - i1, j2 - j1) for kind, i1, i2, j1, j2 in codes if kind != "equal")
