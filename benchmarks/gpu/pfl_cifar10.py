"""Stage ``pfl_cifar10``: pfl-research's CIFAR-10 benchmark in full
(``packages/motley-papers/src/motley_papers/pfl_cifar10``) in float32, by the faster engine.

Without CIFAR-10 the same work is done on images of its shape and number that are drawn at random;
seconds are then those of the benchmark, and the accuracy means nothing.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, get_args

import numpy as np

from benchmarks.gpu.records import Rows, stage_options
from motley.experiments.build import build
from motley.tasks.precision import Precision
from motley_data.public_data.search import search
from motley_papers import output
from motley_papers.recipe import read
from motley_papers.reproduce import plan, reproduce

TRIAL = 10
"""Rounds after the first, by which the engines are compared."""


def data(out: Path) -> str:
    """Return the name of CIFAR-10, or the file of random images that take its place."""
    if next(search("cifar10"), None) is None:
        path = out / "data" / "random_images.npz"
        if not path.exists():
            rng = np.random.default_rng(0)
            halves = {
                half: (rng.integers(0, 256, (n, 32, 32, 3), dtype=np.uint8), np.arange(n) % 10)
                for half, n in (("train", 50_000), ("test", 10_000))
            }
            path.parent.mkdir(parents=True, exist_ok=True)
            with open(path.with_suffix(".new"), "wb") as file:
                np.savez(
                    file,
                    **{
                        f"{kind}_{half}": found[i]
                        for half, found in halves.items()
                        for i, kind in enumerate("xy")
                    },
                )
            path.with_suffix(".new").rename(path)
        return str(path.resolve())
    return "cifar10"


def seconds_a_round(overrides: list[str], scale: str) -> float:
    """Return the wall seconds of a round after the first, without evaluations."""
    recipe = read("pfl_cifar10")
    (experiment,) = plan(
        recipe, recipe.exhibit, scale, [0], None, [*overrides, "evaluate.every=1000"]
    ).values()
    loop = build(experiment)
    loop.step()
    begin = time.perf_counter()
    done = 0
    while not loop.done and done < TRIAL:
        loop.step()
        done += 1
    return (time.perf_counter() - begin) / max(done, 1)


def main() -> None:
    options = stage_options()
    rows = Rows(options.out / "pfl_cifar10.json", options.device)
    scale = "smoke" if options.smoke else "paper"
    common = [f"engine.device={options.device}"]
    if not options.smoke:
        common.append(f"task.data={data(options.out)}")
    for engine in ("sequential", "vmap"):
        for precision in get_args(Precision):
            name = engine if precision == "float32" else f"{engine}, {precision}"
            if name not in rows:
                settings = [*common, f"engine.name={engine}", f"precision={precision}"]
                rows.add(name, {"seconds_a_round": seconds_a_round(settings, scale)})
    tried: dict[str, Any] = rows.found["rows"]
    fastest = min(("sequential", "vmap"), key=lambda engine: tried[engine]["seconds_a_round"])
    common.append(f"engine.name={fastest}")
    found = reproduce(
        "pfl_cifar10",
        scale=scale,
        seeds=[0],
        out=options.out / "pfl_cifar10",
        overrides=common,
        progress=True,
    )
    output.write(found)
    (run,) = found.all_runs()
    seconds = float(np.sum(run.tables["timings"]["wall_s"].to_numpy()))
    rounds = len(run.tables["rounds"])
    scores = run.tables["evaluations"]["accuracy"].to_numpy()
    row = {
        "engine": fastest,
        "real_images": "task.data=cifar10" in common,
        "rounds": rounds,
        "seconds": seconds,
    }
    rows.add(
        "whole benchmark",
        {**row, "seconds_a_round": seconds / rounds, "accuracy": float(scores[-1])},
    )


if __name__ == "__main__":
    main()
