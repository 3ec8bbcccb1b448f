"""Shows the package's docstrings as Markdown: sections, parameters, examples and references as they
are written there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from griffe import Alias, Class, Extension, Function, Module, Object

_REFERENCE = re.compile(r":(?:class|func|data|meth|mod|attr):`~?(?:[\w.]*\.)?(\w+)`")
_PAGE = re.compile(r"(?:``)?\bdocs/((?:[\w-]+/)?([\w-]+)\.md(#[\w-]+)?)(?:``)?")
_EXAMPLE = re.compile(r"(?:^>>>.*\n?)(?:^(?!\s*$).*\n?)*", re.MULTILINE)
_SECTION = re.compile(r"^(\w[\w ]*)\n-{3,}\n(.*?)(?=\n\n|\Z)", re.MULTILINE | re.DOTALL)


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


def markdown(text: str, names: list[str]) -> str:
    """A docstring as Markdown; in its sections ``name: ...`` and ``ThatError: ...`` become items of
    a list."""
    text = _PAGE.sub(r"[\2\3](../\1)", text)  # the objects' pages lie in a folder beside the others
    text = _REFERENCE.sub(r"`\1`", text).replace("``", "`")
    text = _EXAMPLE.sub(lambda found: f"```pycon\n{found[0].rstrip()}\n```\n", text)
    name = "|".join([*map(re.escape, names), r"[A-Z]\w*Error"])
    item = re.compile(rf"(?:^|(?<=[.;)] ))((?:{name})(?:, (?:{name}))*): ", re.MULTILINE)
    return _SECTION.sub(lambda found: f"**{found[1]}**\n\n{item.sub(_item, found[2])}", text)


def _item(found: re.Match[str]) -> str:
    names = ", ".join(f"`{name}`" for name in found[1].split(", "))
    return f"\n- {names}: "
