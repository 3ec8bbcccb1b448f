"""What the league needs beside its runs: tuning before them, evidence for advice after them.

::

    python benchmarks/league.py tune --out runs/league/tuning          # about an hour of one core; writes tuned.toml at its end
    motley reproduce league --jobs 2 --keep                            # the runs
    python benchmarks/league.py evidence                               # differences, profiles of the environments, and the proof

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
from typing import Any

from motley.core.errors import ConfigError, UserError
from motley.experiments import document
from motley.experiments.config import Experiment
from motley.experiments.store import slug
from motley.recipes.advice import EVIDENCE, KINDS, OUTSIDE, PROFILES, Proof, evidence_csv, league_evidence, profiles_csv, proof
from motley.recipes.earlier import MEASURED, MeasuredRow, read_rows
from motley.recipes.recipe import Cell, Exhibit, RankPlan, Recipe, read

STANDS = ("even", "labels-weak", "labels-strong", "sizes-weak", "sizes-strong", "writers")
"""Environments on which advice may rest: those that differ in what they are named after. All others have labels of Dirichlet 0.5
beside it, so that what helps against skewed labels looks as if it helped against noise or speed; the proof advises them."""
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
        write_evidence(given.scale)


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


def write_evidence(scale: str) -> None:
    """Write the differences and profiles that advice looks at, from the numbers in the recipe's folder; print the proofs."""
    rows = read_rows(FOLDER / "measured" / scale / MEASURED)
    stored = {name: differences_of(rows, read("league").named(name)) for name in ("league", "outside")}
    rests = {name: one for name, one in stored["league"].items() if name in STANDS}
    others = {name: one for name, one in stored["league"].items() if name not in STANDS} | stored["outside"]
    profiles = _profiles(scale)
    for prefix, differences in (("", rests), (OUTSIDE, others)):
        (FOLDER / f"{prefix}{EVIDENCE}").write_text(evidence_csv(differences), encoding="utf-8")
        known = {name: profiles[name] for name in differences}
        (FOLDER / f"{prefix}{PROFILES}").write_text(profiles_csv(known), encoding="utf-8")
    league_evidence.cache_clear()
    evidence = league_evidence()
    assert evidence is not None
    for personal, words in KINDS.items():
        say(f"{words}:")
        tell(proof(evidence, league_evidence(OUTSIDE), personal))


def tell(shown: Proof) -> None:
    """Print a proof."""
    for name, (entrant, gain, winner) in shown.by_environment.items():
        say(f"{name}: {entrant or 'nothing advised'}; gain {gain:+.2f}, of always the winner {winner:+.2f}")
    for words, one in (("advice", shown.gain), ("always the winner", shown.winner)):
        say(f"{words}: {one.mean:+.2f} [{one.low:+.2f}, {one.high:+.2f}] over uniform FedAvg")
    say("helped {}, hurt {}, abstained {}: ".format(*shown.counts) + ("holds" if shown.holds else "does not hold"))


def differences_of(rows: list[MeasuredRow], exhibit: Exhibit) -> dict[str, dict[str, list[float]]]:
    """Return environment -> entrant -> difference to the control of each seed that both have."""
    assert exhibit.ranks is not None
    values: dict[tuple[str, ...], dict[int, float]] = {}
    for row in rows:
        if row.exhibit == exhibit.name and row.measure == exhibit.measures[0]:
            values.setdefault(tuple(row.cell.split(" / ")), {})[row.seed] = float(row.value)
    out: dict[str, dict[str, list[float]]] = {}
    for (environment, entrant), ours in values.items():
        theirs = values[environment, exhibit.ranks.against]
        out.setdefault(environment, {})[entrant] = [ours[s] - theirs[s] for s in sorted(ours) if s in theirs]
    return out


def _profiles(scale: str) -> dict[str, Mapping[str, float]]:
    """Return the profiles that are stored, and those of environments that have none yet."""
    stored = [league_evidence(prefix) for prefix in ("", OUTSIDE)]
    known = {name: one for each in stored if each is not None for name, one in each.profiles.items()}
    for title in ("league", "outside"):
        exhibit = read("league").named(title)
        assert exhibit.ranks is not None
        for environment in exhibit.axes[exhibit.ranks.over]:
            if environment not in known:
                known[environment] = profile_of(exhibit, exhibit.ranks, environment, scale)
    return known


def profile_of(exhibit: Exhibit, plan: RankPlan, environment: str, scale: str) -> Mapping[str, float]:
    """Return how the clients of an environment differ, as ``motley inspect`` measures it."""
    import motley

    place = {plan.over: environment, plan.of: plan.against}
    cell = Cell(exhibit, tuple(place[axis] for axis in exhibit.axes))
    say(f"inspecting {environment}")
    inspected = motley.inspect(read("league").experiment(cell, scale, 0))  # type: ignore[arg-type]
    return inspected.federations[0].inspection.profile()


if __name__ == "__main__":
    main()
