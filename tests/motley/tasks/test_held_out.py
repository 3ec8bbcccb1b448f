"""Clients that are held out: which ones, and the two federations."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from motley.core.errors import ConfigError
from motley.core.keys import Key
from motley.experiments.build import build
from motley.experiments.config import Experiment
from motley.experiments.run_data import task_of
from motley.tasks.held_out import held_out_count, held_out_ids, hold_out_clients

KEYS = {
    "task": {"name": "image", "data": "digits", "model": "digits_mlp"},
    "population": 10,
    "cohort": 3,
    "stop": {"rounds": 1},
    "split": {"test": "client", "validation": 0.2},
    "label_noise": {"name": "symmetric", "rate": 0.5},
}


def test_the_draw_is_a_function_of_the_seed() -> None:
    drawn = [held_out_ids(Key(seed).fold("split"), 10, 0.3).tolist() for seed in (0, 0, 1)]
    assert drawn[0] == drawn[1] != drawn[2]
    assert all(
        len(set(ids)) == 3 and ids == sorted(ids) and set(ids) <= set(range(10)) for ids in drawn
    )


@pytest.mark.parametrize(
    ("population", "share", "count"),
    [(10, 0.0, 0), (10, 0.2, 2), (10, 0.01, 1), (5, 0.5, 2), (2, 0.9, None)],
)
def test_at_least_one_is_held_out_and_at_least_one_trains(
    population: int, share: float, count: int | None
) -> None:
    if count is None:
        with pytest.raises(
            ConfigError,
            match=r"split.holdout_clients: got 0.9 of 2 clients, which leaves none to train",
        ):
            held_out_count(population, share)
    else:
        assert held_out_count(population, share) == count


def test_every_sample_is_in_one_of_the_two_federations() -> None:
    whole = task_of(Experiment(**KEYS)).federation
    rest = hold_out_clients(whole, np.array([2, 7]))
    assert rest.held_out is not None
    assert (rest.pool, rest.new_clients.tolist(), whole.pool, whole.new_clients.tolist()) == (
        8,
        [2, 7],
        10,
        [],
    )
    for part in ("train", "validation", "test"):
        for k in range(10):
            mine, other = (rest.held_out, rest) if k in (2, 7) else (rest, rest.held_out)
            np.testing.assert_array_equal(getattr(mine, part)[k], getattr(whole, part)[k])
            assert not len(getattr(other, part)[k])
    for one in (rest, rest.held_out):  # noisy labels stay with their samples
        for part, labels in (("train", "labels"), ("validation", "validation_labels")):
            told = dict(
                zip(
                    getattr(whole, part).values.tolist(),
                    getattr(whole, labels).tolist(),
                    strict=True,
                )
            )
            kept = zip(
                getattr(one, part).values.tolist(), getattr(one, labels).tolist(), strict=True
            )
            assert all(told[row] == label for row, label in kept)
    assert torch.equal(rest.x, whole.x)


def test_drift_keeps_its_windows() -> None:
    keys = {
        **KEYS,
        "drift": {"name": "window"},
        "split": {"test": "client", "holdout_clients": 0.2},
    }
    data = build(keys).federation
    assert data.held_out is not None
    new = np.isin(np.arange(10), data.new_clients)
    assert ((data.seen > 0) == ~new).all()
    assert ((data.held_out.seen > 0) == new).all()


def test_statistics_of_a_table_leave_new_clients_out(tmp_path: Path) -> None:
    """They send nothing before training, and their rows move no scale; a table that was prepared in
    Python with them is refused."""
    rows = [
        f"{100.0 if hospital == 2 else hospital},{hospital},{i % 2}"
        for hospital in range(4)
        for i in range(8)
    ]
    (tmp_path / "t.csv").write_text("\n".join(["age,hospital,outcome", *rows]) + "\n")
    keys = {
        "task": {
            "name": "tabular",
            "data": str(tmp_path / "t.csv"),
            "client": "hospital",
            "label": "outcome",
            "scale": "federated",
        },
        "cohort": 1,
        "stop": {"rounds": 1},
        "partition": "by_writer",
        "seed": 0,
    }
    seed = next(n for n in range(50) if held_out_ids(Key(n).fold("split"), 4, 0.25).tolist() == [2])
    data = build(
        {**keys, "seed": seed, "split": {"test": "client", "holdout_clients": 0.25}}
    ).federation
    assert data.statistics is not None
    assert (data.statistics.up_bits > 0).tolist() == [True, True, False, True]
    assert data.x.max() > 50  # age 100 among 0, 1 and 3
    whole = task_of(Experiment(**keys)).federation
    assert whole.x.max() < 2
    with pytest.raises(ConfigError, match="prepared with statistics of all clients' training rows"):
        hold_out_clients(whole, np.array([1]))
