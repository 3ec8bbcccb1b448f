"""What an upload costs: the length of real messages, what their places take, and what other codes
are estimated to take.

    python benchmarks/uploads.py [--runs FOLDER] [--target 0.9] [--at SECONDS]

Writes ``benchmarks/measured/uploads.json``: bytes of one update of the logistic regression (MNIST)
and of AlexNet (CIFAR-10), encoded (:mod:`motley.transport.wire`), at several theta. Nothing is
timed: every machine writes the same file. With ``--runs``, a folder of finished runs such as
``motley compare examples/fedcg_mnist.toml`` leaves, it also writes that experiment's part of
``benchmarks/measured/traffic.json``: what travelled in which direction in runs of all planned
rounds, means over seeds; and with ``--at`` how far every run was, shorter ones too, when the
federation's clock showed so many seconds.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import estimates
import numpy as np
import torch

from motley.core.keys import Key
from motley.core.layout import Layout
from motley.results import measures
from motley.results.labels import group_runs
from motley.results.load import Run, load_all
from motley.results.method_rows import TargetRow
from motley.results.number_text import MB
from motley.tasks.flat import construct, layout_of
from motley.tasks.models import MODELS
from motley.transport.compressors.chain import Chain
from motley.transport.compressors.compressor import Compressor
from motley.transport.compressors.fedpaq import FedPAQ
from motley.transport.compressors.identity import Identity
from motley.transport.compressors.qsgd import QSGD
from motley.transport.compressors.randomk import RandomK
from motley.transport.compressors.signs import Signs
from motley.transport.compressors.terngrad import TernGrad
from motley.transport.compressors.topk import TopK
from motley.transport.wire import encode, length, places_bytes

HERE = Path(__file__).parent / "measured"
MODEL = {"logistic_regression": (1, 28, 28), "alexnet": (3, 32, 32)}
THETAS = (0.005, 0.01, 0.05, 0.1, 0.2, 0.5, 1.0)
CASES: dict[str, Compressor] = {
    "topk": TopK(),
    "randomk": RandomK(unbiased=False),
    "topk then qsgd": Chain(TopK(), QSGD()),
}
WHOLE: dict[str, Compressor] = {
    "identity": Identity(),
    "qsgd": QSGD(),
    "fedpaq": FedPAQ(),
    "terngrad": TernGrad(),
    "signs": Signs(),
}


def sent(compressor: Compressor, v: torch.Tensor, theta: float, layout: Layout) -> int:
    """Bytes of the message, which is written and measured."""
    packet = compressor.compress(v, theta, layout, Key(0), {})
    data = encode({"delta": packet})
    if len(data) != length({"delta": compressor.spec(theta, layout, Key(0))}):
        raise AssertionError("what is billed is not what is sent")
    return len(data)


def of_model(name: str) -> dict[str, Any]:
    layout = layout_of(construct(lambda: MODELS.build(name).build(MODEL[name], 10), 0))
    size = layout.size
    v = torch.from_numpy(np.random.default_rng(0).standard_t(4, layout.size).astype(np.float32))
    rows = []
    for theta in THETAS:
        kept = TopK().spec(theta, layout, Key(0)).sent
        listed, mapped = places_bytes(size, kept)
        places = min((listed, "list"), (mapped, "bitmap")) if kept < size else (0, "none")
        rows.append(
            {
                "theta": theta,
                "kept": kept,
                "paper": estimates.seed_bits(size, theta) / 8,
                "places": places,
                **{case: sent(compressor, v, theta, layout) for case, compressor in CASES.items()},
                "golomb": estimates.golomb_bits(size, kept) / 8,
                "entropy": estimates.entropy_bits(size, kept) / 8,
            }
        )
    whole = {case: sent(compressor, v, 1.0, layout) for case, compressor in WHOLE.items()}
    return {
        "model": name,
        "parameters": size,
        "rows": rows,
        "whole": whole,
        "elias": estimates.elias_bits(size, 1) / 8,
    }


def traffic(folder: Path, target: float, at: float | None) -> dict[str, Any]:
    """Megabytes by direction of each method, means over seeds, by the name of the experiment."""
    rows = []
    groups = group_runs(load_all(folder))
    for label, runs in groups.items():
        spent = [measures.costs(run) for run in runs]
        if any(
            one.rounds < run.config["stop"]["rounds"] for one, run in zip(spent, runs, strict=True)
        ):
            continue
        mb = {
            kind: float(np.mean([getattr(one, f"{kind}_bits") for one in spent])) / MB
            for kind in ("paper", "up", "down", "probe", "total")
        }
        way = TargetRow(label, runs, target)
        costs = {
            "rounds": way.cost("rounds"),
            "seconds": way.cost("time_s"),
            "paper_mb": way.cost("paper_bits", MB),
            "traffic_mb": way.cost("total_bits", MB),
        }
        until = {name: [one.mean.value, one.mean.reached] for name, one in costs.items()}
        rows.append(
            {
                "method": label,
                "seeds": sorted(run.seed for run in runs),
                "rounds": spent[0].rounds,
                "mb": mb,
                "until": until,
            }
        )
    found: dict[str, Any] = {"target": target, "rows": rows}
    if at is not None:
        found["early"] = {
            "seconds": at,
            "rows": [{"method": label, **early(runs, at)} for label, runs in groups.items()],
        }
    return {next(iter(groups.values()))[0].name: found}


def early(runs: Sequence[Run], seconds: float) -> dict[str, float]:
    """Where the runs of one method stand when the clock shows ``seconds``: means over seeds of
    their last examinations by then."""
    stands = []
    for run in runs:
        clock = measures.curve(run, "seconds")
        last = int(np.searchsorted(clock.x, seconds, side="right")) - 1
        rounds, paper, bits = (
            float(measures.curve(run, axis).x[last]) for axis in ("round", "paper_bits", "bits")
        )
        stands.append((rounds, float(clock.y[last]), paper / MB, bits / MB))
    names = ("rounds", "accuracy", "paper_mb", "traffic_mb")
    return dict(zip(names, np.mean(stands, axis=0).tolist(), strict=True))


def write(name: str, found: Any) -> None:
    (HERE / f"{name}.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description="what an upload costs")
    parser.add_argument("--runs", type=Path, help="finished runs, for traffic.json")
    parser.add_argument("--target", type=float, default=0.9)
    parser.add_argument("--at", type=float, help="virtual seconds at which to look at every run")
    given = parser.parse_args()
    torch.set_num_threads(1)
    head = length({"delta": Identity().spec(1.0, Layout(()), Key(0))})
    write("uploads", {"head": head, "models": [of_model(name) for name in MODEL]})
    if given.runs:
        before = json.loads((HERE / "traffic.json").read_text(encoding="utf-8"))
        write(
            "traffic",
            dict(
                sorted(
                    {**before, **traffic(given.runs, given.target, given.at)}.items(), reverse=True
                )
            ),
        )


if __name__ == "__main__":
    main()
