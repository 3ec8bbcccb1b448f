"""Draw the pictures of the pages that come from ``heterogeneity.json``, ``twin.json``,
``twin_real.json`` and ``fine_tuning.json`` in ``benchmarks/measured``, as SVG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from itertools import pairwise
from math import log10
from statistics import median

from from_measurements import measured

__all__ = ["fine_tuning", "personal_gains", "twin", "twin_real"]

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
    title = "What each client gains over training alone"
    return _picture(title, "; ".join(said), parts, TOP + STEP * len(shown))


def twin() -> str:
    """Return :func:`_predicted` of simulated federations, a panel for each group of them."""
    found = measured("twin")
    groups = {
        "tuned": ("laws looked at", range(6)),
        "unseen": ("other laws", range(6, 12)),
        "loaded": ("shared load", range(12, 14)),
    }
    panels = {
        words: [
            (median(rule["true_s"]), *rule["predicted_s"])
            for number in numbers
            for rule in found["federations"][str(number)]["rules"].values()
        ]
        for words, numbers in groups.values()
    }
    return _predicted("Seconds of ten rounds: predicted, by what was true", panels)


def twin_real() -> str:
    """Return :func:`_predicted` of federations of real processes."""
    found = measured("twin_real")
    groups = {
        "looked at": range(6),
        "looked at for one change": range(6, 8),
        "not looked at": range(8, 12),
    }
    panels = {
        words: [
            (rule["true_s"], *rule["predicted_s"])
            for number in numbers
            for rule in found["federations"].get(str(number), {"rules": {}})["rules"].values()
        ]
        for words, numbers in groups.items()
    }
    panels = {words: rows for words, rows in panels.items() if rows}
    return _predicted(
        "Seconds of five rounds of real processes: predicted, by what was true", panels
    )


def _predicted(title: str, panels: Mapping[str, Sequence[tuple[float, ...]]]) -> str:
    """Return a point for each true run, the predicted by the true seconds, with the interval; a
    row: true, predicted, low, high."""
    every = [log10(value) for some in panels.values() for row in some for value in row]
    low, high = min(every) - 0.05, max(every) + 0.05
    steps = (1,) if high - low > 1.2 else (1, 2, 5)  # a decade or more: its powers do
    marks = [
        step * 10**power
        for power in range(int(low), int(high) + 1)
        for step in steps
        if low < log10(step * 10**power) < high
    ]
    side, gap, top = 156.0, 18.0, 72.0
    parts = [_text(8, 20, title, 14, bold=True)]
    said = []
    for number, (name, rows) in enumerate(panels.items()):
        x = 34.0 + number * (side + gap)
        inside = 0
        parts.append(_text(x, top - 10, name, 13, italic=True))
        parts.append(
            f'<rect x="{x:.1f}" y="{top}" width="{side}" height="{side}" fill="none" '
            f'stroke="{INK}"/>'
        )
        parts.append(f'<path d="M{x:.1f} {top + side}l{side} -{side}" stroke="#a0aec0"/>')
        for mark in marks:
            at = side * (log10(mark) - low) / (high - low)
            parts.append(_text(x + at, top + side + 16, f"{mark}", 12))
            if not number:  # one scale for all panels
                parts.append(_text(x - 4, top + side - at + 4, f"{mark}", 12, end=True))
        for true, *told in rows:
            across = x + side * (log10(true) - low) / (high - low)
            middle, least, most = (
                top + side * (1 - (log10(value) - low) / (high - low)) for value in told
            )
            held = told[1] <= true <= told[2]
            inside += held
            fill = BETTER if held else WORSE
            parts.append(
                f'<path d="M{across:.1f} {least:.1f}V{most:.1f}" stroke="{fill}" opacity="0.5"/>'
            )
            parts.append(f'<circle cx="{across:.1f}" cy="{middle:.1f}" r="2.5" fill="{fill}"/>')
        said.append(f"{name}: {inside} of {len(rows)} within the interval")
    return _picture("Predicted seconds by true ones", "; ".join(said), parts, top + side + 28)


LINES = {
    "uniform": ("4 ranks", "#718096"),
    "memory": ("memory", "#d69e2e"),
    "ranks": ("memory, time", "#c05621"),
    "clients": ("4 ranks, Oort", "#38a169"),
    "both": ("both", "#2b6cb0"),
}
"""Arm of the measurement of fine-tuning -> its name in the picture, and its colour."""


def fine_tuning() -> str:
    """Return the mean perplexity over clients by virtual time, a line for each arm: the mean over
    seeds, as far as all of them ran."""
    found = measured("fine_tuning")
    target = found["plan"]["target"]
    curves = {}
    for name in LINES:
        runs = [run for run in found["runs"] if run["arm"] == name]
        end = min(run["seconds"][-1] for run in runs)
        times = [end * k / 40 for k in range(41)]
        curves[name] = [
            (at, sum(_at(at, run["seconds"], run["perplexity"]) for run in runs) / len(runs))
            for at in times
        ]
    every = [point for line in curves.values() for point in line]
    last, low, high = max(x for x, _ in every), min(y for _, y in every), max(y for _, y in every)
    left, top, width, height = 48.0, 40.0, 360.0, 190.0

    def place(at: float, value: float) -> str:
        down = height * (high - value) / (high - low)
        return f"{left + width * at / last:.1f} {top + down:.1f}"

    parts = [_text(8, 20, "Mean perplexity over clients, by virtual seconds", 14, bold=True)]
    parts.append(
        f'<path d="M{left} {top}V{top + height}H{left + width}" fill="none" stroke="{INK}"/>'
    )
    parts.append(
        f'<path d="M{place(0, target)}L{place(last, target)}" stroke="{INK}" '
        'stroke-dasharray="4 4"/>'
    )
    for value in (low, target, high):
        level = float(place(0, value).split()[1])
        parts.append(_text(left - 6, level + 4, f"{value:.2f}", 12, end=True))
    for share in (0.5, 1.0):
        x = left + width * share
        parts.append(_text(x, top + height + 16, f"{last * share:.0f} s", 12, end=True))
    said = []
    for row, (arm, line) in enumerate(curves.items()):
        name, colour = LINES[arm]
        path = "L".join(place(*point) for point in line)
        parts.append(f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        y = top + 20 + 22 * row
        parts.append(
            f'<path d="M{left + width + 12} {y - 4}h18" stroke="{colour}" stroke-width="3"/>'
        )
        parts.append(_text(left + width + 36, y, name, 13))
        said.append(f"{name}: {line[-1][1]:.2f} after {line[-1][0]:.0f} s")
    return _picture("Perplexity by virtual time", "; ".join(said), parts, top + height + 28)


def _at(x: float, xs: Sequence[float], ys: Sequence[float]) -> float:
    """Return the height of a line through points of rising ``xs`` at ``x`` within them."""
    for (x0, y0), (x1, y1) in pairwise(zip(xs, ys, strict=True)):
        if x <= x1:
            return y0 + (y1 - y0) * (x - x0) / (x1 - x0)
    return ys[-1]


def _picture(title: str, told: str, parts: Sequence[str], height: float) -> str:
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:g}" role="img" '
        'aria-labelledby="t d" '
        "font-family=\"system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', Arial, sans-serif\">"
    )
    body = [f'<title id="t">{title}</title>', f'<desc id="d">{escape(told)}.</desc>', *parts]
    return "\n".join(
        [
            head,
            *body[:2],
            f'<rect width="{WIDTH}" height="{height:g}" rx="8" fill="#ffffff"/>',
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
