"""Files for a paper: figures as PDF and SVG, tables as LaTeX and CSV, and the bibliography."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from motley.core.errors import ConfigError, suggest
from motley.results.besides import Besides
from motley.results.blocks import Block, Picture, Section, SideBySide, UniqueNames
from motley.results.load import Run
from motley.results.number_text import number_range
from motley_report import latex
from motley_report.besides_section import print_besides
from motley_report.figures import for_print
from motley_report.page import SUFFIXES, replace_files
from motley_report.print_tables import as_csv, print_tables
from motley_report.references import bibliography
from motley_report.sections import all_sections

Groups = Mapping[str, Sequence[Run]]
FORMATS = ("pdf", "svg", "latex", "csv")
"""What a report can be taken apart into."""
EXAMPLE = r"""\documentclass[twocolumn]{article}
\usepackage[letterpaper,margin=0.75in,columnsep=0.2in]{geometry}
\usepackage{booktabs}
\usepackage{graphicx}
\begin{document}
\section*{Experiments}
\nocite{*}
%s
\bibliographystyle{plain}
\bibliography{references}
\end{document}
"""


def check_formats(formats: Iterable[str]) -> list[str]:
    """Return the formats, each once.

    Raises
    ------
    ConfigError: there is no such format, or none at all.
    """
    wanted = list(dict.fromkeys(formats))
    for name in wanted:
        if name not in FORMATS:
            raise ConfigError(
                f"got {name!r}{suggest(name, FORMATS)}; expected some of {', '.join(FORMATS)}, "
                "e.g. pdf,latex",
                "format",
            )
    if not wanted:
        raise ConfigError(
            f"got none; expected some of {', '.join(FORMATS)}, e.g. pdf,latex", "format"
        )
    return wanted


def formats_of(texts: Sequence[str] | None) -> list[str]:
    """Return the formats named, with commas between or apart.

    Raises
    ------
    ConfigError: an unknown one.
    """
    return (
        check_formats(name.strip() for text in texts for name in text.split(",")) if texts else []
    )


def write_print_files(
    groups: Groups,
    folder: Path,
    formats: Sequence[str],
    target: float | None = None,
    controls: Sequence[Run] = (),
) -> Path:
    """Write the figures and tables of methods (label to runs) into a folder.

    Parameters
    ----------
    formats: ``pdf`` and ``svg`` are figures, one file each; ``latex`` is a file for each table,
        ``references.bib`` and ``example.tex``, a document that shows everything;
        ``csv`` is a file for each table.
    controls: runs that show what is left of a difference.

    Returns
    -------
    ``folder``.

    Raises
    ------
    ConfigError: there is no such format. StoreError: it cannot be written.
    """
    wanted = check_formats(formats)
    if folder.suffix.lower() in (*SUFFIXES, ".pdf", ".svg", ".tex", ".csv"):
        raise ConfigError(
            f"got {folder.name!r}; expected a folder, for these formats are several files, e.g. "
            "paper",
            "out",
        )
    files: dict[Path, str | bytes] = {}
    floats = []
    kinds = [kind for kind in ("pdf", "svg") if kind in wanted]
    for name, picture in pictures_of(all_sections(groups, target)) if kinds else ():
        title, drawn = for_print(picture, kinds)
        files |= {folder / f"{name}.{kind}": content for kind, content in drawn.items()}
        floats.append(latex.figure(name, _caption(title, picture, groups), picture.wide))
    tables = [*print_tables(groups, target), *print_besides(Besides(groups, controls))]
    if "csv" in wanted:
        files |= {folder / f"{table.name}.csv": as_csv(table) for table in tables}
    if "latex" in wanted:
        files |= {folder / f"{table.name}.tex": latex.table(table) for table in tables}
        files[folder / "references.bib"] = bibliography(groups)
        shown = [rf"\input{{{table.name}}}" for table in tables] + (
            floats if "pdf" in wanted else []
        )
        files[folder / "example.tex"] = EXAMPLE % "\n".join(shown)
    replace_files(files, next(reversed(files)))
    return folder


def pictures_of(blocks: Iterable[Block]) -> Iterator[tuple[str, Picture]]:
    """Yield all pictures of blocks, each with a name of its own."""
    names = UniqueNames()
    for picture in _pictures(blocks):
        yield names.unique(picture.name), picture


def _pictures(blocks: Iterable[Block]) -> Iterator[Picture]:
    for block in blocks:
        if isinstance(block, Picture):
            yield block
        elif isinstance(block, Section | SideBySide):
            yield from _pictures(block.blocks)


def _caption(title: str, picture: Picture, groups: Groups) -> str:
    """Return the picture's title (or what it shows), the methods' seeds, and what the spread over
    them is."""
    counts = [len(runs) for runs in groups.values()]
    seeds = number_range(counts)
    kind = picture.name.partition("-")[0]
    shown = title if title and title not in groups else picture.about
    if kind == "classes":
        return f"{shown}, in the first run."
    if max(counts) < 2:
        return f"{shown}. One seed."
    if kind in ("shares", "scores"):
        return f"{shown}. All {seeds} seeds."
    shaded = kind == "curve" and not picture.wide and "seeds differ" not in title
    spread = "; the shade is one standard deviation" if shaded else ""
    spread = "; whiskers are one standard deviation" if kind in ("bars", "target") else spread
    return f"{shown}. Mean over {seeds} seeds{spread}."
