"""Where the time of a local step goes, and how far it is from what one core can do.

    python benchmarks/floor.py [OUT.json] [--only WORKLOAD]

Every workload of ``engines.py`` is trained by the engine that ``auto`` selects, on one core:
processor milliseconds of a client step; the shares of a round in matrix products (convolutions and
recurrent layers included), in gathering samples, in other operations of torch and outside of them
(torch's profiler, in wall time); and the arithmetic of the products (torch's flop counter) per
second. Its bound is the rate of one product of two 1024 x 1024 matrices, measured again before each
workload, since other work on the machine moves both.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from engines import WORKLOADS, Workload, federated, setting
from rich.console import Console
from torch import nn
from torch.profiler import ProfilerActivity, profile
from torch.utils.flop_counter import FlopCounterMode

from motley.engines import ENGINES, resolve_auto
from motley.engines.cores import ThreadPool
from motley.engines.engine import Setting
from motley.tasks.flat import construct

PRODUCTS = ("mm", "conv", "rnn", "attention")
GATHERING = ("index_select", "aten::index")
SIZE = 1024


def best(run: Callable[[], object], turns: int) -> float:
    """Return the fewest processor seconds of a call."""
    found = []
    for _ in range(turns + 1):
        began = time.process_time()
        run()
        found.append(time.process_time() - began)
    return min(found[1:])


def bounds() -> dict[str, float]:
    """Return GFLOP/s of a large product and GB/s of a copy (read and written), on one core."""
    a, b, c = (torch.randn(SIZE, SIZE) for _ in range(3))
    large = torch.randn(32 * 2**20)
    other = torch.empty_like(large)
    products = best(lambda: [torch.mm(a, b, out=c) for _ in range(10)], 5) / 10
    return {
        "gflops": 2e-9 * SIZE**3 / products,
        "gb_per_s": 2e-9 * large.nbytes / best(lambda: other.copy_(large), 5),
    }


def flops(built: Setting) -> int:
    """Return the operations of the products of one plain step, forward and back."""
    data = built.task.federation
    batch = built.work.batch_size
    module = construct(built.task.model, 0).train()
    x = data.x[:batch]
    y = data.y[:batch]
    # counts a fused layer's products
    with (
        torch.backends.mkldnn.flags(enabled=False),
        FlopCounterMode(display=False) as counter,
    ):
        nn.functional.cross_entropy(module(x).flatten(0, -2), y.flatten()).backward()
    return int(counter.get_total_flops())


def split(run: Callable[[], int]) -> dict[str, float]:
    """Return the shares of a round's time, by kind of operation."""
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        began = time.perf_counter()
        run()
        total = time.perf_counter() - began
    seconds = {"products": 0.0, "gathering": 0.0, "other": 0.0}
    for event in profiler.key_averages():
        kind = (
            "gathering"
            if event.key.startswith(GATHERING[0], 6) or event.key == GATHERING[1]
            else "other"
        )
        kind = "products" if any(part in event.key for part in PRODUCTS) else kind
        seconds[kind] += 1e-6 * event.self_cpu_time_total
    return {kind: value / total for kind, value in seconds.items()} | {
        "outside": max(0.0, 1.0 - sum(seconds.values()) / total)
    }


def measure(load: Workload, turns: int = 2) -> dict[str, Any]:
    """Measure one workload: a row of the table."""
    built = dataclasses.replace(setting(load), threads=1)
    name = resolve_auto(built)
    engine = ENGINES.get(name)(built)
    run = federated(engine, built)
    steps = run()
    bound = bounds()
    each = best(run, turns) / steps
    row = {
        "workload": load.name,
        "engine": name,
        "ms_per_step": 1e3 * each,
        "gflop_per_step": 1e-9 * flops(built),
        "shares": split(run),
        **bound,
    }
    engine.close()
    return {**row, "share_of_bound": row["gflop_per_step"] / each / bound["gflops"]}


def inline(
    self: ThreadPool[Any], work: Callable[..., Any], items: Sequence[Any], ahead: int | None = None
) -> Iterator[Any]:
    """Run the work of a pool in the calling thread, the only one that torch's profiler sees."""
    return (self._run(work, item) for item in items)


def main() -> None:
    parser = argparse.ArgumentParser(description="Where the time of a local step goes")
    parser.add_argument("out", nargs="?", default="benchmarks/results/floor.json", type=Path)
    parser.add_argument("--only", default="", help="workloads whose name contains this")
    options = parser.parse_args()
    torch.set_num_threads(1)
    ThreadPool.map = inline  # type: ignore[method-assign]
    console = Console(width=140)
    rows = []
    for load in WORKLOADS:
        if options.only.lower() in load.name.lower():
            rows.append(row := measure(load))
            shares = ", ".join(f"{kind} {share:.0%}" for kind, share in row["shares"].items())
            said = (
                f"{row['ms_per_step']:.3f} ms, {shares}; {row['share_of_bound']:.0%} of "
                f"{row['gflops']:.0f} GFLOP/s"
            )
            console.print(f"{load.name} ({row['engine']}): {said}")
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps({"torch": torch.__version__, "rows": rows}, indent=1) + "\n")
    console.print(f"written to {options.out}")


if __name__ == "__main__":
    main()
