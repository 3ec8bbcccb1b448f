"""The secret of a private run: what its noise and its hidden cohorts are drawn from.

It lies in ``secret.json`` of the run's folder, which only its owner can read. ``run.json`` holds a
commitment to it, which tells nothing of it and by which another one is refused. A run goes on with
its own secret alone: rounds that are made again must have the noise that they had, for two sums of
the same updates with different noise cost privacy twice, and two different sums with the same noise
have no privacy at all.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from motley.core.errors import DataError, StoreError
from motley.core.files import (
    changed,
    disk_error,
    no_file,
    replacing,
    sync_folder,
    with_digest,
)
from motley.core.strict_json import to_json
from motley.experiments.store import RunFolder
from motley.privacy.noise import SecretRandomness
from motley.privacy.published import SECRET
from motley.results.record import read_json

__all__ = ["commitment", "forget_secret", "keep_secret", "new_secret", "read_secret"]

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


def keep_secret(folder: Path, secret: bytes) -> None:
    """Write the secret of a run that begins into its folder, durably and for its owner alone.

    Raises
    ------
    StoreError: the disk is full or refuses.
    """
    record = with_digest({"about": _ABOUT, "secret": secret.hex()})
    try:
        with replacing(folder / SECRET, private=True) as file:
            file.write(to_json(record, indent=1).encode())
        sync_folder(folder)
    except OSError as error:
        raise disk_error(error, folder / SECRET) from None


def read_secret(folder: Path, record: Mapping[str, Any]) -> bytes:
    """Return the secret of a run that is to go on.

    Parameters
    ----------
    record: of the run, with the commitment to its secret.

    Raises
    ------
    StoreError: there is none, it is damaged, or it is another run's.
    """
    path = folder / SECRET
    if no_file(path) == "does not exist":
        raise StoreError(
            f"{folder} has no {SECRET}, from which this private run draws its noise: it was "
            "deleted, or this is a copy without it; the run cannot go on, for the rounds that are "
            "made again would have other noise and cost privacy twice; begin a new run in another "
            "output folder, or go on in the folder that has it"
        )
    try:
        held = read_json(path)
        secret = bytes.fromhex(held["secret"]) if not changed(held) else b""
    except (DataError, ValueError, TypeError, KeyError):
        secret = b""
    if len(secret) != _BYTES:
        raise StoreError(
            f"{path} is damaged, and this private run cannot go on with other noise; restore the "
            "file, or begin a new run in another output folder"
        )
    if commitment(secret) != (record.get("privacy") or {}).get("commitment"):
        raise StoreError(
            f"{path} is not the secret that this run began with, and it cannot go on with other "
            "noise; restore the file, or begin a new run in another output folder"
        )
    return secret


def forget_secret(folder: Path) -> None:
    """Delete the secret of a run, and its checkpoints, which may hold noise; the run can then not
    go on. Its tables and models stay.

    Raises
    ------
    StoreError: there is no such secret, the run is under way, or the disk refuses.
    """
    path = folder / SECRET
    if no_file(path) is not None:
        raise StoreError(f"{folder} has no {SECRET}; expected the folder of a private run")
    with RunFolder(folder).lock():
        try:
            path.unlink()
            shutil.rmtree(folder / "checkpoints", ignore_errors=True)
            sync_folder(folder)
        except OSError as error:
            raise disk_error(error, path) from None
