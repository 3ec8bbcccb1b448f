"""The work that the plain loop is given beside a whole comparison."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

ROOT = Path(__file__).parents[3]


def test_the_loop_gets_the_clients_of_every_round_or_says_whose_steps_differ(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    from comparison import trained_clients

    for run, steps in (("a", [15, 20, 5]), ("b", [15, 20, 5])):
        (tmp_path / run).mkdir()
        # five epochs of 48, 49 and 16 samples in batches of 16
        columns = {"round": [1, 1, 2], "num_examples": [48, 49, 16], "local_steps": steps}
        pq.write_table(pa.table(columns), tmp_path / run / "clients.parquet")
    assert trained_clients(tmp_path) == [[48, 49], [16], [48, 49], [16]]
    pq.write_table(
        pa.table({**columns, "local_steps": [15, 20, 6]}), tmp_path / "b/clients.parquet"
    )
    with pytest.raises(ValueError, match="6 steps on 16 samples"):
        trained_clients(tmp_path)
