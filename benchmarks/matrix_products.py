"""Measures the engine ``batched`` with either library of matrix products: client steps per second
of whole rounds of local training, on one thread.

    python benchmarks/matrix_products.py

The libraries take turns in one process, which leaves to OpenBLAS which kernels it takes. Data are
random numbers, as in ``engines.py``. It prints the table of docs/measured.md.
"""

from __future__ import annotations

import os
import statistics
import sys
from dataclasses import replace

import torch
from engines import GREY, Workload, federated, setting, speeds

from motley.algorithms.parts import LocalRule
from motley.core.work import LocalWork
from motley.engines.batched import Batched
from motley.engines.processor import arithmetic

LIBRARIES = ("torch", "openblas")
WORKLOADS = [
    Workload(f"{model}, batch {batch}", model, GREY, sizes, LocalWork(batch, epochs=5), None, 7)
    for model in ("mlp", "logistic_regression")
    for batch, sizes in ((10, (160,) * 5), (16, (160,) * 5), (100, (600,) * 10))
]


def main() -> None:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("OPENBLAS_")}
    if len(environment) < len(os.environ):  # they are read when the library is loaded
        os.execve(sys.executable, [sys.executable, *sys.argv], environment)
    torch.set_num_threads(1)
    machine = arithmetic()
    print(f"{machine['processor']}; {machine['blas']}; load {os.getloadavg()[0]:.1f}\n")
    print("| workload | PyTorch | OpenBLAS | ratio |\n| --- | --- | --- | --- |")
    for load in WORKLOADS:
        plain = setting(load)
        plain = replace(plain, threads=1, algorithm=plain.algorithm.replace(local=LocalRule()))
        engines = {name: Batched(replace(plain, products=name)) for name in LIBRARIES}
        runs = {name: federated(engine, plain) for name, engine in engines.items()}
        median = {
            name: statistics.median(rates) for name, rates in speeds(runs, load.repetitions).items()
        }
        ratio = median["openblas"] / median["torch"]
        rates = " | ".join(f"{median[name]:,.0f}" for name in LIBRARIES)
        print(f"| {load.name} | {rates} | {ratio:.2f} |", flush=True)
        for engine in engines.values():
            engine.close()


if __name__ == "__main__":
    main()
