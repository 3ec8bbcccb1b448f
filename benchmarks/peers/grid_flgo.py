"""One run of the grid by FLGo: its own five algorithms, a task made from a file of data, model and
loss, the server's model examined after each round."""

from __future__ import annotations

import importlib
import json
import os
import sys
from pathlib import Path

from grid_work import BATCH, CLIENTS, COHORT, EPOCHS, LR, accuracy, grid_run
from work import StepCounter, torchvision_stub


def main() -> None:
    os.environ["GRID_RUN"] = json.dumps(sys.argv[1:])
    run = grid_run()
    del sys.argv[1:]  # FLGo reads it
    os.chdir(run.out)
    sys.path.insert(0, str(run.out))
    torchvision_stub()
    import flgo

    counter = StepCounter()
    task = flgo.gen_direct_task_from_file(
        "task", str(Path(__file__).with_name("grid_flgo_task.py"))
    )
    option = {
        "num_rounds": run.rounds,
        "num_epochs": EPOCHS,
        "batch_size": BATCH,
        "learning_rate": LR,
        "learning_rate_decay": 1.0,
        "proportion": COHORT / CLIENTS,
        "sample": "uniform",
        "train_holdout": 0.0,
        "seed": run.seed,
    }
    algorithm = importlib.import_module(f"flgo.algorithm.{run.algorithm}")
    runner = flgo.init(task, algorithm, option)
    runner.run()
    run.write(counter.steps, accuracy(runner.model, *run.samples()))


if __name__ == "__main__":
    main()
