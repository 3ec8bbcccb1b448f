"""Do clients with models of different architectures learn what a plain loop of torch teaches them?

    python benchmarks/unlike_agreement.py [--data FOLDER] [--clients 20] [--rounds 2]

The setting of HtFLlib (commit e959261), smaller: Fashion-MNIST, a tenth of it, divided by
Dirichlet(.1); client k holds the architecture k modulo 4, two CNNs and two MLPs that end in the
same number of features; everybody takes part in each round, with batches of 10, plain SGD of rate
.01. Its defaults are 20 clients, all of the data and one pass a round, of which its loader leaves
out the last short batch; here each takes 10 steps. LG-FedAvg: heads are averaged by samples.
FedProto: a client's mean features of its classes after its work, averaged uniformly over the
clients that have the class (HtFLlib takes the features of the passes during training instead).

The loop below shares nothing with Motley: modules, autograd, ``torch.optim.SGD`` and ``DataLoader``
of torch. It begins with the models of Motley's round 0, and draws its batches from its own loaders
after ``torch.manual_seed``. Told is the largest difference of a weight of any client after the
rounds, in float64, and beside it how far the weights went.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

FEATURES = 32
RATE = 0.01
BATCH = 10
Clients = Sequence[tuple[NDArray[np.float32], NDArray[np.int64]]]
Factory = Callable[[], nn.Module]


def factories(side: int, classes: int) -> list[Factory]:
    """Return the makers of the four architectures for pictures ``[1, side, side]``; the last layer
    is the head."""

    def convolving(kernel: int) -> Factory:
        left = side // 2
        return lambda: nn.Sequential(
            nn.Conv2d(1, 4, kernel, padding=kernel // 2),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(4 * left * left, FEATURES),
            nn.ReLU(),
            nn.Linear(FEATURES, classes),
        )

    def dense(*widths: int) -> Factory:
        def make() -> nn.Module:
            layers: list[nn.Module] = [nn.Flatten()]
            for size, after in itertools.pairwise([side * side, *widths, FEATURES]):
                layers += [nn.Linear(size, after), nn.ReLU()]
            return nn.Sequential(*layers, nn.Linear(FEATURES, classes))

        return make

    return [convolving(3), convolving(5), dense(), dense(64)]


def plainly(
    method: str, modules: Sequence[nn.Module], clients: Clients, rounds: int, steps: int, seed: int
) -> None:
    """Train the clients' modules in place."""
    classes = modules[0][-1].out_features  # type: ignore[index,union-attr]
    torch.manual_seed(seed)
    sets = [TensorDataset(torch.from_numpy(x).double(), torch.from_numpy(y)) for x, y in clients]
    loaders = [DataLoader(data, batch_size=BATCH, shuffle=True) for data in sets]
    passes: list[Any] = [None] * len(clients)
    prototypes: dict[int, Tensor] = {}
    for _ in range(rounds):
        heads = []
        features: dict[int, list[Tensor]] = {label: [] for label in range(classes)}
        for k, module in enumerate(modules):
            base, head = module[:-1], module[-1]  # type: ignore[index]
            optimizer = torch.optim.SGD(module.parameters(), lr=RATE)
            for _ in range(steps):
                batch = next(passes[k], None) if passes[k] else None
                if batch is None:
                    passes[k] = iter(loaders[k])
                    batch = next(passes[k])
                x, y = batch
                z = base(x)
                loss = cross_entropy(head(z), y)
                if method == "fedproto" and prototypes:
                    near = torch.stack(
                        [prototypes.get(int(label), z[i].detach()) for i, label in enumerate(y)]
                    )
                    loss = loss + (z - near).square().mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            heads.append(head.state_dict())
            x, y = sets[k].tensors
            with torch.no_grad():
                z = base(x)
            for label in y.unique().tolist():
                features[label].append(z[y == label].mean(0))
        if method == "lg_fedavg":
            weights = [len(y) / sum(len(y) for _, y in clients) for _, y in clients]
            mean = {
                name: sum(w * own[name] for w, own in zip(weights, heads, strict=True))
                for name in heads[0]
            }
            for module in modules:
                module[-1].load_state_dict(mean)  # type: ignore[index,union-attr]
        new = {label: torch.stack(each).mean(0) for label, each in features.items() if each}
        prototypes = {**prototypes, **new}


def differences(
    method: str, clients: Clients, side: int, classes: int, rounds: int, steps: int, seed: int = 0
) -> tuple[float, float]:
    """Return the largest difference of a weight between both, and the largest move of one."""
    from motley.experiments.build import build
    from motley.tasks import from_clients, own_task
    from motley.tasks.batch_orders import TorchLoaders

    makers = factories(side, classes)
    sizes = tuple(len(y) for _, y in clients)
    task = own_task(
        from_clients(
            [(x, y) for x, y in clients], test=[(x, y) for x, y in clients], classes=classes
        ),
        makers,
        holders=lambda client: client % len(makers),
        batches=TorchLoaders(sizes, BATCH, steps),
    )
    uniform = {"prototype_weights": "uniform"} if method == "fedproto" else {}
    weighing = {"weights": "examples"} if method == "lg_fedavg" else {}
    loop = build(
        {
            "seed": seed,
            "task": {"name": "own"},
            "cohort": len(clients),
            "stop": {"rounds": rounds},
            "algorithm": {"name": method, **uniform},
            **weighing,
            "local": {
                "steps": steps,
                "batch_size": BATCH,
                "optimizer": {"name": "sgd", "lr": RATE},
            },
            "dtype": "float64",
            "engine": {"name": "sequential", "threads": 1},
        },
        task=task,
    )

    def weights() -> list[Tensor]:
        models = loop.personal_models(loop.state.server)
        return [model.x.clone() for model in models(range(len(clients)))]

    first = weights()
    modules = [makers[k % len(makers)]().double() for k in range(len(clients))]
    for module, x in zip(modules, first, strict=True):
        nn.utils.vector_to_parameters(x, module.parameters())
    modules = [_apart(module) for module in modules]
    while not loop.done:
        loop.step()
    plainly(method, modules, clients, rounds, steps, seed)
    ends = [nn.utils.parameters_to_vector(module.parameters()).detach() for module in modules]
    far = max(float((a - b).abs().max()) for a, b in zip(weights(), ends, strict=True))
    moved = max(float((a - b).abs().max()) for a, b in zip(first, ends, strict=True))
    return far, moved


def _apart(module: nn.Module) -> nn.Module:
    """Return the module with weights of its own, which view no vector."""
    for parameter in module.parameters():
        parameter.data = parameter.data.clone()
    return module


def divided(x: NDArray[Any], y: NDArray[np.int64], count: int, seed: int = 0) -> Clients:
    """Divide samples among clients by Dirichlet(.1) of each class, ten or more for each."""
    draw = np.random.default_rng(seed)
    while True:
        parts: list[list[int]] = [[] for _ in range(count)]
        for label in np.unique(y):
            rows = draw.permutation(np.flatnonzero(y == label))
            cuts = (np.cumsum(draw.dirichlet([0.1] * count))[:-1] * len(rows)).astype(int)
            for own, part in zip(parts, np.split(rows, cuts), strict=True):
                own.extend(part.tolist())
        if min(map(len, parts)) >= BATCH:
            return [(x[own], y[own]) for own in parts]


def main() -> None:
    """Read the command line, and tell the differences."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--data", type=Path, default=Path())
    parser.add_argument("--clients", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(1)
    with np.load(options.data / "fashion_mnist.npz") as pack:
        x = pack["x_train"][::10, None].astype(np.float32).reshape(-1, 1, 28, 28) / 255 - 0.5
        y = pack["y_train"][::10].astype(np.int64)
    clients = divided(x, y, options.clients)
    for method in ("lg_fedavg", "fedproto"):
        far, moved = differences(method, clients, 28, 10, options.rounds, steps=10)
        print(f"{method}: at most {far:.2g} apart after moves of up to {moved:.2g}", flush=True)


if __name__ == "__main__":
    main()
