"""Makes ``benchmarks/measured/peers.json`` of the records of runs, and runs the case that FLUTE's
authors published."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.insert(1, str(HERE.parent))
from overhead import machine  # noqa: E402
from work import CLIENTS, LR, WORKLOADS, Workload, flat, network  # noqa: E402

ROOT = HERE.parents[1]
OUT = ROOT / "benchmarks" / "measured" / "peers.json"

Record = Mapping[str, Any]


def known_distances(versions: Mapping[str, str]) -> dict[str, float]:
    """Return the distances of models that the committed file has of these versions:
    ``workload/peer/precision`` -> distance."""
    if not OUT.is_file():
        return {}
    found = json.loads(OUT.read_text(encoding="utf-8"))
    stored = found["versions"]
    distances = found["distances"]
    return {
        name: value
        for name, value in distances.items()
        if name.count("/") == 2 and stored.get(peer := name.split("/")[1]) == versions.get(peer)
    }


def distance(model: np.ndarray, reference: np.ndarray, initial: np.ndarray) -> float:
    """Return how far a model is from the reference, over how far the reference has moved from its
    initial weights."""
    return float(np.linalg.norm(model - reference) / np.linalg.norm(reference - initial))


def distances(folder: Path) -> dict[str, float]:
    """Return the distance of every peer's model after one round of whole batches from the plain
    loop's in float32: ``workload/peer/precision`` ->."""
    out = {}
    for load in WORKLOADS.values():
        initial = flat(network(load).parameters()).astype(float)
        plain = folder / "out" / f"{load.name}-plain-float32-whole" / "model.npy"
        for path in (
            sorted((folder / "out").glob(f"{load.name}-*-whole/model.npy"))
            if plain.is_file()
            else []
        ):
            _, peer, precision, _ = path.parent.name.split("-")
            out[f"{load.name}/{peer}/{precision}"] = float(
                f"{distance(np.load(path), np.load(plain), initial):.2g}"
            )
    return out


def row(records: Sequence[Record]) -> dict[str, Any]:
    """Return what the runs of one peer on one workload in one precision found; seconds and steps
    are those of its faster turn.

    Rounds after the first are timed: the first one holds the start. A round's seconds are from the
    end of the round before to its own.
    """
    steps = WORKLOADS[records[0]["workload"]].steps
    turns = [
        (statistics.median(laps := np.diff(one["marks_s"]).tolist()), min(laps), one)
        for one in records
    ]
    median, _, faster = min(turns, key=lambda turn: turn[0])
    best = min(turn[1] for turn in turns)
    firsts = [one["marks_s"][0] for one in records]
    found = {
        "round_s": {"median": median, "best": best},
        "steps_per_s": {"median": steps / median, "best": steps / best},
        "turns": [steps / turn[0] for turn in turns],
        "first_s": {"median": statistics.median(firsts), "best": min(firsts)},
        "peak_mib": max(one["peak_mib"] for one in records),
    }
    rounds = [len(one["marks_s"]) for one in records]
    return {
        "workload": faster["workload"],
        "peer": faster["peer"],
        "precision": faster["precision"],
        "parallel": faster["parallel"],
        "rounds": rounds,
        "processes": faster["processes"],
        **_rounded(found),
    }


def table(records: Sequence[Record]) -> list[dict[str, Any]]:
    """Return a row for every workload, peer and precision that has been measured, in the order of
    the workloads, the fastest first."""
    groups: dict[tuple[str, str, str], list[Record]] = {}
    for record in records:
        group = (record["workload"], record["peer"], record["precision"])
        groups.setdefault(group, []).append(record)
    names = list(WORKLOADS)
    return sorted(
        map(row, groups.values()),
        key=lambda one: (names.index(one["workload"]), one["round_s"]["median"]),
    )


def write(folder: Path, versions: Mapping[str, str]) -> None:
    """Write ``benchmarks/measured/peers.json``."""
    import torch

    from motley.tasks.precision import bfloat16_instructions

    records = [
        json.loads(path.read_text(encoding="utf-8"))
        for path in sorted((folder / "runs").glob("*-[0-9].json"))
    ]
    loads = [_described(load) for load in WORKLOADS.values()]
    flute_file = folder / "flute.json"
    report = {
        "torch": torch.__version__,
        "machine": machine(),
        "cores": len(os.sched_getaffinity(0)),
        "clients": CLIENTS,
        "lr": LR,
        "versions": dict(versions),
        "load_before": max((one["load_before"] for one in records), default=0.0),
        "instructions": bfloat16_instructions("cpu"),
        "workloads": loads,
        "distances": known_distances(versions) | distances(folder),
        "rows": table(records),
        "flute": json.loads(flute_file.read_text(encoding="utf-8"))
        if flute_file.is_file()
        else None,
    }
    OUT.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    print(f"{len(records)} runs, written to {OUT.relative_to(ROOT)}")


def _described(load: Workload) -> dict[str, Any]:
    size = sum(part.numel() for part in network(load).parameters())
    parts = {
        "steps": load.steps,
        "samples": load.samples,
        "batch": load.batch,
        "epochs": load.epochs,
        "parameters": size,
    }
    return {"name": load.name, "title": load.title, **parts, "goals": load.goals}


def flute(path: Path, limit_s: float) -> None:
    """Time ``motley run`` on FLUTE's published case, from command to end, three times, where MNIST
    is to be had."""
    if path.is_file():
        return
    times = []
    accuracy = 0.0
    for _ in range(3):
        with tempfile.TemporaryDirectory() as folder:
            command = [
                sys.executable,
                "-m",
                "motley",
                "run",
                str(HERE / "flute.toml"),
                "--out",
                f"{folder}/run",
                "--no-report",
            ]
            start = time.perf_counter()
            environment = {
                **os.environ,
                "PYTHONPATH": os.pathsep.join(
                    map(str, [ROOT, *sorted(ROOT.glob("packages/*/src"))])
                ),
            }
            done = subprocess.run(
                command,
                cwd=ROOT,
                env=environment,
                capture_output=True,
                text=True,
                timeout=limit_s,
                check=False,
            )
            times.append(round(time.perf_counter() - start, 2))
            if done.returncode:
                print(f"FLUTE's case is left out: {done.stderr.strip()}")
                return
            accuracy = _accuracy(Path(folder) / "run")
    path.write_text(json.dumps({"wall_s": times, "accuracy": accuracy}), encoding="utf-8")
    print(f"FLUTE's case: {min(times)} s, accuracy {accuracy:.3f}")


def _accuracy(folder: Path) -> float:
    import motley

    return round(float(motley.load(folder).column("evaluations", "accuracy")[-1]), 4)


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _rounded(one) for key, one in value.items()}
    return [_rounded(one) for one in value] if isinstance(value, list) else float(f"{value:.4g}")
