"""Processes that run one experiment each and are killed: forked from a parent that has imported
everything, one for every attempt.

A moment is either an action on a file of the run (opened, written half, synced, renamed, removed:
the process sends itself SIGKILL just before it), which a seed repeats exactly, or a share of the
processor time that the whole run took (the parent kills).
"""

from __future__ import annotations

import ctypes
import io
import json
import os
import re
import signal
import subprocess
import sys
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from motley.core.errors import UserError

__all__ = ["Ended", "Moment", "Work", "adopt_orphans", "attempt", "commit", "descendants"]

Work = Callable[[], None]
LIMIT_S = 1800.0
"""Wall seconds after which an attempt has hung."""
ORPHANS_S = 60.0
"""Wall seconds in which workers whose parent was killed must have ended themselves."""
_LOOK_S = 0.005
_TICKS = os.sysconf("SC_CLK_TCK")
_ADOPT = 36  # PR_SET_CHILD_SUBREAPER


@dataclass(frozen=True)
class Moment:
    """When an attempt is killed.

    Parameters
    ----------
    action: on a file, as :func:`_label` names it, and its ``count``-th time in the attempt, counted
    from 1. cpu_s: or after so many seconds of processor time. wall_s: or after so many seconds;
    ``worker``: then one of its worker processes is killed, not itself.
    """

    action: str | None = None
    count: int = 1
    cpu_s: float | None = None
    wall_s: float | None = None
    worker: bool = False

    def __str__(self) -> str:
        if self.action is not None:
            return f"{self.action} #{self.count}"
        if self.cpu_s is not None:
            return f"after {self.cpu_s:.3f} s of processor time"
        return f"{'a worker ' if self.worker else ''}after {self.wall_s:.3f} s"


@dataclass(frozen=True)
class Ended:
    """How an attempt ended.

    Parameters
    ----------
    killed: whether it, or a worker of it, was killed. said: the sentence of the error that ended
    it; None for none. bug: whether that was no error for users. cpu_s, wall_s: what it took.
    actions: how often it did what on which file, in the order of the first.
    orphans: command lines of processes that it left behind.
    """

    killed: bool
    said: str | None
    bug: bool
    cpu_s: float
    wall_s: float
    actions: dict[str, int]
    orphans: tuple[str, ...]

    @property
    def done(self) -> bool:
        """Whether the work came to its end."""
        return self.said is None and not (self.killed and not self.actions)


def adopt_orphans() -> None:
    """Make this process the parent of descendants whose parents die, so that none is lost from
    sight."""
    if ctypes.CDLL(None, use_errno=True).prctl(_ADOPT, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")


@cache
def commit() -> str:
    """Return the commit of this code, with ``-dirty`` where files differ from it."""
    said = subprocess.run(
        ["git", "describe", "--always", "--dirty"],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
    )
    return said.stdout.strip()


def attempt(
    work: Work, folder: Path, moment: Moment | None = None, limit_s: float = LIMIT_S
) -> Ended:
    """Call ``work`` in a child process, which ends at ``moment`` if it comes before the end of the
    work.

    Parameters
    ----------
    work: acts on files in ``folder``. limit_s: wall seconds after which it has hung, which counts
    as a bug.
    """
    if len(os.listdir("/proc/self/task")) != 1:
        raise RuntimeError("a process with threads cannot be forked")
    reader, writer = os.pipe()
    began = time.monotonic()
    child = os.fork()
    if child == 0:
        os.close(reader)
        _live(work, folder, moment, writer)
    os.close(writer)
    killed = _watch(child, moment, began + limit_s)
    hung = time.monotonic() > began + limit_s
    with open(reader, encoding="utf-8") as pipe:
        text = pipe.read()
    _, status, used = os.wait4(child, 0)
    took_s = time.monotonic() - began
    died = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
    said: dict[str, Any] = json.loads(text) if text.endswith("}") else {}
    if hung or (not said and not died):
        said = {
            "said": f"it hung for {limit_s:g} s"
            if hung
            else f"it ended with status {status} and said nothing",
            "bug": True,
        }
    worker = killed and moment is not None and moment.worker
    cpu_s = used.ru_utime + used.ru_stime
    return Ended(
        died or worker,
        said.get("said"),
        said.get("bug", False),
        cpu_s,
        took_s,
        said.get("actions", {}),
        _orphans(),
    )


def _watch(child: int, moment: Moment | None, give_up: float) -> bool:
    """Wait for the end of the child, and kill it or a worker of it when the time has come; return
    whether something was killed."""
    began = time.monotonic()
    killed = False
    while not _ended(child):
        now = time.monotonic()
        if now > give_up:
            _kill(child)
        elif moment is not None and not killed:
            victim = _victim(child, moment, now - began)
            if victim is not None:
                _kill(victim)
                killed = True
        time.sleep(_LOOK_S)
    return killed


def _victim(child: int, moment: Moment, since_s: float) -> int | None:
    """Return the process that is killed now; None before its time."""
    if moment.wall_s is not None and since_s >= moment.wall_s:
        workers = sorted(descendants(child))
        return (
            child
            if not moment.worker
            else workers[int(1000 * since_s) % len(workers)]
            if workers
            else None
        )
    return child if moment.cpu_s is not None and _cpu_s(child) >= moment.cpu_s else None


def _kill(process: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(process, signal.SIGKILL)


def _ended(child: int) -> bool:
    return os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _stat(process: int) -> list[str]:
    return Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()


def _cpu_s(process: int) -> float:
    with suppress(OSError, IndexError):
        fields = _stat(process)
        return (int(fields[11]) + int(fields[12])) / _TICKS
    return 0.0


def descendants(process: int) -> Iterator[int]:
    """Yield the processes that a process has started, and those that they have."""
    with suppress(OSError):
        for task in Path(f"/proc/{process}/task").iterdir():
            for child in map(int, (task / "children").read_text(encoding="utf-8").split()):
                yield child
                yield from descendants(child)


def _orphans() -> tuple[str, ...]:
    """Wait for the processes that an attempt left; return the command lines of those that do not
    end, and end them."""
    deadline = time.monotonic() + ORPHANS_S
    while time.monotonic() < deadline:
        try:
            found, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ()
        if not found:
            time.sleep(0.01)
    left = sorted(descendants(os.getpid()))
    said = [
        Path(f"/proc/{one}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        for one in left
    ]
    for one in left:
        _kill(one)
    with suppress(ChildProcessError):
        while True:
            os.waitpid(-1, 0)
    return tuple(said)


# ------------------------------------------------------------------------------------- in the child


def _live(work: Work, folder: Path, moment: Moment | None, writer: int) -> None:
    """Do the work and say how it went; never returns."""
    said: Mapping[str, Any] = {"said": None}
    actions = _Actions(folder, moment)
    try:
        warnings.simplefilter("ignore")
        actions.hook()
        work()
    except UserError as error:
        said = {"said": f"{type(error).__name__}: {error}"}
    except BaseException:
        said = {"said": traceback.format_exc()[-2000:], "bug": True}
    finally:
        os.write(writer, json.dumps({**said, "actions": dict(actions.seen) or {"": 0}}).encode())
        sys.stdout.flush()
        os._exit(0)


class _Actions:
    """Counts actions on files in a folder, and kills the process at one of them."""

    def __init__(self, folder: Path, moment: Moment | None) -> None:
        self.folder = str(folder.resolve())
        self.moment = moment
        self.seen = Counter[str]()
        self.names: dict[int, str] = {}

    def hook(self) -> None:
        """Begin to look."""
        sys.addaudithook(self._audit)
        for name in ("pwrite", "fsync", "ftruncate"):
            setattr(os, name, self._on_descriptor(name, getattr(os, name)))
        io.open, self._open = self._opened, io.open

    def did(self, action: str, path: object, half: Callable[[], object] = lambda: None) -> None:
        """Count one action that is about to happen; ``half``: does a part of it, and the process is
        killed after it."""
        text = os.fsdecode(path) if isinstance(path, str | bytes | os.PathLike) else ""
        text = os.path.abspath(text) if text else ""
        if not text.startswith(self.folder):
            return
        label = _label(action, text.removeprefix(self.folder))
        self.seen[label] += 1
        if (
            self.moment is not None
            and self.moment.action == label
            and self.seen[label] == self.moment.count
        ):
            half()
            os.kill(os.getpid(), signal.SIGKILL)

    def _audit(self, event: str, given: tuple[Any, ...]) -> None:
        if (
            event == "open"
            and isinstance(given[2], int)
            and given[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
        ):
            self.did("open", given[0])
        elif event == "os.rename":
            self.did("rename", given[1])
        elif event in ("os.remove", "os.rmdir", "os.mkdir"):
            self.did(event.removeprefix("os."), given[0])

    def _on_descriptor(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def called(descriptor: int, *rest: Any) -> Any:
            half = (
                (lambda: real(descriptor, memoryview(rest[0])[: len(rest[0]) // 2], *rest[1:]))
                if name == "pwrite"
                else lambda: None
            )
            with suppress(OSError):
                self.did(name, os.readlink(f"/proc/self/fd/{descriptor}"), half)
            return real(descriptor, *rest)

        return called

    def _opened(self, file: Any, mode: str = "r", *rest: Any, **more: Any) -> Any:
        """Open a file; bytes that are written to it go through :class:`_Torn`."""
        path = (
            os.path.abspath(os.fsdecode(file))
            if isinstance(file, str | bytes | os.PathLike)
            else ""
        )
        if (
            "b" not in mode
            or not set(mode) & set("wxa+")
            or not path.startswith(self.folder)
            or rest
            or more.get("buffering", -1) != -1
        ):
            return self._open(file, mode, *rest, **more)
        raw = _Torn(path, mode.replace("b", ""), self)
        return io.BufferedRandom(raw) if "+" in mode else io.BufferedWriter(raw)


class _Torn(io.FileIO):
    """A file whose writing may stop half-way."""

    def __init__(self, path: str, mode: str, actions: _Actions) -> None:
        super().__init__(path, mode)
        self.path = path
        self.actions = actions

    def write(self, data: Any) -> int:
        """Write bytes."""
        self.actions.did(
            "write", self.path, lambda: super(_Torn, self).write(memoryview(data)[: len(data) // 2])
        )
        return super().write(data)


def _label(action: str, path: str) -> str:
    """Return the name of an action on a file: files that differ in a round or a process id alone
    have one name."""
    return f"{action} {re.sub(r'[0-9]+', '#', path.lstrip('/')) or '.'}"
