import numpy as np
import pyarrow as pa

from motley.tasks import from_arrays
from motley_data.column_table import column_table


def test_each_column_says_what_it_becomes_and_what_its_example_becomes() -> None:
    table = pa.table(
        {
            "age": [1.0, 3.0, 1.0, 3.0],
            "job": ["cook", "smith", "cook", "smith"],
            "label": ["no", "yes", "no", "yes"],
            "client": ["x", "x", "y", "y"],
        }
    )
    fixed = {"age": [2.0, 4.0], "job": ["cook", "smith"]}
    federation = from_arrays(
        table, "label", "client", table={"scale": "fixed", "fixed": fixed}, test_fraction=0.5
    )
    read = column_table(federation)
    assert read is not None
    age, job = read.rows
    assert (age[0], age[4]) == ("age", "minus 2, divided by 4")
    assert age[5].endswith("-> -0.25")  # (1 - 2) / 4
    assert (job[0], job[4]) == ("job", "1 at one of job=cook, job=smith, job=other")
    assert job[5].endswith("-> job=cook")
    assert read.as_json()["rows"][0] == list(age)


def test_arrays_have_no_columns_to_tell_of() -> None:
    federation = from_arrays(np.zeros((4, 2)), np.array([0, 1, 0, 1]), np.array([0, 0, 1, 1]))
    assert column_table(federation) is None
