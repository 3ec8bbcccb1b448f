"""FLamby's two tables: the data as published, the Cox loss and the concordance by hand, and the
rules of its Cyclic."""

from __future__ import annotations

import csv
from math import exp, isnan, log
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from motley.algorithms.parts import Part, Upload, aggregate
from motley.core.errors import DataError
from motley.selectors import Selector
from motley_data.public_data.places import places
from motley_papers import flamby
from motley_papers.flamby import (
    Cyclic,
    OfClient,
    brca,
    brca_centres,
    concordance,
    cox,
    cox_as_run,
    cyclic_turns,
    heart,
    heart_centres,
)
from motley_papers.published_table import read
from motley_papers.referee import referee


def folder(name: str, file: str) -> Path:
    """The folder of a table's data; the test is skipped where it is not on this machine."""
    found = next((place for place in places() if (place / name / file).is_file()), None)
    if found is None:
        pytest.skip(f"the data of the table flamby_{name} is not on this machine")
    return found


@pytest.fixture
def heart_data() -> Path:
    return folder("heart", "processed.va.data")


@pytest.fixture
def brca_data() -> Path:
    return folder("brca", "brca.csv")


FOUR = torch.tensor([[1.0, 5.0], [0.0, 5.0], [1.0, 2.0], [1.0, 9.0]])
"""Event after 5 days, nothing seen after 5, event after 2, event after 9."""
RISKS = torch.tensor([[0.0], [1.0], [2.0], [-1.0]])


@pytest.mark.parametrize("loss", [cox, cox_as_run])
def test_the_cox_loss_of_four_rows_by_hand(loss):
    """Latest first: 9 days (risk -1), 5 (0), 5 (1, nothing seen), 2 (2). The first row is alone at
    risk: 0. The second: log(e^-1 + 1) - 0. The third is no event. The fourth: log(e^-1 + 1 + e +
    e^2) - 2. The mean is over four rows, not three events."""
    by_hand = (log(exp(-1) + 1) + log(exp(-1) + 1 + exp(1) + exp(2)) - 2) / 4
    assert loss(RISKS, FOUR).item() == pytest.approx(by_hand, rel=1e-6)


def test_concordance_of_four_rows_by_hand():
    """Comparable: 2 days with each of the others, right (3); the event at 5 with the unseen one at
    5, wrong, and with 9, right. The unseen one is earlier than nobody's event: 4 of 5. Equal risks
    in the wrong pair: 4.5 of 5."""
    assert concordance(RISKS, FOUR) == pytest.approx(4 / 5)
    assert concordance(torch.tensor([[1.0], [1.0], [2.0], [-1.0]]), FOUR) == pytest.approx(4.5 / 5)
    assert isnan(concordance(RISKS[1:2], FOUR[1:2]))


def test_constant_columns_are_zero():
    x = torch.tensor([[1.0, 7.0], [3.0, 7.0]])
    assert flamby.scaled(x, x).flatten().tolist() == pytest.approx([-(0.5**0.5), 0, 0.5**0.5, 0])


def test_cyclic_turns_by_numpys_generator():
    """Seed 42, four clients, 15 rounds: client 0 has the turns 4, 4, 4, 4 and 3 times."""
    turns = [[next(iterator) for _ in range(15)] for iterator in map(cycle, range(42, 47))]
    assert [one.count(0) for one in turns] == [4, 4, 4, 4, 3]
    assert [sorted(one[:4]) for one in turns] == [[0, 1, 2, 3]] * 5
    selector = Selector(Cyclic(seed=42, clients=4), seed=0)
    asked = [selector.select(number, range(4), m=1).ids.tolist() for number in range(1, 6)]
    assert asked == [[client] for client in turns[0][:5]]


def cycle(seed: int) -> Any:
    return cyclic_turns(seed, 4)


def test_the_update_of_one_client_counts():
    uploads = [
        Upload({"delta": Part(torch.tensor([value]), "mean")}, 1.0, client=client)
        for client, value in [(0, 4.0), (1, 8.0)]
    ]
    for client, total in [(0, 4.0 / 2), (1, 8.0 / 2)]:
        out = aggregate(OfClient(client=client), uploads, "weight")
        assert out["delta"].item() == total
    alone = aggregate(OfClient(client=0), uploads[1:], "weight")
    assert alone["delta"].item() == 0.0


def test_heart_rows_splits_and_scales(heart_data):
    centres = heart_centres(heart_data / "heart")
    assert [len(centre.y) for centre in centres] == [303, 261, 46, 130]
    for train, sizes, positives in [
        (True, [199, 172, 30, 85], [91, 65, 30, 66]),
        (False, [104, 89, 16, 45], [48, 33, 15, 35]),
    ]:
        parts = [centre.part(train) for centre in centres]
        assert [len(y) for _, y in parts] == sizes
        assert [int(y.sum()) for _, y in parts] == positives
    federation = heart(heart_data, seed=42).federation
    own = federation.x[federation.train[2]]
    assert own[:, 3].abs().max() == 0  # cholesterol is not known in Switzerland
    varies = [column for column in range(13) if own[:, column].abs().max() > 0]
    assert own.std(0)[varies].tolist() == pytest.approx([1.0] * len(varies), rel=1e-5)
    assert len(federation.global_test) == 254
    pooled = heart(heart_data, seed=42, trains="pooled", files=[3, 0, 1, 2]).federation
    assert pooled.train.sizes.tolist() == [0, 0, 0, 0, 486]
    assert pooled.labels[:85].tolist() == centres[3].part(True)[1].tolist()
    assert pooled.x[pooled.train[4]].mean(0).abs().max() < 1e-6


@pytest.mark.parametrize("name", ["heart", "brca"])
def test_first_weights_are_those_of_torch(name, request):
    data = request.getfixturevalue(f"{name}_data") / name
    if not (data / "initial_weights.csv").is_file():
        pytest.skip(f"the first weights of flamby_{name} are not on this machine")
    with (data / "initial_weights.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file))[1:]
    for seed, *weights in rows:
        model = {"heart": heart, "brca": brca}[name](data, seed=int(seed)).model()
        made = torch.cat([model.weight.flatten(), model.bias])
        assert made.tolist() == pytest.approx([float(w) for w in weights], abs=1e-7)


def test_brca_rows_events_and_pairs(brca_data):
    centres, together = brca_centres(brca_data / "brca")
    tests = [centre.part(False) for centre in [*centres, together]]
    assert [int(c.train.sum()) for c in centres] == [248, 156, 164, 129, 129, 40]
    assert [len(y) for _, y in tests] == [63, 40, 42, 33, 33, 11, 222]
    assert [int(y[:, 0].sum()) for _, y in tests] == [14, 4, 8, 3, 2, 1, 32]
    assert [pairs(y) for _, y in tests] == [358, 44, 108, 48, 47, 3, 2730]
    assert centres[0].x[:, 0].min() >= 26  # the age is raw
    assert centres[0].x[:, 0].max() <= 90


def pairs(targets: torch.Tensor) -> int:
    """Comparable pairs, counted one by one."""
    event, days = targets.T.tolist()
    rows = range(len(event))
    return sum(
        bool(event[i]) and (days[i] < days[j] or (days[i] == days[j] and not event[j]))
        for i in rows
        for j in rows
        if i != j
    )


@pytest.mark.parametrize(
    ("name", "method", "column"),
    [("heart", "FedAvg", "pooled test"), ("brca", "Cyclic, as coded", "mean over clients")],
)
def test_a_printed_run_to_the_last_digit(name, method, column, request, tmp_path, monkeypatch):
    """Seed 42: FedAvg's pooled accuracy is 191 / 254; Cyclic's mean concordance on BRCA is that of
    the untrained model, for client 0 has no turn in five rounds. BRCA takes one of two threads."""
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    data = request.getfixturevalue(f"{name}_data")
    table = read(f"flamby_{name}")
    refereed = referee(table, data=data, out=tmp_path, seeds=[42], methods=[method])
    (value,) = refereed.cells[method, column].values
    task = table.experiment(method, 42, data).own_task
    if name == "brca":
        numerics = refereed.runs[method, "mean over clients"][42].meta["numerics"]
        assert numerics["threads"] == numerics["torch_threads"] == 1
        federation = task.federation
        outputs = task.model()(federation.x).detach()
        first = [concordance(outputs[at], federation.y[at]) for at in federation.test]
        assert value == pytest.approx(np.mean(first), abs=1e-9)
    else:
        assert value == pytest.approx(191 / 254, abs=1e-9)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"trains": "4"}, "got trains = '4'; expected clients, cyclic, pooled or the number"),
        ({"order": "mine"}, "got order = 'mine'; expected torch or carried"),
        ({"files": [0, 1]}, r"got files = \[0, 1\]; expected 0, 1, 2 and 3 in any order"),
    ],
)
def test_options_that_there_are_not(options, message, heart_data):
    with pytest.raises(DataError, match=message):
        heart(heart_data, seed=42, **options)


def test_carried_batches_are_those_of_the_run(heart_data):
    first = heart(heart_data, seed=42, order="carried").batches
    assert [len(batch) for _, batch in zip(range(50), first(7, 0), strict=False)].count(3) == 1
