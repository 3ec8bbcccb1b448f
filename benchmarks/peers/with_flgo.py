"""FLGo: a task made from a file of data, model and loss, FedAvg with all clients, no evaluation."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace

from work import StepCounter, cores, parse, torchvision_stub


def main() -> None:
    run = parse()
    os.environ["PEERS_RUN"] = json.dumps(run.arguments())
    del sys.argv[1:]  # FLGo reads it
    os.chdir(run.out)
    sys.path.insert(0, str(run.out))
    torchvision_stub()
    import flgo
    from flgo.algorithm import fedavg

    class Server(fedavg.Server):
        def iterate(self) -> object:
            changed = super().iterate()
            run.mark()
            return changed

    counter = StepCounter()
    task = flgo.gen_direct_task_from_file("task", str(Path(__file__).with_name("flgo_task.py")))
    option = {
        "num_rounds": run.rounds,
        "num_epochs": run.epochs,
        "batch_size": run.batch,
        "learning_rate": run.lr,
        "proportion": 1.0,
        "sample": "full",
        "aggregate": "uniform",
        "train_holdout": 0.0,
        "eval_interval": 0,
        "parallel_type": "t",
        "num_parallels": cores() if run.parallel else 1,
    }
    algorithm = SimpleNamespace(Server=Server, Client=fedavg.Client, __name__="fedavg")
    runner = flgo.init(task, algorithm, option)
    runner.run()
    run.finish(counter.steps, list(runner.model.parameters()))


if __name__ == "__main__":
    main()
