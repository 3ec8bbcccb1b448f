"""Measures every engine's client steps per second, relative to the sequential engine, and its
memory.

    python benchmarks/scaling.py [OUT.json] [--quick] [--only WORKLOAD]

Every engine that accepts a workload of ``engines.py`` trains it through its public ``train`` on all
cores. The engines take turns in one process, so that ratios compare repetitions of the same
minutes; the best repetitions and the medians are reported. Then each engine runs alone in a fresh
process, and the memory of that process and all its descendants is sampled while it trains; pages
that several processes share count once. ``ray`` is left out where it is not installed. Five to six
minutes on two cores.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import importlib.util
import json
import os
import re
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import torch
from engines import WORKLOADS, Workload, federated, setting, speeds
from rich.console import Console
from rich.table import Table

from motley.engines import ENGINES
from motley.engines.engine import Engine, Setting

HERE = Path(__file__).resolve().parent
NAMES = ("sequential", "batched", "vmap", "threads", "processes", "ray")
LOADS = (
    "logistic regression, batch 100",
    "logistic regression, batch 10",
    "MLP, equal sizes",
    "two-conv CNN, batch 32",
)
TURNS = 15
TURNS_S = 30.0
ALONE_S = 2.0
LOOK_S = 0.05
"""Seconds that an engine trains while its memory is sampled, and seconds between samples."""


def accepting(built: Setting) -> dict[str, type[Engine]]:
    """Return the installed engines that accept a workload."""
    kinds = {name: ENGINES.get(name) for name in NAMES}
    return {name: kind for name, kind in kinds.items() if kind.refuses(built) is None}


def compared(load: Workload, turns: int) -> dict[str, object]:
    """Measure all engines of one workload."""
    built = setting(load)
    engines = {name: kind(built) for name, kind in accepting(built).items()}
    try:
        found = speeds(
            {name: federated(engine, built) for name, engine in engines.items()}, turns, TURNS_S
        )
    finally:
        for engine in engines.values():
            engine.close()
    best = {name: max(values) for name, values in found.items()}
    median = {name: statistics.median(values) for name, values in found.items()}
    return {
        "workload": load.name,
        "weights": built.task.layout.size,
        "clients": len(load.sizes),
        "client_steps": int(built.work.total(built.task.federation.train.sizes).sum()),
        "turns": len(found["sequential"]),
        "engines": {
            name: {
                "best_steps_per_s": best[name],
                "median_steps_per_s": median[name],
                "ratio": best[name] / best["sequential"],
                "median_ratio": median[name] / median["sequential"],
                "peak_mib": apart(load.name, name),
            }
            for name in found
        },
    }


def apart(load: str, engine: str) -> float:
    """Run :func:`alone` in a fresh process."""
    command = [sys.executable, __file__, "--alone", load, engine]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return float(done.stdout.splitlines()[-1])


def alone(load: str, engine: str) -> float:
    """Return the peak MiB of this process and its descendants while the engine trains."""
    built = setting(next(one for one in WORKLOADS if one.name == load))
    there = ENGINES.get(engine)(built)
    run = federated(there, built)
    peak = [0.0]
    over = threading.Event()

    def look() -> None:
        while not over.wait(LOOK_S):
            peak.append(held())

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        until = time.perf_counter() + ALONE_S
        run()
        while time.perf_counter() < until:
            run()
    finally:
        over.set()
        watcher.join()
        there.close()
    return max(peak)


def held() -> float:
    """Return the MiB of this process and its descendants; a shared page is divided among the
    processes that share it."""
    me = psutil.Process()
    kib = 0
    for process in (me, *me.children(recursive=True)):
        with contextlib.suppress(OSError, psutil.Error):  # it is gone
            found = re.search(
                r"^Pss: +(\d+)",
                Path(f"/proc/{process.pid}/smaps_rollup").read_text(),
                flags=re.MULTILINE,
            )
            kib += int(found[1]) if found else 0
    return kib / 1024


def table(rows: list[dict[str, object]]) -> Table:
    """Return the rows as a table for the terminal."""
    out = Table(title="Client steps per second, best repetition")
    for column in ("workload", "engine", "steps /s", "to sequential (medians)", "peak MiB"):
        out.add_column(column, justify="left" if column in ("workload", "engine") else "right")
    for row in rows:
        for name, one in row["engines"].items():
            ratio = f"{one['ratio']:.2f} ({one['median_ratio']:.2f})"
            out.add_row(
                row["workload"],
                name,
                f"{one['best_steps_per_s']:,.4g}",
                ratio,
                f"{one['peak_mib']:,.0f}",
            )
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare the engines' speed and memory")
    parser.add_argument("out", nargs="?", default=HERE / "measured" / "scaling.json", type=Path)
    parser.add_argument("--quick", action="store_true", help="three repetitions of everything")
    parser.add_argument("--only", default="", help="workloads whose name contains this")
    parser.add_argument(
        "--alone",
        nargs=2,
        metavar=("WORKLOAD", "ENGINE"),
        help="measure only the memory of one engine",
    )
    options = parser.parse_args()
    if options.alone:
        sys.stdout.write(f"{alone(*options.alone)}\n")
        return
    console = Console(width=140)
    rows = []
    before = os.getloadavg()[0]  # other work on the machine makes these numbers worthless
    for load in WORKLOADS:
        if load.name in LOADS and options.only.lower() in load.name.lower():
            with console.status(load.name):
                rows.append(compared(load, 3 if options.quick else TURNS))
    console.print(table(rows))
    ray = importlib.metadata.version("ray") if importlib.util.find_spec("ray") else None
    report = {
        "torch": torch.__version__,
        "ray": ray,
        "cores": len(os.sched_getaffinity(0)),
        "load_before": before,
        "rows": rows,
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    console.print(f"written to {options.out}")


if __name__ == "__main__":
    main()
