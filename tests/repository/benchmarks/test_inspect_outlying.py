"""docs/inspect.md says no other figures of planted faults than those that were measured."""

import json
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "inspect-findings.md").read_text(encoding="utf-8")
MEASURED = json.loads(
    (ROOT / "benchmarks" / "measured" / "inspect_outlying.json").read_text(encoding="utf-8")
)


def counted(kind, strength):
    rows = [r for r in MEASURED["odd"] if (r["kind"], r["strength"]) == (kind, strength)]
    names = ("seeds", "named", "right kind", "plain", "plain and named")
    return {name: sum(row.get(name, 0) for row in rows) for name in names}


def test_what_is_hard_to_find():
    half = counted("units", 0.5)
    assert (
        f"found in {half['named'] / half['seeds']:.0%} and told as units in "
        f"{half['right kind'] / half['seeds']:.0%}"
    ) in PAGE
    absent = counted("absent class", 1.0)
    assert f"({absent['plain and named']} of {absent['plain']} that a plain test finds)" in PAGE


def test_faults_that_a_plain_detector_finds_are_named_nine_times_in_ten():
    sums = {
        (row["kind"], row["strength"]): counted(row["kind"], row["strength"])
        for row in MEASURED["odd"]
        if row["kind"] != "absent class"
    }
    found = {
        kind: one["plain and named"] / one["plain"] for kind, one in sums.items() if one["plain"]
    }
    assert min(found.values()) >= 0.9, found


def test_clean_federations_are_named_less_than_once_in_twenty():
    named = sum(row["named"]["federations"] for row in MEASURED["clean"])
    assert named / sum(row["seeds"] for row in MEASURED["clean"]) < 0.05
