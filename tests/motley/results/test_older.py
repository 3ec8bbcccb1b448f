"""Files that an older Motley wrote (a commit from before the round loop was one for simulations and
deployments) are read."""

from pathlib import Path

import numpy as np

from motley.results import measures
from motley.results.load import load
from motley.results.report import report
from motley.results.schema import TABLES
from motley.selectors.selector import Selector

OLDER = Path(__file__).parent / "older"


def test_a_finished_run_of_an_older_version_is_read_and_reported(tmp_path):
    run = load(OLDER / "run")
    assert (run.name, run.finished, run.tables["rounds"].num_rows) == ("older", True, 3)
    assert {name: table.schema for name, table in run.tables.items()} == TABLES
    assert measures.participation(run).counts.sum() == 6  # two clients in each of three rounds
    assert "older" in report([run], tmp_path / "report.html").read_text()


def test_the_state_of_a_selector_goes_on_where_the_older_version_would():
    selector = Selector.from_bytes((OLDER / "selector.bin").read_bytes())
    # the older version, which had observed clients 3 and 2 in round 1, chose these with the same
    # bytes
    assert selector.select(2, np.arange(6), m=2).ids.tolist() == [3, 1]


def test_the_file_of_a_client_of_an_older_deployment_is_read(tmp_path):
    import torch

    from motley_flower.deployed.client_state import ClientStateFile

    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "client-7.safetensors").write_bytes(
        (OLDER / "client-7.safetensors").read_bytes()
    )
    state, forgot = ClientStateFile(tmp_path, "run", 7, {"c": torch.zeros(3)}).take(4)
    assert (state["c"].tolist(), forgot) == ([2.5] * 3, False)
