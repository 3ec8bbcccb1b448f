"""The stages of ``make gpu``, in order of worth: what each runs, for how long at most, and what it
needs."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import dataclass
from pathlib import Path

__all__ = ["PACKAGES", "STAGES", "Options", "Stage", "missing"]

PACKAGES = (
    "annotated_types",
    "jinja2",
    "matplotlib",
    "numpy",
    "PIL",
    "pyarrow",
    "pydantic",
    "rich",
    "safetensors",
    "sklearn",
    "scipy",
    "threadpoolctl",
    "tomli_w",
    "torch",
    "typer",
    "typing_extensions",
    "xxhash",
)
"""Modules without which nothing runs: those of ``dependencies`` in pyproject.toml."""


@dataclass(frozen=True)
class Options:
    """How all stages are run. ``peer``: a Python that has pfl-research."""

    out: Path
    device: str
    smoke: bool
    peer: str


@dataclass(frozen=True)
class Stage:
    """One stage: its limit in minutes, the modules that it needs beside :data:`PACKAGES`, and what
    it does, for the summary."""

    name: str
    minutes: float
    what: str
    needs: tuple[str, ...] = ()

    def command(self, options: Options) -> list[str]:
        """Return the command line of this stage."""
        if self.name == "tests":
            chosen = ["tests/motley/engines/test_gpu.py", "tests/motley/tasks/test_flat_module.py"]
            kept = ["-p", "no:cacheprovider", f"--junitxml={options.out / 'tests.xml'}"]
            return [sys.executable, "-m", "pytest", "-q", "-m", "gpu", *kept, *chosen]
        if self.name == "peer":
            rounds = "2" if options.smoke else "150"
            more = ["--smoke"] if options.smoke else []
            return [
                options.peer,
                "benchmarks/gpu/pfl_peer.py",
                str(options.out / "peer.json"),
                options.device,
                rounds,
                *more,
            ]
        more = ["--smoke"] if options.smoke else []
        return [
            sys.executable,
            "-m",
            f"benchmarks.gpu.{self.name}",
            str(options.out),
            options.device,
            *more,
        ]


STAGES = (
    Stage("tests", 3, "the tests that need a GPU", ("pytest", "hypothesis")),
    Stage("joint_runs", 5, "25 small runs in one process, and one after the other"),
    Stage("agreement", 4, "every engine on the device against itself on the CPU, in float64"),
    Stage("workloads", 7, "client steps a second beside a plain loop on the device"),
    Stage(
        "pfl_cifar10",
        12,
        "pfl-research's CIFAR-10 benchmark: 1,000 users, 50 a round, 1,500 rounds",
    ),
    Stage("peer", 4, "pfl-research on a tenth of its benchmark"),
    Stage("recipes", 30, "the papers' rows that wait for a GPU, in order of worth"),
)


def missing(names: tuple[str, ...]) -> list[str]:
    """Return the modules that this Python does not have."""
    return [name for name in names if importlib.util.find_spec(name) is None]
