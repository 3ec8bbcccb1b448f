"""Draw the pictures of the pages that come from measurements,
``benchmarks/measured/heterogeneity.json``, as SVG."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from from_measurements import measured

__all__ = ["personal_gains"]

METHODS = ("fedavg", "fine_tuned", "ditto", "fedper", "ifca")
COLUMNS = {"personal_labels": "Label skew", "personal_concepts": "Concept shift"}
WIDTH = 560
LEFT = 56
PANEL = 236
HEIGHT = 74
STEP = 112
TOP = 62
"""Units of the picture: its width, the axis left of the panels, a panel's width and height, from
row to row, above the rows."""
BETTER = "#2b6cb0"
WORSE = "#c05621"
INK = "#2d3748"
LOWEST = -60.0
HIGHEST = 25.0
"""Gains in points at the ends of the axis; larger ones are cut off."""


def personal_gains() -> str:
    """Return bars of every client's gain over local training alone, sorted, a row of panels for
    each method and a column for each federation."""
    rows = {
        name: {
            row["label"]: row["gains"]["local_only"]
            for row in measured("heterogeneity")[name]["rows"]
        }
        for name in COLUMNS
    }
    shown = [method for method in METHODS if all(rows[name].get(method) for name in COLUMNS)]
    parts = [
        _text(
            8,
            20,
            "What each client gains over training alone, in points of accuracy",
            14,
            bold=True,
        )
    ]
    said = []
    for x, (name, title) in zip((LEFT, LEFT + PANEL + 24), COLUMNS.items(), strict=True):
        parts.append(_text(x, 46, title, 14, italic=True))
        for at, method in enumerate(shown):
            found = rows[name][method]
            words = f"{found['share'][0]:.0f} % better off"
            said.append(f"{title}, {method}: {words}")
            parts += [
                _text(x, TOP + STEP * at + 14, f"{method}: {words}", 13),
                *_panel(x, TOP + STEP * at + 22, found["each"]),
            ]
    height = TOP + STEP * len(shown)
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
        'aria-labelledby="t d" '
        "font-family=\"system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', Arial, sans-serif\">"
    )
    title = "What each client gains over training alone"
    told = escape("; ".join(said))
    body = [f'<title id="t">{title}</title>', f'<desc id="d">{told}.</desc>', *parts]
    return "\n".join(
        [
            head,
            *body[:2],
            f'<rect width="{WIDTH}" height="{height}" rx="8" fill="#ffffff"/>',
            *body[2:],
            "</svg>\n",
        ]
    )


def _panel(x: float, y: float, gains: Sequence[float]) -> list[str]:
    def level(points: float) -> float:
        return y + HEIGHT * (HIGHEST - min(max(points, LOWEST), HIGHEST)) / (HIGHEST - LOWEST)

    lines = []
    for points in (20, 0, -20, -40):
        ink = INK if points == 0 else "#e2e8f0"
        lines.append(
            f'<path d="M{x} {level(points):.1f}h{PANEL}" stroke="{ink}" stroke-width="1"/>'
        )
        if x == LEFT:
            lines.append(
                _text(
                    x - 6,
                    level(points) + 4,
                    f"{points:+d}".replace("-", "−").replace("+0", "0"),
                    12,
                    end=True,
                )
            )
    width = PANEL / len(gains)
    ranked = sorted(gains)
    for fill, some in (
        (BETTER, [max(gain, 0) for gain in ranked]),
        (WORSE, [min(gain, 0) for gain in ranked]),
    ):
        steps = "".join(f"V{level(gain):.1f}h{width:.2f}" for gain in some)
        lines.append(f'<path d="M{x} {level(0):.1f}{steps}V{level(0):.1f}z" fill="{fill}"/>')
    return lines


def _text(
    x: float,
    y: float,
    words: str,
    size: float,
    bold: bool = False,
    italic: bool = False,
    end: bool = False,
) -> str:
    style = (
        ' font-weight="bold"' * bold + ' font-style="italic"' * italic + ' text-anchor="end"' * end
    )
    return (
        f'<text x="{x}" y="{y:.1f}" font-size="{size}" fill="{INK}"{style}>{escape(words)}</text>'
    )
