"""A client with ``[privacy]`` of its own in this process, and a server that asks it what it
likes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from motley.experiments.config import Experiment
from motley_flower.deployed.client_runtime import ClientRuntime
from motley_flower.deployed.protocol import Order, open_answer, pack

MULTIPLIER = 5.0
INTERVALS = {"loss": (0.0, 5.0), "num_examples": (0.0, 100.0)}


def client(folder: str) -> ClientRuntime:
    noise = {
        name: {"low": low, "high": high, "multiplier": MULTIPLIER}
        for name, (low, high) in INTERVALS.items()
    }
    privacy = {"clip": 0.5, "delta": 1e-5, "noise_multiplier": 4.0, "signal_noise": noise}
    made = Experiment(
        population=2,
        cohort=1,
        task="quadratic",
        stop={"rounds": 20},
        weights="uniform",
        local={"steps": 1},
        selector={"name": "power_of_choice", "d": 2},
        privacy=privacy,
    )
    return ClientRuntime(made, Path(folder))


def asked(at: ClientRuntime, kind: str, name: str, multiplier: float, **more: Any) -> float:
    """Return one signal of client 0, asked for with this multiplier."""
    wants = {"want": (name,)} if kind == "enrol" else {"probed": {name: None}}
    noise = {name: ("laplace", *INTERVALS[name], multiplier)}
    model = b"" if kind == "enrol" else pack(at.like)
    order = Order(kind, "run", at.agreed, 0, 1, noise=noise, model=model, **wants, **more)
    return float(open_answer(at.answer(0, order.seal()), 10**6).signals[name])
