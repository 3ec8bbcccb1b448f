"""Give the stored rows of recipes the names that their runs have in this checkout.

    .venv/bin/python scripts/rename_runs.py OLD

Another run id, as after a new option, means another run, and rows of runs that a recipe plans no
longer are left out. Where no number has changed, this renames them: a row in
``benchmarks/measured/recipes`` whose run is the one that OLD, a checkout of before, plans for its
cell and seed, gets the name that this one plans. All other rows stay as they are, so that the
command may be repeated.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from motley_papers.earlier import CURVES, MeasuredRow, read_rows, to_gzip

ROOT = Path(__file__).resolve().parents[1]
MEASURED = ROOT / "benchmarks" / "measured" / "recipes"
PAPERS = ROOT / "packages" / "motley-papers" / "src" / "motley_papers"
PLANNED = """
import json
import sys

from motley_papers.recipe import read

name, scale, rows = json.load(sys.stdin)
recipe = read(name)
cells = {
    (cell.exhibit.name, cell.name): cell
    for exhibit in recipe.exhibit
    for cell in exhibit.cells(scale)
}
json.dump(
    [
        recipe.experiment(cells[exhibit, cell], scale, seed).result_id()
        if (exhibit, cell) in cells
        else ""
        for exhibit, cell, seed in rows
    ],
    sys.stdout,
)
"""


def main() -> None:
    """Rename the rows of every recipe and scale, and say how many."""
    if len(sys.argv) != 2:
        sys.exit("expected one argument, a checkout of before; see the top of this file")
    for folder in sorted(MEASURED.glob("*/*")):
        files = sorted(folder.glob("*.csv"))
        rows = [row for file in files if holds_runs(file) for row in read_rows(file)]
        names = new_names(rows, *(planned(tree, folder, rows) for tree in (sys.argv[1], ROOT)))
        for file in files:
            file.write_text(renamed(file.read_text(encoding="utf-8"), names), encoding="utf-8")
        curves = folder / CURVES
        if names and curves.is_file():
            text = gzip.decompress(curves.read_bytes()).decode()
            curves.write_bytes(to_gzip(renamed(text, names)))
        notes = PAPERS / folder.parent.name / "notes.md"
        notes.write_text(renamed(notes.read_text(encoding="utf-8"), names), encoding="utf-8")
        sys.stdout.write(f"{folder.relative_to(MEASURED)}: {len(names)} runs\n")


def holds_runs(table: Path) -> bool:
    """Return whether a table has a row for each run, as verdicts and cells have not."""
    with table.open(encoding="utf-8") as lines:
        return lines.readline().strip() == ",".join(MeasuredRow._fields)


def planned(tree: Path | str, folder: Path, rows: Sequence[MeasuredRow]) -> dict[MeasuredRow, str]:
    """Return the name that a checkout plans for the run of each row; "" where it plans none."""
    cells = sorted({(row.exhibit, row.cell, row.seed) for row in rows})
    sources = os.pathsep.join(map(str, sorted(Path(tree).resolve().glob("packages/*/src"))))
    done = subprocess.run(
        [sys.executable, "-c", PLANNED],
        input=json.dumps([folder.parent.name, folder.name, cells]),
        env={**os.environ, "PYTHONPATH": sources},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(f"{tree}: {done.stderr}")
    names = dict(zip(cells, json.loads(done.stdout), strict=True))
    return {row: names[row.exhibit, row.cell, row.seed] for row in rows}


def new_names(
    rows: Sequence[MeasuredRow],
    before: Mapping[MeasuredRow, str],
    now: Mapping[MeasuredRow, str],
) -> dict[str, str]:
    """Return name -> new name of the runs that both checkouts plan."""
    planned_still = [row for row in rows if row.run == before[row] and now[row]]
    return {row.run: now[row] for row in planned_still if now[row] != row.run}


def renamed(text: str, names: Mapping[str, str]) -> str:
    """Return a text with new names of runs in place of the old ones."""
    return re.sub(r"\b[0-9a-f]{12}\b", lambda found: names.get(found[0], found[0]), text)


if __name__ == "__main__":
    main()
