"""Adapt a pretrained network to clients: a frozen backbone from a file, low-rank adapters that
train, and a run that is extended.

Run me: ``python examples/adapter.py`` (half a minute, no data but scikit-learn's digits).

The backbone is trained centrally on the even digits; the clients, each with few classes of all ten,
train the adapters (LoRA: Hu et al., *LoRA: Low-Rank Adaptation of Large Language Models*,
ICLR 2022) and the last layer only, and send nothing else.
"""

from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from sklearn.datasets import load_digits
from torch import nn

import motley
from motley.tasks import from_arrays, own_task

WIDTH = 128
RANK = 4


class Adapter(nn.Module):
    """A frozen linear layer and a low-rank correction that begins at zero."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.frozen = nn.Linear(inputs, outputs).requires_grad_(False)
        self.down = nn.Linear(inputs, RANK, bias=False)
        self.up = nn.Linear(RANK, outputs, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the layer's output with the correction."""
        return self.frozen(x) + self.up(self.down(x))


def network() -> nn.Module:
    """Return two adapted layers and a last layer of its own; their frozen weights come from the
    file."""
    return nn.Sequential(
        Adapter(64, WIDTH), nn.ReLU(), Adapter(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 10)
    )


def pretrain(file: Path, steps: int = 300) -> None:
    """Train the backbone on the even digits, and write it under the names that it has in the
    adapted network."""
    x, y = load_digits(return_X_y=True)
    even = y % 2 == 0
    inputs = torch.tensor(x[even] / 16, dtype=torch.float32)
    classes = torch.tensor(y[even])
    torch.manual_seed(0)
    first = nn.Linear(64, WIDTH)
    second = nn.Linear(WIDTH, WIDTH)
    last = nn.Linear(WIDTH, 10)
    plain = nn.Sequential(first, nn.ReLU(), second, nn.ReLU(), last)
    optimizer = torch.optim.Adam(plain.parameters(), lr=1e-3)
    for _ in range(steps):
        optimizer.zero_grad()
        nn.functional.cross_entropy(plain(inputs), classes).backward()
        optimizer.step()
    state = {
        f"{place}.frozen.{name}": value
        for place, layer in ((0, first), (2, second))
        for name, value in layer.state_dict().items()
    }
    save_file(state, file)


def accuracy(run: motley.Run) -> float:
    """Return the accuracy of the last model on all test digits."""
    everybody = run.column("evaluations", "scope") == "global"
    return float(run.column("evaluations", "accuracy")[everybody][-1])


def main(
    folder: Path = Path("runs/adapter"), rounds: int = 20, longer: int = 40
) -> dict[str, float]:
    """Run ``rounds`` rounds, extend the run to ``longer``, and return its accuracies and its
    traffic."""
    folder.mkdir(parents=True, exist_ok=True)
    pretrain(folder / "backbone.safetensors")
    x, y = load_digits(return_X_y=True)
    # three digits at each of ten clients
    owner = (y + np.random.default_rng(0).integers(3, size=len(y))) % 10
    task = own_task(from_arrays((x / 16).astype(np.float32), y, owner, test="global"), network)
    experiment = motley.Experiment(
        name="adapter",
        task=task,
        init={"path": str(folder / "backbone.safetensors"), "only": ["*.frozen.*"]},
        cohort=5,
        stop={"rounds": rounds},
        local={"epochs": 2, "batch_size": 32, "optimizer": {"lr": 0.1}},
    )
    first = motley.run(experiment, out=folder / "run", resume=True)
    short = accuracy(first)
    run = motley.run(experiment.replace({"stop.rounds": longer}), out=folder / "run", resume=True)
    all_weights = sum(parameter.numel() for parameter in network().parameters())
    return {
        "accuracy before": short,
        "accuracy after": accuracy(run),
        "weights": all_weights,
        "weights trained": run.meta["parameters"],
        "bits per upload and weight trained": run.column("rounds", "total_up_paper_bits")[-1]
        / (5 * longer * run.meta["parameters"]),
    }


if __name__ == "__main__":
    for name, value in main().items():
        print(f"{name}: {value:g}")
