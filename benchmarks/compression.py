"""What compressing one client's update costs: milliseconds and bytes of every compressor, at
AlexNet's and ResNet-18's size.

    python benchmarks/compression.py [OUT.json] [--theta 0.2] [--repetitions 7]

The update is heavy-tailed random numbers, one scale per layer. *compress* is error feedback,
choice, quantizing, the decoded vector and the client's next state
(:func:`motley.transport.feedback.compress_update`); *encode* and *decode* are the wire format. The
best repetition counts (another process on the machine can only slow one down); one thread. *peak*
is the most memory that compress and encode allocate, in a run of its own. ``hutchinson`` is one
probe of curvature at AlexNet on one batch of 32, over three layers and over all.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from motley.core.keys import Key
from motley.core.layout import Layout
from motley.tasks.curvature import hutchinson, rademacher
from motley.tasks.flat import construct, layout_of
from motley.tasks.models import MODELS
from motley.transport.compressors.chain import Chain
from motley.transport.compressors.compressor import Compressor
from motley.transport.compressors.fedpaq import FedPAQ
from motley.transport.compressors.identity import Identity
from motley.transport.compressors.qsgd import QSGD
from motley.transport.compressors.randomk import RandomK
from motley.transport.compressors.signs import Signs
from motley.transport.compressors.tensor_drop import TensorDrop
from motley.transport.compressors.terngrad import TernGrad
from motley.transport.compressors.topk import TopK
from motley.transport.feedback import Adaptive, CompressedUpdate, NoFeedback, compress_update
from motley.transport.wire import decode, encode

CASES: dict[str, Compressor] = {
    "identity": Identity(),
    "topk": TopK(),
    "topk, curvature": TopK(criterion="curvature"),
    "topk then qsgd": Chain(TopK(), QSGD()),
    "randomk": RandomK(unbiased=False),
    "tensor_drop": TensorDrop(),
    "qsgd": QSGD(),
    "fedpaq": FedPAQ(),
    "terngrad": TernGrad(),
    "signs": Signs(),
}
MODEL = {"alexnet": (3, 32, 32), "resnet18": (3, 32, 32)}


def model(name: str) -> torch.nn.Module:
    return construct(lambda: MODELS.build(name).build(MODEL[name], 10), 0)


def update(layout: Layout) -> torch.Tensor:
    rng = np.random.default_rng(0)
    v = rng.standard_t(4, layout.size).astype(np.float32)
    for number, place in enumerate(layout.layers.values()):
        v[place] *= 0.01 / (1 + number)
    return torch.from_numpy(v)


def best(work: Callable[[], Any], repetitions: int) -> float:
    laps = []
    for _ in range(repetitions):
        began = time.perf_counter()
        work()
        laps.append(time.perf_counter() - began)
    return 1e3 * min(laps)


def measure(case: str, name: str, theta: float, repetitions: int) -> dict[str, Any]:
    """One compressor on one model, in this process."""
    torch.set_num_threads(1)
    compressor = CASES[case]
    layout = layout_of(model(name))
    key = Key(0)
    v = update(layout)
    e = update(layout).flip(0) * 0.5
    feedback = NoFeedback() if case == "identity" else Adaptive()
    state = None if case == "identity" else {"e": e}
    curvature = {
        layer: v[layout.layers[layer]].abs()
        for layer in compressor.curvature_layers(theta, layout, key, None)
    }

    def compressed() -> CompressedUpdate:
        return compress_update(feedback, compressor, v, state, theta, theta, layout, key, curvature)

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    encode({"delta": compressed().packet})
    peak = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    packet = compressed().packet
    data = encode({"delta": packet})
    return {
        "compress_ms": best(compressed, repetitions),
        "encode_ms": best(lambda: encode({"delta": packet}), repetitions),
        "decode_ms": best(lambda: decode(data)["delta"].dense(), repetitions),
        "bytes": len(data),
        "peak_mib": peak,
        "parameters": layout.size,
    }


def curvature(name: str, repetitions: int) -> dict[str, float]:
    """A probe of three layers and of all; beside it one local step's forward and backward pass."""
    torch.set_num_threads(1)
    module = model(name).train()
    x = torch.randn(32, *MODEL[name])
    y = torch.arange(32) % 10
    everything = [p for p in module.parameters() if p.requires_grad]
    layers = list(layout_of(module).layers)
    some = [
        p
        for layer in (layers[1], layers[len(layers) // 2], layers[-2])
        for p in module.get_submodule(layer).parameters()
    ]

    def loss() -> torch.Tensor:
        return torch.nn.functional.cross_entropy(module(x), y)

    def probe(parameters: list[torch.nn.Parameter]) -> None:
        hutchinson(loss(), parameters, rademacher(Key(1), [p.shape for p in parameters]))

    return {
        "step_ms": best(lambda: torch.autograd.grad(loss(), everything), repetitions),
        "probe_3_layers_ms": best(lambda: probe(some), repetitions),
        "probe_all_ms": best(lambda: probe(everything), repetitions),
    }


def _fresh(call: str) -> Any:
    here = str(Path(__file__).parent)
    code = (
        f"import sys, json; sys.path.insert(0, {here!r}); import compression; "
        f"print(json.dumps(compression.{call}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return json.loads(done.stdout.strip().splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description="time and bytes of every compressor")
    parser.add_argument(
        "out", nargs="?", default=Path(__file__).parent / "results" / "compression.json", type=Path
    )
    parser.add_argument("--theta", type=float, default=0.2)
    parser.add_argument("--repetitions", type=int, default=7)
    given = parser.parse_args()
    console = Console()
    found: dict[str, Any] = {"theta": given.theta, "cases": [], "hutchinson": {}}
    for name in MODEL:
        table = Table("compressor", "compress ms", "encode ms", "decode ms", "MB", "peak MiB")
        for case in CASES:
            row = _fresh(f"measure({case!r}, {name!r}, {given.theta}, {given.repetitions})")
            found["cases"].append({"model": name, "compressor": case, **row})
            ms = [f"{row[k]:.1f}" for k in ("compress_ms", "encode_ms", "decode_ms")]
            table.add_row(case, *ms, f"{row['bytes'] / 1e6:.3f}", f"{row['peak_mib']:.0f}")
            table.title = f"{name}, {row['parameters']:,} parameters, theta {given.theta}"
        console.print(table)
    found["hutchinson"] = _fresh(f"curvature('alexnet', {given.repetitions})")
    console.print(
        "Hutchinson, AlexNet, batch 32, ms:",
        {k: round(v, 1) for k, v in found["hutchinson"].items()},
    )
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
