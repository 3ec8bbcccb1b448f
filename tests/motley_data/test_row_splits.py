"""Golden splits, worked by hand."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from motley.core.errors import ConfigError, DataError
from motley.experiments.config import Experiment
from motley.experiments.run_data import task_of
from motley.tasks import from_arrays, from_clients, from_files
from motley.tasks.task import Federation

X = np.arange(10.0)[:, None] ** 2
Y = np.arange(10) % 2
CLIENT = np.repeat(["a", "b"], 5)


def roots(federation: Federation) -> list[list[float]]:
    """The roots of each client's test samples."""
    return [
        sorted(federation.x[federation.test[k], 0].sqrt().tolist()) for k in range(len(federation))
    ]


TIME = np.array([5, 4, 3, 2, 1, 1, 9, 2, 9, 3])
"""Client a's rows run backwards; the last two of client b are of one time."""


@pytest.mark.parametrize(
    "time",
    [
        TIME,
        TIME.astype(float),
        np.array([f"2024-01-{10 + t}" for t in TIME]),
        np.array([f"{t}" for t in TIME + 5], object),
        np.array([f"2024-01-{10 + t}T18:00" for t in TIME], "datetime64[s]"),
    ],
    ids=lambda time: str(time.dtype),
)
def test_the_last_rows_in_time_test(time: Any) -> None:
    federation = from_arrays(X, Y, CLIENT, test={"last": 0.2, "by": time})
    assert roots(federation) == [[0.0], [6.0, 8.0]]
    assert federation.notes["test"] == "the last 0.2 of each client's rows in time"


@pytest.mark.parametrize(
    ("time", "options"),
    [
        ([f"{10 + t}.01.2024" for t in TIME], {"dates": "day first"}),
        ([f"1/{10 + t}/24" for t in TIME], {"dates": "month first"}),
        ([f"{(94 + t) % 100:02d}-01-01" for t in TIME], {"dates": "year first"}),  # 1995 to 2003
        ([f"{9 + t}:30" for t in TIME], {"dates": "day first"}),
        ([f"{t},5" for t in TIME], {"decimal": ","}),
        ([f"1.{t}00" for t in TIME], {"decimal": {"t": ","}, "thousands": {"t": "."}}),
        # odd hours are written 5 hours ahead of UTC
        ([f"2024-01-01T{5 + t + t % 2 * 5:02d}:00:00+0{t % 2 * 5}:00" for t in TIME], {}),
    ],
)
def test_times_are_written_as_the_options_say(time: list[str], options: dict[str, Any]) -> None:
    frame = {"v": X[:, 0], "t": time, "who": CLIENT, "label": Y}
    table = {"scale": "none", **options}
    given = from_arrays(frame, "label", "who", table=table, test={"last": 0.2, "by": "t"})
    assert roots(given) == [[0.0], [6.0, 8.0]]


def test_every_way_to_give_the_time(tmp_path: Path) -> None:
    frame = {"v": X[:, 0], "t": TIME, "who": CLIENT, "label": Y}
    test = {"last": 0.4, "by": "t"}
    federation = from_arrays(frame, "label", "who", test=test)
    assert federation.x.shape[1] == 1  # the time is no input
    assert roots(federation) == [[0.0, 1.0], [6.0, 8.0]]
    halves = (slice(0, 5), slice(5, 10))
    tables = [({"v": X[some, 0], "t": TIME[some]}, Y[some]) for some in halves]
    pairs = [(X[some], Y[some]) for some in halves]
    times = [TIME[some] for some in halves]
    for name, some in zip("ab", halves, strict=True):
        rows = zip(X[some, 0], TIME[some], Y[some], strict=True)
        lines = ["v,t,label", *(",".join(map(str, row)) for row in rows)]
        (tmp_path / f"{name}.csv").write_text("\n".join(lines))
    for other in (
        from_clients(tables, test=test),
        from_clients(pairs, test={"last": 0.4, "by": times}),
        from_clients(
            dict(zip("ab", pairs, strict=True)),
            test={"last": 0.4, "by": dict(zip("ab", times, strict=True))},
        ),
        from_files(tmp_path, test=test),
    ):
        assert roots(other) == [[0.0, 1.0], [6.0, 8.0]]
        assert other.x.shape[1] == 1
    in_order = from_clients(pairs, test={"last": 0.4, "by": "order"})
    assert roots(in_order) == [[3.0, 4.0], [8.0, 9.0]]


def test_groups_stay_whole() -> None:
    patients = np.array(["p", "p", "q", "q", "r", "s", "s", "t", "t", "u"])
    seen = set()
    for seed in range(20):
        federation = from_arrays(X, Y, CLIENT, test={"groups": 0.2, "by": patients}, seed=seed)
        for k, rows in enumerate(roots(federation)):
            members = {patients[int(row)] for row in rows}
            assert len(members) == 1
            assert len(rows) == np.isin(patients, list(members)).sum()
            seen.add((k, *members))
    assert len(seen) == 6  # each of the patients was drawn once


def test_a_clients_groups_do_not_depend_on_other_clients() -> None:
    patients = np.arange(10)
    alone = from_arrays(X[:5], Y[:5], CLIENT[:5], test={"groups": 0.4, "by": patients[:5]})
    both = from_arrays(X, Y, CLIENT, test={"groups": 0.4, "by": patients})
    assert roots(both)[0] == roots(alone)[0]
    assert len(roots(both)[0]) == 2


@pytest.mark.parametrize(
    ("test", "words"),
    [
        ({"last": 0.2}, r'got last; expected one of last and groups, and by, .*"by": "time"'),
        ({"by": "t"}, "got by; expected one of last and groups"),
        ({"last": 0.2, "groups": 0.2, "by": TIME}, "expected one of last and groups"),
        ({"last": 1.2, "by": TIME}, "got last = 1.2; expected a share above 0 and below 1"),
        ({"lst": 0.2, "by": TIME}, r"got 'lst' \(did you mean 'last'\?\)"),
    ],
)
def test_keys_that_are_wrong(test: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        from_arrays(X, Y, CLIENT, test=test)


@pytest.mark.parametrize(
    ("by", "words"),
    [
        (TIME[:4], r"by has the shape \[4\] for 10 samples; expected one per sample"),
        (np.where(TIME == 2, np.nan, TIME), r"client a, row 4 of its samples: the time .* missing"),
        (
            np.array(["01.05.2004"] * 10),
            r"'01\.05\.2004' as a time; expected numbers, or dates .* write dates = .day first. or "
            r"dates = .month first., .* table={.scale.: .none., .dates.: .day first.}",
        ),
        (np.array(["98-01-01", "00-01-01"] * 5), "'98-01-01' as a time; .* write dates = .year fi"),
        (np.array(["1,5"] * 10), "'1,5' as a time; .*write decimal = .,., "),
        (np.array(["soon"] * 10), r"like 2024-05-31 or 2024-05-31T18:00$"),
        (
            np.array(["2024-05-31T18:00", "2024-05-31T18:00Z"] * 5),
            "'2024-05-31T18:00Z' as a time, and '2024-05-31T18:00' is a date; write all",
        ),
        (np.ones(10), "all rows of this client are of one time, so that none could train"),
        ("day", r"got 'day' as the name of a column, and the arrays given has none; give an array"),
    ],
)
def test_times_that_cannot_be_used(by: Any, words: str) -> None:
    with pytest.raises(DataError, match=words):
        from_arrays(X, Y, CLIENT, test={"last": 0.2, "by": by})


def test_times_of_all_clients_in_one_array_are_refused() -> None:
    clients = [(X[:5], Y[:5]), (X[5:], Y[5:])]
    with pytest.raises(DataError, match="by has 10 numbers or words; expected an array for each"):
        from_clients(clients, test={"last": 0.2, "by": TIME})


def test_an_experiment_file_divides_by_a_column(tmp_path: Path) -> None:
    """Whatever the partition, no client trains on a row that is later than one it tests on."""
    day = [f"2024-0{1 + k // 28}-{1 + k % 28:02d}" for k in range(80)]
    rows = [f"{'ab'[k % 2]},{day[79 - k]},{k}.5,{k // 2 % 2}" for k in range(80)]
    (tmp_path / "series.csv").write_text("\n".join(["sensor,day,v,label", *rows]))
    task = {
        "name": "tabular",
        "data": str(tmp_path / "series.csv"),
        "client": "sensor",
        "scale": "none",
        "test": {"last": 0.25, "by": "day"},
    }
    keys: dict[str, Any] = {"task": task, "cohort": 2, "stop": {"rounds": 1}}
    keys["partition"] = "by_writer"
    for clients in ({}, {"partition": "iid", "population": 4}):
        federation = task_of(Experiment(**{**keys, **clients})).federation
        assert federation.x.shape[1] == 1
        for k in range(len(federation)):  # v runs against time
            train = federation.x[federation.train[k], 0]
            test = federation.x[federation.test[k], 0]
            assert test.max() < train.min()
            assert len(test) == len(federation.train[k]) / 3
    with pytest.raises(ConfigError, match=r"split\.test: got 'global', and each client's rows"):
        task_of(Experiment(**keys, split={"test": "global"}))
    with pytest.raises(
        ConfigError, match=r"split\.test: got a table; .* test = \{ last = 0\.2, by"
    ):
        Experiment(**{**keys, "split": {"test": {"last": 0.2, "by": "day"}}})
    for other in ({"lst": 0.2, "by": "day"}, {"lst": 0.2}):
        with pytest.raises(ConfigError, match=r"test: got '?lst"):
            Experiment(**{**keys, "task": {**task, "test": other}}).part("task")


def test_validation_rows_are_not_drawn_at_random_beside() -> None:
    with pytest.raises(
        ConfigError,
        match=r"split\.validation: got 0\.1, and each client's rows are divided by last",
    ):
        from_arrays(X, Y, CLIENT, test={"last": 0.2, "by": TIME}, validation=0.1)


SERIES = np.random.default_rng(0).normal(size=(60, 2))


@pytest.mark.parametrize("step", [1, 3])
@pytest.mark.parametrize("form", ["steps", "channels", "lags", "newest first"])
def test_windows_of_a_series_are_not_drawn_at_random(step: int, form: str) -> None:
    windows = np.lib.stride_tricks.sliding_window_view(SERIES, 8, axis=0)[::step]  # [n, 2, 8]
    x = {
        "steps": windows.transpose(0, 2, 1),
        "channels": windows,
        "lags": windows[:, 0],
        "newest first": windows[:, 0, ::-1],
    }[form]
    y = np.arange(len(x)) % 2
    with pytest.raises(
        DataError,
        match=r"client 0, row 2 of its samples: each sample is the one before it moved on, a window"
        r' .*; write test=\{"last": 0\.2, "by": "time"\}, or, .*"by": "order"',
    ):
        from_clients([(x, y)])
    assert from_clients([(x, y)], test={"last": 0.25, "by": "order"}).test.sizes.sum() >= 5
    half = len(x) // 2
    assert from_clients([(x[:half], y[:half])], test=[(x[half:], y[half:])]).train.sizes[0] == half
    apart = np.random.default_rng(1).permutation(len(x))  # nothing says what follows what
    assert from_clients([(x[apart], y)]).train.sizes.sum() == len(x) - -(-len(x) // 5)


def test_equal_or_constant_rows_are_no_windows() -> None:
    y = np.arange(20) % 2
    for x in (np.ones((20, 4)), np.repeat(np.arange(20.0)[:, None], 6, axis=1)):
        from_clients([(x, y)])


@pytest.mark.parametrize(
    "same",
    [("P1", "P1 "), ("P1", "p1"), ("7", "7.0"), ("07", "7"), ("1e2", "100"), ("P1", "P1\u200b")],
)
def test_groups_in_several_spellings_are_refused(same: tuple[str, str]) -> None:
    first, second = sorted(same)
    group = np.array([*same, "P2", "P3", "8"] * 2, object)
    said = re.escape(f"would train and test: {first!r}, {second!r}; write each in one spelling")
    with pytest.raises(DataError, match=said):
        from_arrays(X, Y, CLIENT, test={"groups": 0.2, "by": group})
    apart = np.array([same[0], "a", "b", "c", "d", same[1], "a", "b", "c", "d"])
    federation = from_arrays(X, Y, CLIENT, test={"groups": 0.2, "by": apart})
    assert federation.test.sizes.tolist() == [1, 1]  # groups are a client's own
