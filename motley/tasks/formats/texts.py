"""Readers of texts by client: the pack of Shakespeare's roles, and LEAF's JSON of 80-character windows."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from motley.core.errors import DataError
from motley.tasks.formats.npz import arrays

__all__ = ["TextClients", "read_leaf", "read_pack"]


@dataclass(frozen=True)
class TextClients:
    """A text in two halves per natural client, all clients in the source's order.

    Parameters
    ----------
    names: of the clients (roles). train, test: the text of each client's halves, one string per client; a half may be empty.
    note: remark for readers of the results: where the text is from and how it was divided.
    """

    names: tuple[str, ...]
    train: tuple[str, ...]
    test: tuple[str, ...]
    note: str


def read_pack(path: Path) -> TextClients:
    """Return the roles of ``shakespeare.npz``; the first four fifths of each role's lines are for training.

    Raises
    ------
    DataError: not that file.
    """
    data = arrays(path)
    missing = sorted({"text", "offset", "split", "play", "role_names", "play_names"} - set(data))
    if missing:
        raise DataError(f"{path} has no {', '.join(missing)}; expected the pack shakespeare.npz")
    text = data["text"].tobytes().decode("ascii")
    offset, split = data["offset"].tolist(), data["split"].tolist()
    plays = [str(data["play_names"][play]) for play in data["play"]]
    names = tuple(f"{role} ({play})" for role, play in zip(data["role_names"].tolist(), plays, strict=True))
    train = tuple(text[start:cut] for start, cut in zip(offset[:-1], split, strict=True))
    test = tuple(text[cut:stop] for cut, stop in zip(split, offset[1:], strict=True))
    note = f"Shakespeare, the {len(names)} roles of the pack (another edition and count than LEAF's 1,129)"
    return TextClients(names, train, test, note)


def read_leaf(folder: Path) -> TextClients:
    """Return the users of LEAF's text JSON: ``train/*.json`` and ``test/*.json``, or ``all_data_*.json`` alone.

    LEAF stores windows of 80 characters, each with the character after it; windows that follow each other are joined to the text
    they were cut from. Without halves, the last fifth of each user's characters is for testing.

    Raises
    ------
    DataError: no such files, not LEAF's JSON, or no text in it.
    """
    halves = {half: _texts(sorted((folder / half).glob("*.json"))) for half in ("train", "test")}
    if halves["train"]:
        train, test, cut = halves["train"], halves["test"], "with LEAF's halves"
    else:
        whole = _texts(sorted(folder.glob("*.json")))
        if not whole:
            raise DataError(f"{folder} holds no LEAF JSON; expected all_data_*.json, or train/*.json and test/*.json")
        train = {name: text[: len(text) * 4 // 5] for name, text in whole.items()}
        test = {name: text[len(text) * 4 // 5 :] for name, text in whole.items()}
        cut = "the last fifth of each user's characters for testing"
    names = tuple(train)
    note = f"LEAF JSON of {folder.name}, {len(names)} users, {cut}"
    return TextClients(names, tuple(train.values()), tuple(test.get(name, "") for name in names), note)


def _texts(paths: Sequence[Path]) -> dict[str, str]:
    found: dict[str, str] = {}
    for path in paths:
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            raise DataError(f"{path} is not readable JSON ({error}); it may be truncated") from None
        data = content.get("user_data") if isinstance(content, dict) else None
        if not isinstance(data, dict):
            raise DataError(f"{path} is not LEAF's JSON: it has no table 'user_data'")
        for user, samples in data.items():
            found[str(user)] = _joined(samples, path, str(user))
    return found


def _joined(samples: Any, path: Path, user: str) -> str:
    """Return the text that a user's windows were cut from; a gap between windows becomes a line end."""
    windows, following = (samples.get(key) if isinstance(samples, dict) else None for key in ("x", "y"))
    if not isinstance(windows, list) or not isinstance(following, list) or len(windows) != len(following):
        raise DataError(f"{path}: user {user!r} has no lists x and y of one length")
    if not all(isinstance(piece, str) for piece in itertools.chain(windows, following)):
        raise DataError(f"{path}: the samples of user {user!r} are not text; expected windows of characters and the next one")
    pieces: list[str] = []
    before = None
    for window, after in zip(windows, following, strict=True):
        if before is not None and window == before[-len(window) :]:
            pieces.append(after)
        else:
            pieces += ["\n"] * bool(pieces) + [window, after]
        before = window + after
    return "".join(pieces)
