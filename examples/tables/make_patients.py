"""Make patients.csv, 4,000 patients of eight hospitals with gaps and words, and new_patients.csv,
ten patients without outcome.

python examples/tables/make_patients.py
motley run examples/tables/patients.toml --out runs/patients
python examples/tables/predict.py runs/patients
"""

import csv
from pathlib import Path

import numpy as np

HEADER = ["id", "admitted", "hospital", "age", "pressure", "sodium", "smoker", "ward", "outcome"]


def patients(rng: np.random.Generator, count: int) -> list[list[str]]:
    """Return rows of patients: hospitals differ in age, in what they measure and in how much is
    missing."""
    rows = []
    for i in range(count):
        k = int(rng.choice(8, p=np.arange(9, 1, -1) / 44))
        age = rng.normal(45 + 4 * k, 12)
        pressure = rng.normal(130, 15)
        sodium = rng.normal(140, 3)
        smoker = rng.choice(["never", "former", "current"], p=[0.5, 0.3, 0.2])
        ward = rng.choice(
            ["surgery", "medicine", "eyes", "skin", "other"], p=[0.4, 0.4, 0.1, 0.05, 0.05]
        )
        risk = (
            0.06 * (age - 65)
            + 0.03 * (pressure - 130)
            + {"never": -0.8, "former": 0.2, "current": 1.4}[str(smoker)]
        )
        outcome = "ill" if rng.random() < 1 / (1 + np.exp(1.0 - 1.5 * risk)) else "well"
        gaps = rng.random(4) < (0.02, 0.05 + 0.02 * k, 0.4 if k % 3 == 0 else 0.05, 0.15)
        values = [f"{age:.0f}", f"{pressure:.0f}", f"{sodium:.1f}", str(smoker)]
        values = [
            "?" if gap and j == 2 else "" if gap else value
            for j, (value, gap) in enumerate(zip(values, gaps, strict=True))
        ]
        rows.append(
            [
                f"p{i:04d}",
                f"2025-{1 + i % 12:02d}-{1 + i % 28:02d}",
                "ABCDEFGH"[k],
                *values,
                str(ward),
                outcome,
            ]
        )
    return rows


def main(folder: Path = Path(__file__).parent, count: int = 4000) -> Path:
    """Write both files; return the path of the first."""
    rng = np.random.default_rng(7)
    for name, n, columns in (
        ("patients.csv", count, HEADER),
        ("new_patients.csv", 10, HEADER[:-1]),
    ):
        with (folder / name).open("w", newline="") as file:
            csv.writer(file).writerows(
                [columns, *(row[: len(columns)] for row in patients(rng, n))]
            )
    return folder / "patients.csv"


if __name__ == "__main__":
    main()
