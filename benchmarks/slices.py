"""Time of local steps on slices of a model beside those on the whole model: one client, one core.

    python benchmarks/slices.py

The model is conv5x5(32)-pool-conv5x5(64)-pool-fc128-fc10 on images of 3 x 32 x 32, in batches
of 32. Times are the processor's, of one thread. Widths are measured in turn, over and over, and the
smallest time of each counts, so that other work on the machine disturbs little.
"""

from __future__ import annotations

import json
import sys
import time

import numpy as np
import torch

from motley.algorithms import AGGREGATORS, CATALOGUE, LOSSES, SERVERS
from motley.algorithms.local_optimisers import SGD
from motley.algorithms.parts import Algorithm, LocalRule
from motley.core.ragged import Ragged
from motley.core.work import LocalWork
from motley.engines.engine import Job, Setting
from motley.engines.local import Sequential
from motley.tasks.flat import initial
from motley.tasks.models import factory
from motley.tasks.task import Federation, ModelState, Task

WIDTHS = (1.0, 0.5, 0.25)
STEPS = 10
BATCH = 32
REPEATS = 12


def main() -> None:
    """Print seconds per step of each width, their ratio to the whole model's, and the share of the
    operations."""
    torch.set_num_threads(1)
    count = STEPS * BATCH
    x = torch.randn(count, 3, 32, 32)
    y = torch.arange(count) % 10
    train = Ragged(np.array([0, count]), np.arange(count))
    nobody = Ragged(np.zeros(2, np.int64), np.zeros(0, np.int64))
    federation = Federation(x, y, train, y.clone(), nobody, nobody, None, 10)
    task = Task("slices", federation, factory("cnn", (3, 32, 32), 10))
    plain = Algorithm(
        LOSSES.build("cross_entropy"),
        LocalRule(),
        AGGREGATORS.build("mean"),
        SERVERS.build("average"),
    )
    algorithm = CATALOGUE.build("heterofl").change(plain)
    setting = Setting(
        task, algorithm, SGD(lr=0.01), LocalWork(batch_size=BATCH, steps=STEPS), threads=1
    )
    engine = Sequential(setting)
    model: ModelState = initial(task.model, setting.streams.key("init"))
    seconds = dict.fromkeys(WIDTHS, float("inf"))
    for repeat in range(REPEATS):
        for width in WIDTHS:
            start = time.thread_time()
            list(engine.train([Job(0, repeat, STEPS, 0.01, width=width)], vars(model), {}))
            seconds[width] = min(seconds[width], (time.thread_time() - start) / STEPS)
    found = [
        {
            "width": w,
            "step_ms": round(1000 * s, 2),
            "ratio": round(s / seconds[1.0], 3),
            "operations": round(setting.work_share(w), 3),
        }
        for w, s in seconds.items()
    ]
    sys.stdout.write(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
