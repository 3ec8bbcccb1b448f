"""The pictures of an inspection: profiles side by side, what each client has, and drift over
rounds; a colour per federation."""

from __future__ import annotations

from collections.abc import Sequence
from math import isnan

import numpy as np

from motley.core.arrays import Floats
from motley.results.blocks import Picture
from motley_advice.heterogeneity.findings import PROFILE
from motley_advice.inspection.federation import InspectedFederation
from motley_advice.inspection.words import title, value_text
from motley_report.figures import (
    colour,
    columns_of,
    dash,
    draw_line,
    mark,
    new_figure,
    styled,
    to_svg,
    whole_numbers,
)

_ABOVE = 0.05
"""Share of an axis that is free above a curve."""
POINTS = 200
"""Points of a curve over clients, at most."""


def profile_bars(federations: Sequence[InspectedFederation]) -> Picture:
    """Draw the measured numbers of the profiles as bars from 0 to 1, a group for each number.
    Availability is drawn as its rest to 1, *absence*: a bar is long where clients differ."""
    profiles = [federation.inspection.profile() for federation in federations]
    names = [name for name in PROFILE if any(not isnan(profile[name]) for profile in profiles)]
    height = 0.8 / len(federations)
    with styled():
        figure = new_figure(8.4, 0.8 + 0.22 * len(names) * (1 + 0.5 * (len(federations) - 1)))
        axes = figure.add_subplot()
        for i, profile in enumerate(profiles):
            for y, name in enumerate(names):
                at = y + (i - (len(federations) - 1) / 2) * height
                value = profile[name]
                if isnan(value):
                    continue
                finding = federations[i].inspection[name]
                absent = name == "availability"
                bar = axes.barh(at, 1 - value if absent else value, height, color=colour(i))[0]
                mark(bar, i, f"{title(name)} {value_text(finding)}")
                if not isnan(finding.low):
                    ends = [finding.low, finding.high]
                    draw_line(
                        axes,
                        i,
                        [1 - end for end in ends] if absent else ends,
                        [at, at],
                        style={"color": "#222222", "linewidth": 1.2},
                    )
        axes.set_yticks(
            range(len(names)),
            ["absence" if name == "availability" else title(name) for name in names],
        )
        axes.invert_yaxis()
        axes.grid(visible=False, axis="y")
        axes.set(
            xlim=(0, 1.02),
            title="0: all alike; 1: as different as can be",
        )
        return to_svg(
            figure,
            "profile",
            f"Profile of {', '.join(federation.label for federation in federations)}",
        )


def client_curves(
    federations: Sequence[InspectedFederation], names: Sequence[str], about: str
) -> Picture | None:
    """Draw findings with a number per client: clients in order of their number, from the least to
    the most; None without any that differ. The number of a client's group has no order."""
    shown = [
        name
        for name in names
        if name != "domains"
        and _differs([_per_client(federation, name) for federation in federations])
    ]
    if not shown:
        return None
    columns = columns_of(len(shown))
    rows = -(-len(shown) // columns)
    with styled():
        figure = new_figure(8.4, 2.4 * rows)
        panels = figure.subplots(rows, columns, squeeze=False).ravel().tolist()
        for axes, name in zip(panels, shown, strict=False):
            unit = ""
            for i, federation in enumerate(federations):
                values = _per_client(federation, name)
                if values is None:
                    continue
                unit = federation.inspection[name].unit
                x, y = _curve(values)
                (line,) = axes.plot(
                    x, y, color=colour(i), linestyle=dash(i), label=federation.label
                )
                mark(line, i, federation.label)
            axes.set_title(title(name))
            axes.set_ylabel(unit)
            axes.set_xlabel("clients, lowest first (%)")
            if unit in ("share", "cosine") or name == "availability":
                bottom, top = axes.get_ylim()
                lowest = min(0.0, bottom)
                # so far above the curve that its end is not on the frame
                axes.set_ylim(lowest, top + _ABOVE * (top - lowest))
        for axes in panels[len(shown) :]:
            axes.set_visible(False)
        return to_svg(figure, "clients", f"{about}: each client's number, lowest first")


def drift_curves(federations: Sequence[InspectedFederation]) -> Picture | None:
    """Draw what diagnostics measured over the rounds of runs; None without any."""
    names = list(dict.fromkeys(name for federation in federations for name in federation.drift))
    if not names:
        return None
    with styled():
        figure = new_figure(8.4, 2.4 * -(-len(names) // 3))
        panels = (
            figure.subplots(-(-len(names) // 3), min(3, len(names)), squeeze=False).ravel().tolist()
        )
        for axes, name in zip(panels, names, strict=False):
            for i, federation in enumerate(federations):
                if name in federation.drift:
                    rounds, values = federation.drift[name]
                    draw_line(
                        axes,
                        i,
                        rounds,
                        values,
                        style={"linestyle": dash(i)},
                        text=federation.label,
                    )
            axes.set_title(name)
            axes.set_xlabel("round")
            whole_numbers(axes)
        for axes in panels[len(names) :]:
            axes.set_visible(False)
        return to_svg(figure, "drift", "Drift over rounds")


def _per_client(federation: InspectedFederation, name: str) -> Floats | None:
    """Return the finite numbers per client of a finding; None where there are none."""
    finding = federation.inspection.findings.get(name)
    if finding is None or finding.per_client is None:
        return None
    finite = finding.per_client[np.isfinite(finding.per_client)]
    return finite if len(finite) else None


def _differs(per_federation: Sequence[Floats | None]) -> bool:
    """Return whether there is more than one number to draw."""
    present = [values for values in per_federation if values is not None]
    return bool(present) and float(np.ptp(np.concatenate(present))) > 0


def _curve(values: Floats) -> tuple[Floats, Floats]:
    """Return the percentages of clients and their sorted numbers, at most :data:`POINTS` of
    them."""
    ordered = np.sort(values)
    at = np.unique(
        np.linspace(0, len(ordered) - 1, min(POINTS, len(ordered))).round().astype(np.int64)
    )
    return 100.0 * (at + 0.5) / len(ordered), ordered[at]
