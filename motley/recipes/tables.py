"""The numbers of a recipe as files: ``measured.csv``, ``verdicts.csv`` and ``curves.csv.gz``; and how they are kept in its folder."""

from __future__ import annotations

from math import nan
from pathlib import Path

from motley.core.errors import ConfigError
from motley.recipes.earlier import CURVES, MEASURED, CurvePoint, MeasuredRow, curve_points, read_rows, to_csv, to_gzip
from motley.recipes.page import page
from motley.recipes.reproduce import Reproduction, reproduce, target_of
from motley.recipes.sequential_plan import SEQUENTIAL
from motley.recipes.verdicts import Contrast
from motley.results import page as pages
from motley.results.page import replace_files

__all__ = ["curves_gz", "keep", "measured_rows", "number_files", "verdicts_csv"]


def measured_rows(found: Reproduction) -> list[MeasuredRow]:
    """Return every measured number of every seed, those measured earlier among them."""
    rows = []
    for exhibit in found.exhibits:
        cells = {cell.values: cell for cell in found.cells(exhibit)}
        for measure in found.recipe.measures(exhibit):
            for values, seeds in found.values(exhibit, measure).items():
                cell = cells[values]
                here, before = found.runs_at(exhibit, cell), found.earlier_at(exhibit, cell)
                for seed, one in sorted(seeds.items()):
                    run = here[seed].directory.name if seed in here else before[seed]
                    value, exact = f"{one.value:.6g}", str(one.reached).lower()
                    rows.append(
                        MeasuredRow(exhibit.name, cell.name, measure, seed, value, exact, run, target_of(cell, measure))
                    )
    return rows


def verdicts_csv(found: Reproduction) -> str:
    """Return every comparison as a row: claim, published, measure, comparison, means, the interval of their difference, pairs,
    verdict; verdict after Holm's correction, p value before and after it, the difference that the pairs resolve, the one that the
    paper prints, the pairs that it needs; the most pairs of a sequential test."""
    rows = [
        (
            one.claim.text,
            one.claim.published,
            one.measure,
            contrast.label,
            *(f"{number:.6g}" for number in _numbers(contrast)),
            contrast.interval.n,
            contrast.verdict,
            contrast.after_holm,
            *(f"{number:.4g}" for number in (contrast.p, contrast.holm, contrast.resolves, contrast.printed, contrast.needs)),
            contrast.most or "",
        )
        for one in found.judged
        for contrast in one.contrasts
    ]
    heads = ("claim", "published", "measure", "comparison", "ours", "other", "difference", "low", "high", "pairs", "verdict")
    return to_csv((*heads, "after_holm", "p", "p_holm", "resolves", "printed", "needs", "sequential"), rows)


def _numbers(contrast: Contrast) -> tuple[float, ...]:
    got = contrast.interval
    return contrast.ours.mean, contrast.other.mean if contrast.other else nan, got.mean, got.low, got.high


def curves_gz(found: Reproduction) -> bytes:
    """Return every round of every run, those measured earlier among them, as a compressed table; b"" where there is none."""
    points: list[CurvePoint] = []
    seen: set[str] = set()
    for exhibit in found.exhibits:
        for cell in found.cells(exhibit):
            here, before = found.runs_at(exhibit, cell), found.earlier_at(exhibit, cell)
            for seed in sorted({*here, *before}):
                name = here[seed].directory.name if seed in here else before[seed]
                if name not in seen:
                    points += curve_points(here[seed], exhibit.name, cell.name) if seed in here else _kept(found, name)
                seen.add(name)
    return to_gzip(to_csv(CurvePoint._fields, points)) if points else b""


def _kept(found: Reproduction, name: str) -> list[CurvePoint]:
    return list(found.earlier.points.get(name, ()))


def number_files(found: Reproduction) -> dict[str, str | bytes]:
    """Return name -> content of the files with numbers."""
    curves = curves_gz(found)
    return {
        MEASURED: to_csv(MeasuredRow._fields, measured_rows(found)),
        "verdicts.csv": verdicts_csv(found),
        **({CURVES: curves} if curves else {}),
        **({SEQUENTIAL: found.sequential.text()} if found.sequential.claims else {}),
    }


def keep(found: Reproduction) -> list[Path]:
    """Put what a folder of runs holds into ``measured/SCALE`` of the recipe, beside what is kept there and still belongs to it:
    numbers, curves, and the report of both together.

    Raises
    ------
    ConfigError: the recipe lies in no folder. StoreError: the files cannot be written.
    """
    recipe = found.recipe
    if recipe.folder is None:
        raise ConfigError(f"{recipe.name} lies in no folder on the disk; keep numbers with a copy of its folder", "--keep")
    folder = recipe.folder / "measured" / found.scale
    chosen = {exhibit.name for exhibit in found.exhibits}
    others = [row for row in read_rows(folder / MEASURED) if row.exhibit not in chosen]
    text = to_csv(MeasuredRow._fields, [*measured_rows(found), *others])
    replace_files({folder / MEASURED: text}, folder / MEASURED)
    whole = reproduce(recipe, scale=found.scale, out=found.directory, run=False)
    files: dict[Path, str | bytes] = {folder / name: content for name, content in number_files(whole).items()}
    report = folder / "report.html"
    replace_files({**files, report: pages.html(page(whole))}, report)
    return [*files, report]
