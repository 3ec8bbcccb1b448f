"""What goes on beside a SuperLink: its records of runs are written into the deployment's log, and
its files are kept small."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import shutil
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from motley.core.errors import ConfigError
from motley_flower.client_list import LOG_NAME, ClientList
from motley_flower.messages import flower
from motley_flower.operator.calls import Address, call
from motley_flower.operator.kits import Deployment

_LOG = logging.getLogger("motley.flower.operator")

LOOK_S = 15.0
"""Seconds between two looks."""
LARGEST_LOG = 50_000_000
LARGEST_WAL = 64_000_000
"""Bytes of a log of the proxy, and of the database's write-ahead log, from which they are cut."""
KEPT_LOGS = 3
"""Earlier logs of the proxy that stay, each of about :data:`LARGEST_LOG`."""
PAGE = 100
"""Runs that are asked for in one call."""
SUBMITTED, ENDED = "submitted", "ended"


def tend(there: Deployment, looks: int | None = None, superlink: int | None = None) -> None:
    """Look at a deployment's SuperLink and files again and again; what goes wrong is logged.

    Parameters
    ----------
    looks: how often; None: for ever.
    superlink: the number of its process; None: nobody looks whether it can still start apps.

    Raises
    ------
    ConfigError: the process by which the SuperLink starts apps has ended.
    """
    log = RunLog(there.clients)
    server = there.folder / "server"
    at = Address("127.0.0.1", there.link_port, server / "ca.crt")
    while looks is None or looks > 0:
        if superlink is not None and has_ended_child(superlink):
            raise ConfigError(
                "the process by which the SuperLink starts apps has ended (its log says why; a "
                "full disk does it), and runs stay pending; start server/start again"
            )
        try:
            log.add(_runs(at, log))
            rotate(server)
            shrink(server / "state.db")
        except (ConfigError, OSError, sqlite3.Error) as problem:
            _LOG.warning("%s", problem)
        looks = None if looks is None else looks - 1
        if looks != 0:
            time.sleep(LOOK_S)


class RunLog:
    """The lines of a deployment's log about runs: one when a run was submitted, one when it ended.

    Parameters
    ----------
    clients: the file of clients, beside which the log lies.
    """

    def __init__(self, clients: ClientList) -> None:
        self.clients = clients
        self.written = set(_logged(clients.path.with_name(LOG_NAME)))

    def ended(self, run: int) -> bool:
        """Return whether the log has the end of a run."""
        return (ENDED, run) in self.written

    def add(self, runs: list[Any]) -> None:
        """Write what the log does not have of these runs, the SuperLink's records, oldest first."""
        for run in sorted(runs, key=lambda run: str(run.pending_at)):
            about = {
                "run": run.run_id,
                "app": run.fab_id,
                "app_version": run.fab_version,
                "app_hash": run.fab_hash,
                "account": run.flwr_aid,
            }
            self._write(SUBMITTED, {**about, "when": run.pending_at})
            if run.finished_at:
                how = run.status.sub_status or run.status.status
                self._write(ENDED, {**about, "when": run.finished_at, "how": how})

    def _write(self, event: str, about: dict[str, object]) -> None:
        if (event, about["run"]) not in self.written:
            self.clients.log(event, about)
            self.written.add((event, about["run"]))


def _logged(path: Path) -> Iterator[tuple[str, object]]:
    """Yield event and run of the lines that a log has of runs."""
    with contextlib.suppress(FileNotFoundError), path.open(encoding="utf-8") as file:
        for line in file:
            with contextlib.suppress(ValueError, AttributeError):  # a line that was cut short
                entry = json.loads(line)
                if entry.get("event") in (SUBMITTED, ENDED):
                    yield entry["event"], entry.get("run")


def _runs(at: Address, log: RunLog) -> list[Any]:
    """Return the SuperLink's records of runs, the newest first, down to a page of runs whose end
    the log has.

    Raises
    ------
    ConfigError: the SuperLink does not answer.
    """
    control = flower("proto.control_pb2")
    runs: list[Any] = []
    while True:
        answer = call(
            at, "/v1/control/list-runs", control.ListRunsRequest(limit=PAGE, skip=len(runs))
        )
        if answer.status != 200:
            reason = answer.why or f"HTTP {answer.status}"
            raise ConfigError(f"the SuperLink at {at.host}:{at.port} does not list runs ({reason})")
        listing = control.ListRunsResponse()
        listing.ParseFromString(answer.body)
        page = list(listing.run_dict.values())
        runs += page
        if len(page) < PAGE or all(log.ended(run.run_id) for run in page):
            return runs


def has_ended_child(pid: int) -> bool:
    """Return whether a child of a process has ended without its parent's notice, on Linux."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # gone in between
            state, parent, *_ = path.read_text().rpartition(")")[2].split()
            if state == "Z" and int(parent) == pid:
                return True
    return False


def rotate(server: Path, largest: int = LARGEST_LOG) -> None:
    """Copy each log of the proxy that is larger than so many bytes and empty it;
    :data:`KEPT_LOGS` earlier ones stay, as ``.1``, ``.2``, ...

    The proxy goes on with the files that it has: under root its workers have another account, which
    cannot open a file of this folder anew. What they write between the copy and the cut is lost.

    Raises
    ------
    OSError: the disk refuses.
    """
    for log in (server / "nginx-access.log", server / "nginx-error.log"):
        if not log.exists() or log.stat().st_size <= largest:
            continue
        for number in range(KEPT_LOGS, 1, -1):
            earlier = log.with_name(f"{log.name}.{number - 1}")
            if earlier.exists():
                earlier.replace(log.with_name(f"{log.name}.{number}"))
        shutil.copy(log, log.with_name(f"{log.name}.1"))
        os.truncate(log, 0)


def shrink(database: Path, largest: int = LARGEST_WAL) -> None:
    """Empty the write-ahead log of the SuperLink's database where it is larger than so many bytes;
    where somebody writes just now, it stays until the next look.

    Raises
    ------
    sqlite3.Error: the database refuses.
    """
    log = database.with_name(f"{database.name}-wal")
    if log.exists() and log.stat().st_size > largest:
        with contextlib.closing(sqlite3.connect(database, timeout=1.0)) as opened:
            opened.execute("PRAGMA wal_checkpoint(TRUNCATE)")
