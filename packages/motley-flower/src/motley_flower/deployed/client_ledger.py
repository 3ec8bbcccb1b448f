"""What a client has released under ``[privacy]``: noisy values and a number of updates, in a file
on its own disk.

Every value and every update is written down before it leaves. A request that was answered before
gets the same value again, so that noise does not average away; one beyond a cap is refused. The
server names runs, so a new name begins no new budget: the file counts over all runs of one
experiment file. Only the client's operator begins one, by removing the file.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from motley.core.errors import ConfigError, StoreError
from motley.core.files import changed, disk_error, replacing, sync_folder, with_digest
from motley.core.strict_json import restored, to_json
from motley_flower.deployed.protocol import Told


class ClientLedger:
    """The releases of one client, in a file that its owner alone can read; processes of the client
    take turns.

    Parameters
    ----------
    folder: of the client.
    terms: what the budget is of, as a short text.
    client: its number.
    max_signals: most values of each signal.
    max_rounds: most updates.
    """

    def __init__(
        self, folder: Path, terms: str, client: int, max_signals: int, max_rounds: int
    ) -> None:
        # no run is named so, and runs have folders beside it
        self.path = folder / ".privacy" / f"{terms}-{client}.json"
        self.max_signals = max_signals
        self.max_rounds = max_rounds

    def check(self, occasion: str, names: Mapping[str, object], update: bool) -> None:
        """Refuse what would go beyond a cap.

        Parameters
        ----------
        occasion: of the request; asked again on the same one, a client sends what it sent.
        names: of signals.
        update: whether an update is asked for.

        Raises
        ------
        ConfigError: a cap is reached. StoreError: the file is damaged, or cannot be read.
        """
        self._check(self._read(), occasion, names, update)

    def release(
        self, occasion: str, draws: Mapping[str, Callable[[], Told]], update: bool
    ) -> dict[str, Told]:
        """Return the values that leave, each drawn once an occasion, after they are written down;
        count an update.

        Parameters
        ----------
        occasion, update: as in :meth:`check`, and so are the errors.
        draws: signal -> what draws its noisy value.
        """
        with self._locked():
            record = self._read()
            self._check(record, occasion, draws, update)
            new = update
            for name, draw in draws.items():
                sent = record["signals"].setdefault(name, {})
                if occasion not in sent:
                    sent[occasion] = draw().tolist()
                    new = True
            record["updates"] += update
            if new:
                self._write(record)
            return {name: np.array(record["signals"][name][occasion], np.float64) for name in draws}

    def _check(
        self, record: Mapping[str, Any], occasion: str, names: Mapping[str, object], update: bool
    ) -> None:
        for name in names:
            sent = record["signals"].get(name, {})
            if occasion not in sent and len(sent) >= self.max_signals:
                raise self._full(f"{len(sent)} values of {name!r}", "max_signals")
        if update and record["updates"] >= self.max_rounds:
            raise self._full(f"{record['updates']} updates", "max_rounds")

    def _full(self, sent: str, key: str) -> ConfigError:
        return ConfigError(
            f"this client has sent {sent}, as many as its [privacy] allows; remove {self.path} to "
            "begin a new budget, which adds to what has left it",
            f"privacy.{key}",
        )

    def _read(self) -> dict[str, Any]:
        """Return what was released; a damaged file is no empty one."""
        try:
            text = self.path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return {"updates": 0, "signals": {}}
        except (OSError, UnicodeDecodeError) as error:
            raise self._damaged(str(error)) from None
        try:
            content = json.loads(text)
            record = restored(content)
            sound = "digest" in content and not changed(content)
        except (ValueError, TypeError, RecursionError) as error:
            raise self._damaged(str(error)) from None
        if not sound:
            raise self._damaged("its digest differs")
        return record

    def _damaged(self, why: str) -> StoreError:
        return StoreError(
            f"{self.path} counts what this client has released and cannot be read ({why}); restore "
            "it, or remove it to begin a new budget, which adds to what has left the client"
        )

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the lock of the file; another process of the same client waits, and then sees what
        this one released."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self.path.parent.chmod(0o700)
            # A lock file of its own: the ledger is replaced, and a lock on the file that was
            # replaced would keep nobody out.
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW
            handle = os.open(self.path.with_suffix(".lock"), flags, 0o600)
        except OSError as error:
            raise disk_error(error, self.path) from None
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)

    def _write(self, record: Mapping[str, Any]) -> None:
        try:
            with replacing(self.path) as file:
                os.fchmod(file.fileno(), 0o600)
                file.write(to_json(with_digest(record)).encode())
            sync_folder(self.path.parent)
        except OSError as error:
            raise disk_error(error, self.path) from None
