"""The page of an inspection, made of the blocks of reports: profile, findings, pictures, pitfalls,
and the federated ways."""

from __future__ import annotations

from collections.abc import Sequence
from math import isnan, nan

from motley.core.client_names import name_of
from motley.experiments.folder_names import slug
from motley.results.blocks import (
    DASH,
    Block,
    BulletList,
    Code,
    Page,
    Section,
    Table,
    TableCell,
    TableRow,
    Text,
    non_empty,
)
from motley_advice.heterogeneity.findings import PROFILE, Finding
from motley_advice.inspection.federation import InspectedFederation
from motley_advice.inspection.pictures import client_curves, drift_curves, profile_bars
from motley_advice.inspection.words import bytes_in_words, interval_text, title, value_text
from motley_report.column_section import column_section

SYSTEM = (
    "speed_spread",
    "step_s",
    "link_spread",
    "up_mbps",
    "availability",
    "availability_bias",
    "waiting",
    "round_s",
    "dropouts",
    "probe_all_bytes",
    "probe_all_s",
)
"""Findings about speed, links and absence, in the order in which they are shown."""
_DRIFT = (
    "drift",
    "drift_by_chance",
    "B2",
    "gradient_diversity",
    "gradient_cosine",
    "update_cosine",
)


def inspection_page(
    federations: Sequence[InspectedFederation], pitfalls: Sequence[str], advice: Sequence[str]
) -> Page:
    """Return the page of an inspection.

    Parameters
    ----------
    pitfalls, advice: sentences, at the page's beginning.
    """
    labels = [federation.label for federation in federations]
    data, system, drift = finding_names(federations)
    blocks = non_empty(
        _outlying(federations),
        _columns(federations),
        *columns_read(federations),
        BulletList(pitfalls, "Pitfalls, and the key to change") if pitfalls else None,
        Section("What calls for what", [BulletList(advice)]) if advice else None,
        *_experiments(federations),
        Section("At a glance", non_empty(profile_bars(federations), _profile_table(federations))),
        _section("How the data differs", federations, data, _classes(federations)),
        *client_sections(federations),
        _section("Speed, links and absence", federations, system),
        _section(
            "Drift",
            federations,
            drift,
            [picture for picture in [drift_curves(federations)] if picture],
        ),
        _federated(federations),
        Section("Notes", [BulletList(notes)]) if (notes := _notes(federations)) else None,
    )
    name = labels[0] if len(labels) == 1 else " and ".join(labels)
    return Page(
        f"Inspection of {name}", _facts(federations), blocks, labels if len(labels) > 1 else ()
    )


def _outlying(federations: Sequence[InspectedFederation]) -> Section | None:
    """Return the outlying clients as a table; None without any."""
    several = len(federations) > 1
    rows = [
        TableRow(
            f"{federation.label}: {each.shown}" if several else each.shown,
            [TableCell(cell or DASH) for cell in cells],
        )
        for federation in federations
        for each in federation.inspection.outlying
        for cells in [(each.kind, ", ".join(each.columns), each.said, each.remedy)]
    ]
    heads = ("client", "kind", "columns", "what was found", "what to do")
    return Section("Outlying clients", [Table(heads, rows)]) if rows else None


def _columns(federations: Sequence[InspectedFederation]) -> Section | None:
    """Return the columns in which clients differ as a table; None without any."""
    several = len(federations) > 1
    rows = [
        TableRow(
            f"{federation.label}: {each.column}" if several else each.column,
            [TableCell(each.said.removeprefix(f"{each.column}: ")), _number(each.size)],
        )
        for federation in federations
        for each in federation.inspection.columns
    ]
    heads = ("column", "how clients differ", "deviation of clients")
    return Section("Columns in which clients differ", [Table(heads, rows)]) if rows else None


def columns_read(federations: Sequence[InspectedFederation]) -> list[Section]:
    """Return a section on how each column was read, for each federation of a table."""
    several = len(federations) > 1
    return [
        column_section(
            federation.columns.rows, federation.columns.remarks, federation.label if several else ""
        )
        for federation in federations
        if federation.columns is not None
    ]


def experiment_lines(federation: InspectedFederation) -> str:
    """Return what to do with the experiment of a federation's table; empty where there is none."""
    file = f"{slug(federation.label)}.toml"
    return federation.toml and (
        f"As {file}, then: motley compare {file} --over algorithm.name=fedavg,scaffold "
        "--seeds 0,1,2"
    )


def _experiments(federations: Sequence[InspectedFederation]) -> list[Section]:
    """Return a section with an experiment, for each federation of a table with a client column."""
    several = len(federations) > 1
    title = "An experiment with this table"
    return [
        Section(
            f"{title}: {federation.label}" if several else title,
            [Text(experiment_lines(federation)), Code(federation.toml)],
        )
        for federation in federations
        if federation.toml
    ]


def finding_names(
    federations: Sequence[InspectedFederation],
) -> tuple[list[str], list[str], list[str]]:
    """Return the names of all findings about data, about the system and about drift."""
    names = list(
        dict.fromkeys(name for federation in federations for name in federation.inspection.findings)
    )
    drift = [name for name in names if name.removesuffix("_after") in _DRIFT]
    system = [name for name in SYSTEM if name in names]
    return [name for name in names if name not in (*drift, *system)], system, drift


def _facts(federations: Sequence[InspectedFederation]) -> list[tuple[str, str]]:
    """Return the facts under the title; of several federations one value each, or one for all."""
    names = list(dict.fromkeys(name for federation in federations for name, _ in federation.facts))
    each = {
        name: [dict(federation.facts).get(name, DASH) for federation in federations]
        for name in names
    }
    return [
        (name, values[0] if len(set(values)) == 1 else " | ".join(values))
        for name, values in each.items()
    ]


def _profile_table(federations: Sequence[InspectedFederation]) -> Table | None:
    """Return the profiles of several federations side by side; None for one, whose bars say it
    all."""
    if len(federations) < 2:
        return None
    profiles = [federation.inspection.profile() for federation in federations]
    measured = [name for name in PROFILE if not all(isnan(profile[name]) for profile in profiles)]
    rows = [
        TableRow(title(name), [_number(profile[name]) for profile in profiles]) for name in measured
    ]
    return Table(("profile", *(federation.label for federation in federations)), rows)


def _section(
    name: str,
    federations: Sequence[InspectedFederation],
    findings: Sequence[str],
    pictures: Sequence[Block] = (),
) -> Section | None:
    """Return a section of findings with its pictures; None without findings."""
    if not findings:
        return None
    if len(federations) == 1:
        table = _one_table(federations[0], findings)
    else:
        table = _side_by_side(federations, findings)
    return Section(name, [*non_empty(*pictures, client_curves(federations, findings, name)), table])


MOST = 50
"""Clients that are listed by name, at most."""


def client_sections(federations: Sequence[InspectedFederation]) -> list[Section]:
    """Return a table for each federation whose clients have names: what was measured of each; the
    largest where there are many."""
    several = len(federations) > 1
    return [
        Section(
            f"Client by client: {federation.label}" if several else "Client by client",
            [_client_table(federation)],
        )
        for federation in federations
        if federation.clients
    ]


def _client_table(federation: InspectedFederation) -> Table:
    names = [name for name, _ in federation.clients]
    sizes = [size for _, size in federation.clients]
    per_client = [
        (finding, finding.per_client)
        for finding in federation.inspection.findings.values()
        if finding.per_client is not None
    ]
    varying = [
        (finding, values.tolist())
        for finding, values in per_client
        if len(set(values.tolist())) > 1
    ]
    shown = sorted(sorted(range(len(names)), key=lambda k: -sizes[k])[:MOST])
    rows = []
    for k in shown:
        cells = [
            TableCell(value_text(finding, values[k]), values[k]) for finding, values in varying
        ]
        rows.append(TableRow(name_of(k, names), [TableCell(f"{sizes[k]:,}", sizes[k]), *cells]))
    note = f"The {MOST} with most samples, of {len(names):,}." if len(names) > MOST else ""
    return Table(
        ("client", "training samples", *(title(finding.name) for finding, _ in varying)), rows, note
    )


def _one_table(federation: InspectedFederation, names: Sequence[str]) -> Table:
    """Return the findings of one federation with intervals and sentences."""
    rows = []
    for name in names:
        finding = federation.inspection[name]
        cells = [
            TableCell(value_text(finding), finding.value),
            TableCell(interval_text(finding) or DASH),
            TableCell(finding.how),
        ]
        rows.append(TableRow(title(name), [*cells, TableCell(finding.note or DASH)]))
    return Table(("finding", "value", "95% interval", "how", "in words"), rows)


def _side_by_side(federations: Sequence[InspectedFederation], names: Sequence[str]) -> Table:
    """Return the same findings of several federations, a column each, with intervals in
    brackets."""
    rows = []
    for name in names:
        findings = [federation.inspection.findings.get(name) for federation in federations]
        rows.append(TableRow(title(name), [_cell(finding) for finding in findings]))
    return Table(
        ("finding", *(federation.label for federation in federations)),
        rows,
        "In brackets: 95% intervals, where the number is an estimate.",
    )


def _cell(finding: Finding | None) -> TableCell:
    if finding is None:
        return TableCell(DASH)
    interval = interval_text(finding)
    return TableCell(value_text(finding) + (f" ({interval})" if interval else ""), finding.value)


def _number(value: float) -> TableCell:
    return TableCell(DASH if isnan(value) else f"{value:.3f}", value)


def _classes(federations: Sequence[InspectedFederation]) -> list[Block]:
    return [federation.classes for federation in federations if federation.classes is not None]


def _notes(federations: Sequence[InspectedFederation]) -> list[str]:
    several = len(federations) > 1
    return [
        f"{federation.label}: {text}" if several else text
        for federation in federations
        for text in federation.inspection.notes
    ]


def _federated(federations: Sequence[InspectedFederation]) -> Section | None:
    """Return what each number takes where samples stay with the clients; of the first federation
    that has it."""
    first_of: dict[str, tuple[Finding, int]] = {}
    for federation in federations:
        for name, finding in federation.inspection.findings.items():
            if finding.needs:
                first_of.setdefault(name, (finding, federation.inspection.population))
    rows = []
    for name, (finding, population) in first_of.items():
        each = finding.federated_bytes
        size = [TableCell(DASH)] * 2
        if each is not None:
            size = [
                TableCell(bytes_in_words(each), float(each)),
                TableCell(bytes_in_words(each * population), each * population),
            ]
        measured = "" if finding.measured else "not measured here"
        way = finding.federated or "nobody can"
        rows.append(
            TableRow(
                title(name),
                [TableCell(finding.needs), TableCell(way), *size, TableCell(measured, nan)],
            )
        )
    heads = (
        "finding",
        "what must leave a client",
        "without moving samples",
        "a client",
        "all clients",
        "",
    )
    intro = Text(
        "All numbers above were computed where all samples lie in one place. In a deployment they "
        "do not; this is what each number takes there."
    )
    return (
        Section("The same numbers in a deployment", [intro, Table(heads, rows)]) if rows else None
    )
