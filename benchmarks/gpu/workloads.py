"""Stage ``workloads``: the workloads of ``benchmarks/engines.py`` on the device, beside a plain
loop there; float32, then bfloat16.

The loop has the precision of the row.
"""

from __future__ import annotations

import dataclasses
from typing import get_args

from benchmarks import engines
from benchmarks.gpu.experiments import ON_DEVICE
from benchmarks.gpu.records import Rows, stage_options
from motley.core.work import LocalWork
from motley.tasks.precision import Precision

SECONDS = 20.0
"""Of all turns of one workload; three turns are always taken."""


def tiny(load: engines.Workload) -> engines.Workload:
    """Return a workload of a few steps."""
    work = LocalWork(4, epochs=1)
    return dataclasses.replace(load, sizes=(8, 4), work=work, repetitions=1)


def main() -> None:
    options = stage_options()
    rows = Rows(options.out / "workloads.json", options.device)
    failed = []
    loads = [tiny(load) for load in engines.WORKLOADS[::4]] if options.smoke else engines.WORKLOADS
    for precision in get_args(Precision):
        for load in loads:
            name = load.name if precision == "float32" else f"{load.name}, {precision}"
            if name in rows:
                continue
            try:
                rows.add(
                    name, engines.measure_on(load, options.device, ON_DEVICE, SECONDS, precision)
                )
            except Exception as error:  # one failure says nothing about the others
                failed.append(f"{name}: {type(error).__name__}: {error}"[:500])
    print("\n".join(failed))
    raise SystemExit(1 if failed else 0)


if __name__ == "__main__":
    main()
