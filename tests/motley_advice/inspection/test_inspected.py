"""What an inspection shows in a notebook."""

from __future__ import annotations

import types
from typing import Any

from motley_advice.inspection.inspected import Inspected


def test_a_notebook_shows_the_profile_and_the_pitfalls() -> None:
    inspection = types.SimpleNamespace(population=3, profile=lambda: {"availability": 0.5})
    one: Any = types.SimpleNamespace(
        label="mine", pitfalls=["few test samples"], inspection=inspection
    )
    shown = Inspected([one])._repr_html_()
    assert "<td>availability</td><td>0.5</td>" in shown
    assert "<td>few test samples</td>" in shown
