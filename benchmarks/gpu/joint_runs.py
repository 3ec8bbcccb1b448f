"""Stage ``joint_runs``: the 25 runs of ``benchmarks/comparison.py`` (five algorithms, five seeds, a
small MLP) one after the other, and together in one process.

The two take turns, three of each. ``batched`` is what ``engine = "auto"`` takes there; ``vmap``,
which is slower, takes a fifth of the rounds. Before that, three rounds in float64 must agree as
:mod:`benchmarks.gpu.agreement` asks; how far the models of the timed rounds are apart, in float32,
is only written down.
"""

from __future__ import annotations

import statistics
import tempfile
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest import mock

from safetensors.torch import load_file
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks.gpu.agreement import TOLERANCE
from benchmarks.gpu.records import Rows, stage_options
from motley.engines.chunk import Executor
from motley.engines.joint_chunks import JointComputation
from motley.experiments.config import Experiment
from motley.experiments.sweep import expand, run_points
from motley.experiments.sweep_point import Point
from motley.experiments.trained import TrainedRun

KEYS: dict[str, Any] = {
    "name": "comparison",
    "task": {"name": "image", "data": "digits", "model": "mlp"},
    "population": 30,
    "cohort": 5,
    "partition": {"name": "dirichlet", "alpha": 0.3},
    "local": {"epochs": 5, "batch_size": 16},
}
ALGORITHMS = ["fedavg", "fedprox", "scaffold", "fednova", "feddyn"]
ROUNDS = {"batched": 50, "vmap": 10}
TURNS = 3
MAKING = ("empty", "new_empty", "_unsafe_view", "_reshape_alias", "lift")
"""Beginnings of the names of operations that compute nothing."""
WANTED = 5.0
"""How much faster 25 runs together are to be than one after the other."""


def points(
    engine: str, device: str, rounds: int, seeds: int, dtype: str = "float32"
) -> list[Point]:
    """Return the runs of all algorithms."""
    keys = {
        **KEYS,
        "stop": {"rounds": rounds},
        "dtype": dtype,
        "engine": {"name": engine, "device": device, "threads": 1},
    }
    return expand(Experiment(**keys), {"algorithm.name": ALGORITHMS}, list(range(seeds)))


def timed(runs: Sequence[Point], out: Path, jointly: bool) -> tuple[float, list[TrainedRun]]:
    """Return the wall seconds of all runs, and the runs.

    Raises
    ------
    RuntimeError: one failed.
    """
    begin = time.perf_counter()
    made, failures = run_points(
        runs,
        [point.folder(out) for point in runs],
        None,
        jobs=len(runs) if jointly else 1,
        jointly=jointly,
    )
    seconds = time.perf_counter() - begin
    if failures:
        raise RuntimeError(f"{failures[0].point.label}: {failures[0].reason}")
    return seconds, made


def difference(one: TrainedRun, other: TrainedRun) -> float:
    """Return the largest difference of two models, relative to the largest weight."""
    a, b = (load_file(run.directory / "model.safetensors") for run in (one, other))
    largest = max(float(value.abs().max()) for value in a.values())
    return max(float((a[name] - b[name]).abs().max()) for name in a) / largest


def share_of_training(runs: Sequence[TrainedRun]) -> float:
    """Return the share of all rounds' wall seconds in which clients trained, which alone becomes
    less where runs go together."""
    spent = [run.tables["timings"] for run in runs]
    train, wall = (
        sum(float(table[name].to_numpy().sum()) for table in spent)
        for name in ("train_s", "wall_s")
    )
    return train / wall


class Counted(TorchDispatchMode):
    """Counts operations that a device would be asked to compute."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Compute an operation."""
        views = func.is_view or func.namespace != "aten" or func.__name__.startswith(MAKING)
        self.count += not views
        return func(*args, **(kwargs or {}))


def operations(engine: str, device: str, seeds: int) -> dict[str, float]:
    """Return the operations of training in a round of all runs, one after the other and
    together."""
    rounds = 2
    runs = points(engine, device, rounds, seeds)
    counts = {}
    for name, owner, method, jointly in (
        ("alone", Executor, "train", False),
        ("together", JointComputation, "compute", True),
    ):
        counted = Counted()
        plain = getattr(owner, method)

        def watched(*args: Any, counted: Counted = counted, plain: Any = plain) -> Any:
            with counted:
                return plain(*args)

        with tempfile.TemporaryDirectory() as folder, mock.patch.object(owner, method, watched):
            timed(runs, Path(folder), jointly)
        counts[name] = counted.count / rounds
    return counts


def main() -> None:
    options = stage_options()
    rows = Rows(options.out / "joint_runs.json", options.device)
    seeds, turns = (2, 1) if options.smoke else (5, TURNS)
    chunks: list[list[int]] = []
    compute = JointComputation.compute

    def noted(self: JointComputation, works: Any) -> Any:
        outcomes = compute(self, works)
        chunks.append(self.sizes)
        return outcomes

    JointComputation.compute = noted  # type: ignore[method-assign]
    # it would be timed as if it were together
    warnings.filterwarnings("error", "the clients of .* could not be computed together")
    for engine, rounds in ROUNDS.items():
        if (name := f"{engine}, float64") not in rows:
            runs = points(engine, options.device, 3, 2, "float64")
            with tempfile.TemporaryDirectory() as folder:
                _, alone = timed(runs, Path(folder) / "alone", jointly=False)
                _, together = timed(runs, Path(folder) / "together", jointly=True)
                found = max(map(difference, alone, together))
            rows.add(name, {"difference": found, "agrees": found <= TOLERANCE})
        if (name := f"{engine}, operations a round") not in rows:
            rows.add(name, operations(engine, options.device, seeds))
        runs = points(engine, options.device, 2 if options.smoke else rounds, seeds)
        for turn in range(turns):
            name = f"{engine}, turn {turn + 1}"
            if name in rows:
                continue
            with tempfile.TemporaryDirectory() as folder:
                # the first run on a device loads its libraries
                timed(runs[:1], Path(folder) / "warm", jointly=False)
                alone_s, alone = timed(runs, Path(folder) / "alone", jointly=False)
                chunks.clear()
                together_s, together = timed(runs, Path(folder) / "together", jointly=True)
                rows.add(
                    name,
                    {
                        "runs": len(runs),
                        "alone_s": alone_s,
                        "together_s": together_s,
                        "chunks_a_round": sum(map(len, chunks)) / len(chunks),
                        "share_of_training": share_of_training(alone),
                        "difference": max(map(difference, alone, together)),
                    },
                )
    measured = rows.found["rows"]
    wrong = [name for name, row in measured.items() if not row.get("agrees", True)]
    for engine in ROUNDS:
        alone_s, together_s = (
            statistics.median(
                row[which] for name, row in measured.items() if name.startswith(f"{engine}, turn")
            )
            for which in ("alone_s", "together_s")
        )
        ratio = alone_s / together_s
        rows.add(engine, {"times_as_fast": ratio, "as_wanted": ratio >= WANTED})
    raise SystemExit(1 if wrong else 0)


if __name__ == "__main__":
    main()
