"""The section of the report on what left the clients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from motley.results.blocks import Section, Table, TableCell, TableRow, Text
from motley.results.disclosed import OCCASIONS, claims, signals_in_words
from motley.results.load import Run
from motley.results.method_groups import method_numbers


def privacy_section(groups: Mapping[str, Sequence[Run]]) -> Section:
    """Return the section on what left the clients of each method (label to runs); empty for runs
    that do not say."""
    rows = [
        TableRow(label, [TableCell(text) for text in _cells(members[0].meta["leaves"])], method)
        for method, (label, members) in zip(method_numbers(groups), groups.items(), strict=True)
        if {"selector", "algorithm"} <= members[0].meta.get("leaves", {}).keys()
    ]
    text = (
        "What clients sent to the server, before round 1, before a choice, and with an update. "
        "Beside it every report carries the number of samples, local steps, seconds and bits; a "
        "private run sends only what is listed."
    )
    heads = ("", *OCCASIONS, "uploaded", "choice depends on data", "single uploads must be seen")
    if not rows:
        return Section("What left the clients", [])
    return Section(
        "What left the clients", [Text(text, note=True), Table(heads, rows), *claims(groups)]
    )


def _cells(leaves: Mapping[str, Any]) -> list[str]:
    """Return one method's cells, made of what its selector and its algorithm disclose."""
    selector = leaves["selector"]
    algorithm = leaves["algorithm"]
    who = " and ".join(
        name for name in ("selector", "algorithm") if leaves[name].get("visibility") == "each"
    )
    occasions = [signals_in_words(selector.get(when, {})) for when in OCCASIONS]
    return [
        *occasions,
        signals_in_words(algorithm.get("reported", {})),
        selector.get("choice", ""),
        f"by the {who}" if who else "no",
    ]
