"""What leaves a client, in words, and the claims of private runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from motley.results.blocks import BulletList
from motley.results.load import Run

OCCASIONS = ("enrolled", "probed", "reported")
_ADDED = {"data": "", "size": " (follows sizes)", "public": " (public)"}
_SEES = {
    "sum": "the sum of updates is enough",
    "each": "single uploads, or numbers made of them, must be seen",
}


def signals_in_words(sent: Mapping[str, str]) -> str:
    """Return the names of what is sent, each with what it follows where that is not the client's
    data; a dash for nothing."""
    return ", ".join(f"{name}{_ADDED[kind]}" for name, kind in sent.items()) or "-"


def leaving(disclosure: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the lines (what, in words) of one component's disclosure, a mapping with the fields of
    :class:`motley.experiments.disclosure.Disclosure`; occasions at which nothing is sent are left
    out."""
    lines = [(when, signals_in_words(disclosure[when])) for when in OCCASIONS if disclosure[when]]
    choice = [("choice on data", disclosure["choice"])] if disclosure.get("choice") else []
    return [
        *lines,
        *choice,
        ("seen", _SEES[disclosure["visibility"]]),
        ("differential privacy", disclosure["private"]),
    ]


def claims(groups: Mapping[str, Sequence[Run]]) -> list[BulletList]:
    """Return the claim of differential privacy of each method (label to runs) as a list, of the run
    that counts most runs on its data; without the methods that claim none."""
    records = {
        label: [run.meta["privacy"] for run in members if run.meta.get("privacy")]
        for label, members in groups.items()
    }
    return [
        BulletList(max(claimed, key=_counted)["claim"], f"Differential privacy: {label}")
        for label, claimed in records.items()
        if claimed
    ]


def _counted(record: Mapping[str, Any]) -> int:
    """Return how many private runs on its data a run's claim adds up; 0 where it adds none."""
    return int(record.get("all_runs", {}).get("runs", 0))
