"""The bibliography of what runs used."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from motley.core.paper import cite
from motley.results.load import Run, citations


def bibliography(groups: Mapping[str, Sequence[Run]]) -> str:
    """Return the BibTeX of what the runs used, of Motley and of PyTorch; titles keep their
    capitals."""
    runs = [run for members in groups.values() for run in members]
    versions = {str((run.meta.get("versions") or {}).get("motley", "unknown")) for run in runs}
    motley = "\n".join(
        [
            "@misc{motley,",
            "  title        = {Motley: federated learning where clients differ},",
            "  author       = {{The Motley contributors}},",
            f"  note         = {{Version {', '.join(sorted(versions))}}},",
            "}",
        ]
    )
    entries = [*citations(runs), motley, cite("paszke2019pytorch").bibtex()]
    return (
        "\n\n".join(
            re.sub(r"^  (\w+)( *)= \{(.*)\},?$", _field, entry, flags=re.MULTILINE)
            for entry in entries
        )
        + "\n"
    )


def _field(line: re.Match[str]) -> str:
    """Return a field of an entry with LaTeX's special letters escaped; a title in two braces, so
    that no style changes its case."""
    name, space, text = line.groups()
    if name != "url":
        text = re.sub(r"(?<!\\)([&%#_])", r"\\\1", text)
    if name == "title" and not text.startswith("{"):
        return f"  {name}{space}= {{{{{text}}}}},"
    return f"  {name}{space}= {{{text}}},"
