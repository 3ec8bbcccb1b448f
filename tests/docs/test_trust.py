"""The numbers on the page about trust are those that were measured, and each has a command that is there."""

import json
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "trust.md").read_text(encoding="utf-8")


def measured(name):
    return json.loads((ROOT / "benchmarks" / "measured" / f"{name}.json").read_text(encoding="utf-8"))


def test_kills():
    found = measured("chaos")
    for name in ("kills", "combinations", "runs under fire", "compared with a fresh process"):
        assert f"{found[name]:,}" in PAGE, name
    assert f"{found['names drawn']} of {found['names there are']}" in PAGE
    assert found["commit"][:7] in PAGE
    assert f"{found['errors']} experiment that the checks ought to have refused" in PAGE
    for name in ("mismatches", "leftovers", "orphans"):
        assert found[name] == 0, name
    for moment, number in found["kills by moment"].items():
        assert f"{moment} {number:,}" in PAGE


def test_every_command_is_there():
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert {name for name in re.findall(r"`make ([a-z-]+)`", PAGE) if name not in targets} == set()
