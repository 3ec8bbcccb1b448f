"""Measure again what the league's first seeds chose; write what ``motley inspect`` advises from.

::

    motley reproduce league --jobs 2 --keep  # the runs whose seeds choose
    python benchmarks/league.py --again --jobs 2  # what they chose, with other seeds
    python benchmarks/league.py --again --anew writers  # that of an environment once more
    python benchmarks/league.py --outside  # whom advice names in the federations outside
    motley reproduce league --exhibit outside --jobs 2 --keep
    python benchmarks/league.py  # what advice looks at, with its proofs

All go on where they were stopped.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from motley.core.csv_text import csv_text
from motley.experiments.store import RunFolder
from motley.experiments.sweep import run_points
from motley.experiments.sweep_point import Point
from motley.results.load import load
from motley_papers.advice import (
    CONTROL,
    KINDS,
    LEFT_OUT,
    PROFILES,
    PROOF,
    Evidence,
    Profile,
    Proof,
    advise,
    evidence_texts,
    prove,
    prove_left_out,
    read_evidence,
)
from motley_papers.earlier import MEASURED, MeasuredRow, read_rows
from motley_papers.measuring import measure_of
from motley_papers.naming import chosen, costs, differences, gains, most_gaining
from motley_papers.number_files import measured_row
from motley_papers.recipe import Cell, Exhibit, Scale, read

SCALE: Scale = "small"
AGAIN = (10, 11, 12, 13, 14)
"""Seeds that measure again, and choose nothing."""
EXHIBITS = {False: "shared", True: "personal"}
"""Whether personal -> the exhibit of these entrants."""
SECONDS = {False: "seconds_to_target", True: "use_seconds_to_target"}
TRAFFIC = "traffic_mb_to_target"
HEADLINE = "stable"
RECIPE = read("league")
FOLDER = RECIPE.folder or Path()
KEPT = RECIPE.measured or Path()
CHOICE = RECIPE.scale[SCALE].seeds or []
"""Seeds that choose."""
MEASURED_AGAIN = "again.csv"
"""Rows as those of ``measured.csv``, of the seeds that measure again."""


def main() -> None:
    """Measure again, or write the evidence."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--again", action="store_true", help="run what was chosen, and keep it")
    parser.add_argument(
        "--anew", nargs="*", default=[], help="with --again: environments whose rows are made anew"
    )
    parser.add_argument("--outside", action="store_true", help="say whom advice names outside")
    parser.add_argument("--out", type=Path, default=Path("runs/league/again"))
    parser.add_argument("--jobs", type=int, default=1)
    given = parser.parse_args()
    if given.again:
        measure_again(given.out, given.jobs, given.anew)
    elif given.outside:
        tell_outside()
    else:
        write_evidence()


def say(text: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def rows_of(name: str) -> list[MeasuredRow]:
    """Return the rows of a file that is kept at this scale."""
    return read_rows(KEPT / SCALE / name)


def to_measure_again() -> list[tuple[Cell, int]]:
    """Return what was chosen in each environment and uniform FedAvg, with each seed."""
    rows = rows_of(MEASURED)
    out = []
    for name in EXHIBITS.values():
        exhibit = RECIPE.named(name)
        best = chosen(differences(rows, name, HEADLINE, CHOICE))
        for cell in exhibit.cells(SCALE):
            if cell.at["entrant"] in (CONTROL, best.get(cell.at["environment"])):
                out += [(cell, seed) for seed in AGAIN]
    return out


def measure_again(out: Path, jobs: int, anew: Sequence[str] = ()) -> None:
    """Run what was chosen with the seeds that measure again; keep its rows, but for those of the
    environments that are made ``anew``. Runs that are finished in ``out`` stay."""
    todo = to_measure_again()
    asked = {(cell.exhibit.name, cell.name, seed) for cell, seed in todo}
    kept = [
        row
        for row in rows_of(MEASURED_AGAIN)
        if (row.exhibit, row.cell, row.seed) in asked and row.cell.split(" / ")[0] not in anew
    ]
    there = {(row.exhibit, row.cell, row.seed) for row in kept}
    missing = [
        (cell, seed) for cell, seed in todo if (cell.exhibit.name, cell.name, seed) not in there
    ]
    made = [RECIPE.experiment(cell, SCALE, seed) for cell, seed in missing]
    points = {
        one.result_id(): Point(f"{cell.exhibit.name} {cell.name}", one)
        for (cell, _), one in zip(missing, made, strict=True)
    }
    folders = [out / "runs" / name for name in points]
    say(f"{len(points)} runs")
    failures = run_points(list(points.values()), folders, None, progress=True, jobs=jobs)[1]
    for failure in failures:
        say(f"failed: {failure.point.label}: {failure.error}")
    rows = kept
    for (cell, seed), experiment in zip(missing, made, strict=True):
        rows += _measured(cell, seed, out / "runs" / experiment.result_id())
    text = csv_text([MeasuredRow._fields, *rows])
    (KEPT / SCALE / MEASURED_AGAIN).write_text(text, encoding="utf-8")


def _measured(cell: Cell, seed: int, folder: Path) -> list[MeasuredRow]:
    """Return the rows of a run; none where it did not finish."""
    if not (RunFolder(folder).read() or {}).get("finished"):
        return []
    run = load(folder)
    return [
        measured_row(cell, measure, seed, measure_of(measure).of(run, cell.target), folder.name)
        for measure in RECIPE.measures(cell.exhibit)
    ]


def measured_evidence() -> Evidence:
    """Return what was measured in the league, without the proof."""
    rows = rows_of(MEASURED)
    again = rows_of(MEASURED_AGAIN)
    found = {
        personal: gains(
            differences(rows, name, HEADLINE, CHOICE),
            differences(again, name, HEADLINE, AGAIN),
            costs(again, name, SECONDS[personal], AGAIN),
            costs(again, name, TRAFFIC, AGAIN),
        )
        for personal, name in EXHIBITS.items()
    }
    return Evidence(found, _profiles(RECIPE.named("shared")))


def tell_outside() -> None:
    """Say whom advice names in each federation outside: the entrants that the exhibit ``outside``
    must have."""
    evidence = measured_evidence()
    rows = rows_of(MEASURED)
    for name, profile in _profiles(RECIPE.named("outside")).items():
        for personal, words in KINDS.items():
            found = advise(profile, evidence, personal)
            say(f"{name}, {words}: {found[0] if found else 'nobody'}")
    for personal, exhibit in EXHIBITS.items():
        winner = most_gaining(differences(rows, exhibit, HEADLINE, CHOICE))
        say(f"always, {KINDS[personal]}: {winner}")


def proved_evidence() -> Evidence:
    """Return what was measured in the league, with the proof where the federations outside were
    run."""
    evidence = measured_evidence()
    rows = rows_of(MEASURED)
    exhibit = RECIPE.named("outside")
    outside = differences(rows, exhibit.name, HEADLINE, RECIPE.seeds(exhibit, SCALE))
    profiles = _profiles(exhibit)
    proofs = {
        personal: prove(
            evidence,
            outside,
            profiles,
            most_gaining(differences(rows, name, HEADLINE, CHOICE)),
            personal,
        )
        for personal, name in EXHIBITS.items()
        if outside
    }
    return replace(evidence, profiles={**evidence.profiles, **profiles}, proofs=proofs)


def left_out(evidence: Evidence) -> dict[bool, Proof]:
    """Return, for each kind of model, what advice from the other environments gains in each; the
    winner is that of the other environments among the entrants that were run there."""
    rows, again = rows_of(MEASURED), rows_of(MEASURED_AGAIN)
    out = {}
    for personal, name in EXHIBITS.items():
        found = differences(rows, name, HEADLINE, CHOICE)
        second = differences(again, name, HEADLINE, AGAIN)
        winners = {
            left: most_gaining(
                {
                    other: {entrant: some[entrant] for entrant in some if entrant in there}
                    for other, some in found.items()
                    if other != left
                }
            )
            for left, there in found.items()
        }
        measured = {left: {**there, **second.get(left, {})} for left, there in found.items()}
        out[personal] = prove_left_out(evidence, measured, winners, personal)
    return out


def left_out_text(evidence: Evidence) -> str:
    """Return the file of what advice gains in environments left out."""
    return evidence_texts(Evidence({}, {}, left_out(evidence)))[PROOF]


def write_evidence() -> None:
    """Write what advice looks at, from the numbers kept with the recipe; print the proofs."""
    whole = proved_evidence()
    for name, text in evidence_texts(whole).items():
        (FOLDER / name).write_text(text, encoding="utf-8")
    (FOLDER / LEFT_OUT).write_text(left_out_text(whole), encoding="utf-8")
    for personal, shown in whole.proofs.items():
        say(f"{KINDS[personal]}:")
        tell(shown)


def tell(shown: Proof) -> None:
    """Print a proof."""
    for one in shown.advised:
        say(
            f"{one.federation}: {one.entrant or 'nobody'}; gain {one.gain:+.2f}, of always "
            f"{one.winner} {one.winners_gain:+.2f}"
        )
    for words, gain in (("advice", shown.gain), ("always the winner", shown.winners_gain)):
        say(f"{words}: {gain.mean:+.2f} [{gain.low:+.2f}, {gain.high:+.2f}] over {CONTROL}")
    say(
        "helped {}, hurt {}, abstained {}: ".format(*shown.counts)
        + ("holds" if shown.holds else "does not hold")
    )


def _profiles(exhibit: Exhibit) -> dict[str, Profile]:
    """Return the profiles of an exhibit's environments: those that are stored, and those of
    environments that have none yet, which are stored at once."""
    path = FOLDER / PROFILES
    text = path.read_text(encoding="utf-8") if path.is_file() else "environment,finding,value\n"
    empty = evidence_texts(Evidence({}, {}))
    known = dict(read_evidence(empty["named.csv"], text, empty["proof.csv"]).profiles)
    for environment in exhibit.axes["environment"]:
        if environment not in known:
            known[environment] = profile_of(exhibit, environment)
            path.write_text(evidence_texts(Evidence({}, known))[PROFILES], encoding="utf-8")
    return {name: known[name] for name in exhibit.axes["environment"]}


def profile_of(exhibit: Exhibit, environment: str) -> Mapping[str, float]:
    """Return how the clients of an environment differ, as ``motley inspect`` measures it."""
    import motley

    place = {"environment": environment, "entrant": CONTROL}
    cell = Cell(exhibit, tuple(place[axis] for axis in exhibit.axes))
    say(f"inspecting {environment}")
    inspected = motley.inspect(RECIPE.experiment(cell, SCALE, 0))
    return inspected.federations[0].inspection.profile()


if __name__ == "__main__":
    main()
