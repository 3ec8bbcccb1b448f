"""Stage ``workloads``: the workloads of ``benchmarks/engines.py`` on the device, beside a plain loop on the device."""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path

from benchmarks import engines
from benchmarks.gpu.experiments import ON_DEVICE
from benchmarks.gpu.records import Rows
from motley.core.work import LocalWork

SECONDS = 40.0
"""Of all turns of one workload; three turns are always taken."""


def tiny(load: engines.Workload) -> engines.Workload:
    """Return a workload of a few steps."""
    work = LocalWork(4, epochs=1)
    return dataclasses.replace(load, sizes=(8, 4), work=work, repetitions=1)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("device")
    parser.add_argument("--smoke", action="store_true")
    options = parser.parse_args()
    rows, failed = Rows(options.out / "workloads.json", options.device), []
    loads = [tiny(load) for load in engines.WORKLOADS[::4]] if options.smoke else engines.WORKLOADS
    for load in loads:
        if load.name in rows:
            continue
        try:
            rows.add(load.name, engines.measure_on(load, options.device, ON_DEVICE, SECONDS))
        except Exception as error:  # one failure says nothing about the others
            failed.append(f"{load.name}: {type(error).__name__}: {error}"[:500])
    print("\n".join(failed))
    raise SystemExit(1 if failed else 0)


if __name__ == "__main__":
    main()
