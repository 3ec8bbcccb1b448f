"""Layout, ragged arrays, local work, papers, errors."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from motley.core import errors
from motley.core.errors import ConfigError, EngineError, MotleyError, UserError, suggest
from motley.core.layout import Entry, Layout
from motley.core.paper import Paper
from motley.core.ragged import Ragged
from motley.core.work import LocalWork

CONV = Layout(
    (
        Entry("conv.weight", "conv", (4, 3, 3, 3), 0),
        Entry("conv.bias", "conv", (4,), 108),
        Entry("bn.weight", "bn", (4,), 112, norm=True),
        Entry("bn.bias", "bn", (4,), 116, norm=True),
        Entry("head.weight", "head", (2, 4), 120, linear=True),
        Entry("head.bias", "head", (2,), 128, linear=True),
        Entry("scale", "", (), 130),
    )
)


def test_layout():
    assert CONV.size == 131
    assert CONV["conv.weight"].size == 108
    assert CONV.layers == {
        "conv": slice(0, 112),
        "bn": slice(112, 120),
        "head": slice(120, 130),
        "": slice(130, 131),
    }
    assert CONV.last_layer == slice(120, 130)
    assert CONV.output_bias == slice(128, 130)
    assert Layout(CONV.entries[:2]).output_bias is None
    assert CONV.norm == (slice(112, 116), slice(116, 120))
    assert [entry.slice.stop for entry in CONV] == [108, 112, 116, 120, 128, 130, 131]
    with pytest.raises(KeyError, match="tail"):
        CONV["tail"]
    assert Layout(CONV.entries[:2]).last_layer == slice(0, 112)  # no linear layer: everything


@given(st.lists(st.lists(st.integers(0, 9), max_size=5), max_size=6))
def test_ragged(parts):
    ragged = Ragged.of([np.array(part, np.int64) for part in parts])
    assert [part.tolist() for part in ragged] == parts
    assert len(ragged) == len(parts)
    assert ragged.sizes.tolist() == [len(part) for part in parts]
    assert ragged.owner.tolist() == [k for k, part in enumerate(parts) for _ in part]


@pytest.mark.parametrize(
    ("work", "examples", "batches", "steps"),
    [
        (LocalWork(10, epochs=2), (0, 1, 10, 11, 95), (0, 1, 1, 2, 10), (0, 2, 2, 4, 20)),
        (
            LocalWork(10, epochs=2, drop_single=True),
            (0, 1, 10, 11, 12),
            (0, 1, 1, 1, 2),
            (0, 2, 2, 2, 4),
        ),
        (LocalWork(10, steps=7), (0, 1, 100), (0, 1, 10), (0, 7, 7)),
        (LocalWork(10, epochs=3, max_steps=5), (5, 20, 95), (1, 2, 10), (3, 5, 5)),
        (LocalWork(1, epochs=1, drop_single=True), (1, 2), (1, 2), (1, 2)),
    ],
)
def test_local_work(work, examples, batches, steps):
    """The last short batch counts; one of a single sample is dropped where asked and where another
    batch is left."""
    assert work.batches(examples).tolist() == list(batches)
    assert work.total(examples).tolist() == list(steps)


@given(st.integers(0, 300), st.integers(2, 20), st.booleans())
def test_batches_by_hand(n, size, drop):
    cut = [min(size, n - start) for start in range(0, n, size)]
    if drop and len(cut) > 1 and cut[-1] == 1:
        cut = cut[:-1]
    assert LocalWork(size, epochs=1, drop_single=drop).batches(n) == len(cut)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "local: give either epochs or steps"),
        ({"epochs": 1, "steps": 1}, "local: give either epochs or steps"),
        ({"epochs": 0}, "local.epochs: got 0; expected at least 1"),
        ({"steps": 3, "max_steps": 0}, "local.max_steps: got 0; expected at least 1"),
    ],
)
def test_impossible_work(options, message):
    with pytest.raises(ConfigError, match=message):
        LocalWork(10, **options)
    with pytest.raises(ConfigError, match=r"local.batch_size: got -1"):
        LocalWork(-1, epochs=1)


def test_paper():
    paper = Paper("key2020x", "A Title", ("Ann One", "Bo Two"), "Venue", 2020, "https://x.org")
    assert paper.bibtex() == (
        "@inproceedings{key2020x,\n  title     = {A Title},\n  author    = {Ann One and Bo Two},\n"
        "  booktitle = {Venue},\n  year      = {2020},\n  url       = {https://x.org},\n}"
    )
    assert "url" not in Paper("k", "T", ("A",), "V", 2020).bibtex()


def test_errors():
    classes = [value for value in vars(errors).values() if isinstance(value, type)]
    ours = [value for value in classes if value.__module__ == errors.__name__]
    assert len(ours) > 10
    assert [value for value in ours if not issubclass(value, MotleyError)] == []
    assert not issubclass(EngineError, UserError)
    assert (str(ConfigError("wrong", "a.b")), ConfigError("wrong", "a.b").key) == (
        "a.b: wrong",
        "a.b",
    )
    assert EngineError("x").context == {}
    assert suggest("unifrom", ["uniform", "oort"]) == " (did you mean 'uniform'?)"
    assert suggest("zzz", ["uniform", "oort"]) == ""
    assert suggest(3, ["uniform", "oort"]) == ""
