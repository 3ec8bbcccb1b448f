"""Names as names of folders: nothing leaves the folder, and what is cut stays unique."""

import re

import pytest

from motley.experiments.folder_names import slug


@pytest.mark.parametrize(
    ("name", "folder"),
    [
        ("who-to-ask on mnist", "who-to-ask-on-mnist"),
        ("../../etc", "etc"),
        ("a/b", "a-b"),
        ("", "experiment"),
        ("alpha=0.1", "alpha=0.1"),
    ],
)
def test_names_become_folders(name: str, folder: str) -> None:
    assert slug(name) == folder


@pytest.mark.parametrize("letter", ["a", "ü", "鑑"])
def test_a_name_that_is_cut_carries_a_digest_of_the_whole(letter: str) -> None:
    folders = [slug(letter * 200 + f" rounds={rounds}") for rounds in (2, 4)]
    assert folders[0] != folders[1]
    for folder in folders:
        assert 190 < len(folder.encode()) <= 200
        assert re.fullmatch(f"{letter}+-[0-9a-f]{{12}}", folder)
        assert slug(folder) == folder
    assert slug("a" * 200) == "a" * 200
