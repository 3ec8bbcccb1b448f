"""Compositions of components that ended in a crash: each runs now, or is refused in a sentence
before its first round."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import motley
from motley.core.errors import ConfigError
from motley.core.records import Outcome, Reports
from motley.experiments.build import build
from motley.selectors import Defence, Selector
from motley.selectors.adasample import AdaSample

KEYS: dict[str, Any] = {
    "task": {"name": "synthetic", "dim": 4, "classes": 3, "examples": 16, "sizes": "equal"},
    "population": 6,
    "cohort": 3,
    "stop": {"rounds": 3},
    "local": {"epochs": 1, "batch_size": 8, "optimizer": {"name": "sgd", "lr": 0.05}},
    "evaluate": {"every": 1},
    "engine": {"name": "sequential", "threads": 1},
}
LINES = {"task": {"name": "clustered_regression", "examples": 12}}
WHOLE = {"compressor": "topk", "budget": {"name": "constant", "average": 1.0}}


def _losses(keys: dict[str, Any], out: Path) -> list[float]:
    found = motley.run(keys, out=out).column("evaluations", "loss")
    return [float(loss) for loss in found]


@pytest.mark.parametrize("feedback", ["fixed", "adaptive"])
@pytest.mark.parametrize("algorithm", ["ditto", "per_fedavg", "apfl"])
def test_own_models_are_examined_beside_what_compression_left(
    algorithm: str, feedback: str, tmp_path: Path
) -> None:
    """Where everything is sent nothing waits, so that error feedback changes no figure, of the
    clients' own models either."""
    keys = {
        **KEYS,
        **WHOLE,
        "algorithm": algorithm,
        "task": {**KEYS["task"], "model": {"name": "mlp", "hidden": [5]}},
    }
    without = _losses(keys, tmp_path / "without")
    assert _losses({**keys, "feedback": feedback}, tmp_path / "with") == without
    assert np.isfinite(without).all()


@pytest.mark.parametrize("algorithm", ["ditto", "fine_tuned", "local_only"])
def test_own_models_need_test_samples_of_the_clients_where_there_are_no_classes(
    algorithm: str,
) -> None:
    said = (
        f"split.test: under '{algorithm}' clients are examined with models of their own, and "
        "the clients have no test samples"
    )
    with pytest.raises(ConfigError, match=said):
        build({**KEYS, **LINES, "algorithm": algorithm, "split": {"test": "global"}})
    build({**KEYS, **LINES, "algorithm": algorithm, "split": {"test": "client"}})


def test_probabilities_are_those_of_all_available_clients() -> None:
    """Clients 0 and 1 were asked twice each: 2 is not below 1 + cap * even = 1 + 4/6, so that the
    rule chooses among four."""
    selector = Selector(AdaSample(), 0, 9, Defence(outliers=None, cap=1.0, measured=False))
    ids = np.arange(6)
    selector.observe(
        0, Reports(ids, Outcome.ENROLLED, num_examples=np.full(6, 10), local_steps=np.full(6, 1))
    )
    for number in (1, 2):
        selector.observe(
            number, Reports(ids[:2], Outcome.ACCEPTED, signals={"update_norm": np.ones(2)})
        )
    p = selector.select(3, ids, 2).probabilities
    assert p is not None
    assert p.tolist() == [0.0, 0.0, 0.25, 0.25, 0.25, 0.25]


def test_diagnostics_of_clients_that_a_defence_does_not_offer(tmp_path: Path) -> None:
    keys = {
        **KEYS,
        "selector": "adasample",
        "defence": {"cap": 1.0},
        "evaluate": {"every": 1, "diagnostics": True},
    }
    notes = motley.run({**keys, "weights": "selector"}, out=tmp_path).column("rounds", "notes")
    assert all("diversity.B2_expected" in note for note in notes)


@pytest.mark.parametrize(
    ("selector", "weights"), [("adasample", "selector"), ("hetero_select", "score")]
)
def test_rounds_in_which_nobody_is_available_need_no_coefficients(
    selector: str, weights: str
) -> None:
    """Of 3 clients that are there one time in ten, most rounds have none: an empty cohort has no
    weights, whatever the rule gives."""
    keys = {
        **KEYS,
        "population": 3,
        "cohort": 1,
        "stop": {"rounds": 12},
        "availability": {"name": "bernoulli", "p": 0.1},
    }
    loop = build({**keys, "selector": selector, "weights": weights})
    asked = [loop.step().asked for _ in range(12)]
    loop.engine.close()
    assert () in asked


def test_recurrent_layers_that_a_processor_cannot_compute_in_bfloat16(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for client in range(5):
        (tmp_path / f"{client}.txt").write_text(
            "it is not what it was and will be " * 3, encoding="utf-8"
        )

    real = nn.LSTM.forward

    def forward(layer: nn.LSTM, *given: Any) -> Any:
        if torch.is_autocast_enabled("cpu"):
            raise RuntimeError(
                "could not create a primitive descriptor for the LSTM forward propagation primitive"
            )
        return real(layer, *given)

    monkeypatch.setattr(nn.LSTM, "forward", forward)
    text = {
        "name": "text",
        "data": str(tmp_path),
        "window": 5,
        "model": {"name": "leaf_lstm", "hidden": 4},
    }
    with pytest.raises(
        ConfigError,
        match=r"precision: got 'bfloat16', and this processor cannot compute LSTM in bfloat16; use",
    ):
        build({**KEYS, "population": None, "task": text, "precision": "bfloat16"})


@pytest.mark.parametrize("experiment", ["first.toml", None, [("population", 3)]])
def test_what_is_no_experiment_is_refused(experiment: Any) -> None:
    """A file, which motley.run takes, was a TypeError of Python."""
    with pytest.raises(ConfigError, match=r"experiment: got .*; a file is read by .*load"):
        build(experiment)
