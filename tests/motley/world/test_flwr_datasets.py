"""``flwr_datasets``' partitioners: as the package divides rows where it is installed, and the same
rows where it is not."""

from __future__ import annotations

import hashlib
import warnings
from typing import Any

import numpy as np
import pytest

from motley.core.errors import ConfigError
from motley.core.keys import Key
from motley.world.partition.flwr_datasets import FlwrDirichlet, FlwrPathological

LABELS = np.array([2, 0, 1, 1, 0, 2, 2, 1, 0, 3, 1, 2, 0, 3, 2, 1, 3, 2, 3, 0] * 15)
"""300 labels of four classes, in no order."""
CASES: dict[str, tuple[Any, str, dict[str, Any]]] = {
    "dirichlet": (
        FlwrDirichlet(alpha=0.5),
        "DirichletPartitioner",
        {"alpha": 0.5, "self_balancing": True},
    ),
    "unbalanced": (
        FlwrDirichlet(alpha=1.0, balanced=False, seed=7),
        "DirichletPartitioner",
        {"alpha": 1.0, "self_balancing": False, "seed": 7},
    ),
    "random": (
        FlwrPathological(labels=2),
        "PathologicalPartitioner",
        {"num_classes_per_partition": 2},
    ),
    "first": (
        FlwrPathological(labels=3, mode="first-deterministic", seed=3),
        "PathologicalPartitioner",
        {
            "num_classes_per_partition": 3,
            "class_assignment_mode": "first-deterministic",
            "seed": 3,
        },
    ),
    "deterministic": (
        FlwrPathological(labels=2, mode="deterministic"),
        "PathologicalPartitioner",
        {"num_classes_per_partition": 2, "class_assignment_mode": "deterministic"},
    ),
}
DIGESTS = {
    "dirichlet": "db38d78ae7953354",
    "unbalanced": "42f3ecbd2adb7e28",
    "random": "34c1b5798cdf606d",
    "first": "31ce40902bcb3fcc",
    "deterministic": "d33ace18450161d5",
}
"""Of the rows that flwr_datasets 0.6.1 gives each of six clients, with numpy 2.4."""


def rows_of(partition: Any, clients: int = 6) -> list[list[int]]:
    return [rows.tolist() for rows in partition.split(Key(0), LABELS, clients).rows]


def digest(rows: list[list[int]]) -> str:
    return hashlib.sha256(repr(rows).encode()).hexdigest()[:16]


@pytest.mark.parametrize("name", CASES)
def test_rows_are_those_that_the_package_gave(name: str) -> None:
    assert digest(rows_of(CASES[name][0])) == DIGESTS[name]


@pytest.mark.parametrize("name", CASES)
def test_rows_are_those_of_the_package(name: str) -> None:
    partitioners = pytest.importorskip(
        "flwr_datasets.partitioner", reason="its packages come with make test-loaders"
    )
    import datasets

    partition, kind, options = CASES[name]
    theirs = getattr(partitioners, kind)(num_partitions=6, partition_by="label", **options)
    theirs.dataset = datasets.Dataset.from_dict({"label": LABELS, "row": range(len(LABELS))})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns of each new draw
        parts = [sorted(theirs.load_partition(client)["row"]) for client in range(6)]
    assert rows_of(partition) == parts


def test_deterministic_classes_by_hand() -> None:
    """Client i has classes i and i + 1 of 0, 1, 2; of six rows 0 1 2 0 1 2 each class has two
    clients, the first of which has its first row."""
    labels = np.array([0, 1, 2, 0, 1, 2])
    parts = FlwrPathological(labels=2, mode="deterministic").split(Key(0), labels, 3)
    # class 0: clients 0 and 2; class 1: 0 and 1; class 2: 1 and 2
    assert [rows.tolist() for rows in parts.rows] == [[0, 1], [2, 4], [3, 5]]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: FlwrDirichlet(alpha=-1.0), r"got alpha = -1\.0; expected a finite number above 0"),
        (lambda: FlwrDirichlet(seed=-1), "got seed = -1; expected at least 0"),
        (lambda: FlwrPathological(labels=0), "got labels = 0; expected at least 1 class"),
        (
            lambda: FlwrPathological(mode="first"),  # type: ignore[arg-type]
            "got mode = 'first'; expected 'random', 'first-deterministic' or 'deterministic'",
        ),
        (lambda: rows_of(FlwrPathological(labels=5)), "got labels = 5, the data has 4 classes"),
        (
            lambda: rows_of(FlwrDirichlet(alpha=0.01, balanced=False)),
            "in 11 draws some client always had fewer than min_size = 10 rows",
        ),
        (
            lambda: rows_of(FlwrPathological(labels=4), clients=90),
            "90 clients have class 0, of which there are 75 rows",
        ),
    ],
)
def test_what_is_refused(make: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make()
