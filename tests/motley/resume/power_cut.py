"""Power cuts: what the folder of a run may hold if the power fails between any two calls of the
operating system.

A recorder stands between a run and :mod:`os`. It keeps, by file, the bytes of its last ``fsync``,
and by folder the names of its last ``fsync``; whatever was not synced may be lost, or not. After
every call four folders are possible:

- ``names``: names as of the last sync of their folder, bytes as of the last sync of their file;
- ``newest``: the same, and the change of names that the call made (a file system may keep a later
  change and lose an earlier one);
- ``bytes``: the names of now (a file system may keep them without being asked), bytes as of the
  last sync;
- ``zeros``: the names and lengths of now, zeros where bytes were not synced.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

__all__ = ["Folder", "PowerCuts", "recorded"]

CALLS = (
    "fsync",
    "replace",
    "rename",
    "unlink",
    "remove",
    "mkdir",
    "rmdir",
    "pwrite",
    "write",
    "ftruncate",
)
Folder = dict[str, bytes | None]
"""Bytes by path below the run's folder; None for a folder."""


@dataclass
class PowerCuts:
    """Every folder that a power cut may leave, each once; ``found``: the folders, and after which
    call and under which model."""

    root: Path
    durable: dict[int, bytes] = field(default_factory=dict)
    names: dict[int, dict[str, int]] = field(default_factory=dict)
    found: list[tuple[str, Folder]] = field(default_factory=list)
    seen: set[int] = field(default_factory=set)
    before: dict[int, dict[str, int]] = field(default_factory=dict)

    def begin(self) -> None:
        """Take everything that is there for durable."""
        for folder, _, files in os.walk(self.root):
            self.names[os.stat(folder).st_ino] = _listed(folder)
            for file in files:
                path = Path(folder, file)
                self.durable[path.stat().st_ino] = path.read_bytes()
        self.before = self._all_names()

    def synced(self, file: int) -> None:
        """Note a call of ``fsync``."""
        path = os.readlink(f"/proc/self/fd/{file}")
        now = os.fstat(file)
        if stat.S_ISDIR(now.st_mode):
            self.names[now.st_ino] = _listed(path)
        else:
            self.durable[now.st_ino] = Path(f"/proc/self/fd/{file}").read_bytes()

    def cut(self, call: str) -> None:
        """Note the folders that are possible now."""
        inodes = {os.stat(self.root).st_ino} | {
            ino for names in self.names.values() for ino in names.values()
        }
        now = _now(self.root)
        inodes |= {ino for ino, _ in now.values()}
        # numbers are given to new files
        self.durable = {ino: data for ino, data in self.durable.items() if ino in inodes}
        kept: Folder = {
            name: None if size is None else self.durable.get(ino, b"")
            for name, (ino, size) in now.items()
        }
        zeros: Folder = {
            name: None if size is None else self.durable.get(ino, b"")[:size].ljust(size, b"\0")
            for name, (ino, size) in now.items()
        }
        newest = dict(self._durable_names(self._with_newest()))
        names = dict(self._durable_names(self.names))
        for model, folder in (
            ("names", names),
            ("newest", newest),
            ("bytes", kept),
            ("zeros", zeros),
        ):
            key = hash(tuple(sorted(folder.items())))
            if key not in self.seen:
                self.seen.add(key)
                self.found.append((f"{model} after {len(self.found)}: {call}", folder))

    def _durable_names(
        self, names: dict[int, dict[str, int]], inode: int | None = None, before: str = ""
    ) -> Iterator[tuple[str, bytes | None]]:
        for name, ino in names.get(
            os.stat(self.root).st_ino if inode is None else inode, {}
        ).items():
            if ino < 0:
                yield before + name, None
                yield from self._durable_names(names, -ino, f"{before}{name}/")
            else:
                yield before + name, self.durable.get(ino, b"")

    def _with_newest(self) -> dict[int, dict[str, int]]:
        """Durable names with the changes since the call before."""
        now = self._all_names()
        changed = {}
        for folder, held in now.items():
            known = self.before.get(folder, {})
            gone = known.keys() - held.keys()
            new = {name: ino for name, ino in held.items() if known.get(name) != ino}
            durable = {
                name: ino for name, ino in self.names.get(folder, {}).items() if name not in gone
            }
            changed[folder] = durable | new
        self.before = now
        return {**self.names, **changed}

    def _all_names(self) -> dict[int, dict[str, int]]:
        return {os.stat(folder).st_ino: _listed(folder) for folder, _, _ in os.walk(self.root)}


def write(folder: Folder, path: Path) -> Path:
    """Make a folder as it may be after a power cut."""
    path.mkdir(parents=True)
    for name, data in sorted(folder.items()):
        if data is None:
            (path / name).mkdir()
        elif name != ".lock":
            (path / name).write_bytes(data)
    return path


def _listed(folder: str | Path) -> dict[str, int]:
    """Names and inodes in a folder; the inode of a folder is negative."""
    with os.scandir(folder) as entries:
        return {
            entry.name: -entry.inode() if entry.is_dir() else entry.inode() for entry in entries
        }


def _now(root: Path) -> dict[str, tuple[int, int | None]]:
    """Inode and size of everything below a folder, by path; no size for folders."""
    found: dict[str, tuple[int, int | None]] = {}
    for path in sorted(root.rglob("*")):
        status = path.stat()
        found[path.relative_to(root).as_posix()] = (
            status.st_ino,
            None if path.is_dir() else status.st_size,
        )
    return found


@contextmanager
def recorded(root: Path) -> Iterator[PowerCuts]:
    """Record the power cuts that the calls of a block make possible."""
    cuts = PowerCuts(root)
    root.mkdir(parents=True, exist_ok=True)
    cuts.begin()

    def watched(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def done(*args: Any, **kwargs: Any) -> Any:
            out = call(*args, **kwargs)
            if name == "fsync":
                cuts.synced(args[0])
            cuts.cut(f"os.{name}{args[:1]}")
            return out

        return done

    with pytest.MonkeyPatch.context() as patch:
        for name in CALLS:
            patch.setattr(os, name, watched(name, getattr(os, name)))
        yield cuts
