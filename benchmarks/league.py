"""What the league needs beside its runs: tuning before them, evidence for advice after them.

::

    python benchmarks/league.py tune --out runs/league/tuning          # about an hour of one core; writes tuned.toml at its end
    motley reproduce league --jobs 2 --keep                            # the runs
    python benchmarks/league.py evidence                               # profiles of the environments, effects, and the proof

Every command goes on where it was stopped. ``tune`` freezes into ``motley/recipes/league/tuned.toml`` what each entrant chose with the
same budget on validation samples; ``evidence`` writes ``evidence.csv`` and ``profiles.csv`` beside it, from which ``motley inspect``
advises.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any

from motley.core.errors import ConfigError, UserError
from motley.experiments import document
from motley.experiments.config import Experiment
from motley.experiments.store import slug
from motley.recipes.advice import (
    EVIDENCE,
    OUTSIDE,
    PROFILES,
    Effect,
    Proof,
    evidence_csv,
    league_evidence,
    profiles_csv,
    proof,
)
from motley.recipes.recipe import Cell, Exhibit, RankPlan, Recipe, read
from motley.recipes.reproduce import Reproduction, reproduce
from motley.recipes.standings import rankings

FOLDER = Path(__file__).resolve().parents[1] / "motley" / "recipes" / "league"


def main() -> None:
    """Run one of the commands."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("tune", "evidence"))
    parser.add_argument("--out", type=Path, default=Path("runs/league"))
    parser.add_argument("--scale", default="small")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--only", default="", help="entrants, separated by semicolons")
    given = parser.parse_args()
    if given.command == "tune":
        tune_all(given.out, given.scale, given.jobs, [name for name in given.only.split(";") if name])
    else:
        write_evidence(given.out / given.scale, given.scale)


def say(text: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def league() -> tuple[Recipe, Exhibit, RankPlan]:
    """Return the recipe, its exhibit with ranks, and what is ranked."""
    recipe = read("league")
    exhibit = recipe.named("league")
    assert exhibit.ranks is not None
    return recipe, exhibit, exhibit.ranks


def tune_all(out: Path, scale: str, jobs: int, only: list[str]) -> None:
    """Tune every entrant, and freeze what all of them chose."""
    recipe, exhibit, plan = league()
    asked = document.parse((FOLDER / "spaces.toml").read_text(encoding="utf-8"), "spaces.toml")
    bases = [
        recipe.experiment(cell, scale, asked["seed"])  # type: ignore[arg-type]
        for cell in exhibit.cells(scale)  # type: ignore[arg-type]
        if cell.at[plan.of] == plan.against and cell.at[plan.over] in asked["environments"]
    ]
    chosen: dict[str, dict[str, Any]] = {}
    entrants = {name: one for name, one in _untuned(exhibit, plan).items() if not only or name in only}
    for name, settings in entrants.items():
        over = {**asked["every"], **asked["spaces"].get(name, {})}
        try:
            chosen[name] = tuned(name, settings, bases, over, asked["trials"], out, jobs)
            say(f"{len(chosen)} of {len(entrants)}: {name}: {chosen[name]}")
        except UserError as error:
            say(f"{name} failed, and the others go on: {error}")
    if len(chosen) < len(entrants):
        raise SystemExit("some entrants have no values; mend what failed, and the same command goes on")
    if not only:
        (FOLDER / "tuned.toml").write_text(frozen(plan, chosen, asked), encoding="utf-8")
        say(f"wrote {FOLDER / 'tuned.toml'}")


def _untuned(exhibit: Exhibit, plan: RankPlan) -> Mapping[str, Mapping[str, Any]]:
    """Return the entrants' settings as recipe.toml has them, whatever tuned.toml says."""
    keys = document.parse((FOLDER / "recipe.toml").read_text(encoding="utf-8"), "recipe.toml")
    return next(one["axes"][plan.of] for one in keys["exhibit"] if one["name"] == exhibit.name)


def tuned(
    name: str,
    settings: Mapping[str, Any],
    bases: list[Experiment],
    over: Mapping[str, Any],
    trials: Mapping[str, int],
    out: Path,
    jobs: int,
) -> dict[str, Any]:
    """Return the values that an entrant chose; by whole runs where a part of it looks at the planned number of rounds."""
    from motley.tuning.study import tune

    how: dict[str, Any] = {"per": {name: dict(settings)}, "seeds": [bases[0].seed], "test_seeds": [], "jobs": jobs, "say": say}
    halved = {"trials": trials["halved"], "rounds_first": trials["rounds_first"], "factor": trials["factor"]}
    folder = out / slug(name)
    try:
        found = tune(bases, over, out=folder, **how, **halved)
    except ConfigError as error:
        if "planned number of rounds" not in str(error):
            raise
        found = tune(bases, over, out=folder, **how, trials=trials["whole"])
    return dict(found.methods[0].values)


def frozen(plan: RankPlan, chosen: Mapping[str, Mapping[str, Any]], asked: Mapping[str, Any]) -> str:
    """Return the text of tuned.toml."""
    trials, where = asked["trials"], "; ".join(asked["environments"])
    lines = [
        "# Made by benchmarks/league.py tune from spaces.toml; not written by hand.",
        f"# {trials['halved']} trials an entrant with successive halving, {trials['whole']} whole ones where halving is refused,",
        f"# judged by the clients' validation accuracy in the mean over: {where}; seed {asked['seed']}, not one of the league's.",
    ]
    for name, values in chosen.items():
        settings = [f"{json.dumps(key)} = {json.dumps(value)}" for key, value in values.items()]
        lines += ["", f"[{plan.of}.{json.dumps(name)}]", *settings]
    return "\n".join(lines) + "\n"


def write_evidence(out: Path, scale: str) -> None:
    """Write the effects and profiles that advice looks at, of the league and of the federations outside it; print the proofs."""
    for name, prefix in (("league", ""), ("outside", OUTSIDE)):
        exhibit = read("league").named(name)
        assert exhibit.ranks is not None
        found = reproduce("league", [name], scale=scale, out=out, run=False)
        effects = effects_of(found, exhibit, exhibit.ranks)
        if not effects:
            say(f"{name}: no runs yet")
            return
        profiles = {environment: profile_of(found, exhibit, exhibit.ranks, environment) for environment in effects}
        (FOLDER / f"{prefix}{EVIDENCE}").write_text(evidence_csv(effects), encoding="utf-8")
        (FOLDER / f"{prefix}{PROFILES}").write_text(profiles_csv(profiles), encoding="utf-8")
        league_evidence.cache_clear()
        evidence = league_evidence()
        assert evidence is not None
        tell(proof(evidence, league_evidence(prefix) if prefix else None), exhibit.ranks.against)


def tell(shown: Proof, control: str) -> None:
    """Print a proof."""
    for name, (advised, *regrets) in shown.by_environment.items():
        say(f"{name}: {advised}; regrets {', '.join(f'{one:.2f}' for one in regrets)}")
    say(f"regret of advice {shown.advice:.2f}, of the overall winner {shown.winner:.2f}, of {control} {shown.control:.2f}")
    say(
        f"gain {shown.gain.mean:+.2f} [{shown.gain.low:+.2f}, {shown.gain.high:+.2f}]: {'holds' if shown.holds else 'does not hold'}"
    )


def effects_of(found: Reproduction, exhibit: Exhibit, plan: RankPlan) -> dict[str, dict[str, Effect]]:
    """Return environment -> entrant -> effect, of entrants that have a number in every environment."""
    first = exhibit.measures[0]
    ranked = rankings(exhibit, plan, {first: found.values(exhibit, first)}).get(first)
    if ranked is None:
        return {}
    whole = [one.entrant for one in ranked.standings]
    time, traffic = (found.values(exhibit, name) for name in ("seconds_to_target", "traffic_mb_to_target"))
    return {
        environment: {
            entrant: Effect(
                ranked.differences[environment, entrant].mean,
                *(_share(exhibit, plan, values, environment, entrant) for values in (time, traffic)),
            )
            for entrant in whole
        }
        for environment in ranked.environments
    }


def _share(exhibit: Exhibit, plan: RankPlan, values: Mapping[Any, Any], environment: str, entrant: str) -> float:
    """Return the median over seeds of a cost to the target, as a share of the control's; NaN unless both reached it."""
    places = [{plan.over: environment, plan.of: name} for name in (entrant, plan.against)]
    ours, theirs = (values.get(tuple(place[axis] for axis in exhibit.axes), {}) for place in places)
    shares = [ours[s].value / theirs[s].value for s in ours if s in theirs and ours[s].reached and theirs[s].reached]
    return median(shares) if shares else float("nan")


def profile_of(found: Reproduction, exhibit: Exhibit, plan: RankPlan, environment: str) -> Mapping[str, float]:
    """Return how the clients of an environment differ, as ``motley inspect`` measures it."""
    import motley

    place = {plan.over: environment, plan.of: plan.against}
    cell = Cell(exhibit, tuple(place[axis] for axis in exhibit.axes))
    say(f"inspecting {environment}")
    inspected = motley.inspect(found.recipe.experiment(cell, found.scale, 0))
    return inspected.federations[0].inspection.profile()


if __name__ == "__main__":
    main()
