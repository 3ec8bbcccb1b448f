"""``summary.md``: the state of every stage, and its numbers, from the JSON files of a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.gpu.records import read
from benchmarks.gpu.stages import STAGES

__all__ = ["summary"]


def summary(out: Path, state: dict[str, Any]) -> str:
    """Return the text of the summary; a stage that has no numbers yet has a row in the first table
    alone."""
    scale = ", at a tiny scale: no number here means anything" if state["smoke"] else ""
    parts = [f"# On the device {state['device']}{scale}", _stages(state)]
    machine = next(
        (found["machine"] for name in _FILES if (found := read(out / f"{name}.json"))), None
    )
    if machine is not None:
        parts.append("; ".join(f"{key} {value}" for key, value in machine.items()))
    parts += [
        f"## {title}\n\n{text}"
        for name, (title, made) in _FILES.items()
        if (text := made(_rows(out, name)))
    ]
    return "\n\n".join(parts) + "\n"


def _rows(out: Path, name: str) -> dict[str, Any]:
    rows: dict[str, Any] = read(out / f"{name}.json").get("rows", {})
    return rows


def _table(columns: list[str], rows: list[list[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) if rows else ""


def _stages(state: dict[str, Any]) -> str:
    rows = []
    for stage in STAGES:
        at = state["stages"].get(stage.name, {"status": "waits", "seconds": 0.0})
        said = at["status"] + (f": {at['why']}" if "why" in at else "")
        rows.append(
            [stage.name, stage.what, said, f"{at['seconds']:.0f}", f"{60 * stage.minutes:.0f}"]
        )
    return _table(["stage", "what", "status", "seconds", "limit"], rows)


def _agreement(rows: dict[str, Any]) -> str:
    compared = {name: row for name, row in rows.items() if "agrees" in row}
    wrong = [
        [name, str(row.get("difference", "")), row.get("error", "")]
        for name, row in compared.items()
        if not row["agrees"]
    ]
    worst = max(
        (row["difference"] for row in compared.values() if "difference" in row), default=0.0
    )
    said = (
        f"{len(compared) - len(wrong)} of {len(compared)} pairs agree; the largest relative "
        f"difference is {worst:.1e}."
    )
    return "\n\n".join(
        filter(None, [said if rows else "", _table(["differ", "difference", "error"], wrong)])
    )


def _workloads(rows: dict[str, Any]) -> str:
    return _table(
        [
            "workload",
            "fastest engine",
            "client steps / s, median of each engine",
            "plain loop",
            "ratio of the medians (best)",
        ],
        [
            [
                name,
                row["engine"],
                ", ".join(
                    f"{engine} {speed:,.1f}"
                    for engine, speed in row["median_steps_per_s"].items()
                    if engine != "loop"
                ),
                f"{row['median_steps_per_s']['loop']:,.1f}",
                f"{row['median_ratio']:.2f} ({row['ratio']:.2f})",
            ]
            for name, row in rows.items()
        ],
    )


def _values(rows: dict[str, Any]) -> str:
    cells = [
        [name, ", ".join(f"{key} {_said(value)}" for key, value in row.items())]
        for name, row in rows.items()
    ]
    return _table(["row", "values"], cells)


def _said(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


_FILES = {
    "joint_runs": ("25 runs together beside one after the other", _values),
    "agreement": ("Engines on the device against themselves on the CPU, float64", _agreement),
    "workloads": ("Client steps a second beside a plain loop", _workloads),
    "pfl_cifar10": ("pfl-research's CIFAR-10 benchmark, this library", _values),
    "peer": ("pfl-research on a share of it", _values),
    "recipes": ("Recipes", _values),
}
