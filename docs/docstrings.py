"""Shows the package's docstrings as Markdown: sections, examples and cross-references as they are written there."""

from __future__ import annotations

import re
from typing import Any

from griffe import Extension, Object

_REFERENCE = re.compile(r":(?:class|func|data|meth|mod|attr):`~?(?:[\w.]*\.)?(\w+)`")
_SECTION = re.compile(r"^(\w[\w ]*)\n-{3,}$", re.MULTILINE)
_EXAMPLE = re.compile(r"(?:^>>>.*\n?)(?:^(?!\s*$).*\n?)*", re.MULTILINE)


class Docstrings(Extension):
    """Rewrites each docstring when it is loaded."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Called for every module, class, function and attribute."""
        if obj.docstring is not None:
            obj.docstring.value = markdown(obj.docstring.value)


def markdown(text: str) -> str:
    """A docstring as Markdown."""
    text = _REFERENCE.sub(r"`\1`", text).replace("``", "`")
    text = _EXAMPLE.sub(lambda found: f"```pycon\n{found[0].rstrip()}\n```\n", text)
    return _SECTION.sub(r"**\1**\n", text)
