"""Compare private runs that differ in one client's data, with the same counted releases, over all
examples and combinations.

    scripts/test-privacy [--summary FILE]          everything
    scripts/test-privacy --few 12                  so many of the combinations that are admitted

Every difference that the claim covers counts as a failure, and so does an attack that finds more
than its bound. Runs in which nobody was in a sum are counted, for they compare signals and choices
alone.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
import warnings
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

from motley.experiments.config import Experiment
from motley_privacy.neighbouring_worlds import Neighbours, neighbours
from motley_privacy.privacy_attack import audit
from motley_privacy.replay import replay
from privacy.combinations import BASE, PRIVACY, Case, combinations, examples

__all__ = ["main"]

TRIALS = 200
ATTACKED: dict[str, dict[str, Any]] = {
    "uniform": {},
    "replace_one": {"privacy": {**PRIVACY, "adjacency": "replace_one"}},
    "hidden coins": {
        "selector": {"name": "poisson", "rate": 0.5},
        "privacy": {**PRIVACY, "cohorts": "hidden"},
    },
    "adaptive": {"privacy": {**PRIVACY, "clip": {"initial": 0.5, "noise": 20.0}}},
}
"""Two-world tests: their changes to a small experiment."""


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="scripts/test-privacy", description=(__doc__ or "").split("\n\n")[0]
    )
    parser.add_argument("--few", type=int, help="compare so many combinations alone")
    parser.add_argument("--summary", type=Path, help="file for the numbers")
    parser.add_argument(
        "--minutes", type=float, default=30.0, help="begin no comparison after so many"
    )
    return parser.parse_args()


class _Comparisons:
    """Compares case after case; the files of the worlds are made once for each task."""

    def __init__(self, place: Path, ends: float) -> None:
        self.place = place
        self.ends = ends
        self.worlds: dict[str, Neighbours] = {}
        self.counts: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.failed: dict[str, list[str]] = {}
        self.unentered: list[str] = []

    def compare(self, case: Case, shared: bool) -> None:
        """Compare one case, or count it as refused. ``shared``: whether others have the same
        samples."""
        if case.experiment is None:
            self.counts["refused"] += 1
            self.refused[case.refused.partition(";")[0][:120]] += 1
            return
        if time.monotonic() > self.ends:
            self.counts["left out for want of time"] += 1
            return
        found = replay(
            case.experiment, make=partial(self._worlds, case.experiment) if shared else None
        )
        self.counts["compared"] += 1
        self.counts["worlds"] += 1 + len(found.differences)
        self.counts["the clock shows sizes"] += bool(found.clock)
        if not found.entered:
            self.unentered.append(case.name)
        if found.differs:
            self.failed[case.name] = found.sentences()[:-1]
            print(f"{case.name}\n  " + "\n  ".join(found.sentences()[:6]), flush=True)

    def _worlds(self, experiment: Experiment, client: int | None) -> Neighbours:
        name = json.dumps([experiment.task, experiment.privacy.sizes, client], sort_keys=True)
        if name not in self.worlds:
            folder = self.place / f"files-{len(self.worlds)}"
            self.worlds[name] = neighbours(experiment, folder, client=client)
        return self.worlds[name]


def _attacks() -> dict[str, dict[str, float]]:
    """Return bound and lower bound of a few two-world tests."""
    found = {}
    for name, changes in ATTACKED.items():
        task = {"name": "quadratic"}
        keys = {
            **BASE,
            "split": {},
            "task": task,
            "privacy": PRIVACY,
            "selector": "uniform",
            **changes,
        }
        done = audit(keys, trials=TRIALS)
        found[name] = {"bound": done.record["bound"], "eps_hat": done.attack.epsilon}
    return found


def main() -> int:
    """Compare everything, write the numbers, and return 1 if anything differed."""
    given = _arguments()
    began = time.monotonic()
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory(prefix="motley-privacy-") as place:
        work = _Comparisons(Path(place), began + 60.0 * given.minutes)
        if given.few is None:
            for case in examples():
                work.compare(case, shared=False)
        for case in combinations(Path(place) / "trace.csv"):
            if given.few is not None and work.counts["compared"] >= given.few:
                break
            work.compare(case, shared=True)
    attacks = {} if given.few is not None else _attacks()
    exceeded = [name for name, one in attacks.items() if one["eps_hat"] > one["bound"]]
    numbers = {
        **work.counts,
        "failed": work.failed,
        "nobody was in a sum": work.unentered,
        "refused because": dict(work.refused),
        "two-world tests": attacks,
        "bounds exceeded": exceeded,
        "seconds": round(time.monotonic() - began, 1),
    }
    if given.summary:
        given.summary.parent.mkdir(parents=True, exist_ok=True)
        given.summary.write_text(json.dumps(numbers, indent=1) + "\n")
    counts = ", ".join(f"{count} {name}" for name, count in work.counts.items())
    print(
        f"{counts}; {len(work.unentered)} in which nobody was in a sum, {len(work.failed)} with "
        f"differences, {len(exceeded)} bounds exceeded, {numbers['seconds']} s"
    )
    return 1 if work.failed or exceeded else 0


if __name__ == "__main__":
    sys.exit(main())
