"""Partitions that are those of other codes client by client: sizes as these codes print them, a
second way to the same rows, and the order of the original files."""

from __future__ import annotations

import random
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

import motley
from motley.core.errors import ConfigError
from motley.core.keys import Key
from motley.experiments.run_data import task_of
from motley.tasks.task import Dataset
from motley.world.partition.heterofl_shards import HeteroFLShards, torch_permutation
from motley.world.partition.ji_shards import JiShards
from motley.world.partition.niid_bench import FlowerNiidBench, NiidBench
from motley_data.public_data.canonical import by_class
from motley_data.public_data.search import search

KEY = Key(0)
MNIST = np.repeat(np.arange(10), [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949])
FASHION_MNIST = np.repeat(np.arange(10), 6000)
CIFAR10 = np.repeat(np.arange(10), 5000)
PRINTED = "RandomState"
"""numpy's generator when the baseline's table was printed."""
SMALL = np.array([2, 0, 1, 1, 0, 2, 2, 1, 0, 0, 1, 2, 0, 1, 2, 1, 0, 2, 1, 0] * 3)
"""Sixty labels of three classes, in no order."""


@pytest.mark.parametrize(
    ("partition", "labels", "sizes"),
    [
        (FlowerNiidBench(), MNIST, [6631, 9475, 6099, 6004, 5074, 5106, 7397, 3742, 6052, 4420]),
        (
            FlowerNiidBench(),
            FASHION_MNIST,
            [6370, 2405, 6357, 6470, 7449, 6873, 4416, 8072, 4399, 7189],
        ),
        (FlowerNiidBench(), CIFAR10, [1785, 5453, 5426, 5263, 7013, 5062, 5051, 6092, 5142, 3713]),
        (
            FlowerNiidBench(generator=PRINTED),
            MNIST,
            [5744, 7794, 4667, 2937, 7538, 6137, 6201, 7199, 5441, 6342],
        ),
        (
            FlowerNiidBench(generator=PRINTED),
            CIFAR10,
            [5579, 5044, 2923, 3442, 6320, 4119, 7417, 4127, 3943, 7086],
        ),
        (NiidBench(), CIFAR10, [5307, 3688, 4435, 5047, 5189, 3803, 5202, 4325, 8078, 4926]),
    ],
)
def test_dirichlet_sizes_are_those_of_the_codes(
    partition: Any, labels: Any, sizes: list[int]
) -> None:
    assert partition.split(KEY, labels, 10).rows.sizes.tolist() == sizes


@pytest.mark.parametrize(
    ("options", "others"),
    [
        ({"labels": 2}, [[7], [6], [4], [4], [8], [0], [2], [0], [5], [7]]),
        (
            {"labels": 3},
            [[7, 6], [4, 8], [0, 6], [2, 0], [5, 9], [7, 1], [8, 4], [5, 3], [1, 9], [7, 6]],
        ),
        (
            {"labels": 2, "generator": PRINTED},
            [[6], [3], [7], [4], [6], [9], [2], [6], [7], [4]],
        ),
    ],
)
def test_further_classes_are_those_of_the_baseline(
    options: dict[str, Any], others: list[list[int]]
) -> None:
    parts = FlowerNiidBench("label_count", **options).split(KEY, CIFAR10, 10).rows
    classes = [set(CIFAR10[rows].tolist()) for rows in parts]
    assert classes == [{client, *more} for client, more in enumerate(others)]


def by_lists(rng: Any, labels: Any, clients: int, alpha: float) -> list[list[int]]:
    """The masked Dirichlet rule with lists of row numbers, as its users describe it."""
    while True:
        parts: list[list[int]] = [[] for _ in range(clients)]
        for c in range(max(labels) + 1):
            rows = np.array([row for row, label in enumerate(labels) if label == c])
            rng.shuffle(rows)
            q = rng.dirichlet([alpha] * clients)
            q = np.array(
                [
                    share if len(part) < len(labels) / clients else 0.0
                    for share, part in zip(q, parts, strict=True)
                ]
            )
            ends = [int(end * len(rows)) for end in np.cumsum(q / q.sum())][:-1]
            for part, piece in zip(parts, np.split(rows, ends), strict=True):
                part.extend(piece.tolist())
        if min(len(part) for part in parts) >= 10:
            return [sorted(part) for part in parts]


def classes_by_lists(draw: Any, clients: int, classes: int, count: int) -> list[list[int]]:
    contains = []
    for client in range(clients):
        own = [client % classes]
        while len(own) < count:
            drawn = draw()
            if drawn not in own:
                own.append(drawn)
        contains.append(own)
    return contains


def shared_by_lists(rng: Any, labels: Any, contains: list[list[int]]) -> list[list[int]]:
    parts: list[list[int]] = [[] for _ in contains]
    for c in range(max(labels) + 1):
        rows = np.flatnonzero(np.asarray(labels) == c)
        rng.shuffle(rows)
        holders = [client for client, own in enumerate(contains) if c in own]
        for client, piece in zip(holders, np.array_split(rows, len(holders)), strict=True):
            parts[client].extend(piece.tolist())
    return [sorted(part) for part in parts]


def rows_of(partition: Any, labels: Any = SMALL, clients: int = 4) -> list[list[int]]:
    return [rows.tolist() for rows in partition.split(KEY, labels, clients).rows]


@pytest.mark.parametrize("seed", [0, 42])
def test_dirichlet_rows_by_lists(seed: int) -> None:
    """The legacy stream reseeds numpy's global state there; a state of one's own draws the same."""
    for alpha in (0.5, 5.0):
        mine = rows_of(FlowerNiidBench(alpha=alpha, seed=seed))
        assert mine == by_lists(np.random.default_rng(seed), SMALL, 4, alpha)
        for legacy in (NiidBench, partial(FlowerNiidBench, generator=PRINTED)):
            mine = rows_of(legacy(alpha=alpha, seed=seed))
            assert mine == by_lists(np.random.RandomState(seed), SMALL, 4, alpha)


@pytest.mark.parametrize("seed", [0, 42])
def test_label_count_rows_by_lists(seed: int) -> None:
    rng = np.random.default_rng(seed)
    contains = classes_by_lists(lambda: rng.choice(3, 1)[0], 4, 3, 2)
    assert rows_of(FlowerNiidBench("label_count", seed=seed)) == shared_by_lists(
        rng, SMALL, contains
    )
    legacy = np.random.RandomState(seed)
    contains = classes_by_lists(lambda: legacy.randint(0, 3), 4, 3, 2)
    printed = FlowerNiidBench("label_count", seed=seed, generator=PRINTED)
    assert rows_of(printed) == shared_by_lists(legacy, SMALL, contains)
    extra = random.Random(seed)
    contains = classes_by_lists(lambda: extra.randint(0, 2), 4, 3, 2)
    assert rows_of(NiidBench("label_count", seed=seed)) == shared_by_lists(
        np.random.RandomState(seed), SMALL, contains
    )


def test_rows_that_are_shuffled_as_a_whole() -> None:
    drawn = np.random.default_rng(42).choice(60, 60, replace=False)
    wanted = [sorted(part.tolist()) for part in np.array_split(drawn, 7)]
    assert rows_of(FlowerNiidBench("iid"), clients=7) == wanted
    drawn = np.random.RandomState(42).choice(60, 60, replace=False)
    wanted = [sorted(part.tolist()) for part in np.array_split(drawn, 7)]
    assert rows_of(FlowerNiidBench("iid", generator=PRINTED), clients=7) == wanted
    drawn = np.random.RandomState(1).permutation(60)
    wanted = [sorted(part.tolist()) for part in np.array_split(drawn, 7)]
    assert rows_of(NiidBench("iid", seed=1), clients=7) == wanted
    rng = np.random.RandomState(3)
    drawn = rng.permutation(60)
    while (q := rng.dirichlet([2.0] * 4)).min() * 60 < 10:
        pass
    ends = (np.cumsum(q) * 60).astype(int)[:-1]
    wanted = [sorted(part.tolist()) for part in np.split(drawn, ends)]
    assert rows_of(NiidBench("quantity", alpha=2.0, seed=3)) == wanted


def test_another_seed_is_another_partition_whatever_the_key_is() -> None:
    assert rows_of(NiidBench(seed=0)) != rows_of(NiidBench(seed=1))
    assert rows_of(FlowerNiidBench(seed=42)) != rows_of(FlowerNiidBench(seed=43))
    other_key = FlowerNiidBench().split(Key(9), SMALL, 4).rows
    assert [rows.tolist() for rows in other_key] == rows_of(FlowerNiidBench())


@pytest.mark.parametrize("n", [1, 2, 5, 200, 3000])
@pytest.mark.parametrize("seed", [0, 42])
def test_the_permutation_is_torchs(n: int, seed: int) -> None:
    torchs = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    assert torch_permutation(n, seed).tolist() == torchs.tolist()


def test_heterofl_by_hand() -> None:
    """The example of the module."""
    assert torch_permutation(4, 42).tolist() == [2, 3, 0, 1]
    parts = HeteroFLShards().split(KEY, np.array([0, 0, 0, 1, 1, 1]), 2)
    assert [rows.tolist() for rows in parts.rows] == [[0, 2, 3, 5], [1, 4]]


def test_a_client_with_one_label_twice_has_one_shard_of_it() -> None:
    """MNIST, 100 clients: nine got a label twice, so nine shards of about 300 rows are nobody's."""
    parts = HeteroFLShards().split(KEY, MNIST, 100)
    dealt = np.tile(np.arange(10), 20)[torch.randperm(200, generator=seeded(42)).numpy()]
    classes = [set(MNIST[rows].tolist()) for rows in parts.rows]
    assert classes == [set(pair) for pair in dealt.reshape(100, 2).tolist()]
    assert sum(len(own) == 1 for own in classes) == 9
    assert parts.notes["heterofl"] == (
        "20 shards a class; 2726 of 60000 samples are in shards of nobody"
    )
    each, more = divmod(5923, 20)
    first = int(torch.randperm(20, generator=seeded(42))[0])
    client = next(client for client, own in enumerate(classes) if 0 in own)
    zeros = parts.rows[client][MNIST[parts.rows[client]] == 0]
    whole = np.arange(first * each, (first + 1) * each)
    assert zeros.tolist() == [*whole.tolist(), *([20 * each + first] if first < more else [])]


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_heterofl_iid_is_torchs_permutation_cut() -> None:
    drawn = torch.randperm(60, generator=seeded(42)).reshape(4, 15)
    assert rows_of(HeteroFLShards("iid")) == drawn.sort().values.tolist()


def test_ji_shards_by_hand() -> None:
    """The example of the module."""
    labels = np.array([0, 0, 1, 1, 2, 2, 3, 3])
    assert rows_of(JiShards(), labels, clients=2) == [[4, 5, 6, 7], [0, 1, 2, 3]]
    assert rows_of(JiShards(kept=0.8), labels, clients=2) == [[4, 5, 6], [0, 1, 2]]


@pytest.mark.parametrize(
    ("seed", "kept", "counts"),
    [
        (0, 1.0, [{0: 300, 8: 300}, {2: 300, 3: 300}, {2: 300, 5: 300}]),
        (0, 0.8, [{0: 180, 8: 300}, {2: 180, 3: 300}, {2: 300, 5: 180}]),
        (1, 0.8, [{1: 300, 2: 180}, {4: 180, 8: 300}, {9: 480}]),
    ],
)
def test_ji_shards_are_those_of_the_codes(
    seed: int, kept: float, counts: list[dict[int, int]]
) -> None:
    """MNIST, 100 clients: labels of the first three, as both codes give them after that seed."""
    parts = JiShards(kept=kept, seed=seed).split(KEY, MNIST, 100)
    assert set(parts.rows.sizes.tolist()) == {int(600 * kept)}
    for rows, wanted in zip(parts.rows, counts, strict=False):
        labels, sizes = np.unique(MNIST[rows], return_counts=True)
        assert dict(zip(labels.tolist(), sizes.tolist(), strict=True)) == wanted
    notes = {} if kept == 1.0 else {"ji_shards": "12000 of 60000 samples are of nobody"}
    assert parts.notes == notes


@pytest.mark.parametrize("seed", [0, 42])
def test_ji_iid_rows_by_sets(seed: int) -> None:
    rng = np.random.RandomState(seed)
    left = list(range(60))
    for mine in rows_of(JiShards("iid", kept=0.8, seed=seed), clients=7):
        drawn = set(rng.choice(left, 8, replace=False))
        left = list(set(left) - drawn)
        assert mine == sorted(list(drawn)[:6])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: FlowerNiidBench("quantity"),
            "got kind = 'quantity'; expected one of: 'dirichlet'",
        ),  # type: ignore[arg-type]
        (lambda: NiidBench(alpha=0.0), "got alpha = 0.0; expected a finite number above 0"),
        (lambda: NiidBench(labels=0), "got labels = 0; expected at least 1 class per client"),
        (lambda: NiidBench(seed=-1), "got seed = -1; expected at least 0"),
        (lambda: NiidBench(seed=2**32), "got seed = 4294967296; expected at most 4294967295"),
        (
            lambda: FlowerNiidBench(generator="MT19937"),  # type: ignore[arg-type]
            "got generator = 'MT19937'; expected 'default_rng' or 'RandomState'",
        ),
        (
            lambda: FlowerNiidBench(seed=2**32, generator=PRINTED),
            "got seed = 4294967296; expected at most 4294967295",
        ),
        (lambda: HeteroFLShards("quantity"), "expected 'shards' or 'iid'"),  # type: ignore[arg-type]
        (lambda: HeteroFLShards(shards=0), "got shards = 0; expected at least 1 per client"),
        (lambda: HeteroFLShards(seed=-1), "got seed = -1; expected 0 to 4294967295"),
        (lambda: JiShards("quantity"), "expected 'shards' or 'iid'"),  # type: ignore[arg-type]
        (lambda: JiShards(shards=0), "got shards = 0; expected at least 1 per client"),
        (lambda: JiShards(kept=80), "got kept = 80; expected above 0 and at most 1, e.g. 0.8"),
        (lambda: JiShards(seed=-1), "got seed = -1; expected 0 to 4294967295"),
        (lambda: rows_of(JiShards(shards=9), SMALL[:20]), "need 36 samples, the data has 20"),
        (
            lambda: rows_of(FlowerNiidBench("label_count", labels=4)),
            "got labels = 4, the data has 3 classes",
        ),
        (
            lambda: rows_of(FlowerNiidBench(alpha=1e-3), SMALL[:40]),
            "every client that drew a share of a class holds n / K rows already",
        ),
        (
            lambda: rows_of(NiidBench("quantity", alpha=0.1), SMALL[:40]),
            "in 1000 draws with alpha = 0.1 some client always had fewer than 10 rows",
        ),
        (lambda: rows_of(NiidBench(), SMALL[:39]), "need 40 samples, the data has 39"),
        (
            lambda: rows_of(HeteroFLShards("iid"), clients=7),
            "got 60 rows and 7 clients; expected a number of clients that divides them",
        ),
        (
            lambda: rows_of(HeteroFLShards()),
            "4 clients with 2 shards each and 3 classes need a whole number of shards a class",
        ),
    ],
)
def test_what_is_refused(make: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make()


def test_places_in_the_original_files_follow_the_rows() -> None:
    y = torch.tensor([1, 0, 1, 0, 1, 0])
    test = np.array([False, True, False, False, True, True])
    data = Dataset(x=torch.arange(6.0)[:, None], y=y, classes=2, test=test)
    sorted_data = by_class(data)
    assert sorted_data.x[:, 0].tolist() == [3, 0, 2, 1, 5, 4]
    assert sorted_data.places is not None
    assert sorted_data.places.tolist() == [2, 0, 1, 0, 2, 1]


KEYS = {
    "task": {"name": "image", "data": "mnist", "model": "logistic_regression"},
    "split": {"test": "global"},
    "population": 10,
    "cohort": 10,
    "stop": {"rounds": 1},
}


def test_mnist_is_divided_in_its_original_order() -> None:
    pack = next((place.path for place in search("mnist") if place.layout.kind == "pack"), None)
    if pack is None:
        pytest.skip("the pack mnist is not on this machine")
    with np.load(pack / "mnist.npz") as data:
        original = data["y_train"][np.argsort(data["index_train"])]
    experiment = motley.Experiment(**KEYS, partition={"name": "flower_niid_bench", "kind": "iid"})
    federation = task_of(experiment).federation
    drawn = np.random.default_rng(42).choice(60000, 60000, replace=False)
    for client, rows in enumerate(np.array_split(drawn, 10)):
        mine = federation.y[torch.from_numpy(federation.train[client])]
        assert torch.bincount(mine).tolist() == np.bincount(original[rows]).tolist()


def test_an_order_that_is_not_known_is_refused() -> None:
    if not any(place.layout.kind == "pack" for place in search("fashion_mnist")):
        pytest.skip("the pack fashion_mnist is not on this machine")
    keys = {**KEYS, "task": {**KEYS["task"], "data": "fashion_mnist"}}  # type: ignore[dict-item]
    with pytest.raises(
        ConfigError, match="their order in the original files, which this source of the data does"
    ):
        task_of(motley.Experiment(**keys, partition={"name": "niid_bench", "kind": "quantity"}))
