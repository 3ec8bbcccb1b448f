"""The numbers of a recipe as files: ``measured.csv``, ``verdicts.csv``, ``cells.csv`` and
``curves.csv.gz``."""

from __future__ import annotations

from math import nan

from motley.core.csv_text import csv_text
from motley.results.measures import Censored
from motley_papers.earlier import CURVES, MEASURED, CurvePoint, MeasuredRow, curve_points, to_gzip
from motley_papers.printed_cells import judged_cells, printed_cells_csv
from motley_papers.recipe import Cell
from motley_papers.reproduce import Reproduction, target_of
from motley_papers.sequential_plan import SEQUENTIAL

_NO_NUMBERS = ("nan",) * 5
_BY_CALCULATION = (
    *("by calculation", *_NO_NUMBERS, 0, "false as stated"),
    *(*_NO_NUMBERS, "nan", "nan", "nan", ""),
)
"""The columns of a comparison, where a counterexample is worked out in place of comparisons."""


def measured_rows(reproduction: Reproduction) -> list[MeasuredRow]:
    """Return every measured number of every seed, those measured earlier among them."""
    rows = []
    for exhibit in reproduction.exhibits:
        cells = {cell.values: cell for cell in reproduction.cells(exhibit)}
        for measure in reproduction.recipe.measures(exhibit):
            for values, seeds in reproduction.values(exhibit, measure).items():
                cell = cells[values]
                here = reproduction.runs_at(exhibit, cell)
                before = reproduction.earlier_at(exhibit, cell)
                for seed, value in sorted(seeds.items()):
                    run = here[seed].directory.name if seed in here else before[seed]
                    rows.append(
                        measured_row(cell=cell, measure=measure, seed=seed, value=value, run=run)
                    )
    return rows


def measured_row(cell: Cell, measure: str, seed: int, value: Censored, run: str) -> MeasuredRow:
    """Return one measured number of one run, whose name is given."""
    return MeasuredRow(
        exhibit=cell.exhibit.name,
        cell=cell.name,
        measure=measure,
        seed=seed,
        value=f"{value.value:.6g}",
        exact=str(value.reached).lower(),
        run=run,
        target=target_of(cell, measure),
    )


def verdicts_csv(reproduction: Reproduction) -> str:
    """Return every comparison of every claim as a row.

    Of the claim: text, source, protocol, published, measure. Of the comparison: words, means, the
    interval of their difference, pairs, sign (its own verdict), p values of both sides, the
    difference that the pairs resolve, the one that the paper prints, the pairs that it needs, those
    that would decide if mean and spread stay (with a correction for all claims of the family), the
    95 % interval that allows for nothing, the looks. Of the claim again: the interval of its
    weakest comparison, the difference printed for that, whether it lies inside, whether so many
    pairs resolve what is printed, the verdict, and the verdict without Holm's correction. A claim
    that a counterexample refutes has one row without numbers.
    """
    rows = []
    for judged in reproduction.judged:
        head = (
            judged.claim.text,
            judged.claim.source,
            judged.protocol.words,
            judged.claim.published,
            judged.measure,
        )
        weakest = judged.interval
        ends = (
            *(
                f"{number:.6g}"
                for number in (weakest.mean, weakest.low, weakest.high, judged.printed)
            ),
            judged.size,
            {None: "", True: "yes", False: "no"}[judged.decidable],
            judged.verdict,
            judged.alone,
        )
        if judged.claim.counterexample:
            rows.append((*head, *_BY_CALCULATION, *ends))
        for contrast in judged.contrasts:
            interval = contrast.interval
            rival = contrast.rival.mean if contrast.rival else nan
            numbers = (contrast.ours.mean, rival, interval.mean, interval.low, interval.high)
            powers = (*contrast.sides, contrast.resolves, contrast.printed, contrast.needs)
            decided_by = contrast.decided_by(judged.family)
            plain = contrast.plain
            looks = " ".join(map(str, contrast.looks.ends)) if contrast.looks is not None else ""
            shown = (
                *(f"{number:.6g}" for number in numbers),
                interval.n,
                contrast.verdict,
                *(f"{number:.4g}" for number in (*powers, decided_by)),
                *(f"{number:.6g}" for number in (plain.low, plain.high)),
                looks,
            )
            rows.append((*head, contrast.label, *shown, *ends))
    heads = [
        "claim",
        "source",
        "protocol",
        "published",
        "measure",
        "comparison",
        "ours",
        "other",
        "difference",
        "low",
        "high",
    ]
    heads += ["pairs", "sign", "p_confirms", "p_refutes", "resolves", "printed", "needs"]
    heads += ["decided_by", "plain_low", "plain_high", "looks"]
    heads += [
        "claim_difference",
        "claim_low",
        "claim_high",
        "claim_printed",
        "size",
        "decidable",
        "verdict",
        "alone",
    ]
    return csv_text([heads, *rows])


def curves_gz(reproduction: Reproduction) -> bytes:
    """Return every round of every run, those measured earlier among them, as a compressed table;
    b"" where there is none."""
    points: list[CurvePoint] = []
    seen: set[str] = set()
    for exhibit in reproduction.exhibits:
        for cell in reproduction.cells(exhibit):
            here = reproduction.runs_at(exhibit, cell)
            before = reproduction.earlier_at(exhibit, cell)
            for seed in sorted({*here, *before}):
                name = here[seed].directory.name if seed in here else before[seed]
                if name not in seen:
                    if seed in here:
                        points += curve_points(here[seed], exhibit.name, cell.name)
                    else:
                        points += _kept(reproduction, name)
                seen.add(name)
    return to_gzip(csv_text([CurvePoint._fields, *points])) if points else b""


def _kept(reproduction: Reproduction, name: str) -> list[CurvePoint]:
    return list(reproduction.earlier.points.get(name, ()))


def number_files(reproduction: Reproduction) -> dict[str, str | bytes]:
    """Return name -> content of the files with numbers."""
    curves = curves_gz(reproduction)
    judged = any(judged_cells(reproduction, exhibit) for exhibit in reproduction.exhibits)
    return {
        MEASURED: csv_text([MeasuredRow._fields, *measured_rows(reproduction)]),
        "verdicts.csv": verdicts_csv(reproduction),
        **({"cells.csv": printed_cells_csv(reproduction)} if judged else {}),
        **({CURVES: curves} if curves else {}),
        **({SEQUENTIAL: reproduction.sequential.text()} if reproduction.sequential.claims else {}),
    }
