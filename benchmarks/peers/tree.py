"""Runs a command and watches the memory of its whole process tree."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, NamedTuple

import psutil

SHARE = 0.03
"""Largest share of one core that looking at the processes may take."""


class Watched(NamedTuple):
    """How a command ended: exit code, peak of the tree's memory in MiB, most processes at one
    time."""

    code: int
    peak_mib: float
    processes: int


def watched(
    command: Sequence[str],
    environment: Mapping[str, str],
    folder: Path,
    log: IO[str],
    limit_s: float,
) -> Watched:
    """Run a command to its end, or kill it after ``limit_s``; whatever it leaves behind is killed,
    too.

    Memory is the proportional set size, which counts a page that several processes share once in
    all.
    """
    process = subprocess.Popen(
        command, env=dict(environment), cwd=folder, stdout=log, stderr=log, start_new_session=True
    )
    peak = 0
    most = 0
    start = time.monotonic()
    known: dict[int, psutil.Process] = {}
    try:
        while process.poll() is None and time.monotonic() < start + limit_s:
            began = time.monotonic()
            here = _family(process.pid)
            known |= {one.pid: one for one in here}
            peak = max(peak, sum(map(_size, here)))
            most = max(most, len(here))
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.05, (time.monotonic() - began) / SHARE))
    finally:
        for one in known.values():
            with contextlib.suppress(psutil.Error):
                one.kill()
        psutil.wait_procs(list(known.values()), timeout=5)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    return Watched(process.wait(), peak / 2**20, most)


def _family(pid: int) -> list[psutil.Process]:
    try:
        process = psutil.Process(pid)
        return [process, *process.children(recursive=True)]
    except psutil.Error:
        return []


def _size(process: psutil.Process) -> int:
    try:
        return int(process.memory_full_info().pss)
    except psutil.Error:
        return 0
