"""Make the parts of the page that sets each paper's statements beside Motley."""

from __future__ import annotations

from cells import prose, table

from motley_papers import recipe
from motley_papers.statements import STATES, Statement, read_statements, with_statements

__all__ = ["counted_statements", "paper_statements"]


def counted_statements() -> str:
    """Count each paper's statements by state, and those that a test holds."""
    rows = []
    for name in with_statements():
        paper = read_statements(name)
        counts = [str(paper.counts[state]) for state in STATES]
        tested = sum(bool(entry.tested) for entry in paper.statement)
        rows.append((f"[`{name}`](#{name})", *counts, str(len(paper.statement)), str(tested)))
    return table(("paper", *STATES, "in all", "held by a test"), rows)


def paper_statements() -> str:
    """List the statements of each paper, in its order."""
    parts = []
    for name in with_statements():
        entries = [_row(entry) for entry in read_statements(name).statement]
        head = ("number", "the paper says", "Motley", "where", "tested")
        parts += [f"## {prose(recipe.read(name).title)} {{#{name}}}", table(head, entries)]
    return "\n\n".join(parts)


def _row(entry: Statement) -> tuple[str, ...]:
    state = f"**{entry.state}**"
    tested = f"`{entry.tested}`" if entry.tested else f"not tested: {prose(entry.untested)}"
    return (
        entry.number,
        prose(entry.says),
        f"{state}: {prose(entry.note)}" if entry.note else state,
        _place(entry.where),
        tested,
    )


def _place(where: str) -> str:
    """Return a place as a page shows it: pages as links, exhibits and names of code as code."""
    if where.startswith("docs/"):
        page = where.removeprefix("docs/")
        return f"[{page}]({page})"
    kind, _, exhibit = where.partition(" ")
    if kind == "exhibit":
        return f"exhibit `{exhibit}`"
    return f"`{where}`" if where else "–"
