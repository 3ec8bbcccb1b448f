"""Time of a round of personalized methods in the engines ``sequential``, ``threads`` and
``batched``: ten clients, an MLP.

    python benchmarks/phases.py

The model is 784-200-200-10, in batches of 32; every client takes 20 steps (FedRep: an epoch of the
head before, as long). A round is the training of all ten, or, for ``tuning``, the same steps of
fine-tuning before an examination. Times are the processor's, of all threads, on one core. Engines
take turns, over and over, and the smallest time of each counts.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable

import numpy as np
import torch

from motley.algorithms import AGGREGATORS, CATALOGUE, LOSSES, SERVERS
from motley.algorithms.local_optimisers import SGD
from motley.algorithms.parts import Algorithm, LocalRule
from motley.core.ragged import Ragged
from motley.core.work import LocalWork
from motley.engines.batched import Batched
from motley.engines.engine import Engine, Job, Setting
from motley.engines.local import Sequential, Threads
from motley.tasks.flat import initial
from motley.tasks.models import factory
from motley.tasks.task import Federation, Task

METHODS = (
    "fedavg",
    "local_only",
    "fedper",
    {"name": "fedrep", "head_epochs": 1},
    "lg_fedavg",
    "fedbabu",
    "ditto",
    "tuning",
    "apfl",
)
CLIENTS = 10
STEPS = 20
BATCH = 32
REPEATS = 5


def _setting(method: object) -> Setting:
    count = STEPS * BATCH
    x = torch.randn(CLIENTS * count, 1, 28, 28)
    y = torch.arange(CLIENTS * count) % 10
    bounds = np.arange(CLIENTS + 1) * count
    nobody = Ragged(np.zeros(CLIENTS + 1, np.int64), np.zeros(0, np.int64))
    federation = Federation(
        x, y, Ragged(bounds, np.arange(bounds[-1])), y.clone(), nobody, nobody, None, 10
    )
    plain = Algorithm(
        LOSSES.build("cross_entropy"),
        LocalRule(),
        AGGREGATORS.build("mean"),
        SERVERS.build("average"),
    )
    algorithm = CATALOGUE.build("fedavg" if method == "tuning" else method).change(plain)
    task = Task("phases", federation, factory("mlp", (1, 28, 28), 10))
    return Setting(task, algorithm, SGD(lr=0.01), LocalWork(batch_size=BATCH, epochs=1), threads=1)


def _round(engine: Engine, tuned: bool) -> Callable[[], Iterable[object]]:
    setting = engine.setting  # type: ignore[attr-defined]
    rule = setting.algorithm.local
    jobs = [Job(k, k, STEPS, 0.01) for k in range(CLIENTS)]
    model = initial(setting.task.model, setting.streams.key("init"))
    server = setting.algorithm.server.init(rule.sent(model), CLIENTS)
    states = dict.fromkeys(range(CLIENTS), rule.initial_state(model))
    if tuned:
        return lambda: engine.adapt(jobs, [model] * CLIENTS)
    return lambda: engine.train(jobs, rule.download(server), states)


def main() -> None:
    """Print milliseconds of a round in each engine that takes the method, and their ratio to the
    sequential one's."""
    torch.set_num_threads(1)
    found = []
    for method in METHODS:
        setting = _setting(method)
        engines = [
            kind(setting)
            for kind in (Sequential, Threads, Batched)
            if kind.refuses(setting) is None
        ]
        rounds = {engine.name: _round(engine, method == "tuning") for engine in engines}
        best = dict.fromkeys(rounds, float("inf"))
        for _ in range(REPEATS):
            for name, work in rounds.items():
                start = time.process_time()
                list(work())
                best[name] = min(best[name], time.process_time() - start)
        ms = {name: round(1000 * seconds, 1) for name, seconds in best.items()}
        ratios = {name: round(best["sequential"] / seconds, 2) for name, seconds in best.items()}
        found.append({"method": method, "ms": ms, "ratio": ratios})
    sys.stdout.write("\n".join(map(json.dumps, found)) + "\n")


if __name__ == "__main__":
    main()
