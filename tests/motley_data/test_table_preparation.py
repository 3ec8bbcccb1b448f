"""Gaps filled, words encoded and numbers scaled: worked by hand, and against scikit-learn on pooled
rows."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

from motley.core.errors import ConfigError, DataError
from motley.tasks import from_arrays, from_clients, from_files
from motley.tasks.preparation import restore_preparation
from motley.tasks.task import Federation
from motley_data.raw_table import raw_table
from motley_data.statistics import client_sums, fit, pooled
from motley_data.table_options import TableOptions
from motley_data.table_preparation import NumberColumn, TablePreparation, WordColumn

NAN = float("nan")
ALL = {"scale": "federated"}


def fitted(
    columns: dict[str, list[Any]], owner: list[int], train: list[bool] | None = None, **options: Any
) -> Any:
    """The preparation of a small table and its traffic; all rows train unless said."""
    table = raw_table(pa.table(columns), TableOptions(**{**ALL, **options}), "t.csv")
    n = len(owner)
    preparation, traffic = fit(
        table, np.arange(n), np.array(owner), np.array(train or [True] * n), max(owner) + 1
    )
    return (
        preparation,
        traffic,
        preparation.inputs(table, np.array(owner) if preparation.clients else None),
    )


def test_numbers_are_filled_with_the_mean_and_scaled_by_hand() -> None:
    """Entries 1, 3 of client 0 and 8 of client 1; a gap each. Mean 12/3 = 4 fills; of 1, 4, 3, 8, 4
    (mean 4) the squared distances are 9 + 0 + 1 + 16 + 0 = 26, the variance 26/5."""
    preparation, _, x = fitted({"age": [1.0, None, 3.0, 8.0, None]}, [0, 0, 0, 1, 1])
    (column,) = preparation.columns
    assert (column.fill.tolist(), column.mean.tolist()) == ([4.0], [4.0])
    assert column.deviation[0] == pytest.approx((26 / 5) ** 0.5, rel=1e-15)
    np.testing.assert_allclose(x[:, 0], np.array([-3, 0, -1, 4, 0]) / (26 / 5) ** 0.5, rtol=1e-7)


def test_each_client_may_use_its_own_rows_and_its_median() -> None:
    """Client 0 has 1, 1, 7 and a gap: median 1 fills; 1, 1, 7, 1 has mean 2.5 and variance (3 *
    2.25 + 20.25) / 4 = 6.75. Client 1 has 4, 4: constant, hence only centred."""
    columns = {"age": [1.0, 1.0, 7.0, None, 4.0, 4.0]}
    preparation, traffic, x = fitted(columns, [0, 0, 0, 0, 1, 1], scale="client", impute="median")
    (column,) = preparation.columns
    assert (column.fill.tolist(), column.mean.tolist()) == ([1.0, 4.0], [2.5, 4.0])
    assert column.deviation.tolist() == [6.75**0.5, 1.0]
    np.testing.assert_allclose(
        x[:, 0], [*(np.array([-1.5, -1.5, 4.5, -1.5]) / 6.75**0.5), 0, 0], rtol=1e-7
    )
    assert (traffic.down_bits, traffic.up_bits.tolist()) == (0, [0, 0])


def test_words_become_one_input_per_category() -> None:
    """a: 3 times, c: twice, missing: twice, b: once. Three inputs: the two most frequent (c before
    missing by the alphabet) and other."""
    words = ["a", "c", None, "a", "b", "a", "c", "?"]
    preparation, _, x = fitted({"drug": words}, [0] * 8, categories=3)
    assert preparation.columns[0][1:] == (("a", "c"), True, "missing")
    assert x.argmax(1).tolist() == [0, 1, 2, 0, 2, 0, 1, 2]
    assert x.sum(1).tolist() == [1.0] * 8
    preparation, _, x = fitted({"drug": words}, [0] * 8, missing="most_frequent")
    assert preparation.columns[0][1:] == (("a", "b", "c"), False, "a")
    assert x.argmax(1).tolist() == [0, 2, 0, 0, 1, 0, 2, 0]


def test_a_word_that_no_training_row_holds_is_other_or_nothing() -> None:
    train = [True, True, True, False]
    preparation, _, x = fitted({"drug": ["a", "b", "a", "z"]}, [0] * 4, train)
    assert preparation.columns[0].categories == ("a", "b")
    assert x[3].tolist() == [0.0, 0.0]
    preparation, _, x = fitted({"drug": ["a", "b", "c", "z"]}, [0] * 4, train, categories=2)
    assert (preparation.columns[0].categories, x[3].tolist()) == (("a",), [0.0, 1.0])


def test_a_word_or_gap_of_new_rows_that_is_no_category_is_told() -> None:
    word = WordColumn("sex", ("f", "m"), False, "missing")
    known = TablePreparation((word,), False, TableOptions().gaps)
    with pytest.warns(
        UserWarning,
        match=r"^'F' \(row 2\) is no category of column 'sex', whose inputs are all 0 in 2 of 4 "
        r"rows; its categories: f, m$",
    ):
        encoded = known({"sex": ["m", "F", None, "f"]})
    assert encoded.tolist() == [[0.0, 1.0], [0.0, 0.0], [0.0, 0.0], [1.0, 0.0]]
    with pytest.warns(UserWarning, match=r"^a gap \(row 1\) is no category"):
        known({"sex": [None, "f"]})
    other = TablePreparation((word._replace(other=True),), False, TableOptions().gaps)
    assert other({"sex": ["F"]}).tolist() == [[0.0, 0.0, 1.0]]
    assert known({"sex": ["m", "f"]}).tolist() == [[0.0, 1.0], [1.0, 0.0]]


def test_the_bits_of_the_exchange_by_hand() -> None:
    """Up: the number of rows 64; each column of numbers 3 * 64; each word the client has: 8 bits a
    byte and a closing byte, and 64 for its count. Client 0: "no" and a gap: (24 + 64) + (8 + 64).
    Client 1: "jä" (3 bytes): 32 + 64.
    Down: 2 * 64 a column of numbers; the categories jä, missing, no and the word missing that fills
    gaps: 32 + 64 + 24 + 64."""
    columns = {"age": [1.0, 2.0, 3.0], "dose": [1.0, None, 3.0], "smoker": ["no", None, "jä"]}
    _, traffic, _ = fitted(columns, [0, 0, 1])
    assert traffic.up_bits.tolist() == [64 + 2 * 192 + 88 + 72, 64 + 2 * 192 + 96]
    assert traffic.down_bits == 2 * 128 + 32 + 64 + 24 + 64
    _, traffic, _ = fitted(columns, [0, 1, 1], scale="client")
    assert traffic.up_bits.tolist() == [88, 72 + 96], "only the words are agreed on"


def _mixed(n: int) -> tuple[dict[str, Any], np.ndarray]:
    rng = np.random.default_rng(3)
    age = rng.normal(50, 20, n)
    weight = rng.lognormal(4, 1, n) + 1e7
    word = rng.choice(
        ["red", "green", "blue", "black", "white", "pink"], n, p=[0.3, 0.25, 0.2, 0.15, 0.06, 0.04]
    )
    colour = [
        None if gone else str(one) for one, gone in zip(word, rng.random(n) < 0.1, strict=True)
    ]
    age[rng.random(n) < 0.2] = np.nan
    return {
        "age": pa.array(age, from_pandas=True),
        "weight": weight,
        "colour": colour,
    }, rng.integers(0, 7, n)


def test_sums_of_clients_give_what_scikit_learn_finds_in_pooled_rows() -> None:
    from sklearn.compose import ColumnTransformer
    from sklearn.impute import SimpleImputer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    columns, owner = _mixed(500)
    train = np.random.default_rng(4).random(500) < 0.7
    table = raw_table(pa.table(columns), TableOptions(scale="federated", categories=4), "t")
    preparation, _ = fit(table, np.arange(500), owner, train, 7)
    numbers = np.stack([column.values for column in table.columns[:2]], axis=1)
    pipeline = make_pipeline(SimpleImputer(), StandardScaler()).fit(numbers[train])
    imputer, scaler = (step for _, step in pipeline.steps)
    for j, column in enumerate(preparation.columns[:2]):
        assert isinstance(column, NumberColumn)
        for mine, theirs in (
            (column.fill, imputer.statistics_),
            (column.mean, scaler.mean_),
            (column.deviation, scaler.scale_),
        ):
            assert mine[0] == pytest.approx(theirs[j], rel=1e-12, abs=1e-12)
    rows = np.array(
        [[*pair, word] for pair, word in zip(numbers, columns["colour"], strict=True)], dtype=object
    )
    words = make_pipeline(
        SimpleImputer(strategy="constant", fill_value="missing", missing_values=None),
        OneHotEncoder(max_categories=4, handle_unknown="infrequent_if_exist", sparse_output=False),
    )
    both = ColumnTransformer([("numbers", pipeline, [0, 1]), ("words", words, [2])])
    expected = both.fit(rows[train]).transform(rows)
    np.testing.assert_allclose(preparation.inputs(table), expected, rtol=1e-5, atol=1e-6)


def test_a_large_mean_costs_few_digits() -> None:
    """Mean 1e9 and deviation 1: the mean is known to 1e-7, and the sum of the squares would keep no
    digit of the variance."""
    values = 1e9 + np.random.default_rng(0).normal(size=300)
    sums = pooled(client_sums(values, np.arange(300) % 7, 7))
    assert sums.squares[0] / 300 == pytest.approx(values.var(), rel=1e-7)


def _federations(change: Any) -> list[Federation]:
    out = []
    for changed in (False, True):
        rng = np.random.default_rng(5)
        age = rng.normal(size=60)
        drug = rng.choice(["a", "b"], 60).astype(object)
        owner = np.arange(60) % 3
        age[7] = np.nan
        if changed:
            change(age, drug)
        table = {"age": age, "drug": list(drug)}
        out.append(from_arrays(table, np.arange(60) // 3 % 2, owner, table=ALL, validation=0.2))
    return out


def test_statistics_come_from_training_rows_only() -> None:
    first, same = _federations(lambda age, drug: None)
    others = np.concatenate([first.test.values, first.validation.values])
    assert 0 < len(first.test.values) < len(others)

    def change(age: np.ndarray, drug: np.ndarray) -> None:
        age[others] = 1e6
        drug[others] = "unheard of"

    _, changed = _federations(change)
    assert first.preparation is not None
    assert changed.preparation is not None
    assert first.preparation.save() == changed.preparation.save() == same.preparation.save()  # type: ignore[union-attr]
    assert torch.equal(first.x[first.train.values], changed.x[first.train.values])


@pytest.mark.parametrize("scale", ["federated", "client"])
def test_what_was_fitted_is_saved_readably_and_prepares_new_rows(
    scale: str, tmp_path: Path
) -> None:
    columns, owner = _mixed(80)
    data = from_arrays(columns, np.arange(80) % 2, owner, table={"scale": scale, "categories": 4})
    assert isinstance(data.preparation, TablePreparation)
    text = json.dumps(data.preparation.save(), indent=1)
    restored = restore_preparation(json.loads(text))
    for k in range(7):
        rows = np.concatenate([data.train[k], data.test[k]])
        raw = pa.table(columns).take(pa.array(rows))
        assert torch.equal(restored(raw, k), data.x[torch.from_numpy(rows)])
    if scale == "client":
        with pytest.raises(
            ConfigError,
            match=r"each client scales by its own rows .*run.clients\(\)\[k\].predict\(x\)",
        ):
            restored(raw)
    records = raw.to_pylist()
    assert torch.equal(restored(records, 6), restored(raw, 6))
    with pytest.raises(
        DataError,
        match=r"the rows have no column 'age' \(did you mean 'agee'\?\); their columns: agee",
    ):
        restored({"agee": [1.0]}, 0)
    with pytest.raises(
        DataError,
        match=r'row 2 of x: got "old" in column .age., where the rows that trained have a number '
        r"with a decimal point; write it so, or give numbers, e.g. \[{\"age\": 1234.5}\]",
    ):
        restored({"age": ["1", "old"], "weight": [1, 2], "colour": ["red", "red"]}, 0)


def test_files_of_clients_with_gaps_and_words(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("age,sex,label\n1,f,no\n,m,yes\n3,f,no\n")
    (tmp_path / "b.csv").write_text("sex,label,age\nm,yes,?\nf,no,6\nf,no,8\n")
    data = from_files(tmp_path, table={"scale": "federated"}, test_fraction=0.3)
    assert isinstance(data.preparation, TablePreparation)
    assert data.preparation.save()["inputs"] == ["age", "sex=f", "sex=m"]
    assert data.names == ("no", "yes")
    assert data.notes["statistics"].startswith(
        "2 clients sent statistics of their training rows once: "
    )


def test_an_entry_that_cannot_be_read_is_named_with_its_file_and_row(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("age,label\n1,0\n2,1\n3,1\n")
    (tmp_path / "b.csv").write_text("age,label\n4,0\nold,1\n5,0\n6,1\n")
    with pytest.raises(
        DataError,
        match=r"client b, row 2 of .*b.csv: got \"old\" among the numbers of column 'age'; write "
        r"gaps",
    ):
        from_files(tmp_path, table=ALL)


def test_no_statistics_where_none_are_needed() -> None:
    x = np.random.default_rng(0).normal(size=(20, 2)).astype(np.float32)
    data = from_arrays({"a": x[:, 0], "b": x[:, 1]}, [0, 1] * 10, [0] * 10 + [1] * 10)
    assert (data.statistics, torch.equal(data.x, torch.from_numpy(x))) == (None, True)
    assert data.preparation is not None
    assert torch.equal(data.preparation({"a": x[:, 0], "b": x[:, 1]}), data.x)


@pytest.mark.parametrize(
    ("columns", "options", "words"),
    [
        (
            {"age": ["1", "2", "old"]},
            {},
            r"""row 3 of t.csv: got "old" among the numbers of column 'age'; write gaps = """
            r"""\["", .*"None", "old"\] if it stands for a gap, or words = \["age"\]""",
        ),
        (
            {"born": pa.array([0, 1], pa.date32())},
            {},
            r"column 'born' holds dates or times \(date32.*\); leave it out with",
        ),
        (
            {"id": [f"p{i}" for i in range(20)]},
            {},
            r"column 'id' holds another word in every row \('p0', 'p1', ...\), like an id",
        ),
        (
            {"age": [1.0, float("inf")]},
            {},
            "row 2 of t.csv: got inf in column 'age'; expected a finite number up to 3.4e.38",
        ),
        (
            {"age": [1.0, 2.0]},
            {"drop": ("agee",)},
            r"drop: t.csv has no input 'agee' \(did you mean 'age'\?\); its inputs: age",
        ),
        ({"age": [1.0, 2.0]}, {"drop": ("age",)}, "t.csv has no input columns; its columns: age"),
        (
            {"age": [None, None]},
            {},
            "there is no value of column 'age' in its training rows; write drop",
        ),
        (
            {"age": [1.0, None]},
            {"scale": "client"},
            r"client 1 has no value of column 'age' .* write drop = \[\"age\"\], or scale",
        ),
        (
            {"parts": [[1], [2]]},
            {},
            "column 'parts' holds list<.*>, not numbers or words; leave it out",
        ),
    ],
)
def test_columns_that_cannot_be_used_say_why(
    columns: dict[str, Any], options: dict[str, Any], words: str
) -> None:
    with pytest.raises(DataError, match=words):
        fitted(
            columns,
            [0, 1]
            if len(next(iter(columns.values()))) == 2
            else [0] * len(next(iter(columns.values()))),
            **options,
        )


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            {"impute": "median"},
            'impute: got "median" with scale = "federated", and sums of clients do not contain a '
            "median; write",
        ),
        ({"impute": "mode"}, r"impute: got 'mode'; expected one of: mean, median"),
        ({"categories": 1}, "categories: got 1; expected at least 2"),
        ({"drop": "age"}, r"drop: got 'age'; expected a list, e.g. drop = \['age'\]"),
    ],
)
def test_bad_options(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        TableOptions(**{**ALL, **options})
    with pytest.raises(
        ConfigError, match=r"table: there is no option 'scal' \(did you mean 'scale'\?\)"
    ):
        from_clients([], table={"scal": "none"})


def test_words_in_any_of_arrows_types() -> None:
    words = ["a", None, "b"]
    made = [
        fitted({"x": pa.array(words, kind)}, [0] * 3)[2]
        for kind in (pa.string(), pa.large_string(), pa.string_view())
    ]
    made.append(fitted({"x": pa.array(words).dictionary_encode()}, [0] * 3)[2])
    assert all(torch.equal(x, torch.eye(3)[[0, 2, 1]]) for x in made)


def test_numbers_can_be_words_and_ids_kept_when_asked() -> None:
    preparation, _, _ = fitted({"zip": [8010, 4020, 8010]}, [0] * 3, words=("zip",))
    assert preparation.columns[0].categories == ("4020", "8010")
    preparation, _, _ = fitted(
        {"id": [f"p{i}" for i in range(20)]}, [0] * 20, words=("id",), categories=5
    )
    assert preparation.columns[0].other
