"""Divisions of large federations of one's own data, kept on disk: which row is whose, and which
rows train, validate and test. Samples, labels and names are never kept.

A file is named by a digest of all that a division follows from, so that other data, another seed or
another version of Motley has another file. What is read is what was divided, or nothing: a file has
a digest of its own, and one that is missing or damaged is made anew.

A file begins with that digest, in 32 hex digits, and the lengths of its arrays and what the
federation says of itself as JSON; zeros follow up to byte 4096, and the arrays, int64, which are
memory-mapped.
"""

from __future__ import annotations

import json
import mmap
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch

from motley.core import keys, ragged, side_by_side
from motley.core.checksum import checksum
from motley.core.errors import ConfigError
from motley.core.files import private_folder, user_path
from motley.core.fingerprint import fingerprint
from motley.core.keys import Key
from motley.core.ragged import Ragged
from motley.tasks import federate
from motley.tasks.federate import Split
from motley.tasks.task import Dataset, Federation
from motley_data.public_data.places import CACHE

LEAST_ROWS = 10_000_000
"""Rows from which a division is kept: fewer are divided in about a second of one core."""
LIMIT = 4 * 10**9
"""Bytes of all files together; those that were not used for longest are removed first."""

_HEAD = 4096
_DIGEST = 32


def folder() -> Path:
    """Return where divisions are kept: in ``divided`` below the folder that ``MOTLEY_CACHE`` names,
    or below ``~/.cache/motley``.

    Raises
    ------
    ConfigError: ``MOTLEY_CACHE`` is neither ``off`` nor a whole path.
    """
    named = os.environ.get("MOTLEY_CACHE", "")
    above = CACHE.expanduser() if named in ("", "off") else user_path(named)
    if not above.is_absolute():
        raise ConfigError(
            f"MOTLEY_CACHE: got {named!r}; expected off, or a folder by its whole path, from / or ~"
        )
    return above / "divided"


def place(dataset: Dataset, split: Split, key: Key) -> Path | None:
    """Return the file of the natural clients' division; None where it is not kept: with
    ``MOTLEY_CACHE=off``, of fewer than :data:`LEAST_ROWS` rows, and of rows that bring their test
    half, are divided by time or group, or become inputs by what their training rows show.

    Parameters
    ----------
    key: random stream of purpose ``split``.

    Raises
    ------
    ConfigError: as :func:`folder`.
    """
    if len(dataset.y) < LEAST_ROWS or os.environ.get("MOTLEY_CACHE") == "off":
        return None
    if dataset.groups is None or dataset.generated or dataset.test.any():
        return None
    if dataset.table is not None or dataset.divided is not None:
        return None
    sources = [Path(str(module.__file__)) for module in (federate, keys, ragged, side_by_side)]
    sources += [Path(__file__), Path(__file__).with_name("own_federation.py")]
    try:
        above = folder()
        code = [source.read_bytes() for source in sources]
    except (OSError, RuntimeError):  # Motley in an archive; a user without a home
        return None
    follows_from = (
        dataset.targets,
        dataset.y if dataset.targets == "classes" else len(dataset.y),
        dataset.groups,
        split,
        key,
        code,
        np.__version__,
        sys.byteorder,
    )
    return above / f"{fingerprint(follows_from)}.rows"


def read(path: Path, dataset: Dataset) -> Federation | None:
    """Return the federation of a data set whose division is in a file; None where there is none, or
    a damaged one. What is changed in its arrays does not reach the file."""
    try:
        with path.open("rb") as file:
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    except (OSError, ValueError):  # an empty file cannot be mapped
        return None
    head = mapped[_DIGEST:_HEAD].rstrip(b"\0")
    if _digest(head, [memoryview(mapped)[_HEAD:]]) != mapped[:_DIGEST]:
        return None
    with suppress(OSError):
        os.utime(path)  # when it was used last
    stored = json.loads(head)
    ends = np.cumsum(stored["lengths"])[:-1]
    arrays = iter(np.split(np.frombuffer(mapped, np.int64, offset=_HEAD), ends))
    clients = stored["clients"]
    train, validation, test = (
        Ragged(next(arrays), next(arrays))
        if rows
        else Ragged(np.zeros(clients + 1, np.int64), np.zeros(0, np.int64))
        for rows in stored["rows"]
    )
    measured = {phrase: (key, line) for phrase, (key, line) in stored["measured"].items()}
    return Federation(
        x=dataset.x,
        y=dataset.y,
        train=train,
        labels=dataset.y[torch.from_numpy(train.values)],
        validation=validation,
        test=test,
        global_test=next(arrays, None),
        classes=dataset.classes,
        names=dataset.names,
        noise=np.zeros(clients),
        client_names=dataset.client_names[:clients],
        notes={**dataset.notes, **stored["notes"]},
        domain=np.zeros(clients, np.int64),
        cluster=np.zeros(clients, np.int64),
        preparation=dataset.preparation,
        measured={**dataset.measured, **measured},
        shares=stored["shares"],
        own_rows=True,
        target_shape=dataset.target_shape,
        reading=dataset.reading,
    )


def write(path: Path, federation: Federation, dataset: Dataset) -> None:
    """Keep the division of a data set's natural clients in a file, and remove others beyond
    :data:`LIMIT`.

    Nothing is kept, and nothing is said, where the disk refuses or has less than twice the room:
    the federation is made, and another time only takes as long as this one.
    """
    parts = [federation.train, federation.validation, federation.test]
    arrays = [array for part in parts if len(part.values) for array in (part.offsets, part.values)]
    arrays += [] if federation.global_test is None else [federation.global_test]
    stored = {
        "clients": len(federation),
        "rows": [len(part.values) for part in parts],
        "lengths": [len(array) for array in arrays],
        "notes": _beside(federation.notes, dataset.notes),
        "measured": _beside(federation.measured, dataset.measured),
        "shares": federation.shares,
    }
    head = json.dumps(stored).encode()
    raw = [array.data.cast("B") for array in arrays]
    size = _HEAD + sum(map(len, raw))
    if len(head) > _HEAD - _DIGEST or size > LIMIT:
        return
    with suppress(OSError):
        private_folder(path.parent)
        path.parent.chmod(0o700)
        if shutil.disk_usage(path.parent).free < 2 * size:
            return
        handle, new = tempfile.mkstemp(".new", path.stem, path.parent)
        try:
            with open(handle, "wb") as file:
                file.write((_digest(head, raw) + head).ljust(_HEAD, b"\0"))
                file.writelines(raw)
            os.replace(new, path)
        except BaseException:
            os.unlink(new)
            raise
        remove(LIMIT)


def remove(limit: int | None = None) -> tuple[int, int]:
    """Remove divisions, those first that were not used for longest, until they have at most so many
    bytes, or all of them; return how many files and bytes went. What a killed process left is one
    of them.

    Raises
    ------
    OSError: the disk refuses.
    """
    files = []
    for path in folder().glob("*"):
        with suppress(FileNotFoundError):  # another process removed it
            if path.suffix in (".rows", ".new"):
                about = path.stat()
                files.append((about.st_mtime_ns, about.st_size, path))
    total = sum(size for _, size, _ in files)
    removed = []
    for _, size, path in sorted(files):
        if limit is not None and total <= limit:
            break
        path.unlink(missing_ok=True)
        total -= size
        removed.append(size)
    return len(removed), sum(removed)


def _digest(head: bytes, arrays: Sequence[memoryview]) -> bytes:
    """Return the digest of a file's head and arrays, in hex."""
    whole = checksum(head)
    for raw in arrays:
        whole.update(raw)
    return whole.hexdigest().encode()


def _beside(of_federation: Mapping[str, Any], of_dataset: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a federation says and its data set does not."""
    return {key: value for key, value in of_federation.items() if of_dataset.get(key) != value}
