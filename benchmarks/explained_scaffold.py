"""Which of its four differences makes FedBench's SCAFFOLD what it is: the recipe's two cells,
explained, for docs/published-tables.md.

    python benchmarks/explained_scaffold.py FOLDER_OF_RUNS [OUT.json]

Planned before any run ended: A is the recipe ``fedbench_scaffold``, ``as released``, B the same
rule with all four repaired, at the scale ``small`` with half of its images and 5 of its 7 rounds
(3,000 images of MNIST, 10 epochs a round). Four causes (the variate read, its sign, what is sent,
clipping), all 16 combinations, seeds 0, 1 and 2: 48 runs of about 12 s of one core. The figure is
the accuracy on the test set after the last round. Shapley values, 95 % intervals over the seeds.

The first plan had all 6,000 images and 7 rounds. Its first run was stopped in round 3, at 43 s of a
core for each: 48 would have been more than the half hour that they may take.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from motley_advice.explanation.explaining import explain
from motley_advice.explanation.explanation_tables import notes, share_table

ROOT = Path(__file__).resolve().parents[1]
A = "recipe:fedbench_scaffold/as released"
B = "recipe:fedbench_scaffold/repaired one by one"
SEEDS = (0, 1, 2)
SMALLER = ("split.server=0.95", "stop.rounds=5", "evaluate.every=1000")


def main(runs: Path, out: Path) -> None:
    """Explain the difference of the two cells, and write the outcome to ``out``."""
    explanation = explain(A, B, seeds=SEEDS, overrides=SMALLER, out=runs, progress=True, say=print)
    table = share_table(explanation)
    outcome = {
        "command": " ".join(
            [
                f'motley explain "{A}" "{B}" --seeds {",".join(map(str, SEEDS))}',
                *(f"--set {setting}" for setting in SMALLER),
            ]
        ),
        "heads": list(table.heads),
        "rows": [[row.label, *(cell.text for cell in row.cells)] for row in table.rows],
        "note": table.note,
        "notes": notes(explanation),
        "runs": explanation.plan.number_of_runs,
    }
    out.write_text(json.dumps(outcome, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    default = ROOT / "benchmarks/measured/explained_scaffold.json"
    main(Path(sys.argv[1]), Path(sys.argv[2]) if sys.argv[2:] else default)
