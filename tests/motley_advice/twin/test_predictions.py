"""What was predicted beside what happened."""

import json

import pyarrow as pa
import pytest
from pyarrow import parquet

from motley.cli import call
from motley.core.errors import ConfigError, DataError
from motley.results.load import load
from motley.results.schema import TABLES
from motley_advice.twin.predictions import predicted_section
from motley_report.report import report

UNIFORM, OORT = ({"name": name} for name in ("uniform", "oort"))


@pytest.fixture
def prediction(tmp_path):
    """Two rounds take 8 to 12 s under the recorded rule, where 10 s were recorded, and 4 to 6 s
    under Oort."""

    def rule(selector, recorded, low, high):
        told = {"median": (low + high) / 2, "low": low, "high": high}
        bits = {"median": 8e6, "low": 8e6, "high": 8e6}
        full = {**selector, "window": 20}
        keys = {"selector": [full, selector], "synchrony": [{"name": "synchronous"}], "cohort": [2]}
        return {"recorded": recorded, "rule": keys, "seconds": told, "bits": bits}

    path = tmp_path / "prediction.json"
    rules = [rule(UNIFORM, True, 8.0, 12.0), rule(OORT, False, 4.0, 6.0)]
    whole = {"level": 0.8, "clients": 3, "rounds": 2, "seconds": 10.0, "rules": rules}
    whole["source"] = "runs/\x1b[2Jhospitals"
    path.write_text(json.dumps(whole))
    return path


def recorded(folder, selector, ends, **more):
    """Write a run whose first round begins at 100 s, with 8 Mbit until the second ends."""
    columns = {
        "round": range(1, len(ends) + 1),
        "start_s": [100.0 + end for end in (0.0, *ends[:-1])],
        "time_s": [100.0 + end for end in ends],
        "total_bits": [4e6 * (k + 1) for k in range(len(ends))],
    }
    schema = pa.schema([TABLES["rounds"].field(column) for column in columns])
    folder.mkdir()
    table = pa.table({key: list(values) for key, values in columns.items()}, schema)
    parquet.write_table(table, folder / "rounds.parquet")
    config = {"name": "a", "cohort": 2, "selector": selector, **more}
    record = {"name": "a", "config": config, "task": {"metric": "accuracy"}, "finished": True}
    (folder / "run.json").write_text(json.dumps(record))
    return folder


@pytest.mark.parametrize(
    ("selector", "ends", "more", "said", "held"),
    [
        (OORT, (2.0, 5.0, 9.0), {}, "within the interval", 1),
        (OORT, (2.0, 6.1), {}, "above the interval", 0),
        (OORT, (2.0, 3.9), {"population": 3}, "below the interval", 0),
        ({**OORT, "window": 20}, (2.0, 5.0), {}, "within the interval", 1),
        ({**OORT, "window": 5}, (2.0, 5.0), {}, "not predicted: another rule", None),
        (UNIFORM, (5.0, 9.0), {}, "within the interval", 1),
        (UNIFORM, (5.0, 10.0), {}, "what the twin was fitted to", None),
        ({"name": "fedcs"}, (5.0, 9.0), {}, "not predicted: another rule", None),
        (OORT, (2.0, 5.0), {"cohort": 1}, "not predicted: another rule", None),
        (
            OORT,
            (2.0, 5.0),
            {"synchrony": {"name": "deadline", "seconds": 3.0}},
            "not predicted: another rule",
            None,
        ),
        (
            OORT,
            (2.0, 5.0),
            {"population": 9},
            "not predicted: 9 clients, the twin has 3",
            None,
        ),
        (OORT, (2.0,), {}, "not known: the run has no round 2", None),
    ],
)
def test_a_run_beside_its_prediction(tmp_path, prediction, selector, ends, more, said, held):
    run = load(recorded(tmp_path / "run", selector, ends, **more))
    note, table = predicted_section({"it": [run]}, prediction).blocks
    assert table.rows[0].cells[-1].text == said
    tested = held is not None
    assert note.text.startswith(
        r"Predicted by the twin of runs/\x1b[2Jhospitals. Within the 80% interval of their "
        "prediction: the seconds of"
    )
    assert f"of {held or 0} of {int(tested)} runs that the twin was not fitted to" in note.text
    if selector["name"] == "oort" and tested:
        cells = [cell.text for cell in table.rows[0].cells]
        assert cells[1:4] == ["5.00 (4.00 to 6.00)", "1.00", "1.00 (1.00 to 1.00)"]
        assert cells[0] == f"{ends[1]:.2f}"


def test_the_report_shows_both(tmp_path, prediction, capsys):
    folder = recorded(tmp_path / "run", OORT, (2.0, 5.0))
    page = tmp_path / "report.md"
    command = ["report", str(folder), "--out", str(page)]
    assert call([*command, "--predicted", str(prediction)]) == 0
    assert "5.00 (4.00 to 6.00)" in page.read_text()
    assert call(command) == 0
    assert "What was predicted" not in page.read_text()
    capsys.readouterr()
    assert call([*command, "--follow", "--predicted", str(prediction)]) == 2
    assert "a prediction is not followed; leave --follow out" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("whole", "rule", "message"),
    [
        ({"rounds": float("inf")}, {}, "OverflowError"),
        ({}, {"rule": {"cohort": 2}}, "TypeError"),
        ({}, {"seconds": {"median": 1.0, "low": 9.0, "high": 12.0}}, "1.0 is not between 9.0 and"),
        ({}, {"bits": dict.fromkeys(("median", "low", "high"), float("nan"))}, "nan is not"),
    ],
)
def test_values_that_no_prediction_has_are_a_sentence(prediction, whole, rule, message):
    found = json.loads(prediction.read_text())
    found["rules"][0] |= rule
    prediction.write_text(json.dumps(found | whole))
    with pytest.raises(DataError, match=f"is not what motley what-if of .*{message}"):
        predicted_section({}, prediction)


def test_bad_predictions_are_a_sentence(tmp_path, prediction):
    with pytest.raises(DataError, match=r"none.json' cannot be read .No such file"):
        predicted_section({}, tmp_path / "none.json")
    for text, error in (("{", "JSONDecodeError"), ("[]", "ValueError"), ("{}", "KeyError")):
        prediction.write_text(text)
        with pytest.raises(DataError, match=rf"this version writes .{error}.*run motley what-if"):
            predicted_section({}, prediction)
    prediction.write_text("[" * 100_000)
    with pytest.raises(DataError, match=r"this version writes .RecursionError"):
        predicted_section({}, prediction)
    run = load(recorded(tmp_path / "run", OORT, (2.0, 5.0)))
    with pytest.raises(ConfigError, match="a prediction is shown on a page; leave --format out"):
        report([run], tmp_path / "paper", format="csv", prediction=prediction)
