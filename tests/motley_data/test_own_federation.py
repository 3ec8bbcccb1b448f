import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from pyarrow import parquet
from torch import nn
from torch.nn import functional as F

import motley
from motley.core.errors import ConfigError, DataError, ModelError
from motley.tasks import from_arrays, from_clients, from_files, own_task
from motley.tasks.nn import Dropout
from motley.tasks.task import Federation

RNG = np.random.default_rng(0)
CLIENTS = [(RNG.normal(size=(n, 3)), np.arange(n) % 2) for n in (10, 20, 5)]


@pytest.fixture
def federation() -> Federation:
    return from_clients(CLIENTS)


def same(one: Federation, two: Federation) -> bool:
    rows = [
        torch.equal(one.x[torch.from_numpy(a[k])], two.x[torch.from_numpy(b[k])])
        for a, b in ((one.train, two.train), (one.test, two.test))
        for k in range(len(one))
    ]
    return all(rows) and torch.equal(one.labels, two.labels)


def test_a_list_of_clients(federation: Federation) -> None:
    assert federation.train.sizes.tolist() == [8, 16, 4]
    assert federation.test.sizes.tolist() == [2, 4, 1]
    for k, (x, _) in enumerate(CLIENTS):
        mine = federation.x[
            torch.from_numpy(np.sort(np.r_[federation.train[k], federation.test[k]]))
        ]
        torch.testing.assert_close(mine, torch.from_numpy(x).float())


TESTS = [(RNG.normal(size=(n, 3)), np.arange(n) % 2) for n in (3, 1, 4)]


def test_ready_test_parts(tmp_path: Path) -> None:
    """Nothing is drawn: client k trains on the k-th part of the one list and tests on the k-th of
    the other, rows in their order."""
    federation = from_clients(CLIENTS, test=TESTS)
    for part, given in ((federation.train, CLIENTS), (federation.test, TESTS)):
        for k, (x, y) in enumerate(given):
            rows = torch.from_numpy(part[k])
            torch.testing.assert_close(federation.x[rows], torch.from_numpy(x).float())
            assert federation.y[rows].tolist() == y.tolist()
    assert federation.notes["test"] == "each client keeps the test rows the data set gives it"
    again = from_clients(CLIENTS, test=TESTS, validation=0.2, seed=1)
    assert again.validation.sizes.tolist() == [2, 4, 1]  # of training rows
    assert again.test.sizes.tolist() == [3, 1, 4]
    file = tmp_path / "ready.npz"  # the same from a file, for an experiment file
    joined = [
        (x, y, k, half)
        for half, parts in enumerate((CLIENTS, TESTS))
        for k, (x, y) in enumerate(parts)
    ]
    x, y = (np.concatenate([one[i] for one in joined]) for i in (0, 1))
    client, test = (
        np.repeat([one[i] for one in joined], [len(one[1]) for one in joined]) for i in (2, 3)
    )
    np.savez(
        file,
        x=x.reshape(-1, 1, 1, 3).astype(np.float32),
        y=y,
        client=client,
        test=test.astype(bool),
    )
    keys = {
        "task": {"name": "image", "data": str(file), "model": "logistic_regression"},
        "partition": "by_writer",
    }
    run = motley.run(
        {**keys, "name": "ready", "cohort": 2, "stop": {"rounds": 1}}, out=tmp_path / "run"
    )
    assert run.column("federation", "num_train").tolist() == [10, 20, 5]
    assert run.column("federation", "num_test").tolist() == [3, 1, 4]


def test_statistics_of_a_table_leave_ready_test_parts_out() -> None:
    """Column a: 1, 3 train and 101 tests; with mean 2 and deviation 1 they become -1, 1 and 99."""
    clients = [({"a": [1.0]}, [0]), ({"a": [3.0]}, [1])]
    tests = [({"a": [101.0]}, [0]), ({"a": [2.0]}, [1])]
    federation = from_clients(clients, test=tests, table={"scale": "federated"})
    assert federation.x[:, 0].tolist() == [-1.0, 1.0, 99.0, 0.0]


@pytest.mark.parametrize(
    ("test", "words"),
    [
        (
            TESTS[:2],
            r"got 2 test parts and 3 clients; expected a pair \(x, y\) per client, in the same "
            r"order",
        ),
        (
            3,
            r'got int as test; expected "client", "global", or a list with a pair \(x, y\) per '
            r"client",
        ),
        (0.2, r"got 0\.2 as test; a share of the samples is test_fraction=0\.2"),
        (
            [*TESTS[:2], 7],
            r"the test part of client 2 is a int; expected a pair \(x, y\) of arrays",
        ),
        (
            [*TESTS[:2], (np.zeros((0, 3)), [])],
            "the test part of client 2 has 0 samples and 0 labels; expected as many",
        ),
        (
            [(np.zeros((2, 4)), [0, 1]), *TESTS[1:]],
            r"the test part of client 0 has samples of shape \[4\], client 0 of \[3\]",
        ),
    ],
)
def test_bad_test_parts(test: Any, words: str) -> None:
    with pytest.raises(DataError, match=words):
        from_clients(CLIENTS, test=test)


def test_one_array_with_client_ids_is_the_same_federation(federation: Federation) -> None:
    x, y = (np.concatenate([client[i] for client in CLIENTS]) for i in (0, 1))
    ids = np.repeat(["a", "b", "c"], [10, 20, 5])
    assert same(from_arrays(x, y, ids), federation)
    assert same(from_arrays(torch.from_numpy(x), torch.from_numpy(y), ids), federation)


def test_files_and_folders_per_client(federation: Federation, tmp_path: Path) -> None:
    for k, (x, y) in enumerate(CLIENTS):
        if k == 0:
            np.savez(tmp_path / "client0.npz", x=x, y=y)
        elif k == 1:
            columns = {f"c{j}": x[:, j] for j in range(3)}
            parquet.write_table(pa.table({**columns, "label": y}), tmp_path / "client1.parquet")
        else:
            (tmp_path / "client2").mkdir()
            np.savez(tmp_path / "client2" / "a.npz", x=x[:2], y=y[:2])
            np.savez(tmp_path / "client2" / "b.npz", x=x[2:], y=y[2:])
    assert same(from_files(tmp_path), federation)


def test_regression_global_test_and_validation() -> None:
    clients = [(x, x.sum(1)) for x, _ in CLIENTS]
    fed = from_clients(clients, regression=True, test="global", test_fraction=0.2, validation=0.2)
    assert fed.classes is None
    assert fed.global_test is not None
    assert len(fed.global_test) == 7
    assert fed.train.sizes.sum() + fed.validation.sizes.sum() == 28
    task = own_task(fed, lambda: nn.Linear(3, 1))
    assert (task.loss, task.metric) == ("half_squared_error", "loss")


@pytest.mark.parametrize(
    ("clients", "words"),
    [
        ([], "there are no clients"),
        ([([[1.0]], [0]), ([], [])], "client 1 has 0 samples and 0 labels"),
        (
            [([[1.0]], [0]), ([[1.0, 2.0]], [0])],
            r"client 1 has samples of shape \[2\], client 0 of \[1\]",
        ),
        (
            [([[1.0], [np.nan]], [0, 1])],
            r"client 0, row 2 of its samples: NaN in x0 \(1 in all, in 'x0'\), and scale = "
            r"\"none\"",
        ),
        ([([[1.0], [2.0]], [0, -1])], "labels out of range, from -1 to 0"),
        ([3], r"client 0 is a int; expected a pair \(x, y\) of arrays"),
        ([([[1.0]], [0], 0)], "client 0 is a tuple; expected a pair"),
        ([(3.0, [0])], "client 0 has a single number for x or y"),
        (
            [([[1.0], [2.0]], [0, np.inf])],
            r"client 0, row 2 of its samples: the label is NaN or infinite \(in 1 of 2 rows\)",
        ),
        ([([[1e300], [2.0]], [0, 1])], r"features of up to 1e\+300; expected at most 3.4e\+38"),
        ([([[1.0], [2.0, 3.0]], [0, 1])], "rows of different lengths"),
    ],
)
def test_bad_arrays(clients: list[tuple[list[list[float]], list[int]]], words: str) -> None:
    with pytest.raises(DataError, match=words):
        from_clients(clients)


class Frame:
    """What from_arrays needs of a pandas DataFrame: columns, and conversion to an array of
    objects."""

    columns = ("age", "city", "sex")

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        return np.array([[31.0, "Graz", "f"], [40.0, "Linz", "m"]], dtype=object)


def test_columns_of_words_are_named() -> None:
    line = (
        r'and scale = "none" measures nothing to encode or fill them; write scale = '
        r'"federated" '
        r'.*table=\{"scale": "federated"\}'
    )
    with pytest.raises(
        DataError, match=rf"^the table given: words in 'city', 'sex' \(for example 'Graz'\), {line}"
    ):
        from_arrays(Frame(), [0, 1], [0, 1])
    with pytest.raises(
        DataError, match=r"^the clients given: words in 'x1' \(for example 'blue'\)"
    ):
        from_clients([([["1.5", "red"], ["2", "blue"]], [0, 1])])


def test_bad_folders_and_shares(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="is not a folder"):
        from_files(tmp_path / "no")
    with pytest.raises(DataError, match="has no files of clients"):
        from_files(tmp_path)
    with pytest.raises(ConfigError, match="test_fraction: got 0"):
        from_clients(CLIENTS, test_fraction=0)
    with pytest.raises(ConfigError, match="test_fraction: got 'a fifth'; expected a number"):
        from_clients(CLIENTS, test_fraction="a fifth")  # type: ignore[arg-type]
    with pytest.raises(
        ConfigError,
        match=r"test: got 'globl' \(did you mean 'global'\?\); expected client or global",
    ):
        from_clients(CLIENTS, test="globl")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="expected client or global"):
        from_arrays(np.zeros((4, 2)), [0, 1, 0, 1], [0, 0, 1, 1], test=np.zeros(4))  # type: ignore[arg-type]


def test_client_ids_that_are_none() -> None:
    x = np.zeros((4, 2))
    y = [0, 1, 0, 1]
    with pytest.raises(DataError, match="some client ids are missing"):
        from_arrays(x, y, [0.0, 1.0, np.nan, 1.0])
    with pytest.raises(DataError, match="some client ids are neither numbers nor strings"):
        from_arrays(x, y, np.array(["a", None, "b", "a"], dtype=object))


def test_files_of_other_columns_are_refused_and_another_order_is_mended(tmp_path: Path) -> None:
    (tmp_path / "0.csv").write_text("a,b,label\n1,2,0\n1,2,1\n")
    (tmp_path / "1.csv").write_text("b,label,a\n2,0,1\n2,1,1\n")
    assert from_files(tmp_path).x.tolist() == [[1.0, 2.0]] * 4
    (tmp_path / "1.csv").write_text("a,c,label\n1,2,0\n1,2,1\n")
    with pytest.raises(
        DataError, match=r"1.csv has no column 'b'; expected the same columns in all tables"
    ):
        from_files(tmp_path)
    (tmp_path / "1.csv").write_text("a,b,f,g,h,i,label\n" + "1,2,3,4,5,6,0\n" * 2)
    with pytest.raises(
        DataError,
        match=r"has a column that the first table has not: 'f', 'g', 'h' and 1 more; expected",
    ):
        from_files(tmp_path)


def test_tables_of_other_columns_are_refused_by_the_client() -> None:
    tables = [
        ({"a": [1.0, 2.0], "b": [3.0, 4.0]}, [0, 1]),
        ({"a": [1.0, 2.0], "c": [3.0, 4.0]}, [0, 1]),
    ]
    with pytest.raises(
        DataError, match=r"^client 1 has no column 'b'; expected the same columns in all tables"
    ):
        from_clients(tables)


def test_a_parquet_file_that_unpacks_to_far_more_is_refused_before_it_is_read(
    tmp_path: Path,
) -> None:
    rows = 3_000_000  # of one value: a few kB for each column, and 24 MB in memory
    column = pa.array(np.zeros(rows))
    parquet.write_table(
        pa.table({f"c{j}": column for j in range(50)} | {"label": column}),
        tmp_path / "0.parquet",
    )
    shutil.copy(tmp_path / "0.parquet", tmp_path / "1.parquet")
    with pytest.raises(
        DataError,
        match=r"0.parquet of [\d,]+ bytes unpacks to about 1,224,000,000, more than 1 GiB and "
        r"1,000 times",
    ):
        from_files(tmp_path)


def test_dropout_of_a_module_is_exchanged(federation: Federation) -> None:
    task = own_task(
        federation, lambda: nn.Sequential(nn.Linear(3, 8), nn.Dropout(0.5), nn.Linear(8, 2))
    )
    assert isinstance(task.model()[1], Dropout)  # type: ignore[index]
    assert task.layout is not None
    assert task.layout.size == 50


class Secret(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.dropout(self.layer(x), 0.5, self.training)


class Elsewhere(Secret):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x) + float(np.random.default_rng().uniform())


class Detached(Secret):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x).detach()


class Named(Secret):
    def forward(self, x: torch.Tensor) -> Any:
        return {"logits": self.layer(x)}


class Broken(Secret):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (
            lambda: nn.Sequential(nn.Linear(3, 2), nn.RReLU()),
            r"layer '1' \(RReLU\) draws random slopes",
        ),
        (Secret, "Secret draws from torch's process-wide generator"),
        (lambda: nn.Linear(4, 2), r"the Linear cannot take a batch of shape \[2, 3\]"),
        (
            lambda: nn.Sequential(nn.Linear(3, 4), nn.Unflatten(1, (2, 2))),
            r"gives \[2, 2, 2\] for a batch of 2; expected \[2, 2\]",
        ),
        (
            lambda: nn.Linear(3, 2).double(),
            "but got Float and Double; its weights are float64, and samples come as float32: let "
            'it be float32, and write dtype = "float64" in the experiment if that is meant',
        ),
        (lambda: nn.Linear(3, 2).half(), "its weights are float16, .*: let it be float32$"),
        (Named, r"the Named gives dict .* \[2, 2\]; return the scores alone, one tensor, in"),
        (lambda: nn.Identity(), "no trainable parameters"),
        (Elsewhere, "gives other outputs for the same batch each time: it draws random numbers"),
        (Detached, r"the outputs of the Detached do not depend on its parameters \(detach"),
        (
            Broken,
            "the Broken cannot take a batch .* AttributeError 'Broken' object has no attribute "
            "'layers'",
        ),
        (3, "got 3; give a function that makes a fresh module"),
        (lambda: None, "gave NoneType; expected a torch.nn.Module"),
        (nn.Linear(3, 2), "got a module; give a function that makes a fresh one"),
    ],
)
def test_modules_that_cannot_be_used_say_why(
    federation: Federation, model: object, words: str
) -> None:
    with pytest.raises(ModelError, match=words):
        own_task(federation, model)  # type: ignore[arg-type]


def test_the_names_are_found_in_the_room() -> None:
    import motley

    assert motley.tasks.from_clients is from_clients
    with pytest.raises(AttributeError, match="there is no component 'from_nothing' here"):
        motley.tasks.from_nothing  # noqa: B018


def tied() -> nn.Module:
    module = nn.Sequential(
        nn.Linear(3, 3, bias=False), nn.ReLU(), nn.Linear(3, 3, bias=False), nn.Linear(3, 2)
    )
    module[2].weight = module[0].weight
    return module


def test_tied_layers_are_trained_together_and_the_fast_stack_leaves_them_alone(
    federation: Federation, tmp_path: Path
) -> None:
    import motley

    keys = {"cohort": 2, "stop": {"rounds": 2}, "task": "own", "partition": "by_writer"}
    auto = motley.run(keys, task=own_task(federation, tied), out=tmp_path / "auto")
    assert auto.finished
    assert auto.meta["numerics"]["engine"] != "batched"
    with pytest.raises(ConfigError, match="engine: 'batched' cannot run this experiment"):
        motley.run(
            {**keys, "engine": "batched"}, task=own_task(federation, tied), out=tmp_path / "batched"
        )
    assert not (tmp_path / "batched").exists()


class Words(nn.Module):
    """Scores two classes by the words of a sentence."""

    def __init__(self, words: int = 9) -> None:
        super().__init__()
        self.embed = nn.Embedding(words, 3)
        self.out = nn.Linear(3, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(self.embed(x).mean(1))


def _sentences(dtype: type) -> Federation:
    rng = np.random.default_rng(0)
    return from_clients(
        [(rng.integers(0, 9, (8, 5)).astype(dtype), np.arange(8) % 2) for _ in range(3)]
    )


@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.uint16])
def test_whole_numbers_stay_whole_for_a_model_that_takes_them(dtype: type, tmp_path: Path) -> None:
    task = own_task(_sentences(dtype), Words, transform=lambda batch, key: batch.flip(1))
    assert task.federation.x.dtype == torch.int64
    keys = {
        "task": "own",
        "cohort": 2,
        "stop": {"rounds": 2},
        "dtype": "float64",
        "selector": "power_of_choice",
    }
    done = motley.run(keys, task=task, out=tmp_path)
    assert done.finished
    assert np.isfinite(done.column("evaluations", "loss")).all()


def test_whole_numbers_become_floats_for_a_model_of_numbers() -> None:
    assert (
        own_task(_sentences(np.int64), lambda: nn.Linear(5, 2)).federation.x.dtype == torch.float32
    )
    # pixels
    assert own_task(_sentences(np.uint8), lambda: nn.Linear(5, 2)).federation.x.dtype == torch.uint8


def test_a_word_outside_the_embedding_is_refused() -> None:
    with pytest.raises(
        ModelError, match=r"the Words cannot take a batch of shape \[2, 5\]: .*index out of range"
    ):
        own_task(_sentences(np.int64), lambda: Words(words=1))


def test_names_of_classes_leave_positions_without_one_as_they_are():
    x, y = np.zeros((4, 3)), np.array([[0, 20, -100], [10, 10, -100], [0, 0, 0], [20, 20, 20]])
    named = from_clients([(x, y), (x, y)], classes=["20", "10", "0"])
    assert named.y[:2].tolist() == [[2, 0, -100], [1, 1, -100]]
    assert (named.classes, named.names) == (3, ("20", "10", "0"))


def test_a_seed_that_is_no_whole_number() -> None:
    with pytest.raises(ConfigError, match="seed: got 'a'; expected a whole number"):
        from_arrays(np.ones((4, 1)), [0, 1, 0, 1], [0, 0, 1, 1], seed="a")  # type: ignore[arg-type]
