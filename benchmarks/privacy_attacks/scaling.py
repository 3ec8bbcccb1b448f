"""Attack: the default scaling measures mean and deviation over all clients and writes them, exact,
into the run's folder.

Whoever knows the other clients' rows subtracts, and has the mean of the one that is left. The sum
of a round moves by more than the clip, too, because the other clients' inputs change with it.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import numpy as np

import motley
from motley.core.errors import ConfigError

CLIENTS = 8
ROWS = 30
CLIP = 0.1


def federation(path: Path, shift: float) -> str:
    """Write a table of ages by client; client 0's are ``shift`` years higher."""
    rng = np.random.default_rng(1)
    age = rng.normal(50.0, 10.0, (CLIENTS, ROWS)).round(1)
    age[0] += shift
    rows = [
        f"{k},{age[k, i]},{int(age[k, i] + 10 * rng.normal() > 50)}"
        for k in range(CLIENTS)
        for i in range(ROWS)
    ]
    path.write_text("site,age,label\n" + "\n".join(rows))
    return str(path)


def keys(data: str) -> dict[str, object]:
    """Return a private experiment that leaves the scaling at its default."""
    return {
        "task": {"name": "tabular", "data": data, "client": "site"},
        "partition": "by_writer",
        "cohort": CLIENTS,
        "stop": {"rounds": 1},
        "weights": "uniform",
        "local": {"steps": 20},
        "engine": "sequential",
        "privacy": {"clip": CLIP, "delta": 1e-5, "noise_multiplier": 20.0},
    }


def move_of_others(folder: Path) -> float:
    """Return by how much the other clients' part of the clipped sum of round 1 differs between two
    worlds, in clips."""
    sums = []
    for shift in (0.0, 400.0):
        loop = motley.build(keys(federation(folder / "world.csv", shift)))
        parts = {}
        clipped = loop.private.clipped
        loop.private.clipped = lambda state, upload, c=clipped, p=parts: p.setdefault(
            upload.client, c(state, upload)
        )
        loop.step()
        sums.append(sum(upload.parts["delta"].value for client, upload in parts.items() if client))
    return float((sums[0] - sums[1]).norm()) / CLIP


def attack(folder: Path) -> tuple[bool, str]:
    """Return whether client 0's mean came out, and what was got."""
    data = federation(folder / "table.csv", 5.0)
    rows = np.loadtxt(data, delimiter=",", skiprows=1)
    try:
        run = motley.run(keys(data), out=folder / "run")
        moved = move_of_others(folder)
    except ConfigError as refused:
        return False, f"the run is refused: {refused}"
    told = json.loads((run.directory / "preparation.json").read_text())["columns"][0]["mean"]
    others = rows[rows[:, 0] != 0, 1]
    got = (told * len(rows) - others.sum()) / ROWS
    truth = rows[rows[:, 0] == 0, 1].mean()
    said = (
        f"client 0's mean age {got:.4f} from preparation.json (it is {truth:.4f}), at epsilon "
        f"{run.meta['privacy']['epsilon']:.3f}"
    )
    return bool(
        abs(got - truth) < 1e-4
    ), f"{said}; the others' part of the sum moves by {moved:.2f} clips, and the account assumes 0"


def main() -> None:
    """Print what the attack got, as one JSON object."""
    with tempfile.TemporaryDirectory() as folder:
        succeeded, figure = attack(Path(folder))
    print(json.dumps({"fault": "scaling", "succeeded": succeeded, "figure": figure}))


if __name__ == "__main__":
    main()
