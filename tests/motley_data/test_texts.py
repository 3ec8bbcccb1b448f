import json
from pathlib import Path

import numpy as np
import pytest

from motley.core.errors import DataError
from motley_data.datasets import load_shakespeare
from motley_data.formats.texts import read_leaf, read_pack
from motley_data.public_data.places import places


def windows(text: str, size: int = 4) -> dict[str, list[str]]:
    starts = range(len(text) - size)
    return {"x": [text[i : i + size] for i in starts], "y": [text[i + size] for i in starts]}


def leaf(path: Path, users: dict[str, dict[str, list[str]]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        json.dumps(
            {
                "users": list(users),
                "num_samples": [len(u["y"]) for u in users.values()],
                "user_data": users,
            }
        )
    )


def test_windows_are_joined_to_the_text_they_were_cut_from(tmp_path: Path) -> None:
    leaf(
        tmp_path / "all_data_0.json",
        {"HAMLET": windows("to be or not to be"), "OPHELIA": windows("good my lord")},
    )
    found = read_leaf(tmp_path)
    assert found.names == ("HAMLET", "OPHELIA")
    assert found.train == ("to be or not t", "good my l")  # 4/5 of 18 characters is 14, of 12 is 9
    assert found.test == ("o be", "ord")
    assert found.note.endswith("2 users, the last fifth of each user's characters for testing")


def test_halves_and_gaps(tmp_path: Path) -> None:
    two = {key: windows("abcdef")[key] + windows("uvwxyz")[key] for key in ("x", "y")}
    leaf(tmp_path / "train" / "a.json", {"X": two, "Y": windows("12345")})
    leaf(tmp_path / "test" / "a.json", {"X": windows("ghijk")})
    found = read_leaf(tmp_path)
    assert found.train == ("abcdef\nuvwxyz", "12345")
    assert found.test == ("ghijk", "")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not readable JSON"),
        ("[]", "has no table 'user_data'"),
        (
            '{"user_data": {"A": {"x": ["ab"], "y": []}}}',
            "user 'A' has no lists x and y of one length",
        ),
        ('{"user_data": {"A": {"x": [[1]], "y": [1]}}}', "samples of user 'A' are not text"),
    ],
)
def test_what_is_no_text_of_leaf(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "all.json").write_text(text)
    with pytest.raises(DataError, match=message):
        read_leaf(tmp_path)


def test_an_empty_folder_and_another_pack(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="holds no LEAF JSON"):
        read_leaf(tmp_path)
    np.savez(tmp_path / "shakespeare.npz", x=np.zeros(3))
    with pytest.raises(DataError, match="has no offset, play, play_names"):
        read_pack(tmp_path / "shakespeare.npz")


def test_a_folder_of_leaf_is_found(tmp_path: Path) -> None:
    leaf(tmp_path / "shakespeare" / "all_data.json", {"LEAR": windows("blow, winds")})
    assert load_shakespeare(tmp_path).names == ("LEAR",)


def test_the_roles_of_the_pack() -> None:
    if not any((place / "shakespeare.npz").is_file() for place in places()):
        pytest.skip("the pack shakespeare is not on this machine")
    found = load_shakespeare()
    assert len(found.names) == len(set(found.names)) == 1229
    assert sum(map(len, found.train + found.test)) == 4_316_643
    assert all(text.endswith("\n") for text in found.train + found.test)
    assert 0.75 < sum(map(len, found.train)) / 4_316_643 < 0.85
