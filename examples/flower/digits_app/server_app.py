"""The server app: Flower's FedAvg with a Motley selector."""

from __future__ import annotations

import hashlib
import logging
import sys
from pathlib import Path

from flwr.app import ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

import motley
from digits_app.task import network, test_digits
from motley_flower import participation, with_selector

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run all rounds, then print the participation table."""
    config = context.run_config
    logging.getLogger("motley").setLevel(logging.INFO)
    logging.getLogger("motley").addHandler(logging.StreamHandler(sys.stdout))
    folder = Path(str(config["results"])) if config["results"] else None
    if folder:
        folder.mkdir(parents=True, exist_ok=True)

    selector = motley.selectors.build(
        str(config["selector"]), seed=int(config["seed"]), horizon=int(config["num-rounds"])
    )
    strategy = with_selector(
        FedAvg(fraction_evaluate=0.0, min_available_nodes=int(config["clients-per-round"])),
        selector,
        m=int(config["clients-per-round"]),
        out=folder / "run" if folder else None,
    )
    result = strategy.start(
        grid,
        ArrayRecord(network().state_dict()),
        num_rounds=int(config["num-rounds"]),
        timeout=float(config["timeout-s"]),
        evaluate_fn=accuracy,
    )

    table = participation(strategy.motley)
    digest = hashlib.sha256(
        b"".join(array.tobytes() for array in result.arrays.to_numpy_ndarrays())
    ).hexdigest()[:16]
    print(f"\n{table}\n\nmodel {digest}", flush=True)
    if folder:
        (folder / "participation.txt").write_text(f"{table}\n")
        (folder / "model.txt").write_text(f"{digest}\n")


def accuracy(server_round: int, arrays: ArrayRecord) -> MetricRecord:
    """Return the global model's accuracy on the test samples."""
    import torch

    model = network()
    model.load_state_dict(arrays.to_torch_state_dict())
    x, y = test_digits()
    with torch.inference_mode():
        right = (model(torch.from_numpy(x)).argmax(1) == torch.from_numpy(y)).float().mean().item()
    return MetricRecord({"accuracy": right})
