"""What a twin predicted beside what then happened: a section of the report, from the
``prediction.json`` that ``motley what-if`` writes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from motley.core.arrays import Floats
from motley.core.errors import DataError
from motley.core.strict_json import restored
from motley.core.untrusted import printable, printable_tree
from motley.results.blocks import DASH, Section, Table, TableCell, TableRow, Text
from motley.results.load import Run
from motley.results.method_groups import method_numbers
from motley.results.number_text import MB, short_number

Groups = Mapping[str, Sequence[Run]]


@dataclass(frozen=True)
class Predicted:
    """The median of a quantity and its prediction interval; NaN where nothing is predicted."""

    median: float
    low: float
    high: float

    def holds(self, value: float) -> bool:
        """Return whether a value lies within the interval."""
        return self.low * (1 - 1e-9) <= value <= self.high * (1 + 1e-9)

    def scaled(self, factor: float) -> Predicted:
        """Return the same in another unit."""
        return Predicted(self.median * factor, self.low * factor, self.high * factor)

    def __str__(self) -> str:
        if not np.isfinite(self.median):
            return DASH
        low, high = short_number(self.low), short_number(self.high)
        return f"{short_number(self.median)} ({low} to {high})"


def elapsed_s(run: Run) -> Floats:
    """Return when each round ended, in seconds since the first began, ``[T]``."""
    begun = float(np.nanmin(np.asarray(run.column("rounds", "start_s"), float)))
    return np.asarray(run.column("rounds", "time_s"), float) - begun


def _read(path: str | Path) -> dict[str, Any]:
    """Return a prediction; a DataError is raised for what is none."""
    try:
        prediction = restored(json.loads(Path(path).read_text(encoding="utf-8")))
        for rule in prediction["rules"]:
            rule["seconds"], rule["bits"] = _interval(rule["seconds"]), _interval(rule["bits"])
            rule["rule"] = {key: [*values] for key, values in rule["rule"].items()}
        return {
            "source": printable(str(prediction["source"])),
            "rounds": int(prediction["rounds"]),
            "seconds": float(prediction["seconds"]),
            "clients": int(prediction["clients"]),
            "level": float(prediction["level"]),
            "rules": [
                {**rule, "recorded": bool(rule["recorded"])}
                for rule in printable_tree(prediction["rules"])
            ],
        }
    except OSError as error:
        raise DataError(
            f"{str(path)!r} cannot be read ({error.strerror}); motley what-if writes "
            "prediction.json into the folder of its runs"
        ) from None
    except (
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        OverflowError,
        RecursionError,
    ) as error:
        raise DataError(
            f"{str(path)!r} is not what motley what-if of this version writes "
            f"({type(error).__name__}: {error}); run motley what-if again"
        ) from None


def _interval(numbers: Mapping[str, Any]) -> Predicted:
    predicted = Predicted(**{key: float(x) for key, x in numbers.items()})
    if not predicted.low <= predicted.median <= predicted.high:
        raise ValueError(f"{predicted.median} is not between {predicted.low} and {predicted.high}")
    return predicted


def predicted_section(groups: Groups, path: str | Path) -> Section:
    """Return the section of a report that puts what was predicted beside what each run took: the
    entry point ``predicted`` of the group ``motley.report``.

    Parameters
    ----------
    groups: label of a method to its runs.
    path: the ``prediction.json`` of ``motley what-if``.

    Raises
    ------
    DataError: there is no such file, or it is not what ``motley what-if`` writes.
    """
    prediction = _read(path)
    rounds = prediction["rounds"]
    several = sum(map(len, groups.values())) > 1
    compared = [
        (f"{label}, seed {run.seed}" if several else label, method, run)
        for method, (label, runs) in zip(method_numbers(groups), groups.items(), strict=True)
        for run in runs
    ]
    rows = []
    inside = tested = 0
    for label, method, run in compared:
        cells, held = _cells(run, prediction)
        tested += held is not None
        inside += bool(held)
        rows.append(TableRow(label, [TableCell(cell) for cell in cells], method))
    heads = ("", f"s in {rounds} rounds", "predicted", "MB", "predicted", "the seconds are")
    text = (
        f"Predicted by the twin of {prediction['source']}. "
        f"Within the {prediction['level']:.0%} interval of their prediction: the seconds of "
        f"{inside} of {tested} runs that the twin was not fitted to. How often such intervals "
        "hold is measured in docs/twin.md."
    )
    return Section("What was predicted", [Text(text, note=True), Table(heads, rows)])


def _cells(run: Run, prediction: Mapping[str, Any]) -> tuple[list[str], bool | None]:
    """Return the cells of a run, and whether its seconds lie within their interval; None where
    that says nothing."""
    rounds = prediction["rounds"]
    row = np.flatnonzero(np.asarray(run.column("rounds", "round")) == rounds)
    if not len(row):
        return [DASH] * 4 + [f"not known: the run has no round {rounds}"], None
    seconds = float(elapsed_s(run)[row[0]])
    megabytes = short_number(float(run.column("rounds", "total_bits")[row[0]]) / MB)
    rule = _rule_for(run, prediction)
    if isinstance(rule, str):
        return [short_number(seconds), DASH, megabytes, DASH, rule], None
    interval: Predicted = rule["seconds"]
    cells = [short_number(seconds), str(interval), megabytes, str(rule["bits"].scaled(1 / MB))]
    if rule["recorded"] and np.isclose(seconds, prediction["seconds"], rtol=1e-9):
        return [*cells, "what the twin was fitted to"], None
    held = interval.holds(seconds)
    away = "below" if seconds < interval.low else "above"
    return [*cells, "within the interval" if held else f"{away} the interval"], held


def _uses(run: Run, rule: Mapping[str, Any], base: Mapping[str, Any]) -> bool:
    """Whether a run has a rule's values; a key that it does not have counts as that of the recorded
    rule."""
    for key, values in rule.items():
        if run.config.get(key) is None:
            agrees = values == base.get(key)
        else:
            agrees = run.config[key] in values
        if not agrees:
            return False
    return True


def _rule_for(run: Run, prediction: Mapping[str, Any]) -> dict[str, Any] | str:
    """Return the predicted rule that a run used, or why there is none.

    A rule has a list of equal values for each of its keys, see :mod:`motley_advice.twin.what_if`. A
    key that the run does not have counts as that of the recorded rule: a Flower strategy always
    waits for all.
    """
    clients = max(int(run.config.get("population") or 0), run.tables["federation"].num_rows)
    if clients and clients != prediction["clients"]:
        return f"not predicted: {clients} clients, the twin has {prediction['clients']}"
    base: Mapping[str, Any] = next(
        (rule["rule"] for rule in prediction["rules"] if rule["recorded"]), {}
    )
    for predicted in prediction["rules"]:
        if _uses(run, predicted["rule"], base):
            return dict(predicted)
    return "not predicted: another rule"
