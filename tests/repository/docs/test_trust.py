"""The numbers on the page about trust are those that were measured, and each has a command that is
there."""

import json
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "trust.md").read_text(encoding="utf-8")


def measured(name):
    return json.loads(
        (ROOT / "benchmarks" / "measured" / f"{name}.json").read_text(encoding="utf-8")
    )


def test_kills():
    found = measured("chaos")
    for name in ("kills", "combinations", "runs under fire", "compared with a fresh process"):
        assert f"{found[name]:,}" in PAGE, name
    assert found["names drawn"] >= found["names there are"]
    assert f"each of the {found['names there are']} names" in PAGE
    assert found["commit"][:7] in PAGE
    for name in ("mismatches", "leftovers", "orphans", "errors"):
        assert found[name] == 0, name
    for moment, number in found["kills by moment"].items():
        assert f"{moment} {number:,}" in PAGE


def test_changed_files():
    found = measured("hostile")
    came = {
        said: sum(kind.get(said, 0) for kind in found["changes"].values())
        for said in ("refused", "no difference")
    }
    assert found["bad"] == 0
    assert f"{sum(sum(kind.values()) for kind in found['changes'].values())} changes" in PAGE
    assert f"refused {came['refused']}, no difference {came['no difference']}" in PAGE
    assert f"commit {found['commit'][:7]}, `benchmarks/measured/hostile.json`" in PAGE
    words = {
        "flipped bit": "flipped bits",
        "cut": "files cut short",
        "link": "links",
        "folder": "folders",
        "named pipe": "named pipes",
        "removed": "removed",
        "swapped": "files of another",
    }
    for kind, said in words.items():
        assert f"{sum(found['changes'][kind].values())} {said}" in PAGE, kind


def test_compositions():
    found = measured("compose")
    assert found["faults"] == 0
    assert f"{found['compositions']:,} drawn from the registry" in PAGE
    assert (
        f"of which {found['ran']:,} ran whole, again, and killed and resumed; {found['refused']:,} "
        "were refused" in PAGE
    )
    assert f"commit {found['commit']}, `benchmarks/measured/compose.json`" in PAGE


def test_every_command_is_there():
    targets = re.findall(
        r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert {name for name in re.findall(r"`make ([a-z-]+)`", PAGE) if name not in targets} == set()


def test_seconds_of_secure_sums():
    page = (ROOT / "docs" / "methods" / "secure-aggregation.md").read_text(encoding="utf-8")
    rounds = measured("secure_sum")["rounds"]
    plain, tenth, third = (f"{one['wall_s']} s" for one in rounds)
    assert (
        f"took {plain} on two cores without dropouts, {tenth} at 10 % and {third} at 30 %" in page
    )
    assert all(one["equals_plain_sum"] for one in rounds)
