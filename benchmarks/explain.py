"""The worked example of the page on disagreements, docs/explain.md: its two files, explained.

    python benchmarks/explain.py [OUT.json]

Runs what the page's command runs, and writes the table of causes and the notes below it.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
from pathlib import Path

from motley_advice.explanation.explaining import explain
from motley_advice.explanation.explanation_tables import notes, share_table

ROOT = Path(__file__).resolve().parents[1]
FILES = re.compile(r'```toml title="(\w+\.toml)"\n(.*?)```', re.DOTALL)
SEEDS = range(5)


def main(out: Path) -> None:
    """Explain the difference of the page's two files, and write the outcome to ``out``."""
    page = (ROOT / "docs" / "explain.md").read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder:
        paths = []
        for name, text in FILES.findall(page):
            paths.append(Path(folder) / name)
            paths[-1].write_text(text, encoding="utf-8")
        explanation = explain(*paths, seeds=SEEDS, out=Path(folder) / "runs")
        table = share_table(explanation)
        outcome = {
            "heads": list(table.heads),
            "rows": [[row.label, *(cell.text for cell in row.cells)] for row in table.rows],
            "note": table.note,
            "notes": notes(explanation),
            "runs": explanation.plan.number_of_runs,
        }
    out.write_text(json.dumps(outcome, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if sys.argv[1:] else ROOT / "benchmarks/measured/explain.json")
