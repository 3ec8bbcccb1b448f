"""The last sent updates of clients (:mod:`motley.core.last_updates`) on disk, where an experiment
says ``client_state = "disk"``.

Each is a file with a checksum. A checkpoint names the files that are valid, and none that a kept
checkpoint names is removed, so that a killed run goes on from where these point.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from typing_extensions import override

from motley.core import codec
from motley.core.errors import CodecError, ConfigError, StoreError
from motley.core.files import create, disk_error, sync_folder
from motley.core.last_updates import LastUpdates, SparseUpdate
from motley.rounds.checkpoint import KEPT


class DiskLastUpdates(LastUpdates):
    """The last updates in files, one for each client that took part; reading one makes a copy.

    Parameters
    ----------
    folder: of the files ``<client>-<number>.update``, made with the first.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder
        self._kept: dict[int, int] = {}  # by client: the number in its file's name
        # files that the kept checkpoints and the coming one name, oldest first
        self._named: list[set[str]] = []
        self._unsynced: list[Path] = []
        self._next = 0

    def _path(self, client: int) -> Path:
        return self.folder / f"{client}-{self._kept[client]}.update"

    @override
    def _put(self, client: int, update: SparseUpdate) -> None:
        old = self._path(client) if client in self._kept else None
        self._kept[client], self._next = self._next, self._next + 1
        path = self._path(client)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with create(path) as file:
                file.writelines(codec.pieces(list(update)))
            if old is not None and not any(old.name in names for names in self._named):
                old.unlink(missing_ok=True)
        except OSError as error:
            raise disk_error(error, path) from None
        self._unsynced.append(path)

    @override
    def _get(self, client: int) -> SparseUpdate:
        path = self._path(client)
        try:
            at, values = codec.decode(path.read_bytes())
        except (OSError, CodecError):
            message = f"the last update of client {client} in {path} is gone or damaged"
            raise StoreError(f"{message}; remove the run's folder and begin again") from None
        return at, values

    @override
    def save(self) -> dict[str, Any]:
        """Make all files durable; return the valid file of each client, and those that earlier
        checkpoints name."""
        current = {client: self._path(client).name for client in self._kept}
        try:
            # Contents first, then the names in the folder, then (by the caller) the checkpoint that
            # mentions them: after a power cut no checkpoint names a file that is not whole.
            for path in self._unsynced:
                if path.exists():  # not replaced since
                    with path.open("rb") as file:
                        os.fsync(file.fileno())
            if self._unsynced:
                sync_folder(self.folder)
        except OSError as error:
            raise disk_error(error, self.folder) from None
        self._unsynced = []
        if not self._named or self._named[-1] != set(current.values()):
            # until the coming checkpoint is written, those before it are what there is
            self._pin([*self._named, set(current.values())][-KEPT - 1 :])
        before = [sorted(names) for names in self._named[:-1]]
        return {
            "norms": dict(self._norms),
            "files": dict(self._kept),
            "next": self._next,
            "before": before,
        }

    @override
    def restore(self, saved: Mapping[str, Any]) -> None:
        """Restore what :meth:`save` returned, also of a run that kept the updates in RAM until now.

        Raises
        ------
        StoreError: the disk is full.
        """
        if "updates" in saved:
            super().restore(saved)
            return
        self._norms = dict(saved["norms"])
        self._staged = {}
        self._cosines = {}
        self._kept = dict(saved["files"])
        self._next = saved["next"]
        self._unsynced = []
        self._pin([*map(set, saved["before"]), {self._path(client).name for client in self._kept}])

    def _pin(self, named: list[set[str]]) -> None:
        """Keep the files that these checkpoints name, and remove all others."""
        self._named = named
        names = set().union(*named)
        for path in self.folder.glob("*.update") if self.folder.exists() else ():
            if path.name not in names:
                path.unlink(missing_ok=True)


def open_last_updates(where: Literal["ram", "disk"], folder: Path | None) -> LastUpdates:
    """Return an empty store of last updates; ``folder``: of the run's checkpoints.

    Raises
    ------
    ConfigError: files without a folder.
    """
    if where == "ram":
        return LastUpdates()
    if folder is None:
        raise ConfigError(
            "updates on disk need the folder of a run; use motley.run, or give build a folder",
            "client_state",
        )
    return DiskLastUpdates(folder / "updates")
