"""Tune every entrant of the league, before its runs.

::

    python benchmarks/tune_league.py  # some hours of one core

Both go on where they were stopped. ``tuned.toml`` is written after every entrant, and says what it
chose on validation samples.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any

from motley.experiments import document
from motley.experiments.config import Experiment
from motley.experiments.folder_names import slug
from motley_advice.tuning.study import tune
from motley_papers.recipe import Recipe, Scale, read

ENTRANT = "entrant"
TUNED = ("shared", "personal", "widths", "cnn")
"""Exhibits whose entrants are tuned themselves; those of the others have their values."""
RATE = "local.optimizer.lr"
AFTERWARDS = ", fine-tuned"
RECIPE = read("league")
FOLDER = RECIPE.folder or Path()


def main() -> None:
    """Tune the entrants that have no values yet."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path("runs/league/tuning"))
    parser.add_argument("--scale", default="small")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--only", default="", help="entrants, separated by semicolons")
    given = parser.parse_args()
    tune_all(given.out, given.scale, given.jobs, [name for name in given.only.split(";") if name])


def say(text: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def tune_all(out: Path, scale: Scale, jobs: int, only: list[str]) -> None:
    """Tune every entrant that has no values yet; write those of all after each."""
    recipe = RECIPE
    asked = document.parse((FOLDER / "spaces.toml").read_text(encoding="utf-8"), "spaces.toml")
    written = FOLDER / "tuned.toml"
    chosen = document.parse(written.read_text(encoding="utf-8"), "tuned.toml").get(ENTRANT, {})
    for exhibit in TUNED:
        bases = bases_of(exhibit, scale, asked["environments"])
        for name, settings in untuned(exhibit, only).items():
            if name not in chosen:
                over = {**asked["every"], **asked["spaces"].get(name, {})}
                chosen[name] = tuned(name, settings, bases, over, asked["seeds"], out, jobs)
                written.write_text(frozen(recipe, chosen, asked), encoding="utf-8")
                say(f"{name}: {chosen[name]}")


def bases_of(
    exhibit: str, scale: Scale, environments: Mapping[str, dict[str, Any]]
) -> list[Experiment]:
    """Return FedAvg with uniform selection, as an exhibit has it, in each environment of tuning."""
    there = RECIPE.named(exhibit).model_copy(
        update={"axes": {"environment": environments, ENTRANT: {"plain": {}}}, "scale": {}}
    )
    return [RECIPE.experiment(cell, scale, 0) for cell in there.cells(scale)]


def untuned(exhibit: str, only: list[str]) -> Mapping[str, Mapping[str, Any]]:
    """Return the settings, as recipe.toml has them, of an exhibit's entrants that are tuned: those
    without a learning rate of their own."""
    keys = document.parse((FOLDER / "recipe.toml").read_text(encoding="utf-8"), "recipe.toml")
    there = next(one["axes"][ENTRANT] for one in keys["exhibit"] if one["name"] == exhibit)
    return {
        name: settings
        for name, settings in there.items()
        if RATE not in settings and (not only or name in only)
    }


def tuned(
    name: str,
    settings: Mapping[str, Any],
    bases: list[Experiment],
    over: Mapping[str, list[Any]],
    seeds: list[int],
    out: Path,
    jobs: int,
) -> dict[str, Any]:
    """Return the values that an entrant chose among all combinations, each trained at full length
    with every seed."""
    combinations = prod(map(len, over.values()))
    found = tune(
        bases,
        over,
        per={name: dict(settings)},
        trials=combinations,
        seeds=seeds,
        test_seeds=[],
        out=out / slug(name),
        jobs=jobs,
        say=say,
    )
    return dict(found.methods[0].values)


def frozen(
    recipe: Recipe, chosen: Mapping[str, Mapping[str, Any]], asked: Mapping[str, Any]
) -> str:
    """Return the text of tuned.toml. What is fine-tuned afterwards has the values that its method
    chose without."""
    lines = [
        "# Made by benchmarks/tune_league.py from spaces.toml; not written by hand. All "
        "combinations of each grid, whole runs,",
        "# judged by the clients' validation accuracy, the mean over: "
        f"{'; '.join(asked['environments'])};",
        f"# and over the seeds {', '.join(map(str, asked['seeds']))}, none of the league's.",
    ]
    afterwards = recipe.named("after fine-tuning").axes[ENTRANT]
    for name, values in chosen.items():
        lines += _table(name, values)
        later = f"{name}{AFTERWARDS}"
        if later in afterwards and later not in chosen:
            lines += _table(
                later,
                {
                    key.replace("algorithm.", "algorithm.method."): value
                    for key, value in values.items()
                },
            )
    return "\n".join(lines) + "\n"


def _table(name: str, values: Mapping[str, Any]) -> list[str]:
    return ["", document.to_toml({ENTRANT: {name: values}}).rstrip()]


if __name__ == "__main__":
    main()
