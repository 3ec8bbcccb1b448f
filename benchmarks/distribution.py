"""Measures what distribution costs: processor time and bytes of engines with workers beside those
without.

    python benchmarks/distribution.py [OUT.json] [--before FOLDER] [--rounds N] [--turns N]

Each engine runs the same rounds in a fresh process; the user and system time of that process and
all it started is counted after a first round, which starts the workers. ``ray`` starts a cluster
on this machine, whose own processes are counted, too. Bytes are those of the blocks that the run
writes for its workers and reads from them; ``driver_bytes`` is the memory of the run's process that
no other one shares. ``--before``: another version's checkout, which takes its turns between those
of this one. ``ray`` is left out where it is not installed (``make test-ray`` builds ``.venv-ray``).
MNIST must be at hand.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

HERE = Path(__file__).resolve().parent
WORKERS = 2
DISTRIBUTED = ("processes", "ray")
LOADS: dict[str, dict[str, Any]] = {
    "CNN, cohort 40": {"model": "cnn", "population": 400, "cohort": 40},
    "MLP of 0.2 million, cohort 100": {"model": "mlp", "population": 400, "cohort": 100},
}
"""Clients of 150 samples, one epoch of batches of 32: five steps each."""
LOCAL = {"cnn": "threads", "mlp": "batched"}
"""The engine of one process that ``auto`` takes for a model."""


def case(load: str, engine: str, rounds: int) -> dict[str, float]:
    """Return seconds of processor and wall, and bytes, of a round after the first."""
    import motley
    from motley.engines.processes import Processes

    Processes.available_cores = classmethod(lambda cls, setting: WORKERS)  # type: ignore[method-assign]
    workers = {"workers": WORKERS} if engine in DISTRIBUTED else {}
    given = dict(LOADS[load])
    loop = motley.build(
        {
            "task": {"name": "image", "data": "mnist", "model": given.pop("model")},
            "partition": "iid",
            "stop": {"rounds": rounds + 2},
            "local": {"epochs": 1, "batch_size": 32, "optimizer": {"name": "sgd", "lr": 0.05}},
            "evaluate": {"every": 1000, "per_client": False},
            "engine": {"name": engine, "threads": WORKERS, **workers},
            **given,
        }
    )
    try:
        with counted_bytes() as count:
            loop.step()
            before = spent()
            wall = time.perf_counter()
            sent = dict(count)
            loop.watch.lap()
            for _ in range(rounds):
                loop.step()
            aggregate = loop.watch.lap()["aggregate"]
            used = spent() - before
            took = time.perf_counter() - wall
            found = {name: (count[name] - sent[name]) / rounds for name in count}
        memory = max((child.memory_info().rss for child in children()), default=0)
        gc.collect()
        return {
            "driver_bytes": psutil.Process().memory_full_info().uss,
            "processor_s": used / rounds,
            "wall_s": took / rounds,
            "aggregate_s": aggregate / rounds,
            "largest_child_rss": memory,
            "weights": loop.setting.task.layout.size,
            **found,
        }
    finally:
        loop.engine.close()


def children() -> list[psutil.Process]:
    return psutil.Process().children(recursive=True)


def spent() -> float:
    """Return the user and system seconds of this process and its descendants."""
    seconds = 0.0
    for process in (psutil.Process(), *children()):
        with contextlib.suppress(psutil.Error):
            times = process.cpu_times()
            seconds += times.user + times.system
    return seconds


@contextlib.contextmanager
def counted_bytes() -> Iterator[dict[str, int]]:
    """Count the bytes of blocks that this process writes for workers and reads from them."""
    from motley.engines import processes, serialization
    from motley_ray import actors

    count = {"bytes_down": 0, "bytes_up": 0}
    wrap = serialization.wrap
    unwrap = serialization.unwrap

    def wrapped(obj: object, allocate: Any) -> Any:
        def counting(size: int) -> Any:
            count["bytes_down"] += size
            return allocate(size)

        return wrap(obj, counting)

    def unwrapped(block: Any) -> Any:
        count["bytes_up"] += len(memoryview(block))
        return unwrap(block)

    serialization.wrap = actors.wrap = wrapped  # type: ignore[assignment]
    processes.unwrap = actors.unwrap = unwrapped
    try:
        yield count
    finally:
        serialization.wrap = actors.wrap = wrap
        processes.unwrap = actors.unwrap = unwrap


def sources(code: Path) -> str:
    """Return the folders of a checkout in which its modules lie, as a search path."""
    return os.pathsep.join(map(str, [code, *sorted(code.glob("packages/*/src"))]))


def measured(load: str, engine: str, rounds: int, code: Path) -> dict[str, float]:
    """Run :func:`case` in a fresh process with a version's code."""
    command = [sys.executable, __file__, "--case", load, engine, "--rounds", str(rounds)]
    environment = {**os.environ, "PYTHONPATH": sources(code), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def compared(
    load: str, versions: dict[str, Path], turns: int, rounds: int, names: list[str]
) -> dict[str, Any]:
    """Return the medians of all engines and versions, which take turns."""
    rows: dict[str, dict[str, list[dict[str, float]]]] = {}
    for _ in range(turns):
        for engine in names:
            for version, code in versions.items():
                found = measured(load, engine, rounds, code)
                rows.setdefault(version, {}).setdefault(engine, []).append(found)
                sys.stderr.write(f"{load}, {engine}, {version}: {found['processor_s']:.2f} s\n")
    out: dict[str, Any] = {"workload": load, "turns": turns, "rounds": rounds}
    for version, engines in rows.items():
        medians = {
            engine: {name: statistics.median(one[name] for one in some) for name in some[0]}
            for engine, some in engines.items()
        }
        for one in medians.values():
            one["to_one_process"] = one["processor_s"] / medians[names[0]]["processor_s"]
        out[version] = medians
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure what distribution costs")
    parser.add_argument(
        "out", nargs="?", default=HERE / "measured" / "distribution.json", type=Path
    )
    parser.add_argument("--before", type=Path, help="checkout of another version")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--only", default="", help="workloads whose name contains this")
    parser.add_argument("--case", nargs=2, metavar=("WORKLOAD", "ENGINE"))
    options = parser.parse_args()
    if options.case:
        sys.stdout.write(json.dumps(case(*options.case, options.rounds)) + "\n")
        return
    versions = {} if options.before is None else {"before": options.before}
    versions["now"] = HERE.parent
    here = importlib.util.find_spec("ray") is not None
    names = [name for name in DISTRIBUTED if name != "ray" or here]
    chosen = [load for load in LOADS if options.only.lower() in load.lower()]
    rows = []
    if options.out.is_file():  # workloads that are not measured now stay
        held = json.loads(options.out.read_text(encoding="utf-8"))["rows"]
        rows = [row for row in held if row["workload"] not in chosen]
    for load in chosen:
        own = [LOCAL[LOADS[load]["model"]], *names]
        load_before = os.getloadavg()[0]
        row = compared(load, versions, options.turns, options.rounds, own)
        rows.append({**row, "load_before": load_before})
    rows.sort(key=lambda row: list(LOADS).index(row["workload"]))
    report = {"workers": WORKERS, "rows": rows}
    options.out.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
