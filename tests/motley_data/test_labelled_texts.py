"""Texts with classes: files of clients, labels that are missing or may be the same, tokens and
padding by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from motley.core.errors import DataError
from motley.tasks.origin import Origin
from motley.tasks.targets import IGNORED
from motley_data.labelled_texts import LabelledTexts, read_labelled, token_rows

ORIGIN = Origin("all.csv")


def written(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


def read(path: Path, words: bool = False, client: str = "") -> LabelledTexts:
    columns = ("tokens", "labels") if words else ("text", "label")
    return read_labelled(str(path), *columns, client, words, None)


def test_files_of_clients_keep_their_halves_and_other_columns_are_not_read(tmp_path):
    for half, n in (("train", 2), ("test", 1)):
        (tmp_path / half).mkdir()
        for name in ("ann", "bob"):
            rows = [{"text": name, "label": "b" if i else "a", "id": i} for i in range(n)]
            written(tmp_path / half / f"{name}.jsonl", rows)
    found = read(tmp_path)
    assert found.texts == ["ann"] * 3 + ["bob"] * 3
    assert found.labels.tolist() == [0, 1, 0] * 2
    assert (found.classes, found.names, found.clients) == (2, ("a", "b"), ("ann", "bob"))
    assert found.test.tolist() == [False, False, True] * 2
    assert found.groups is not None
    assert found.groups.tolist() == [0, 0, 0, 1, 1, 1]


def test_a_csv_may_name_the_client_of_each_row(tmp_path):
    path = tmp_path / "all.csv"
    path.write_text('text,label,site\n"a, b",10,x\nc,20,y\nd,10,x\n')
    found = read(path, client="site")
    assert found.texts == ["a, b", "c", "d"]
    assert found.labels.tolist() == [0, 1, 0]
    assert found.names == ("10", "20")
    assert found.clients == ("x", "y")
    assert found.groups is not None
    assert found.groups.tolist() == [0, 1, 0]
    assert read(path).groups is None


def test_words_have_a_class_each_or_none(tmp_path):
    words = [{"tokens": ["a", "b"], "labels": ["X", None]}, {"tokens": ["c"], "labels": ["O"]}]
    found = read(written(tmp_path / "a.jsonl", words), words=True)
    assert found.texts == [["a", "b"], ["c"]]
    assert found.labels.tolist() == [1, IGNORED, 0]
    assert found.names == ("O", "X")
    numbers = [{"tokens": ["a", "b"], "labels": [0, -100]}, {"tokens": ["c"], "labels": [1]}]
    found = read(written(tmp_path / "b.jsonl", numbers), words=True)
    assert (found.labels.tolist(), found.classes, found.names) == ([0, IGNORED, 1], 2, ())


@pytest.mark.parametrize(
    ("rows", "words", "message"),
    [
        ([("a", "x"), ("b", None)], False, "row 2 of .*: column 'label' is empty .in 1 of 2 rows"),
        ([("a", "x"), ("b", "NA")], False, "row 2 of .*: column 'label' is empty"),
        ([("a", 0), ("b", -100)], False, "row 2 of .*: there is no label in column 'label'"),
        ([("a", "x"), (" ", "y")], False, "row 2 of .*: the text is empty; fill or drop"),
        ([("a", "x"), (None, "y")], False, "row 2 of .*: the text is empty"),
        ([("a", "yes"), ("b", "YES ")], False, "'YES ' and 'yes', which differ in blanks or cap"),
        ([("a", "1"), ("b", "good")], False, r"has numbers \(1\) and words \('good'\); write all"),
        ([("a", 0.5), ("b", 0.25)], False, "column 'label' is double; expected words or whole"),
        ([(1, 0), (2, 1)], False, "column 'text' is int64; expected texts"),
        ([(["a"], 0)], False, r"is list<.*>; expected texts \(head = \"token\" reads lists"),
        ([(["a", "b"], ["X"])], True, "row 1 of .*: 1 labels for 2 words; expected as many, -100"),
        ([(["a"], ["X"]), (["a"], None)], True, "row 2 of .*: 0 labels for 1 words"),
        ([(["a"], "X")], True, "column 'labels' is string; expected lists with a label for each"),
        ([(["a", ""], ["X", "O"])], True, "row 1 of .*: a word is empty"),
        ([([], [])], True, "expected lists of words"),
        ([(["a"], [-100])], True, "there is no label in column 'labels'"),
    ],
)
def test_what_is_missing_or_may_be_the_same_is_refused(tmp_path, rows, words, message):
    names = ("tokens", "labels") if words else ("text", "label")
    path = written(tmp_path / "all.jsonl", [dict(zip(names, row, strict=True)) for row in rows])
    with pytest.raises(DataError, match=message):
        read(path, words)


def test_a_path_that_is_not_there_is_said():
    with pytest.raises(DataError, match=r"task.data: got 'nowhere'; expected the path of a table"):
        read(Path("nowhere"))


def test_bytes_are_tokens_with_a_blank_between_words():
    """a b is 97 32 98; the first byte of each word has its class; é has two bytes."""
    found = token_rows([["a", "é"], ["bcd", "e"]], None, 4, True, 0, ORIGIN)
    assert found.tokens.tolist() == [[97, 32, 195, 169], [98, 99, 100, 32]]
    assert found.places is not None
    assert found.places.tolist() == [0, 2, 4, -1]
    assert (found.cut, found.longest) == (1, 5)
    whole = token_rows(["a b"], None, 5, False, 0, ORIGIN)
    assert whole.tokens.tolist() == [[97, 32, 98, 0, 0]]
    assert whole.places is None
    assert whole.tokens.dtype == np.int64


def test_a_text_that_ends_as_padding_does_is_refused():
    with pytest.raises(DataError, match=r"row 2 of .*: the text begins or ends with the token 97"):
        token_rows(["cb", "ba"], None, 4, False, 97, ORIGIN)


def test_pairs_of_texts_have_a_class_each(tmp_path):
    path = tmp_path / "all.csv"
    path.write_text("text_a,text_b,label\nab,c,1\nb,abcd,0\n")
    found = read_labelled(str(path), "text_a", "label", "", False, None, "text_b")
    assert found.texts == [("ab", "c"), ("b", "abcd")]
    made = token_rows(found.texts, None, 5, False, 0, ORIGIN)
    # a line break between; of the second pair, of 6 bytes, the end of the longer text is cut
    assert made.tokens.tolist() == [[97, 98, 10, 99, 0], [98, 10, 97, 98, 99]]
    assert made.types is not None
    assert made.types.tolist() == [[0, 0, 0, 1, 0], [0, 0, 1, 1, 1]]
    assert (made.cut, made.longest) == (1, 6)
    path.write_text("text_a,text_b,label\na,,1\nb,c,0\n")
    with pytest.raises(DataError, match=r"row 1 of .*all.csv: the text is empty"):
        read_labelled(str(path), "text_a", "label", "", False, None, "text_b")
    with pytest.raises(DataError, match=r"has no column 'text_c'"):
        read_labelled(str(path), "text_a", "label", "", False, None, "text_c")
