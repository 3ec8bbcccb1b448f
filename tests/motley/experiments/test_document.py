"""Files of keys that are no such files, or would take for ever to read: one sentence each, before
anything is computed."""

from __future__ import annotations

import os
import threading
import tomllib
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from motley.core.errors import ConfigError, UserError
from motley.experiments import document
from motley.experiments.config import Experiment

NINES = "9" * 5000
KEYS = 'population = 6\ncohort = 2\nstop = { rounds = 2 }\ntask = "quadratic"\n'


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            f"seed = {NINES}",
            "x.toml: a value is a whole number of more than 300 digits; no key takes this",
        ),
        (f"seed = 0x{'f' * 5000}", "x.toml: 'seed' is a whole number of more than 300 digits"),
        (
            "a = " + "[" * 50_000,
            "x.toml holds tables or lists inside each other, more than 100 levels deep",
        ),
        ("a = " + "[" * 50_000 + "]" * 50_000, "more than 100 levels deep"),
        (
            "a = " + "[" * 150 + "]" * 150,
            "x.toml: 'a' holds tables or lists inside each other, more than 100 levels deep",
        ),
        ("a." * 20_000 + "a = 1", "x.toml has a key of more than 100 parts with dots between"),
        ("[" + "a." * 20_000 + "a]", "a key of more than 100 parts"),
        ("x = { " + "a." * 20_000 + "a = 1 }", "a key of more than 100 parts"),
        ("a = \x00", "x.toml, line 1, column 5: not valid TOML"),
    ],
)
def test_a_text_beyond_the_limits(text: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        document.parse(text, "x.toml")
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        (f"seed={NINES}", "more than 300 digits"),
        ("metrics=" + "[" * 50_000, "more than 100 levels deep"),
        ("a." * 3000 + "b=1", "got a key of 3001 parts; expected at most 100"),
    ],
)
def test_a_setting_beyond_the_limits(setting: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        document.override({}, [setting])
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("made", "words"),
    [
        ("folder", "is a folder; expected an experiment file"),
        ("link", "is a link to a file that is not there"),
        ("circle", "cannot be read (Too many levels of symbolic links)"),
        ("pipe", "is a named pipe"),
        ("device", "is a device or a socket"),
        ("nothing", "there is no file"),
        ("bytes", "is not a text file in UTF-8"),
        ("large", "is larger than 16 MiB"),
        ("long", "cannot be read (File name too long)"),
    ],
)
def test_what_is_no_file_of_keys(tmp_path: Path, made: str, words: str) -> None:
    path = tmp_path / ("a" * 300 if made == "long" else "x.toml")
    make = {
        "folder": path.mkdir,
        "link": lambda: path.symlink_to("nowhere"),
        "circle": lambda: path.symlink_to(path),
        "pipe": lambda: os.mkfifo(path),
        "device": lambda: path.symlink_to("/dev/zero"),
        "bytes": lambda: path.write_bytes(b"name = '\xe9'"),
        "large": lambda: path.write_bytes(b" " * (16 * 2**20 + 1)),
    }
    make.get(made, lambda: None)()
    with pytest.raises(ConfigError) as caught:
        document.read(path)
    assert words in str(caught.value)


def test_a_pipe_that_has_a_writer_is_read() -> None:
    out, into = os.pipe()
    writer = threading.Thread(target=lambda: (os.write(into, b"seed = 3"), os.close(into)))
    writer.start()
    assert document.read(Path(f"/dev/fd/{out}")) == {"seed": 3}
    writer.join()
    os.close(out)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("a" * 300, "name: got a name of 300 bytes; expected at most 200"),
        ("\u00e9" * 101, "name: got a name of 202 bytes"),
        ("\x1b[2J", "name: got '\\x1b[2J', with a control character"),
        ("two\nlines", "with a control character; expected text of one line"),
        ("\u202etxt", "with a control character"),
        ("\ud800", "with a control character"),
    ],
)
def test_a_name_that_cannot_be_printed_or_be_a_folder(name: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Experiment(name=name, task="quadratic", population=6, cohort=2, stop={"rounds": 2})
    assert words in str(caught.value)


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=20)
    | st.sampled_from([10**400, 2**63, "[/foo]"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=8) | st.just("name"), inner, max_size=3)
    ),
    max_leaves=8,
)
LEAVES = sorted(
    {
        *Experiment.model_fields,
        "local.epochs",
        "stop.rounds",
        "stop.target",
        "task.name",
        "split.validation",
    }
)


@given(st.sampled_from(LEAVES), VALUES)
@example("seed", 10**5000)
@example("init", "a" * 40_000)
def test_any_value_of_any_key_is_an_experiment_or_one_sentence(key: str, value: object) -> None:
    keys = document.parse(KEYS, "x.toml")
    with suppress(UserError):
        Experiment(**document.set_keys(keys, {key: value})).run_id()


@given(st.text(max_size=200))
def test_any_text_is_keys_or_one_sentence(text: str) -> None:
    with suppress(UserError):
        Experiment(**document.parse(KEYS + text, "x.toml"))


SCALARS = (
    st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False)
    | st.text(st.characters(exclude_categories=("Cs",)), max_size=8)
)
NAMES = st.text(st.characters(exclude_categories=("Cs",)), max_size=8)


@given(
    st.dictionaries(
        NAMES,
        st.recursive(
            SCALARS, lambda one: st.lists(one, max_size=3) | st.dictionaries(NAMES, one, max_size=3)
        ),
        max_size=4,
    )
)
@example({"synchrony": {"name": "deadline", "seconds": float("inf")}, "a": -float("inf")})
@example({'a "b"': "\x00\x1b\x7f\\\r\n\t", "é.ß": [], "empty": {}})
@example({"rows": [{"name": "a", "inside": [{"key": 1}]}, {}]})
def test_what_is_written_as_toml_is_read_back(keys: dict[str, object]) -> None:
    assert tomllib.loads(document.to_toml(keys)) == keys


def test_a_key_without_a_value_is_not_written_as_toml() -> None:
    keys = {"seed": None, "stop": {"rounds": 2, "target": None}, "shares": (0.5, 1)}
    assert tomllib.loads(document.to_toml(keys)) == {"stop": {"rounds": 2}, "shares": [0.5, 1]}


@pytest.mark.parametrize(
    ("key", "value", "plain"),
    [
        ("population", np.int64(4), 4),
        ("seed", np.uint8(3), 3),
        ("local", {"optimizer": {"name": "sgd", "lr": np.float64(0.1)}}, None),
        ("task", {"name": "synthetic", "examples": np.int32(10)}, None),
        ("stop", {"rounds": np.arange(3)[2]}, None),
    ],
)
def test_numpys_numbers_are_pythons(key: str, value: object, plain: object) -> None:
    """The same run, whether a loop is over a list or over ``np.arange``."""
    keys: dict[str, object] = {
        "task": {"name": "synthetic", "examples": 10},
        "population": 4,
        "cohort": 2,
        "stop": {"rounds": 2},
        "seed": 3,
        "local": {"optimizer": {"name": "sgd", "lr": 0.1}},
    }
    one = Experiment(**{**keys, key: value})
    assert one.run_id() == Experiment(**keys).run_id()
    assert plain is None or type(getattr(one, key)) is type(plain)


def test_arrays_are_lists_paths_are_texts_and_nothing_else_changes() -> None:
    part = object()
    keys = {
        "a": np.array([[1, 2], [3, 4]]),
        "b": [np.bool_(True), "x", None, part],
        "c": (1, 2),
        "d": {"data": Path("packs") / "mine.csv"},
    }
    plain = document.of_python(keys)
    assert plain == {
        "a": [[1, 2], [3, 4]],
        "b": [True, "x", None, part],
        "c": (1, 2),
        "d": {"data": str(Path("packs/mine.csv"))},
    }
    assert type(plain["b"][0]) is bool
