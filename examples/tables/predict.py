"""Predict the outcome of new patients with a finished run.

python examples/tables/predict.py runs/patients
"""

import sys
from pathlib import Path

import motley


def main(
    directory: str, rows: Path = Path(__file__).parent / "new_patients.csv"
) -> list[tuple[str, float]]:
    """Return each new patient's predicted outcome and the probability of being ill."""
    run = motley.load(directory)
    shares = run.predict(rows, probabilities=True)
    ill = run.meta["task"]["classes"].index("ill")
    return list(zip(run.predict(rows).tolist(), shares[:, ill].tolist(), strict=True))


if __name__ == "__main__":
    for outcome, share in main(sys.argv[1]):
        print(f"{outcome:5} {share:.2f}")
