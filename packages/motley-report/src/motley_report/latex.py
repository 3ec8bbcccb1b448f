"""LaTeX of texts, tables and figures: what pdfTeX sets with no other packages than ``booktabs`` and
``graphicx``."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from math import isfinite

from motley.results.blocks import Table
from motley.results.measures import Censored
from motley.results.number_text import short_number
from motley_report.print_tables import PrintTable, Value

_SPECIAL = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "%": r"\%",
    "_": r"\_",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': "''",
    "`": "{}`",
    "\u2013": "--",
    "\u2014": "---",
    "\u2026": r"\ldots{}",
    "\u00a0": "~",
    "\u202f": r"\,",
    "\u2212": "$-$",
    "\u00b1": r"$\pm$",
    "\u00d7": r"$\times$",
    "\u2265": r"$\ge$",
    "\u2264": r"$\le$",
    "\u2018": "`",
    "\u2019": "'",
    "\u201c": "``",
    "\u201d": "''",
    "\u00df": r"\ss{}",
    "\u00f8": r"\o{}",
    "\u00d8": r"\O{}",
    "\u00e6": r"\ae{}",
    "\u00c6": r"\AE{}",
    "\u0142": r"\l{}",
    "\u0141": r"\L{}",
    "\u00b5": r"$\mu$",
    "\u200b": "{}",
}
_ACCENTS = {
    "\u0300": "`",
    "\u0301": "'",
    "\u0302": "^",
    "\u0303": "~",
    "\u0304": "=",
    "\u0306": "u",
    "\u0307": ".",
    "\u0308": '"',
    "\u030a": "r",
    "\u030b": "H",
    "\u030c": "v",
    "\u0327": "c",
}
_CAPITALS = ("gamma", "delta", "theta", "lambda", "xi", "pi", "sigma", "phi", "psi", "omega")
_GREEK = (
    *_CAPITALS,
    "alpha",
    "beta",
    "epsilon",
    "zeta",
    "eta",
    "iota",
    "kappa",
    "mu",
    "nu",
    "rho",
    "tau",
    "chi",
)


def escaped(text: str) -> str:
    """Return any text as one line of LaTeX that shows it; a letter that pdfTeX does not have is
    shown as its code point.

    >>> print(escaped("power_of_choice, 50 % & \u03b1 0.1"))
    power\\_of\\_choice, 50 \\% \\& $\\alpha$ 0.1
    """
    line = unicodedata.normalize("NFC", " ".join(text.split()))
    # several hyphens would become a dash
    line = line.replace("--", "-\u200b-").replace("--", "-\u200b-")
    return "".join(map(_letter, line))


def _letter(letter: str) -> str:
    if letter in _SPECIAL:
        return _SPECIAL[letter]
    if " " <= letter <= "~":
        return letter
    alphabet, _, name = unicodedata.name(letter, "").partition(" LETTER ")
    name = name.lower().replace("lamda", "lambda")
    if alphabet == "GREEK SMALL" and name in _GREEK:
        return f"$\\{name}$"
    if alphabet == "GREEK CAPITAL" and name in _CAPITALS:
        return f"$\\{name.title()}$"
    base = unicodedata.normalize("NFD", letter)
    if len(base) == 2 and base[0].isascii() and base[1] in _ACCENTS:
        return f"\\{_ACCENTS[base[1]]}{{{base[0]}}}"
    return f"[U+{ord(letter):04X}]"


def table(content: PrintTable) -> str:
    """Return the table as a float with caption and label (``tab:summary``), across the page where
    it has more than two columns."""
    words = [
        all(isinstance(cells[i], str) for _, cells in content.rows)
        for i in range(len(content.heads))
    ]
    heads = [
        "Method",
        *(escaped(title) + (f" ({_unit(unit)})" if unit else "") for title, unit in content.heads),
    ]
    rows = [
        [
            escaped(label),
            *(_cell(cell, at in content.best.get(i, ())) for i, cell in enumerate(cells)),
        ]
        for at, (label, cells) in enumerate(content.rows)
    ]
    return _float(name=content.name, caption=content.caption, heads=heads, rows=rows, words=words)


def page_table(content: Table, name: str, title: str) -> str:
    """Return a table of a page as a float, its note in the caption."""
    rows = [
        [escaped(row.label), *(_bold(escaped(cell.whole), cell.best) for cell in row.cells)]
        for row in content.rows
    ]
    words = [content.words(i) for i in range(len(content.heads) - 1)]
    return _float(
        name=name,
        caption=f"{title}. {content.note}",
        heads=[escaped(head) for head in content.heads],
        rows=rows,
        words=words,
    )


def _float(
    name: str,
    caption: str,
    heads: Sequence[str],
    rows: Sequence[Sequence[str]],
    words: Sequence[bool],
) -> str:
    kind = "table*" if len(words) > 2 else "table"
    return "\n".join(
        [
            rf"\begin{{{kind}}}[t]",
            r"  \centering",
            r"  \footnotesize",
            rf"  \caption{{{escaped(caption)}}}",
            rf"  \label{{tab:{name}}}",
            rf"  \begin{{tabular}}{{l{''.join('l' if word else 'r' for word in words)}}}",
            r"    \toprule",
            rf"    {_row(heads)} \\",
            r"    \midrule",
            *(rf"    {_row(row)} \\" for row in rows),
            r"    \bottomrule",
            r"  \end{tabular}",
            rf"\end{{{kind}}}",
            "",
        ]
    )


def _row(cells: Sequence[str]) -> str:
    """Return the cells of a line. A bracket or a star at its begin would be the option of the rule
    or line break before it."""
    line = " & ".join(cells)
    return f"{{}}{line}" if line.startswith(("[", "*")) else line


def figure(name: str, caption: str, wide: bool) -> str:
    """Return a figure's float with caption and label (``fig:curve-round``), across the page where
    it is wide."""
    kind, width = ("figure*", r"\textwidth") if wide else ("figure", r"\columnwidth")
    return "\n".join(
        [
            rf"\begin{{{kind}}}[t]",
            r"  \centering",
            rf"  \includegraphics[width={width}]{{{name}}}",
            rf"  \caption{{{escaped(caption)}}}",
            rf"  \label{{fig:{name}}}",
            rf"\end{{{kind}}}",
            "",
        ]
    )


def _bold(text: str, best: bool) -> str:
    return rf"\textbf{{{text}}}" if best else text


def _unit(unit: str) -> str:
    base, _, power = unit.partition("^")
    return escaped(base) + (f"$^{power}$" if power else "")


def _cell(cell: Value, best: bool) -> str:
    if isinstance(cell, str):
        return _bold(escaped(cell), best)
    if isinstance(cell, Censored):
        return f"$> {_number(cell.value)}$" if isfinite(cell.value) else "--"
    if not isfinite(cell.mean):
        return "--"
    mean = _number(cell.mean)
    half = cell.high - cell.mean
    mean = rf"\mathbf{{{mean}}}" if best else mean
    return rf"${mean} \pm {_number(half, cell.mean)}$" if isfinite(half) else f"${mean}$"


def _number(value: float, like: float | None = None) -> str:
    digits, _, power = short_number(value, like).replace("\u202f", r"\,").partition("e")
    return rf"{digits} \times 10^{{{int(power)}}}" if power else digits
