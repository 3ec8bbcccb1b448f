"""What cannot go together on the way up is refused when an experiment is built, in one sentence
with the way out."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

from motley.core.errors import ConfigError
from motley.experiments.build import build
from motley.experiments.config import Experiment
from motley.transport.allocators.by_score import ByScore
from motley.transport.budgets import ConstantBudget, CosineBudget
from motley.transport.compressors.chain import Chain
from motley.transport.compressors.qsgd import QSGD
from motley.transport.compressors.topk import TopK
from motley.transport.feedback import EF21, Adaptive, Fixed, NoFeedback
from motley.transport.upload_config import UploadConfig

FIFTH = {"name": "constant", "average": 0.2}
UPLINKS = {"name": "uniform", "up_mbps": [1, 5]}
NORMED = {
    "task": {"name": "image", "data": "digits", "model": {"name": "digits_mlp", "norm": "batch"}},
    "partition": "iid",
}


def _experiment(**keys: Any) -> Experiment:
    base = {
        "task": {"name": "synthetic", "dim": 5, "classes": 3},
        "partition": "by_writer",
        "population": 4,
        "cohort": 2,
        "stop": {"rounds": 3},
        "local": {"steps": 2, "batch_size": 8},
        "compressor": "topk",
        "budget": FIFTH,
        "engine": "sequential",
    }
    return Experiment(**{**base, **keys})


def _shipping(**keys: Any) -> UploadConfig:
    return build(_experiment(**keys)).config.upload_config


def test_what_is_built_is_what_was_asked_for() -> None:
    assert _shipping(budget="constant", compressor="identity") == UploadConfig()
    assert _shipping(budget="constant", compressor="identity").plain
    found = _shipping(
        compressor={"name": "topk", "criterion": "curvature"}, feedback="adaptive", budget="cosine"
    )
    assert found == UploadConfig(TopK(criterion="curvature"), Adaptive(), budget=CosineBudget())
    found = _shipping(
        quantizer={"name": "qsgd", "levels": 4}, feedback={"name": "fixed", "decay": 0.9}
    )
    assert found == UploadConfig(
        Chain(TopK(), QSGD(levels=4)), Fixed(0.9), budget=ConstantBudget(0.2)
    )
    keys: dict[str, Any] = {
        "selector": "hetero_select",
        "weights": "score",
        "allocator": {"name": "by_score", "cap": "none"},
    }
    assert _shipping(**keys).allocator == ByScore(cap="none")
    assert isinstance(_shipping().feedback, NoFeedback)
    assert _shipping(feedback="ef21", weights="uniform").feedback == EF21()


def test_sending_everything_through_a_sparsifier_is_said() -> None:
    """A compressor that listens to a budget and was given none; not where a budget was named, or
    the selector has its own."""
    bare = {k: v for k, v in _experiment()._given.items() if k != "budget"}
    for keys in (
        {},
        {"allocator": "optrate"},
        {"allocator": "by_score", "selector": "hetero_select"},
    ):
        with pytest.warns(
            UserWarning,
            match=r"'topk' without a budget sends everything; write e.g. budget = \{ name = ",
        ):
            build(Experiment(**bare | keys))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        build(_experiment())
        build(_experiment(compressor="qsgd", budget="constant"))
        build(Experiment(**bare | {"allocator": "from_selector", "selector": "fedcg"}))
        build(_experiment(budget={"name": "constant", "average": 1.0}))


@pytest.mark.parametrize("synchrony", ["asynchronous", "buffered", "fedcompass"])
def test_a_budget_that_is_not_divided_is_said(
    synchrony: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind the first cohort clients replace each other, and who is alone sends the budget."""
    keys = {
        "network": UPLINKS,
        "weights": "uniform",
        "synchrony": synchrony if synchrony != "buffered" else {"name": synchrony, "buffer": 2},
        "cohort": 3,
        "device": {"name": "uniform", "low": 0.1, "high": 0.9},
    }
    with pytest.warns(UserWarning, match=f"'flexcom' divides the budget .*{synchrony!r} most are"):
        simulation = build(_experiment(allocator="flexcom", **keys))
    assert simulation.pipeline is not None
    allocate = simulation.pipeline.allocate
    shares: list[list[float]] = []

    def kept(*args: Any) -> Any:
        allocation = allocate(*args)
        shares.append(allocation.theta.tolist())
        return allocation

    monkeypatch.setattr(simulation.pipeline, "allocate", kept)
    while not simulation.done:
        simulation.step()
    assert len(set(shares[0])) == 3
    assert [pytest.approx(0.2)] in shares[1:]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        build(_experiment(**keys))
        build(_experiment(**{**keys, "synchrony": "deadline"}, allocator="flexcom"))


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "a cosine without an end": (
        {"budget": "cosine", "stop": {"virtual_hours": 1.0}},
        r"stop.rounds: a cosine budget needs the number of rounds",
    ),
    "the same without a warm-up": (
        {"budget": {"name": "cosine", "warm_up": 0}, "stop": {"virtual_hours": 1.0}},
        r"stop.rounds: .*set stop = \{ rounds",
    ),
    "scores of nobody": (
        {"allocator": "by_score"},
        r"allocator: 'by_score' needs the selector's scores, and 'uniform' gives none",
    ),
    "ratios of nobody": (
        {"allocator": "from_selector", "budget": "constant"},
        r"allocator: 'from_selector' needs the selector's upload_ratio, and 'uniform' gives none",
    ),
    "links of nobody": (
        {"allocator": "flexcom"},
        r"network: 'flexcom' divides by how fast clients send, .*give a network, e.g.",
    ),
    "the program without links": (
        {"allocator": "fedcg_lp"},
        r"network: 'fedcg_lp' divides by how fast clients send",
    ),
    "two budgets": (
        {"allocator": "from_selector", "selector": "fedcg", "network": "uniform"},
        r"budget: the selector's ratios would not follow this budget; leave it out",
    ),
    "two schedules": (
        {"allocator": "optrate", "budget": "cosine"},
        r"budget: \"optrate\" makes its own schedule",
    ),
    "a budget for dense updates": (
        {"compressor": "identity"},
        r"compressor: Identity sends every value, so a budget has no effect; use topk",
    ),
    "a budget for a quantizer": (
        {"compressor": "qsgd"},
        r"compressor: QSGD sends every value, so a budget has no effect",
    ),
    "an allocator for a quantizer": (
        {"compressor": "signs", "budget": "constant", "allocator": "optrate"},
        r"compressor: Signs sends every value",
    ),
    "scaled values remembered": (
        {"compressor": "randomk", "feedback": "fixed"},
        r"feedback: random-k scales its values up, .*set unbiased = false",
    ),
    "scaled tensors remembered": (
        {"compressor": {"name": "tensor_drop", "rescale": True}, "feedback": "ef21"},
        r"feedback: tensors divided .*rescale = false",
    ),
    "a chain with scaled values": (
        {"compressor": "randomk", "quantizer": "qsgd", "feedback": "adaptive"},
        r"feedback: random-k scales its values up",
    ),
    "two sparsifiers": (
        {"quantizer": "randomk"},
        r"quantizer: got TopK then RandomK; expected a sparsifier .*, then a quantizer",
    ),
    "two quantizers": (
        {"compressor": "qsgd", "quantizer": "signs"},
        r"quantizer: got QSGD then Signs; expected a sparsifier",
    ),
    "nothing to quantize": (
        {"compressor": "identity", "quantizer": "qsgd"},
        r"quantizer: got Identity then QSGD",
    ),
    "half a model": (
        NORMED | {"algorithm": "fedbn"},
        r"compressor: .*upload an update of the whole model, and that is what is compressed",
    ),
    "half a model with memory": (
        NORMED
        | {
            "algorithm": "fedbn",
            "compressor": "identity",
            "budget": "constant",
            "feedback": "fixed",
        },
        r"compressor: .*does not upload an update of the whole model",
    ),
    "ef21 weighted": (
        {"feedback": "ef21"},
        r"weights: 'ef21' counts every client alike; write weights = \"uniform\"",
    ),
    "ef21 and control variates": (
        {"feedback": "ef21", "algorithm": "scaffold"},
        r"feedback: 'ef21' has the server average all clients' vectors; it goes with",
    ),
    "ef21 and normalized updates": (
        {"feedback": "ef21", "algorithm": "fednova", "weights": "uniform"},
        r"feedback: 'ef21' has the server average",
    ),
    "ef21 and who took part": (
        {"feedback": "ef21", "algorithm": "feddyn", "weights": "uniform"},
        r"feedback: 'ef21' has the server average",
    ),
    "ef21 and a median": (
        {"feedback": "ef21", "aggregator": "median", "weights": "uniform"},
        r"feedback: 'ef21' has the server average",
    ),
    "ef21 in a buffer": (
        {"feedback": "ef21", "weights": "uniform", "synchrony": {"name": "buffered", "buffer": 2}},
        r"feedback: 'ef21' wants rounds in which everybody has the newest model; use synchronous "
        r"or deadline",
    ),
    "links that the server is not told": (
        {"allocator": "fedcg_lp", "network": UPLINKS, "probe": {"speeds": "measured"}},
        r'allocator: \'fedcg_lp\' divides by .*"measured".*use "uniform" or "by_score"',
    ),
    "a smallest share above the budget": (
        {
            "allocator": "flexcom",
            "network": UPLINKS,
            "budget": {"name": "constant", "average": 0.001},
        },
        r"budget: got average = 0.001, .*least = 0.005; set least = 0.001 there",
    ),
    "a residual that grows": (
        {"quantizer": "fedpaq", "feedback": "fixed"},
        r"feedback: levels = 1 with one norm for 18 values .*set levels = 3 or more",
    ),
    "a factor that follows no budget": (
        {"compressor": "signs", "budget": "constant", "feedback": "adaptive"},
        r"feedback: the factor of adaptive feedback .*low = 0.85 in every round; use",
    ),
    "a factor that does not follow the selector": (
        {
            "allocator": "from_selector",
            "selector": "fedcg",
            "network": UPLINKS,
            "budget": "constant",
            "feedback": "adaptive",
        },
        r"feedback: the factor of adaptive feedback follows the budget",
    ),
    "ef21 one by one": (
        {"feedback": "ef21", "weights": "uniform", "synchrony": "asynchronous"},
        r"feedback: 'ef21' wants rounds",
    ),
}


@pytest.mark.parametrize("why", REFUSED)
def test_what_does_not_go_together(why: str) -> None:
    keys, message = REFUSED[why]
    with pytest.raises(ConfigError, match=message):
        build(_experiment(**keys))


@pytest.mark.parametrize(
    "algorithm",
    ["fedavg", "fedprox", "fedavgm", "fedadam", "scaffold", "fednova", "feddyn", "moon", "qfedavg"],
)
def test_every_method_that_uploads_a_whole_update_can_be_compressed(algorithm: str) -> None:
    simulation = build(_experiment(algorithm=algorithm, feedback="fixed", weights="uniform"))
    while not simulation.done:
        assert simulation.step().accepted == 2
    assert all("sent.e" in memory for memory in simulation.state.clients.client_states.values())


@pytest.mark.parametrize("method", ["fedavgm", "fedadam", "fedyogi", "fedadagrad"])
def test_ef21_goes_with_every_server_that_takes_the_mean(method: str) -> None:
    simulation = build(_experiment(algorithm=method, feedback="ef21", weights="uniform"))
    while not simulation.done:
        simulation.step()
    assert simulation.pipeline.mean_vector is not None
