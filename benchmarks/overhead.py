"""What a round costs outside training: selection, planning, clock, ledger, aggregation, tables;
peak memory; what starting takes.

    python benchmarks/overhead.py [OUT.json]

Four questions, each in a fresh process so that memory is its own:

* milliseconds per round outside training and measuring (median), K = 100 and m = 10, K = 100,000
  and m = 100, per selector;
* peak resident memory with K = 10,000 clients and the MLP, and how much of it came after the first
  rounds;
* seconds of ``import motley``, whether torch came with it, of ``motley --help`` and of a run of one
  round;
* processor seconds of commands that train little or nothing.
"""

from __future__ import annotations

import json
import platform
import re
import resource
import runpy
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
OUTSIDE = ("select", "plan", "aggregate", "write")
CASES = [
    {"population": population, "cohort": cohort, "selector": selector}
    for population, cohort in ((100, 10), (100_000, 100))
    for selector in ("uniform", "power_of_choice", "hetero_select_v1")
]


def overhead(population: int, cohort: int, selector: str, rounds: int = 40) -> dict[str, float]:
    """Median milliseconds per round by part, on Synthetic data with a logistic regression (its
    training is left out)."""
    from motley.experiments.build import build
    from motley.experiments.config import Experiment
    from motley.results.writer import Writer

    experiment = Experiment(
        task={"name": "synthetic", "sizes": "equal", "examples": 10},
        partition="by_writer",
        population=population,
        cohort=cohort,
        stop={"rounds": rounds},
        selector=selector,
        probe={"batches": 1},
        local={"steps": 1, "batch_size": 8},
        device={"name": "uniform", "low": 0.1, "high": 1.0},
        network={"name": "uniform"},
        evaluate={"every": rounds, "per_client": False},
    )
    with tempfile.TemporaryDirectory() as folder:
        simulation = build(experiment, writer=Writer(Path(folder)))
        laps = []
        while not simulation.done:
            simulation.step()
            began = time.perf_counter()
            simulation.tables.writer.flush()
            lap = simulation.watch.lap()
            laps.append(
                {
                    **{name: lap.get(name, 0.0) for name in OUTSIDE},
                    "flush": time.perf_counter() - began,
                }
            )
    laps = laps[3:]
    parts = {name: 1e3 * statistics.median(lap[name] for lap in laps) for name in laps[0]}
    return {"total": 1e3 * statistics.median(sum(lap.values()) for lap in laps), **parts}


def memory(population: int = 10_000, rounds: int = 60) -> dict[str, float]:
    """Peak resident MiB of a whole run with the MLP on 784 inputs, after 20 rounds and at the
    end."""
    from motley.experiments.build import build
    from motley.experiments.config import Experiment
    from motley.results.writer import Writer

    experiment = Experiment(
        task={"name": "image", "data": "mnist", "model": "mlp"},
        population=population,
        cohort=10,
        stop={"rounds": rounds},
        partition="iid",
        local={"epochs": 10, "batch_size": 100},
        evaluate={"every": 20},
    )
    peak = {}
    with tempfile.TemporaryDirectory() as folder:
        simulation = build(experiment, writer=Writer(Path(folder)))
        while not simulation.done:
            done = simulation.step()
            simulation.tables.writer.flush()
            peak[done.round] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"peak_mib": peak[rounds], "grown_after_round_20_mib": peak[rounds] - peak[20]}


def machine() -> str:
    """Return the name of the processor as Linux gives it, with its family where the name has no
    number; elsewhere its kind."""
    file = Path("/proc/cpuinfo")
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    about = dict(re.split(r"\s*:\s*", line, maxsplit=1) for line in reversed(lines) if ":" in line)
    name = re.sub(r"\((R|TM)\)|Processor|CPU", "", about.get("model name", platform.machine()))
    name = " ".join(name.split())
    family = about.get("cpu family")
    return name if family is None or re.search(r"\d", name) else f"{name} of family {family}"


def importing() -> dict[str, float | str]:
    """Best of five fresh interpreters: seconds to import motley and torch, without those of the
    bare interpreter, and of two commands: ``motley --help``, and a run of one round on
    scikit-learn's digits."""
    bare, ours, torch = (_best("-c", code) for code in ("pass", "import motley", "import torch"))
    loaded = subprocess.run(
        [sys.executable, "-c", "import motley, sys; sys.exit('torch' in sys.modules)"], check=False
    ).returncode
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "one.toml"
        file.write_text(ONE_ROUND, encoding="utf-8")
        run = ("-m", "motley", "run", str(file), "--no-report", "--out")
        one_round = min(_start(*run, f"{folder}/{number}") for number in range(5))
    return {
        "machine": machine(),
        "import_s": ours - bare,
        "torch_came_along": float(loaded),
        "torch_s": torch - bare,
        "help_s": _best("-m", "motley", "--help"),
        "one_round_s": one_round,
    }


ONE_ROUND = """
task = { name = "image", data = "digits" }
population = 20
cohort = 5
stop = { rounds = 1 }
local = { epochs = 1, batch_size = 20 }
"""


SIX_RUNS = """
task = { name = "image", data = "digits" }
population = 20
cohort = 5
stop = { rounds = 10 }
partition = { name = "dirichlet", alpha = 0.3 }
local = { epochs = 2, batch_size = 20 }
[grid]
"selector.name" = ["uniform", "oort"]
seed = [0, 1, 2]
"""
TABLE = ROOT / "examples" / "tables" / "make_patients.py"


def commands() -> dict[str, float]:
    """Median processor seconds of five, the processes that a command starts included: ``motley
    inspect`` of a table of 2,175 rows; ``motley compare`` of six runs of ten rounds on digits, and
    again when all are finished; ``motley report`` of 27 runs of the example ``demo.toml``."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "six.toml"
        file.write_text(SIX_RUNS, encoding="utf-8")
        rows = str(runpy.run_path(str(TABLE))["main"](Path(folder), 2175))
        demo = str(ROOT / "examples" / "demo.toml")
        seeds = ",".join(map(str, range(9)))
        _start("-m", "motley", "compare", demo, "--seeds", seeds, "--out", f"{folder}/27")
        spent: dict[str, list[float]] = {}
        for number in range(5):
            compare = ("compare", str(file), "--out", f"{folder}/{number}")
            by_column = ("--label", "outcome", "--client", "hospital", "--drop", "id")
            for name, arguments in {
                "inspect_s": ("inspect", rows, *by_column, "--out", f"{folder}/inspected.html"),
                "compare_s": compare,
                "compare_again_s": compare,
                "report_s": ("report", f"{folder}/27"),
            }.items():
                before = _processor_s()
                _start("-m", "motley", *arguments)
                spent.setdefault(name, []).append(_processor_s() - before)
    return {name: statistics.median(seconds) for name, seconds in spent.items()}


def _processor_s() -> float:
    """Return the processor seconds of all processes that were started and have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _start(*arguments: str) -> float:
    """Return the seconds that a fresh interpreter takes for these arguments."""
    began = time.perf_counter()
    subprocess.run([sys.executable, *arguments], check=True, capture_output=True)
    return time.perf_counter() - began


def _best(*arguments: str) -> float:
    return min(_start(*arguments) for _ in range(5))


def _fresh(call: str) -> dict[str, Any]:
    """One of the functions above in a process of its own."""
    here = str(Path(__file__).parent)
    code = (
        f"import sys, json; sys.path.insert(0, {here!r}); import overhead; "
        f"print(json.dumps(overhead.{call}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    if done.returncode:
        return {"failed": 1.0, "why": done.stderr.strip().splitlines()[-1]}
    return json.loads(done.stdout.strip().splitlines()[-1])


def main() -> None:
    from rich.console import Console
    from rich.table import Table

    out = Path(
        sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent / "results" / "overhead.json"
    )
    table = Table(
        "K",
        "m",
        "selector",
        "total",
        *OUTSIDE,
        "flush",
        title="milliseconds a round, outside training (median)",
    )
    found: dict[str, Any] = {"rounds": []}
    for case in CASES:
        ms = _fresh(f"overhead({case['population']}, {case['cohort']}, {case['selector']!r})")
        found["rounds"].append({**case, **ms})
        shown = (
            [f"{ms[name]:.2f}" for name in ("total", *OUTSIDE, "flush")]
            if "total" in ms
            else [str(ms)]
        )
        table.add_row(f"{case['population']:,}", str(case["cohort"]), case["selector"], *shown)
    found["memory"], found["import"] = _fresh("memory()"), importing()
    found["commands"] = commands()
    console = Console()
    console.print(table)
    console.print("K = 10,000, MLP:", found["memory"])
    console.print("import motley:", found["import"])
    console.print("processor seconds:", found["commands"])
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(found, indent=1))
    console.print(f"written to {out}")


if __name__ == "__main__":
    main()
