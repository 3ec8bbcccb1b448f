"""The 25 runs of ``benchmarks/comparison.py`` as users of other frameworks start a grid: a shell
loop over runs, each a process of its own.

    python benchmarks/peers/whole_grids.py [OUT.json] [--only flgo,fluke] [--seeds 1] [--rounds 50]

Every run has the clients' samples that Motley's run of the same seed has, the same model, local
epochs, batches and rate, five clients a round that the framework draws, and the test set examined
after each round. ``alone``: one run after the other, each on all cores as the framework uses them.
``beside``: as many runs at a time as there are cores, each on one; Flower's simulation has all
cores for itself and is not run so. Motley's own time is that of ``motley compare`` with the report,
as ``comparison.py`` measures it, in the same turn. Of Flower's processor seconds only those of its
own process are counted, not those of Ray's. The runs of a loop do not depend on each other:
of ``--seeds`` fewer than five, seconds times 5 / seeds are the loop over all 25.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
import drive  # noqa: E402 - it lies beside
from comparison import GRID, compared, environment, trained_clients  # noqa: E402
from grid_work import BATCH, COHORT, EPOCHS  # noqa: E402
from overhead import machine  # noqa: E402

ALGORITHMS = ("fedavg", "fedprox", "scaffold", "fednova", "feddyn")
SEEDS = 5
PEERS = {"flower": ("alone",), "flgo": ("alone", "beside"), "fluke": ("alone", "beside")}
"""Peer -> the forms in which its loop is run."""


def write_clients(path: Path, seed: int) -> None:
    """Write what Motley's clients of a seed hold, and the test samples of all of them."""
    import tomllib

    from motley.experiments.build import build

    keys = tomllib.loads(GRID.format(rounds=1))
    del keys["grid"]
    federation = build({**keys, "seed": seed}).federation
    x, y = federation.x.numpy(), federation.y.numpy()
    arrays = {}
    for client in range(len(federation)):
        rows = federation.train[client]
        arrays |= {f"x{client}": x[rows].astype(np.float32), f"y{client}": y[rows]}
    test = federation.test.values
    np.savez(path, x=x[test].astype(np.float32), y=y[test], **arrays)


def looped(peer: str, form: str, folder: Path, seeds: int, rounds: int) -> dict[str, Any]:
    """Run a peer's loop over all runs; return seconds, processor seconds, the clients' steps and
    the mean accuracy at the end.

    Raises
    ------
    RuntimeError: a run failed, with the end of what it printed.
    """
    python = str(drive.python_of(drive.PEERS[peer]))
    cores = len(os.sched_getaffinity(0))
    at_a_time = 1 if form == "alone" else cores
    threads = {} if form == "alone" else {"OMP_NUM_THREADS": "1"}
    waiting = [(algorithm, seed) for algorithm in ALGORITHMS for seed in range(seeds)]
    outs = []
    running: list[tuple[subprocess.Popen[bytes], Path]] = []
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.perf_counter()
    while waiting or running:
        while waiting and len(running) < at_a_time:
            algorithm, seed = waiting.pop(0)
            out = folder / f"{peer}-{form}-{algorithm}-{seed}"
            out.mkdir()
            outs.append(out)
            options = ["--seed", str(seed), "--rounds", str(rounds), "--out", str(out)]
            command = [python, str(HERE / f"grid_{peer}.py"), algorithm, *options]
            with (out / "log").open("w") as log:
                process = subprocess.Popen(
                    [*command, "--data", str(folder / f"clients-{seed}.npz")],
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    env=environment(**threads),
                    cwd=out,
                )
            running.append((process, out))
        process, out = running.pop(0)
        if process.wait() or not (out / "grid.json").is_file():
            raise RuntimeError(f"{out.name} failed:\n{(out / 'log').read_text()[-2000:]}")
    wall_s = time.perf_counter() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    ends = [json.loads((out / "grid.json").read_text()) for out in outs]
    return {
        "wall_s": round(wall_s, 2),
        "processor_s": round(
            after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime, 2
        ),
        "client_steps": sum(end["steps"] for end in ends),
        "accuracy": round(float(np.mean([end["accuracy"] for end in ends])), 4),
    }


def motley_compared(folder: Path, rounds: int) -> dict[str, Any]:
    """Run all 25 by ``motley compare``; return seconds, processor seconds and clients' steps."""
    file = folder / "comparison.toml"
    file.write_text(GRID.format(rounds=rounds), encoding="utf-8")
    spent = compared(file, folder / "motley")
    examples = [count for clients in trained_clients(folder / "motley") for count in clients]
    return {
        **{name: round(value, 2) for name, value in spent.items()},
        "client_steps": sum(EPOCHS * -(-count // BATCH) for count in examples),
    }


def main() -> None:
    """Build what is missing, measure, print and store."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    out = HERE.parent / "results" / "whole_grids.json"
    parser.add_argument("out", nargs="?", type=Path, default=out)
    parser.add_argument("--only", default=",".join(PEERS))
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--rounds", type=int, default=50)
    given = parser.parse_args()
    peers = given.only.split(",")
    for peer in peers:
        drive.build(drive.PEERS[peer])
    figures: dict[str, Any] = {
        "machine": machine(),
        "cores": len(os.sched_getaffinity(0)),
        "load_before": round(os.getloadavg()[0], 2),
        "rounds": given.rounds,
        "seeds": given.seeds,
        "cohort": COHORT,
        "versions": {peer: drive.versions()[peer] for peer in peers},
        "loops": [],
    }
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        figures["motley"] = motley_compared(folder, given.rounds)
        print(json.dumps(figures["motley"]), flush=True)
        for seed in range(given.seeds):
            write_clients(folder / f"clients-{seed}.npz", seed)
        for peer in peers:
            for form in PEERS[peer]:
                row = looped(peer, form, folder, given.seeds, given.rounds)
                figures["loops"].append({"peer": peer, "form": form, **row})
                print(json.dumps(figures["loops"][-1]), flush=True)
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
