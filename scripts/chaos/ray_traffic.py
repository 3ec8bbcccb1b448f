"""Bytes that a round on a Ray cluster sends through the network: as docs/scaling.md predicts them,
and as the kernel counts them at the nodes' own network devices.

    scripts/test-ray-chaos traffic --out benchmarks/measured/ray_traffic.json

The cluster has a head without cores, where the run's process is, and nodes of one core, each in a
network namespace. What is counted has all of Ray's own messages in it.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
from pathlib import Path
from typing import Any

from same_results import trees

import motley
from motley.engines.distributed import CHUNK_WEIGHTS
from motley.engines.placement import parts_of
from tests.motley_ray.ray_nodes import RayNodes

__all__ = ["main"]

COHORT = 100
NODES = 2
ROUNDS = 10
"""Rounds that are counted, after two in which workers start and samples travel."""
METHODS: dict[str, dict[str, Any]] = {
    "fedavg": {"algorithm": "fedavg"},
    "scaffold": {"algorithm": "scaffold"},
    "every update": {"algorithm": "fedavg", "aggregator": "median", "weights": "uniform"},
}


def predicted(method: str, weights: int) -> dict[str, int]:
    """Return the bytes to all nodes and from all nodes in a round, by the table of the page."""
    keeps = method == "scaffold"
    least = -(-COHORT * weights // CHUNK_WEIGHTS) if keeps else 1
    # every client takes one step
    sums = sum(len(part.runs) for part in parts_of([1.0] * COHORT, NODES, True, least))
    model = 4 * weights
    if method == "every update":
        return {"down": model * NODES, "up": model * COHORT}
    states = model * COHORT if keeps else 0
    times = 2 if keeps else 1
    return {"down": times * model * NODES + states, "up": times * 2 * model * sums + states}


def counted(method: str, cluster: RayNodes) -> dict[str, Any]:
    """Return what is predicted, and the medians of what is counted over the rounds."""
    loop = motley.build(
        {
            "task": {
                "name": "image",
                "data": "digits",
                "model": {"name": "mlp", "hidden": [400, 400]},
            },
            "partition": "iid",
            "population": COHORT,  # so that each has a state from the second round on
            "cohort": COHORT,
            "stop": {"rounds": ROUNDS + 3},
            "local": {"epochs": 1, "batch_size": 32},
            "evaluate": {"every": 1000, "per_client": False},
            "engine": {
                "name": "ray",
                "address": cluster.address,
                "workers": NODES,
                "worker_cores": 1,
            },
            **METHODS[method],
        }
    )
    weights = loop.setting.task.layout.size
    rounds = []
    try:
        for _ in range(2):
            loop.step()
        for _ in range(ROUNDS):
            before = _passed(cluster)
            loop.step()
            rounds.append(
                [after - was for after, was in zip(_passed(cluster), before, strict=True)]
            )
    finally:
        loop.engine.close()
    down, up = (statistics.median(some) for some in zip(*rounds, strict=True))
    return {
        "weights": weights,
        "clients": COHORT,
        "nodes": NODES,
        "predicted": predicted(method, weights),
        "counted": {"down": down, "up": up},
    }


def _passed(cluster: RayNodes) -> tuple[int, int]:
    """Return the bytes that all nodes have received and sent so far."""
    received = sum(node.received_bytes() for node in cluster.nodes)
    return received, sum(node.sent_bytes() for node in cluster.nodes)


def main(words: list[str]) -> None:
    """Count the bytes of each method and print them."""
    parser = argparse.ArgumentParser(
        prog="scripts/test-ray-chaos traffic", description=(__doc__ or "").split("\n\n")[0]
    )
    parser.add_argument("--out", type=Path, help="JSON file for the numbers")
    given = parser.parse_args(words)
    here = Path(__file__).parents[2]
    os.environ["PYTHONPATH"] = os.pathsep.join(map(str, (*trees.sources(here), here / "scripts")))
    found = {}
    with RayNodes(cores=0) as cluster:
        if not cluster.namespaces:
            sys.exit("bytes are counted in network namespaces, which are refused here")
        for _ in range(NODES):
            cluster.add_node(cores=1)
        for method in METHODS:
            found[method] = counted(method, cluster)
            print(method, json.dumps(found[method]), flush=True)
    if given.out is not None:
        given.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
