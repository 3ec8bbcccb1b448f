"""What the comparison with PFLlib computes of a run, without PFLlib."""

from __future__ import annotations

import json
from argparse import Namespace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from benchmarks import pfllib


@pytest.mark.parametrize(
    ("data", "parameters", "side"), [("mnist", 582_026, 28), ("cifar10", 878_538, 32)]
)
def test_the_network_is_pfllibs(data: str, parameters: int, side: int) -> None:
    """On 28 x 28: 26 x 32 + 801 x 64 + 1,025 x 512 + 513 x 10 = 582,026; the head has 5,130."""
    import torch

    network = pfllib.network(pfllib.DATA[data])
    sizes = [parameter.numel() for parameter in network.parameters()]
    assert sum(sizes) == parameters
    assert sum(sizes[-2:]) == 5_130
    assert network(torch.zeros(2, pfllib.DATA[data].channels, side, side)).shape == (2, 10)


def test_accuracy_counts_samples_and_deviation_counts_clients() -> None:
    """Client 0: 3 of 4, client 1: 4 of 16. A = 7 / 20; the clients' 75 and 25 % deviate by 25
    points."""
    expected = {"accuracy": pytest.approx(35.0), "deviation": pytest.approx(25.0)}
    assert pfllib._figures(np.array([3.0, 4.0]), np.array([4, 16])) == expected
    rows = {
        "scope": ["mean", "client", "client"],
        "version": [5] * 3,
        "accuracy": [0.5, 0.75, 0.25],
        "examples": [20, 4, 16],
    }
    assert pfllib._rows(pa.table(rows), "client") == [{"round": 5, **expected}]
    assert pfllib._rows(pa.table(rows), "shared_client") == []


def test_parts_are_cut_and_finished_runs_are_collected(tmp_path: Path) -> None:
    """A part of 305 rows keeps 300, one of 47 keeps 40; test rows all stay. What is not finished is
    left out."""
    stored = tmp_path / "PFLlib" / "dataset" / "MNIST"
    for half in ("train", "test"):
        (stored / half).mkdir(parents=True)
        for k in range(20):
            n = (305, 47)[k % 2]
            np.savez(
                stored / half / f"{k}.npz",
                data={"x": np.zeros((n, 1, 2, 2)), "y": np.zeros(n, int)},
            )
    pfllib.prepare(pfllib.DATA["mnist"], pfllib.PROTOCOLS["beside"], tmp_path / "PFLlib", tmp_path)
    made = tmp_path / "dataset" / "MNIST"
    assert [len(pfllib._read(made / "train" / f"{k}.npz")[1]) for k in (0, 1)] == [300, 40]
    assert [len(pfllib._read(made / "test" / f"{k}.npz")[1]) for k in (0, 1)] == [305, 47]
    args = Namespace(
        data=["mnist"], seeds=[0, 1], methods=["ditto"], work=tmp_path, out=tmp_path / "out.json"
    )
    (tmp_path / "beside-mnist-1-ditto-ours.json").write_text(
        json.dumps({"rows": [], "round_s": 1.23456})
    )
    network = pfllib.network(pfllib.DATA["mnist"])
    np.savez(
        tmp_path / "weights-MNIST-0.npz",
        *[np.zeros(tuple(one.shape), np.float32) for one in network.parameters()],
    )
    # one client's models, 4 and 5 from the first one in each coordinate
    for side, far in (("theirs", 4.0), ("ours", 5.0)):
        (tmp_path / f"whole-mnist-0-ditto-{side}.json").write_text(
            json.dumps({"rows": [{"accuracy": far}]})
        )
        np.save(
            tmp_path / f"whole-mnist-0-ditto-{side}.npy", np.full((1, 582_026), far, np.float32)
        )
    pfllib.collect(args)
    run = {
        "data": "mnist",
        "seed": 1,
        "method": "ditto",
        "side": "ours",
        "rows": [],
        "round_s": 1.2346,
    }
    whole = {
        "data": "mnist",
        "seed": 0,
        "method": "ditto",
        "apart": 0.25,
        "base": 0.25,
        "accuracy": [4.0, 5.0],
    }
    found = json.loads(args.out.read_text())
    assert (found["runs"], found["whole"]) == ([run], [whole])


def test_records_of_another_day_stay() -> None:
    """A record of now takes the place of the one collected earlier; the order is that of the runs,
    data set, seed, method, side."""

    def row(data: str, seed: int, method: str, side: str, value: int) -> dict[str, object]:
        return {"data": data, "seed": seed, "method": method, "side": side, "value": value}

    earlier = [
        row("mnist", 0, "local", "theirs", 1),
        row("mnist", 0, "local", "ours", 2),
        row("cifar10", 0, "local", "ours", 3),
    ]
    now = [row("mnist", 1, "local", "theirs", 5), row("mnist", 0, "local", "ours", 4)]
    assert [one["value"] for one in pfllib._joined(earlier, now)] == [1, 4, 5, 3]
