"""Data sets of Hugging Face's ``datasets`` and partitioners of ``flwr_datasets`` as clients: with
the libraries where they are installed, and with stand-ins that have the attributes that are
read."""

import re
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from PIL import Image as Picture

import motley
from motley.core.errors import DataError
from motley.tasks import from_clients
from motley_data import loaders

INSTALLED = find_spec("datasets") is not None and find_spec("flwr_datasets") is not None


class Value:
    pass


class List:
    pass


class Image:
    pass


class ClassLabel:
    def __init__(self, names: Sequence[str]) -> None:
        self.names = list(names)


class StandIn:
    """What is read of a ``datasets.Dataset``."""

    def __init__(
        self, columns: Mapping[str, list[Any]], features: Mapping[str, Any], form: str | None = None
    ) -> None:
        self.columns = dict(columns)
        self.features = dict(features)
        self.form = form
        self.column_names = list(columns)
        self.format = {"type": form}

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def __getitem__(self, rows: Any) -> Any:
        found = {name: values[rows] for name, values in self.columns.items()}
        if self.form == "arrow":
            return pa.table(found)
        arrays = self.form == "numpy"
        return {name: np.array(some) for name, some in found.items()} if arrays else found

    def with_format(self, form: str | None) -> Any:
        return StandIn(self.columns, self.features, form)

    def select_columns(self, names: Sequence[str]) -> Any:
        some = {name: self.columns[name] for name in names}
        return StandIn(some, {name: self.features[name] for name in names}, self.form)

    def remove_columns(self, names: Sequence[str]) -> Any:
        return self.select_columns([name for name in self.column_names if name not in names])

    def select(self, rows: Sequence[int]) -> Any:
        some = {name: [values[k] for k in rows] for name, values in self.columns.items()}
        return StandIn(some, self.features)


class Shards:
    """What is read of an ``IidPartitioner``."""

    num_partitions = 3

    def __init__(self) -> None:
        self.dataset: Any = None

    def is_dataset_assigned(self) -> bool:
        return self.dataset is not None

    def load_partition(self, number: int) -> Any:
        n = len(self.dataset) // 3
        return self.dataset.select(range(number * n, (number + 1) * n))


class Writers(Shards):
    """What is read of a ``NaturalIdPartitioner``."""

    _partition_by = "writer"

    @property
    def partition_id_to_natural_id(self) -> dict[int, str]:
        return dict(enumerate(dict.fromkeys(self.dataset.columns["writer"])))

    def load_partition(self, number: int) -> Any:
        whose = self.partition_id_to_natural_id[number]
        writers = self.dataset.columns["writer"]
        return self.dataset.select([k for k, one in enumerate(writers) if one == whose])


KINDS = [
    "stand-ins",
    pytest.param(
        "installed",
        marks=pytest.mark.skipif(not INSTALLED, reason="needs datasets and flwr_datasets"),
    ),
]


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def dataset(kind: str, columns: Mapping[str, list[Any]], features: Mapping[str, Any]) -> Any:
    if kind == "stand-ins":
        return StandIn(columns, features)
    import datasets

    value = {bool: "bool", int: "int64", float: "float64", str: "string"}

    def feature(name: str, form: Any) -> Any:
        first = columns[name][0]
        if isinstance(form, ClassLabel):
            return datasets.ClassLabel(names=form.names)
        if isinstance(form, Image):
            return datasets.Image()
        if isinstance(form, List):
            return datasets.Sequence(datasets.Value(value[type(first[0])]))
        return datasets.Value(value[type(first)])

    forms = {name: feature(name, form) for name, form in features.items()}
    return datasets.Dataset.from_dict(dict(columns), features=datasets.Features(forms))


def partitioner(kind: str, natural: bool, data: Any) -> Any:
    if kind == "stand-ins":
        made: Any = Writers() if natural else Shards()
    else:
        from flwr_datasets import partitioner as partitioners

        by_writer = partitioners.NaturalIdPartitioner("writer")
        made = by_writer if natural else partitioners.IidPartitioner(3)
    made.dataset = data
    return made


PIXELS = np.random.default_rng(0).integers(0, 256, (12, 4, 5, 3)).astype(np.uint8)


def pictures(kind: str) -> Any:
    columns = {
        "image": [Picture.fromarray(one) for one in PIXELS],
        "label": [k % 2 for k in range(12)],
        "writer": ["ann", "bob", "cy"] * 4,
    }
    return dataset(
        kind, columns, {"image": Image(), "label": ClassLabel(["cat", "dog"]), "writer": Value()}
    )


def rows_of(federation: Any, k: int) -> Any:
    return np.sort(np.concatenate([federation.train[k], federation.test[k]]))


def test_natural_ids_are_names_and_no_input(kind: str) -> None:
    federation = motley.from_flower(partitioner(kind, True, pictures(kind)))
    assert sorted(federation.client_names) == ["ann", "bob", "cy"]
    assert federation.names == ("cat", "dog")
    bob = federation.client_names.index("bob")
    mine = federation.x[rows_of(federation, bob)]
    assert np.array_equal(mine.numpy(), PIXELS[1::3].transpose(0, 3, 1, 2))
    assert federation.y[rows_of(federation, bob)].tolist() == [1, 0, 1, 0]


def test_stored_partitions_are_those_in_memory(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows are read five at a time, the last two."""
    monkeypatch.setattr(loaders, "_ROWS", 5)
    columns = {
        "a": [[k, k + 1] for k in range(36)],
        "b": [[0.5 * k] for k in range(36)],
        "label": [k % 2 for k in range(36)],
    }
    data = dataset(kind, columns, {"a": List(), "b": List(), "label": Value()})
    for given in (pictures(kind).remove_columns(["writer"]), data, data.remove_columns(["b"])):
        held, stored = (
            motley.from_flower(partitioner(kind, False, given), store=store)
            for store in (None, tmp_path)
        )
        assert held.x.dtype == stored.x.dtype
        assert torch.equal(held.x, stored.x)
        assert torch.equal(held.labels, stored.labels)


def test_partitions_in_their_order_and_a_common_test_set(kind: str) -> None:
    data = pictures(kind).remove_columns(["writer"])
    federation = motley.from_flower(partitioner(kind, False, data), test=data.select(range(5)))
    assert federation.train.sizes.tolist() == [4, 4, 4]
    last = federation.x[federation.train[2]].numpy()
    assert np.array_equal(last, PIXELS[8:].transpose(0, 3, 1, 2))
    assert federation.global_test is not None
    assert len(federation.global_test) == 5


def test_columns_of_numbers_and_words_are_a_table(kind: str) -> None:
    columns = {"age": [1.0, 2.0, 3.0] * 4, "sex": ["m", "w"] * 6, "label": ["no", "yes"] * 6}
    data = dataset(kind, columns, {"age": Value(), "sex": Value(), "label": Value()})
    federation = motley.from_flower(partitioner(kind, False, data), table={"scale": "federated"})
    assert federation.names == ("no", "yes")
    assert federation.preparation is not None
    assert federation.preparation.save()["inputs"] == ["age", "sex=m", "sex=w"]


def test_tokens_and_their_mask_are_two_inputs(kind: str) -> None:
    columns = {
        "input_ids": [[5, 6, 0], [7, 8, 9]] * 3,
        "attention_mask": [[1, 1, 0], [1, 1, 1]] * 3,
        "label": [0, 1] * 3,
    }
    data = dataset(kind, columns, {"input_ids": List(), "attention_mask": List(), "label": Value()})
    federation = from_clients([{"train": data, "test": data.select(range(2))}] * 2)
    assert federation.x.dtype == torch.int64
    assert federation.x[federation.test[1]].tolist() == [[5, 6, 0, 1, 1, 0], [7, 8, 9, 1, 1, 1]]
    alone = from_clients([data], inputs="input_ids")
    assert alone.x.shape[1:] == (3,)


def test_what_is_not_understood(kind: str) -> None:
    refused = {
        "say which is to be predicted: label=": {"image": [1.0], "age": [2.0]},
        "client 0: the input 'text' is text ('to be'); turn it into tokens": {
            "text": ["to be"],
            "ids": [[1, 2]],
            "label": [0],
        },
    }
    for words, columns in refused.items():
        forms = {name: List() if name == "ids" else Value() for name in columns}
        with pytest.raises(DataError, match=re.escape(words)):
            from_clients([dataset(kind, columns, forms)])
    with pytest.raises(DataError, match=r"client 0 has no column 'labl'.*did you mean 'label'"):
        from_clients([pictures(kind)], label="labl")
    with pytest.raises(DataError, match="client 0: the input 'writer' is text"):
        motley.from_flower(partitioner(kind, False, pictures(kind)))
    empty = type(partitioner(kind, False, pictures(kind)))
    with pytest.raises(
        DataError, match=r"the partitioner has no data set; write partitioner\.data"
    ):
        motley.from_flower(empty(3) if kind == "installed" else empty())
    with pytest.raises(DataError, match="got int; expected a partitioner of flwr_datasets"):
        motley.from_flower(3)
    with pytest.raises(DataError, match=f"got {empty.__name__}; expected a partitioner"):
        motley.from_flower(empty)  # the class


def hub(names: Sequence[str], labels: list[Any], **inputs: Sequence[str]) -> Any:
    columns = {"age": [1.0, 2.0] * 2, **dict.fromkeys(inputs, [0, 1] * 2), "label": labels}
    features: dict[str, Any] = {"age": Value(), "label": ClassLabel(names) if names else Value()}
    features |= {name: ClassLabel(classes) for name, classes in inputs.items()}
    return StandIn(columns, features)


def test_classes_of_other_numbers_in_another_client_are_joined_by_name() -> None:
    """yes is 1 in the first client, 0 in the second, a word in the third; maybe is new."""
    first = hub(["no", "yes"], [0, 0, 1, 1])
    second = hub(["yes", "no"], [0, 0, 1, 0])
    third = hub([], ["yes", "maybe", "no", "no"])
    for clients, expected in (
        ([first, second, third], [[0, 0, 1, 1], [1, 1, 0, 1], [1, 2, 0, 0]]),
        ([{"train": first, "test": second}], [[0, 0, 1, 1, 1, 1, 0, 1]]),
    ):
        federation = from_clients(clients)
        assert federation.names == ("no", "yes", "maybe")[: len(clients) + 1]
        rows = [rows_of(federation, k) for k in range(len(clients))]
        assert [federation.y[some].tolist() for some in rows] == expected
    words_first = from_clients([third, second])
    assert words_first.names == ("maybe", "no", "yes")
    assert words_first.y[rows_of(words_first, 1)].tolist() == [2, 2, 1, 2]


def test_a_list_of_classes_of_ones_own_says_their_order() -> None:
    federation = from_clients([hub(["no", "yes"], [0, 0, 1, 1])], classes=["yes", "no"])
    assert federation.names == ("yes", "no")
    assert federation.y[rows_of(federation, 0)].tolist() == [1, 1, 0, 0]


def test_classes_that_cannot_be_joined_are_refused() -> None:
    first, second = hub(["no", "yes"], [0, 1] * 2), hub(["yes", "no"], [0, 1] * 2)
    plain = (np.ones((4, 1)), np.array([0, 1, 0, 1]))
    said = re.escape("client 2 has the classes [yes, no], others [no, yes], and client 0 has")
    with pytest.raises(DataError, match=said):
        from_clients([plain, first, second])
    said = re.escape("client 2 has numbers without names of classes, others [no, yes]; which")
    with pytest.raises(DataError, match=said):
        from_clients([first, second, plain])
    said = re.escape("client 1 has the classes ['w', 'm'] as input 'sex', others ['m', 'w']")
    with pytest.raises(DataError, match=said):
        from_clients(
            [hub([], [0, 1] * 2, sex=names) for names in (["m", "w"], ["w", "m"])], label="label"
        )
