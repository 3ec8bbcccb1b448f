"""Attack: let a clear number of one client reach the selector, and see whether
``motley audit-privacy`` notices."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import tempfile
from pathlib import Path

from motley.cli import call
from motley_privacy.private_rounds import PrivateRounds

FILE = """
task = { name = "quadratic" }
population = 8
cohort = 4
stop = { rounds = 2 }
weights = "uniform"
selector = "uniform"
local = { steps = 2 }
[privacy]
clip = 0.5
noise_multiplier = 20.0
delta = 1e-5
"""


def main() -> None:
    """Print what the attack got, as one JSON object."""
    heard = PrivateRounds.heard

    def leaking(self, state, reports):  # type: ignore[no-untyped-def]
        """Put each client's clear number of samples where the selector hears seconds."""
        return dataclasses.replace(heard(self, state, reports), compute_s=reports.num_examples)

    PrivateRounds.heard = leaking  # type: ignore[method-assign]
    said = io.StringIO()
    with (
        tempfile.TemporaryDirectory() as folder,
        contextlib.redirect_stdout(said),
        contextlib.redirect_stderr(io.StringIO()),
    ):
        file = Path(folder) / "x.toml"
        file.write_text(FILE)
        code = call(["audit-privacy", str(file), "--trials", "100", "--out", f"{folder}/out"])
    first = [line.strip() for line in said.getvalue().splitlines() if "compute_s" in line]
    figure = (
        first[0] if first else "the audit says nothing of a clear number that the selector hears"
    )
    figure = f"{figure} (exit code {code})"
    print(json.dumps({"fault": "blind_audit", "succeeded": not first, "figure": figure}))


if __name__ == "__main__":
    main()
