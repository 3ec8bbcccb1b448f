"""Six of the combinations that ``make test-privacy`` compares, all of which are in its nightly
run."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("dp_accounting")

ROOT = Path(__file__).resolve().parents[2]


def test_four_admitted_combinations_show_nothing_beside_their_releases(tmp_path):
    command = [ROOT / "scripts/test-privacy", "--few", "4", "--summary", tmp_path / "numbers.json"]
    done = subprocess.run(
        list(map(str, command)),
        env={"PYTHON": sys.executable, "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    numbers = json.loads((tmp_path / "numbers.json").read_text())
    assert numbers["compared"] == 4
    assert numbers["refused"] > 4  # they are counted, too
    assert not numbers["failed"]
