"""The counts of verdicts on docs/verdicts.md and in the README are those of its table."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def recipes() -> Iterator[ModuleType]:
    """docs/from_recipes.py."""
    sys.path.insert(0, str(ROOT / "docs"))
    import from_recipes

    yield from_recipes
    sys.path.remove(str(ROOT / "docs"))


def _rows(text: str) -> list[list[str]]:
    return [line.strip("| ").split(" | ") for line in text.splitlines()[2:]]


def test_every_claim_that_counts_has_one_row(recipes: ModuleType) -> None:
    counted = {(whose, on): int(many) for whose, on, many, *_ in _rows(recipes.counted())}
    rows = _rows(recipes.verdicts())
    kinds = {on for _, on in counted}
    told = Counter(
        (
            whose.replace("paper's", "papers'"),
            next(kind for kind in kinds if on.startswith(kind)),
        )
        for _, _, whose, _, _, on, *_ in rows
    )
    assert told == counted
    named = Counter((recipe, claim, on) for recipe, _, _, claim, _, on, *_ in rows)
    assert max(named.values()) == 1


def test_the_scale_that_made_more_comparisons_counts(recipes: ModuleType) -> None:
    made: dict[tuple[str, str, str], set[tuple[int, bool]]] = {}
    for name in recipes.recipe.names():
        found = recipes.recipe.read(name)
        for scale in ("small", "paper"):
            for one in recipes.tested_claims(found, scale):
                made.setdefault(_key(one), set()).add(_rank(one))
    assert max(map(len, made.values())) == 2
    assert {_key(one): _rank(one) for one in recipes.all_tested()} == {
        key: max(ranks) for key, ranks in made.items()
    }


def _key(one: Any) -> tuple[str, str, str]:
    return one.found.name, one.rows[0]["claim"], one.kind


def _rank(one: Any) -> tuple[int, bool]:
    """How many comparisons were made, and whether at ``paper``."""
    return sum(row["sign"] != "not tested" for row in one.rows), one.scale == "paper"


def test_theory_does_not_count_as_the_protocol_of_a_paper(recipes: ModuleType) -> None:
    found = recipes.headline()
    theory = found[True, "theory"]
    assert {one.found.name for one in theory} == {
        "fedcvr_bolt",
        "hetero_select",
        "hetero_select_v1",
    }
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert f"theory on data of ours: {recipes.words_of(one.verdict for one in theory)};" in readme
    whole = recipes.words_of(one.verdict for one in found[True, "whole"])
    never = len(recipes.never_decidable(found[True, "whole"]))
    pairs = {row["pairs"] for one in found[True, "whole"] for row in one.rows}
    seeds = " or ".join(sorted(pairs - {"0"}, key=int))
    assert f"whole protocol: {whole} with {seeds} seeds ({never} could not be decided);" in readme
    against = [
        one
        for (theirs, kind), claims in found.items()
        for one in claims
        if theirs and kind != "theory" and one.verdict == "contradicted"
    ]
    assert ("no experiment of a paper is contradicted" in readme) == (not against)


def test_what_could_not_have_been_decided_is_what_is_not_resolved(recipes: ModuleType) -> None:
    """By the stored rows: the printed difference of a comparison is smaller than what its pairs
    resolve; of the gap that has none printed, the largest that there can be is 0.1. Where nothing
    is printed nobody can tell."""
    whole = recipes.headline()[True, "whole"]
    for one in whole:
        short = []
        for row in one.rows:
            printed, resolves = float(row["printed"]), float(row["resolves"])
            room = 0.1 if "gap between peak and final" in row["claim"] else abs(printed)
            short.append(resolves > room)
        assert (one.decidable == "no") == any(short)


def test_a_statement_without_a_verdict_is_not_put_to_runs(recipes: ModuleType) -> None:
    """On the page, the statements of a paper whose last cell names no test and has a verdict; some
    have claims alone that no run has judged."""
    page = (ROOT / "docs/paper-beside-motley.md").read_text(encoding="utf-8")
    counts, *papers = re.split(r"^## .*\{#", page, flags=re.MULTILINE)
    verdict = re.compile(rf": \*(?:{'|'.join(recipes.ORDER)}) \(")
    for paper in papers:
        name, _, table = paper.partition("}")
        rows = [line.rpartition(" | ")[2] for line in table.splitlines()[4:] if line[:1] == "|"]
        untested = [held for held in rows if "`tests/" not in held]
        judged = sum(bool(verdict.search(held)) for held in untested)
        held = (
            f"| {len(rows)} | {len(rows) - len(untested)} | {judged} | {len(untested) - judged} |"
        )
        assert re.search(rf"^\| \[`{name}`\].* {re.escape(held)}$", counts, re.MULTILINE), held


def test_every_printed_figure_is_counted_once(recipes: ModuleType) -> None:
    *rows, total = [list(map(str.strip, row)) for row in _rows(recipes.printed())]
    many = {name: len(recipes.recipe.read(name).expected) for name in recipes.recipe.names()}
    for name, figures in many.items():
        own = [row for row in rows if row[0] == f"`{name}`"]
        assert sum(int(row[2]) for row in own) == figures
    for row in (*rows, total):
        assert int(row[2]) == sum(map(int, row[3:7]))
    assert int(total[2]) == sum(many.values())


def test_a_printed_figure_is_held_against_the_interval_of_the_seeds(recipes: ModuleType) -> None:
    # three seeds: mean 1, deviation 0.1, t(2, 97.5 %) = 4.303, so 1 +- 0.2484
    figure = recipes.PrintedFigure
    assert figure(1.24, "whole", "", [0.9, 1.0, 1.1]).inside
    assert not figure(1.26, "whole", "", [0.9, 1.0, 1.1]).inside
    assert figure(1.26, "whole", "", [0.9, 1.0, 1.1]).compared
    assert not figure(1.24, "reduced", "fewer", [0.9, 1.0, 1.1]).compared
    assert not figure(1.24, "whole", "", [1.0]).compared
    assert figure(2.0, "whole", "", [0.9, 1.0, 1.1]).half_width == pytest.approx(0.1242, abs=1e-4)


def test_a_measured_bound_is_compared_with_nothing(
    recipes: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = recipes.recipe.read("hetero_select")
    key = ("table 1", "cifar10 / fedavg", "paper_seconds_to_target")
    kept = recipes.kept_numbers(found, "paper")

    def missed(row: Any) -> Any:
        named = (row.exhibit, row.cell, row.measure) == key and row.seed == 42
        return row._replace(exact="false") if named else row

    changed = replace(kept, measured=[missed(row) for row in kept.measured])
    at = [one for one in found.expected if one[0] == "table 1"].index(key)
    assert recipes.printed_figures(found)["table 1"][at].compared
    monkeypatch.setattr(recipes, "_kept", lambda name, scale: changed)
    figure = recipes.printed_figures(found)["table 1"][at]
    assert (figure.kind, figure.compared) == ("whole", False)
