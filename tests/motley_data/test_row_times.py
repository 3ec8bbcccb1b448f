"""Tables in order of time: told with the line that tests on the last rows; windows are refused.
Independent rows are not told, in whatever order they are."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from torch.utils.data import Subset

from motley.core.errors import DataError
from motley.experiments.config import Experiment
from motley.experiments.run_data import task_of
from motley.tasks import from_arrays, from_clients
from motley.tasks.task import Federation
from motley_data.row_times import (
    _first_rows,
    follows_itself,
    order_of_rows,
    rising_times,
    windows_of_columns,
)
from motley_data.table_options import TableOptions

N = 60
OWNER = np.arange(N) % 2
STEP = np.arange(N)
DAYS = [f"{1 + k % 28:02d}.{1 + k // 28:02d}.2024" for k in range(N)]
WALK = np.sin(STEP / 9) + STEP / 60
SHUFFLED = np.random.default_rng(0).permutation(N)


def series(folder: Path, **columns: Any) -> Path:
    names = ["sensor", *columns]
    rows = zip(OWNER, *columns.values(), strict=True)
    text = "\n".join([",".join(names), *(",".join(map(str, row)) for row in rows)])
    path = folder / "series.csv"
    path.write_text(text + "\n")
    return path


def read(path: Path, **task: Any) -> Federation:
    keys: dict[str, Any] = {
        "task": {"name": "tabular_regression", "data": str(path), "client": "sensor", **task},
        "partition": "by_writer",
        "cohort": 2,
        "stop": {"rounds": 1},
    }
    return task_of(Experiment(**keys)).federation


@pytest.mark.parametrize(
    ("name", "entries", "order"),
    [
        ("t", STEP, ""),
        ("t", STEP[::-1], ""),
        ("t", STEP // 2, ""),
        ("time_s", STEP / 10, ""),
        ("startTime", STEP * 7, ""),
        ("anything", DAYS, "day first"),
        ("anything", [f"2024-01-01T{k // 60:02d}:{k % 60:02d}" for k in range(N)], ""),
        ("anything", [f"{1 + k % 28:02d}/{1 + k // 28:02d}/2024" for k in range(N)], "day first"),
        ("Datum", ["", *DAYS[1:]], "day first"),
        ("Zeitpunkt", [f"{k},5" for k in range(N)], ""),
        ("anything", 1_700_000_000 + 60 * STEP, ""),  # seconds from 1970
        ("anything", 1_700_000_000_000 + STEP, ""),
        ("anything", [f"{1950 + k // 12}-{1 + k % 12:02d}" for k in range(N)], ""),
        ("anything", [f"1:{k:02d}:00" for k in range(N)], "day first"),  # hours, in each order
        # 1/2/2024 is the second of January: the days from 1 to 12 fall in the other order
        ("anything", [f"{1 + k // 12}/{1 + k % 12}/2024" for k in range(N)], "month first"),
    ],
)
def test_columns_that_rise_are_times(name: str, entries: Any, order: str) -> None:
    table = pa.table({name: pa.array(list(map(str, entries))), "v": WALK})
    options = TableOptions(decimal={"Zeitpunkt": ","})
    ((found, dates),) = rising_times(table, options, OWNER)
    assert (found, dates) == (name, order)


@pytest.mark.parametrize(
    ("name", "entries"),
    [
        ("t", STEP[SHUFFLED]),
        ("anything", STEP),  # numbers by another name
        ("weight", STEP),
        ("day", [DAYS[k] for k in SHUFFLED]),
        ("year", np.repeat([2023, 2024], N // 2)),  # one step up is no series
        ("visit_day", STEP // 2 % 5),  # a patient's visits begin again
        ("price", 1_700_000_000 + 60.5 * STEP),
        ("t", np.zeros(N)),
        ("t", [""] * N),
    ],
)
def test_other_columns_are_no_times(name: str, entries: Any) -> None:
    table = pa.table({name: pa.array(list(map(str, entries)))})
    assert rising_times(table, TableOptions(), OWNER) == ()


def test_sensors_one_after_another_rise() -> None:
    table = pa.table({"t": np.tile(np.arange(30), 4)})
    assert rising_times(table, TableOptions(), None) == (("t", ""),)
    short = pa.table({"t": np.tile(np.arange(15), 8)})
    assert rising_times(short, TableOptions(), None) == ()


@pytest.mark.parametrize(
    ("name", "entries"),
    [
        ("day", np.arange(240) // 4 % 31),  # of the month
        ("hour", np.arange(480) // 10 % 24),
        ("Time", [f"{k // 10 % 24:02d}:00:00" for k in range(300)]),
        ("mnth", np.arange(6_000) // 600 % 12),  # the second year lies beyond what is looked at
    ],
)
def test_parts_of_a_time_begin_anew(name: str, entries: Any) -> None:
    """By the day of the month, rows of the first month would come after some of the second."""
    table = pa.table({name: pa.array(list(map(str, entries)))})
    assert rising_times(table, TableOptions(), None) == ()
    running = pa.table({name: np.arange(600)})
    assert rising_times(running, TableOptions(), None) == ((name, ""),)


def test_numbers_that_follow_each_other() -> None:
    assert follows_itself(WALK, OWNER)
    assert follows_itself(np.where(STEP % 9, WALK, np.nan), OWNER)
    assert not follows_itself(WALK[SHUFFLED], OWNER)
    assert not follows_itself(STEP, OWNER)  # sorted rows may be independent
    assert not follows_itself(np.round(STEP / 7), None)
    assert not follows_itself(np.zeros(N), None)
    assert not follows_itself(WALK[:20], None)  # too few
    assert not follows_itself(WALK, np.arange(N))  # one row each
    # a level for each client is no order within it
    independent = np.random.default_rng(1).normal(size=N)
    assert not follows_itself(independent + 100 * OWNER, OWNER)


def test_a_level_under_independent_numbers_is_no_series() -> None:
    """As that of house prices along a coast: correlated with the one before, and turning as often
    as independent ones."""
    many = np.arange(2_000)
    noise = np.random.default_rng(4).normal(size=2_000)
    level = 3 * np.sin(many / 200)
    values = level + noise
    assert np.corrcoef(values[1:], values[:-1])[0, 1] > 0.8
    assert not follows_itself(values, None)
    walk = np.cumsum(noise)
    assert follows_itself(walk, None)  # it turns at half of its steps


def test_the_order_of_rows() -> None:
    noise = np.random.default_rng(5).normal(size=N)
    assert order_of_rows(["t"], {"t": STEP, "v": WALK}, [], OWNER) == "t"
    assert order_of_rows(["t"], {"t": STEP, "v": noise}, [WALK], OWNER) == "t"
    # patients by their date of birth: what rises is no time of theirs
    assert order_of_rows(["born"], {"born": STEP, "v": noise}, [noise], OWNER) == ""
    assert order_of_rows([], {"v": noise}, [noise, WALK], OWNER) == "order"
    assert order_of_rows([], {"v": WALK, "w": np.roll(WALK, 5), "n": noise}, [], OWNER) == "order"
    assert order_of_rows([], {"v": WALK, "m": noise, "n": noise}, [], OWNER) == ""
    # sorted by an input, of which the target is a function
    assert order_of_rows([], {"x": STEP}, [WALK], OWNER) == ""
    # hours of the day begin anew: a part of a time
    assert order_of_rows([], {"hour": STEP % 30}, [WALK], None) == "order"
    assert order_of_rows([], {"x": STEP % 30}, [WALK], None) == ""
    assert order_of_rows([], {}, [], None) == ""


def test_a_series_is_told_and_its_last_rows_test(tmp_path: Path) -> None:
    label = np.cos(STEP / 9)
    path = series(tmp_path, t=STEP, v=WALK, label=label)
    line = r"series.csv: column 't' .* write test = \{ last = 0\.2, by = \"t\" \}"
    with pytest.warns(UserWarning, match=line):
        read(path, drop=["t"])
    split = {"last": 0.2, "by": "t"}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        federation = read(path, test=split)
        same = read(path, test=split, drop=["t"])  # it is no input anyhow
    assert (federation.x == same.x).all()
    for k in range(2):
        last = label[k == OWNER][-6:]
        assert np.allclose(np.sort(federation.y[federation.test[k], 0]), np.sort(last))
        assert len(federation.train[k]) == 24


def test_a_series_without_its_time_is_told(tmp_path: Path) -> None:
    path = series(tmp_path, v=WALK[SHUFFLED], label=WALK)
    line = r"rows of a client hardly change .* write test = \{ last = 0\.2, by = \"order\" \}"
    with pytest.warns(UserWarning, match=line):
        read(path)
    with pytest.warns(UserWarning, match=r"hardly change .* write test=\{\"last\": 0\.2"):
        from_arrays(WALK[SHUFFLED, None], WALK, OWNER, regression=True)


@pytest.mark.parametrize("admitted", [STEP[SHUFFLED], DAYS], ids=["numbers", "sorted dates"])
def test_independent_rows_are_not_told(tmp_path: Path, admitted: Any) -> None:
    noise = np.random.default_rng(6).normal(size=N)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read(series(tmp_path, day=admitted, v=noise, label=WALK[SHUFFLED]), drop=["day"])


def test_a_line_for_dates_has_their_order(tmp_path: Path) -> None:
    path = series(tmp_path, day=DAYS, v=WALK, label=WALK)
    line = r'by = "day" \} and dates = "day first"$'
    with pytest.warns(UserWarning, match=line):
        read(path, drop=["day"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read(path, test={"last": 0.2, "by": "day"}, dates="day first")


def test_a_private_run_does_not_tell_how_rows_follow_each_other(tmp_path: Path) -> None:
    path = series(tmp_path, t=STEP, v=WALK, label=WALK)
    task = {"name": "tabular_regression", "data": str(path), "client": "sensor", "scale": "none"}
    private = {"clip": 1.0, "noise_multiplier": 1.0, "delta": 1e-5, "max_rounds": 2}
    keys: dict[str, Any] = {
        "task": {**task, "drop": ["t"]},
        "partition": "by_writer",
        "cohort": 2,
        "stop": {"rounds": 1},
    }
    with pytest.warns(UserWarning, match="column 't' rises or falls"):
        task_of(Experiment(**keys))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        task_of(Experiment(**keys, privacy=private, weights="uniform"))


@pytest.mark.parametrize("scale", ["standard", "federated", "none"])
@pytest.mark.parametrize("step", [1, 3])
def test_windows_in_columns_are_not_drawn_at_random(tmp_path: Path, scale: str, step: int) -> None:
    lags = {}
    for lag in (0, 1):
        lags[f"v{lag}"] = np.concatenate([np.roll(WALK[k == OWNER], lag * step) for k in range(2)])
    owner = np.repeat([0, 1], N // 2)
    other = np.random.default_rng(2).normal(size=N)
    text = ["sensor,v0,w,v1,label"]
    for row in zip(owner, lags["v0"], other, lags["v1"], SHUFFLED, strict=True):
        text.append(",".join(map(str, row)))
    keep = [k for k, row in enumerate(text) if k == 0 or (k - 1) % (N // 2) >= step]
    path = tmp_path / "lags.csv"
    path.write_text("\n".join(text[k] for k in keep) + "\n")
    after = "a row later" if step == 1 else "3 rows later"
    told = rf"lags.csv: column 'v1' holds what column 'v0' held, {after}, a window of a series"
    with pytest.raises(DataError, match=told + r".* write test = \{ last = 0\.2, by = \"time\" \}"):
        read(path, scale=scale)
    assert read(path, scale=scale, test={"last": 0.2, "by": "order"}).test.sizes.min() >= 5


def test_the_last_target_among_the_inputs_is_a_window(tmp_path: Path) -> None:
    noise = np.random.default_rng(3).normal(size=N + 2)
    path = series(tmp_path, before=noise[:N], label=noise[2:])
    with pytest.raises(DataError, match="column 'before' holds what column 'the targets' held"):
        read(path)


def test_repeated_or_few_values_are_no_windows() -> None:
    zeros = np.zeros(N)
    few = (STEP // 2 % 2).astype(float)
    assert windows_of_columns({"a": zeros, "b": zeros}, None) == ""
    assert windows_of_columns({"a": few, "b": np.roll(few, 4)}, None) == ""
    assert windows_of_columns({"a": WALK, "b": WALK}, None) == ""  # a copy is no window
    assert windows_of_columns({"a": WALK[:10], "b": np.roll(WALK[:10], 1)}, None) == ""
    assert windows_of_columns({}, None) == ""
    # where an interval ends the next begins
    edges = np.sort(np.random.default_rng(7).uniform(size=N + 1))
    assert windows_of_columns({"start": edges[:-1], "end": edges[1:]}, None) == ""
    lags = {str(k): edges[k : k - 2 or None] for k in range(3)}
    assert "holds what" in windows_of_columns(lags, None)


def test_the_first_rows_of_clients_in_order_and_in_none() -> None:
    owner = np.repeat([2, 3, 5, 9], [50, 4, 60, 40])
    rows = [mine.tolist() for mine in _first_rows(len(owner), owner)]
    assert rows == [list(range(32)), list(range(50, 54)), list(range(54, 86))]
    rows = [mine.tolist() for mine in _first_rows(len(owner), owner[::-1])]
    assert rows == [list(range(104, 136)), list(range(100, 104)), list(range(40, 72))]


def test_windows_in_a_file_of_arrays(tmp_path: Path) -> None:
    x = np.lib.stride_tricks.sliding_window_view(np.random.default_rng(4).normal(size=67), 8)
    np.savez(tmp_path / "windows.npz", x=x, y=SHUFFLED.astype(float), client=np.repeat([0, 1], 30))
    with pytest.raises(DataError, match="each sample is the one before it moved on"):
        read(tmp_path / "windows.npz", client="client")
    assert len(from_clients([(x, OWNER)], test={"last": 0.2, "by": "order"})) == 1


def test_windows_beside_other_inputs_are_windows() -> None:
    """In one array, and as one of several inputs of a sample."""
    values = np.random.default_rng(8).normal(size=67)
    lags = np.lib.stride_tricks.sliding_window_view(values, 8)
    static = np.random.default_rng(9).normal(size=(60, 2))
    with pytest.raises(DataError, match="column '0' holds what column '1' held, a row later"):
        from_clients([(np.hstack([lags, static]), SHUFFLED)], regression=True)
    samples = [{"a": lags[k], "b": static[k], "y": float(SHUFFLED[k])} for k in range(60)]
    with pytest.raises(DataError, match="row 2 of its samples: each sample is the one before it"):
        from_clients([Subset(samples, range(60))], label="y", regression=True)  # type: ignore[arg-type]
    independent = np.random.default_rng(10).normal(size=(60, 8))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        from_clients([(independent, SHUFFLED)], regression=True)
