"""Stage ``peer``: pfl-research on a share of its own CIFAR-10 benchmark, with the model of
``packages/motley-papers/src/motley_papers/pfl_cifar10``.

    python pfl_peer.py OUT.json DEVICE ROUNDS [--smoke]

Run by a Python that has pfl-research and torch, and nothing of this library. Images are random
numbers of CIFAR-10's shape: no round's cost depends on them. One process, federated averaging on
the simulated backend, no evaluation; a mark is set after every round.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
from pathlib import Path


def network():
    from torch import nn

    return nn.Sequential(
        nn.Conv2d(3, 32, 3),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(12544, 128),
        nn.ReLU(),
        nn.Linear(128, 10),
    )


def train(device: str, rounds: int, users: int, cohort: int) -> list[float]:
    """Return the seconds of every round."""
    import torch
    from pfl.aggregate.simulate import SimulatedBackend
    from pfl.algorithm.base import NNAlgorithmParams
    from pfl.algorithm.federated_averaging import FederatedAveraging
    from pfl.callback.base import TrainingProcessCallback
    from pfl.data.federated_dataset import FederatedDataset
    from pfl.data.pytorch import PyTorchTensorDataset
    from pfl.data.sampling import get_user_sampler
    from pfl.hyperparam import NNEvalHyperParams, NNTrainHyperParams
    from pfl.metrics import Metrics, Weighted
    from pfl.model.pytorch import PyTorchModel

    class Learner(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = network()

        def loss(self, x, y):
            self.train()
            return torch.nn.functional.cross_entropy(self.network(x), y)

        def metrics(self, x, y):
            with torch.no_grad():
                return {"loss": Weighted(float(self.loss(x, y)) * len(y), len(y))}

    marks = [time.perf_counter()]

    class Marks(TrainingProcessCallback):
        def after_central_iteration(self, aggregate_metrics, model, *, central_iteration):
            if device != "cpu":
                torch.cuda.synchronize()
            marks.append(time.perf_counter())
            return False, Metrics()

    torch.manual_seed(0)
    x = torch.randn(users, 50, 3, 32, 32).to(device)
    y = torch.randint(0, 10, (users, 50)).to(device)
    learner = Learner().to(device)
    made = {k: PyTorchTensorDataset((x[k], y[k])) for k in range(users)}
    sampler = get_user_sampler("random", list(made))
    marks[0] = time.perf_counter()
    FederatedAveraging().run(
        algorithm_params=NNAlgorithmParams(
            central_num_iterations=rounds,
            evaluation_frequency=rounds + 1,
            train_cohort_size=cohort,
            val_cohort_size=0,
        ),
        backend=SimulatedBackend(FederatedDataset(made.__getitem__, sampler), None),
        model=PyTorchModel(learner, torch.optim.SGD, torch.optim.SGD(learner.parameters(), lr=1.0)),
        model_train_params=NNTrainHyperParams(
            local_batch_size=10, local_num_epochs=1, local_learning_rate=0.1
        ),
        model_eval_params=NNEvalHyperParams(local_batch_size=None),
        callbacks=[Marks()],
    )
    return [b - a for a, b in itertools.pairwise(marks)]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("device")
    parser.add_argument("rounds", type=int)
    parser.add_argument("--smoke", action="store_true")
    options = parser.parse_args()
    import torch

    seconds = train(options.device, options.rounds, *((6, 3) if options.smoke else (1000, 50)))
    later = sorted(seconds[1:]) or seconds
    row = {
        "share": options.rounds / 1500,
        "rounds": options.rounds,
        "seconds": sum(seconds),
        "first_round_s": seconds[0],
        "seconds_a_round": sum(later) / len(later),
        "median_round_s": later[len(later) // 2],
    }
    found = {
        "machine": {"device": options.device, "torch": torch.__version__},
        "rows": {"pfl-research, a share": row},
    }
    options.out.write_text(json.dumps(found, indent=2) + "\n")
    print(row)


if __name__ == "__main__":
    main()
