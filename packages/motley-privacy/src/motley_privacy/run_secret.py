"""The secret of a private run: what its noise and its hidden cohorts are drawn from, and by which
it knows its data.

It lies in ``secret.json`` of the run's folder, which only its owner can read. ``run.json`` holds a
commitment to it, which tells nothing of it and by which another one is refused. A run goes on with
its own secret alone: rounds that are made again must have the noise that they had, for two sums of
the same updates with different noise cost privacy twice, and two different sums with the same noise
have no privacy at all.

No id, name or record that a private run publishes is a function of its data, for a hash of data
answers every guess at them. A hash of the data under the secret, in the same file, says whether a
folder is of these data.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from motley.core.errors import DataError, StoreError
from motley.core.files import (
    SECRET,
    changed,
    disk_error,
    no_file,
    replacing,
    sync_folder,
    with_digest,
)
from motley.core.strict_json import to_json
from motley.results.record import read_json, read_record
from motley_privacy.noise import SecretRandomness

_ABOUT = (
    "The noise of this run is made from this secret: whoever reads it can take the noise away. "
    "Never give it away, nor a copy of the folder that holds it. The run needs it to go on; delete "
    "it with motley forget-noise."
)
_BYTES = 32


def commitment(secret: bytes) -> str:
    """Return what ``run.json`` holds of a secret."""
    return SecretRandomness(secret).commitment


def new_secret() -> bytes:
    """Return a secret that no other run has, of the operating system's generator."""
    return os.urandom(_BYTES)


def keep_secret(folder: Path, secret: bytes, data: Mapping[str, str]) -> str:
    """Write the secret of a run that begins into its folder, durably and for its owner alone, and
    return the commitment to it.

    Parameters
    ----------
    data: hashes of the data (:meth:`~motley.experiments.config.Experiment.data_digests`).

    Raises
    ------
    StoreError: the disk is full or refuses.
    """
    record = with_digest({"about": _ABOUT, "secret": secret.hex(), "data": _hashed(secret, data)})
    try:
        with replacing(folder / SECRET, private=True) as file:
            file.write(to_json(record, indent=1).encode())
        sync_folder(folder)
    except OSError as error:
        raise disk_error(error, folder / SECRET) from None
    return commitment(secret)


def read_secret(folder: Path, committed: str | None, data: Mapping[str, str]) -> bytes:
    """Return the secret of a run that is to go on, or to be taken for one of these data.

    Parameters
    ----------
    committed: the :func:`commitment` to the secret, as the run's record has it.
    data: as of :func:`keep_secret`.

    Raises
    ------
    StoreError: there is none, it is damaged, it is another run's, or the run is of other data.
    """
    path = folder / SECRET
    if no_file(path) == "does not exist":
        raise StoreError(
            f"{folder} has no {SECRET}, from which this private run draws its noise and by which "
            "it knows its data: it was deleted, or this is a copy without it; so the run can "
            "neither go on nor be taken for one of these data; read it with motley report or "
            "motley.load, begin a new run in another output folder, or use the folder that has the "
            "file"
        )
    try:
        held = read_json(path)
        secret = b"" if changed(held) else bytes.fromhex(held["secret"])
    except (DataError, ValueError, TypeError, KeyError):
        secret = b""
    if len(secret) != _BYTES:
        raise StoreError(
            f"{path} is damaged, and this private run cannot go on with other noise; restore the "
            "file, or begin a new run in another output folder"
        )
    if commitment(secret) != committed:
        raise StoreError(
            f"{path} is not the secret that this run began with, and it cannot go on with other "
            "noise; restore the file, or begin a new run in another output folder"
        )
    if held.get("data") != _hashed(secret, data):
        raise StoreError(
            f"{folder} is of other data than these; the id of a private run says nothing of its "
            "data, so choose another output folder, with --out"
        )
    return secret


def secret_of(folder: Path, record: Mapping[str, Any], data: Mapping[str, str]) -> bytes:
    """Return the secret that a run began with, as :func:`read_secret` does; a new one for a run
    without a record, which begins."""
    if not record:
        return new_secret()
    return read_secret(folder, (record.get("privacy") or {}).get("commitment"), data)


def _hashed(secret: bytes, data: Mapping[str, str]) -> str:
    """Return a hash of hashes of data that nobody can guess at without the secret."""
    text = json.dumps(dict(data), sort_keys=True).encode()
    key = SecretRandomness(secret).fold("data").secret
    return hashlib.blake2b(text, key=key, digest_size=16).hexdigest()


def forget_secret(folder: Path) -> None:
    """Delete the secret of a run whose lock is held, and its checkpoints, which may hold noise; the
    run can then not go on. Its tables and models stay.

    Raises
    ------
    StoreError: there is no such secret, or the disk refuses.
    """
    path = folder / SECRET
    if no_file(path) is not None:
        raise StoreError(
            f"{folder} has no {SECRET}; expected the folder of a private run, or of such runs"
        )
    try:
        path.unlink()
        shutil.rmtree(folder / "checkpoints", ignore_errors=True)
        sync_folder(folder)
    except OSError as error:
        raise disk_error(error, path) from None


def is_seeded(folder: Path) -> bool:
    """Return whether the noise of a run is made from ``privacy.noise_seed``, which its record
    holds."""
    try:
        privacy = read_record(folder / "run.json").get("privacy") or {}
    except DataError:  # of a study, or of a run that was killed before it had one
        return False
    return bool(privacy.get("noise") == "noise_seed")
