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
from motley_advice.heterogeneity.findings import OutlyingClient
from motley_advice.inspection.federation import InspectedFederation
from motley_advice.inspection.inspection_page import inspection_page
from motley_report.page import write


@dataclass(frozen=True, eq=False)
class Inspected:
    """One federation or several beside each other.

    Parameters
    ----------
    federations: in the order in which they were given.
    pitfalls: sentences about all their runs together.
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
        populations = (
            f"{federation.inspection.population} clients" for federation in self.federations
        )
        return f"<{type(self).__name__}: {', '.join(populations)}>"

    def _repr_html_(self) -> str:
        """Return profiles, pitfalls and advice as tables, which a notebook shows."""
        profiles = [federation.inspection.profile() for federation in self.federations]
        names = list(dict.fromkeys(name for profile in profiles for name in profile))
        rows = (
            [name, *(f"{profile.get(name, float('nan')):.3g}" for profile in profiles)]
            for name in names
        )
        sentences = [(text,) for text in (*self.all_pitfalls, *self.advice)]
        return html_rows(
            repr(self).strip("<>"),
            rows,
            ["", *(federation.label for federation in self.federations)],
        ) + html_rows("Look out", sentences)

    @property
    def all_pitfalls(self) -> list[str]:
        """The sentences about single experiments, which name theirs where there are several, and
        those about all together."""
        several = len(self.federations) > 1
        own = [
            f"{federation.label}: {text}" if several else text
            for federation in self.federations
            for text in federation.pitfalls
        ]
        return [*own, *self.pitfalls]

    def to_json(self) -> str:
        """Return everything but the pictures as strict JSON."""
        return to_json(
            {
                "federations": [
                    {
                        "label": federation.label,
                        "facts": dict(federation.facts),
                        "pitfalls": list(federation.pitfalls),
                        **(
                            {"clients": [name for name, _ in federation.clients]}
                            if federation.clients
                            else {}
                        ),
                        **({"columns": federation.columns.as_json()} if federation.columns else {}),
                        "outlying": [_outlying(each) for each in federation.inspection.outlying],
                        "profile": {
                            name: _number(value)
                            for name, value in federation.inspection.profile().items()
                        },
                        "inspection": json.loads(federation.inspection.to_json()),
                    }
                    for federation in self.federations
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


def _outlying(client: OutlyingClient) -> dict[str, Any]:
    """Return an outlying client by name; ``row`` is its place in ``per_client`` arrays."""
    fields = dataclasses.asdict(client)
    return {"row": fields.pop("client"), **fields, "name": client.shown}


def _number(value: float) -> Any:
    return value if value == value else None
