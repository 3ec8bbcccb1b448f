"""Next characters of texts by client: ``task = { name = "text", data = "shakespeare" }``."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from typing_extensions import override

from motley.core.arrays import Ints
from motley.core.errors import ConfigError, DataError, suggest
from motley.core.files import files_digest, is_folder, user_path, where_paths_start
from motley.core.keys import Key
from motley.tasks.flat import construct
from motley.tasks.metrics import as_metric
from motley.tasks.models import MODELS, Model, factory
from motley.tasks.own import outputs_of
from motley.tasks.task import IGNORED, Dataset, Federation, Task, TaskSource
from motley_data.datasets import load_shakespeare
from motley_data.formats.texts import TextClients, read_texts
from motley_data.public_data.places import places
from motley_data.table_preparation import TextPreparation


@dataclass(frozen=True)
class NextCharacter(TaskSource):
    """The next character of texts by client, from windows of characters.

    A window is ``window`` characters; its targets are the characters that follow each of them
    (``[n, T]``), or the one after the last (``[n]``). What is left at the end of a text is not
    used, unless the whole text is shorter than a window: then it is one window, whose empty places
    have no target. A client without a window in either half is left out.

    The alphabet, in which models read and write, is the sorted set of the training characters, and
    one for all others; for ``shakespeare`` it is the sorted set of all its characters, 76 in the
    pack. A private run needs one that ``alphabet`` names.

    Parameters
    ----------
    data: ``shakespeare`` (one client per role), or the path of a folder of ``.txt`` files, one or
        one sub-folder for each client, or of LEAF's JSON files (relative paths are searched like
        data packs). Data without halves test on each client's last fifth.
    window: T, characters in a window.
    stride: characters between the starts of training windows (with ``targets = "last"`` of test
        windows, too); left out: ``window``, so that they follow each other. Test windows of every
        character always do.
    targets: ``every`` position's next character, or the ``last`` one's, as in LEAF.
    min_examples: clients with fewer training windows are left out.
    alphabet: the characters that have a place of their own; empty: those of the texts.
    model: a model of sequences, ``leaf_lstm`` or ``transformer``, or its record.
    dropout: of the model.
    """

    has_clients: ClassVar[bool] = True

    data: str = "shakespeare"
    window: int = 80
    stride: int | None = None
    targets: Literal["every", "last"] = "every"
    min_examples: int = 1
    alphabet: str = ""
    model: str | Mapping[str, Any] | Model = "leaf_lstm"
    dropout: float = 0.0

    def __post_init__(self) -> None:
        for name in ("window", "stride", "min_examples"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"{name}: got {value}; expected at least 1")

    @override
    def files_digest(self) -> str:
        return "" if self.data == "shakespeare" else files_digest(self.data)

    @override
    def load(self, key: Key, population: int, folder: Path | None = None) -> Dataset:
        """Return the windows, client after client: ``x`` int64 ``[n, T]``, ``y`` int64 ``[n, T]``
        or ``[n]``."""
        texts = read_clients(self.data, folder)
        all_texts = texts.train + texts.test
        named = self.data == "shakespeare" and not self.alphabet
        letters = sorted(set(self.alphabet) or set().union(*(all_texts if named else texts.train)))
        line = (
            'task.alphabet = " abcdefghijklmnopqrstuvwxyz.,", with all characters that shall count'
        )
        measured = {} if self.alphabet else {"the alphabet is collected": ("task.alphabet", line)}
        if not letters:
            raise DataError(
                f"the texts of {self.data!r} are too short: no client has a character to train on"
            )
        train_step = self.stride or self.window
        test_step = self.window if self.targets == "every" else train_step
        pairs = [
            (self._windows(train, letters, train_step), self._windows(test, letters, test_step))
            for train, test in zip(texts.train, texts.test, strict=True)
        ]
        clients, windows, test, groups = join_windows(
            pairs, self.min_examples, f"{self.window} characters", f"client of {self.data!r}"
        )
        names = tuple("\\n" if letter == "\n" else letter for letter in letters) + (
            () if named else ("unknown",)
        )
        x = torch.from_numpy(windows[:, :-1].clip(min=0))
        y = windows[:, 1:] if self.targets == "every" else windows[:, -1]
        prepare = TextPreparation("".join(letters), self.window, unknown=not named)
        return Dataset(
            x=x,
            y=torch.from_numpy(np.ascontiguousarray(y)),
            classes=len(names),
            test=test,
            groups=groups,
            names=names,
            notes=self._notes(texts, names, clients),
            preparation=prepare,
            measured=measured,
            client_names=texts.names,
        )

    def _windows(self, text: str, letters: list[str], step: int) -> NDArray[np.int64]:
        """Return the windows of a text with the character after each, as places in the alphabet,
        ``[n, T + 1]``.

        :data:`IGNORED` after the end of a text that is shorter than a window; none for a text
        without a character to predict."""
        codes = _places(text, letters)
        width = self.window + 1
        if len(codes) >= width:
            return np.lib.stride_tricks.sliding_window_view(codes, width)[::step]
        if len(codes) < 2 or self.targets == "last":
            return np.zeros((0, width), np.int64)
        return np.pad(codes, (0, width - len(codes)), constant_values=IGNORED)[None]

    def _notes(
        self, texts: TextClients, names: tuple[str, ...], clients: list[int]
    ) -> dict[str, str]:
        description = "outside the alphabet given" if self.alphabet else "that no client trains on"
        unknown = (
            f", the last of them for characters {description}" if names[-1] == "unknown" else ""
        )
        left = len(texts.names) - len(clients)
        return {
            "data": texts.note,
            "alphabet": f"{len(names)} characters{unknown}",
            "clients": f"{len(clients)}; {left} left out, with fewer than {self.min_examples} "
            "training windows or no test window",
        }

    @override
    def factory(self, dataset: Dataset) -> Callable[[], nn.Module]:
        """Return a function that makes fresh modules; a model without an option ``targets`` says
        itself which positions it scores.

        Raises
        ------
        ConfigError, ModelError: a model of numbers, or one whose scores are not those of
        ``targets``.
        """
        classes = dataset.classes or 0
        make = factory(self._record(), (self.window,), classes, self.dropout, sequences=True)
        outputs_of(construct(make, 0), dataset.x[:2], (*dataset.y.shape[1:], classes), classes)
        return make

    @override
    def task(self, name: str, dataset: Dataset, federation: Federation) -> Task:
        """Return the task; perplexity is measured beside accuracy."""
        return dataclasses.replace(
            super().task(name, dataset, federation), metrics=(as_metric("perplexity"),)
        )

    def _record(self) -> Mapping[str, Any] | Model:
        """Return the model's record with ``targets``, where it has this option; an object as it
        is."""
        if isinstance(self.model, Model):
            return self.model
        record: dict[str, Any] = (
            {"name": self.model} if isinstance(self.model, str) else dict(self.model)
        )
        name = record.get("name")
        if name in MODELS.names() and any(
            option.name == "targets" for option in MODELS.options(str(name))
        ):
            record.setdefault("targets", self.targets)
        return record


class ClientWindows(NamedTuple):
    """The windows of clients that have enough of them, client after client, training before test.

    Parameters
    ----------
    clients: their numbers.
    windows: int64 ``[n, T + 1]``.
    test: bool ``[n]``, whether a window is for testing.
    groups: int64 ``[n]``, the client of each window.
    """

    clients: list[int]
    windows: NDArray[np.int64]
    test: NDArray[np.bool_]
    groups: NDArray[np.int64]


def join_windows(
    pairs: Sequence[tuple[NDArray[np.int64], NDArray[np.int64]]],
    min_examples: int,
    length: str,
    client: str,
) -> ClientWindows:
    """Return the training and test windows of all clients in one array, without the clients that
    have fewer than ``min_examples`` training windows or no test window.

    Parameters
    ----------
    pairs: the training and test windows of each client, ``[m, T + 1]``.
    length, client: in words, for the message.

    Raises
    ------
    DataError: no client is left.
    """
    clients = [
        k for k, (train, test) in enumerate(pairs) if len(train) >= min_examples and len(test)
    ]
    if not clients:
        raise DataError(
            f"no {client} has {min_examples} training windows of {length} and a test window; use a "
            "smaller window, stride or min_examples"
        )
    counts = np.array([[len(half) for half in pairs[k]] for k in clients])
    return ClientWindows(
        clients,
        np.concatenate([half for k in clients for half in pairs[k]]),
        np.repeat(np.tile([False, True], len(clients)), counts.ravel()),
        np.repeat(np.array(clients, np.int64), counts.sum(1)),
    )


def read_clients(data: str, folder: Path | None) -> TextClients:
    """Return the texts that a task's option ``data`` names; ``folder``: searched first.

    Raises
    ------
    DataError: there is no such folder, or it holds no texts.
    """
    if data == "shakespeare":
        return load_shakespeare(folder)
    for place in (Path(), *places(folder)):
        path = place / user_path(data)
        if data and is_folder(path):
            return read_texts(path)
    raise DataError(
        f"task.data: got {data!r}{suggest(data, ['shakespeare'])}; expected "
        "'shakespeare', or the path of a folder of .txt files (one, or one sub-folder, for "
        f"each client) or of LEAF's JSON that exists{where_paths_start(data)}"
    )


def _places(text: str, letters: list[str]) -> Ints:
    """Return the place of each character in the sorted alphabet; ``len(letters)`` for others."""
    points = np.frombuffer(text.encode("utf-32-le"), np.uint32)
    alphabet = np.array([ord(letter) for letter in letters], np.uint32)
    at = np.searchsorted(alphabet, points).clip(max=max(len(alphabet) - 1, 0))
    return np.where(alphabet[at] == points, at, len(alphabet)).astype(np.int64)
