"""The states that clients keep between rounds: SCAFFOLD's c_k, FedDyn's g_k, a client's own
BatchNorm, ...

A client without an accepted upload has its method's initial state, which is not stored. In RAM
(:class:`ClientStates`) every checkpoint holds all states. On disk (:class:`DiskClientStates`) they
are rows of equal length in one file, and a checkpoint names the valid row of each client, with its
checksum:

    put      a row is written to a place that neither the current states nor a kept checkpoint name
    save     rows are made durable before the checkpoint that names them is written
    restore  the rows that the checkpoint names are valid again; rows written after it are free

So whenever the process is killed, the rows that the last two checkpoints name are as they were.
"""

from __future__ import annotations

import os
import shutil
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from motley.algorithms.parts import ClientState
from motley.core.errors import ConfigError, ContractError, StoreError
from motley.core.files import create, disk_error, no_file, sync_folder
from motley.core.freed_memory import release_freed_memory
from motley.core.saved_state import built, save
from motley.rounds.checkpoint import KEPT
from motley.transport.upload_config import split_state


class ClientStates(Mapping[int, ClientState]):
    """Client states in RAM, by client, of the clients that have one of their own.

    Parameters
    ----------
    first: the initial state of every client; None for a method without client states.
    others: returns a client's initial state where these differ in shape, since clients hold models
    of different architectures; None: ``first`` is everybody's.

    Example
    -------
    >>> import torch
    >>> states = ClientStates({"c": torch.zeros(2)})
    >>> states.put(7, {"c": torch.ones(2)})
    >>> list(states), states.of([3, 7])[3]["c"].tolist()
    ([7], [0.0, 0.0])
    """

    def __init__(
        self,
        first: ClientState | None,
        others: Callable[[int], ClientState] | None = None,
    ) -> None:
        self.first = first
        self.others = others
        self._kept: dict[int, Any] = {}
        self._ahead: dict[int, ClientState] = {}

    def __getitem__(self, client: int) -> ClientState:
        state: ClientState = self._kept[client]
        return state

    def __iter__(self) -> Iterator[int]:
        return iter(self._kept)

    def __len__(self) -> int:
        return len(self._kept)

    def of(self, clients: Iterable[int]) -> dict[int, ClientState | None]:
        """Return the states of these clients, the initial one for a client without its own; empty
        without client states."""
        if self.first is None:
            return {}
        return {int(c): self._ahead[c] if c in self._ahead else self._now(int(c)) for c in clients}

    def of_algorithm(self, clients: Iterable[int]) -> dict[int, ClientState | None]:
        """Return what the algorithm keeps of these clients, as :meth:`of`."""
        return {client: split_state(state)[0] for client, state in self.of(clients).items()}

    def _now(self, client: int) -> ClientState:
        return self[client] if client in self._kept else self.first_of(client)

    def first_of(self, client: int) -> ClientState:
        """Return a client's initial state; empty for a method without client states."""
        return self.first or {} if self.others is None else self.others(client)

    def run_ahead(self, states: Mapping[int, ClientState]) -> None:
        """Let :meth:`of` return these states until :meth:`fall_back`: what a client that trains
        twice for one server step keeps after the first time, before the server has accepted
        anything."""
        self._ahead.update(states)

    def fall_back(self) -> None:
        """Let :meth:`of` return again what clients keep for good."""
        self._ahead = {}

    def put(self, client: int, memory: ClientState) -> None:
        """Replace the state of a client.

        Raises
        ------
        ContractError: names, shapes or dtypes other than the initial state's. StoreError: the file
        cannot be written.
        """
        actual = _form(memory)
        expected = _form(self.first_of(client))
        if actual != expected:
            raise ContractError(
                f"client {client} would keep {actual}; its method's first memory is {expected}"
            )
        self._put(client, memory)

    def _put(self, client: int, memory: ClientState) -> None:
        """Store a state; views are copied, because a view of a batch of clients would keep all of
        the batch in memory."""
        self._kept[client] = {
            name: value.clone() if value.untyped_storage().nbytes() > value.nbytes else value
            for name, value in memory.items()
        }

    def save(self) -> dict[str, Any]:
        """Return the part of a checkpoint that holds these states."""
        return {"kept": save(self._kept)}

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Restore what :meth:`save` returned.

        Raises
        ------
        StoreError: the checkpoint's states are on disk.
        """
        if "kept" not in saved:
            raise StoreError(
                "this run keeps the memories of its clients on disk; go on with client_state = "
                '"disk"'
            )
        self._kept = built(dict[int, ClientState], saved["kept"], "kept")


class DiskClientStates(ClientStates):
    """Client states in rows of a file; reading one makes a copy.

    Parameters
    ----------
    first, others: as for :class:`ClientStates`.
    folder: of the file ``memories.rows``, which is made with the first row.
    largest: bytes of the longest state; None: all are as long as ``first``.
    """

    def __init__(
        self,
        first: ClientState,
        folder: Path,
        others: Callable[[int], ClientState] | None = None,
        largest: int | None = None,
    ) -> None:
        super().__init__(first, others)
        self.path = folder / "memories.rows"
        self._bytes = row_bytes(first) if largest is None else largest
        self._kept: dict[int, tuple[int, int]] = {}  # by client: its row, and the row's checksum
        # the rows that the kept checkpoints name, oldest first
        self._named: list[NDArray[np.int64]] = []
        self._pinned: set[int] = set()  # all of these
        self._free: list[int] = []  # rows that nobody names
        self._end = 0  # rows in the file

    def __getitem__(self, client: int) -> ClientState:
        row, checksum = self._kept[client]
        raw = b""
        with suppress(OSError), self.path.open("rb") as file:
            file.seek(row * self._bytes)
            raw = file.read(self._bytes)
        if len(raw) != self._bytes or zlib.crc32(raw) != checksum:
            raise StoreError(
                f"the memory of client {client} in {self.path} is damaged; remove the run's folder "
                "and begin again"
            )
        out = {}
        at = 0
        for name, like in save(self.first_of(client)).items():
            # A copy: memory of bytes is read-only, and tensors are not.
            out[name] = np.frombuffer(raw, like.dtype, like.size, at).reshape(like.shape).copy()
            at += like.nbytes
        return {name: torch.from_numpy(value) for name, value in out.items()}

    def _put(self, client: int, memory: ClientState) -> None:
        arrays = save(memory)
        raw = b"".join(arrays[name].tobytes() for name in self.first_of(client))
        raw = raw.ljust(self._bytes, b"\0")
        row = self._free.pop() if self._free else self._end
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("r+b") if self._end else create(self.path) as file:
                file.seek(row * self._bytes)
                file.write(raw)
        except OSError as error:
            raise disk_error(error, self.path) from None
        old, _ = self._kept.get(client, (row, 0))
        self._kept[client] = (row, zlib.crc32(raw))
        self._end = max(self._end, row + 1)
        if old != row and old not in self._pinned:
            self._free.append(old)

    def save(self) -> dict[str, Any]:
        """Make all rows durable; return the valid row of each client, and the rows that earlier
        checkpoints name."""
        if self._end:
            try:
                # Rows before the checkpoint that names them; a descriptor that only reads syncs as
                # well.
                with self.path.open("rb") as file:
                    os.fsync(file.fileno())
                sync_folder(self.path.parent)
            except OSError as error:
                raise disk_error(error, self.path) from None
        clients = np.array(list(self._kept), dtype=np.int64)
        rows, checksums = np.array(list(self._kept.values()), dtype=np.int64).reshape(-1, 2).T
        if not self._named or not np.array_equal(self._named[-1], rows):
            self._pin([*self._named, rows][-KEPT:])
        return {
            "clients": clients,
            "rows": rows,
            "checksums": checksums,
            "before": self._named[:-1],
            "end": self._end,
        }

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Restore what :meth:`save` returned, also of a run that kept its states in RAM until now.

        Raises
        ------
        StoreError: the file is gone, is a link or no file, or the disk is full.
        """
        if "kept" in saved:
            states: dict[int, ClientState] = built(dict[int, ClientState], saved["kept"], "kept")
            for client, memory in states.items():
                self.put(client, memory)
            return
        reason = "is a link" if self.path.is_symlink() else no_file(self.path)
        if saved["end"] and reason is not None:
            raise StoreError(
                f"{self.path} {reason}, and what clients kept is gone; remove the run's folder and "
                "begin again"
            )
        counts = zip(saved["rows"].tolist(), saved["checksums"].tolist(), strict=True)
        self._kept = dict(zip(saved["clients"].tolist(), counts, strict=True))
        self._end = saved["end"]
        self._pin([*saved["before"], saved["rows"]])

    def _pin(self, named: list[NDArray[np.int64]]) -> None:
        self._named = named
        self._pinned = set(np.concatenate(named).tolist())
        self._free = [row for row in range(self._end) if row not in self._pinned]


def row_bytes(memory: ClientState) -> int:
    """Return the bytes of one client state."""
    return sum(value.nbytes for value in memory.values())


def open_client_states(
    where: Literal["ram", "disk"],
    first: ClientState | None,
    population: int,
    reached: int,
    moved: int,
    folder: Path | None,
    others: Callable[[int], ClientState] | None = None,
    each: Sequence[int] | None = None,
) -> ClientStates:
    """Return an empty store of client states, after checking that there is room for all of them.

    Parameters
    ----------
    where: ``ram`` or ``disk``.
    first, others: as for :class:`ClientStates`.
    population: K, all of which may keep a state.
    reached, moved: how many clients are accepted at most in the whole run, and between two
    checkpoints.
    folder: of the rows.
    each: bytes of each client's state, ``population`` of them, where these differ.

    Raises
    ------
    ConfigError: less room than needed: for K states in RAM; on disk for those of the reached
    clients and those that the kept checkpoints name besides.
    """
    if first is None:
        return ClientStates(None)
    largest = max(each or (row_bytes(first),))
    most = "" if each is None else "up to "
    message = f"{population:,} clients may come to keep {most}{largest:,} bytes each, "
    if where == "ram":
        needed = population * largest if each is None else sum(each)
        free = free_memory()
        if free is not None and needed > free:
            message += f"{needed:,} in all, and {free:,} bytes of memory are free"
            raise ConfigError(f'{message}; write client_state = "disk"', "client_state")
        return ClientStates(first, others)
    if folder is None:
        raise ConfigError(
            "rows on disk need the folder of a run; use motley.run, or give build a folder",
            "client_state",
        )
    states = DiskClientStates(first, folder, others, largest)
    needed = (reached + KEPT * min(reached, moved)) * largest
    free = _free_disk(folder)
    if states.path.exists():
        free += states.path.stat().st_size
    if needed > free:
        message += (
            f"{needed:,} of them on disk at a time, and {free:,} bytes are free below {folder}"
        )
        raise ConfigError(
            f"{message}; choose another output folder, or a smaller model, population or cohort",
            "client_state",
        )
    return states


def free_memory() -> int | None:
    """Return the free bytes of RAM, of this machine and of this process's control group; None where
    they are not known.

    Memory that earlier runs left free inside this process counts: it is given back first (glibc
    keeps large blocks otherwise)."""
    release_freed_memory()
    try:
        meminfo = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    except OSError:
        return None
    free = int(meminfo["MemAvailable"].split()[0]) * 1024
    with suppress(OSError, ValueError):  # no group, or "max": no limit
        group = Path("/sys/fs/cgroup")
        limit, taken = (
            int((group / name).read_text()) for name in ("memory.max", "memory.current")
        )
        cached = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
        free = min(free, limit - taken + int(cached["inactive_file"]) + int(cached["active_file"]))
    return max(free, 0)


def _free_disk(folder: Path) -> int:
    """Return the free bytes of the disk that has, or will have, a folder."""
    while not folder.exists():
        folder = folder.parent
    return shutil.disk_usage(folder).free


def _form(memory: ClientState) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Return dtype and shape by name."""
    return {
        name: (str(value.dtype).removeprefix("torch."), tuple(value.shape))
        for name, value in memory.items()
    }
