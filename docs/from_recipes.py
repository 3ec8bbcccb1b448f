"""Make the parts of the pages that come from the recipes and their measurements."""

from __future__ import annotations

import csv
from functools import partial

from cells import ROOT, prose, table

from motley.recipes import measuring, pictures, recipe
from motley.recipes.telling import fill, kept_numbers
from motley.recipes.verdicts import together

__all__ = ["counted", "recipe_words", "recipes", "results", "verdicts"]


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


def results() -> str:
    """Tell the result of each recipe, with the numbers of its cells, and count its verdicts."""
    parts = []
    for name in recipe.names():
        found = recipe.read(name)
        told = [fill(found, partial(kept_numbers, found)).strip(), *(_counts(found, scale) for scale in ("small", "paper"))]
        parts.append("\n\n".join([f"### {prose(found.title)}", *(list(filter(None, told)) or ["Not measured yet."])]))
    return "\n\n".join(parts)


def counted(found: recipe.Recipe, scale: str) -> list[str]:
    """Return the verdicts on a recipe's claims that were tested at a scale, one for each claim."""
    at = kept_numbers(found, scale)
    claims = dict.fromkeys(row["claim"] for row in at.verdicts) if at is not None else {}
    words = [together(r["verdict"] for r in at.verdicts if r["claim"] == claim) for claim in claims] if at is not None else []
    return [word for word in words if word != "not tested"]


def _counts(found: recipe.Recipe, scale: str) -> str:
    """Count the verdicts on a recipe's claims that were tested at a scale."""
    tested = counted(found, scale)
    said = ", ".join(
        f"{tested.count(word)} {word}" for word in ("confirmed", "not confirmed", "contradicted") if word in tested
    )
    where = f"[verdicts](verdicts.md#{found.name}-{scale})"
    return f"`{found.name}` at `{scale}`: {said}, of {len(tested)} claims tested; {where}." if tested else ""


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
                r.get("after_holm", ""),
                *(_short(r.get(name)) for name in ("resolves", "needs")),
            )
            for r in found
        ]
        rows = [row for row in rows if (path.parents[2].name, *row) not in told]
        told |= {(path.parents[2].name, *row) for row in rows}
        head = ("claim", "published", "comparison", "difference, 95% interval", "pairs", "verdict")
        head += ("after Holm", "resolves", "needs")
        if rows:
            parts.append(f"## `{path.parents[2].name}`, {path.parent.name}\n\n{table(head, rows)}")
    return "\n\n".join(parts)


def _short(number: str | None) -> str:
    """A number with three digits; a dash where there is none."""
    known = number not in (None, "", "nan", "inf")
    return f"{float(number):.3g}" if known and number is not None else "–"


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
