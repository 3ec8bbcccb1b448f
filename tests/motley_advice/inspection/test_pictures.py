"""Pictures of an inspection: what a bar stands for."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from motley_advice.heterogeneity.findings import Finding, Inspection
from motley_advice.inspection.pictures import profile_bars

pytestmark = pytest.mark.usefixtures("drawn")


def test_a_bar_is_long_where_clients_differ_and_empty_where_all_are_always_there() -> None:
    federations = [
        SimpleNamespace(
            label=str(online),
            inspection=Inspection.of(
                [
                    Finding("size_gini", 0.25, how="exact"),
                    Finding("availability", online, how="estimated"),
                ],
                population=10,
            ),
        )
        for online in (1.0, 0.4)
    ]
    axes = profile_bars(cast("Any", federations)).figure.axes[0]
    assert [text.get_text() for text in axes.get_yticklabels()] == ["sizes: Gini", "absence"]
    assert [bar.get_width() for bar in axes.patches] == pytest.approx([0.25, 0.0, 0.25, 0.6])
