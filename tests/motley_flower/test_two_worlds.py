"""The messages of a deployed client in worlds that differ in its data: alike but for noisy signals
and the update."""

from __future__ import annotations

import dataclasses

import pytest

from motley.core.keys import Key
from motley_flower.deployed.client_runtime import ClientRuntime
from motley_flower.deployed.protocol import Order, open_answer, pack
from motley_privacy import noise
from motley_privacy.neighbouring_worlds import neighbours
from tests.motley_flower.client_runtimes import experiment

pytest.importorskip("dp_accounting")

LOSS = ("laplace", 0.0, 5.0, 4.0)
SIZE = ("laplace", 0.0, 400.0, 4.0)
UPLOADS = {
    "whole": {},
    "top-k": {
        "compressor": {"name": "topk"},
        "feedback": "fixed",
        "budget": {"name": "constant", "average": 0.1},
    },
    "random": {"compressor": "randomk", "budget": {"name": "constant", "average": 0.1}},
    "quantized": {"compressor": "qsgd"},
}


def setup(**keys):
    signals = {
        "loss": {"low": 0.0, "high": 5.0, "multiplier": 4.0},
        "num_examples": {"low": 0.0, "high": 400.0, "multiplier": 4.0},
    }
    table = {"clip": 0.5, "delta": 1e-5, "noise_multiplier": 4.0, "signal_noise": signals}
    task = {"name": "image", "data": "digits", "model": "digits_mlp", "scale": "unit"}
    more = {
        "weights": "uniform",
        "selector": "power_of_choice",
        "partition": "iid",
        "split": {},
        "task": task,
    }
    return experiment(**{**more, "privacy": table, **keys})


def replies(given, task, folder):
    """The answers of client 5 to all that a server may ask of it, by kind, without its seconds."""
    runtime = ClientRuntime(given, folder, task)
    base = {"run": "r", "agreed": runtime.agreed, "client": 5, "round": 1}
    model = pack(runtime.like)
    orders = [
        Order("enrol", **base, want=("num_examples",), noise={"num_examples": SIZE}),
        Order("probe", **base, probed={"loss": None}, noise={"loss": LOSS}, model=model),
        Order(
            "train",
            **base,
            dispatch=3,
            steps=2,
            lr=0.1,
            theta=0.1,
            budget=0.1,
            want=("loss",),
            noise={"loss": LOSS},
            model=model,
        ),
    ]
    found = {}
    for order in orders:
        sealed = runtime.answer(5, order.seal())
        found[order.kind] = len(sealed), open_answer(sealed, 10**7)
    return found


@pytest.mark.parametrize("upload", UPLOADS)
def test_answers_have_one_length_and_differ_in_bounded_signals_and_the_update_alone(
    tmp_path, monkeypatch, upload
):
    monkeypatch.setattr(noise, "SystemRandomness", lambda: Key(0))
    given = setup(**UPLOADS[upload])
    worlds = neighbours(given, tmp_path / "files", client=5)
    first = replies(given, worlds.first, tmp_path / "first")
    for change in ("other", "far"):
        for kind, (length, answer) in replies(
            given, worlds.changed[change], tmp_path / change
        ).items():
            before = first[kind][1]
            assert length == first[kind][0], (change, kind)
            for field in dataclasses.fields(answer):
                if field.name not in ("signals", "upload", "compute_s"):
                    assert getattr(answer, field.name) == getattr(before, field.name), (
                        change,
                        kind,
                        field.name,
                    )
            assert answer.signals.keys() == before.signals.keys()
            for name, value in answer.signals.items():
                width = {"loss": 5.0, "num_examples": 400.0}[name]
                assert abs(float(value) - float(before.signals[name])) <= width * (1 + 1e-9)
