"""A whole comparison beside nothing but PyTorch: 25 small runs as ``motley compare`` starts them,
and a plain loop that takes the same clients' steps on every core.

    python benchmarks/comparison.py [OUT.json] [--turns 3] [--rounds 50]

Five algorithms times five seeds: scikit-learn's digits among 30 clients, the MLP, five clients a
round, five local epochs in batches of 16. Motley's time is that of the command, from its start to
the report. The loop's is that of training alone, without imports and without reading anything: a
process for each core, one torch thread in each, on random samples of the sizes that Motley's
clients had; the rounds are dealt out evenly. The two take turns. Other work on the machine makes
wall times worthless: its load before is stored with them, and processor seconds beside them.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from overhead import machine

GRID = """
name = "comparison"
task = {{ name = "image", data = "digits", model = "mlp" }}
population = 30
cohort = 5
stop = {{ rounds = {rounds} }}
partition = {{ name = "dirichlet", alpha = 0.3 }}
local = {{ epochs = 5, batch_size = 16 }}
[grid]
"algorithm.name" = ["fedavg", "fedprox", "scaffold", "fednova", "feddyn"]
seed = [0, 1, 2, 3, 4]
"""
EPOCHS, BATCH = 5, 16
SHARED = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "PYTHONDONTWRITEBYTECODE")
"""Variables that a user's machine does not have, beside those of OpenBLAS."""


def environment(**more: str) -> dict[str, str]:
    """Return the variables of a user's machine: threads and kernels are chosen by the libraries."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("OPENBLAS_") and name not in SHARED
    }
    return {**kept, **more}


def compared(file: Path, out: Path) -> dict[str, float]:
    """Return seconds, and processor seconds, of ``motley compare``."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "motley", "compare", str(file), "--out", str(out)],
        check=True,
        capture_output=True,
        env=environment(),
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return {"wall_s": time.perf_counter() - began, "processor_s": used}


def trained_clients(out: Path) -> list[list[int]]:
    """Return the numbers of samples of the clients of every round, over all runs.

    Raises
    ------
    ValueError: a client took other steps than its epochs have.
    """
    import pyarrow.parquet as pq

    rounds: dict[tuple[Path, int], list[int]] = {}
    for path in sorted(out.glob("**/clients.parquet")):
        table = pq.read_table(path, columns=["round", "num_examples", "local_steps"]).to_pydict()
        for number, examples, steps in zip(*table.values(), strict=True):
            if steps != EPOCHS * -(-examples // BATCH):
                raise ValueError(f"{path}: {steps} steps on {examples} samples")
            rounds.setdefault((path, number), []).append(examples)
    return list(rounds.values())


def looped(rounds: Sequence[Sequence[int]]) -> dict[str, float]:
    """Return seconds of the plain loop on every core, the longest of its processes', and the
    processor seconds of all."""
    cores = len(os.sched_getaffinity(0))
    processes = [
        subprocess.Popen(
            [sys.executable, __file__, "--loop"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment(OMP_NUM_THREADS="1"),
        )
        for _ in range(cores)
    ]
    for number, process in enumerate(processes):
        assert process.stdin is not None
        process.stdin.write(json.dumps(rounds[number::cores]))
        process.stdin.close()
    outputs = [process.stdout.read() for process in processes if process.stdout is not None]
    if any(process.wait() for process in processes):
        raise RuntimeError("a process of the plain loop failed")
    spent = [json.loads(output) for output in outputs]
    return {
        "wall_s": max(process["wall_s"] for process in spent),
        "processor_s": sum(process["processor_s"] for process in spent),
    }


def loop() -> None:
    """Train the clients of the rounds on standard input, one after the other on one module, and
    take the mean of each round's models."""
    rounds = json.load(sys.stdin)
    import torch
    from torch import nn

    torch.set_num_threads(1)
    model = nn.Sequential(
        nn.Linear(64, 200), nn.ReLU(), nn.Linear(200, 200), nn.ReLU(), nn.Linear(200, 10)
    )
    parameters = list(model.parameters())
    optimizer = torch.optim.SGD(parameters, lr=0.01)
    criterion = nn.CrossEntropyLoss()
    server = [parameter.detach().clone() for parameter in parameters]
    x, y = torch.rand(2_000, 64), torch.randint(10, (2_000,))

    def steps(examples: int) -> Iterator[torch.Tensor]:
        for _ in range(EPOCHS):
            yield from torch.randperm(examples).split(BATCH)

    began = time.perf_counter(), time.process_time()
    for clients in rounds:
        total = [torch.zeros_like(value) for value in server]
        for examples in clients:
            with torch.no_grad():
                for parameter, value in zip(parameters, server, strict=True):
                    parameter.copy_(value)
            for batch in steps(examples):
                optimizer.zero_grad()
                criterion(model(x[batch]), y[batch]).backward()
                optimizer.step()
            with torch.no_grad():
                for value, parameter in zip(total, parameters, strict=True):
                    value.add_(parameter)
        server = [value / len(clients) for value in total]
    wall_s, processor_s = time.perf_counter() - began[0], time.process_time() - began[1]
    print(json.dumps({"wall_s": wall_s, "processor_s": processor_s}))


def measure(turns: int, rounds: int) -> dict[str, Any]:
    """Return the medians over the turns, and their number, of both; steps, machine and load."""
    load = os.getloadavg()[0]
    spent: dict[str, list[dict[str, float]]] = {"motley": [], "loop": []}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "comparison.toml"
        file.write_text(GRID.format(rounds=rounds), encoding="utf-8")
        for turn in range(turns):
            out = Path(folder) / str(turn)
            spent["motley"].append(compared(file, out))
            clients = trained_clients(out)
            spent["loop"].append(looped(clients))
    steps = sum(EPOCHS * -(-examples // BATCH) for group in clients for examples in group)
    medians = {
        who: {name: statistics.median(turn[name] for turn in all_turns) for name in all_turns[0]}
        for who, all_turns in spent.items()
    }
    return {
        "machine": machine(),
        "cores": len(os.sched_getaffinity(0)),
        "load_before": load,
        "turns": turns,
        "rounds": rounds,
        "client_steps": steps,
        **medians,
    }


def main() -> None:
    """Measure, print and store."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    out = Path(__file__).parent / "results" / "comparison.json"
    parser.add_argument("out", nargs="?", type=Path, default=out)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--loop", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.loop:
        loop()
        return
    figures = measure(arguments.turns, arguments.rounds)
    print(json.dumps(figures, indent=1))
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
