"""What an inspection found: one entry per federation, its pitfalls and those of the whole, as JSON,
terminal page or file."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from typing_extensions import override

from motley.core.card import html_rows
from motley.core.strict_json import to_json
from motley.results.blocks import Page
from motley.results.page import write
from motley_advice.heterogeneity.findings import OutlyingClient
from motley_advice.inspection.federation import InspectedFederation
from motley_advice.inspection.inspection_page import inspection_page

__all__ = ["Inspected"]


@dataclass(frozen=True, eq=False)
class Inspected:
    """One federation or several beside each other.

    Parameters
    ----------
    federations: in the order in which they were given. pitfalls: sentences about all their runs
    together.
    advice: at most five lines on what calls for what.

    Example
    -------
    >>> import motley
    >>> task = {"name": "tabular", "data": "iris"}
    >>> keys = {"task": task, "population": 5, "cohort": 2, "stop": {"rounds": 1}}
    >>> found = motley.inspect(keys)
    >>> found
    <Inspected: 5 clients>
    >>> round(found.federations[0].inspection["availability"].value, 2)
    1.0
    """

    federations: Sequence[InspectedFederation]
    pitfalls: Sequence[str] = ()
    advice: Sequence[str] = ()

    @override
    def __repr__(self) -> str:
        return (
            f"<{type(self).__name__}: "
            f"{', '.join(f'{one.inspection.population} clients' for one in self.federations)}>"
        )

    def _repr_html_(self) -> str:
        """Return profiles, pitfalls and advice as tables, which a notebook shows."""
        profiles = [one.inspection.profile() for one in self.federations]
        names = list(dict.fromkeys(name for profile in profiles for name in profile))
        rows = (
            [name, *(f"{profile.get(name, float('nan')):.3g}" for profile in profiles)]
            for name in names
        )
        said = [(text,) for text in (*self.all_pitfalls, *self.advice)]
        return html_rows(
            repr(self).strip("<>"), rows, ["", *(one.label for one in self.federations)]
        ) + html_rows("Look out", said)

    @property
    def all_pitfalls(self) -> list[str]:
        """The sentences about single experiments, which name theirs where there are several, and
        those about all together."""
        several = len(self.federations) > 1
        own = [
            f"{one.label}: {text}" if several else text
            for one in self.federations
            for text in one.pitfalls
        ]
        return [*own, *self.pitfalls]

    def to_json(self) -> str:
        """Return everything but the pictures as strict JSON."""
        return to_json(
            {
                "federations": [
                    {
                        "label": one.label,
                        "facts": dict(one.facts),
                        "pitfalls": list(one.pitfalls),
                        **({"clients": [name for name, _ in one.clients]} if one.clients else {}),
                        **({"columns": one.columns.as_json()} if one.columns else {}),
                        "outlying": [_outlying(each) for each in one.inspection.outlying],
                        "profile": {
                            name: _number(value) for name, value in one.inspection.profile().items()
                        },
                        "inspection": json.loads(one.inspection.to_json()),
                    }
                    for one in self.federations
                ],
                "pitfalls": list(self.pitfalls),
                "advice": list(self.advice),
            },
            indent=1,
        )

    def page(self) -> Page:
        """Return the page."""
        return inspection_page(self.federations, self.all_pitfalls, self.advice)

    def write(self, out: str | Path) -> Path:
        """Write the page to a file and return its path.

        Parameters
        ----------
        out: ``.html`` holds everything, ``.md`` has its pictures in a folder beside it.

        Raises
        ------
        ConfigError: ``out`` has another suffix. StoreError: it cannot be written.
        """
        return write(self.page(), out)


def _outlying(one: OutlyingClient) -> dict[str, Any]:
    """Return an outlying client by name; ``row`` is its place in ``per_client`` arrays."""
    given = dataclasses.asdict(one)
    return {"row": given.pop("client"), **given, "name": one.shown}


def _number(value: float) -> Any:
    return value if value == value else None
