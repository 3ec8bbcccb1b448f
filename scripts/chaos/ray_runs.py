"""Runs on a Ray cluster, each a process of its own, that a situation or a campaign disturbs and
compares."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from same_results import trees

from motley.results.load import load
from motley.results.schema import EQUAL_TABLES

__all__ = ["RayRun", "same_bits"]


class RayRun:
    """A run of :mod:`chaos.slow_run` under way.

    Parameters
    ----------
    out: folder of the run, which may hold a part of it. engine: options beside the name. code:
    folder that has the Motley to run; this one by default.
    """

    def __init__(
        self,
        out: Path,
        address: str,
        rounds: int = 25,
        algorithm: str = "fedavg",
        *,
        code: Path | None = None,
        **engine: Any,
    ) -> None:
        self.out = out
        self.log = out.with_suffix(".log")
        table = json.dumps({"name": "ray", "address": address, **engine})
        command = [
            sys.executable,
            "-W",
            "ignore",
            "-m",
            "chaos.slow_run",
            str(out),
            str(rounds),
            algorithm,
            table,
        ]
        here = Path(__file__).parents[2]
        path = os.pathsep.join(map(str, (*trees.sources(code or here), here / "scripts")))
        self.begun_s = time.time()
        with self.log.open("ab") as file:
            self.process = subprocess.Popen(
                command,
                stdout=file,
                stderr=file,
                stdin=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": path},
                cwd=out.parent,
            )

    def said(self) -> str:
        """Return what the run has printed."""
        return self.log.read_text(errors="replace")

    def rounds(self) -> list[tuple[int, float]]:
        """Return the rounds that are done, each with its time."""
        return [
            (int(number), float(at))
            for number, at in re.findall(r"^round (\d+) at ([\d.]+)$", self.said(), re.M)
        ]

    def wait(self, limit_s: float, rounds: int | None = None, after_s: float = 0.0) -> float | None:
        """Wait for the end, or until so many rounds are done that ended after ``after_s``; return
        the time; None: it took longer."""
        limit = time.monotonic() + limit_s
        while time.monotonic() < limit:
            ended = self.process.poll() is not None
            if rounds is not None:
                later = [at for _, at in self.rounds() if at > after_s]
                if len(later) >= rounds:
                    return later[rounds - 1]
            if ended:
                return time.time()
            time.sleep(0.1)
        return None

    def kill(self) -> None:
        """Kill the run's process."""
        self.process.kill()
        self.process.wait()

    @property
    def ended_well(self) -> bool:
        """Whether the run came to its end."""
        return self.process.poll() == 0


def same_bits(first: Path, second: Path) -> bool:
    """Return whether two finished runs have equal tables and models."""
    one = load(first)
    two = load(second)
    tables = all(one.tables[name].equals(two.tables[name]) for name in EQUAL_TABLES)
    return (
        tables
        and (first / "model.safetensors").read_bytes()
        == (second / "model.safetensors").read_bytes()
    )
