"""Make the parts of the page that sets each paper's statements beside Motley."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from cells import prose, table
from from_recipes import all_tested

from motley_papers import recipe
from motley_papers.recipe_claim import Claim, Protocol
from motley_papers.statements import STATES, Statement, read_statements, with_statements
from motley_papers.telling import claims_named

__all__ = ["counted_statements", "paper_statements"]


def counted_statements() -> str:
    """Count each paper's statements by state, and by what holds them: a test, else a verdict from
    runs on one of its claims, else neither."""
    rows = []
    for name in with_statements():
        paper = read_statements(name)
        counts = [str(paper.counts[state]) for state in STATES]
        tested = sum(bool(entry.tested) for entry in paper.statement)
        judged = sum(_judged(entry, name) for entry in paper.statement if not entry.tested)
        neither = len(paper.statement) - tested - judged
        held = [str(number) for number in (len(paper.statement), tested, judged, neither)]
        rows.append((f"[`{name}`](#{name})", *counts, *held))
    return table(
        ("paper", *STATES, "in all", "held by a test", "put to runs alone", "neither"), rows
    )


def paper_statements() -> str:
    """List the statements of each paper, in its order."""
    parts = []
    for name in with_statements():
        entries = [_row(entry, name) for entry in read_statements(name).statement]
        head = ("number", "the paper says", "Motley", "where", "held by")
        parts += [f"## {prose(_recipe(name).title)} {{#{name}}}", table(head, entries)]
    return "\n\n".join(parts)


def _row(entry: Statement, recipe_name: str) -> tuple[str, ...]:
    state = f"**{entry.state}**"
    return (
        entry.number,
        prose(entry.says),
        f"{state}: {prose(entry.note)}" if entry.note else state,
        _place(entry.where),
        _held(entry, recipe_name),
    )


def _held(entry: Statement, recipe_name: str) -> str:
    """Return the test and the claims of a statement, with the verdicts on these; or why there are
    none."""
    if entry.untested:
        return f"not tested: {prose(entry.untested)}"
    tests = [f"`{test}`" for test in entry.tested]
    verdicts = [_verdict(claim, recipe_name) for claim in _claims(entry, recipe_name)]
    return "<br>".join([*tests, *verdicts])


def _claims(entry: Statement, recipe_name: str) -> list[Claim]:
    paper = _recipe(recipe_name)
    return [claim for words in entry.claims for claim in claims_named(paper, words)]


@cache
def _recipe(name: str) -> recipe.Recipe:
    return recipe.read(name)


def _judged(entry: Statement, recipe_name: str) -> bool:
    """Whether runs gave a verdict on at least one claim of a statement."""
    verdicts = _verdicts()
    return any((recipe_name, claim.text) in verdicts for claim in _claims(entry, recipe_name))


def _verdict(claim: Claim, recipe_name: str) -> str:
    """Return a claim with its verdicts, each with what it was tested on."""
    verdicts = _verdicts().get((recipe_name, claim.text), [])
    none = claim.untested or ("false as stated" if claim.counterexample else "no verdict yet")
    return f"{prose(claim.text)}: *{'; '.join(verdicts) or none}*"


@cache
def _verdicts() -> Mapping[tuple[str, str], list[str]]:
    """Return (recipe, claim) -> the verdicts on the claim."""
    out: dict[tuple[str, str], list[str]] = {}
    for tested in all_tested():
        words = f"{tested.verdict} ({Protocol(tested.kind).words})"
        out.setdefault((tested.found.name, tested.rows[0]["claim"]), []).append(words)
    return out


def _place(where: str) -> str:
    """Return a place as a page shows it: pages as links, exhibits and names of code as code."""
    if where.startswith("docs/"):
        page = where.removeprefix("docs/")
        return f"[{page}]({page})"
    kind, _, exhibit = where.partition(" ")
    if kind == "exhibit":
        return f"exhibit `{exhibit}`"
    return f"`{where}`" if where else "–"
