"""A table with gaps and words through a whole run: what is billed, what is refused, the same bits
after an interruption."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from motley.core.errors import ConfigError, DataError
from motley.experiments.build import build
from motley.experiments.run import run
from motley_data.table_preparation import TablePreparation


@pytest.fixture
def file(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    rows = ["age,smoker,id,hospital,outcome"]
    for i in range(120):
        age = "" if i % 11 == 0 else f"{rng.normal(50, 10):.1f}"
        smoker = "" if i % 7 == 0 else ("yes", "no", "former")[int(rng.integers(3))]
        rows.append(
            f"{age},{smoker},p{i},{'ABCD'[i % 4]},{'ill' if rng.random() < 0.5 else 'well'}"
        )
    path = tmp_path / "patients.csv"
    path.write_text("\n".join(rows) + "\n")
    return path


def _keys(file: Path, rounds: int = 2, **task: Any) -> dict[str, Any]:
    options = {
        "name": "tabular",
        "data": str(file),
        "client": "hospital",
        "label": "outcome",
        "drop": ["id"],
        **task,
    }
    return {
        "cohort": 2,
        "stop": {"rounds": rounds},
        "partition": "by_writer",
        "task": options,
        "evaluate": {"every": 1},
    }


def test_the_exchange_is_billed_once_in_both_accounts(file: Path, tmp_path: Path) -> None:
    """Every hospital has rows of all three words and a gap among its training rows: 64 for the
    number of rows, 3 * 64 for age, and (24 + 64) + (32 + 64) + (56 + 64) + (8 + 64) bits for no,
    yes, former and the gap; down come the mean and the deviation, and the words no, yes, former,
    missing and the word missing that fills gaps."""
    loop = build(_keys(file, scale="federated"))
    loop.step()
    up = 64 + 192 + 88 + 96 + 120 + 72
    down = 2 * 64 + 24 + 32 + 56 + 64 + 64
    ledger = loop.state.ledger
    assert (ledger.total("enrol", "up"), ledger.total("enrol", "down")) == (4 * up, 4 * down)
    uploads = ledger.paper_bits - 4 * up
    assert uploads == 2 * loop.channel.paper_bits, (
        "the papers' account counts the exchange and the two uploads"
    )
    done = run(_keys(file), out=tmp_path / "run")
    assert done.column("evaluations", "total_bits")[0] == 4 * (up + down), "known at round 0"
    assert done.column("evaluations", "total_up_paper_bits")[0] == 4 * up
    assert done.meta["task"]["notes"]["statistics"].startswith(
        f"4 clients sent statistics of their training rows once: {4 * up:,} bits"
    )


def test_the_model_takes_the_inputs_that_were_made(file: Path) -> None:
    data = build(_keys(file)).federation
    assert isinstance(data.preparation, TablePreparation)
    inputs = data.preparation.save()["inputs"]
    assert inputs == ["age", "smoker=former", "smoker=missing", "smoker=no", "smoker=yes"]
    assert data.x.shape == (120, 5)
    assert data.x.isfinite().all()


def test_an_interrupted_run_ends_with_the_same_bits(file: Path, tmp_path: Path) -> None:
    whole = run(_keys(file, rounds=4), out=tmp_path / "whole")

    def stop(done: Any) -> None:
        if done.round == 2:
            raise KeyboardInterrupt

    keys = {**_keys(file, rounds=4), "checkpoint": {"every_rounds": 1}}
    with pytest.raises(KeyboardInterrupt):
        run(keys, out=tmp_path / "cut", on_round=stop)
    cut = run(keys, out=tmp_path / "cut", resume=True)
    for name in ("rounds", "clients", "evaluations", "federation"):
        assert whole.tables[name].equals(cut.tables[name])
    models = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("whole", "cut")]
    assert models[0] == models[1]


def test_engines_agree_on_a_table(file: Path, tmp_path: Path) -> None:
    one = run({**_keys(file, scale="client"), "engine": "sequential"}, out=tmp_path / "1")
    two = run(
        {**_keys(file, scale="client"), "engine": {"name": "processes", "workers": 1}},
        out=tmp_path / "2",
    )
    assert one.tables["evaluations"].equals(two.tables["evaluations"])


def test_samples_of_the_server_are_prepared_like_the_clients_and_never_measured(file: Path) -> None:
    keys = {
        **_keys(file),
        "split": {"server": 0.2, "test": "global"},
        "public": 0.1,
        "algorithm": "feddf",
    }
    data = build(keys).federation
    assert data.server is not None
    assert data.public is not None
    assert (data.server[0].shape[1], data.public.shape[1]) == (5, 5)
    assert isinstance(data.preparation, TablePreparation)
    ages = data.x[data.train.values, 0].double()
    assert abs(float(ages.mean())) < 1e-6, "the mean of training rows alone"


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        (
            {"task": {"scale": "none"}},
            DataError,
            r"row 1 of .*: NaN in age .* and words in 'smoker' \(for example",
        ),
        ({"task": {"drop": []}}, DataError, r"column 'id' holds another word in every row"),
        (
            {"task": {"impute": "median"}},
            ConfigError,
            r'task: impute: got "median" with scale = "standard", and sums of clients',
        ),
        ({"task": {"scale": "fedrated"}}, ConfigError, r"task.scale: .*federated"),
        (
            {"task": {"scale": "client"}, "split": {"test": "global"}},
            ConfigError,
            r'task.scale: got "client", and some rows',
        ),
    ],
)
def test_what_cannot_be_is_refused(
    file: Path, change: dict[str, Any], error: type[Exception], words: str
) -> None:
    keys = _keys(file)
    keys |= {**change, "task": {**keys["task"], **change["task"]}}
    with pytest.raises(error, match=words):
        build(keys)
