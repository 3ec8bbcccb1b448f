"""One's own arrays and module: six clinics with unequal numbers of patients, compared under two
selectors.

python examples/own_data.py
"""

import numpy as np
from torch import nn

import motley
from motley.tasks import from_clients, own_task


def clinic(k: int) -> tuple[np.ndarray, np.ndarray]:
    """Return patients ``[n, 5]`` of clinic k and whether they are ill; later clinics are larger and
    have other patients."""
    rng = np.random.default_rng(k)
    x = rng.normal(loc=0.3 * k, size=(60 + 40 * k, 5))
    return x, (x[:, 0] + 0.5 * x[:, 1] ** 2 > 0.5 + 0.2 * k).astype(int)


def network() -> nn.Module:
    """Return a fresh module; any will do. Dropout masks are drawn from the job's own key."""
    return nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 2))


def main(rounds: int = 20) -> dict[str, float]:
    """Return the mean accuracy over the clinics' own test patients, by selector."""
    task = own_task(from_clients([clinic(k) for k in range(6)], test_fraction=0.25), network)
    accuracy = {}
    for name in ("uniform", "power_of_choice"):
        experiment = motley.Experiment(
            name="clinics",
            task="own",
            cohort=3,
            stop={"rounds": rounds},
            selector=name,
            local={"epochs": 2, "batch_size": 16, "optimizer": {"name": "sgd", "lr": 0.1}},
        )
        run = motley.run(experiment, task=task)
        mean = run.column("evaluations", "scope") == "mean"
        accuracy[name] = float(run.column("evaluations", "accuracy")[mean][-1])
    return accuracy


if __name__ == "__main__":
    print(main())
