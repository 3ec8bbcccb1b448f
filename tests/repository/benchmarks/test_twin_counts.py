"""The sentences of docs/twin.md about real processes say what was measured."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import median

ROOT = Path(__file__).parents[3]
FOUND = json.loads((ROOT / "benchmarks" / "measured" / "twin_real.json").read_text())
PAGE = (ROOT / "docs" / "twin.md").read_text()


def test_the_claims_of_the_plan_are_judged_by_what_was_measured() -> None:
    federations = FOUND["federations"]
    every = [row for one in federations.values() for row in one["rules"].values()]
    unseen = FOUND["unseen"]["rules"]
    error = median(abs(row["predicted_s"][0] / row["true_s"] - 1) for row in every)
    within = sum(row["within"] for row in every)
    groups = [FOUND[name]["rules"] for name in ("seen", "once", "unseen")]
    best = sum(one["best_within_5_percent"] for one in groups)
    assert f"it is {error:.0%} of {len(every)} true runs".replace("%", " %") in PAGE
    runs = unseen["rules"]["all"]
    assert f"{runs['error_s']:.0%} of the {runs['true_runs']} unseen".replace("%", " %") in PAGE
    assert f"{within} of {len(every)} do ({within / len(every):.0%})".replace("%", " %") in PAGE
    assert f"{runs['within_s']} of the {runs['true_runs']} unseen" in PAGE
    assert f"it does in {best} of {len(federations)}" in PAGE
    fedcs = {
        kind: [one[kind]["fedcs"]["within"] for one in federations.values()]
        for kind in ("rules", "known")
    }
    said = (
        f"With it {sum(fedcs['rules'])} of {len(federations)} true runs of `fedcs` lie within the"
    )
    assert said in PAGE
    assert f"without it {sum(fedcs['known'])}; of the unseen" in PAGE


def test_where_fedcs_came_to_a_stop() -> None:
    rows = [FOUND["federations"][number]["rules"]["fedcs"] for number in ("2", "4")]
    true, predicted = (
        " and ".join(f"{value:.0f}" for value in values)
        for values in ([row["true_s"] for row in rows], [row["predicted_s"][0] for row in rows])
    )
    assert f"{true} s, where {predicted} s were predicted" in PAGE
    idle = [row["true_round_s"] for row in rows]
    assert [sum(59 < seconds < 61 for seconds in rounds) for rounds in idle] == [4, 3]
