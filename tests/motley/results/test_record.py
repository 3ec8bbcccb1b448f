"""A damaged run.json, or one that a stranger wrote, is read or refused in one sentence that names
the key."""

from __future__ import annotations

import hashlib
import json
import math
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from motley.core.errors import DataError, UserError
from motley.experiments.config import Experiment
from motley.experiments.store import RunFolder, describe
from motley.results.labels import group_runs
from motley.results.load import Run, citations
from motley.results.method_rows import target_of
from motley.results.record import read_note, read_record
from motley.results.schema import TABLES
from motley.results.terminal import terminal_tables
from motley.rounds.rows import notes_text
from motley_report.report import facts, warnings
from motley_report.sections import provenance

PLAIN = Experiment(
    population=6, cohort=2, stop={"rounds": 2, "target": {"loss": 0.1}}, task="quadratic"
)
SAMPLES = {
    "shape": [3],
    "dtype": "float32",
    "classes": None,
    "targets": "numbers",
    "target_shape": [1],
    "prepared": False,
}
TASK = {
    "metric": "loss",
    "metrics": [{"name": "mae", "higher_is_better": False, "share": False}],
    "classes": [],
    "notes": {"data": "by hand"},
    "samples": SAMPLES,
}
RECORD: dict[str, Any] = {
    **describe(PLAIN, {"engine": "batched", "threads": 1}, TASK, 3, "motley run x.toml"),
    "data": {"mnist": "pack"},
    "personal": False,
}


def written(folder: Path, content: str | bytes) -> Path:
    path = folder / "run.json"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def test_a_sound_record_is_returned_as_it_is(tmp_path: Path) -> None:
    assert read_record(written(tmp_path, json.dumps(RECORD))) == json.loads(json.dumps(RECORD))
    assert read_record(written(tmp_path, "{}")) == {}


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("seed", "7", "run.json holds '7' under 'seed'; the run's record is damaged"),
        ("seed", 2**63, "holds 9223372036854775808 under 'seed'"),
        ("seed", None, "holds None under 'seed'"),
        ("config", [], "holds [] under 'config'"),
        ("config.stop", 3, "holds 3 under 'config.stop'"),
        ("config.stop.target", {"loss": []}, "holds [] under 'config.stop.target.loss'"),
        ("config.population", "many", "holds 'many' under 'config.population'"),
        ("config.population", 10**12, "under 'config.population'"),
        ("config.evaluate", {"every": 0}, "holds 0 under 'config.evaluate.every'"),
        ("config.split", True, "holds True under 'config.split'"),
        ("config.dtype", "float8", "holds 'float8' under 'config.dtype'"),
        ("citations", [3], "holds 3 under 'citations.0'"),
        ("citations", [{"key": "a"}], "lacks 'citations.0.bibtex'"),
        ("finished", "yes", "holds 'yes' under 'finished'"),
        ("task", "quadratic", "holds 'quadratic' under 'task'"),
        ("task.metrics", [{}], "lacks 'task.metrics.0.name'"),
        ("task.notes", [], "holds [] under 'task.notes'"),
        ("task.classes", [[]], "holds [] under 'task.classes.0'"),
        ("task.samples", {}, "lacks 'task.samples.shape'"),
        ("task.samples.dtype", "__class__", "under 'task.samples.dtype'"),
        ("parameters", 1.5, "holds 1.5 under 'parameters'"),
        ("numerics", None, "holds None under 'numerics'"),
        ("versions", "1", "holds '1' under 'versions'"),
        ("name", "x" * 50 + "\n", ""),
        ("name", ["x" * 5000], " ... "),
    ],
)
def test_a_key_of_the_wrong_type_is_named(tmp_path: Path, key: str, value: Any, words: str) -> None:
    record = json.loads(json.dumps(RECORD))
    *parents, last = key.split(".")
    inner = record
    for parent in parents:
        inner = inner[parent]
    inner[last] = value
    path = written(tmp_path, json.dumps(record))
    if not words:
        assert read_record(path)[last] == value
        return
    with pytest.raises(DataError) as caught:
        read_record(path)
    assert words in str(caught.value)
    assert len(str(caught.value)) < 300 + len(str(path))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "cannot be read as JSON"),
        ("\x00" * 100, "cannot be read as JSON"),
        (b'{"name": "\xe9"}', "cannot be read as JSON"),
        ("[" * 50_000, "nested too deeply"),
        ('{"a":' * 500 + "1" + "}" * 500, "more than 100 levels deep"),
        ('{"seed": ' + "9" * 5000 + "}", "cannot be read as JSON"),
        ('{"seed": ' + "9" * 400 + "}", "'seed' is a whole number of more than 300 digits"),
        ("[1]", "holds list, not an object with the run's record"),
    ],
)
def test_what_is_no_record(tmp_path: Path, content: str | bytes, words: str) -> None:
    with pytest.raises(DataError) as caught:
        read_record(written(tmp_path, content))
    assert words in str(caught.value)


@pytest.mark.parametrize(
    "made", ["is a folder", "is a link to a file that is not there", "is a named pipe"]
)
def test_what_is_no_file(tmp_path: Path, made: str) -> None:
    path = tmp_path / "run.json"
    {"pipe": lambda: os.mkfifo(path), "folder": path.mkdir, "there": lambda: path.symlink_to("x")}[
        made.split()[-1]
    ]()
    with pytest.raises(DataError, match=made):
        read_record(path)
    with pytest.raises(UserError, match=f"{made}.*remove the folder|is no file.*remove it"):
        RunFolder(tmp_path).read()


ANY = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**20), 10**20)
    | st.floats()
    | st.text(max_size=5)
    | st.just("\x1b[2J"),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2)
    ),
    max_leaves=5,
)


def _places(node: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = (
        node.items()
        if isinstance(node, dict)
        else enumerate(node)
        if isinstance(node, list)
        else ()
    )
    return [place for key, value in inner for place in ((*at, key), *_places(value, (*at, key)))]


@given(st.sampled_from(_places(RECORD)), ANY, st.booleans())
def test_any_change_of_a_record_is_read_or_refused_in_a_sentence(
    tmp_path_factory: pytest.TempPathFactory, place: tuple[Any, ...], value: Any, gone: bool
) -> None:
    record = json.loads(json.dumps(RECORD))
    inner = record
    for key in place[:-1]:
        inner = inner[key]
    if gone:
        del inner[place[-1]]
    else:
        inner[place[-1]] = value
    folder = tmp_path_factory.mktemp("run")
    path = written(folder, json.dumps(record))
    with suppress(UserError):
        run = Run(
            folder,
            read_record(path),
            {name: schema.empty_table() for name, schema in TABLES.items()},
        )
        groups = group_runs([run])
        assert facts(groups)
        assert warnings(groups)
        assert provenance(groups).blocks
        assert terminal_tables([run])[0].row_count == 1
        citations([run])
        target_of(run)
    with suppress(UserError):
        RunFolder(folder).state(PLAIN, resume=True)


@pytest.mark.parametrize(
    "text",
    [
        "3",
        "[]",
        "{",
        "null",
        '{"a.b": "x"}',
        '{"a.b": [1]}',
        "[" * 50_000,
        '{"a": ' + "9" * 5000 + "}",
    ],
)
def test_notes_are_names_with_numbers(text: str) -> None:
    with pytest.raises(DataError, match=r"holds the notes .*; expected names with numbers"):
        read_note(text, Path("r"))


def test_names_of_notes_are_printable() -> None:
    assert read_note('{"component.\\u001b[2J": 1, "x": Infinity}', Path("r")) == {
        "component.\\x1b[2J": 1.0,
        "x": float("inf"),
    }


def test_a_note_that_is_not_finite_is_strict_json_and_read_back() -> None:
    text = notes_text({"clip": float("nan"), "liars": 2})
    assert text == '{"clip": null, "liars": 2.0, "not_finite": {"/clip": "NaN"}}'
    assert str(read_note(text, Path("r"))) == "{'clip': nan, 'liars': 2.0}"
    assert notes_text({"liars": 1}) == '{"liars": 1.0}'


def endless() -> dict[str, Any]:
    keys = PLAIN.resolved()
    return {**RECORD, "config": {**keys, "synchrony": {"name": "deadline", "seconds": math.inf}}}


def test_a_record_whose_deadline_is_infinite_is_strict_json_and_read_back(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.write(endless())
    text = folder.record.read_text()
    assert "Infinity" not in text.replace('"/config/synchrony/seconds": "Infinity"', "")
    assert json.loads(text)["config"]["synchrony"]["seconds"] is None
    assert folder.read() == json.loads(json.dumps(endless()))


def test_a_record_of_an_earlier_version_holds_infinity_itself(tmp_path: Path) -> None:
    earlier = json.loads(json.dumps(endless()))
    digest = hashlib.blake2b(json.dumps(earlier, sort_keys=True).encode(), digest_size=8)
    path = written(tmp_path, json.dumps({**earlier, "digest": digest.hexdigest()}, indent=1))
    assert read_record(path) == earlier


def test_an_explanation_of_no_null_is_a_damaged_record(tmp_path: Path) -> None:
    path = written(tmp_path, json.dumps({**RECORD, "not_finite": {"/seed": "NaN"}}))
    with pytest.raises(
        DataError, match="not_finite names '/seed', where there is no null; the run's record is dam"
    ):
        read_record(path)
