"""One federation as it was inspected."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from motley.core.arrays import Floats
from motley.results.blocks import Picture
from motley.tasks.task import Federation
from motley_advice.heterogeneity.findings import Inspection
from motley_data.column_table import ColumnTable


@dataclass(frozen=True, eq=False)
class InspectedFederation:
    """One federation as it was inspected.

    Parameters
    ----------
    label: file, folder or name that it was given by.
    inspection: its findings.
    facts: name and value of what is known beside them.
    pitfalls: sentences about its experiment, with the key to change.
    classes: picture of who holds which class; None without classes.
    drift: what diagnostics measured over the rounds of runs, name -> (rounds, values).
    clients: name and number of training samples of each, ``[K]``, where clients have names.
    profile_without_outlying: the profile in which outlying clients do not count; None: none is
    outlying.
    columns: how the columns of a table were read; None: it was none.
    toml: an experiment with that table; empty: none.
    """

    label: str
    inspection: Inspection
    facts: Sequence[tuple[str, str]] = ()
    pitfalls: Sequence[str] = ()
    classes: Picture | None = None
    drift: Mapping[str, tuple[Floats, Floats]] = field(default_factory=dict)
    clients: Sequence[tuple[str, int]] = ()
    profile_without_outlying: Mapping[str, float] | None = None
    columns: ColumnTable | None = None
    toml: str = ""


def clients_of(federation: Federation) -> list[tuple[str, int]]:
    """Return the name and the number of training samples of each client; nothing where clients have
    no names."""
    return list(zip(federation.client_names, federation.train.sizes.tolist(), strict=False))
