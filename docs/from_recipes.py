"""Make the parts of the pages that come from the recipes and their measurements."""

from __future__ import annotations

import csv

from cells import ROOT, prose, table

from motley.recipes import measuring, pictures, recipe

__all__ = ["recipe_words", "recipes", "verdicts"]


def recipes() -> str:
    """List the recipes."""
    rows = []
    for name in recipe.names():
        found = recipe.read(name)
        shown = "; ".join(exhibit.name for exhibit in found.exhibit)
        minutes = found.scale["small"].minutes
        data = {
            scale: ", ".join(f"`{one}` ({mb:.0f} MB)" for one, mb in found.data(scale).items()) for scale in ("small", "paper")
        }
        more = "" if data["small"] == data["paper"] else f"; `paper`: {data['paper']}"
        needed = (data["small"] or "none") + more
        rows.append((f"`{name}`", prose(found.title), shown, f"{minutes:g}" if minutes else "", needed, str(len(found.claim))))
    return table(("recipe", "paper", "tables and figures", "minutes at `small`", "data to [get](data.md)", "claims"), rows)


def verdicts() -> str:
    """List the verdicts on claims, from ``motley/recipes/*/measured/*/verdicts.csv``.

    Verdicts that two scales of a recipe share stand at ``paper``.
    """
    parts: list[str] = []
    told: set[tuple[str, ...]] = set()
    for path in sorted((ROOT / "motley" / "recipes").glob("*/measured/*/verdicts.csv")):
        with path.open(encoding="utf-8", newline="") as file:
            found = [row for row in csv.DictReader(file) if row["verdict"] != "not tested"]
        rows = [
            (
                prose(r["claim"]),
                r["published"],
                ": ".join(filter(None, (r["measure"], r["comparison"]))),
                _interval(r),
                r["pairs"],
                r["verdict"],
            )
            for r in found
        ]
        rows = [row for row in rows if (path.parents[2].name, *row) not in told]
        told |= {(path.parents[2].name, *row) for row in rows}
        head = ("claim", "published", "comparison", "difference, 95% interval", "pairs", "verdict")
        if rows:
            parts.append(f"### `{path.parents[2].name}`, {path.parent.name}\n\n{table(head, rows)}")
    return "\n\n".join(parts)


def _interval(row: dict[str, str]) -> str:
    if row["difference"] == "nan":
        return "–"
    bounds = "" if row["low"] == "nan" else f" [{float(row['low']):.3g}, {float(row['high']):.3g}]"
    return f"{float(row['difference']):+.3g}{bounds}"


def recipe_words() -> str:
    """List the measures and pictures of recipes."""
    shown = ", ".join(f"`{name}` ({measure.title})" for name, measure in measuring.MEASURES.items())
    drawn = ", ".join(f"`{name}`" for name in pictures.PICTURES)
    by_measure = ", ".join(f"`{name}:`" for name in pictures.BY_MEASURE)
    return (
        f"Measures: {shown}, `note.NAME.early`, `.late`, `.mean` and `.least` (what a rule noted under NAME), "
        "`domain.NAME` (clients of one appearance).\n\n"
        f"Pictures: {drawn}; an axis after `curves:`, a measure after {by_measure}."
    )
