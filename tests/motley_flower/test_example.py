"""The example's server and client in one process; real processes must give the same results
(test_real)."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

import pytest

from motley.selectors import Selector
from tests.motley_flower.conftest import HERE
from tests.motley_flower.fake_grid import FakeGrid, FakeNode

pytestmark = pytest.mark.skipif(
    not HERE, reason="Flower is not installed; make test-flower runs these"
)

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "flower"


def in_process(folder, **changes):
    """The app as ``flwr run`` runs it, on a grid in this process."""
    from flwr.app import Context, RecordDict

    sys.path.insert(0, str(FOLDER))
    try:
        from digits_app import client_app, server_app
    finally:
        sys.path.remove(str(FOLDER))
    config = tomllib.loads((FOLDER / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]
    config |= {"results": str(folder), **changes}
    nodes = {
        70 - k: FakeNode(client_app.app, {"partition-id": k, "num-partitions": 3}, delay_s=0)
        for k in range(3)
    }
    grid = FakeGrid(nodes)
    grid.run_config = config
    server_app.app(
        grid,
        Context(
            run_id=1, node_id=1, node_config={}, state=RecordDict(), run_config=config, series_id=1
        ),
    )
    return grid


@pytest.mark.parametrize("name", ["hetero_select_v1", "flash", "oort", "uniform"])
def test_the_example_runs_with_selectors_of_several_kinds(name, tmp_path):
    if name == "oort":
        from motley.core.errors import ConfigError

        # which the example does not send; it says which key to add
        with pytest.raises(ConfigError, match="loss_rms"):
            in_process(tmp_path, selector=name)
        return
    in_process(tmp_path, selector=name)
    table = (tmp_path / "participation.txt").read_text()
    assert table.count("accepted") == (11 if name == "flash" else 10)  # FLASH asks everybody first
    assert Selector.from_bytes((tmp_path / "run" / "selector.bin").read_bytes()).rule
    again = tmp_path / "again"
    in_process(again, selector=name)
    assert (again / "model.txt").read_text() == (tmp_path / "model.txt").read_text()


def test_server_and_client_are_a_page_each():
    for name in ("server_app", "client_app"):
        assert len((FOLDER / "digits_app" / f"{name}.py").read_text().splitlines()) < 85
