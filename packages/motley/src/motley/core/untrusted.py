"""Text and values that come from files and users, before they are printed or worked with.

>>> printable("a\\x1b[2Jb")
'a\\\\x1b[2Jb'
>>> shortened("abcdefghij" * 10, 20)
'abcdefghija ... ghij'
>>> one_line("loss\\n[INFO] all is well")
"'loss\\\\n[INFO] all is well'"
"""

from __future__ import annotations

import re
import reprlib
from collections.abc import Iterable, Mapping
from typing import Any

MOST_LEVELS = 100
"""Levels of tables and lists inside each other that a file may have."""
MOST_DIGITS = 300
"""Digits that a whole number in a file may have; all such numbers fit a float."""

_CONTROL = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
"""Control characters but tab and line end, separators of lines, marks that turn the direction of
writing, and halves of characters."""


def printable(text: str) -> str:
    """Return a text with its control characters as escapes, ``\\x1b``, so that a terminal shows
    them and does nothing else; tabs and line ends stay. A text without any is returned as it is."""
    return _CONTROL.sub(lambda match: match[0].encode("unicode_escape").decode("ascii"), text)


def printable_tree(value: Any) -> Any:
    """Return a tree of mappings and lists with all its keys and texts printable."""
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, Mapping):
        return {printable_tree(key): printable_tree(inner) for key, inner in value.items()}
    return [printable_tree(inner) for inner in value] if isinstance(value, list) else value


def shortened(text: str, most: int) -> str:
    """Return a text of at most ``most`` characters: where there are more, the middle is left
    out."""
    head = (most - 5) * 3 // 4
    return (
        text if len(text) <= most else f"{text[:head]} ... {text[len(text) - (most - 5 - head) :]}"
    )


def one_line(value: object, limit: int = 120) -> str:
    """Return what a stranger sent as a text of at most ``limit`` characters without line ends or
    escapes, to be logged or raised: its ``repr``, of which the middle is left out where it is
    longer. A text of any length costs no more than a short one."""
    if isinstance(value, str | bytes):
        text: Any = value  # a slice of either is of its kind
        return shortened(
            repr(value if len(value) <= 2 * limit else text[:limit] + text[-limit:]), limit
        )
    short = reprlib.Repr()
    short.maxstring = short.maxother = short.maxlong = limit
    try:
        return shortened(printable(short.repr(value)).replace("\n", " "), limit)
    except ValueError:  # a whole number of more digits than Python writes
        return f"<{type(value).__name__} too long to show>"


def check_limits(tree: Any) -> None:
    """Refuse a tree of mappings and lists that is nested too deeply, or that holds a number of too
    many digits.

    Raises
    ------
    ValueError: it is; the message is the end of a sentence, with the path of the value.
    """
    waiting: list[tuple[Any, tuple[str, ...]]] = [(tree, ())]
    while waiting:
        node, path = waiting.pop()
        if len(path) > MOST_LEVELS:
            raise ValueError(
                f"{path[0]!r} holds tables or lists inside each other, more than {MOST_LEVELS} "
                "levels deep"
            )
        if isinstance(node, int) and abs(node) >= 10**MOST_DIGITS:
            raise ValueError(
                f"{'.'.join(path)!r} is a whole number of more than {MOST_DIGITS} digits"
            )
        inner: Iterable[tuple[Any, Any]] = ()
        if isinstance(node, Mapping):
            inner = node.items()
        elif isinstance(node, list):
            inner = enumerate(node)
        waiting += [(value, (*path, str(key))) for key, value in inner]
