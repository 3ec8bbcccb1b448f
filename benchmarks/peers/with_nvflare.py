"""NVFlare: the FedAvg recipe in the simulator, a site for each client, each in a process of its own
as by default."""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path

from work import CLIENTS, parse


def main() -> None:
    run = parse()
    here = Path(__file__).parent
    os.environ["PYTHONPATH"] = str(here)
    from nvflare.app_opt.pt.recipes.fedavg import FedAvgRecipe
    from nvflare.recipe import SimEnv

    recipe = FedAvgRecipe(
        name="peers",
        model={
            "class_path": "nvflare_model.Named",
            "args": {"workload": run.load.name, "precision": run.precision},
        },
        min_clients=CLIENTS,
        num_rounds=run.rounds,
        train_script=str(here / "nvflare_client.py"),
        train_args=shlex.join(run.arguments()),
    )
    recipe.execute(SimEnv(num_clients=CLIENTS, workspace_root=str(run.out / "workspace")))
    run.mark()
    import torch

    saved = torch.load(
        next((run.out / "workspace").rglob("FL_global_model.pt")), weights_only=False
    )
    steps = sum(json.loads((run.out / f"site-{k + 1}.json").read_text()) for k in range(CLIENTS))
    run.finish(steps, [torch.as_tensor(values) for values in saved["model"].values()])


if __name__ == "__main__":
    main()
