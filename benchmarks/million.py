"""What a run with a million clients costs: seconds to the end of round 1, seconds a round outside
training, memory, checkpoints.

    python benchmarks/million.py [OUT.json] [--clients 1000000] [--rounds 20] \\
        [--only CASE] [--long 10000]
    python benchmarks/million.py benchmarks/measured/millions.json --clients 15000000 --rounds 8 \\
        --only runs
    python benchmarks/million.py benchmarks/measured/hundred_millions.json --clients 100000000 \\
        --samples 2 --width 2 --rounds 4 --only runs/uniform,runs/oort
    python benchmarks/million.py benchmarks/measured/long_runs.json --clients 10000 --only long

Every case runs in a process of its own, and divides its samples itself; where ``MOTLEY_CACHE``
names a folder, the cases after the first find the division there.

*runs*: clients of four samples of 16 numbers (unless told), memory-mapped from ``.npy`` files, a
linear model, a cohort of 1,000, one local epoch, log-normal devices, uniform links drawn anew each
round, and clients that are online for half of each day (``day_night``), by ``motley.run`` with its
tables, checkpoints and model. *command to round 1* counts everything from the start of the
interpreter to the end of round 1: imports, mapping and dividing the samples, their fingerprint,
enrolment, the table ``federation``, the evaluation of the untrained model, and the round. *outside
training* is the wall time of a round without local training and without what probes measure on
clients' samples (median; the first round left out). *peak* is the largest resident memory of the
whole process, mapped samples included. *resume*: ``motley.run(..., resume=True)`` in the same
process, to the end of its first round.

*federations*: seconds and peak of making one, and seconds that making the samples alone takes.

*selectors*: the rule alone among ten times as many clients, a hundred chosen a round, as
``benchmarks/selection.py`` measures it.

*long*: rounds with a cohort of ten: medians of the second tenth and of the last, and resident
memory at the end of each twentieth.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import overhead

HERE = Path(__file__).resolve().parent
CLASSES = 4
COHORT = 1_000
SELECTORS: dict[str, dict[str, Any]] = {
    "uniform": {},
    "power_of_choice": {},
    "oort": {},
    "hetero_select_v1": {"probe": "last_report"},
    "hetero_select": {},
}
WORLD = {
    "device": {"name": "log_normal"},
    "network": {"name": "uniform"},
    "availability": {"name": "day_night"},
}


@dataclass
class Shape:
    """How many samples a client has, and how many numbers a sample."""

    samples: int = 4
    width: int = 16


SHAPE = Shape()
INSIDE = ("train_s", "measure_s")
"""Parts of a round that are the clients' own work."""


class StoppedError(Exception):
    """The run is stopped here, as by a kill after its last checkpoint."""


def peak_mib() -> float:
    """Return the largest resident memory of this process so far, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def resident_mib() -> float:
    """Return the resident memory of this process now, in MiB."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 2**20


def blocks(clients: int) -> Iterator[tuple[Any, Any]]:
    """Yield the samples and labels of a thousand clients at a time."""
    rng = np.random.default_rng(0)
    for _ in range(clients // 1000):
        shape = (1000 * SHAPE.samples, SHAPE.width)
        yield (
            rng.standard_normal(shape, dtype=np.float32),
            rng.integers(0, CLASSES, len(range(shape[0]))),
        )


def one_by_one(clients: int) -> Iterator[tuple[Any, Any]]:
    """Yield the samples and labels of each client."""
    for x, y in blocks(clients):
        for first in range(0, len(x), SHAPE.samples):
            yield x[first : first + SHAPE.samples], y[first : first + SHAPE.samples]


def write(folder: Path, clients: int) -> None:
    """Write the samples of all clients as arrays."""
    rows = clients * SHAPE.samples
    x = np.lib.format.open_memmap(folder / "x.npy", "w+", np.float32, (rows, SHAPE.width))
    y = np.empty(rows, np.int64)
    at = 0
    for some, labels in blocks(clients):
        x[at : at + len(some)], y[at : at + len(some)] = some, labels
        at += len(some)
    x.flush()
    np.save(folder / "y.npy", y)
    np.save(folder / "offsets.npy", np.arange(0, rows + 1, SHAPE.samples))


def federation(kind: str, folder: Path, clients: int) -> dict[str, float]:
    """Make a federation in one of three ways."""
    from motley.tasks import from_arrays, from_clients, from_files

    alone = 0.0
    if kind == "generator":
        began = time.perf_counter()
        for _ in one_by_one(clients):
            pass
        alone = time.perf_counter() - began
    given = (np.load(folder / "x.npy"), np.load(folder / "y.npy")) if kind == "arrays" else None
    before = resident_mib()
    began = time.perf_counter()
    used = time.process_time()
    if kind == "generator":
        from_clients(one_by_one(clients), test_fraction=1 / SHAPE.samples)
    elif given is not None:
        from_arrays(
            *given, np.repeat(np.arange(clients), SHAPE.samples), test_fraction=1 / SHAPE.samples
        )
    else:
        from_files(folder, test_fraction=1 / SHAPE.samples)
    took = time.perf_counter() - began
    used = time.process_time() - used
    return {
        "seconds": took,
        "processor_s": used,
        "samples_s": alone,
        "peak_mib": peak_mib(),
        "before_mib": before,
    }


def experiment(selector: str, rounds: int, cohort: int = COHORT) -> dict[str, Any]:
    """Return the experiment of a case."""
    return {
        "name": "million",
        "cohort": cohort,
        "stop": {"rounds": rounds},
        "selector": {"name": selector, **SELECTORS[selector]},
        "local": {"epochs": 1, "batch_size": SHAPE.samples},
        "evaluate": {"every": rounds, "per_client": False},
        "checkpoint": {"every_rounds": rounds, "every_s": 1e9},
        **WORLD,
    }


def run(selector: str, folder: Path, rounds: int) -> dict[str, Any]:
    """Run one selector to its end, and again from its last checkpoint."""

    import motley
    from motley.tasks import from_files, own_task

    imported = time.time()
    given = from_files(folder, test_fraction=1 / SHAPE.samples)
    made = time.time()
    task = own_task(given, _linear)
    ends: list[tuple[float, float, float]] = []
    keys = experiment(selector, rounds)
    out = folder / "run"
    motley.run(
        keys,
        task=task,
        out=out,
        on_round=lambda _: ends.append((time.time(), peak_mib(), time.process_time())),
    )
    finished = time.time()
    peak = peak_mib()
    held = motley.load(out)
    times = held.tables["timings"].to_pydict()
    spent = [
        wall - sum(times[name][i] or 0.0 for name in INSIDE)
        for i, wall in enumerate(times["wall_s"])
    ]
    parts = {
        name: statistics.median(v or 0.0 for v in times[name][1:])
        for name in times
        if name != "round"
    }
    began = float(os.environ["BEGAN"])
    checkpoint = max((out / "checkpoints").glob("*.mtly")).stat().st_size
    return {
        "import_s": imported - began,
        "federation_s": made - imported,
        "round_1_s": ends[0][0] - made,
        "to_round_1_s": ends[0][0] - began,
        "to_round_1_processor_s": ends[0][2],
        "outside_s": statistics.median(spent[1:]),
        "outside_max_s": max(spent[1:]),
        "parts": parts,
        "finish_s": finished - ends[-1][0],
        "peak_mib": peak,
        "peak_round_1_mib": ends[0][1],
        "checkpoint_bytes": checkpoint,
        **resumed(keys, task, folder / "again", rounds),
    }


def _linear() -> Any:
    from torch import nn

    return nn.Linear(SHAPE.width, CLASSES)


def resumed(keys: dict[str, Any], task: Any, out: Path, rounds: int) -> dict[str, float]:
    """Stop a run by an error after its third round, which saves a checkpoint, and go on for a
    round."""
    import motley

    stamps: list[float] = []

    def stop(done: Any) -> None:
        stamps.append(time.perf_counter())
        if done.round in (3, 4):
            raise StoppedError

    for resume in (False, True):
        began = time.perf_counter()
        try:
            motley.run(keys, task=task, out=out, resume=resume, on_round=stop)
        except StoppedError:
            ended = time.perf_counter()
    return {"checkpoint_s": ended - stamps[-1], "resume_s": stamps[-1] - began}


def long(selector: str, folder: Path, rounds: int) -> dict[str, Any]:
    """Run many rounds of a small cohort."""
    import motley
    from motley.tasks import from_files, own_task

    task = own_task(from_files(folder, test_fraction=1 / SHAPE.samples), _linear)
    held: list[tuple[float, float]] = []
    keys = experiment(selector, rounds, cohort=10)
    motley.run(
        keys,
        task=task,
        out=folder / "run",
        on_round=lambda _: held.append((time.perf_counter(), resident_mib())),
    )
    laps = [b[0] - a[0] for a, b in itertools.pairwise(held)]
    tenth = rounds // 10
    return {
        "rounds": rounds,
        "early_s": statistics.median(laps[tenth : 2 * tenth]),
        "late_s": statistics.median(laps[-tenth:]),
        "mib": [round(held[at * rounds // 20 - 1][1], 2) for at in range(1, 21)],
    }


def selector(name: str, clients: int) -> dict[str, float]:
    """Choose a hundred clients, round by round, without a run around the rule."""
    import selection

    return selection.measure({"name": name, **SELECTORS[name]}, clients, rounds=5)


def alone(kind: str, name: str, folder: Path, clients: int, rounds: int) -> dict[str, Any]:
    """Run one case in a fresh process and return what it measured."""
    case = json.dumps([kind, name, clients, rounds, SHAPE.samples, SHAPE.width])
    kept = os.environ.get("MOTLEY_CACHE", "off")
    environment = {**os.environ, "BEGAN": str(time.time()), "MOTLEY_CACHE": kept}
    environment.pop("OMP_NUM_THREADS", None)  # as somebody who starts a run has it
    with tempfile.TemporaryDirectory(dir=folder.parent) as own:
        for file in folder.iterdir():
            (Path(own) / file.name).hardlink_to(file)
        command = [sys.executable, __file__, "--case", case, own]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        return {"failed": (done.stderr.strip().splitlines() or ["failed"])[-1]}
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def measured(case: str, folder: Path) -> dict[str, Any]:
    """Return what one case measures, in this process."""
    kind, name, clients, rounds, SHAPE.samples, SHAPE.width = json.loads(case)
    if kind == "federations":
        return federation(name, folder, clients)
    if kind == "selectors":
        return selector(name, clients)
    return run(name, folder, rounds) if kind == "runs" else long(name, folder, rounds)


def main() -> None:
    """Measure every case and write the JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", nargs="?", type=Path, default=HERE / "measured" / "million.json")
    parser.add_argument("--clients", type=int, default=1_000_000, help="a multiple of 1,000")
    parser.add_argument("--samples", type=int, default=SHAPE.samples, help="of a client")
    parser.add_argument("--width", type=int, default=SHAPE.width, help="numbers of a sample")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--long", type=int, default=10_000, help="rounds of the long runs")
    parser.add_argument(
        "--only", default="", help="cases whose name contains one of these, e.g. runs/oort,long"
    )
    parser.add_argument("--case", nargs=1, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.case:
        sys.stdout.write(f"{json.dumps(measured(args.case[0], args.out))}\n")
        return
    SHAPE.samples = args.samples
    SHAPE.width = args.width
    import torch

    cases = [("federations", name, 0) for name in ("files", "arrays", "generator")]
    cases += [("runs", name, args.rounds) for name in SELECTORS] + [
        ("long", name, args.long) for name in ("uniform", "oort", "hetero_select")
    ]
    cases += [("selectors", name, 0) for name in SELECTORS]
    found: dict[str, Any] = {
        "machine": overhead.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "torch": torch.__version__,
        "clients": args.clients,
    }
    found |= {
        "cohort": COHORT,
        "samples": SHAPE.samples,
        "width": SHAPE.width,
        "rounds": args.rounds,
        "load_before": os.getloadavg()[0],
    }
    with tempfile.TemporaryDirectory() as held:
        folder = Path(held) / "samples"
        folder.mkdir()
        write(folder, args.clients)
        for kind, name, rounds in cases:
            if any(part in f"{kind}/{name}" for part in args.only.split(",")):
                clients = 10 * args.clients if kind == "selectors" else args.clients
                found.setdefault(kind, {})[name] = one = alone(kind, name, folder, clients, rounds)
                sys.stdout.write(f"{kind} {name}: {json.dumps(one)}\n")
                sys.stdout.flush()
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    sys.stdout.write(f"written to {args.out}\n")


if __name__ == "__main__":
    main()
