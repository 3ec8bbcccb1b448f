"""Shows the package's docstrings as Markdown: sections, parameters, examples and references as they
are written there."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from griffe import Alias, Class, Extension, Function, Module, Object

sys.path.insert(0, str(Path(__file__).resolve().parent))  # griffe loads this file by its path

from from_docstrings import markdown


class Docstrings(Extension):
    """Rewrites every docstring once the whole package is known."""

    def on_package(self, *, pkg: Module, **_: Any) -> None:
        """Called when the package has been read."""
        for thing in _below(pkg):
            if thing.docstring is not None:
                thing.docstring.value = markdown(thing.docstring.value, _names(thing))


def _below(thing: Object) -> Iterator[Object]:
    yield thing
    for member in thing.members.values():
        if not isinstance(member, Alias):
            yield from _below(member)


def _names(thing: Object) -> list[str]:
    """What the docstring may speak of under Parameters."""
    if isinstance(thing, Function):
        return [parameter.name for parameter in thing.parameters]
    if isinstance(thing, Class):
        init = thing.members.get("__init__")
        return [*thing.members, *(_names(init) if isinstance(init, Function) else [])]
    return []
