"""The work that every framework is given: models, data, cohort, batches and steps, and what a run
writes down.

Knows nothing of any framework, Motley included: numpy and torch alone, so that it can be imported
in every peer's environment.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Protocol

import numpy as np

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

CLIENTS = 10
"""All of them take part in every round."""
LR = 0.01
WHOLE_EPOCHS = 2
WHOLE_LR = 1.0
"""Of the comparison of models: large steps, beside which float32's rounding of the weights is
small."""
CHARACTERS = 76
PRECISIONS = ("float32", "bfloat16")


@dataclass(frozen=True)
class Workload:
    """A model and what a client does in a round.

    ``goals`` are the wanted speeds over the next peer's: in float32, and each at its best.
    """

    name: str
    title: str
    shape: tuple[int, ...]
    classes: int
    samples: int
    batch: int
    epochs: int
    rounds: int
    goals: tuple[float, float]

    @property
    def steps(self) -> int:
        """Local steps of all clients in a round."""
        return CLIENTS * self.epochs * self.samples // self.batch


WORKLOADS = {
    load.name: load
    for load in (
        Workload("logistic", "logistic regression", (784,), 10, 600, 100, 10, 16, (2.0, 2.0)),
        Workload("mlp", "MLP", (784,), 10, 600, 100, 10, 6, (1.2, 2.0)),
        Workload("cnn", "CNN", (3, 32, 32), 10, 320, 32, 1, 5, (1.2, 2.0)),
        Workload("lstm", "LSTM", (80,), CHARACTERS, 32, 16, 1, 5, (1.2, 2.0)),
    )
}


@dataclass(frozen=True)
class Run:
    """One run of one framework.

    ``whole`` is the comparison of models, one round of whole batches. ``parallel``: a framework in
    one process uses all cores instead of one; which is faster depends on the model.
    ``precision``: of matrix products and convolutions; weights and losses are float32 in both.
    """

    load: Workload
    data: Path
    out: Path
    rounds: int
    whole: bool = False
    parallel: bool = False
    precision: str = "float32"

    @property
    def batch(self) -> int:
        """Samples in a local step."""
        return self.load.samples if self.whole else self.load.batch

    @property
    def epochs(self) -> int:
        """Passes over a client's samples in a round."""
        return WHOLE_EPOCHS if self.whole else self.load.epochs

    @property
    def lr(self) -> float:
        """Learning rate of the local steps."""
        return WHOLE_LR if self.whole else LR

    @property
    def steps(self) -> int:
        """Local steps that all clients have to take in all rounds."""
        return self.rounds * CLIENTS * self.epochs * (self.load.samples // self.batch)

    def arguments(self) -> list[str]:
        """Return the command line that :func:`parse` makes this run of."""
        flags = ["--data", str(self.data), "--out", str(self.out), "--rounds", str(self.rounds)]
        flags += ["--precision", self.precision]
        return [self.load.name, *flags, *["--whole"] * self.whole, *["--parallel"] * self.parallel]

    def arrays(self, k: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the samples ``[n, ...]`` and targets ``[n]`` of one client."""
        x, y = (
            np.array(np.load(self.data / f"{self.load.name}-{half}.npy", mmap_mode="r")[k])
            for half in "xy"
        )
        return x, y

    def client(self, k: int) -> tuple[Tensor, Tensor]:
        """Return the same as tensors."""
        import torch

        x, y = self.arrays(k)
        return torch.from_numpy(x), torch.from_numpy(y)

    def mark(self) -> None:
        """Write down that a round has ended."""
        with (self.out / "marks").open("a") as file:
            file.write(f"{time.monotonic()}\n")

    def finish(self, steps: int, model: Sequence[Tensor | np.ndarray]) -> None:
        """Write down the local steps that were counted and, of a comparison, the parameters of the
        model in their order."""
        if self.whole:
            np.save(self.out / "model.npy", flat(model))
        (self.out / "steps.json").write_text(json.dumps(steps))


@functools.cache
def samples(run: Run, k: int) -> tuple[Tensor, Tensor]:
    """Return a client's samples and targets, read once in each process."""
    return run.client(k)


def parse(argv: Sequence[str] | None = None) -> Run:
    """Return the run that a command line asks for."""
    parser = argparse.ArgumentParser(
        description="One framework on one workload; benchmarks/peers/drive.py runs them all"
    )
    parser.add_argument("workload", choices=WORKLOADS)
    parser.add_argument("--data", type=Path, required=True, help="folder of the clients' samples")
    parser.add_argument("--out", type=Path, required=True, help="folder for what is measured")
    parser.add_argument("--rounds", type=int, required=True)
    parser.add_argument(
        "--whole", action="store_true", help="one round of whole batches, to compare the model"
    )
    parser.add_argument(
        "--parallel", action="store_true", help="a framework in one process uses all cores"
    )
    parser.add_argument(
        "--precision", choices=PRECISIONS, default="float32", help="of products and convolutions"
    )
    options = parser.parse_args(argv)
    data, out = (folder.resolve() for folder in (options.data, options.out))
    return Run(
        WORKLOADS[options.workload],
        data,
        out,
        options.rounds,
        options.whole,
        options.parallel,
        options.precision,
    )


def write_data(folder: Path) -> None:
    """Write random samples of every workload, on which no step's cost depends, and the initial
    weights, where they are missing."""
    folder.mkdir(parents=True, exist_ok=True)
    for load in WORKLOADS.values():
        rng = np.random.default_rng(0)
        size = (CLIENTS, load.samples)
        many = rng.integers(0, CHARACTERS, (*size, *load.shape)) if load.name == "lstm" else None
        x = rng.standard_normal((*size, *load.shape), dtype=np.float32) if many is None else many
        for half, values in (("x", x), ("y", rng.integers(0, load.classes, size))):
            path = folder / f"{load.name}-{half}.npy"
            if not path.is_file():
                np.save(path, values)
        weights = folder / f"{load.name}-weights.npz"
        if not weights.is_file():
            np.savez(weights, *[part.detach().numpy() for part in network(load).parameters()])


def flat(parameters: Iterable[Tensor | np.ndarray]) -> np.ndarray:
    """Return parameters as one vector."""
    arrays = (
        part if isinstance(part, np.ndarray) else part.detach().numpy() for part in parameters
    )
    return np.concatenate([part.ravel() for part in arrays])


def model_of(run: Run) -> nn.Module:
    """Return the model of a run; in bfloat16 it computes as torch's guide to mixed precision says,
    under autocast, and returns float32."""
    return network(run.load) if run.precision == "float32" else autocast(network(run.load))


def autocast(model: nn.Module) -> nn.Module:
    """Return a module that computes this one under autocast, with the same parameters."""
    import torch
    from torch import nn

    class Autocast(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, x: Tensor) -> Tensor:
            with torch.autocast("cpu", torch.bfloat16):
                out: Tensor = self.model(x)
            return out.float()

    return Autocast()


def network(load: Workload) -> nn.Module:
    """Return the model with its initial weights, the same in every process."""
    import torch
    from torch import nn

    torch.manual_seed(0)
    if load.name == "lstm":
        return characters()
    if load.name == "cnn":
        convolutions = [
            nn.Conv2d(3, 32, 5),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(32, 64, 5),
            nn.ReLU(),
            nn.MaxPool2d(2),
        ]
        return nn.Sequential(
            *convolutions, nn.Flatten(), nn.Linear(1600, 128), nn.ReLU(), nn.Linear(128, 10)
        )
    if load.name == "mlp":
        return nn.Sequential(
            nn.Flatten(),
            nn.Linear(784, 200),
            nn.ReLU(),
            nn.Linear(200, 200),
            nn.ReLU(),
            nn.Linear(200, 10),
        )
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 10))


def characters() -> nn.Module:
    """Return LEAF's network for Shakespeare, which predicts the character after the last: 818,860
    parameters."""
    from torch import nn

    class Characters(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(CHARACTERS, 8)
            self.lstm = nn.LSTM(8, 256, 2, batch_first=True)
            self.output = nn.Linear(256, CHARACTERS)

        def forward(self, x: Tensor) -> Tensor:
            return self.output(self.lstm(self.embedding(x))[0][:, -1])

    return Characters()


def batches(x: Tensor, y: Tensor, size: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the batches of one epoch in a random order: one gather for each, faster than a
    ``DataLoader``."""
    import torch

    for at in torch.randperm(len(x)).split(size):
        yield x[at], y[at]


class LocalWork(Protocol):
    """Local epochs, batch size and learning rate of a run."""

    @property
    def epochs(self) -> int: ...

    @property
    def batch(self) -> int: ...

    @property
    def lr(self) -> float: ...


def train(model: nn.Module, x: Tensor, y: Tensor, run: LocalWork, *, proximal: float = 0.0) -> int:
    """Train a client's model in place as a textbook does; return the number of steps. ``proximal``
    is FedProx's mu."""
    from torch import nn, optim

    optimizer = optim.SGD(model.parameters(), run.lr)
    received = [parameter.detach().clone() for parameter in model.parameters() if proximal]
    done = 0
    model.train()
    for _ in range(run.epochs):
        for inputs, targets in batches(x, y, run.batch):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(inputs), targets)
            if proximal:
                pairs = zip(model.parameters(), received, strict=True)
                loss = loss + 0.5 * proximal * sum((w - at).square().sum() for w, at in pairs)
            loss.backward()
            optimizer.step()
            done += 1
    return done


class StepCounter:
    """Counts the steps of every torch optimizer in this process, for frameworks whose local loop is
    their own."""

    def __init__(self) -> None:
        from torch.optim.optimizer import register_optimizer_step_post_hook

        self.steps = 0
        register_optimizer_step_post_hook(self._count)

    def _count(self, optimizer: torch.optim.Optimizer, *_: object) -> None:
        self.steps += 1


def torchvision_stub() -> None:
    """Put empty modules where a framework imports torchvision, which is not installed and which no
    workload here uses."""
    whole = ModuleType("torchvision")
    for name in ("datasets", "models", "transforms"):
        part = ModuleType(f"torchvision.{name}")
        setattr(whole, name, part)
        sys.modules[part.__name__] = part
    sys.modules["torchvision"] = whole


def set_threads(run: Run) -> None:
    """Let torch use one core, or all of them in a parallel run."""
    import torch

    torch.set_num_threads(cores() if run.parallel else 1)


def cores() -> int:
    """Return the cores that this process may use."""
    return len(os.sched_getaffinity(0))
