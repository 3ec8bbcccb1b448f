"""Draw the packages of the distributions in rows, each above all that it imports, as SVG."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import TopologicalSorter
from html import escape
from pathlib import Path

from cells import ROOT

__all__ = ["house"]

HOLDS = {
    "motley_papers": "recipes, what was measured",
    "motley_flower": "deployments, secure sums",
    "motley_advice": "inspect, tune, twin",
    "motley_data": "public data, tables, folders",
    "motley_privacy": "private training, its audits",
    "motley_ray": "runs on a Ray cluster",
    "motley_report": "the report, its figures",
    "motley": "public names, the command",
    "commands": "its larger sub-commands",
    "experiments": "from a TOML file to a run",
    "testing": "contract suites for your own",
    "rounds": "the round loop, its state",
    "engines": "local training",
    "algorithms": "losses, local rules, servers",
    "results": "records, measures, tables",
    "selectors": "who is asked",
    "tasks": "data, models, metrics",
    "timing": "when the server steps",
    "transport": "compressors, wire, ledger",
    "world": "devices, links, partitions",
    "core": "records, keys, errors",
}
"""Package -> what it holds, in a few words."""
BESIDE = tuple(name for name in HOLDS if name.startswith("motley_"))
WIDTH = 660
BOX = (206, 46)
GAP = 10
STEP = 66
"""Units of the picture: its width, a box, the gap between boxes, from row to row."""
IN_ROW = 3
COLOURS = {"motley": "#ebf4ff", "beside": "#fefcbf"}
INK = "#2d3748"


def house() -> str:
    """Return the picture; a package stands in the lowest row above everything that it imports."""
    rows = _rows(_imports())
    lines = [row[at : at + IN_ROW] for row in rows for at in range(0, len(row), IN_ROW)]
    height = STEP * len(lines) + GAP
    boxes = [
        part
        for y, names in enumerate(lines)
        for x, name in enumerate(names)
        for part in _box(name, x, GAP + STEP * y, len(names))
    ]
    told = "; ".join(", ".join(row) for row in rows)
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
            'aria-labelledby="t d" '
            "font-family=\"system-ui, 'Segoe UI', 'DejaVu Sans', Arial, sans-serif\">",
            '<title id="t">The packages, each above all that it imports</title>',
            f'<desc id="d">From the top: {escape(told)}.</desc>',
            f'<rect width="{WIDTH}" height="{height}" rx="8" fill="#ffffff"/>',
            *boxes,
            "</svg>\n",
        ]
    )


def _box(name: str, x: int, top: int, beside: int) -> list[str]:
    width, height = BOX
    left = (WIDTH - beside * width - (beside - 1) * GAP) / 2 + x * (width + GAP)
    colour = COLOURS["beside" if name in BESIDE else "motley"]
    middle = left + width / 2
    return [
        f'<rect x="{left:g}" y="{top}" width="{width}" height="{height}" rx="6" fill="{colour}" '
        f'stroke="{INK}"/>',
        f'<text x="{middle:g}" y="{top + 19}" text-anchor="middle" font-size="15" '
        f'font-weight="bold" fill="{INK}">{name}</text>',
        f'<text x="{middle:g}" y="{top + 37}" text-anchor="middle" font-size="12.5" '
        f'fill="{INK}">{escape(HOLDS[name])}</text>',
    ]


def _rows(imports: dict[str, set[str]]) -> list[list[str]]:
    """Return the packages by row, the top one first."""
    level: dict[str, int] = {}
    for name in TopologicalSorter(imports).static_order():
        level[name] = 1 + max((level[below] for below in imports[name]), default=-1)
    return [
        [name for name in HOLDS if level.get(name) == row]
        for row in range(max(level.values()), -1, -1)
    ]


def _imports() -> dict[str, set[str]]:
    """Return which packages each package imports, anywhere in its files."""
    found: dict[str, set[str]] = {name: set() for name in HOLDS}
    for source in sorted((ROOT / "packages").glob("*/src")):
        for file in sorted(source.rglob("*.py")):
            importer = _package(file.relative_to(source).with_suffix("").parts)
            imported = {_package(name) for name in _names(file)}
            found[importer] |= imported - {importer, None}
    for name in found:
        if name not in (*BESIDE, "commands"):
            # the version of Motley, which the package itself says, is no layer
            found[name].discard("motley")
    for name in ("motley", "tasks"):  # what they name for type checkers alone
        found[name] -= set(BESIDE)
    return found


def _names(file: Path) -> list[tuple[str, ...]]:
    names = []
    for node in _statements(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names += [tuple(alias.name.split(".")) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names += [(*str(node.module).split("."), alias.name) for alias in node.names]
    return names


def _statements(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the statements in a statement or a module, at all depths; expressions, which import
    nothing, are most of a file."""
    for part in ("body", "orelse", "finalbody", "handlers", "cases"):
        for inner in getattr(node, part, ()):
            yield inner
            yield from _statements(inner)


def _package(parts: tuple[str, ...]) -> str | None:
    """Return the package of the picture that a module or a name is in; None: none of ours."""
    if parts[0] != "motley":
        return parts[0] if parts[0] in BESIDE else None
    return parts[1] if len(parts) > 1 and parts[1] in HOLDS else "motley"
