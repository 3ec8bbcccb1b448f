"""The figures that ``.plot()`` of a run and of a comparison return."""

from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import motley
from motley.core import extensions
from motley.core.errors import ConfigError
from motley.experiments import sweep
from motley_report.curve_figure import curve_figure
from tests.motley.experiments.test_shown import KEYS
from tests.motley.results.fake import two_rounds


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return motley.compare(
        KEYS,
        {"selector.name": ["uniform", "oort"]},
        seeds=[0, 1],
        out=tmp_path_factory.mktemp("who"),
    )


def test_figures_have_a_line_per_method_at_the_evaluations(found: Any) -> None:
    figure = found.plot(over="virtual_seconds")
    assert figure._repr_png_().startswith(b"\x89PNG")
    (axes,) = figure.axes
    assert [line.get_label() for line in axes.lines] == ["uniform", "oort"]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("virtual time (s)", "loss")
    one = found.runs[2]
    (axes,) = one.plot("loss", over="traffic").axes
    rows = one.column("evaluations", "scope") == "mean"
    np.testing.assert_allclose(axes.lines[0].get_ydata(), one.column("evaluations", "loss")[rows])
    np.testing.assert_allclose(
        axes.lines[0].get_xdata(), one.column("evaluations", "total_bits")[rows] / 8e6
    )
    with pytest.raises(
        ConfigError, match=r"metric: no evaluation has 'los' \(did you mean 'loss'\?\)"
    ):
        found.plot("los")
    with pytest.raises(
        ConfigError, match=r"over: got 'seconds'.*expected one of: rounds, virtual_seconds, traffic"
    ):
        found.plot(over="seconds")
    with pytest.raises(ConfigError, match="runs: there are no finished runs to draw"):
        sweep.Comparison([], [], Path()).plot()


def test_time_of_a_deployment_is_called_wall_time() -> None:
    (axes,) = curve_figure({"by hand": [two_rounds()]}, over="virtual_seconds").axes
    assert axes.get_xlabel() == "wall time (s)"


def test_without_motley_report_both_say_what_draws_them(
    found: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(extensions, "_entry_points", lambda: metadata.EntryPoints(()))
    for shown in (found, found.runs[0]):
        with pytest.raises(
            ConfigError, match=r"^'plot' comes with motley-report, .*/packages/motley-report$"
        ):
            shown.plot()
