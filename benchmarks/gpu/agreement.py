"""Stage ``agreement``: the same experiments on the CPU and on the device, on every engine, in
float64.

Their models, with all that clients keep, must agree to a relative 1e-8 in the largest difference
(sums are taken in another order). Dropout is left out, since a device draws other masks, and
bfloat16, since its products are rounded otherwise. The rows ``twice`` say whether the device gives
the same bits twice in float32; nothing depends on them.
"""

from __future__ import annotations

from typing import Any

import torch

from benchmarks.gpu.experiments import BASE, ON_DEVICE, OTHERS, UNLIKE, experiments
from benchmarks.gpu.records import Rows, stage_options
from motley.core.errors import ConfigError
from motley.experiments.build import build
from motley.experiments.config import Experiment

TOLERANCE = 1e-8
SLOWER = ("debug", "processes")
"""Engines that are made of the others: a tenth of the experiments is enough for them."""


def model(keys: dict[str, Any], engine: str, device: str) -> torch.Tensor | None:
    """Return the model and what every client keeps at the end of an experiment, in one vector; None
    where the engine does not take it."""
    try:
        loop = build(Experiment(**{**keys, "engine": {"name": engine, "device": device}}))
    except ConfigError as error:
        if "cannot run this experiment" not in str(error):
            raise
        return None
    while not loop.done:
        loop.step()
    state = loop.state
    kept = state.clients.client_states
    clients = [k for k in range(keys["population"]) if k in kept]
    parts = [state.server.model.x, state.server.model.buffers]
    parts += [part for k in clients for part in kept[k].values()]
    return torch.cat([part.double().cpu().flatten() for part in parts])


def difference(a: torch.Tensor, b: torch.Tensor) -> float:
    """Return the largest difference of two models, relative to the largest weight."""
    return float((a - b).abs().max() / b.abs().max())


def main() -> None:
    options = stage_options()
    rows = Rows(options.out / "agreement.json", options.device)
    chosen = [(name, keys) for name, keys in experiments() if name not in UNLIKE]
    for i, (name, keys) in enumerate(chosen[:: 20 if options.smoke else 1]):
        for engine in (*ON_DEVICE, *(() if i % 10 else SLOWER)):
            if f"{name}, {engine}" in rows:
                continue
            try:
                there = model(keys, engine, options.device)
                row: dict[str, Any] = {"refused": True}
                if there is not None:
                    found = difference(there, model(keys, engine, "cpu"))
                    row = {"difference": found, "agrees": found <= TOLERANCE}
            except Exception as error:  # one failure says nothing about the others
                row = {"agrees": False, "error": f"{type(error).__name__}: {error}"[:500]}
            rows.add(f"{name}, {engine}", row)
    for engine in ON_DEVICE:
        if f"twice, {engine}" not in rows:
            keys = {**BASE, **OTHERS["pictures"], "dtype": "float32"}
            found = [model(keys, engine, options.device) for _ in range(2)]
            rows.add(
                f"twice, {engine}",
                {"refused": True} if found[0] is None else {"same_bits": torch.equal(*found)},
            )
    wrong = [name for name, row in rows.found["rows"].items() if row.get("agrees") is False]
    print(f"{len(rows.found['rows'])} pairs, {len(wrong)} differ: {wrong}")
    raise SystemExit(1 if wrong else 0)


if __name__ == "__main__":
    main()
