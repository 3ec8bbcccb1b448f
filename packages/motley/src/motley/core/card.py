"""How objects show themselves: a line at a prompt, and a small table in a notebook.

>>> class Point(Carded):
...     def facts(self):
...         return {"x": 1, "y": "<2>"}
>>> Point()
<Point: x 1, y <2>>
>>> "<td>&lt;2&gt;</td>" in Point()._repr_html_()
True
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape
from typing import Any

from typing_extensions import override

from motley.core.untrusted import printable


class Carded:
    """An object that shows a few facts about itself in place of all that it holds."""

    def facts(self) -> Mapping[str, Any]:
        """Return the facts, by name."""
        raise NotImplementedError

    @override
    def __repr__(self) -> str:
        facts = ", ".join(f"{name} {printable(str(value))}" for name, value in self.facts().items())
        return f"<{type(self).__name__}: {facts}>"

    @override
    def __str__(self) -> str:
        return repr(self)

    def _repr_html_(self) -> str:
        """Return the facts as a table, which a notebook shows."""
        return html_rows(
            type(self).__name__, ((name, value) for name, value in self.facts().items())
        )


def html_rows(title: str, rows: Iterable[Iterable[Any]], head: Iterable[Any] = ()) -> str:
    """Return a table as HTML; every cell is text."""
    names = "".join(f"<th>{escape(str(name))}</th>" for name in head)
    cells = ("".join(f"<td>{escape(printable(str(value)))}</td>" for value in row) for row in rows)
    body = "".join(f"<tr>{row}</tr>" for row in cells)
    top = f"<thead><tr>{names}</tr></thead>" if names else ""
    # over a table wider than the window, a caption in its middle is out of sight
    left = ' style="text-align:left"'
    return f"<table><caption{left}>{escape(title)}</caption>{top}<tbody>{body}</tbody></table>"
