"""What differs between methods beside the method, as a section of the report and as tables for
print."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from motley.results.besides import Besides
from motley.results.blocks import BulletList, Section, non_empty
from motley.results.load import Run
from motley_report.print_tables import PrintTable

Groups = Mapping[str, Sequence[Run]]


def besides_section(groups: Groups, controls: Sequence[Run] = ()) -> Section:
    """Return the section on what differs beside the method; empty for one method, and where nothing
    does."""
    besides = Besides(groups, controls)
    left = besides.left_table()
    lines = besides.sentences() if besides.table() is not None else []
    return Section(
        "Besides the method",
        non_empty(
            besides.table(),
            BulletList([f"{line}." for line in lines]) if lines else None,
            Section("What is left of the difference", [left] if left is not None else []),
        ),
    )


def print_besides(besides: Besides) -> list[PrintTable]:
    """Return both tables for print: ``besides`` and ``left``."""
    tables = []
    if besides.table() is not None:
        tables.append(_printed(besides))
    lines = besides.left_lines()
    if lines:
        unit = "points" if besides.percent > 1 else ""
        tables.append(
            PrintTable(
                name="left",
                caption=f"Differences as a whole and at equal settings. {besides.how()}",
                heads=[("Compared", ""), ("Difference", unit), ("Pairs", "seeds")],
                rows=[(label, [how, interval, str(interval.n)]) for label, how, interval in lines],
                best={},
                together=besides.together,
            )
        )
    return tables


def _printed(besides: Besides) -> PrintTable:
    """Return the table of what differs."""
    rows = [(label, [word for word, _ in cells]) for label, cells in besides.rows()]
    marks = [[differs for _, differs in cells] for _, cells in besides.rows()]
    titles = [title[:1].upper() + title[1:] for title in besides.titles]
    heads = [(title, "") for title in titles]
    if besides.turned:
        heads = [(label, "") for label, _ in rows]
        turned = zip(*(words for _, words in rows), strict=True)
        rows = [(title, [*words]) for title, words in zip(titles, turned, strict=True)]
        marks = [[*line] for line in zip(*marks, strict=True)]
    return PrintTable(
        name="besides",
        caption=f"What differs beside the method. {besides.note()} Bold: not as the reference."
        + "".join(f" {line}." for line in besides.sentences()),
        heads=heads,
        rows=rows,
        best={
            column: {at for at, line in enumerate(marks) if line[column]}
            for column in range(len(heads))
        },
    )
