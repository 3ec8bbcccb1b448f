"""Turn docstrings into Markdown, and make the entries of the pages under ``docs/methods``: a
module's docstring, what the public code of its papers does otherwise, then every component of that
module with its options.

On such a page a line that is a link to a module's file, and nothing else, stands for the entry::

    [motley.selectors.oort](../../packages/motley/src/motley/selectors/oort.py)
"""

from __future__ import annotations

import importlib
import inspect
import re
from functools import cache
from pathlib import Path
from typing import Any

from cells import ROOT, code, table

from motley.core.paper import public_code
from motley.experiments import registry

__all__ = ["ENTRY", "entry", "markdown"]

ENTRY = re.compile(r"^\[(?P<module>motley[\w.]*)\]\((?P<file>[\w/.-]+\.py)\)$", re.MULTILINE)
_REFERENCE = re.compile(r":(?:class|func|data|meth|mod|attr):`~?(?:[\w.]*\.)?(\w+)`")
_PAGE = re.compile(r"(?:``)?\bdocs/((?:[\w-]+/)?([\w-]+)\.md(#[\w-]+)?)(?:``)?")
_PREPRINT = re.compile(r"\barXiv[: ](\d{4}\.\d{4,5}(?:v\d)?)")
_EXAMPLE = re.compile(r"(?:^>>>.*\n?)(?:^(?!\s*$).*\n?)*", re.MULTILINE)
_SECTION = re.compile(r"^(\w[\w ]*)\n-{3,}\n(.*?)(?=\n\n|\Z)", re.MULTILINE | re.DOTALL)


def markdown(text: str, names: list[str]) -> str:
    """Return a docstring as Markdown for a page one folder below ``docs``; in its sections
    ``name: ...`` and ``ThatError: ...`` become items of a list."""
    text = _PAGE.sub(r"[\2\3](../\1)", text)
    text = _PREPRINT.sub(r"[arXiv:\1](https://arxiv.org/abs/\1)", text)
    text = _REFERENCE.sub(r"`\1`", text).replace("``", "`")
    text = _EXAMPLE.sub(lambda found: f"```pycon\n{found[0].rstrip()}\n```\n", text)
    name = "|".join([*map(re.escape, names), r"[A-Z]\w*Error"])
    item = re.compile(rf"(?:^|(?<=[.;)] ))((?:{name})(?:, (?:{name}))*): ", re.MULTILINE)
    return _SECTION.sub(lambda found: f"**{found[1]}**\n\n{item.sub(_item, found[2])}", text)


def _item(found: re.Match[str]) -> str:
    names = ", ".join(f"`{name}`" for name in found[1].split(", "))
    return f"\n- {names}: "


def entry(module: str) -> str:
    """Return the entry of a module: what its docstring says, its components, its tests."""
    said = inspect.getdoc(importlib.import_module(module)) or ""
    components = _components().get(module, [])
    papers = dict.fromkeys(row["paper"] for _, _, row in components if row["paper"])
    parts = [
        markdown(_without_examples(said), []),
        *filter(None, map(_public_code, papers)),
        *map(_component, components),
    ]
    package, _, inside = module.partition(".")
    folder, _, name = inside.rpartition(".")
    tests = ROOT / "tests" / package / folder.partition(".")[0] / f"test_{name}.py"
    beside = f"; its tests: `{tests.relative_to(ROOT)}`" if tests.is_file() else ""
    return "\n\n".join([*parts, f"Code: `{module.replace('.', '/')}.py`{beside}."])


def _public_code(paper: str) -> str:
    """Return where the public code of a paper lies and what differs; empty where nothing is
    known."""
    found = public_code(paper)
    if found is None:
        return ""
    note = f" {found.note}" if found.note else ""
    if not found.repository:
        return f"**Public code.** {'None found' if found.sought else 'Not looked for'}.{note}"
    link = f"[{found.repository}](https://github.com/{found.repository}) at `{found.commit}`"
    if found.page:
        return markdown(f"**Public code.** {link}; what differs: {found.page}.{note}", [])
    if not found.compared:
        return f"**Public code.** {link}; not compared.{note}"
    if not found.differences:
        return f"**Public code.** {link}; no difference that changes results was found.{note}"
    rows = table(["point", "text", "public code", "Motley"], found.differences)
    return f"**Public code.** {link}.{note}\n\n{rows}"


@cache
def _components() -> dict[str, list[tuple[str, type, dict[str, Any]]]]:
    """Return module -> kind, class and row of every component that is defined there."""
    found: dict[str, list[tuple[str, type, dict[str, Any]]]] = {}
    for kind in registry.KINDS:
        for row in registry.listing(kind):
            cls = registry.catalogue(kind).get(row["name"])
            found.setdefault(cls.__module__, []).append((kind, cls, row))
    return found


def _component(found: tuple[str, type, dict[str, Any]]) -> str:
    kind, cls, row = found
    said = _without_examples(inspect.getdoc(cls) or "")
    options = [_option(option) for option in row["options"] if option["accepts"] != "Clip or none"]
    names = [option["name"] for option in row["options"]]
    head = f"**`{row['name']}`** ({kind.replace('_', ' ')}). {markdown(said, names)}"
    return f"{head}\n\nOptions: {', '.join(options)}." if options else head


def _option(option: dict[str, Any]) -> str:
    if option["required"]:
        return f"`{option['name']}` (must be given)"
    if option["default"] is None:
        return f"`{option['name']}`"
    return f"`{option['name']} = {code(option['default'])}`"


def _without_examples(text: str) -> str:
    text = re.sub(r"^Example\n-+\n", "", text, flags=re.MULTILINE)
    return _EXAMPLE.sub("", text).strip()


def with_entries(text: str) -> str:
    """Return a page with the entries in the place of the links to their modules."""
    return ENTRY.sub(lambda found: entry(found["module"]), text)


def missing(page: Path) -> list[str]:
    """Return the links of a page whose file is not the module that they name."""
    found = ENTRY.finditer(page.read_text(encoding="utf-8"))
    return [
        one[0]
        for one in found
        if not (page.parent / one["file"]).is_file()
        or not one["file"].endswith(f"/src/{one['module'].replace('.', '/')}.py")
    ]
