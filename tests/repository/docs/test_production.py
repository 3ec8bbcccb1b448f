"""docs/deploy/parties.md: the table of what each party can do, every cell of which names a test
that there is; docs/deploy/faults.csv: five cells a fault."""

from __future__ import annotations

import csv
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "deploy" / "parties.md").read_text()
TESTS = {
    name
    for path in (ROOT / "tests").rglob("test_*.py")
    for name in re.findall(r"^def (test_\w+)", path.read_text(), re.M)
}


def test_every_cell_is_held_by_a_test() -> None:
    table = PAGE.partition("## ")[0]
    rows = [line.strip("|").split("|") for line in table.splitlines() if line.startswith("|")][2:]
    assert len(rows) >= 8
    for wants, *cells in rows:
        named: set[str] = set()
        for cell in cells:
            found = set(re.findall(r"`(test_\w+)`", cell))
            assert found <= TESTS, f"{wants}: {found - TESTS}"
            assert found or ("the same test" in cell and named), f"{wants}: {cell}"
            named |= found


def test_every_fault_has_its_five_cells() -> None:
    """A comma without quotes made seven of them."""
    with (ROOT / "docs" / "deploy" / "faults.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file))
    assert len(rows) > 25
    assert [row for row in rows if len(row) != 5 or not all(row)] == []
