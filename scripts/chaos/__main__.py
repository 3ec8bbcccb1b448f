"""Kill random experiments at random moments, resume them until they are done, and compare them with
undisturbed runs.

    # a campaign; the same command goes on with it
    scripts/test-chaos [--kills 1000] [--cases 150] [--seed 0] [--log FILE]
    # one case of a campaign again
    scripts/test-chaos --seed 0 --only 17

Every name in the catalogues is drawn once; a campaign ends when it has so many kills, so many
cases, and all names.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import os
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from chaos.attempts import adopt_orphans, commit
from chaos.campaign import Campaign, Row
from chaos.combinations import Entry

__all__ = ["main", "summary"]


def summary(rows: list[Row], entries: int) -> dict[str, Any]:
    """Return the numbers of a campaign."""
    used = {tuple(entry) for row in rows for entry in row.used}
    return {
        "kills": sum(len(row.kills) for row in rows),
        "combinations": len({json.dumps(row.keys, sort_keys=True) for row in rows}),
        "names drawn": len(used),
        "names there are": entries,
        "kills by moment": dict(
            Counter(kill.split(": ")[0] for row in rows for kill in row.kills).most_common()
        ),
        "compared with a fresh process": sum(row.fresh for row in rows),
        "runs under fire": sum(row.lives for row in rows),
        "ways": dict(Counter(row.way for row in rows)),
        "mismatches": sum(len(row.mismatches) for row in rows),
        "leftovers": sum(len(row.leftovers) for row in rows),
        "orphans": sum(len(row.orphans) for row in rows),
        "errors": sum(len(row.errors) for row in rows),
        "cases that failed": [row.number for row in rows if not row.good],
        "processor_s": round(sum(row.cpu_s for row in rows), 1),
    }


def _read(log: Path | None, seed: int) -> list[Row]:
    if log is None or not log.is_file():
        return []
    rows = [Row(**json.loads(line)) for line in log.read_text(encoding="utf-8").splitlines()]
    return [row for row in rows if row.seed == seed and row.commit == commit()]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="scripts/test-chaos", description=(__doc__ or "").split("\n\n")[0]
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--cases", type=int, default=150)
    parser.add_argument(
        "--names",
        choices=("all", "any"),
        default="all",
        help="whether every name must have been drawn",
    )
    parser.add_argument(
        "--only", type=int, action="append", help="number of a case to run again; may be repeated"
    )
    parser.add_argument(
        "--part",
        default="0/1",
        help="I/N: every N-th case; several such processes may share one log",
    )
    parser.add_argument(
        "--log",
        type=Path,
        help="one line of JSON for every case; a campaign goes on where its log ends",
    )
    parser.add_argument("--summary", type=Path, help="file for the campaign's numbers")
    parser.add_argument("--keep", type=Path, help="folder for the files of cases that fail")
    return parser.parse_args()


def _go(given: argparse.Namespace, campaign: Campaign) -> list[Row]:
    """Run case after case until there is enough of everything."""
    part, parts = map(int, given.part.split("/"))
    rows: list[Row] = [] if given.only else _read(given.log, given.seed)
    for number in given.only or itertools.count(part, parts):
        if not given.only and _enough(given, rows, set(campaign.entries)):
            break
        if not given.only and number in {row.number for row in rows}:
            continue
        row = campaign.case(number)
        print(row.line(), flush=True)
        rows.append(row)
        if given.log is not None:
            with given.log.open("a", encoding="utf-8") as file:
                file.write(json.dumps(dataclasses.asdict(row)) + "\n")
            # other parts write into it, too
            rows = rows if given.only else _read(given.log, given.seed)
    return rows


def _enough(given: argparse.Namespace, rows: list[Row], entries: set[Entry]) -> bool:
    """Return whether there are enough kills, cases and names."""
    numbers = summary(rows, len(entries))
    names = given.names == "any" or entries <= {tuple(entry) for row in rows for entry in row.used}
    return names and numbers["kills"] >= given.kills and numbers["combinations"] >= given.cases


def main() -> None:
    """Run a campaign and print what came of it; exit with 1 if anything was not as it should be."""
    given = _arguments()
    for name in ("log", "summary", "keep"):
        if getattr(given, name) is not None:
            setattr(given, name, getattr(given, name).resolve())
            getattr(given, name).parent.mkdir(parents=True, exist_ok=True)
    os.environ["OMP_NUM_THREADS"] = "1"
    adopt_orphans()
    with tempfile.TemporaryDirectory(prefix="chaos-") as place:
        os.chdir(place)
        campaign = Campaign(given.seed, Path(place), given.keep)
        rows = _go(given, campaign)
    numbers = {"commit": commit(), "seed": given.seed, **summary(rows, len(campaign.entries))}
    text = json.dumps(numbers, indent=1)
    print(text)
    if given.summary is not None:
        given.summary.write_text(text + "\n", encoding="utf-8")
    sys.exit(any(not row.good for row in rows))


if __name__ == "__main__":
    main()
