"""The table of architectures in reports and on the terminal."""

from __future__ import annotations

import numpy as np
import pytest

import motley
from motley.results.blocks import DASH
from motley.results.by_architecture import by_architecture
from motley.results.terminal import terminal_tables
from motley_report.report import report
from tests.motley.experiments.test_unlike_models import DEEP, SMALL, keys
from tests.motley.results import fake


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two seeds; a step on the first model takes a second."""
    folder = tmp_path_factory.mktemp("runs")
    more = {
        "models": {"of": [DEEP, SMALL], "share": [0.34, 0.66]},
        "local": {"steps": 2, "batch_size": 64, "optimizer": {"name": "sgd", "lr": 0.1}},
        "device": {"name": "constant", "seconds": 1.0},
        "algorithm": "fml",
    }
    return [motley.run(keys(seed=seed, **more), out=folder / str(seed)) for seed in (0, 1)]


def test_a_row_for_each_architecture(runs):
    table = by_architecture({"fml": runs})
    assert table.heads[1:3] == ("clients", "parameters")
    assert [row.label for row in table.rows] == ["0 mlp", "1 mlp"]
    assert [row.cells[0].value for row in table.rows] == [2.0, 4.0]
    assert [row.cells[1].text for row in table.rows] == ["644", "610"]
    holders = np.array(runs[0].meta["architectures"]["holders"])
    assert holders.tolist() == [1, 0, 1, 1, 0, 1]
    for number, row in enumerate(table.rows):
        each = [
            100 * np.array(run.client_table()["accuracy"].to_pylist())[holders == number]
            for run in runs
        ]
        assert row.cells[2].value == pytest.approx(np.mean([own.mean() for own in each]))
        assert row.cells[3].value == pytest.approx(np.mean([own.min() for own in each]))


def test_a_dispatch_costs_what_was_billed(runs):
    """The common model is the second, of 610 weights of 32 bits down and, with the length of its
    packet, up. Passes take 620 and 592 operations: two steps of both models 2 (1 + 592 / 620) and
    4 * 592 / 620 s."""
    first, second = by_architecture({"fml": runs}).rows
    bits = [run.column("clients", "bits_down") + run.column("clients", "bits_up") for run in runs]
    assert first.cells[4].value == second.cells[4].value
    assert first.cells[4].value == pytest.approx(np.mean([b.mean() for b in bits]) / 8e6)
    assert 2 * 610 * 32 <= bits[0][0] < 1.02 * 2 * 610 * 32
    assert first.cells[5].value == pytest.approx(2 * (1 + 592 / 620))
    assert second.cells[5].value == pytest.approx(4 * 592 / 620)


def test_a_seed_that_was_ruined_is_not_left_out():
    held = {"names": ["mlp"], "parameters": [610], "holders": [0, 0]}
    runs = [
        fake.of_losses([2.0, loss], [loss, loss], seed=seed, architectures=held)
        for seed, loss in enumerate((0.4, float("nan")))
    ]
    for run in runs:
        run.tables["clients"] = fake.table("clients", client=[0, 1], bits_up=[8e6, 8e6])
    (row,) = by_architecture({"fedavg": runs}).rows
    assert [cell.text for cell in row.cells[:5]] == ["2.00", "610", DASH, DASH, "1.00"]
    (row,) = by_architecture({"fedavg": runs[:1]}).rows
    assert row.cells[2].value == 0.4


def test_it_is_shown_in_the_report_and_on_the_terminal(runs, tmp_path):
    titles = [str(table.title) for table in terminal_tables(runs)]
    assert "by architecture" in titles
    page = report(runs, tmp_path / "page.html").read_text(encoding="utf-8")
    assert "By architecture" in page


def test_runs_of_one_model_have_none(tmp_path):
    alike = {k: v for k, v in keys(algorithm="fedavg").items() if k != "models"}
    run = motley.run({**alike, "stop": {"rounds": 1}}, out=tmp_path)
    assert "architectures" not in run.meta
    assert by_architecture({"fedavg": [run]}) is None
