"""The record of an inspection: one :class:`Finding` per number that says how the clients of a
federation differ, and those that are outlying.

An :class:`Inspection` holds the findings of one federation. Its profile is the vector of numbers by
which two federations are compared; its JSON form reads back to the same bits.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import numpy as np

from motley.core.arrays import Floats
from motley.core.errors import DataError, suggest
from motley.core.strict_json import restored, to_json

How = Literal["exact", "estimated", "not measurable"]
"""How a finding's value was got: counted, estimated from samples, or not at all."""

Kind = Literal[
    "units",
    "offset",
    "constant column",
    "swapped labels",
    "random labels",
    "absent class",
    "copied data",
]
"""In what a single client differs from all others."""

PROFILE = (
    "size_gini",
    "largest_share",
    "label_divergence",
    "missing_classes",
    "feature_shift",
    "concept_shift",
    "label_noise",
    "label_noise_spread",
    "duplicates",
    "speed_spread",
    "link_spread",
    "availability",
    "drift",
)
"""Names of the findings by which two federations are compared, in the order of a profile; each is
scaled to about [0, 1]."""

_UNLIKE = 0.03
"""Deviation of clients' rates of label noise that the interval must exceed for clients to
differ."""
_VERSION = 1


@dataclass(frozen=True, eq=False)
class Finding:
    """One measured difference between the clients of a federation.

    Parameters
    ----------
    name: of the finding; the names in :data:`PROFILE` are part of the profile.
    value: the number for the whole federation; NaN where it was not measured.
    low, high: its 95 % interval; NaN without one.
    unit: of value, interval and ``per_client``, e.g. ``"share"`` or ``"bytes"``.
    per_client: the same number for each client, ``[K]``, NaN for clients that were not measured;
    None where there is no such number.
    how: counted from all samples, estimated, or not measurable here.
    needs: what must leave a client for this number.
    federated: how to get it without moving samples; empty where nobody can.
    federated_bytes: bytes per client that this takes, up and down together; None where it is not
    known.
    note: one sentence about the number: what it says, what was sampled, or why it was not measured.

    Example
    -------
    >>> Finding("size_gini", 0.25, unit="share", how="exact").measured
    True
    """

    name: str
    value: float
    low: float = math.nan
    high: float = math.nan
    unit: str = ""
    per_client: Floats | None = None
    how: How = "estimated"
    needs: str = ""
    federated: str = ""
    federated_bytes: int | None = None
    note: str = ""

    def __post_init__(self) -> None:
        if self.how not in get_args(How):
            raise DataError(
                f"finding {self.name!r}: got how = {self.how!r}; expected one of: "
                f"{', '.join(get_args(How))}"
            )
        if self.how == "not measurable" and not math.isnan(self.value):
            raise DataError(
                f"finding {self.name!r}: got the value {self.value} of something not measurable; "
                "expected NaN"
            )

    @property
    def measured(self) -> bool:
        """Whether there is a value."""
        return not math.isnan(self.value)


@dataclass(frozen=True)
class OutlyingClient:
    """A single client that differs from all others, beyond what chance and the other clients'
    differences explain.

    Parameters
    ----------
    client: its number, the row of ``per_client`` arrays.
    kind: in what it differs.
    columns: all input columns with this fault; empty where it is none of columns.
    said: what was found.
    remedy: what to do about it.
    name: the client's own name; empty: it has none.
    """

    client: int
    kind: Kind
    columns: tuple[str, ...]
    said: str
    remedy: str
    name: str = ""

    @property
    def shown(self) -> str:
        """The client's own name; its number where it has none."""
        return self.name or f"client {self.client}"

    @property
    def sentence(self) -> str:
        """The client, what was found and what to do."""
        return f"{self.shown}: {self.said} ({self.kind}): {self.remedy}"


@dataclass(frozen=True)
class DifferingColumn:
    """An input column in which clients differ among themselves, beyond chance and without a single
    odd client.

    Parameters
    ----------
    column: its name.
    said: how clients differ in it.
    size: standard deviation of the clients' mean normal scores within classes, beyond chance.
    """

    column: str
    said: str
    size: float


@dataclass(frozen=True, eq=False)
class Inspection:
    """How the clients of one federation differ.

    Parameters
    ----------
    findings: by name, in the order in which they are shown.
    population: number of clients, K.
    notes: sentences about the whole: what was sampled, which kind of targets the data has.
    outlying: single clients that differ from all others.
    columns: in which the others differ among themselves, the largest difference first.

    Example
    -------
    >>> one = Inspection.of([Finding("size_gini", 0.25, how="exact")], population=10)
    >>> one.profile()["size_gini"], Inspection.from_json(one.to_json())["size_gini"].value
    (0.25, 0.25)
    """

    findings: Mapping[str, Finding]
    population: int
    notes: tuple[str, ...] = field(default=())
    outlying: tuple[OutlyingClient, ...] = ()
    columns: tuple[DifferingColumn, ...] = ()

    @classmethod
    def of(
        cls,
        findings: list[Finding],
        population: int,
        notes: tuple[str, ...] = (),
        outlying: tuple[OutlyingClient, ...] = (),
        columns: tuple[DifferingColumn, ...] = (),
    ) -> Inspection:
        """Return the inspection of findings in this order. Raises DataError if two have the same
        name or a wrong length."""
        named: dict[str, Finding] = {}
        for finding in findings:
            if finding.name in named:
                raise DataError(
                    f"two findings are called {finding.name!r}; give each a name of its own"
                )
            if finding.per_client is not None and finding.per_client.shape != (population,):
                shape = list(finding.per_client.shape)
                raise DataError(
                    f"finding {finding.name!r}: got per_client of shape {shape}; expected one "
                    f"number per client [{population}]"
                )
            named[finding.name] = finding
        return cls(named, population, notes, outlying, columns=columns)

    def __getitem__(self, name: str) -> Finding:
        """Return a finding by its name. Raises DataError if there is none."""
        if name not in self.findings:
            raise DataError(
                f"no finding {name!r}{suggest(name, self.findings)}; there are: "
                f"{', '.join(self.findings)}"
            )
        return self.findings[name]

    def with_findings(self, findings: list[Finding], notes: tuple[str, ...] = ()) -> Inspection:
        """Return this inspection with further findings and notes after its own."""
        return Inspection.of(
            [*self.findings.values(), *findings],
            self.population,
            notes=(*self.notes, *notes),
            outlying=self.outlying,
            columns=self.columns,
        )

    def profile(self) -> dict[str, float]:
        """Return the numbers by which two federations are compared, by name: all of
        :data:`PROFILE`, NaN where not measured."""
        return {
            name: self.findings[name].value if name in self.findings else math.nan
            for name in PROFILE
        }

    def differences(self) -> dict[str, float]:
        """Return the profile as far as clients differ: label noise is the lower end of its interval
        where clients' rates differ for certain, and 0 where all may have the same rate."""
        profile = self.profile()
        if not math.isnan(profile["label_noise"]):
            differ = self.findings["label_noise_spread"].low >= _UNLIKE
            profile["label_noise"] = self.findings["label_noise"].low if differ else 0.0
        return profile

    def to_json(self) -> str:
        """Return the inspection as strict JSON; numbers that are not there are null."""
        findings = [
            {f.name: _plain(getattr(finding, f.name)) for f in dataclasses.fields(finding)}
            for finding in self.findings.values()
        ]
        record = {
            "version": _VERSION,
            "population": self.population,
            "notes": list(self.notes),
            "findings": findings,
            "outlying": [dataclasses.asdict(client) for client in self.outlying],
            "columns": [dataclasses.asdict(column) for column in self.columns],
        }
        return to_json(record)

    @classmethod
    def from_json(cls, text: str) -> Inspection:
        """Return the inspection of a JSON text that :meth:`to_json` wrote. Raises DataError for any
        other text."""
        try:
            record = json.loads(text)
        except ValueError as error:
            raise DataError(f"an inspection is JSON, and this text is not: {error}") from None
        if not isinstance(record, dict) or record.get("version") != _VERSION:
            version = record.get("version") if isinstance(record, dict) else type(record).__name__
            raise DataError(
                f"got version {version!r} of an inspection; expected {_VERSION}, as motley inspect "
                "--json writes it"
            )
        try:
            record = restored(record)
            outlying = tuple(
                OutlyingClient(**{**client, "columns": tuple(client["columns"])})
                for client in record.get("outlying", [])
            )
            return cls.of(
                [_finding(finding) for finding in record["findings"]],
                population=int(record["population"]),
                notes=tuple(record["notes"]),
                outlying=outlying,
                columns=tuple(DifferingColumn(**column) for column in record.get("columns", [])),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise DataError(
                f"this inspection is incomplete ({type(error).__name__}: {error}); write it again"
            ) from None


def _plain(value: Any) -> Any:
    """Return a field's value as JSON has it; a number that was not measured (NaN) is None."""
    if isinstance(value, np.ndarray):
        return [_plain(entry) for entry in value.tolist()]
    plain = value.item() if isinstance(value, np.generic) else value
    return None if isinstance(plain, float) and math.isnan(plain) else plain


def _finding(record: Mapping[str, Any]) -> Finding:
    """Return a finding from its JSON form."""
    read = dict(record)
    for name in ("value", "low", "high"):
        read[name] = math.nan if read[name] is None else float(read[name])
    if read["per_client"] is not None:
        read["per_client"] = np.array(
            [math.nan if number is None else number for number in read["per_client"]], np.float64
        )
    return Finding(**read)
