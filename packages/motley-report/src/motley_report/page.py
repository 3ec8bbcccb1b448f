"""Write a page as one HTML file, or as Markdown with a folder of pictures.

Nothing in the page asks for an address: figures are inline SVG, style and script are in the page,
and it reads (and prints) without the script.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from errno import EISDIR
from functools import cache
from pathlib import Path
from typing import Any

from motley.core.errors import ConfigError
from motley.core.files import create, disk_error, user_path
from motley.results.blocks import Page, Picture, UniqueNames
from motley_report.figures import PALETTE

__all__ = ["SUFFIXES", "check_name", "html", "replace_files", "write"]

SUFFIXES = (".html", ".htm", ".md")
"""What the name of a page may end in."""


def write(page: Page, out: str | Path) -> Path:
    """Write a page to a file.

    Parameters
    ----------
    out: ``.html`` (``.htm``) is HTML; ``.md`` is Markdown, whose pictures go to a folder beside it
        (``report_pictures`` for ``report.md``).

    Returns
    -------
    ``out``.

    Raises
    ------
    ConfigError: ``out`` has another suffix. StoreError: it cannot be written; what was there before
    is still there.
    """
    path = check_name(
        out, "; --format pdf,svg,latex,csv writes figures and tables for a paper into a folder"
    )
    if path.suffix.lower() != ".md":
        return replace_files({path: html(page)}, path)
    from motley_report.markdown import markdown

    folder = path.with_name(f"{path.stem}_pictures")
    text, pictures = markdown(page, folder.name)
    return replace_files(
        {folder / name: svg for name, svg in pictures.items()} | {path: text}, path
    )


def check_name(out: Path | str, hint: str = "") -> Path:
    """Return the name of a page; ``hint`` ends the sentence that refuses it.

    Raises
    ------
    ConfigError: it has no suffix of a page.
    """
    path = user_path(out)
    if path.suffix.lower() not in SUFFIXES:
        raise ConfigError(
            f"got {path.name!r}; expected a name that ends in {', '.join(SUFFIXES)}, e.g. "
            f"report.html{hint}",
            "out",
        )
    return path


def html(page: Page) -> str:
    """Return the page as HTML."""
    filled: dict[str, list[Any]] = {"contents": [], "carded": []}  # while the blocks are written
    return str(_template().render(page=page, names=UniqueNames(), **filled)).lstrip()


@cache
def _template() -> Any:
    """Return the template of a page, compiled once in a process."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("motley_report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals |= {"palette": PALETTE, "inline": _inline, "css_text": _css_text}
    return environment.get_template("page.html.j2")


def _inline(picture: Picture, name: str, methods: Sequence[str]) -> Any:
    """Return the picture with ids that are unique in this page and method names as tooltips."""
    from markupsafe import Markup, escape

    svg = picture.svg
    for before in ('id="', 'href="#', "url(#"):
        svg = svg.replace(f"{before}{picture.name}-", f"{before}{name}-")
    for variable, (shade, _) in PALETTE.items():  # which a page on a dark ground sets otherwise
        svg = svg.replace(f":{shade.lower()}", f":var(--{variable})")

    def titled(group: re.Match[str]) -> str:
        label = escape(methods[int(group[2])]) if int(group[2]) < len(methods) else ""
        text = group[3] or ""
        return f"{group[1]}<title>{label}{': ' if label and text else ''}{text}</title>"

    return Markup(
        re.sub(r'(<g class="method-(\d+)(?: line)?"[^>]*>)(?:<title>(.*?)</title>)?', titled, svg)
    )


def _css_text(text: str) -> Any:
    """Return any text as the inside of a string of a style sheet, which may stand in a page."""
    from markupsafe import Markup

    return Markup(re.sub(r"[^\w .,:%()/+-]", lambda sign: f"\\{ord(sign[0]):x} ", text))


def replace_files(files: Mapping[Path, str | bytes], last: Path) -> Path:
    """Write all files under temporary names, then rename them, the file ``last`` after the others;
    return ``last``.

    Raises
    ------
    StoreError: they cannot be written; what was there before is still there.
    """
    new = {path: path.with_name(path.name + ".new") for path in files}
    new_folders = [
        folder for folder in {path.parent for path in files} - {last.parent} if not folder.exists()
    ]
    try:
        for path, content in files.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            with create(new[path]) as file:
                file.write(content.encode() if isinstance(content, str) else content)
            if path.is_dir():
                raise IsADirectoryError(EISDIR, "")
        for path in sorted(files, key=lambda path: path == last):
            new[path].replace(path)
    except OSError as error:
        for remove in (
            *(path.unlink for path in new.values()),
            *(folder.rmdir for folder in new_folders),
        ):
            with suppress(OSError):  # half a page is no page
                remove()
        raise disk_error(error, last) from error
    return last
